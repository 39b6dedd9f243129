/* The group table, between the files that fill it. */
#ifndef PYMQ_SCAN_GROUPS_H
#define PYMQ_SCAN_GROUPS_H

#include "pymq/scan_digest.h"

/* The group of that key, made when it is new. There must be a free place: see pymq_group_table_has_room. */
struct pymq_group *pymq_group_find(struct pymq_group_table *table, int32_t kind, int32_t topic, int32_t queue_id,
                                   int64_t bucket);

/* Whether `wanted` more groups fit with a quarter of the places left free, so that looking one up stays short. */
static inline bool pymq_group_table_has_room(const struct pymq_group_table *table, size_t wanted) {
    return table->count + wanted <= table->capacity - table->capacity / 4;
}

static inline void pymq_group_add(struct pymq_group *group, uint64_t digest, int64_t bytes) {
    group->count++;
    group->digest += digest;
    group->bytes += bytes;
}

static inline void pymq_group_physical(struct pymq_group *group, int64_t begin, int64_t end) {
    group->physical_offset_min = pymq_min64(group->physical_offset_min, begin);
    group->physical_offset_end = pymq_max64(group->physical_offset_end, end);
}

static inline void pymq_group_queue(struct pymq_group *group, int64_t queue_offset) {
    group->queue_offset_min = pymq_min64(group->queue_offset_min, queue_offset);
    group->queue_offset_max = pymq_max64(group->queue_offset_max, queue_offset);
}

static inline void pymq_group_time(struct pymq_group *group, int64_t timestamp_ms) {
    group->store_timestamp_min = pymq_min64(group->store_timestamp_min, timestamp_ms);
    group->store_timestamp_max = pymq_max64(group->store_timestamp_max, timestamp_ms);
}

#endif
