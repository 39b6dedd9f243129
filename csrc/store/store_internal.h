/* The store put together, for the files of csrc/store only.
 *
 * The order of all locks is in docs/locks.md.
 */
#ifndef PYMQ_STORE_INTERNAL_H
#define PYMQ_STORE_INTERNAL_H

#include "arrivals.h"
#include "checkpoint.h"
#include "commit_log.h"
#include "lock_file.h"
#include "pymq/index.h"
#include "queue.h"
#include "removed_topics.h"
#include "store_pool.h"
#include "watermark.h"

/* A worker with its own thread and a reason to stop. */
struct pymq_worker {
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    struct pymq_gate gate;
};

/* How far dispatch has got, in one picture: everything below `offset`, and nothing beyond, is in what the rest counts.
 */
struct pymq_dispatch_mark {
    int64_t offset;
    int64_t last_record;  /* -1 when none is known */
    int64_t timestamp_ms; /* its store time */
    int64_t unit_total;   /* ends of all queues, in units, added up */
    int64_t index_end;    /* physical offset of the last record indexed, -1 without one, -2 without an index */
};

struct pymq_store {
    struct pymq_store_config config;
    char *path;
    struct pymq_lock_file *lock_file;
    /* What recovery tells dispatch; constant while threads run. */
    int64_t queues_from; /* records below are in their queues already, or were on purpose taken out of them */
    enum pymq_skip skip;
    bool recovering; /* no thread runs yet */
    bool crashed; /* `abort` was found at open: the last stop was not clean */
    bool abort_is_long;      /* … and has a second line to be overwritten */
    int64_t record_crc_from; /* every record from here on carries a CRC over itself; -1 when that is not known */
    struct pymq_marks marks;
    struct pymq_store_pool pool;
    bool pool_made;
    struct pymq_commit_log log;
    struct pymq_queue_table queues;
    struct pymq_arrivals arrivals;
    struct pymq_removed_topics removed; /* guarded by removal_lock; dispatch reads it only while no thread runs */
    pthread_mutex_t removal_lock;       /* one topic at a time */
    struct pymq_index *index; /* NULL when messageIndexEnable is off */

    struct pymq_worker flusher;       /* group commit, or the interval flush */
    struct pymq_worker committer;     /* pool only */
    struct pymq_worker dispatcher;    /* reput */
    struct pymq_worker queue_flusher; /* queues, index, checkpoint */

    pthread_mutex_t flush_lock;           /* one flush round at a time, whoever asks */
    _Atomic int64_t flush_wanted;         /* SYNC_FLUSH: somebody waits for everything below */
    _Atomic int64_t flushed_timestamp_ms; /* store time of the last record known to be durable */
    int64_t flushed_ms;                   /* when the last thorough flush ended; the flusher's */

    pthread_mutex_t checkpoint_lock; /* one queue-flush round at a time */
    struct pymq_checkpoint checkpoint;
    bool index_lost;                 /* an index file was removed under us: `abort` stays, the next open rebuilds it */
    _Atomic int64_t checkpoint_safe; /* safe offset of the last checkpoint */

    pthread_mutex_t mark_lock;
    struct pymq_dispatch_mark mark;    /* as of the last batch; guarded by mark_lock */
    struct pymq_dispatch_mark working; /* the dispatcher's (before it runs, recovery's) */
    int64_t units_removed;             /* of removed topics, to be taken off `working`; guarded by mark_lock */
    int64_t unit_pending;              /* units of a record whose index entries are still missing; as above */
    _Atomic int64_t dispatch_waits_at; /* visible ended inside a record: nothing to do until it moves; -1 */
    bool touched;                      /* recovery has begun to change files */

    _Atomic bool writable;
    _Atomic int dispatch_blocked; /* PYMQ_OK, or why a queue or the index cannot be written: puts are refused with it */
    _Atomic bool closing;

    struct {
        _Atomic int64_t put_count, put_bytes, put_failed, put_latency[PYMQ_LATENCY_BUCKETS], put_latency_us_max;
        _Atomic int64_t get_count, get_bytes, get_missed;
        _Atomic int64_t flush_rounds, flush_us_total, flush_us_max, commit_rounds;
        _Atomic int64_t dispatch_records, dispatch_batches;
        int64_t recovered_from, recovered_to, recovered_records, recover_us;
        bool recovered_clean;
    } stats;
};

int pymq_store_path(const struct pymq_store *store, const char *name, char *path, size_t path_size);

/* Refuse what pymq does not read, by name. */
int pymq_layout_check(const char *path, struct pymq_error *error);

/* The file that says the store is dirty (abort_file.c). Find out whether it is there and what it says … */
int pymq_abort_find(struct pymq_store *store, struct pymq_error *error);

/* … make it, or say in it what holds from now on; durable on return … */
int pymq_abort_write(struct pymq_store *store, struct pymq_error *error);

/* … and remove it. */
int pymq_abort_remove(struct pymq_store *store);

/* Bring log, queues and index together again; sets every watermark. Before any thread runs. */
int pymq_recover(struct pymq_store *store, struct pymq_error *error);

/* Which topics were removed (topic_removal.c): read what the file says … */
int pymq_removal_load(struct pymq_store *store, struct pymq_error *error);

/* … and in recovery, once the queue's units are known: finish a removal that a crash cut short. */
int pymq_removal_finish(struct pymq_store *store, struct pymq_queue *queue, bool *gone);

/* … and before the first append: nothing that comes at or behind the log's end was removed. */
int pymq_removal_clamp(struct pymq_store *store, int64_t log_end, struct pymq_error *error);

/* Whether everything whole below `offset` is dispatched. */
static inline bool pymq_dispatch_is_done(struct pymq_store *store, int64_t offset) {
    return atomic_load(&store->marks.dispatched) >= offset || atomic_load(&store->dispatch_waits_at) >= offset;
}

/* Show the checkpoint what has been dispatched up to `offset`. */
void pymq_dispatch_publish(struct pymq_store *store, int64_t offset);

/* Put one decoded record into its queue and the index. */
int pymq_dispatch_record(struct pymq_store *store, const struct pymq_record *record);

int pymq_flusher_start(struct pymq_store *store);
int pymq_dispatcher_start(struct pymq_store *store);
int pymq_queue_flusher_start(struct pymq_store *store);

/* Ask for a round now (SYNC_FLUSH) and go on. */
void pymq_flusher_request(struct pymq_store *store, int64_t end_offset);

/* Commit and flush everything written so far, on the caller's thread. */
int pymq_flush_all(struct pymq_store *store);

/* Flush every queue and the index and write the checkpoint; `clean` marks the end of the log as final. */
int pymq_checkpoint_round(struct pymq_store *store, bool clean);

void pymq_worker_init(struct pymq_worker *worker);
int pymq_worker_start(struct pymq_worker *worker, const char *name, void *(*run)(void *), struct pymq_store *store);
void pymq_worker_stop(struct pymq_worker *worker);

#endif
