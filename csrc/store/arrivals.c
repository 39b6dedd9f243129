/* See arrivals.h. One producer (the dispatcher) and one consumer (the watcher's thread) per ring. */
#include "arrivals.h"

#include <stdlib.h>
#include <unistd.h>

#include "store_internal.h"

void pymq_arrivals_init(struct pymq_arrivals *arrivals) { pthread_mutex_init(&arrivals->lock, NULL); }

void pymq_arrivals_destroy(struct pymq_arrivals *arrivals) {
    for (size_t i = 0; i < PYMQ_WATCHERS_MAX; i++)
        free(arrivals->watchers[i]);
    pthread_mutex_destroy(&arrivals->lock);
}

int pymq_store_open_watcher(struct pymq_store *store, int fd) {
    struct pymq_arrivals *arrivals = &store->arrivals;
    int found = PYMQ_EINVAL;
    pthread_mutex_lock(&arrivals->lock);
    for (int i = 0; i < PYMQ_WATCHERS_MAX && found < 0; i++) {
        struct pymq_watcher *watcher = arrivals->watchers[i];
        if (watcher == NULL) {
            watcher = arrivals->watchers[i] = calloc(1, sizeof *watcher);
            if (watcher == NULL) {
                found = PYMQ_ENOMEM;
                break;
            }
            watcher->fd = -1;
        }
        if (watcher->fd >= 0)
            continue;
        watcher->fd = fd;
        atomic_store(&watcher->head, atomic_load(&watcher->tail));
        atomic_store(&watcher->all, false);
        found = i;
    }
    pthread_mutex_unlock(&arrivals->lock);
    return found;
}

void pymq_store_close_watcher(struct pymq_store *store, int watcher) {
    struct pymq_arrivals *arrivals = &store->arrivals;
    pthread_mutex_lock(&arrivals->lock);
    if (watcher >= 0 && watcher < PYMQ_WATCHERS_MAX && arrivals->watchers[watcher] != NULL)
        arrivals->watchers[watcher]->fd = -1; /* bits it left in masks cost one empty post each */
    pthread_mutex_unlock(&arrivals->lock);
}

int64_t pymq_queue_watch(struct pymq_queue *queue, int watcher) {
    atomic_fetch_or_explicit(&queue->watchers, UINT32_C(1) << watcher, memory_order_acq_rel);
    return atomic_load_explicit(&queue->max_position, memory_order_acquire) / PYMQ_CQ_UNIT_SIZE;
}

size_t pymq_store_take_arrivals(struct pymq_store *store, int watcher, struct pymq_queue **queues, size_t count_max,
                                bool *all) {
    struct pymq_watcher *from = store->arrivals.watchers[watcher];
    /* The flag first: what was posted before it was raised is covered by looking at every queue. */
    *all = atomic_load_explicit(&from->all, memory_order_relaxed) && atomic_exchange(&from->all, false);
    uint64_t head = atomic_load_explicit(&from->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&from->tail, memory_order_acquire);
    size_t taken = 0;
    for (; head < tail && taken < count_max; head++)
        queues[taken++] = from->ring[head % PYMQ_ARRIVALS_RING];
    atomic_store_explicit(&from->head, head, memory_order_release);
    return taken;
}

static void post(struct pymq_watcher *watcher, struct pymq_queue *queue) {
    uint64_t tail = atomic_load_explicit(&watcher->tail, memory_order_relaxed);
    watcher->rung = true;
    if (tail - atomic_load_explicit(&watcher->head, memory_order_acquire) >= PYMQ_ARRIVALS_RING) {
        atomic_store(&watcher->all, true);
        return;
    }
    watcher->ring[tail % PYMQ_ARRIVALS_RING] = queue;
    atomic_store_explicit(&watcher->tail, tail + 1, memory_order_release);
}

static void post_to_all(struct pymq_arrivals *arrivals, struct pymq_queue *queue, uint32_t mask) {
    for (; mask != 0; mask &= mask - 1) {
        struct pymq_watcher *watcher = arrivals->watchers[__builtin_ctz(mask)];
        if (watcher != NULL && watcher->fd >= 0)
            post(watcher, queue);
    }
}

static void ring_all(struct pymq_arrivals *arrivals, uint32_t mask) {
    for (; mask != 0; mask &= mask - 1) {
        struct pymq_watcher *watcher = arrivals->watchers[__builtin_ctz(mask)];
        uint64_t one = 1;
        if (watcher == NULL || !watcher->rung)
            continue;
        watcher->rung = false;
        if (watcher->fd >= 0 && write(watcher->fd, &one, sizeof one) < 0)
            continue; /* a full eventfd already says what we came to say */
    }
}

void pymq_arrivals_flush(struct pymq_arrivals *arrivals) {
    uint32_t told = 0;
    for (size_t i = 0; i < arrivals->touched_count; i++) {
        struct pymq_queue *queue = arrivals->touched[i];
        queue->touched = false;
        uint32_t mask = atomic_exchange_explicit(&queue->watchers, 0, memory_order_acq_rel);
        if (mask == 0)
            continue;
        if (told == 0)
            pthread_mutex_lock(&arrivals->lock);
        told |= mask;
        post_to_all(arrivals, queue, mask);
    }
    arrivals->touched_count = 0;
    if (told == 0)
        return;
    ring_all(arrivals, told);
    pthread_mutex_unlock(&arrivals->lock);
}

void pymq_arrivals_touch(struct pymq_arrivals *arrivals, struct pymq_queue *queue) {
    if (queue->touched)
        return;
    if (arrivals->touched_count == PYMQ_ARRIVALS_TOUCHED)
        pymq_arrivals_flush(arrivals);
    queue->touched = true;
    arrivals->touched[arrivals->touched_count++] = queue;
}
