/* A message's properties on their way into the log.
 *
 * Apache reads them into a map, adds the broker's own, and writes the map. Kept here: what the result says. Differs:
 * the order, which is the client's own followed by ours, where Apache's is that of a hash map. Names that a broker acts
 * on are not acted on here: the message goes to the control loop. */
#include <strings.h>

#include "send.h"
#include "unique_key.h"

enum meaning {
    KEPT,    /* the user's, or of no concern to a broker */
    DROPPED, /* the broker's to say */
    KEY,     /* UNIQ_KEY */
    WAIT,
    SPECIAL, /* delay, timer, transaction, lite topic, priority, multi-dispatch, inner batch */
};

static bool is(const struct pymq_slice *name, const char *text, size_t size) {
    return name->size == size && memcmp(name->data, text, size) == 0;
}

static bool begins(const struct pymq_slice *name, const char *text, size_t size) {
    return name->size >= size && memcmp(name->data, text, size) == 0;
}

#define IS(name, text) is(name, text, sizeof text - 1)
#define BEGINS(name, text) begins(name, text, sizeof text - 1)

/* By the first letter: nearly every name is somebody's own and is out after one comparison. */
static enum meaning meaning_of(const struct pymq_slice *name) {
    switch (name->data[0]) {
    case 'C':
        return IS(name, "CLUSTER") ? DROPPED : KEPT;
    case 'D':
        return IS(name, "DELAY") ? SPECIAL : KEPT;
    case 'I':
        return BEGINS(name, "INNER_MULTI_") || IS(name, "INNER_NUM") ? SPECIAL : KEPT;
    case 'M':
        return IS(name, "MSG_REGION") ? DROPPED : KEPT;
    case 'P':
        return IS(name, "POP_CK") ? DROPPED : KEPT;
    case 'T':
        if (IS(name, "TRACE_ON"))
            return DROPPED;
        return BEGINS(name, "TIMER_") || IS(name, "TRAN_MSG") ? SPECIAL : KEPT;
    case 'U':
        return IS(name, "UNIQ_KEY") ? KEY : KEPT;
    case 'W':
        return IS(name, "WAIT") ? WAIT : KEPT;
    case '_':
        return IS(name, "__LITE_TOPIC") || IS(name, "_SYS_MSG_PRIORITY_") ? SPECIAL : KEPT;
    default:
        return KEPT;
    }
}

/* MessageExt.isWaitStoreMsgOK: anything but "true" is no. */
static bool is_true(const struct pymq_slice *value) {
    return value->size == 4 && strncasecmp((const char *)value->data, "true", 4) == 0;
}

static bool stands_before(struct pymq_slice source, const struct pymq_slice *name) {
    struct pymq_property earlier;
    size_t position = 0;
    while (pymq_properties_next(source.data, source.size, &position, &earlier) && earlier.name.data < name->data) {
        if (earlier.name.size == name->size && memcmp(earlier.name.data, name->data, name->size) == 0)
            return true;
    }
    return false;
}

struct reading {
    size_t kept_size;  /* of pairs that stay, with both separators */
    uint64_t seen;     /* one bit per name, roughly: only a bit met twice is worth a closer look */
    struct pymq_slice key;
    bool wait;
};

static int read_all(struct pymq_slice source, struct reading *reading) {
    struct pymq_property pair;
    size_t position = 0;
    *reading = (struct reading){.wait = true};
    while (pymq_properties_next(source.data, source.size, &position, &pair)) {
        uint32_t middle = pair.name.data[pair.name.size / 2], last = pair.name.data[pair.name.size - 1];
        uint64_t bit = UINT64_C(1) << ((pair.name.size * 7 + pair.name.data[0] * 5 + middle * 3 + last) & 63);
        if ((reading->seen & bit) != 0 && stands_before(source, &pair.name))
            return PYMQ_EUNSUPPORTED; /* the last one counts; rare enough for the slower plane */
        reading->seen |= bit;
        switch (meaning_of(&pair.name)) {
        case SPECIAL:
            return PYMQ_EUNSUPPORTED;
        case DROPPED:
            continue;
        case KEY:
            reading->key = pair.value;
            break;
        case WAIT:
            reading->wait = is_true(&pair.value);
            break;
        case KEPT:
            break;
        }
        reading->kept_size += pair.name.size + pair.value.size + 2;
    }
    return PYMQ_OK;
}

/* Pair by pair, when something is left out. */
static uint8_t *copy_kept(struct pymq_slice source, uint8_t *target, const uint8_t **key_data) {
    struct pymq_property pair;
    size_t position = 0;
    while (pymq_properties_next(source.data, source.size, &position, &pair)) {
        enum meaning meaning = meaning_of(&pair.name);
        if (meaning == DROPPED)
            continue;
        memcpy(target, pair.name.data, pair.name.size);
        target += pair.name.size;
        *target++ = PYMQ_NAME_VALUE_SEPARATOR;
        if (meaning == KEY)
            *key_data = target;
        memcpy(target, pair.value.data, pair.value.size);
        target += pair.value.size;
        *target++ = PYMQ_PROPERTY_SEPARATOR;
    }
    return target;
}

int pymq_send_properties(struct pymq_slice source, const struct pymq_broker_properties *added, int64_t wall_ms,
                         uint8_t *target, size_t capacity, struct pymq_sent_properties *result) {
    static const char KEY_HEAD[] = "UNIQ_KEY\x01";
    struct reading reading;
    int status = read_all(source, &reading);
    if (status != PYMQ_OK)
        return status;
    size_t key_room = reading.key.data == NULL ? sizeof KEY_HEAD - 1 + PYMQ_UNIQUE_KEY_SIZE + 1 : 0;
    if (reading.kept_size + key_room + added->size > capacity ||
        reading.kept_size + key_room + added->size > PYMQ_PROPERTIES_SIZE_MAX)
        return PYMQ_EPROPERTIES;

    uint8_t *at = target;
    const uint8_t *key_data = NULL;
    bool is_closed = source.size > 0 && source.data[source.size - 1] == PYMQ_PROPERTY_SEPARATOR;
    if (reading.kept_size == source.size + (source.size > 0 && !is_closed)) { /* every byte stays: the common case */
        if (source.size > 0)
            memcpy(at, source.data, source.size);
        if (reading.key.data != NULL)
            key_data = target + (reading.key.data - source.data);
        at += source.size;
        if (source.size > 0 && !is_closed)
            *at++ = PYMQ_PROPERTY_SEPARATOR;
    } else {
        at = copy_kept(source, at, &key_data);
    }
    result->key_size = reading.key.size;
    if (key_data == NULL) {
        memcpy(at, KEY_HEAD, sizeof KEY_HEAD - 1);
        key_data = at += sizeof KEY_HEAD - 1;
        pymq_unique_key_at(at, wall_ms);
        at += PYMQ_UNIQUE_KEY_SIZE;
        *at++ = PYMQ_PROPERTY_SEPARATOR;
        result->key_size = PYMQ_UNIQUE_KEY_SIZE;
    }
    memcpy(at, added->text, added->size);
    at += added->size;
    result->key_at = (uint32_t)(key_data - target);
    result->size = (uint32_t)(at - target);
    result->wait = reading.wait;
    return PYMQ_OK;
}

int pymq_batch_properties(struct pymq_slice source, struct pymq_slice *key, bool *wait) {
    struct reading reading;
    int status = read_all(source, &reading);
    *key = reading.key;
    *wait = reading.wait;
    return status;
}

void pymq_broker_properties_make(struct pymq_broker_properties *added, const struct pymq_serve_config *config) {
    const char *pairs[][2] = {
        {"MSG_REGION", config->region},
        {"TRACE_ON", config->trace_on ? "true" : "false"},
        {"CLUSTER", config->cluster},
    };
    size_t size = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct pymq_slice name = {(const uint8_t *)pairs[i][0], (uint32_t)strlen(pairs[i][0])};
        struct pymq_slice value = {(const uint8_t *)pairs[i][1], (uint32_t)strlen(pairs[i][1])};
        /* A value with a separator inside is refused by pymq_serve_open; everything fits by the sizes of its parts. */
        pymq_properties_append(added->text, sizeof added->text, &size, name, value);
    }
    added->size = (uint32_t)size;
}
