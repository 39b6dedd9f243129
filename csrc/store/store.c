/* Opening and closing the store, and the ways into its write side. */
#include "pymq/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "allocator.h"
#include "pymq/io.h"
#include "store_internal.h"

#define LOG_FILE_SIZE_MIN 1024
#define POOL_RETRY_US 500

void pymq_store_config_default(struct pymq_store_config *config) {
    memset(config, 0, sizeof *config);
    config->log_file_size = 1024 * 1024 * 1024;
    config->queue_file_size = 300000 * PYMQ_CQ_UNIT_SIZE;
    config->index_slot_count = 5000000;
    config->index_item_count = 5000000 * 4;
    config->index_enable = true;
    config->message_size_max = PYMQ_MESSAGE_SIZE_MAX_DEFAULT;
    config->flush_mode = PYMQ_ASYNC_FLUSH;
    config->sync_flush_timeout_ms = 5000;
    config->flush_interval_ms = 500;
    config->flush_least_pages = 4;
    config->flush_thorough_interval_ms = 10000;
    config->commit_interval_ms = 200;
    config->commit_least_pages = 4;
    config->commit_thorough_interval_ms = 200;
    config->queue_flush_interval_ms = 1000;
    config->queue_flush_least_pages = 2;
    config->queue_flush_thorough_interval_ms = 60000;
    config->queue_flush_slice = 256;
    config->transient_pool_size = 5;
    config->transient_pool_wait_ms = 200;
    config->prefault_size = 32 * 1024 * 1024;
    config->log_window_size = 32 * 1024 * 1024;
    config->log_map_size_max = 512 * 1024 * 1024;
    config->queue_map_count_max = 16384;
    config->page_cache_busy_ms = 1000;
    config->check_crc_on_recover = true;
    config->checkpoint_bytes_max = 256 * 1024 * 1024;
    pymq_delay_levels_parse("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", &config->delay_levels);
    config->store_host = (struct pymq_host){.address = {127, 0, 0, 1}, .size = 4, .port = 10911};
}

int pymq_store_path(const struct pymq_store *store, const char *name, char *path, size_t path_size) {
    int length = snprintf(path, path_size, "%s/%s", store->path, name);
    return length > 0 && (size_t)length < path_size ? PYMQ_OK : PYMQ_EINVAL;
}

/* ---- open ---------------------------------------------------------------------------------------------------- */

static int check_config(struct pymq_store_config *config, struct pymq_error *error) {
    /* As Apache rounds it: a queue file holds whole units. */
    config->queue_file_size = (config->queue_file_size + PYMQ_CQ_UNIT_SIZE - 1) / PYMQ_CQ_UNIT_SIZE * PYMQ_CQ_UNIT_SIZE;
    const char *wrong = NULL;
    if (config->log_file_size < LOG_FILE_SIZE_MIN || config->log_file_size > INT32_MAX)
        wrong = "mappedFileSizeCommitLog must lie between 1024 and 2147483647";
    else if (config->queue_file_size < PYMQ_CQ_UNIT_SIZE || config->queue_file_size > INT32_MAX)
        wrong = "mappedFileSizeConsumeQueue must lie between 20 and 2147483647";
    else if (config->index_slot_count < 1 || config->index_item_count < 2)
        wrong = "maxHashSlotNum must be at least 1 and maxIndexNum at least 2";
    else if (config->message_size_max < 1 || config->message_size_max > INT32_MAX / 2)
        wrong = "maxMessageSize must lie between 1 and 1073741823";
    else if (config->transient_pool_enable &&
             (config->transient_pool_size < 2 || config->transient_pool_size >= PYMQ_POOLED_FILES_MAX))
        wrong = "transientStorePoolSize must lie between 2 and 63: one buffer being written, one being committed";
    else if (config->log_window_size < PYMQ_PAGE_SIZE || config->queue_map_count_max < 2)
        wrong = "log_window_size must be at least a page and queue_map_count_max at least 2";
    else if (config->store_host.size != 4 && config->store_host.size != 16)
        wrong = "store_host must be an IPv4 or IPv6 address";
    return wrong == NULL ? PYMQ_OK : pymq_fail(error, PYMQ_EINVAL, 0, "%s", wrong);
}

static int make_directories(struct pymq_store *store, struct pymq_error *error) {
    static const char *const names[] = {"commitlog", "consumequeue", "index", "config"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[PYMQ_PATH_MAX];
        int status = pymq_store_path(store, names[i], path, sizeof path);
        if (status == PYMQ_OK)
            status = pymq_io_make_directories(path, true);
        if (status != PYMQ_OK)
            return pymq_fail(error, status, errno, "%s/%s: cannot be made: %s", store->path, names[i], strerror(errno));
    }
    return PYMQ_OK;
}

static int load_parts(struct pymq_store *store, struct pymq_error *error) {
    char path[PYMQ_PATH_MAX];
    struct pymq_store_config *config = &store->config;
    if (config->transient_pool_enable) {
        int made = pymq_store_pool_init(&store->pool, config->transient_pool_size, config->log_file_size, error);
        if (made != PYMQ_OK)
            return made;
        store->pool_made = true;
    }
    int status = pymq_store_path(store, "commitlog", path, sizeof path);
    if (status == PYMQ_OK)
        status = pymq_commit_log_init(&store->log, path, config, &store->marks, store->pool_made ? &store->pool : NULL);
    if (status == PYMQ_OK)
        status = pymq_mapped_queue_load(&store->log.files, "mappedFileSizeCommitLog", PYMQ_GAP_REFUSED, error);
    if (status != PYMQ_OK)
        return status;
    status = pymq_store_path(store, "consumequeue", path, sizeof path);
    if (status == PYMQ_OK)
        status = pymq_queue_table_init(&store->queues, path, config->queue_file_size, config->queue_map_count_max);
    if (status == PYMQ_OK)
        status = pymq_queue_table_load(&store->queues, store->crashed ? PYMQ_GAP_DROPS : PYMQ_GAP_REFUSED, error);
    if (status == PYMQ_OK)
        status = pymq_removal_load(store, error);
    if (status == PYMQ_OK)
        status = pymq_store_path(store, "checkpoint", path, sizeof path);
    if (status == PYMQ_OK && pymq_checkpoint_load(path, &store->checkpoint) != PYMQ_OK)
        return pymq_fail(error, PYMQ_EIO, errno, "%s: cannot be read: %s", path, strerror(errno));
    if (status != PYMQ_OK || !config->index_enable)
        return status;
    status = pymq_store_path(store, "index", path, sizeof path);
    return status == PYMQ_OK
               ? pymq_index_open(path, config->index_slot_count, config->index_item_count, &store->index, error)
               : status;
}

static int start_threads(struct pymq_store *store, struct pymq_error *error) {
    store->log.allocator = pymq_allocator_start(&store->log);
    int status = store->log.allocator != NULL ? PYMQ_OK : PYMQ_ENOMEM;
    if (status == PYMQ_OK)
        status = pymq_flusher_start(store);
    if (status == PYMQ_OK)
        status = pymq_dispatcher_start(store);
    if (status == PYMQ_OK)
        status = pymq_queue_flusher_start(store);
    return status == PYMQ_OK ? PYMQ_OK : pymq_fail(error, status, errno, "%s: no thread can be started", store->path);
}

static void stop_threads(struct pymq_store *store) {
    atomic_store(&store->dispatcher.stop, true);
    pymq_gate_ring_slow(&store->marks.visible_moved);
    pymq_worker_stop(&store->dispatcher);
    pymq_worker_stop(&store->queue_flusher);
    pymq_worker_stop(&store->committer);
    pymq_worker_stop(&store->flusher);
}

static void free_store(struct pymq_store *store, bool abandon) {
    stop_threads(store);
    pymq_allocator_stop(store->log.allocator, abandon);
    if (store->index != NULL)
        pymq_index_abandon(store->index);
    pymq_queue_table_destroy(&store->queues);
    pymq_commit_log_destroy(&store->log);
    if (store->pool_made)
        pymq_store_pool_destroy(&store->pool);
    pymq_gate_destroy(&store->flusher.gate);
    pymq_gate_destroy(&store->committer.gate);
    pymq_gate_destroy(&store->dispatcher.gate);
    pymq_gate_destroy(&store->queue_flusher.gate);
    pymq_marks_destroy(&store->marks);
    pthread_mutex_destroy(&store->flush_lock);
    pthread_mutex_destroy(&store->checkpoint_lock);
    pthread_mutex_destroy(&store->mark_lock);
    pthread_mutex_destroy(&store->removal_lock);
    pymq_removed_topics_free(&store->removed);
    pymq_arrivals_destroy(&store->arrivals);
    pymq_lock_file_release(store->lock_file);
    free(store->path);
    free(store);
}

static struct pymq_store *new_store(const char *path, const struct pymq_store_config *config) {
    struct pymq_store *store = calloc(1, sizeof *store);
    char *copy = store != NULL ? strdup(path) : NULL;
    if (copy == NULL) {
        free(store);
        return NULL;
    }
    size_t size = strlen(copy);
    while (size > 1 && copy[size - 1] == '/')
        copy[--size] = '\0';
    store->path = copy;
    store->config = *config;
    atomic_init(&store->writable, true);
    pymq_marks_init(&store->marks, config->flush_mode == PYMQ_SYNC_FLUSH, config->replica_gate,
                    config->transient_pool_enable);
    pymq_worker_init(&store->flusher);
    pymq_worker_init(&store->committer);
    pymq_worker_init(&store->dispatcher);
    pymq_worker_init(&store->queue_flusher);
    pthread_mutex_init(&store->flush_lock, NULL);
    pthread_mutex_init(&store->checkpoint_lock, NULL);
    pthread_mutex_init(&store->mark_lock, NULL);
    pthread_mutex_init(&store->removal_lock, NULL);
    pymq_arrivals_init(&store->arrivals);
    atomic_init(&store->dispatch_waits_at, -1);
    store->record_crc_from = -1;
    return store;
}

/* Before the first append, `abort` says from where on every record carries a CRC, or that it is not so. */
static int note_record_crcs(struct pymq_store *store, struct pymq_error *error) {
    int64_t end = atomic_load(&store->marks.written), from = -1;
    if (store->config.append_record_crc)
        from = store->record_crc_from >= 0 ? pymq_min64(store->record_crc_from, end) : end;
    if (from == store->record_crc_from)
        return PYMQ_OK;
    store->record_crc_from = from;
    return pymq_abort_write(store, error);
}

/* Before the first append the checkpoint becomes one of an open store, unless it is that already or there is none:
 * - A clean stop, ours or Apache's, vouches for the whole index. Apache would recover from there after a crash of ours,
 *   and drop the index file that was not full, together with the keys it held from before.
 * - A kill of Apache's leaves times that fit its own files, not those recovery has just made.
 * - A log cut below its durable end, by the operator's word: it was given for this damage, and the next crash would be
 *   refused for it again, for as long as the checkpoint remembers the old end. */
static int note_open(struct pymq_store *store, struct pymq_error *error) {
    const struct pymq_checkpoint *checkpoint = &store->checkpoint;
    bool none = !checkpoint->extended && checkpoint->physic_msg_timestamp == 0; /* vouches for nothing */
    bool open = checkpoint->extended && checkpoint->clean_end < 0;
    if (none || (open && atomic_load(&store->marks.written) >= checkpoint->flushed_offset))
        return PYMQ_OK;
    int status = pymq_checkpoint_round(store, false);
    if (status != PYMQ_OK)
        pymq_fail(error, status, errno, "%s: the store is recovered, but no checkpoint of it can be written: %s",
                  store->path, strerror(errno));
    return status;
}

static int open_parts(struct pymq_store *store, struct pymq_error *error) {
    char lock_path[PYMQ_PATH_MAX];
    int status = check_config(&store->config, error);
    if (status == PYMQ_OK && (status = pymq_io_make_directories(store->path, true)) != PYMQ_OK)
        return pymq_fail(error, status, errno, "%s: cannot be made: %s", store->path, strerror(errno));
    if (status == PYMQ_OK && (status = pymq_io_sync_parent(store->path)) != PYMQ_OK)
        return pymq_fail(error, status, errno, "%s: its parent directory cannot be synced: %s", store->path,
                         strerror(errno));
    if (status == PYMQ_OK)
        status = pymq_store_path(store, "lock", lock_path, sizeof lock_path);
    if (status == PYMQ_OK)
        status = pymq_lock_file_take(lock_path, &store->lock_file, error);
    if (status == PYMQ_OK)
        status = pymq_layout_check(store->path, error);
    if (status == PYMQ_OK)
        status = make_directories(store, error);
    if (status == PYMQ_OK)
        status = pymq_abort_find(store, error);
    if (status == PYMQ_OK)
        status = load_parts(store, error);
    if (status == PYMQ_OK)
        status = pymq_abort_write(store, error); /* before recovery writes: it may be cut short as well */
    if (status == PYMQ_OK && (status = pymq_recover(store, error)) != PYMQ_OK && !store->crashed && !store->touched)
        pymq_abort_remove(store); /* a refusal leaves everything as it was */
    if (status == PYMQ_OK)
        status = note_record_crcs(store, error);
    if (status == PYMQ_OK)
        status = note_open(store, error);
    if (status == PYMQ_OK)
        status = start_threads(store, error);
    return status;
}

int pymq_store_open(const char *path, const struct pymq_store_config *config, struct pymq_store **result,
                    struct pymq_error *error) {
    *result = NULL;
    if (error != NULL)
        memset(error, 0, sizeof *error);
    if (path == NULL || *path == '\0' || strlen(path) > PYMQ_PATH_MAX / 2)
        return pymq_fail(error, PYMQ_EINVAL, 0, "the store's path is empty or longer than %d bytes", PYMQ_PATH_MAX / 2);
    struct pymq_store *store = new_store(path, config);
    if (store == NULL)
        return pymq_fail(error, PYMQ_ENOMEM, errno, "%s: out of memory", path);
    int status = open_parts(store, error);
    if (status != PYMQ_OK) {
        if (error != NULL && error->text[0] == '\0')
            pymq_fail(error, status, errno, "%s: %s", path, pymq_status_name(status));
        free_store(store, false);
        return status;
    }
    *result = store;
    return PYMQ_OK;
}

/* ---- close --------------------------------------------------------------------------------------------------- */

int pymq_store_shut(struct pymq_store *store) {
    atomic_store(&store->closing, true);
    pymq_gate_ring_slow(&store->marks.arrived);
    int status = pymq_flush_all(store);
    atomic_store(&store->marks.closing, true);
    pymq_gate_ring_slow(&store->marks.acknowledged);
    pymq_marks_notify(&store->marks, PYMQ_EVENT_ACKNOWLEDGED | PYMQ_EVENT_ARRIVAL);
    return status;
}

/* What a clean stop owes the next open: everything dispatched, flushed and noted. */
static int settle(struct pymq_store *store, int status) {
    while (status == PYMQ_OK && !pymq_dispatch_is_done(store, atomic_load(&store->marks.visible)) &&
           atomic_load(&store->marks.failed) == PYMQ_OK && atomic_load(&store->dispatch_blocked) == PYMQ_OK)
        usleep(200);
    if (status == PYMQ_OK && atomic_load(&store->marks.failed) != PYMQ_OK)
        status = PYMQ_EFAILED;
    bool caught_up = atomic_load(&store->marks.dispatched) >= atomic_load(&store->marks.written);
    return status == PYMQ_OK ? pymq_checkpoint_round(store, caught_up) : status;
}

int pymq_store_close(struct pymq_store *store) {
    if (store == NULL)
        return PYMQ_OK;
    int status = settle(store, pymq_store_shut(store));
    stop_threads(store);
    pymq_allocator_stop(store->log.allocator, false);
    store->log.allocator = NULL;
    if (store->index != NULL) {
        int closed = pymq_index_close(store->index);
        store->index = NULL;
        if (status == PYMQ_OK && !(store->index_lost && closed == PYMQ_ENOTFOUND))
            status = closed;
    }
    if (status == PYMQ_OK && !store->index_lost)
        status = pymq_abort_remove(store);
    free_store(store, status != PYMQ_OK);
    return status;
}

void pymq_store_abandon(struct pymq_store *store) {
    if (store == NULL)
        return;
    atomic_store(&store->closing, true);
    atomic_store(&store->marks.closing, true);
    pymq_gate_ring_slow(&store->marks.arrived);
    pymq_gate_ring_slow(&store->marks.acknowledged);
    free_store(store, true);
}

/* ---- append and wait ------------------------------------------------------------------------------------------ */

int pymq_store_queue(struct pymq_store *store, const uint8_t *topic, size_t topic_size, int32_t queue_id, bool create,
                     struct pymq_queue **queue) {
    int status = pymq_queue_table_get(&store->queues, topic, topic_size, queue_id, create, queue);
    if (status == PYMQ_OK && atomic_load_explicit(&(*queue)->closed, memory_order_acquire)) {
        *queue = NULL; /* it goes; what is made in its place begins when it has gone */
        return PYMQ_ENOTFOUND;
    }
    return status;
}

static int refusal(struct pymq_store *store) {
    if (atomic_load_explicit(&store->closing, memory_order_relaxed))
        return PYMQ_ECLOSED;
    int failed = atomic_load_explicit(&store->marks.failed, memory_order_relaxed);
    if (failed != PYMQ_OK)
        return failed;
    if (!atomic_load_explicit(&store->writable, memory_order_relaxed))
        return PYMQ_EREADONLY;
    return atomic_load_explicit(&store->dispatch_blocked, memory_order_relaxed);
}

/* With the pool a new file may have to wait for a buffer: outside the lock, for as long as the settings allow. */
static int append_pooled(struct pymq_store *store, struct pymq_append_item *items, size_t count, unsigned flags,
                         struct pymq_append_result *result) {
    int64_t wait_ms = (flags & PYMQ_APPEND_NO_WAIT) != 0 ? 0 : store->config.transient_pool_wait_ms;
    int64_t deadline = pymq_monotonic_ns() + wait_ms * 1000000;
    size_t done = 0;
    for (;;) {
        int status = pymq_commit_log_append(&store->log, items + done, count - done, flags, result);
        done += result->appended;
        result->appended = done;
        if (status == PYMQ_EPOOL)
            pymq_gate_ring(&store->committer.gate);
        if (status != PYMQ_EPOOL || pymq_monotonic_ns() >= deadline || atomic_load(&store->closing))
            return status;
        usleep(POOL_RETRY_US);
    }
}

void pymq_store_ring(struct pymq_store *store) { pymq_gate_ring(&store->marks.visible_moved); }

int pymq_store_append(struct pymq_store *store, struct pymq_append_item *items, size_t count, unsigned flags,
                      struct pymq_append_result *result) {
    memset(result, 0, sizeof *result);
    int status = refusal(store);
    if (status == PYMQ_OK)
        status = store->pool_made ? append_pooled(store, items, count, flags, result)
                                  : pymq_commit_log_append(&store->log, items, count, flags, result);
    if (status != PYMQ_OK)
        atomic_fetch_add_explicit(&store->stats.put_failed, (int64_t)(count - result->appended), memory_order_relaxed);
    if (result->appended > 0 && store->config.flush_mode == PYMQ_SYNC_FLUSH)
        pymq_flusher_request(store, result->end_offset);
    return status;
}

int pymq_store_poll_acknowledged(struct pymq_store *store, int64_t end_offset) {
    return pymq_marks_poll(&store->marks, end_offset);
}

int pymq_store_wait_acknowledged(struct pymq_store *store, int64_t end_offset, int32_t timeout_ms) {
    return pymq_marks_wait(&store->marks, end_offset,
                           timeout_ms < 0 ? store->config.sync_flush_timeout_ms : timeout_ms);
}

int pymq_store_flush(struct pymq_store *store) { return pymq_flush_all(store); }

int pymq_store_checkpoint(struct pymq_store *store) { return pymq_checkpoint_round(store, false); }

struct catching_up {
    struct pymq_store *store;
    int64_t target;
};

static bool has_caught_up(void *context) {
    struct catching_up *goal = context;
    return pymq_dispatch_is_done(goal->store, goal->target) || atomic_load(&goal->store->closing);
}

int pymq_store_wait_dispatched(struct pymq_store *store, int32_t timeout_ms) {
    struct catching_up goal = {store, atomic_load_explicit(&store->marks.visible, memory_order_acquire)};
    int64_t deadline = pymq_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    while (!has_caught_up(&goal)) {
        int64_t left_ms = (deadline - pymq_monotonic_ns() + 999999) / 1000000;
        if (left_ms <= 0)
            return PYMQ_ETIMEDOUT;
        pymq_gate_wait(&store->marks.arrived, left_ms, has_caught_up, &goal);
    }
    return PYMQ_OK;
}
