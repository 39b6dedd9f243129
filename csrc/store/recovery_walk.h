/* Reading the log record by record, from an offset to the first byte that is no whole record. */
#ifndef PYMQ_STORE_RECOVERY_WALK_H
#define PYMQ_STORE_RECOVERY_WALK_H

#include "pymq/base.h"

struct pymq_store;

struct pymq_walk_result {
    int64_t end;               /* the log's end: one past the last whole record, or the next file after a blank tail */
    int64_t last_record;       /* where the last record before `end` starts, -1 when none is known */
    int64_t last_timestamp_ms; /* its store time */
    int64_t records;
};

/* Walk and dispatch from `from`, which is a record boundary. From `unflushed_from` on sectors may be missing inside a
 * record, and holes in its properties (which no CRC covers) end the log too. Reports progress. PYMQ_OK or why reading
 * failed. */
int pymq_walk(struct pymq_store *store, int64_t from, int64_t unflushed_from, struct pymq_walk_result *result,
              struct pymq_error *error);

/* Read only: how far whole records reach from `from` on, looking no further than `until`. */
int pymq_walk_probe(struct pymq_store *store, int64_t from, int64_t until, int64_t *end, struct pymq_error *error);

/* Whether a whole record, its CRC included, starts at `offset` and ends at `end`, alone or with the blank tail of its
 * file behind it. */
bool pymq_walk_ends_at(struct pymq_store *store, int64_t offset, int64_t end);

/* For the text of an error: where the walk found no valid record, is it one but for the CRC over the record? */
bool pymq_walk_only_crc_differs(struct pymq_store *store, int64_t offset);

#endif
