/* Digests of pieces and leaves, and the table groups are summed up in; the contract stands in pymq/scan_digest.h. */
#include "pymq/scan_digest.h"

#include "pymq/xxh3.h"
#include "scan_groups.h"

uint64_t pymq_mix(const int64_t *words, size_t count) {
    uint64_t state = PYMQ_MIX_START;
    for (size_t i = 0; i < count; i++) {
        state = pymq_mix_word(state, words[i]);
    }
    return pymq_mix_end(state);
}

void pymq_scan_digests(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                       uint64_t *digests) {
    for (size_t row = 0; row < count; row++) {
        digests[row] = sizes[row] < 0 ? 0 : pymq_xxh3_64(source + positions[row], (size_t)sizes[row]);
    }
}

size_t pymq_scan_leaves(const uint8_t *source, size_t size, size_t leaf_size, uint64_t *digests, size_t count_max) {
    size_t count = 0;
    for (size_t at = 0; at < size && count < count_max; at += leaf_size) {
        digests[count++] = pymq_xxh3_64(source + at, size - at < leaf_size ? size - at : leaf_size);
    }
    return count;
}

struct pymq_group *pymq_group_find(struct pymq_group_table *table, int32_t kind, int32_t topic, int32_t queue_id,
                                   int64_t bucket) {
    uint64_t state = pymq_mix_word(PYMQ_MIX_START, bucket);
    state = pymq_mix_word(state, (int64_t)((uint64_t)(uint32_t)topic << 32 | (uint32_t)queue_id));
    for (uint64_t at = state + (uint64_t)kind * 0x51ull;; at++) {
        struct pymq_group *group = &table->groups[at & (table->capacity - 1)];
        if (group->count == 0) {
            table->count++;
            *group = (struct pymq_group){
                .bucket = bucket,
                .queue_offset_min = INT64_MAX,
                .queue_offset_max = INT64_MIN,
                .physical_offset_min = INT64_MAX,
                .physical_offset_end = INT64_MIN,
                .store_timestamp_min = INT64_MAX,
                .store_timestamp_max = INT64_MIN,
                .topic = topic,
                .queue_id = queue_id,
                .kind = kind,
            };
            return group;
        }
        if (group->bucket == bucket && group->topic == topic && group->queue_id == queue_id && group->kind == kind) {
            return group;
        }
    }
}

#define PUT(column, row, value)                                                                                        \
    do {                                                                                                               \
        if ((column) != NULL) {                                                                                        \
            (column)[row] = (value);                                                                                   \
        }                                                                                                              \
    } while (0)

size_t pymq_scan_groups(const struct pymq_group_table *table, int32_t kind, const struct pymq_group_columns *columns) {
    size_t row = 0;
    for (size_t at = 0; at < table->capacity; at++) {
        const struct pymq_group *group = &table->groups[at];
        if (group->count == 0 || group->kind != kind) {
            continue;
        }
        PUT(columns->bucket, row, group->bucket);
        PUT(columns->count, row, group->count);
        PUT(columns->digest, row, (int64_t)group->digest);
        PUT(columns->queue_offset_min, row, group->queue_offset_min);
        PUT(columns->queue_offset_max, row, group->queue_offset_max);
        PUT(columns->physical_offset_min, row, group->physical_offset_min);
        PUT(columns->physical_offset_end, row, group->physical_offset_end);
        PUT(columns->store_timestamp_min, row, group->store_timestamp_min);
        PUT(columns->store_timestamp_max, row, group->store_timestamp_max);
        PUT(columns->bytes, row, group->bytes);
        PUT(columns->topic, row, group->topic);
        PUT(columns->queue_id, row, group->queue_id);
        row++;
    }
    return row;
}

void pymq_scan_groups_clear(struct pymq_group_table *table) {
    memset(table->groups, 0, table->capacity * sizeof *table->groups);
    table->count = 0;
}

void pymq_scan_topics(const struct pymq_topic_table *table, int64_t *positions, int32_t *sizes) {
    for (size_t place = 0; place < table->capacity; place++) {
        const struct pymq_topic *topic = &table->topics[place];
        positions[place] = topic->name_at;
        sizes[place] = topic->used ? (int32_t)topic->name_size : -1;
    }
}

void pymq_scan_topics_clear(struct pymq_topic_table *table) {
    memset(table->topics, 0, table->capacity * sizeof *table->topics);
    table->count = 0;
    table->names_size = 0;
}
