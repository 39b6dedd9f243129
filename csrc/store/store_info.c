/* The store's instruments: watermarks, listeners, switches, statistics. */
#include <limits.h>
#include <stdio.h>

#include "store_internal.h"

void pymq_store_watermarks(const struct pymq_store *store, struct pymq_watermarks *marks) {
    struct pymq_store *mutable_store = (struct pymq_store *)store; /* atomics have no const loads in C11 */
    struct pymq_marks *from = &mutable_store->marks;
    /* From the innermost outwards, so that what is read never shows visible above written. */
    marks->dispatched = atomic_load(&from->dispatched);
    marks->visible = atomic_load(&from->visible);
    marks->replica = atomic_load(&from->replica);
    marks->flushed = atomic_load(&from->flushed);
    marks->committed = atomic_load(&from->committed);
    marks->written = atomic_load(&from->written);
    marks->min = pymq_commit_log_min(&mutable_store->log);
}

void pymq_store_set_replica(struct pymq_store *store, int64_t offset, bool in_sync) {
    pymq_marks_replica(&store->marks, offset, in_sync);
}

void pymq_store_set_writable(struct pymq_store *store, bool writable) { atomic_store(&store->writable, writable); }

bool pymq_store_is_writable(const struct pymq_store *store) {
    struct pymq_store *mutable_store = (struct pymq_store *)store;
    return atomic_load(&mutable_store->writable) && atomic_load(&mutable_store->dispatch_blocked) == PYMQ_OK &&
           atomic_load(&mutable_store->marks.failed) == PYMQ_OK;
}

int pymq_store_listen(struct pymq_store *store, int fd, unsigned events) {
    struct pymq_marks *marks = &store->marks;
    pthread_mutex_lock(&marks->listeners_lock);
    int count = atomic_load(&marks->listener_count);
    int status = count < PYMQ_LISTENERS_MAX ? PYMQ_OK : PYMQ_EINVAL;
    if (status == PYMQ_OK) {
        marks->listener_fds[count] = fd;
        marks->listener_events[count] = events;
        atomic_store_explicit(&marks->listener_count, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&marks->listeners_lock);
    return status;
}

void pymq_store_unlisten(struct pymq_store *store, int fd) {
    struct pymq_marks *marks = &store->marks;
    pthread_mutex_lock(&marks->listeners_lock);
    int count = atomic_load(&marks->listener_count);
    for (int i = 0; i < count; i++) {
        if (marks->listener_fds[i] != fd)
            continue;
        marks->listener_fds[i] = marks->listener_fds[count - 1];
        marks->listener_events[i] = marks->listener_events[count - 1];
        atomic_store_explicit(&marks->listener_count, count - 1, memory_order_release);
        break;
    }
    pthread_mutex_unlock(&marks->listeners_lock);
}

size_t pymq_store_queues(struct pymq_store *store, struct pymq_queue **queues, size_t count_max) {
    return pymq_queue_table_list(&store->queues, queues, count_max);
}

void pymq_store_failure(const struct pymq_store *store, struct pymq_error *error) {
    struct pymq_store *mutable_store = (struct pymq_store *)store;
    pthread_mutex_lock(&mutable_store->marks.error_lock);
    *error = mutable_store->marks.error;
    pthread_mutex_unlock(&mutable_store->marks.error_lock);
}

/* ---- statistics ------------------------------------------------------------------------------------------------ */

static const int64_t LATENCY_LIMITS_MS[PYMQ_LATENCY_BUCKETS] = {1,    10,   50,   100,  200,   500,      1000,
                                                                2000, 3000, 4000, 5000, 10000, INT64_MAX};

void pymq_store_count_put(struct pymq_store *store, int64_t messages, int64_t bytes, int64_t latency_us) {
    int bucket = 0;
    while (latency_us / 1000 >= LATENCY_LIMITS_MS[bucket])
        bucket++;
    atomic_fetch_add_explicit(&store->stats.put_latency[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->stats.put_count, messages, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->stats.put_bytes, bytes, memory_order_relaxed);
    if (latency_us > atomic_load_explicit(&store->stats.put_latency_us_max, memory_order_relaxed))
        atomic_store_explicit(&store->stats.put_latency_us_max, latency_us, memory_order_relaxed);
}

static int64_t cache_bytes(struct pymq_window_cache *cache) {
    pthread_mutex_lock(&cache->lock);
    int64_t bytes = cache->bytes;
    pthread_mutex_unlock(&cache->lock);
    return bytes;
}

static int64_t cache_count(struct pymq_window_cache *cache, int64_t *evictions) {
    pthread_mutex_lock(&cache->lock);
    int64_t count = cache->count;
    *evictions += cache->evictions;
    pthread_mutex_unlock(&cache->lock);
    return count;
}

int64_t pymq_store_lock_held_ms(const struct pymq_store *store, int32_t *busy_ms) {
    struct pymq_store *from = (struct pymq_store *)store;
    int64_t begin_ms = atomic_load_explicit(&from->log.lock_begin_ms, memory_order_relaxed);
    *busy_ms = from->config.page_cache_busy_ms;
    return begin_ms > 0 ? pymq_max64(0, pymq_now_ms() - begin_ms) : 0;
}

bool pymq_store_is_busy(const struct pymq_store *store) {
    int32_t busy_ms;
    return pymq_store_lock_held_ms(store, &busy_ms) > busy_ms;
}

void pymq_store_stats(const struct pymq_store *store, struct pymq_store_stats *stats) {
    struct pymq_store *from = (struct pymq_store *)store;
    memset(stats, 0, sizeof *stats);
    stats->put_count = atomic_load(&from->stats.put_count);
    stats->put_bytes = atomic_load(&from->stats.put_bytes);
    stats->put_failed = atomic_load(&from->stats.put_failed);
    for (int i = 0; i < PYMQ_LATENCY_BUCKETS; i++)
        stats->put_latency[i] = atomic_load(&from->stats.put_latency[i]);
    stats->put_latency_us_max = atomic_load(&from->stats.put_latency_us_max);
    stats->get_count = atomic_load(&from->stats.get_count);
    stats->get_bytes = atomic_load(&from->stats.get_bytes);
    stats->get_missed = atomic_load(&from->stats.get_missed);
    stats->lock_hold_us_max = atomic_load(&from->log.hold_us_max);
    stats->lock_contended = atomic_load(&from->log.lock.contended);
    stats->flush_rounds = atomic_load(&from->stats.flush_rounds);
    stats->flush_us_total = atomic_load(&from->stats.flush_us_total);
    stats->flush_us_max = atomic_load(&from->stats.flush_us_max);
    stats->commit_rounds = atomic_load(&from->stats.commit_rounds);
    stats->dispatch_records = atomic_load(&from->stats.dispatch_records);
    stats->dispatch_batches = atomic_load(&from->stats.dispatch_batches);
    stats->log_files_created = atomic_load(&from->log.files_created);
    stats->mapped_log_bytes = cache_bytes(&from->log.cache);
    cache_count(&from->log.cache, &stats->window_evictions);
    stats->mapped_queue_windows = cache_count(&from->queues.cache, &stats->window_evictions);
    if (from->pool_made) {
        stats->pool_size = from->pool.size;
        stats->pool_free = pymq_store_pool_available(&from->pool);
    }
    stats->recovered_from = from->stats.recovered_from;
    stats->recovered_to = from->stats.recovered_to;
    stats->recovered_records = from->stats.recovered_records;
    stats->recover_us = from->stats.recover_us;
    stats->recovered_clean = from->stats.recovered_clean;
    stats->memory_lock_refused =
        (from->pool_made && from->pool.lock_refused) || atomic_load(&from->log.memory_lock_refused);
    stats->page_cache_busy = pymq_store_is_busy(from);
    stats->failed_status = atomic_load(&from->marks.failed);
}
