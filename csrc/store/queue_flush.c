/* Making queues and index durable, and the checkpoint that says so.
 *
 * Ordinary passes flush queues with enough dirty pages, a bounded slice at a time. A thorough pass (by time, or after
 * checkpoint_bytes_max of log) flushes everything and writes the checkpoint: its safe offset is what had been
 * dispatched before the pass began and is flushed in the log.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "pymq/io.h"
#include "store_internal.h"

/* The queue flusher's view of all queues; grows with the store, never per message. */
struct queue_list {
    struct pymq_queue **queues;
    size_t count;
};

static int list_queues(struct pymq_store *store, struct queue_list *list) {
    size_t count = pymq_queue_table_list(&store->queues, NULL, 0);
    list->queues = malloc((count + 1) * sizeof *list->queues);
    if (list->queues == NULL)
        return PYMQ_ENOMEM;
    size_t now = pymq_queue_table_list(&store->queues, list->queues, count);
    list->count = now < count ? now : count; /* queues made meanwhile hold nothing below the offset we vouch for */
    return PYMQ_OK;
}

static bool is_due(struct pymq_queue *queue, int32_t least_pages) {
    if (!atomic_load_explicit(&queue->dirty, memory_order_acquire))
        return false;
    int64_t max = atomic_load_explicit(&queue->max_position, memory_order_acquire);
    int64_t flushed = atomic_load(&queue->flushed_position);
    return max / PYMQ_PAGE_SIZE - flushed / PYMQ_PAGE_SIZE >= least_pages;
}

/* Flush what is due, `slice` queues at a time, looking up in between whether it is time to stop. */
static int flush_queues(struct pymq_store *store, int32_t least_pages, bool stoppable) {
    struct queue_list list;
    int status = list_queues(store, &list);
    if (status != PYMQ_OK)
        return status;
    int32_t in_slice = 0;
    for (size_t i = 0; i < list.count && status == PYMQ_OK; i++) {
        if (!is_due(list.queues[i], least_pages))
            continue;
        if (++in_slice >= store->config.queue_flush_slice) {
            in_slice = 0;
            if (stoppable && atomic_load(&store->queue_flusher.stop)) {
                status = PYMQ_ECLOSED; /* whoever closes flushes them all himself */
                break;
            }
            sched_yield();
        }
        status = pymq_queue_flush(list.queues[i]);
    }
    int saved = errno;
    free(list.queues);
    errno = saved;
    return status;
}

/* A sync of a queue, the index or the checkpoint failed. A repeated one may report success for pages that are gone, and
 * a checkpoint would then vouch for units that no disk has: the same end as for the log. */
static void fail_sync(struct pymq_store *store, const char *what, int code) {
    struct pymq_error error;
    pymq_fail(
        &error, PYMQ_EFAILED, code,
        "%s/%s: a sync failed: %s; the store acknowledges nothing any more: repair the disk and open the store again",
        store->path, what, strerror(code));
    pymq_marks_fail(&store->marks, &error);
}

static void fill_checkpoint(struct pymq_store *store, const struct pymq_dispatch_mark *mark, bool clean) {
    int64_t safe = mark->offset;
    int64_t logics_timestamp_ms = pymq_min64(mark->timestamp_ms, atomic_load(&store->flushed_timestamp_ms));
    struct pymq_checkpoint *checkpoint = &store->checkpoint;
    struct pymq_index_marks index = {.open_begin_offset = INT64_MAX};
    if (store->index != NULL)
        pymq_index_marks(store->index, &index);
    checkpoint->safe_offset = safe;
    checkpoint->flushed_offset = atomic_load(&store->marks.flushed);
    checkpoint->physic_msg_timestamp = atomic_load(&store->flushed_timestamp_ms);
    if (store->index != NULL) /* without one, what earlier runs have indexed is still vouched for */
        checkpoint->index_msg_timestamp = index.full_end_timestamp_ms;
    checkpoint->clean_end = clean ? atomic_load(&store->marks.written) : -1;
    checkpoint->last_record = mark->last_record;
    checkpoint->unit_total = mark->unit_total;
    checkpoint->index_end = mark->index_end;
    /* What Apache goes by: never later than the first index file it would drop and rebuild. */
    checkpoint->logics_physical_offset = pymq_min64(safe, index.open_begin_offset);
    checkpoint->logics_msg_timestamp = index.open_begin_offset < safe
                                           ? pymq_min64(logics_timestamp_ms, index.open_begin_timestamp_ms)
                                           : logics_timestamp_ms;
    if (clean) { /* nothing to rebuild: all of it is durable */
        checkpoint->logics_physical_offset = safe;
        checkpoint->logics_msg_timestamp = logics_timestamp_ms;
    }
    checkpoint->confirm_phy_offset = pymq_max64(0, atomic_load(&store->log.last_record_published));
}

static int checkpoint_round(struct pymq_store *store, bool clean, bool stoppable) {
    char path[PYMQ_PATH_MAX];
    int status = pymq_store_path(store, "checkpoint", path, sizeof path);
    if (status != PYMQ_OK)
        return status;
    pthread_mutex_lock(&store->checkpoint_lock);
    pthread_mutex_lock(&store->mark_lock);
    struct pymq_dispatch_mark mark = store->mark;
    pthread_mutex_unlock(&store->mark_lock);
    if (mark.offset > atomic_load(&store->marks.flushed)) /* what it vouches for must be durable in the log as well */
        status = pymq_flush_all(store);
    const char *what = "consumequeue";
    if (status == PYMQ_OK)
        status = flush_queues(store, 0, stoppable);
    if (status == PYMQ_OK && pymq_io_sync_directory(store->queues.directory) != PYMQ_OK)
        status = PYMQ_EFAILED;
    if (status == PYMQ_OK && store->index != NULL) {
        what = "index";
        status = pymq_index_flush(store->index);
    }
    if (status == PYMQ_ENOTFOUND) { /* an index file was taken from us: the next open builds it again */
        struct pymq_index_marks index;
        pymq_index_marks(store->index, &index);
        if (index.open_begin_offset < mark.offset)
            mark = (struct pymq_dispatch_mark){index.open_begin_offset, -1, mark.timestamp_ms, -1, -2};
        store->index_lost = true;
        status = PYMQ_OK;
    }
    if (status == PYMQ_OK) {
        fill_checkpoint(store, &mark, clean && !store->index_lost);
        what = "checkpoint";
        status = pymq_checkpoint_save(path, &store->checkpoint);
    }
    if (status == PYMQ_OK)
        atomic_store(&store->checkpoint_safe, mark.offset);
    else if (status == PYMQ_EFAILED && atomic_load(&store->marks.failed) == PYMQ_OK)
        fail_sync(store, what, errno);
    pthread_mutex_unlock(&store->checkpoint_lock);
    return status;
}

int pymq_checkpoint_round(struct pymq_store *store, bool clean) { return checkpoint_round(store, clean, false); }

static bool checkpoint_is_due(struct pymq_store *store, int64_t elapsed_ms) {
    int64_t behind = atomic_load(&store->marks.dispatched) - atomic_load(&store->checkpoint_safe);
    return behind > 0 && (elapsed_ms >= store->config.queue_flush_thorough_interval_ms ||
                          behind >= store->config.checkpoint_bytes_max);
}

static bool stops(void *context) { return atomic_load(&((struct pymq_store *)context)->queue_flusher.stop); }

static void *run(void *context) {
    struct pymq_store *store = context;
    int64_t thorough_ms = pymq_monotonic_ns() / 1000000;
    while (!atomic_load(&store->queue_flusher.stop)) {
        pymq_gate_wait(&store->queue_flusher.gate, store->config.queue_flush_interval_ms, stops, store);
        if (atomic_load(&store->queue_flusher.stop) || atomic_load(&store->marks.failed) != PYMQ_OK)
            continue;
        int64_t now_ms = pymq_monotonic_ns() / 1000000;
        if (!checkpoint_is_due(store, now_ms - thorough_ms)) {
            pthread_mutex_lock(&store->checkpoint_lock);
            if (flush_queues(store, store->config.queue_flush_least_pages, true) == PYMQ_EFAILED)
                fail_sync(store, "consumequeue", errno); /* any other failure is met again, thoroughly */
            pthread_mutex_unlock(&store->checkpoint_lock);
        } else if (checkpoint_round(store, false, true) == PYMQ_OK) {
            thorough_ms = now_ms;
        }
    }
    return NULL;
}

int pymq_queue_flusher_start(struct pymq_store *store) {
    return pymq_worker_start(&store->queue_flusher, "pymq-queues", run, store);
}
