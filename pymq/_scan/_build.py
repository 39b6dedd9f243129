"""Describes the cffi module `pymq._scan._native` (API mode); setup.py compiles it.

Only stateless, read-only functions of csrc/codec are named here. cffi releases the GIL around each call.
"""

from __future__ import annotations

from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parents[2]

CODEC = """
#define PYMQ_CQ_UNIT_SIZE ...
#define PYMQ_TOPIC_SIZE_MAX ...
#define PYMQ_PROPERTIES_SIZE_MAX ...
#define PYMQ_RECORD_SIZE_MIN ...
#define PYMQ_BLANK_SIZE_MIN ...
#define PYMQ_RECORD_MAGIC_V1 ...
#define PYMQ_RECORD_MAGIC_V2 ...
#define PYMQ_RECORD_MAGIC_BLANK ...
#define PYMQ_CHECK_STRUCTURE ...
#define PYMQ_CHECK_BODY_CRC ...
#define PYMQ_CHECK_OFFSET ...
#define PYMQ_CHECK_HOLES ...
#define PYMQ_CHECK_RECORD_CRC ...
#define PYMQ_CHECK_RECORD_CRC_REQUIRED ...
#define PYMQ_RECORD_CRC_SIZE ...
#define PYMQ_RECORD_CRC_ROOM_MAX ...
#define PYMQ_RECORD_CRC_ABSENT ...
#define PYMQ_RECORD_CRC_MATCHES ...
#define PYMQ_RECORD_CRC_DIFFERS ...
#define PYMQ_EINVAL ...
#define PYMQ_ECORRUPT ...
#define PYMQ_ETRUNCATED ...
#define PYMQ_WALK_DONE ...
#define PYMQ_WALK_FULL ...
#define PYMQ_WALK_BLANK ...
#define PYMQ_WALK_TRUNCATED ...
#define PYMQ_WALK_CORRUPT ...

typedef long ssize_t;

const char *pymq_status_name(int status);

uint32_t pymq_crc32(uint32_t seed, const uint8_t *source, size_t size);
uint32_t pymq_crc32_table(uint32_t seed, const uint8_t *source, size_t size);
bool pymq_crc32_is_accelerated(void);

int32_t pymq_java_hash(int32_t hash, const uint8_t *source, size_t size);
int32_t pymq_index_key_hash(const uint8_t *topic, size_t topic_size, const uint8_t *key, size_t key_size);

struct pymq_slice { const uint8_t *data; uint32_t size; };
struct pymq_property { struct pymq_slice name; struct pymq_slice value; };
int pymq_properties_next(const uint8_t *source, size_t size, size_t *position, struct pymq_property *property);
struct pymq_slice pymq_properties_find(const uint8_t *source, size_t size, const char *name, size_t name_size);
bool pymq_properties_are_well_formed(const uint8_t *source, size_t size);
int pymq_properties_append(uint8_t *target, size_t capacity, size_t *size, struct pymq_slice name,
                           struct pymq_slice value);

struct pymq_host { uint8_t address[16]; uint8_t size; int32_t port; };
struct pymq_record {
    int32_t total_size; uint32_t magic; int32_t body_crc; int32_t queue_id; int32_t flag;
    int64_t queue_offset; int64_t physical_offset; int32_t sys_flag; int64_t born_timestamp_ms;
    struct pymq_host born_host; int64_t store_timestamp_ms; struct pymq_host store_host;
    int32_t reconsume_times; int64_t prepared_transaction_offset;
    struct pymq_slice body; struct pymq_slice topic; struct pymq_slice properties;
};
ssize_t pymq_record_size(const struct pymq_record *record);
ssize_t pymq_record_encode(const struct pymq_record *record, uint8_t *target, size_t capacity);
ssize_t pymq_record_decode(const uint8_t *source, size_t size, unsigned checks, int64_t physical_offset,
                           struct pymq_record *record);
int pymq_record_crc_state(const uint8_t *source, const struct pymq_record *record);
ssize_t pymq_record_crc_prepare(uint8_t *record, size_t size);
uint32_t pymq_record_crc_append(uint8_t *record, size_t size);
struct pymq_batch_item { int32_t flag; struct pymq_slice body; struct pymq_slice properties; };
int pymq_batch_next(const uint8_t *source, size_t size, size_t *position, struct pymq_batch_item *item);
int pymq_batch_append(uint8_t *target, size_t capacity, size_t *size, const struct pymq_batch_item *item);

struct pymq_delay_levels { int32_t count; ...; };
int pymq_delay_levels_parse(const char *text, struct pymq_delay_levels *levels);

#define PYMQ_FILTER_SIZE_MAX ...
#define PYMQ_FILTER_PROPERTIES_MAX ...
struct pymq_filter_program { uint32_t code_at; uint32_t name_count; ...; };
int pymq_filter_verify(const uint8_t *bytes, size_t size, struct pymq_filter_program *program);
int pymq_filter_evaluate(const struct pymq_filter_program *program, const uint8_t *properties, size_t size);
bool pymq_java_int32(const uint8_t *text, size_t size, int32_t *value);
bool pymq_java_int64(const uint8_t *text, size_t size, int64_t *value);
bool pymq_java_double(const uint8_t *text, size_t size, double *value);

size_t pymq_cq_scan_tags(const uint8_t *source, size_t count, const int64_t *hashes, size_t hash_count,
                         uint32_t *matched, size_t matched_max, size_t *scanned);
"""

COLUMNS = """
struct pymq_log_columns {
    int64_t *physical_offset; int32_t *total_size; uint32_t *magic; int32_t *body_crc; uint8_t *body_crc_matches;
    int32_t *queue_id; int32_t *flag; int64_t *queue_offset; int32_t *sys_flag; int64_t *born_timestamp_ms;
    int64_t *store_timestamp_ms; int32_t *reconsume_times; int64_t *prepared_transaction_offset; int64_t *tags_code;
    int64_t *record_position; int64_t *body_position; int32_t *body_size; int64_t *topic_position;
    int32_t *topic_size; int64_t *properties_position; int32_t *properties_size; uint8_t *record_crc_state;
    uint8_t *status; int64_t *unique_key_position; int32_t *unique_key_size; int64_t *keys_position;
    int32_t *keys_size; int64_t *tags_position; int32_t *tags_size; uint8_t *text_state;
};
struct pymq_log_walk {
    size_t count; size_t position; int64_t body_bytes; size_t crc_mismatch_count; int32_t blank_size; int32_t end;
    size_t record_crc_mismatch_count; size_t notable_count;
};
void pymq_scan_log(const uint8_t *source, size_t size, int64_t base_offset, unsigned checks,
                   const struct pymq_delay_levels *levels, const struct pymq_log_columns *columns, size_t count_max,
                   struct pymq_log_walk *walk);

struct pymq_queue_columns { int64_t *physical_offset; int32_t *size; int64_t *tags_code; };
size_t pymq_scan_queue(const uint8_t *source, size_t size, const struct pymq_queue_columns *columns, size_t count_max);

struct pymq_index_header {
    int64_t begin_timestamp_ms; int64_t end_timestamp_ms; int64_t begin_offset; int64_t end_offset;
    int32_t slot_used; int32_t item_count;
};
struct pymq_index_columns { int32_t *key_hash; int64_t *physical_offset; int32_t *seconds; int32_t *previous; };
int pymq_scan_index_header(const uint8_t *source, size_t size, struct pymq_index_header *header);
ssize_t pymq_scan_index_slots(const uint8_t *source, size_t size, int32_t slot_count, int32_t *slots,
                              size_t count_max);
ssize_t pymq_scan_index_items(const uint8_t *source, size_t size, int32_t slot_count, int32_t first,
                              const struct pymq_index_columns *columns, size_t count_max);
"""

TEXT = """
struct pymq_find { size_t position; int32_t kind; int32_t size; };
void pymq_scan_find(const uint8_t *source, size_t size, int64_t base_offset, int64_t limit, int64_t file_end,
                    struct pymq_find *found);
size_t pymq_scan_written(const uint8_t *source, size_t size);
struct pymq_chain_fault { int32_t item; int32_t slot; int32_t expected; int32_t actual; };
struct pymq_chain_move { int32_t item; int32_t slot; };
void pymq_scan_items(const uint8_t *source, size_t count, const struct pymq_index_columns *columns);
size_t pymq_scan_chain_items(const int32_t *key_hash, const int32_t *previous, size_t count, int32_t first_item,
                             int32_t slot_count, const struct pymq_chain_move *moves, size_t move_count,
                             int32_t *newest, struct pymq_chain_fault *faults, size_t fault_max);
size_t pymq_scan_chain_slots(const int32_t *slots, const int32_t *newest, int32_t slot_count,
                             struct pymq_chain_fault *faults, size_t fault_max);

#define PYMQ_HOST_TEXT_SIZE_MAX ...
#define PYMQ_TEXT_BAD_PROPERTIES ...
#define PYMQ_TEXT_BAD_UTF8 ...
#define PYMQ_FIND_NOTHING ...
#define PYMQ_FIND_RECORD ...
#define PYMQ_FIND_BLANK ...
#define PYMQ_FIND_MORE ...
#define PYMQ_ROW_OK ...
#define PYMQ_ROW_BAD_CRC ...
#define PYMQ_ROW_BAD_RECORD_CRC ...
#define PYMQ_ROW_BAD_OFFSET ...

bool pymq_is_utf8(const uint8_t *source, size_t size);
int64_t pymq_scan_gather_size(const int32_t *sizes, size_t count);
size_t pymq_scan_gather(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                        int32_t *offsets, uint8_t *data, uint8_t *validity);
size_t pymq_scan_not_utf8(const uint8_t *data, const int32_t *offsets, size_t count, uint32_t *rows, size_t rows_max);
size_t pymq_scan_hosts(const uint8_t *source, const int64_t *record_positions, const int32_t *sys_flags, size_t count,
                       bool store_hosts, int32_t *offsets, uint8_t *data);
void pymq_scan_property(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                        const char *name, size_t name_size, int64_t *value_positions, int32_t *value_sizes);
struct pymq_pair_columns {
    int64_t *name_position; int32_t *name_size; int64_t *value_position; int32_t *value_size;
};
size_t pymq_scan_property_pairs(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                                int32_t *row_offsets, const struct pymq_pair_columns *pairs, size_t pair_max);
"""

DIGEST = """
#define PYMQ_GROUP_RECORDS ...
#define PYMQ_GROUP_TRAFFIC ...
#define PYMQ_GROUP_KEYS ...
#define PYMQ_GROUP_UNITS ...
#define PYMQ_GROUP_FILLERS ...
#define PYMQ_GROUP_HOLES ...
#define PYMQ_GROUP_ITEMS ...
#define PYMQ_UNIT_FAULT_HOLE ...
#define PYMQ_UNIT_FAULT_DESCENT ...

uint64_t pymq_xxh3_64(const uint8_t *source, size_t size);
uint64_t pymq_mix(const int64_t *words, size_t count);
void pymq_scan_digests(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                       uint64_t *digests);
size_t pymq_scan_leaves(const uint8_t *source, size_t size, size_t leaf_size, uint64_t *digests, size_t count_max);

struct pymq_group { int64_t bucket; int64_t count; ...; };
struct pymq_group_table { struct pymq_group *groups; size_t capacity; size_t count; };
struct pymq_topic { bool used; ...; };
struct pymq_topic_table {
    struct pymq_topic *topics; size_t capacity; size_t count; uint8_t *names; size_t names_capacity; size_t names_size;
};
struct pymq_group_columns {
    int64_t *bucket, *count, *digest, *queue_offset_min, *queue_offset_max, *physical_offset_min, *physical_offset_end,
        *store_timestamp_min, *store_timestamp_max, *bytes;
    int32_t *topic, *queue_id;
};
size_t pymq_scan_fold(const uint8_t *source, const struct pymq_log_columns *columns, size_t first, size_t count,
                      struct pymq_topic_table *topics, struct pymq_group_table *table);
size_t pymq_scan_groups(const struct pymq_group_table *table, int32_t kind, const struct pymq_group_columns *columns);
void pymq_scan_groups_clear(struct pymq_group_table *table);
void pymq_scan_topics(const struct pymq_topic_table *table, int64_t *positions, int32_t *sizes);
void pymq_scan_topics_clear(struct pymq_topic_table *table);

void pymq_scan_unit_status(const struct pymq_queue_columns *columns, size_t count, uint8_t *status);
struct pymq_unit_fault {
    int64_t queue_offset; int64_t physical_offset; int64_t before; int32_t kind; int32_t size;
};
struct pymq_unit_order { int32_t count; ...; };
size_t pymq_scan_fold_units(const uint8_t *source, size_t unit_count, int64_t first_queue_offset,
                            struct pymq_unit_order *order, struct pymq_group_table *table,
                            struct pymq_unit_fault *faults, size_t fault_max, size_t *fault_count);
size_t pymq_scan_fold_items(const int32_t *key_hash, const int64_t *physical_offset, size_t count,
                            struct pymq_group_table *table);
"""

INDEX_CUT = """
int32_t pymq_index_cut_slots(uint8_t *slots, int32_t slot_count, const uint8_t *items, int32_t item_limit,
                             int32_t cut_number);
"""

INCLUDES = """
#include "pymq/cq_unit.h"
#include "pymq/crc32.h"
#include "pymq/filter_program.h"
#include "pymq/index_cut.h"
#include "pymq/java_hash.h"
#include "pymq/properties.h"
#include "pymq/record.h"
#include "pymq/scan.h"
#include "pymq/scan_digest.h"
#include "pymq/scan_text.h"
#include "pymq/xxh3.h"
"""

ffibuilder = cffi.FFI()
ffibuilder.cdef(CODEC + COLUMNS + TEXT + DIGEST + INDEX_CUT)
ffibuilder.set_source(
    "pymq._scan._native",
    INCLUDES,
    sources=sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc/codec").glob("*.c")),
    include_dirs=["csrc/include"],
    extra_compile_args=["-std=gnu11"],
)
