/* What dispatch needs of a record besides its fixed fields: tags code, keys, unique key, delivery time. */
#include "pymq/java_hash.h"
#include "pymq/record.h"

#define DELAY_LEVEL_MS_MAX (INT64_MAX / 2) /* so that store time + delay cannot overflow */

static const char schedule_topic[] = "SCHEDULE_TOPIC_XXXX";

static inline bool name_is(const struct pymq_property *property, const char *name, size_t name_size) {
    return property->name.size == name_size && memcmp(property->name.data, name, name_size) == 0;
}

#define NAME_IS(property, literal) name_is(property, literal, sizeof(literal) - 1)

static int64_t unit_ms(char unit) {
    switch (unit) {
    case 's': return 1000;
    case 'm': return 60 * 1000;
    case 'h': return 60 * 60 * 1000;
    case 'd': return 24 * 60 * 60 * 1000;
    default: return 0;
    }
}

int pymq_delay_levels_parse(const char *text, struct pymq_delay_levels *levels) {
    struct pymq_delay_levels parsed = {0, {0}};
    while (*text != '\0') {
        int64_t number = 0, unit;
        const char *digits = text;
        for (; *text >= '0' && *text <= '9'; text++) {
            if (number > DELAY_LEVEL_MS_MAX / 10 - 10) {
                return PYMQ_EINVAL;
            }
            number = number * 10 + (*text - '0');
        }
        unit = unit_ms(*text);
        if (text == digits || unit == 0 || number > DELAY_LEVEL_MS_MAX / unit ||
            parsed.count == PYMQ_DELAY_LEVELS_MAX) {
            return PYMQ_EINVAL;
        }
        parsed.delay_ms[parsed.count++] = number * unit;
        text++;
        if (*text == ' ') { /* exactly one between levels, as Apache splits; spaces at the very end are dropped */
            text++;
            if (*text == ' ') {
                text += strspn(text, " ");
                if (*text != '\0') {
                    return PYMQ_EINVAL;
                }
            }
        } else if (*text != '\0') {
            return PYMQ_EINVAL;
        }
    }
    if (parsed.count == 0) {
        return PYMQ_EINVAL;
    }
    *levels = parsed;
    return PYMQ_OK;
}

/* Integer.parseInt for ASCII digits. Differs: what is no int is level 0 (no delay) here; Apache's dispatch refuses
 * the record, and its recovery then cuts the log there. */
static int32_t parse_level(struct pymq_slice text) {
    uint32_t at = 0;
    int64_t level = 0;
    bool negative = false;
    if (text.size > 1 && (text.data[0] == '+' || text.data[0] == '-')) {
        negative = text.data[0] == '-';
        at = 1;
    }
    for (; at < text.size; at++) {
        if (text.data[at] < '0' || text.data[at] > '9') {
            return 0;
        }
        level = level * 10 + (text.data[at] - '0');
        if (level > INT32_MAX) {
            return 0;
        }
    }
    return negative ? 0 : (int32_t)level;
}

void pymq_record_keys(const struct pymq_record *record, const struct pymq_delay_levels *levels,
                      struct pymq_record_keys *keys) {
    struct pymq_slice delay = {NULL, 0};
    struct pymq_property property;
    size_t position = 0;
    memset(keys, 0, sizeof *keys);
    while (pymq_properties_next(record->properties.data, record->properties.size, &position, &property)) {
        switch (property.name.size) {
        case 4:
            if (NAME_IS(&property, "TAGS")) {
                keys->tags = property.value;
            } else if (NAME_IS(&property, "KEYS")) {
                keys->keys = property.value;
            }
            break;
        case 5:
            if (NAME_IS(&property, "DELAY")) {
                delay = property.value;
            }
            break;
        case 8:
            if (NAME_IS(&property, "UNIQ_KEY")) {
                keys->unique_key = property.value;
            }
            break;
        default: break;
        }
    }
    if (keys->tags.size != 0) {
        keys->tags_code = pymq_java_hash(0, keys->tags.data, keys->tags.size);
    }
    if (delay.data != NULL && levels != NULL && record->topic.size == sizeof schedule_topic - 1 &&
        memcmp(record->topic.data, schedule_topic, sizeof schedule_topic - 1) == 0) {
        int32_t level = parse_level(delay);
        if (level > levels->count) {
            level = levels->count;
        }
        if (level > 0) {
            keys->is_delayed = true;
            /* Unsigned: a record with a nonsense store time must not be undefined behaviour. */
            keys->tags_code = (int64_t)((uint64_t)record->store_timestamp_ms + (uint64_t)levels->delay_ms[level - 1]);
        }
    }
}
