/* A message's properties on their way into the log.
 *
 * Apache reads them into a map, adds the broker's own, and writes the map. Kept here: what the result says. Differs:
 * the order, which is the client's own followed by ours, where Apache's is that of a hash map. A delay level and a half
 * message are understood here in their plain form; other names that a broker acts on are not: the message goes to the
 * control loop, and so does whatever is unusual about those two. pymq/broker/redirect.py has what they mean. */
#include <stdio.h>
#include <strings.h>

#include "send.h"
#include "unique_key.h"

enum meaning {
    KEPT,    /* the user's, or of no concern to a broker */
    DROPPED, /* the broker's to say */
    KEY,     /* UNIQ_KEY */
    WAIT,
    DELAY,
    HALF,     /* TRAN_MSG */
    PRODUCER, /* PGROUP */
    ADDED,    /* the broker's to add to a message that waits; the user's on any other */
    SPECIAL,  /* timer, lite topic, priority, multi-dispatch, inner batch */
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
        return IS(name, "DELAY") ? DELAY : KEPT;
    case 'I':
        return BEGINS(name, "INNER_MULTI_") || IS(name, "INNER_NUM") ? SPECIAL : KEPT;
    case 'M':
        return IS(name, "MSG_REGION") ? DROPPED : KEPT;
    case 'P':
        if (IS(name, "PGROUP"))
            return PRODUCER;
        return IS(name, "POP_CK") ? DROPPED : KEPT;
    case 'R':
        return IS(name, "REAL_TOPIC") || IS(name, "REAL_QID") ? ADDED : KEPT;
    case 'T':
        if (IS(name, "TRACE_ON"))
            return DROPPED;
        if (IS(name, "TRAN_MSG"))
            return HALF;
        if (IS(name, "TRAN_PREPARED_QUEUE_OFFSET") || IS(name, "TRANSACTION_CHECK_TIMES"))
            return ADDED;
        return BEGINS(name, "TIMER_") ? SPECIAL : KEPT;
    case 'U':
        return IS(name, "UNIQ_KEY") ? KEY : KEPT;
    case 'W':
        return IS(name, "WAIT") ? WAIT : KEPT;
    case '_':
        if (IS(name, "__transactionId__"))
            return ADDED;
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

/* Names that look like an earlier one and are compared with all of them: beyond, it is Python's, whose dictionary takes
 * no longer for the thousandth name than for the first. A reactor would stand still for seconds. */
#define CLOSE_LOOKS_MAX 64

struct reading {
    size_t kept_size;  /* of pairs that stay, with both separators */
    uint64_t seen;     /* one bit per name, roughly: only a bit met twice is worth a closer look */
    struct pymq_slice key, delay;
    bool wait, is_half, has_producer, has_added;
};

static int read_all(struct pymq_slice source, struct reading *reading) {
    struct pymq_property pair;
    size_t position = 0;
    int close_looks = 0;
    *reading = (struct reading){.wait = true};
    while (pymq_properties_next(source.data, source.size, &position, &pair)) {
        uint32_t middle = pair.name.data[pair.name.size / 2], last = pair.name.data[pair.name.size - 1];
        uint64_t bit = UINT64_C(1) << ((pair.name.size * 7 + pair.name.data[0] * 5 + middle * 3 + last) & 63);
        if ((reading->seen & bit) != 0 && (++close_looks > CLOSE_LOOKS_MAX || stands_before(source, &pair.name)))
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
        case DELAY:
            reading->delay = pair.value;
            break;
        case HALF:
            if (!is_true(&pair.value))
                return PYMQ_EUNSUPPORTED;
            reading->is_half = true;
            break;
        case PRODUCER:
            reading->has_producer = true;
            break;
        case ADDED:
            reading->has_added = true;
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

/* ---- messages that wait ----------------------------------------------------------------------------------------- */

static const char KEY_HEAD[] = "UNIQ_KEY\x01";
static const char TRANSACTION_HEAD[] = "__transactionId__\x01";
static const char TOPIC_HEAD[] = "REAL_TOPIC\x01";
#define QUEUE_ROOM (sizeof "REAL_QID\x01" + 10 + 1) /* an int32's digits and the separator */

/* The level as a client writes it; 0 when it is 0, and negative when it is anything but a level there is: leave it. */
static int32_t read_level(const struct pymq_slice *text, int32_t level_max) {
    int32_t level = 0;
    if (text->size == 0 || text->size > PYMQ_DELAY_LEVEL_DIGITS || (text->size > 1 && text->data[0] == '0'))
        return -1;
    for (uint32_t i = 0; i < text->size; i++) {
        if (text->data[i] < '0' || text->data[i] > '9')
            return -1;
        level = 10 * level + (text->data[i] - '0');
    }
    return level <= level_max ? level : -1;
}

/* What kind of message this is. PYMQ_OK, or PYMQ_EUNSUPPORTED when it is for the control loop. */
static int find_kind(const struct pymq_serve_config *config, const struct reading *reading,
                     struct pymq_sent_properties *result) {
    result->level = reading->delay.data != NULL ? read_level(&reading->delay, config->delay_level_max) : 0;
    result->is_half = reading->is_half;
    if (result->level < 0 || ((result->level > 0 || result->is_half) && reading->has_added))
        return PYMQ_EUNSUPPORTED;
    if (result->is_half && (!config->transactions || !reading->has_producer || reading->delay.data != NULL))
        return PYMQ_EUNSUPPORTED;
    return PYMQ_OK;
}

/* Bytes that put_place may write. */
static size_t place_room(const struct pymq_send *send, const struct pymq_sent_properties *result, size_t key_size) {
    if (result->level == 0 && !result->is_half)
        return 0;
    size_t room = sizeof TOPIC_HEAD + send->topic.size + QUEUE_ROOM;
    return result->is_half ? room + sizeof TRANSACTION_HEAD + key_size : room;
}

static uint8_t *put_text(uint8_t *at, const void *text, size_t size) {
    memcpy(at, text, size);
    return at + size;
}

/* Where it goes once it has waited, and which transaction it belongs to. */
static uint8_t *put_place(uint8_t *at, const struct pymq_send *send, bool is_half, const uint8_t *key,
                          size_t key_size) {
    if (is_half) {
        at = put_text(at, TRANSACTION_HEAD, sizeof TRANSACTION_HEAD - 1);
        at = put_text(at, key, key_size);
        *at++ = PYMQ_PROPERTY_SEPARATOR;
    }
    at = put_text(at, TOPIC_HEAD, sizeof TOPIC_HEAD - 1);
    at = put_text(at, send->topic.data, send->topic.size);
    *at++ = PYMQ_PROPERTY_SEPARATOR;
    return at + snprintf((char *)at, QUEUE_ROOM, "REAL_QID\x01%d\x02", (int)send->queue_id);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

int pymq_send_properties(const struct pymq_serve *serve, const struct pymq_send *send, int64_t wall_ms, uint8_t *target,
                         size_t capacity, struct pymq_sent_properties *result) {
    const struct pymq_broker_properties *added = serve->added;
    struct pymq_slice source = send->properties;
    struct reading reading;
    int status = read_all(source, &reading);
    if (status == PYMQ_OK)
        status = find_kind(&serve->config, &reading, result);
    if (status != PYMQ_OK)
        return status;
    size_t key_room = reading.key.data == NULL ? sizeof KEY_HEAD - 1 + PYMQ_UNIQUE_KEY_SIZE + 1 : 0;
    size_t key_size = reading.key.data == NULL ? PYMQ_UNIQUE_KEY_SIZE : reading.key.size;
    size_t room = reading.kept_size + key_room + place_room(send, result, key_size);
    if (room + added->size > capacity || room + added->size > PYMQ_PROPERTIES_SIZE_MAX ||
        (result->is_half && room > PYMQ_HALF_PROPERTIES_MAX))
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
    result->key_size = (uint32_t)key_size;
    if (key_data == NULL) {
        memcpy(at, KEY_HEAD, sizeof KEY_HEAD - 1);
        key_data = at += sizeof KEY_HEAD - 1;
        pymq_unique_key_at(at, wall_ms);
        at += PYMQ_UNIQUE_KEY_SIZE;
        *at++ = PYMQ_PROPERTY_SEPARATOR;
    }
    if (result->level > 0 || result->is_half)
        at = put_place(at, send, result->is_half, key_data, key_size);
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
    return status == PYMQ_OK && (reading.delay.data != NULL || reading.is_half) ? PYMQ_EUNSUPPORTED : status;
}

bool pymq_batch_item_is_plain(struct pymq_slice properties) {
    struct pymq_property pair;
    size_t position = 0;
    while (pymq_properties_next(properties.data, properties.size, &position, &pair)) {
        enum meaning meaning = meaning_of(&pair.name);
        if (meaning == DELAY || meaning == HALF || meaning == SPECIAL)
            return false;
    }
    return true;
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
