/* The commit log: one append lock, one write position, files that roll.
 *
 * Append lock -> mapped queue -> window cache. The allocator makes the next file and faults pages in ahead of the
 * write position, so that the lock's holder normally neither creates a file nor takes a page fault.
 */
#ifndef PYMQ_STORE_COMMIT_LOG_H
#define PYMQ_STORE_COMMIT_LOG_H

#include "append_lock.h"
#include "mapped_queue.h"
#include "pymq/store.h"
#include "store_pool.h"
#include "watermark.h"

struct pymq_commit_log;

/* A pool buffer and the file it stands for, until everything in it is committed. */
struct pymq_pooled_file {
    struct pymq_file *file; /* retained */
    uint8_t *buffer;
};

#define PYMQ_POOLED_FILES_MAX 64 /* buffers in use at once; transientStorePoolSize is checked against it */

struct pymq_commit_log {
    const struct pymq_store_config *config;
    struct pymq_marks *marks;
    struct pymq_window_cache cache;
    struct pymq_mapped_queue files;
    struct pymq_store_pool *pool; /* NULL without one */

    struct pymq_append_lock lock;
    /* Guarded by the append lock. */
    int64_t position;           /* where the next record goes */
    struct pymq_file *active;   /* retained; NULL before the first append and after a full file */
    struct pymq_window *window; /* pinned; NULL with a pool buffer or before the first append */
    uint8_t *buffer;            /* the pool's, instead of a window */
    int64_t last_timestamp_ms;  /* store time never goes back along the log */
    int64_t last_record;        /* physical offset of the last record appended, -1 */

    _Atomic int64_t lock_begin_ms; /* 0 while free: page-cache-busy is read from it */
    _Atomic int64_t hold_us_max;
    _Atomic int64_t timestamp_published_ms; /* store time of what `written` covers */
    _Atomic int64_t last_record_published;
    _Atomic int64_t files_created;
    _Atomic bool memory_lock_refused; /* lock_log_memory was asked for and mlock said no */

    /* Pool buffers not yet committed, oldest first; guarded by commit_lock. */
    pthread_mutex_t commit_lock;
    struct pymq_pooled_file pooled[PYMQ_POOLED_FILES_MAX];
    int32_t pooled_count;

    struct pymq_allocator *allocator;
};

int pymq_commit_log_init(struct pymq_commit_log *log, const char *directory, const struct pymq_store_config *config,
                         struct pymq_marks *marks, struct pymq_store_pool *pool);
void pymq_commit_log_destroy(struct pymq_commit_log *log);

/* Continue at `end` (recovery's verdict). Opens the active file's descriptor. */
int pymq_commit_log_resume(struct pymq_commit_log *log, int64_t end, int64_t last_timestamp_ms, int64_t last_record);

int pymq_commit_log_append(struct pymq_commit_log *log, struct pymq_append_item *items, size_t count, unsigned flags,
                           struct pymq_append_result *result);

/* Copy pool buffers to their files up to `written`; with `thorough` false only when `least_pages` are dirty.
 * PYMQ_OK or why the write failed (nothing is lost: the buffer is kept). */
int pymq_commit_log_commit(struct pymq_commit_log *log, int32_t least_pages);

/* fdatasync every file in [flushed, target), oldest first, and raise `flushed`. `error` names the file. */
int pymq_commit_log_flush_to(struct pymq_commit_log *log, int64_t target, struct pymq_error *error);

/* First offset in the log: that of the first file, or the write position when there is none. */
int64_t pymq_commit_log_min(struct pymq_commit_log *log);

/* A pinned window with `size` contiguous bytes at `offset`, or the reasons of pymq_mapped_queue_pin, or
 * PYMQ_ETOOBIG when the range does not fit one window. The caller has checked the visible watermark. */
int pymq_commit_log_pin(struct pymq_commit_log *log, int64_t offset, int64_t size, struct pymq_window **window,
                        const uint8_t **data);

#endif
