/* Reading whole ranges of store files into columns: what dumps, audits and Spark executors call without a store.
 *
 * Stateless and read-only: the caller gives bytes (read with pread, never a mapping that could shrink) and owns the
 * columns, one array per field, each of at least `count_max` entries. A NULL column is not filled. No function
 * reads outside the given bytes, allocates, or touches a global.
 */
#ifndef PYMQ_SCAN_H
#define PYMQ_SCAN_H

#include "pymq/base.h"
#include "pymq/index.h"
#include "pymq/record.h"

/* ---- the commit log ------------------------------------------------------------------------------------- */

struct pymq_log_columns {
    int64_t *physical_offset; /* as the record says */
    int32_t *total_size;
    uint32_t *magic;
    int32_t *body_crc;
    uint8_t *body_crc_matches; /* 1 or 0; asking for this column computes the CRC of every body */
    int32_t *queue_id;
    int32_t *flag;
    int64_t *queue_offset;
    int32_t *sys_flag;
    int64_t *born_timestamp_ms;
    int64_t *store_timestamp_ms;
    int32_t *reconsume_times;
    int64_t *prepared_transaction_offset;
    int64_t *tags_code;        /* what dispatch puts into the consume queue */
    int64_t *record_position;  /* positions count from the first byte given */
    int64_t *body_position;
    int32_t *body_size;
    int64_t *topic_position;
    int32_t *topic_size;
    int64_t *properties_position;
    int32_t *properties_size;
    uint8_t *record_crc_state; /* enum pymq_record_crc_state; asking for it computes the CRC of records with one */
    uint8_t *status;           /* enum pymq_row_status; asking for it computes both CRCs */
    int64_t *unique_key_position; /* values of the three properties that dispatch reads; size -1 where there is none */
    int32_t *unique_key_size;
    int64_t *keys_position;
    int32_t *keys_size;
    int64_t *tags_position;
    int32_t *tags_size;
    uint8_t *text_state; /* a set of enum pymq_text_state (pymq/scan_text.h) */
};

/* What an audit says of a whole record. The first that applies, in this order: offset, body, record. */
enum pymq_row_status {
    PYMQ_ROW_OK = 0,
    PYMQ_ROW_BAD_CRC = 1,        /* the body has another CRC; or an empty body has any, which no writer leaves */
    PYMQ_ROW_BAD_RECORD_CRC = 2, /* the record carries a CRC over itself and has another */
    PYMQ_ROW_BAD_OFFSET = 3,     /* it says that it stands elsewhere */
};

enum pymq_walk_end {
    PYMQ_WALK_DONE = 0,      /* every byte given was walked */
    PYMQ_WALK_FULL = 1,      /* the columns are full: go on at `position` */
    PYMQ_WALK_BLANK = 2,     /* a blank tail begins at `position` */
    PYMQ_WALK_TRUNCATED = 3, /* the record at `position` goes on beyond the bytes given */
    PYMQ_WALK_CORRUPT = 4,   /* there is no valid record at `position` (also: zeros, never written) */
};

struct pymq_log_walk {
    size_t count;              /* records put into the columns */
    size_t position;           /* where the walk ended, from the first byte given */
    int64_t body_bytes;        /* sum of the body sizes */
    size_t crc_mismatch_count; /* only counted when the column body_crc_matches is asked for */
    int32_t blank_size;        /* what the blank tail says it covers, with PYMQ_WALK_BLANK */
    int32_t end;               /* enum pymq_walk_end */
    size_t record_crc_mismatch_count; /* only counted when the column record_crc_state is asked for */
    size_t notable_count; /* rows with a status, a text state (where asked for) or a compressed body */
};

/* Walk records from source[0] on, the byte at physical offset `base_offset`. `checks` is a set of enum
 * pymq_record_check; a record that fails one ends the walk. `levels` may be NULL: delay records then keep the hash of
 * their tags in tags_code. Fills `walk`; cannot fail. */
void pymq_scan_log(const uint8_t *source, size_t size, int64_t base_offset, unsigned checks,
                   const struct pymq_delay_levels *levels, const struct pymq_log_columns *columns, size_t count_max,
                   struct pymq_log_walk *walk);

/* ---- finding the next record ---------------------------------------------------------------------------- */

enum pymq_find_kind {
    PYMQ_FIND_NOTHING = 0, /* nothing begins before `position`; what is from there on cannot be told from these bytes */
    PYMQ_FIND_RECORD = 1,  /* a whole record that says it stands there begins at `position` */
    PYMQ_FIND_BLANK = 2,   /* a blank tail that reaches exactly to `file_end` begins there */
    PYMQ_FIND_MORE = 3,    /* what looks like such a record begins there and needs `size` bytes to be sure of */
};

struct pymq_find {
    size_t position;
    int32_t kind; /* enum pymq_find_kind */
    int32_t size;
};

/* Where a walk can go on behind damage: the first such position at or behind source[0], which lies at physical offset
 * `base_offset`. No record reaches beyond `limit`. */
void pymq_scan_find(const uint8_t *source, size_t size, int64_t base_offset, int64_t limit, int64_t file_end,
                    struct pymq_find *found);

/* How many bytes there are up to and including the last that is not zero. */
size_t pymq_scan_written(const uint8_t *source, size_t size);

/* ---- consume queues ------------------------------------------------------------------------------------- */

struct pymq_queue_columns {
    int64_t *physical_offset;
    int32_t *size;
    int64_t *tags_code;
};

/* Whole units as they stand, unchecked. Returns units decoded, at most `count_max`; bytes after the last whole unit
 * are left. */
size_t pymq_scan_queue(const uint8_t *source, size_t size, const struct pymq_queue_columns *columns, size_t count_max);

/* ---- index files ---------------------------------------------------------------------------------------- */

struct pymq_index_columns {
    int32_t *key_hash;
    int64_t *physical_offset;
    int32_t *seconds;  /* after the header's begin timestamp */
    int32_t *previous; /* number of the previous item in the chain, 0 at its end */
};

/* PYMQ_OK or PYMQ_ETRUNCATED. */
int pymq_scan_index_header(const uint8_t *source, size_t size, struct pymq_index_header *header);

/* The slots' item numbers, as they stand. Returns slots decoded (min of slot_count and count_max), PYMQ_EINVAL for a
 * negative slot_count, PYMQ_ETRUNCATED when the bytes end before the slots do. */
ssize_t pymq_scan_index_slots(const uint8_t *source, size_t size, int32_t slot_count, int32_t *slots,
                              size_t count_max);

/* Items from number `first` (>= 1: position 0 is never used) up to the header's count. Returns items decoded, at most
 * `count_max`; PYMQ_EINVAL for a negative slot_count or first < 1; PYMQ_ETRUNCATED when the bytes end before header,
 * slots or an item that the header counts. */
ssize_t pymq_scan_index_items(const uint8_t *source, size_t size, int32_t slot_count, int32_t first,
                              const struct pymq_index_columns *columns, size_t count_max);

struct pymq_chain_fault {
    int32_t item;     /* whose `previous` is wrong; 0 when it is the slot's value that is */
    int32_t slot;
    int32_t expected; /* the item that should stand there */
    int32_t actual;
};

/* An item that is in the chain of another slot than its hash says; sorted by item. */
struct pymq_chain_move {
    int32_t item;
    int32_t slot;
};

/* Items as they lie in a file, `count` of them. */
void pymq_scan_items(const uint8_t *source, size_t count, const struct pymq_index_columns *columns);

/* Hold the chains against what putting the items in order would have made: the previous of an item is the one before it
 * in its slot. Rows are the items from `first_item` on; `newest` has a number for each of `slot_count` (> 0) slots,
 * zeros before the first items and kept between calls. Items of `moves` are taken to belong to the slot given there.
 * Returns how many faults there are; the first `fault_max` are filled. */
size_t pymq_scan_chain_items(const int32_t *key_hash, const int32_t *previous, size_t count, int32_t first_item,
                             int32_t slot_count, const struct pymq_chain_move *moves, size_t move_count,
                             int32_t *newest, struct pymq_chain_fault *faults, size_t fault_max);

/* And the slots, after the last item: each holds the newest item of its chain. */
size_t pymq_scan_chain_slots(const int32_t *slots, const int32_t *newest, int32_t slot_count,
                             struct pymq_chain_fault *faults, size_t fault_max);

#endif
