/* One file of the key index, and what the parts of the index share. Internal to csrc/store/index*.c.
 *
 *   field                       offset            size  RocketMQ's name
 *   begin timestamp, ms              0               8  beginTimestamp
 *   end timestamp, ms                8               8  endTimestamp
 *   begin physical offset           16               8  beginPhyOffset
 *   end physical offset             24               8  endPhyOffset
 *   slots in use                    32               4  hashSlotCount
 *   next item number                36               4  indexCount (0 until the first item; means 1)
 *   slot s                     40 + 4s               4  number of the newest item of the chain, 0 when empty
 *   item n      40 + 4 * slots + 20n              20  key hash 4, physical offset 8, seconds since begin 4, previous 4
 *
 * Items are numbered from 1, so the place of item 0 stays zero and a file of `item_limit` holds one item less.
 *
 * Who may touch what:
 *   the writer        header fields, slots, items, allocated_end, pymq_index.writer_file, resume_*
 *   list_lock         pymq_index.files, directory_dirty; a file's references, settled, removed, changes of fd and map
 *   flush_lock        synced_item_count, failed; taken before list_lock
 * Header fields are atomics because queries and marks read them beside the writer. A slot is stored with release
 * after its item and loaded with acquire, so whoever finds a number finds the whole item (and the begin time).
 * A file keeps its mapping and descriptor while anyone holds a reference; the last file, unless full, keeps them
 * always; a full one until it is flushed ("settled"), by the checkpoint or, when too many wait for that, by the writer
 * before it makes another.
 */
#ifndef PYMQ_STORE_INDEX_FILE_H
#define PYMQ_STORE_INDEX_FILE_H

#include <pthread.h>
#include <stdatomic.h>

#include "pymq/index.h"

#define PYMQ_INDEX_NAME_SIZE 17                       /* yyyyMMddHHmmssSSS, local time */
#define PYMQ_INDEX_ALLOCATION_STEP (1024 * 1024)      /* bytes of items allocated ahead of the write position */
#define PYMQ_INDEX_UNSETTLED_MAX 32                   /* files that keep descriptor and mapping for the next flush */
#define PYMQ_INDEX_ITEM_FIRST 1                       /* what an empty file's item count says */

struct index_layout {
    int32_t slot_count;
    int32_t item_limit; /* maxIndexNum: full when the item count reaches it */
    int64_t items_at;   /* where item 0 would be */
    int64_t file_size;
};

struct index_file {
    char name[PYMQ_INDEX_NAME_SIZE + 1];
    uint64_t sequence; /* position in creation order, never reused */

    _Atomic int64_t begin_timestamp_ms;
    _Atomic int64_t end_timestamp_ms;
    _Atomic int64_t begin_offset;
    _Atomic int64_t end_offset;
    _Atomic int32_t slot_used;
    _Atomic int32_t item_count; /* stored last of all by a put, with release */

    uint8_t *map; /* the whole file, read-write; NULL when settled */
    int fd;       /* -1 when settled */
    int32_t references;
    bool settled; /* nothing will be written any more and everything is on stable storage */
    bool removed;

    int64_t allocated_end; /* bytes below have blocks; 0 when unknown */
    int32_t synced_item_count;
};

struct pymq_index {
    struct index_layout layout;
    char *directory;

    pthread_mutex_t list_lock;
    struct index_file **files; /* oldest first */
    int32_t file_count;
    int32_t file_capacity;
    bool directory_dirty; /* a name was made or removed since the directory was synced */

    pthread_mutex_t flush_lock;
    int failed; /* 0, or the errno of an fsync that failed: a retried one may lie */

    struct index_file *writer_file; /* the last file, or NULL */
    char name_last[PYMQ_INDEX_NAME_SIZE + 1];
    uint64_t sequence_next;
    int64_t resume_offset; /* the record whose put failed half-way, -1 when none */
    int32_t resume_count;  /* how many of its keys are in */
};

/* What a query carries from file to file. */
struct index_query {
    int32_t hash;
    int64_t begin_ms;
    int64_t end_ms;
    int64_t offset_min;
    int64_t offset_max;
    pymq_index_verify verify;
    void *context;
    int64_t candidate_last; /* the newest-first order makes equal offsets neighbours */
    int64_t *offsets;
    size_t count_max;
    size_t count;
};

/* An item, decoded. */
struct index_item {
    int32_t hash;
    int64_t offset;
    int32_t seconds; /* since the file's begin time */
    int32_t previous;
};

static inline int64_t index_item_at(const struct index_layout *layout, int32_t number) {
    return layout->items_at + (int64_t)number * PYMQ_INDEX_ITEM_SIZE;
}

static inline int64_t index_slot_at(const struct index_layout *layout, int32_t hash) {
    return PYMQ_INDEX_HEADER_SIZE + (int64_t)(hash % layout->slot_count) * PYMQ_INDEX_SLOT_SIZE;
}

static inline bool index_file_is_full(const struct index_file *file, const struct index_layout *layout) {
    return atomic_load_explicit(&file->item_count, memory_order_acquire) >= layout->item_limit;
}

static inline void index_item_decode(const uint8_t *source, struct index_item *item) {
    item->hash = (int32_t)pymq_load_be32(source);
    item->offset = (int64_t)pymq_load_be64(source + 4);
    item->seconds = (int32_t)pymq_load_be32(source + 12);
    item->previous = (int32_t)pymq_load_be32(source + 16);
}

void pymq_index_header_decode(const uint8_t *source, struct pymq_index_header *header);
void pymq_index_header_encode(const struct pymq_index_header *header, uint8_t *target);

/* Whether `name` is 17 digits. */
bool pymq_index_name_is_valid(const char *name);

/* The name of a file created now: the local time, or one millisecond after `last` if that is later or equal.
 * PYMQ_EIO (EOVERFLOW) when the calendar ends. */
int pymq_index_name_next(const char *last, char name[PYMQ_INDEX_NAME_SIZE + 1]);

/* `directory/name` into `path`; PYMQ_EIO (ENAMETOOLONG) when it does not fit. */
int pymq_index_file_path(const char *directory, const char *name, char path[PYMQ_PATH_MAX]);

/* A new file of full size with header, slots and the first items allocated, mapped, born with the end of the one
 * before it (0, 0 without one). On failure nothing stays on disk; errno EEXIST asks for another name. */
int pymq_index_file_create(const char *directory, const struct index_layout *layout, const char *name,
                           int64_t end_offset, int64_t end_timestamp_ms, struct index_file **file);

/* The memory side of a file that is there: header fields as the disk has them, counts brought into range. */
int pymq_index_file_load(const char *directory, const struct index_layout *layout, const char *name,
                         struct index_file **file);

/* Take over header values, counts brought into range. */
void pymq_index_file_adopt(struct index_file *file, const struct index_layout *layout,
                           const struct pymq_index_header *header);

/* Open and map for writing; undone by detach. The caller makes sure that nobody else looks at fd and map. */
int pymq_index_file_attach(struct index_file *file, const struct index_layout *layout, const char *directory);
void pymq_index_file_detach(struct index_file *file, const struct index_layout *layout);

/* Add one item to a file that is not full. PYMQ_OK, or why its block could not be allocated: then nothing changed. */
int pymq_index_file_put(struct index_file *file, const struct index_layout *layout, int32_t hash, int64_t offset,
                        int64_t store_timestamp_ms);

/* Walk the chain of query->hash in one file (a reference to it is held). PYMQ_OK, a failure, or verify's < 0. */
int pymq_index_file_query(const struct index_file *file, const struct index_layout *layout, const char *directory,
                          struct index_query *query);

/* ---- the list (index_list.c) ---------------------------------------------------------------------------- */

/* The newest file older than `sequence`, referenced; NULL when there is none. */
struct index_file *pymq_index_file_before(struct pymq_index *index, uint64_t sequence);

/* The oldest file that is not settled, with a sequence in [from, to], referenced; NULL when there is none. */
struct index_file *pymq_index_file_unsettled(struct pymq_index *index, uint64_t from, uint64_t to);

/* How many files at the end of the list are not settled. */
int32_t pymq_index_count_unsettled(struct pymq_index *index);

/* Let go of a reference; the last one of a settled or removed file gives back its mapping and descriptor. */
void pymq_index_file_release(struct pymq_index *index, struct index_file *file);

/* Room for one more entry, so that appending cannot fail after a file was made. PYMQ_OK or PYMQ_ENOMEM. */
int pymq_index_list_reserve(struct pymq_index *index);

/* Make `file` the last one. For the writer. */
void pymq_index_list_append(struct pymq_index *index, struct index_file *file);

/* Unlink the file and take it off the list; freed when the last reference goes. PYMQ_OK or PYMQ_EIO. */
int pymq_index_list_remove(struct pymq_index *index, struct index_file *file);

#endif
