/* Whole ranges of store files into columns; the contract stands in pymq/scan.h. */
#include "pymq/scan.h"

#include "pymq/cq_unit.h"
#include "pymq/crc32.h"
#include "pymq/scan_text.h"

/* Fill one column of the current row if the caller wants it. */
#define PUT(column, row, value)                                                                                        \
    do {                                                                                                               \
        if ((column) != NULL) {                                                                                        \
            (column)[row] = (value);                                                                                   \
        }                                                                                                              \
    } while (0)

static void put_record(const struct pymq_log_columns *columns, size_t row, const struct pymq_record *record,
                       const uint8_t *source, size_t position) {
    PUT(columns->physical_offset, row, record->physical_offset);
    PUT(columns->total_size, row, record->total_size);
    PUT(columns->magic, row, record->magic);
    PUT(columns->body_crc, row, record->body_crc);
    PUT(columns->queue_id, row, record->queue_id);
    PUT(columns->flag, row, record->flag);
    PUT(columns->queue_offset, row, record->queue_offset);
    PUT(columns->sys_flag, row, record->sys_flag);
    PUT(columns->born_timestamp_ms, row, record->born_timestamp_ms);
    PUT(columns->store_timestamp_ms, row, record->store_timestamp_ms);
    PUT(columns->reconsume_times, row, record->reconsume_times);
    PUT(columns->prepared_transaction_offset, row, record->prepared_transaction_offset);
    PUT(columns->record_position, row, (int64_t)position);
    PUT(columns->body_position, row, record->body.data - source);
    PUT(columns->body_size, row, (int32_t)record->body.size);
    PUT(columns->topic_position, row, record->topic.data - source);
    PUT(columns->topic_size, row, (int32_t)record->topic.size);
    PUT(columns->properties_position, row, record->properties.data - source);
    PUT(columns->properties_size, row, (int32_t)record->properties.size);
}

static bool body_crc_matches(const struct pymq_record *record) {
    return pymq_body_crc(record->body.data, record->body.size) == record->body_crc;
}

/* What the CRCs say, each computed once for whichever columns want it. */
static void put_checks(const struct pymq_log_columns *columns, struct pymq_log_walk *walk, unsigned checks,
                       const uint8_t *source, const struct pymq_record *record, int64_t offset) {
    bool matches = true, empty = record->body.size == 0;
    enum pymq_record_crc_state state = PYMQ_RECORD_CRC_ABSENT;
    size_t row = walk->count;
    if (columns->body_crc_matches != NULL || columns->status != NULL) {
        /* An empty body's CRC is nobody's business, see pymq_record_decode. With PYMQ_CHECK_BODY_CRC it was
         * compared a moment ago. */
        matches = empty || (checks & PYMQ_CHECK_BODY_CRC) != 0 || body_crc_matches(record);
        walk->crc_mismatch_count += !matches;
        PUT(columns->body_crc_matches, row, matches);
    }
    if (columns->record_crc_state != NULL || columns->status != NULL) {
        state = pymq_record_crc_state(source + walk->position, record);
        walk->record_crc_mismatch_count += state == PYMQ_RECORD_CRC_DIFFERS;
        PUT(columns->record_crc_state, row, (uint8_t)state);
    }
    if (columns->status != NULL) {
        columns->status[row] = record->physical_offset != offset                 ? PYMQ_ROW_BAD_OFFSET
                               : !matches || (empty && record->body_crc != 0)    ? PYMQ_ROW_BAD_CRC
                               : state == PYMQ_RECORD_CRC_DIFFERS                ? PYMQ_ROW_BAD_RECORD_CRC
                                                                                 : PYMQ_ROW_OK;
    }
}

static void put_value(int64_t *positions, int32_t *sizes, size_t row, struct pymq_slice value, const uint8_t *source) {
    PUT(positions, row, value.data != NULL ? value.data - source : 0);
    PUT(sizes, row, value.data != NULL ? (int32_t)value.size : -1);
}

/* What the properties say, read once for whichever columns want it. */
static void put_keys(const struct pymq_log_columns *columns, size_t row, const struct pymq_delay_levels *levels,
                     const uint8_t *source, const struct pymq_record *record) {
    if (columns->tags_code != NULL || columns->unique_key_size != NULL || columns->keys_size != NULL ||
        columns->tags_size != NULL) {
        struct pymq_record_keys keys;
        pymq_record_keys(record, levels, &keys);
        PUT(columns->tags_code, row, keys.tags_code);
        put_value(columns->unique_key_position, columns->unique_key_size, row, keys.unique_key, source);
        put_value(columns->keys_position, columns->keys_size, row, keys.keys, source);
        put_value(columns->tags_position, columns->tags_size, row, keys.tags, source);
    }
    PUT(columns->text_state, row, pymq_text_state(record->topic, record->properties));
}

static enum pymq_walk_end end_of(ssize_t status) {
    switch (status) {
    case 0: return PYMQ_WALK_BLANK;
    case PYMQ_ETRUNCATED: return PYMQ_WALK_TRUNCATED;
    default: return PYMQ_WALK_CORRUPT;
    }
}

void pymq_scan_log(const uint8_t *source, size_t size, int64_t base_offset, unsigned checks,
                   const struct pymq_delay_levels *levels, const struct pymq_log_columns *columns, size_t count_max,
                   struct pymq_log_walk *walk) {
    memset(walk, 0, sizeof *walk);
    while (walk->position < size) {
        struct pymq_record record;
        int64_t offset = (int64_t)((uint64_t)base_offset + walk->position); /* any base is the caller's to give */
        ssize_t step;
        if (walk->count == count_max) {
            walk->end = PYMQ_WALK_FULL;
            return;
        }
        step = pymq_record_decode(source + walk->position, size - walk->position, checks, offset, &record);
        if (step <= 0) {
            walk->end = end_of(step);
            walk->blank_size = step == 0 ? record.total_size : 0;
            return;
        }
        put_record(columns, walk->count, &record, source, walk->position);
        put_checks(columns, walk, checks, source, &record, offset);
        put_keys(columns, walk->count, levels, source, &record);
        walk->notable_count += (columns->status != NULL && columns->status[walk->count] != PYMQ_ROW_OK) ||
                               (columns->text_state != NULL && columns->text_state[walk->count] != 0) ||
                               (record.sys_flag & PYMQ_SYS_COMPRESSED) != 0;
        walk->body_bytes += record.body.size;
        walk->position += (size_t)step;
        walk->count++;
    }
    walk->end = PYMQ_WALK_DONE;
}

size_t pymq_scan_queue(const uint8_t *source, size_t size, const struct pymq_queue_columns *columns,
                       size_t count_max) {
    size_t count = size / PYMQ_CQ_UNIT_SIZE;
    if (count > count_max) {
        count = count_max;
    }
    for (size_t row = 0; row < count; row++) {
        struct pymq_cq_unit unit;
        pymq_cq_decode_one(source + row * PYMQ_CQ_UNIT_SIZE, &unit);
        PUT(columns->physical_offset, row, unit.physical_offset);
        PUT(columns->size, row, unit.size);
        PUT(columns->tags_code, row, unit.tags_code);
    }
    return count;
}

int pymq_scan_index_header(const uint8_t *source, size_t size, struct pymq_index_header *header) {
    if (size < PYMQ_INDEX_HEADER_SIZE) {
        return PYMQ_ETRUNCATED;
    }
    header->begin_timestamp_ms = (int64_t)pymq_load_be64(source);
    header->end_timestamp_ms = (int64_t)pymq_load_be64(source + 8);
    header->begin_offset = (int64_t)pymq_load_be64(source + 16);
    header->end_offset = (int64_t)pymq_load_be64(source + 24);
    header->slot_used = (int32_t)pymq_load_be32(source + 32);
    header->item_count = (int32_t)pymq_load_be32(source + 36);
    return PYMQ_OK;
}

/* Where the items begin. Fits: 40 + 4 * INT32_MAX is far below SIZE_MAX. */
static size_t items_at(int32_t slot_count) {
    return PYMQ_INDEX_HEADER_SIZE + (size_t)slot_count * PYMQ_INDEX_SLOT_SIZE;
}

ssize_t pymq_scan_index_slots(const uint8_t *source, size_t size, int32_t slot_count, int32_t *slots,
                              size_t count_max) {
    size_t count;
    if (slot_count < 0) {
        return PYMQ_EINVAL;
    }
    if (size < items_at(slot_count)) {
        return PYMQ_ETRUNCATED;
    }
    count = (size_t)slot_count < count_max ? (size_t)slot_count : count_max;
    for (size_t slot = 0; slot < count; slot++) {
        slots[slot] = (int32_t)pymq_load_be32(source + PYMQ_INDEX_HEADER_SIZE + slot * PYMQ_INDEX_SLOT_SIZE);
    }
    return (ssize_t)count;
}

ssize_t pymq_scan_index_items(const uint8_t *source, size_t size, int32_t slot_count, int32_t first,
                              const struct pymq_index_columns *columns, size_t count_max) {
    struct pymq_index_header header;
    size_t start, count;
    if (slot_count < 0 || first < 1) {
        return PYMQ_EINVAL;
    }
    if (pymq_scan_index_header(source, size, &header) != PYMQ_OK || size < items_at(slot_count)) {
        return PYMQ_ETRUNCATED;
    }
    if (header.item_count <= first) {
        return 0; /* the count is one more than the last number */
    }
    count = (size_t)(header.item_count - first);
    if (count > count_max) {
        count = count_max;
    }
    start = items_at(slot_count) + (size_t)first * PYMQ_INDEX_ITEM_SIZE;
    if (size < start + count * PYMQ_INDEX_ITEM_SIZE) {
        return PYMQ_ETRUNCATED;
    }
    for (size_t row = 0; row < count; row++) {
        const uint8_t *item = source + start + row * PYMQ_INDEX_ITEM_SIZE;
        PUT(columns->key_hash, row, (int32_t)pymq_load_be32(item));
        PUT(columns->physical_offset, row, (int64_t)pymq_load_be64(item + 4));
        PUT(columns->seconds, row, (int32_t)pymq_load_be32(item + 12));
        PUT(columns->previous, row, (int32_t)pymq_load_be32(item + 16));
    }
    return (ssize_t)count;
}
