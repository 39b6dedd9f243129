/* The key index: files named by creation time, each a hash table of chains over the commit log.
 *
 * One writer (the dispatcher, or recovery before threads exist); queries from any thread. The index never reads the
 * log itself: a query hands candidate offsets to a verifier, because the files hold only hashes.
 */
#ifndef PYMQ_INDEX_H
#define PYMQ_INDEX_H

#include "pymq/base.h"
#include "pymq/record.h"

#define PYMQ_INDEX_HEADER_SIZE 40
#define PYMQ_INDEX_SLOT_SIZE 4
#define PYMQ_INDEX_ITEM_SIZE 20

struct pymq_index;

struct pymq_index_header {
    int64_t begin_timestamp_ms;
    int64_t end_timestamp_ms;
    int64_t begin_offset;
    int64_t end_offset;
    int32_t slot_used;  /* hashSlotCount */
    int32_t item_count; /* indexCount: one more than the items, because numbering starts at 1 */
};

/* Load the files of `directory` (made when absent). Files with names that are not 17 digits are left alone and
 * reported once in `error->text` without failing. A file of another size than the counts imply is PYMQ_EMISMATCH.
 * A last file that is too short and has no items is what a crash during creation leaves: it is removed. */
int pymq_index_open(const char *directory, int32_t slot_count, int32_t item_count, struct pymq_index **index,
                    struct pymq_error *error);

/* Flush and close everything. */
int pymq_index_close(struct pymq_index *index);

/* Close without flushing (a simulated crash). */
void pymq_index_abandon(struct pymq_index *index);

/* After an unclean stop, before any other thread uses the index: keep exactly the items that point below
 * `cut_offset`. Everything below it was durable when the checkpoint was written; what lies behind may be torn in any
 * way. Files that begin at or beyond the cut are removed, the file that holds the cut gets its items beyond it zeroed,
 * and its slots, chains and header are computed again from the items that stay. Synced before it returns.
 * `*reindex_from` is the offset from which records must be put again: `cut_offset`, or less when a file was dropped
 * whole because its begin time could not be read, so that the times of its items mean nothing (damage, not a crash:
 * then it is what an item says, so begin with the first record at or beyond it). After a failure only abandon. */
int pymq_index_repair(struct pymq_index *index, int64_t cut_offset, int64_t *reindex_from, struct pymq_error *error);

/* Add a record's unique key, keys and (as 5.5.0 does) tags: `topic#UNIQ_KEY`, `topic#KEY` for each word,
 * `topic#T#TAGS`. Records below the last file's end offset were indexed already and are skipped, rollback records
 * too. PYMQ_OK, PYMQ_ENOSPC, PYMQ_ENOMEM, PYMQ_EIO; after a failure the same record may be put again and goes on
 * with the first key that is not in yet. Waits for the disk when so many files have filled since the last flush that
 * their descriptors must be given back first; then PYMQ_EFAILED as pymq_index_flush. */
int pymq_index_put(struct pymq_index *index, const struct pymq_record *record, const struct pymq_record_keys *keys);

/* Whether the candidate is wanted; < 0 stops the query with that status. */
typedef int (*pymq_index_verify)(void *context, int64_t physical_offset);

/* Newest file first, newest item first; candidates with the key's full hash and a time inside [begin_ms, end_ms]
 * (to the second, as the file keeps it) go to `verify`; accepted ones are returned in that order, no offset twice.
 * Items at or beyond `offset_max` or below `offset_min` are not candidates. A tag is asked for with the key "T#TAG".
 * Returns how many, at most `count_max`, or a failure. */
ssize_t pymq_index_query(struct pymq_index *index, const uint8_t *topic, size_t topic_size, const uint8_t *key,
                         size_t key_size, int64_t begin_ms, int64_t end_ms, int64_t offset_min, int64_t offset_max,
                         pymq_index_verify verify, void *context, int64_t *offsets, size_t count_max);

/* Make everything put so far durable (header and directory entry included), and let go of files that are full.
 * Called by the queue flusher; may run beside put. PYMQ_OK, or PYMQ_EFAILED now and ever after once a sync failed.
 * PYMQ_ENOTFOUND when somebody else has removed a file that is not settled: queries go on until the index is closed,
 * and what it held from marks' open_begin_offset on must be put again into the next index. */
int pymq_index_flush(struct pymq_index *index);

/* What the checkpoint needs. Marks taken before a flush are durable when that flush has succeeded. */
struct pymq_index_marks {
    int64_t full_end_timestamp_ms; /* end time of the newest file that is full and flushed, 0 without one */
    int64_t open_begin_offset;     /* begin offset of the oldest file not (full and flushed); INT64_MAX if none */
    int64_t open_begin_timestamp_ms;
    int64_t end_offset;            /* physical offset of the last record indexed, -1 when empty; all below are in */
    int32_t file_count;
};

void pymq_index_marks(struct pymq_index *index, struct pymq_index_marks *marks);

/* Remove files whose end offset lies below `offset_min`, never the last one. Returns files removed or a failure.
 * May run beside put, query and flush. */
ssize_t pymq_index_remove_expired(struct pymq_index *index, int64_t offset_min);

/* Remove every file (the log is empty). For the writer, or while there is none. */
int pymq_index_destroy_files(struct pymq_index *index);

#endif
