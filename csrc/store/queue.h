/* A consume queue, one (topic, queue id): 20-byte units that point into the log, and the table that finds them.
 *
 * Two writers own different halves: the append lock owns `next_offset`, the dispatcher owns the units. Readers see
 * units below `max_position`, published with release after the bytes are in place.
 */
#ifndef PYMQ_STORE_QUEUE_H
#define PYMQ_STORE_QUEUE_H

#include "mapped_queue.h"
#include "pymq/store.h"

struct pymq_commit_log;

struct pymq_queue {
    struct pymq_queue *next_in_bucket;
    uint64_t hash;
    int32_t queue_id;
    uint32_t topic_size;
    uint8_t *topic;

    int64_t next_offset; /* the queue offset the next append gets; guarded by the append lock */

    struct pymq_mapped_queue files;
    _Atomic int64_t max_position; /* bytes: one past the last unit */
    _Atomic int64_t min_position; /* bytes: first unit whose record is still in the log */
    int64_t max_physical;         /* end of the record the last unit points to; the dispatcher's */
    _Atomic int64_t flushed_position;
    _Atomic bool dirty;
    int64_t
        first_physical;    /* where the first unit points, -1 when not known: saves open a look per queue; recovery's */
    int64_t lost_position; /* where a queue without any trusted unit seemed to begin; recovery's */
    bool cut_unsynced;     /* recovery cut it and did not sync; the next flush does, whatever was put since */
    bool directories_synced; /* by this process; guarded by the checkpoint lock */

    _Atomic uint32_t watchers; /* bits of whom to tell of new units: arrivals.h */
    bool touched;              /* has units its watchers were not told of yet; the dispatcher's */
    _Atomic bool closed;       /* its topic is being removed: appends are refused; written under the append lock */
    _Atomic bool dead;         /* its topic was removed; only kept for those who have a pointer */
};

#define PYMQ_QUEUE_BUCKETS 16384
#define PYMQ_QUEUE_COUNT_MAX 1000000 /* queues of one store; beyond it creation is refused */

struct pymq_queue_table {
    pthread_rwlock_t lock;
    struct pymq_queue **buckets; /* guarded by lock; queues live until the table is destroyed */
    size_t count;
    struct pymq_queue *removed; /* out of the buckets, see pymq_queue_table_remove; guarded by lock */
    char *directory;            /* consumequeue/ */
    int64_t file_size;
    struct pymq_window_cache cache;
};

int pymq_queue_table_init(struct pymq_queue_table *table, const char *directory, int64_t file_size, int32_t maps_max);
void pymq_queue_table_destroy(struct pymq_queue_table *table);

/* As pymq_store_queue. */
int pymq_queue_table_get(struct pymq_queue_table *table, const uint8_t *topic, size_t topic_size, int32_t queue_id,
                         bool create, struct pymq_queue **queue);

/* Take it out of the table. The object stays until the table is destroyed. */
void pymq_queue_table_remove(struct pymq_queue_table *table, struct pymq_queue *queue);

/* All queues; returns how many there are, fills at most `count_max`. */
size_t pymq_queue_table_list(struct pymq_queue_table *table, struct pymq_queue **queues, size_t count_max);

/* Make queue objects for every consumequeue/<topic>/<id>/ on disk and load their files. */
int pymq_queue_table_load(struct pymq_queue_table *table, enum pymq_gap gap, struct pymq_error *error);

/* ---- one queue ------------------------------------------------------------------------------------------------ */

/* What a record means that is not the next of its queue. Ours always are: offsets are given under the append lock. */
enum pymq_skip {
    PYMQ_SKIP_DAMAGED,  /* the record is damaged: PYMQ_ECORRUPT */
    PYMQ_SKIP_AT_START, /* the log's head is gone: a queue without units may begin late, otherwise as above */
    PYMQ_SKIP_FILLED,   /* a log we did not write: filler units up to the record, within a bound */
};

#define PYMQ_SKIP_UNITS_MAX 1000000 /* of filler; a record that wants more is damaged whatever wrote it */

/* Write the unit for queue offset `queue_offset`. The dispatcher's (or recovery's). Already there: PYMQ_OK and
 * nothing happens. PYMQ_ENOSPC, PYMQ_EIO, PYMQ_EMAPS: nothing has changed, try again. */
int pymq_queue_put(struct pymq_queue *queue, int64_t physical_offset, int32_t size, int64_t tags_code,
                   int64_t queue_offset, enum pymq_skip skip);

/* Find where the valid units end, by the units alone (a clean stop), and set the positions. */
int pymq_queue_recover(struct pymq_queue *queue);

/* Keep exactly the units that point below `physical_end`; the rest of the queue reads as zeros afterwards. `log`
 * decides where units and records disagree. A queue of which nothing stays is emptied: its oldest file may be one that
 * a crash left alone of several, so where it begins is not known until records say so. */
int pymq_queue_truncate(struct pymq_queue *queue, struct pymq_commit_log *log, int64_t physical_end);

/* After the walk: a queue that was emptied and met no record goes on where its files had begun, so that offsets of
 * a queue whose messages have all expired do not start again at 0. */
int pymq_queue_restore(struct pymq_queue *queue);

/* Move the minimum up to the first unit at or above `physical_min`. */
int pymq_queue_correct_min(struct pymq_queue *queue, int64_t physical_min);

/* Unlink whole files whose units all lie below the minimum; never the last, nor the last with a durable unit. Returns
 * files removed. */
ssize_t pymq_queue_remove_expired(struct pymq_queue *queue);

/* fdatasync what is not flushed. PYMQ_OK; PYMQ_EFAILED when a sync failed, after which no later one is to be believed;
 * PYMQ_EIO when a file could not be opened, which may be tried again. */
int pymq_queue_flush(struct pymq_queue *queue);

/* Read unit number `offset`; PYMQ_OK, PYMQ_ENOTFOUND, PYMQ_EIO, PYMQ_EMAPS. */
int pymq_queue_unit(struct pymq_queue *queue, int64_t offset, struct pymq_cq_unit *unit);

#endif
