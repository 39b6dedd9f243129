/* Summing up rows as dispatch would file them: records to units, keys to items; contract in pymq/scan_digest.h. */
#include "pymq/scan_digest.h"

#include <stdlib.h>

#include "pymq/cq_unit.h"
#include "pymq/java_hash.h"
#include "pymq/xxh3.h"
#include "scan_groups.h"

#define GROUPS_PER_RECORD 3

/* Down, also for negative numbers: what a damaged field may hold. */
static int64_t floor_divide(int64_t value, int64_t by) { return value / by - (value % by < 0); }

/* ---- topics ------------------------------------------------------------------------------------------ */

/* The topic's number, or -1 when the table is full. */
static int32_t topic_number(struct pymq_topic_table *table, const uint8_t *name, uint32_t size) {
    static const uint8_t separator[] = {'#'};
    uint64_t digest = pymq_xxh3_64(name, size);
    for (uint64_t at = digest;; at++) {
        size_t place = (size_t)(at & (table->capacity - 1));
        struct pymq_topic *topic = &table->topics[place];
        if (!topic->used) {
            if (table->count >= table->capacity - table->capacity / 4 ||
                table->names_capacity - table->names_size < size) {
                return -1;
            }
            memcpy(table->names + table->names_size, name, size);
            *topic = (struct pymq_topic){
                .digest = digest,
                .name_at = (uint32_t)table->names_size,
                .name_size = size,
                .prefix_hash = pymq_java_hash(pymq_java_hash(0, name, size), separator, sizeof separator),
                .used = true,
            };
            table->names_size += size;
            table->count++;
            return (int32_t)place;
        }
        if (topic->digest == digest && topic->name_size == size &&
            memcmp(table->names + topic->name_at, name, size) == 0) {
            return (int32_t)place;
        }
    }
}

/* ---- records ----------------------------------------------------------------------------------------- */

/* The record's keys on their way into a group. */
struct key_sum {
    struct pymq_group *group;
    int64_t offset;
    int64_t end;
};

static void add_key(struct key_sum *sum, int32_t prefix_hash, const uint8_t *key, size_t size) {
    int32_t hash = pymq_java_hash(prefix_hash, key, size);
    uint64_t state = pymq_mix_word(PYMQ_MIX_START, hash == INT32_MIN ? 0 : abs(hash)); /* as pymq_index_key_hash */
    pymq_group_add(sum->group, pymq_mix_end(pymq_mix_word(state, sum->offset)), 0);
    pymq_group_physical(sum->group, sum->offset, sum->end);
}

/* In the order and with the rules of pymq_index_put. */
static void add_keys(const uint8_t *source, const struct pymq_log_columns *columns, size_t row, int32_t prefix_hash,
                     struct key_sum *sum) {
    static const uint8_t tag_type[] = {'T', '#'};
    const uint8_t *keys = source + columns->keys_position[row];
    int32_t keys_size = columns->keys_size[row];
    if (columns->unique_key_size[row] >= 0) {
        add_key(sum, prefix_hash, source + columns->unique_key_position[row], (size_t)columns->unique_key_size[row]);
    }
    for (int32_t begin = 0; begin < keys_size;) {
        int32_t end = begin;
        while (end < keys_size && keys[end] != ' ') {
            end++;
        }
        if (end > begin) {
            add_key(sum, prefix_hash, keys + begin, (size_t)(end - begin));
        }
        begin = end + 1;
    }
    if (columns->tags_size[row] > 0) {
        int32_t hash = pymq_java_hash(prefix_hash, tag_type, sizeof tag_type);
        add_key(sum, hash, source + columns->tags_position[row], (size_t)columns->tags_size[row]);
    }
}

static void fold_record(const uint8_t *source, const struct pymq_log_columns *columns, size_t row, int32_t topic,
                        int32_t prefix_hash, struct pymq_group_table *table) {
    int64_t offset = columns->physical_offset[row], queue_offset = columns->queue_offset[row];
    int64_t size = columns->total_size[row], stored = columns->store_timestamp_ms[row];
    int32_t queue_id = columns->queue_id[row];
    int transaction = columns->sys_flag[row] & PYMQ_SYS_TRANSACTION_MASK;
    struct pymq_group *group =
        pymq_group_find(table, PYMQ_GROUP_TRAFFIC, topic, 0, floor_divide(stored, PYMQ_MINUTE_MS));
    pymq_group_add(group, 0, size);
    pymq_group_time(group, stored);
    if (transaction != PYMQ_SYS_TRANSACTION_PREPARED && transaction != PYMQ_SYS_TRANSACTION_ROLLBACK) {
        uint64_t state = pymq_mix_word(pymq_mix_word(PYMQ_MIX_START, queue_offset), offset);
        state = pymq_mix_word(pymq_mix_word(state, size), columns->tags_code[row]);
        group = pymq_group_find(table, PYMQ_GROUP_RECORDS, topic, queue_id,
                                floor_divide(queue_offset, 1 << PYMQ_QUEUE_BUCKET_BITS));
        pymq_group_add(group, pymq_mix_end(state), size);
        pymq_group_queue(group, queue_offset);
        pymq_group_physical(group, offset, offset + size);
        pymq_group_time(group, stored);
    }
    if (transaction != PYMQ_SYS_TRANSACTION_ROLLBACK &&
        (columns->unique_key_size[row] >= 0 || columns->keys_size[row] > 0 || columns->tags_size[row] > 0)) {
        struct pymq_group none = {.count = 0};
        struct key_sum sum = {&none, offset, offset + size};
        none.physical_offset_min = offset;
        add_keys(source, columns, row, prefix_hash, &sum);
        if (none.count > 0) { /* KEYS of nothing but spaces are none */
            group = pymq_group_find(table, PYMQ_GROUP_KEYS, -1, 0,
                                    floor_divide(offset, 1 << PYMQ_LOG_BUCKET_BITS));
            group->count += none.count;
            group->digest += none.digest;
            pymq_group_physical(group, offset, offset + size);
        }
    }
}

size_t pymq_scan_fold(const uint8_t *source, const struct pymq_log_columns *columns, size_t first, size_t count,
                      struct pymq_topic_table *topics, struct pymq_group_table *table) {
    for (size_t row = first; row < count; row++) {
        int32_t topic;
        if (columns->status[row] == PYMQ_ROW_BAD_OFFSET) {
            continue;
        }
        if (!pymq_group_table_has_room(table, GROUPS_PER_RECORD)) {
            return row;
        }
        topic = topic_number(topics, source + columns->topic_position[row], (uint32_t)columns->topic_size[row]);
        if (topic < 0) {
            return row;
        }
        fold_record(source, columns, row, topic, topics->topics[topic].prefix_hash, table);
    }
    return count;
}

/* ---- units ------------------------------------------------------------------------------------------- */

static enum pymq_unit_status status_of(int64_t physical_offset, int32_t size) {
    if (size <= 0) {
        return PYMQ_UNIT_HOLE;
    }
    return size == PYMQ_CQ_BLANK_RECORD_SIZE && physical_offset == 0 ? PYMQ_UNIT_FILLER : PYMQ_UNIT_OK;
}

void pymq_scan_unit_status(const struct pymq_queue_columns *columns, size_t count, uint8_t *status) {
    for (size_t row = 0; row < count; row++) {
        status[row] = (uint8_t)status_of(columns->physical_offset[row], columns->size[row]);
    }
}

/* Remember a unit as the newest in order. */
static void order_push(struct pymq_unit_order *order, int64_t queue_offset, int64_t physical_offset, int32_t size) {
    if (order->count > 0) {
        order->queue_offset[0] = order->queue_offset[1];
        order->physical_offset[0] = order->physical_offset[1];
        order->size[0] = order->size[1];
    }
    order->queue_offset[1] = queue_offset;
    order->physical_offset[1] = physical_offset;
    order->size[1] = size;
    order->count = order->count < 2 ? order->count + 1 : 2;
}

/* Whether the unit keeps the order; if not, `*fault` is the one that breaks it: this one, or the one before, when this
 * one does lie behind the record of the one before that. */
static bool keeps_order(struct pymq_unit_order *order, int64_t queue_offset, const struct pymq_cq_unit *unit,
                        struct pymq_unit_fault *fault) {
    bool spike;
    if (order->count == 0 || unit->physical_offset > order->physical_offset[1]) {
        order_push(order, queue_offset, unit->physical_offset, unit->size);
        return true;
    }
    /* Records do not overlap, and of two units for one record the later is the copy. */
    spike = order->count == 2 && unit->physical_offset >= 0 && unit->physical_offset != order->physical_offset[1] &&
            unit->physical_offset - order->size[0] >= order->physical_offset[0];
    fault->kind = PYMQ_UNIT_FAULT_DESCENT;
    if (spike) {
        fault->queue_offset = order->queue_offset[1];
        fault->physical_offset = order->physical_offset[1];
        fault->before = unit->physical_offset;
        fault->size = order->size[1];
        order->queue_offset[1] = queue_offset; /* the older one stays */
        order->physical_offset[1] = unit->physical_offset;
        order->size[1] = unit->size;
    } else {
        fault->queue_offset = queue_offset;
        fault->physical_offset = unit->physical_offset;
        fault->before = order->physical_offset[1];
        fault->size = unit->size;
    }
    return false;
}

size_t pymq_scan_fold_units(const uint8_t *source, size_t unit_count, int64_t first_queue_offset,
                            struct pymq_unit_order *order, struct pymq_group_table *table,
                            struct pymq_unit_fault *faults, size_t fault_max, size_t *fault_count) {
    for (size_t row = 0; row < unit_count; row++) {
        int64_t queue_offset = first_queue_offset + (int64_t)row;
        enum pymq_unit_status status;
        struct pymq_cq_unit unit;
        struct pymq_group *group;
        uint64_t state;
        if (*fault_count == fault_max || !pymq_group_table_has_room(table, 1)) {
            return row;
        }
        pymq_cq_decode_one(source + row * PYMQ_CQ_UNIT_SIZE, &unit);
        status = status_of(unit.physical_offset, unit.size);
        state = pymq_mix_word(pymq_mix_word(PYMQ_MIX_START, queue_offset), unit.physical_offset);
        state = pymq_mix_word(pymq_mix_word(state, unit.size), unit.tags_code);
        group = pymq_group_find(table, PYMQ_GROUP_UNITS + (int32_t)status, -1, 0,
                                floor_divide(queue_offset, 1 << PYMQ_QUEUE_BUCKET_BITS));
        pymq_group_add(group, pymq_mix_end(state), status == PYMQ_UNIT_OK ? unit.size : 0);
        pymq_group_queue(group, queue_offset);
        if (status == PYMQ_UNIT_OK) {
            /* Unsigned: a damaged unit may point anywhere. */
            pymq_group_physical(group, unit.physical_offset,
                                (int64_t)((uint64_t)unit.physical_offset + (uint64_t)unit.size));
            if (!keeps_order(order, queue_offset, &unit, &faults[*fault_count])) {
                (*fault_count)++;
            }
        } else if (status == PYMQ_UNIT_HOLE) {
            faults[(*fault_count)++] = (struct pymq_unit_fault){
                .queue_offset = queue_offset,
                .physical_offset = unit.physical_offset,
                .before = order->count > 0 ? order->physical_offset[1] : -1,
                .kind = PYMQ_UNIT_FAULT_HOLE,
                .size = unit.size,
            };
        }
    }
    return unit_count;
}

/* ---- items ------------------------------------------------------------------------------------------- */

size_t pymq_scan_fold_items(const int32_t *key_hash, const int64_t *physical_offset, size_t count,
                            struct pymq_group_table *table) {
    for (size_t row = 0; row < count; row++) {
        int64_t offset = physical_offset[row];
        struct pymq_group *group;
        uint64_t state;
        if (!pymq_group_table_has_room(table, 1)) {
            return row;
        }
        state = pymq_mix_word(pymq_mix_word(PYMQ_MIX_START, key_hash[row]), offset);
        group = pymq_group_find(table, PYMQ_GROUP_ITEMS, -1, 0, floor_divide(offset, 1 << PYMQ_LOG_BUCKET_BITS));
        pymq_group_add(group, pymq_mix_end(state), 0);
        pymq_group_physical(group, offset, (int64_t)((uint64_t)offset + 1));
    }
    return count;
}
