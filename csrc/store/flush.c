/* Making the log durable: group commit, the interval flush, and the commit of pool buffers.
 *
 * SYNC_FLUSH: whoever waits names the offset it waits for and rings. The flusher takes everything written at that
 * moment in one round; what arrives while the disk works waits for the next round, so any number of senders costs one
 * fdatasync per file and round (the double buffer of the original, without the lists: the watermark is the list).
 * ASYNC_FLUSH: every flush_interval_ms, when enough pages are dirty or the thorough interval has passed.
 */
#include <errno.h>
#include <inttypes.h>

#include "store_internal.h"

static void raise_max(_Atomic int64_t *value, int64_t candidate) {
    if (candidate > atomic_load_explicit(value, memory_order_relaxed))
        atomic_store_explicit(value, candidate, memory_order_relaxed);
}

/* One round: commit if pooled, then sync, then publish. The flush lock is held. */
static int flush_round(struct pymq_store *store) {
    struct pymq_marks *marks = &store->marks;
    struct pymq_error error;
    int failed = atomic_load(&marks->failed);
    if (failed != PYMQ_OK)
        return failed; /* a retried fsync can lie */
    int64_t timestamp_ms = atomic_load(&store->log.timestamp_published_ms);
    int status = pymq_commit_log_commit(&store->log, 0);
    if (status != PYMQ_OK)
        return status; /* the pool keeps its bytes; the next round tries again */
    int64_t target = atomic_load_explicit(&marks->committed, memory_order_acquire);
    if (target <= atomic_load(&marks->flushed))
        return PYMQ_OK;
    int64_t begin_ns = pymq_monotonic_ns();
    status = pymq_commit_log_flush_to(&store->log, target, &error);
    if (status != PYMQ_OK) {
        pymq_marks_fail(marks, &error);
        return status;
    }
    int64_t took_us = (pymq_monotonic_ns() - begin_ns) / 1000;
    atomic_fetch_add(&store->stats.flush_rounds, 1);
    atomic_fetch_add(&store->stats.flush_us_total, took_us);
    raise_max(&store->stats.flush_us_max, took_us);
    atomic_store(&store->flushed_timestamp_ms, timestamp_ms);
    return PYMQ_OK;
}

int pymq_flush_all(struct pymq_store *store) {
    pthread_mutex_lock(&store->flush_lock);
    int status = flush_round(store);
    pthread_mutex_unlock(&store->flush_lock);
    return status;
}

/* ---- the flusher ------------------------------------------------------------------------------------------------ */

static bool sync_is_wanted(void *context) {
    struct pymq_store *store = context;
    return atomic_load(&store->flusher.stop) ||
           (atomic_load(&store->flush_wanted) > atomic_load(&store->marks.flushed) &&
            atomic_load(&store->marks.failed) == PYMQ_OK);
}

static void run_group_commit(struct pymq_store *store) {
    while (!atomic_load(&store->flusher.stop)) {
        pymq_gate_wait(&store->flusher.gate, -1, sync_is_wanted, store);
        if (atomic_load(&store->flusher.stop) || !sync_is_wanted(store))
            continue;
        if (pymq_flush_all(store) != PYMQ_OK && atomic_load(&store->marks.failed) == PYMQ_OK)
            pymq_gate_wait(&store->flusher.gate, store->config.commit_interval_ms, sync_is_wanted, store);
    }
}

static bool is_stopping(void *context) { return atomic_load(&((struct pymq_store *)context)->flusher.stop); }

static bool interval_flush_is_due(struct pymq_store *store, int64_t now_ms) {
    int64_t written = atomic_load(&store->marks.written), flushed = atomic_load(&store->marks.flushed);
    if (written <= flushed)
        return false;
    if (now_ms - store->flushed_ms >= store->config.flush_thorough_interval_ms)
        return true;
    return written / PYMQ_PAGE_SIZE - flushed / PYMQ_PAGE_SIZE >= store->config.flush_least_pages;
}

static void run_interval(struct pymq_store *store) {
    store->flushed_ms = pymq_monotonic_ns() / 1000000;
    while (!atomic_load(&store->flusher.stop)) {
        pymq_gate_wait(&store->flusher.gate, store->config.flush_interval_ms, is_stopping, store);
        int64_t now_ms = pymq_monotonic_ns() / 1000000;
        if (!atomic_load(&store->flusher.stop) && interval_flush_is_due(store, now_ms)) {
            if (pymq_flush_all(store) == PYMQ_OK)
                store->flushed_ms = now_ms;
        }
    }
}

static void *run_flusher(void *context) {
    struct pymq_store *store = context;
    if (store->config.flush_mode == PYMQ_SYNC_FLUSH)
        run_group_commit(store);
    else
        run_interval(store);
    return NULL;
}

void pymq_flusher_request(struct pymq_store *store, int64_t end_offset) {
    int64_t wanted = atomic_load_explicit(&store->flush_wanted, memory_order_relaxed);
    while (wanted < end_offset && !atomic_compare_exchange_weak(&store->flush_wanted, &wanted, end_offset)) {
    }
    pymq_gate_ring(&store->flusher.gate);
}

/* ---- the committer ---------------------------------------------------------------------------------------------- */

static bool committer_stops(void *context) { return atomic_load(&((struct pymq_store *)context)->committer.stop); }

static void *run_committer(void *context) {
    struct pymq_store *store = context;
    int64_t committed_ms = pymq_monotonic_ns() / 1000000;
    while (!atomic_load(&store->committer.stop)) {
        int64_t now_ms = pymq_monotonic_ns() / 1000000;
        bool thorough = now_ms - committed_ms >= store->config.commit_thorough_interval_ms;
        int64_t before = atomic_load(&store->marks.committed);
        if (pymq_commit_log_commit(&store->log, thorough ? 0 : store->config.commit_least_pages) == PYMQ_OK &&
            atomic_load(&store->marks.committed) > before) {
            committed_ms = now_ms;
            atomic_fetch_add(&store->stats.commit_rounds, 1);
        }
        pymq_gate_wait(&store->committer.gate, store->config.commit_interval_ms, committer_stops, store);
    }
    return NULL;
}

int pymq_flusher_start(struct pymq_store *store) {
    int status = pymq_worker_start(&store->flusher, "pymq-flush", run_flusher, store);
    if (status == PYMQ_OK && store->pool_made)
        status = pymq_worker_start(&store->committer, "pymq-commit", run_committer, store);
    return status;
}
