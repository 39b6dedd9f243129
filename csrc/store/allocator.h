/* The allocator thread: makes the next log file ahead of need and faults pages in ahead of the write position. */
#ifndef PYMQ_STORE_ALLOCATOR_H
#define PYMQ_STORE_ALLOCATOR_H

#include "mapped_queue.h"
#include "pymq/store.h"

struct pymq_allocator;
struct pymq_commit_log;

/* One file made ahead, with a pool buffer when the pool is on. */
struct pymq_new_file {
    struct pymq_file *file;
    uint8_t *buffer; /* zeroed; NULL without the pool */
};

struct pymq_allocator *pymq_allocator_start(struct pymq_commit_log *log);

/* Stop the thread. A file made ahead and never used is removed from disk unless `abandon`. */
void pymq_allocator_stop(struct pymq_allocator *allocator, bool abandon);

/* The file that starts at `base`: ready, or made now while the caller waits, for `wait_ms` at most (< 0: as long as it
 * takes). PYMQ_OK, PYMQ_ENOSPC, PYMQ_EPOOL (no buffer, or not yet: it is being made), PYMQ_EIO, PYMQ_ECLOSED. The next
 * one is begun at once. After a wait in vain no bounded one waits, until a file was made within
 * PYMQ_APPEND_WAIT_MS_MAX again. */
int pymq_allocator_take(struct pymq_allocator *allocator, int64_t base, int64_t wait_ms, struct pymq_new_file *taken);

/* The write position has come to `position`: fault further pages in if it is time. Cheap. */
void pymq_allocator_advance(struct pymq_allocator *allocator, int64_t position);

#endif
