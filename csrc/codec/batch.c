/* A client's batch: messages one after the other, each without topic, queue and hosts, which the request carries.
 *
 * Compat: like Apache's broker we step by the body's and the properties' lengths and look at neither total size,
 * magic nor CRC: clients of other languages fill them in as they like.
 */
#include "pymq/record.h"

#define BATCH_FLAG_AT 12
#define BATCH_BODY_SIZE_AT 16
#define BATCH_BODY_AT 20
#define BATCH_OVERHEAD 22 /* everything but body and properties */

int pymq_batch_next(const uint8_t *source, size_t size, size_t *position, struct pymq_batch_item *item) {
    const uint8_t *at = source + *position;
    size_t left = size - *position;
    int32_t body_size, properties_size;
    if (left == 0) {
        return 0;
    }
    if (left < BATCH_OVERHEAD) {
        return PYMQ_ECORRUPT;
    }
    left -= BATCH_OVERHEAD;
    item->flag = (int32_t)pymq_load_be32(at + BATCH_FLAG_AT);
    body_size = (int32_t)pymq_load_be32(at + BATCH_BODY_SIZE_AT);
    if (body_size < 0 || (size_t)body_size > left) {
        return PYMQ_ECORRUPT;
    }
    item->body.data = at + BATCH_BODY_AT;
    item->body.size = (uint32_t)body_size;
    left -= (size_t)body_size;
    at += BATCH_BODY_AT + body_size;
    properties_size = (int16_t)pymq_load_be16(at);
    if (properties_size < 0 || (size_t)properties_size > left) {
        return PYMQ_ECORRUPT;
    }
    item->properties.data = at + 2;
    item->properties.size = (uint32_t)properties_size;
    *position = (size_t)(at + 2 + properties_size - source);
    return 1;
}

int pymq_batch_append(uint8_t *target, size_t capacity, size_t *size, const struct pymq_batch_item *item) {
    uint64_t item_size = (uint64_t)BATCH_OVERHEAD + item->body.size + item->properties.size;
    uint8_t *at;
    if (item->properties.size > PYMQ_PROPERTIES_SIZE_MAX) {
        return PYMQ_EPROPERTIES;
    }
    if (item_size > INT32_MAX || *size > capacity || item_size > capacity - *size) {
        return PYMQ_ETRUNCATED;
    }
    at = target + *size;
    pymq_store_be32(at, (uint32_t)item_size);
    memset(at + 4, 0, 8); /* magic and CRC: zero, as Apache's client writes them */
    pymq_store_be32(at + BATCH_FLAG_AT, (uint32_t)item->flag);
    pymq_store_be32(at + BATCH_BODY_SIZE_AT, item->body.size);
    at += BATCH_BODY_AT;
    if (item->body.size != 0) {
        memcpy(at, item->body.data, item->body.size);
    }
    at += item->body.size;
    pymq_store_be16(at, (uint16_t)item->properties.size);
    if (item->properties.size != 0) {
        memcpy(at + 2, item->properties.data, item->properties.size);
    }
    *size += (size_t)item_size;
    return PYMQ_OK;
}
