/* See watermark.h. Watermarks are raised by one thread each, except `replica`; a compare-and-swap maximum keeps
 * them from moving back whoever calls. Threads that raise never wait: they store, ring, and write eventfds. */
#include "watermark.h"

#include <unistd.h>

void pymq_marks_init(struct pymq_marks *marks, bool sync_flush, bool replica_gate, bool pooled) {
    memset(marks, 0, sizeof *marks);
    atomic_init(&marks->replica, INT64_MAX);
    marks->sync_flush = sync_flush;
    marks->replica_gate = replica_gate;
    marks->pooled = pooled;
    pymq_gate_init(&marks->acknowledged);
    pymq_gate_init(&marks->arrived);
    pymq_gate_init(&marks->visible_moved);
    pthread_mutex_init(&marks->error_lock, NULL);
    pthread_mutex_init(&marks->listeners_lock, NULL);
}

void pymq_marks_destroy(struct pymq_marks *marks) {
    pymq_gate_destroy(&marks->acknowledged);
    pymq_gate_destroy(&marks->arrived);
    pymq_gate_destroy(&marks->visible_moved);
    pthread_mutex_destroy(&marks->error_lock);
    pthread_mutex_destroy(&marks->listeners_lock);
}

void pymq_marks_reset(struct pymq_marks *marks, int64_t offset) {
    atomic_store(&marks->written, offset);
    atomic_store(&marks->committed, offset);
    atomic_store(&marks->flushed, offset);
    atomic_store(&marks->visible, offset);
    atomic_store(&marks->dispatched, offset);
}

/* Returns whether the value moved. */
static bool raise_to(_Atomic int64_t *mark, int64_t offset) {
    int64_t current = atomic_load_explicit(mark, memory_order_relaxed);
    while (current < offset) {
        if (atomic_compare_exchange_weak_explicit(mark, &current, offset, memory_order_acq_rel, memory_order_relaxed))
            return true;
    }
    return false;
}

static bool replica_applies(struct pymq_marks *marks) {
    return marks->replica_gate && atomic_load_explicit(&marks->replica_in_sync, memory_order_acquire);
}

/* Returns whether it moved. */
static bool raise_visible(struct pymq_marks *marks) {
    int64_t visible = atomic_load_explicit(marks->pooled ? &marks->committed : &marks->written, memory_order_acquire);
    if (marks->sync_flush)
        visible = pymq_min64(visible, atomic_load_explicit(&marks->flushed, memory_order_acquire));
    if (replica_applies(marks))
        visible = pymq_min64(visible, atomic_load_explicit(&marks->replica, memory_order_acquire));
    return raise_to(&marks->visible, visible);
}

static void update_visible(struct pymq_marks *marks) {
    if (raise_visible(marks))
        pymq_gate_ring(&marks->visible_moved);
}

void pymq_marks_written(struct pymq_marks *marks, int64_t offset, bool quiet) {
    if (!raise_to(&marks->written, offset))
        return;
    if (!marks->pooled)
        raise_to(&marks->committed, offset);
    if (!marks->sync_flush && raise_visible(marks) && !quiet)
        pymq_gate_ring(&marks->visible_moved);
}

void pymq_marks_committed(struct pymq_marks *marks, int64_t offset) {
    if (raise_to(&marks->committed, offset))
        update_visible(marks);
}

void pymq_marks_flushed(struct pymq_marks *marks, int64_t offset) {
    if (!raise_to(&marks->flushed, offset))
        return;
    update_visible(marks);
    if (marks->sync_flush) {
        pymq_gate_ring(&marks->acknowledged);
        pymq_marks_notify(marks, PYMQ_EVENT_ACKNOWLEDGED);
    }
}

void pymq_marks_replica(struct pymq_marks *marks, int64_t offset, bool in_sync) {
    if (atomic_load(&marks->replica) == INT64_MAX && in_sync)
        atomic_store(&marks->replica, offset); /* the first report ends "nobody feeds it" */
    else
        raise_to(&marks->replica, offset);
    atomic_store_explicit(&marks->replica_in_sync, in_sync, memory_order_release);
    update_visible(marks);
    pymq_gate_ring(&marks->acknowledged);
    pymq_marks_notify(marks, PYMQ_EVENT_ACKNOWLEDGED);
}

void pymq_marks_dispatched(struct pymq_marks *marks, int64_t offset) {
    if (!raise_to(&marks->dispatched, offset))
        return;
    pymq_gate_ring(&marks->arrived);
    pymq_marks_notify(marks, PYMQ_EVENT_ARRIVAL);
}

void pymq_marks_fail(struct pymq_marks *marks, const struct pymq_error *error) {
    pthread_mutex_lock(&marks->error_lock);
    if (atomic_load(&marks->failed) == PYMQ_OK) {
        marks->error = *error;
        atomic_store(&marks->failed, PYMQ_EFAILED);
    }
    pthread_mutex_unlock(&marks->error_lock);
    pymq_gate_ring(&marks->acknowledged);
    pymq_gate_ring(&marks->visible_moved);
    pymq_marks_notify(marks, PYMQ_EVENT_ACKNOWLEDGED);
}

int pymq_marks_poll(struct pymq_marks *marks, int64_t end_offset) {
    /* Passed gates win over a later failure: what is durable stays acknowledged. */
    bool passed = atomic_load_explicit(&marks->written, memory_order_acquire) >= end_offset;
    if (marks->sync_flush)
        passed = passed && atomic_load_explicit(&marks->flushed, memory_order_acquire) >= end_offset;
    if (replica_applies(marks))
        passed = passed && atomic_load_explicit(&marks->replica, memory_order_acquire) >= end_offset;
    int failed = atomic_load_explicit(&marks->failed, memory_order_acquire);
    if (passed && (failed == PYMQ_OK || marks->sync_flush))
        return PYMQ_OK;
    if (failed != PYMQ_OK)
        return failed;
    return atomic_load(&marks->closing) ? PYMQ_ECLOSED : PYMQ_ETIMEDOUT;
}

struct waiter {
    struct pymq_marks *marks;
    int64_t end_offset;
};

static bool is_decided(void *context) {
    struct waiter *waiter = context;
    return pymq_marks_poll(waiter->marks, waiter->end_offset) != PYMQ_ETIMEDOUT;
}

int pymq_marks_wait(struct pymq_marks *marks, int64_t end_offset, int64_t timeout_ms) {
    struct waiter waiter = {marks, end_offset};
    int64_t deadline = pymq_monotonic_ns() + timeout_ms * 1000000;
    for (;;) {
        int status = pymq_marks_poll(marks, end_offset);
        if (status != PYMQ_ETIMEDOUT)
            return status;
        int64_t left_ms = (deadline - pymq_monotonic_ns() + 999999) / 1000000;
        if (left_ms <= 0)
            return PYMQ_ETIMEDOUT;
        pymq_gate_wait(&marks->acknowledged, left_ms, is_decided, &waiter);
    }
}

void pymq_marks_notify(struct pymq_marks *marks, unsigned event) {
    if (atomic_load_explicit(&marks->listener_count, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&marks->listeners_lock);
    int count = atomic_load_explicit(&marks->listener_count, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        uint64_t one = 1;
        if ((marks->listener_events[i] & event) != 0 && write(marks->listener_fds[i], &one, sizeof one) < 0) {
            /* A full eventfd (EAGAIN) already says what we came to say; a closed one is its owner's loss. */
            continue;
        }
    }
    pthread_mutex_unlock(&marks->listeners_lock);
}
