/* How far everything has got, who waits for it, and the failure that ends all waiting.
 *
 *   written    bytes in place in the log (or in the pool's buffer), in log order
 *   committed  bytes in the page cache: written, or behind it with the transient pool
 *   flushed    bytes on stable storage
 *   replica    bytes the in-sync replicas have
 *   visible    what dispatch and readers may see; never moves back
 *
 * acknowledged(end) holds when every gate that applies has passed `end`: committed is not one of them (an
 * ASYNC_FLUSH acknowledgement with the pool is given from the pool), flushed is with SYNC_FLUSH, replica with the
 * replica gate while a replica is in sync. visible is the smallest of committed and those gates.
 */
#ifndef PYMQ_STORE_WATERMARK_H
#define PYMQ_STORE_WATERMARK_H

#include "gate.h"
#include "pymq/base.h"
#include "pymq/store.h"

#define PYMQ_LISTENERS_MAX 64 /* every reactor, and as many again for whoever else wants to know */

struct pymq_marks {
    _Atomic int64_t written;
    _Atomic int64_t committed;
    _Atomic int64_t flushed;
    _Atomic int64_t replica;
    _Atomic int64_t visible;
    _Atomic int64_t dispatched;
    _Atomic bool replica_in_sync;
    bool sync_flush; /* gates, fixed at open */
    bool replica_gate;
    bool pooled; /* committed is raised by the committer, not by appends */

    _Atomic int failed; /* PYMQ_OK, or the first failure */
    _Atomic bool closing;
    pthread_mutex_t error_lock;
    struct pymq_error error; /* of that failure; guarded by error_lock */

    struct pymq_gate acknowledged;  /* rung when a gate moved or failed */
    struct pymq_gate arrived;       /* rung when dispatch made messages visible */
    struct pymq_gate visible_moved; /* the dispatcher sleeps here */

    pthread_mutex_t listeners_lock;
    int listener_fds[PYMQ_LISTENERS_MAX]; /* guarded by listeners_lock */
    unsigned listener_events[PYMQ_LISTENERS_MAX];
    _Atomic int listener_count;
};

void pymq_marks_init(struct pymq_marks *marks, bool sync_flush, bool replica_gate, bool pooled);
void pymq_marks_destroy(struct pymq_marks *marks);

/* Everything below `offset` was found durable at open. */
void pymq_marks_reset(struct pymq_marks *marks, int64_t offset);

/* Raise one watermark, recompute visible, wake whoever may go on. Lower values are ignored. */
void pymq_marks_written(struct pymq_marks *marks, int64_t offset, bool quiet);
void pymq_marks_committed(struct pymq_marks *marks, int64_t offset);
void pymq_marks_flushed(struct pymq_marks *marks, int64_t offset);
void pymq_marks_replica(struct pymq_marks *marks, int64_t offset, bool in_sync);
void pymq_marks_dispatched(struct pymq_marks *marks, int64_t offset);

/* The first failure wins; everybody who waits is woken with it. */
void pymq_marks_fail(struct pymq_marks *marks, const struct pymq_error *error);

/* PYMQ_OK, PYMQ_ETIMEDOUT (not yet), or the failure. */
int pymq_marks_poll(struct pymq_marks *marks, int64_t end_offset);
int pymq_marks_wait(struct pymq_marks *marks, int64_t end_offset, int64_t timeout_ms);

void pymq_marks_notify(struct pymq_marks *marks, unsigned event);

#endif
