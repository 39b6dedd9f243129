/* What changes about a message that is put again. */
#include "reput.h"

#define REAL_TOPIC "REAL_TOPIC"
#define REAL_QUEUE_ID "REAL_QID"

static bool is_same(const struct pymq_slice *name, const uint8_t *other, size_t size) {
    return name->size == size && memcmp(name->data, other, size) == 0;
}

/* Whether `name` is in a list of names that each end in 0x02. */
static bool is_listed(struct pymq_slice names, const struct pymq_slice *name) {
    for (size_t at = 0; at < names.size;) {
        const uint8_t *begin = names.data + at;
        const uint8_t *end = memchr(begin, PYMQ_PROPERTY_SEPARATOR, names.size - at);
        size_t size = end != NULL ? (size_t)(end - begin) : names.size - at;
        if (is_same(name, begin, size))
            return true;
        at += size + 1;
    }
    return false;
}

static bool is_set(struct pymq_slice set, const struct pymq_slice *name) {
    struct pymq_property pair;
    size_t position = 0;
    while (pymq_properties_next(set.data, set.size, &position, &pair)) {
        if (is_same(name, pair.name.data, pair.name.size))
            return true;
    }
    return false;
}

/* Whole pairs and nothing else, so that what is put behind them later is not glued to a value. */
static bool is_well_formed(struct pymq_slice set) {
    struct pymq_property pair;
    size_t position = 0, size = 0;
    while (pymq_properties_next(set.data, set.size, &position, &pair))
        size += pair.name.size + pair.value.size + 2;
    return size == set.size;
}

int pymq_reput_properties(struct pymq_slice source, struct pymq_slice remove, struct pymq_slice set, uint8_t *target,
                          size_t capacity, uint32_t *size) {
    struct pymq_property pair;
    size_t position = 0, used = 0;
    if (capacity > PYMQ_PROPERTIES_SIZE_MAX)
        capacity = PYMQ_PROPERTIES_SIZE_MAX;
    if (!is_well_formed(set))
        return PYMQ_EINVAL;
    while (pymq_properties_next(source.data, source.size, &position, &pair)) {
        /* The CRC is of the record it was copied from. */
        if (is_listed(remove, &pair.name) || is_set(set, &pair.name) ||
            is_same(&pair.name, (const uint8_t *)PYMQ_RECORD_CRC_NAME, sizeof PYMQ_RECORD_CRC_NAME - 1))
            continue;
        size_t pair_size = (size_t)pair.name.size + pair.value.size + 2;
        if (pair_size > capacity - used)
            return PYMQ_EPROPERTIES;
        memcpy(target + used, pair.name.data, pair_size - 1); /* name, separator and value lie side by side */
        used += pair_size;
        target[used - 1] = PYMQ_PROPERTY_SEPARATOR;
    }
    if (set.size > capacity - used)
        return PYMQ_EPROPERTIES;
    if (set.size != 0)
        memcpy(target + used, set.data, set.size);
    *size = (uint32_t)(used + set.size);
    return PYMQ_OK;
}

/* A queue's number as a broker writes it: digits only. */
static int read_queue_id(struct pymq_slice text, int32_t *queue_id) {
    int64_t value = 0;
    if (text.size == 0)
        return PYMQ_EINVAL;
    for (uint32_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return PYMQ_EINVAL;
        value = value * 10 + (text.data[i] - '0');
        if (value > INT32_MAX)
            return PYMQ_EINVAL;
    }
    *queue_id = (int32_t)value;
    return PYMQ_OK;
}

int pymq_reput_edit(const struct pymq_reput *reput, const struct pymq_record *source, const struct pymq_host *host,
                    uint8_t *target, size_t capacity, struct pymq_record *result) {
    *result = *source;
    result->magic = 0; /* chosen anew, by the length of the new topic */
    result->store_host = *host;
    result->prepared_transaction_offset = reput->prepared_transaction_offset;
    result->sys_flag = (source->sys_flag & ~reput->sys_flag_clear) | reput->sys_flag_set;
    if (reput->reconsume_times >= 0)
        result->reconsume_times = reput->reconsume_times;
    const struct pymq_slice *properties = &source->properties;
    result->topic = reput->topic;
    if (result->topic.size == 0)
        result->topic = pymq_properties_find(properties->data, properties->size, REAL_TOPIC, sizeof REAL_TOPIC - 1);
    if (!pymq_topic_is_storable(result->topic.data, result->topic.size))
        return PYMQ_ETOPIC;
    result->queue_id = reput->queue_id;
    if (result->queue_id < 0) {
        struct pymq_slice queue_id =
            pymq_properties_find(properties->data, properties->size, REAL_QUEUE_ID, sizeof REAL_QUEUE_ID - 1);
        int status = read_queue_id(queue_id, &result->queue_id);
        if (status != PYMQ_OK)
            return status;
    }
    uint32_t size;
    int status = pymq_reput_properties(*properties, reput->remove, reput->set, target, capacity, &size);
    result->properties = (struct pymq_slice){target, size};
    return status;
}
