/* Who wants to know that a queue has new messages, and how he is told.
 *
 * A watcher (a reactor that holds pulls) sets its bit in the queue's mask, then reads the queue's end once more. The
 * dispatcher publishes the end, then takes the mask away. Both touch the mask by a read-modify-write, so whichever
 * comes second in its modification order sees what the first did before it: either the watcher sees the new end, or the
 * dispatcher sees the bit. A queue stands in a watcher's ring at most once per watch; a full ring becomes one flag.
 * */
#ifndef PYMQ_STORE_ARRIVALS_H
#define PYMQ_STORE_ARRIVALS_H

#include <pthread.h>
#include <stdatomic.h>

#include "pymq/store.h"

#define PYMQ_WATCHERS_MAX 32       /* bits of the mask */
#define PYMQ_ARRIVALS_RING 4096    /* queues posted and not yet taken, per watcher; a power of two */
#define PYMQ_ARRIVALS_TOUCHED 256  /* queues of one batch remembered before their watchers are told */

struct pymq_watcher {
    int fd; /* -1 when the place is free */
    bool rung; /* in the round being posted; the dispatcher's */
    _Atomic bool all;      /* the ring was full: look at every queue */
    _Atomic uint64_t head; /* taken */
    _Atomic uint64_t tail; /* posted */
    struct pymq_queue *ring[PYMQ_ARRIVALS_RING];
};

struct pymq_arrivals {
    pthread_mutex_t lock; /* a leaf: guards places and descriptors, so that no closed descriptor is written to */
    struct pymq_watcher *watchers[PYMQ_WATCHERS_MAX]; /* kept once made */
    /* The dispatcher's. */
    size_t touched_count;
    struct pymq_queue *touched[PYMQ_ARRIVALS_TOUCHED];
};

void pymq_arrivals_init(struct pymq_arrivals *arrivals);
void pymq_arrivals_destroy(struct pymq_arrivals *arrivals);

/* The dispatcher has published units of `queue`. Its watchers are told by the next flush. */
void pymq_arrivals_touch(struct pymq_arrivals *arrivals, struct pymq_queue *queue);
void pymq_arrivals_flush(struct pymq_arrivals *arrivals);

#endif
