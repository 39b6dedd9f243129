/* Digests and sums of many rows: what two sides of a pair are compared by before any row of them is looked at.
 *
 * A member (a record, a queue unit, a key, an index item) has a mix of its words; a group's digest is the sum of its
 * members' mixes, wrapping, so it depends on which members there are and not on their order, and parts can be added up:
 *
 *   record, unit   mix(queue offset, physical offset, size, tags code)
 *   key, item      mix(key hash, physical offset)
 *
 *   state = 0x9e3779b97f4a7c15
 *   for each word: state = (state ^ word) * 0xbf58476d1ce4e5b9; state ^= state >> 32
 *   state *= 0x94d049bb133111eb; state ^= state >> 29                                       all modulo 2^64
 *
 * Groups live in a table the caller owns. When it is nearly full a function stops before the row that might not fit and
 * says how many rows it took; the caller drains the table and goes on: a group may therefore come out in parts.
 */
#ifndef PYMQ_SCAN_DIGEST_H
#define PYMQ_SCAN_DIGEST_H

#include "pymq/scan.h"

#define PYMQ_MIX_START 0x9e3779b97f4a7c15ull
#define PYMQ_MIX_STEP 0xbf58476d1ce4e5b9ull
#define PYMQ_MIX_LAST 0x94d049bb133111ebull

static inline uint64_t pymq_mix_word(uint64_t state, int64_t word) {
    state = (state ^ (uint64_t)word) * PYMQ_MIX_STEP;
    return state ^ state >> 32;
}

static inline uint64_t pymq_mix_end(uint64_t state) {
    state *= PYMQ_MIX_LAST;
    return state ^ state >> 29;
}

/* The mix of `count` words: 4 of a record or unit, 2 of a key or item. */
uint64_t pymq_mix(const int64_t *words, size_t count);

/* XXH3-64 of each row's piece; 0 where the size is negative. */
void pymq_scan_digests(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                       uint64_t *digests);

/* XXH3-64 of each `leaf_size` bytes (> 0), the last leaf shorter. Returns leaves digested, at most `count_max`. */
size_t pymq_scan_leaves(const uint8_t *source, size_t size, size_t leaf_size, uint64_t *digests, size_t count_max);

/* ---- groups ------------------------------------------------------------------------------------------ */

#define PYMQ_QUEUE_BUCKET_BITS 12 /* a bucket of records or units: 4,096 queue offsets */
#define PYMQ_LOG_BUCKET_BITS 24   /* a bucket of keys or items: 16 MiB of log */
#define PYMQ_MINUTE_MS 60000      /* a bucket of traffic: a minute of store time */

enum pymq_group_kind {
    PYMQ_GROUP_RECORDS = 0, /* by topic, queue, bucket: records that dispatch gives a unit */
    PYMQ_GROUP_TRAFFIC = 1, /* by topic, minute: records */
    PYMQ_GROUP_KEYS = 2,    /* by bucket: keys that dispatch gives an item */
    PYMQ_GROUP_UNITS = 3,   /* by bucket: units that point to a record */
    PYMQ_GROUP_FILLERS = 4, /* by bucket: units that stand for an offset without a message */
    PYMQ_GROUP_HOLES = 5,   /* by bucket: units that were never written, and others behind them */
    PYMQ_GROUP_ITEMS = 6,   /* by bucket: index items */
};

struct pymq_group {
    int64_t bucket;
    int64_t count; /* 0: a free place */
    uint64_t digest;
    int64_t queue_offset_min, queue_offset_max;
    int64_t physical_offset_min, physical_offset_end;
    int64_t store_timestamp_min, store_timestamp_max;
    int64_t bytes;
    int32_t topic; /* number in the topic table, -1 without */
    int32_t queue_id;
    int32_t kind;
};

struct pymq_group_table {
    struct pymq_group *groups; /* zeroed before first use */
    size_t capacity;           /* a power of two, at least 16 */
    size_t count;
};

struct pymq_topic {
    uint64_t digest;
    uint32_t name_at; /* in `names` */
    uint32_t name_size;
    int32_t prefix_hash; /* Java hash of `topic#` */
    bool used;
};

struct pymq_topic_table {
    struct pymq_topic *topics; /* zeroed before first use; a topic's number is its place */
    size_t capacity;           /* a power of two, at least 16 */
    size_t count;
    uint8_t *names;
    size_t names_capacity;
    size_t names_size;
};

/* Columns of a drained table; NULL ones are not filled. */
struct pymq_group_columns {
    int64_t *bucket, *count, *digest, *queue_offset_min, *queue_offset_max, *physical_offset_min, *physical_offset_end,
        *store_timestamp_min, *store_timestamp_max, *bytes;
    int32_t *topic, *queue_id;
};

/* Sum up rows [first, count) of a walk: records, traffic and keys, as dispatch would file them. Rows that say another
 * offset than theirs are left out. Wants the columns physical_offset, total_size, queue_id, queue_offset, sys_flag,
 * store_timestamp_ms, tags_code, topic_*, unique_key_*, keys_*, tags_* and status. Returns the row to go on with:
 * `count`, or an earlier one when a table is full. */
size_t pymq_scan_fold(const uint8_t *source, const struct pymq_log_columns *columns, size_t first, size_t count,
                      struct pymq_topic_table *topics, struct pymq_group_table *table);

/* Put the groups of one kind into columns, in the table's order, and return how many; the table stays as it is. */
size_t pymq_scan_groups(const struct pymq_group_table *table, int32_t kind, const struct pymq_group_columns *columns);

/* Forget all groups. */
void pymq_scan_groups_clear(struct pymq_group_table *table);

/* Where each number's name stands in `names`: `capacity` positions and sizes, size -1 for numbers without a topic. */
void pymq_scan_topics(const struct pymq_topic_table *table, int64_t *positions, int32_t *sizes);

/* Forget all topics. */
void pymq_scan_topics_clear(struct pymq_topic_table *table);

/* ---- units and items --------------------------------------------------------------------------------- */

enum pymq_unit_status {
    PYMQ_UNIT_OK = 0,
    PYMQ_UNIT_FILLER = 1, /* (0, INT32_MAX, …): stands for an offset without a message */
    PYMQ_UNIT_HOLE = 2,   /* no size: never written */
};

/* The status of each unit of a queue file's columns. */
void pymq_scan_unit_status(const struct pymq_queue_columns *columns, size_t count, uint8_t *status);

enum pymq_unit_fault_kind {
    PYMQ_UNIT_FAULT_HOLE = 0,
    PYMQ_UNIT_FAULT_DESCENT = 1, /* of two units that do not increase, the one that does not fit the one before both */
};

struct pymq_unit_fault {
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t before; /* the physical offset it should lie behind */
    int32_t kind;
    int32_t size;
};

/* What is carried from one piece of a queue to the next; zeroed at its beginning. */
struct pymq_unit_order {
    int64_t queue_offset[2], physical_offset[2]; /* the last two units in order, the older first */
    int32_t size[2];
    int32_t count; /* of them */
};

/* Sum up the units of a queue file's bytes (whole units), the first of which is `first_queue_offset`. Returns units
 * taken: all, or fewer when the table or `faults` is full. `*fault_count` counts on from what it is. */
size_t pymq_scan_fold_units(const uint8_t *source, size_t unit_count, int64_t first_queue_offset,
                            struct pymq_unit_order *order, struct pymq_group_table *table,
                            struct pymq_unit_fault *faults, size_t fault_max, size_t *fault_count);

/* Sum up index items. Returns items taken. */
size_t pymq_scan_fold_items(const int32_t *key_hash, const int64_t *physical_offset, size_t count,
                            struct pymq_group_table *table);

#endif
