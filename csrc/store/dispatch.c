/* Dispatch (reput): from the log to consume queues and index, then to whoever waits for messages.
 *
 * The dispatcher sleeps until `visible` moves, walks the new records through the mapped log in batches, and
 * publishes `dispatched` once per batch. When a queue or the index cannot be written (disk full), it stops where it
 * is, refuses further puts (index data must not be lost), and tries again until it goes on by itself.
 */
#include "store_internal.h"

#define BATCH_SIZE (1024 * 1024) /* bytes of log between two publications: bounds the wait of a reader */
#define RETRY_INTERVAL_MS 100

/* While no thread runs: whether the record's topic was removed after it was stored. */
static bool is_of_removed_topic(struct pymq_store *store, const struct pymq_record *record) {
    return store->recovering && record->physical_offset < store->removed.offset_max &&
           record->physical_offset < pymq_removed_topics_from(&store->removed, record->topic);
}

static int put_in_queue(struct pymq_store *store, const struct pymq_record *record, int64_t tags_code) {
    if (is_of_removed_topic(store, record))
        return PYMQ_OK;
    struct pymq_queue *queue;
    int status =
        pymq_queue_table_get(&store->queues, record->topic.data, record->topic.size, record->queue_id, true, &queue);
    if (status == PYMQ_ETOPIC || status == PYMQ_EINVAL)
        return PYMQ_OK; /* such a record was never accepted through a queue; it stays readable by its offset */
    if (status != PYMQ_OK)
        return status;
    int64_t before = atomic_load_explicit(&queue->max_position, memory_order_relaxed);
    status = pymq_queue_put(queue, record->physical_offset, record->total_size, tags_code, record->queue_offset,
                            store->skip);
    int64_t after = atomic_load_explicit(&queue->max_position, memory_order_relaxed);
    store->unit_pending += (after - before) / PYMQ_CQ_UNIT_SIZE;
    if (after != before)
        pymq_arrivals_touch(&store->arrivals, queue);
    return status;
}

/* Store times never decrease, so while a clock that was set back catches up, a message's lies ahead of it: counted from
 * there, a delay would end after it and the time the clock went back. A queue built again has to do with the log's. */
static int64_t delivery_time(const struct pymq_store *store, const struct pymq_record *record, int64_t tags_code) {
    int64_t ahead_ms = store->recovering ? 0 : record->store_timestamp_ms - pymq_now_ms();
    return ahead_ms > 0 ? tags_code - ahead_ms : tags_code;
}

int pymq_dispatch_record(struct pymq_store *store, const struct pymq_record *record) {
    struct pymq_record_keys keys;
    pymq_record_keys(record, &store->config.delay_levels, &keys);
    if (keys.is_delayed)
        keys.tags_code = delivery_time(store, record, keys.tags_code);
    int transaction = record->sys_flag & PYMQ_SYS_TRANSACTION_MASK;
    bool consumable = transaction != PYMQ_SYS_TRANSACTION_PREPARED && transaction != PYMQ_SYS_TRANSACTION_ROLLBACK;
    int status = PYMQ_OK;
    if (consumable && record->physical_offset >= store->queues_from)
        status = put_in_queue(store, record, keys.tags_code);
    if (status == PYMQ_OK && store->index != NULL)
        status = pymq_index_put(store->index, record, &keys);
    if (status != PYMQ_OK)
        return status;
    struct pymq_dispatch_mark *working = &store->working;
    working->unit_total += store->unit_pending; /* only now: the record is in both, or counts in neither */
    store->unit_pending = 0;
    working->last_record = record->physical_offset;
    working->timestamp_ms = record->store_timestamp_ms;
    return PYMQ_OK;
}

void pymq_dispatch_publish(struct pymq_store *store, int64_t offset) {
    struct pymq_index_marks index = {.end_offset = -2};
    if (store->index != NULL)
        pymq_index_marks(store->index, &index);
    store->working.offset = offset;
    store->working.index_end = index.end_offset;
    pthread_mutex_lock(&store->mark_lock);
    store->working.unit_total -= store->units_removed;
    store->units_removed = 0;
    store->mark = store->working;
    pthread_mutex_unlock(&store->mark_lock);
    pymq_marks_dispatched(&store->marks, offset);
}

/* Dispatch the records of one contiguous piece of log. `*offset` ends behind the last one dispatched. */
static int dispatch_piece(struct pymq_store *store, const uint8_t *data, int64_t size, int64_t *offset) {
    int64_t begin = *offset;
    int64_t records = 0;
    int status = PYMQ_OK;
    while (*offset - begin < size) {
        struct pymq_record record;
        int64_t left = size - (*offset - begin);
        ssize_t taken = pymq_record_decode(data + (*offset - begin), (size_t)left, PYMQ_CHECK_OFFSET, *offset, &record);
        if (taken == 0) { /* blank tail: on to the next file */
            int64_t file_size = store->config.log_file_size;
            *offset += file_size - *offset % file_size;
            break;
        }
        if (taken < 0) {
            status = (int)taken;
            break;
        }
        status = pymq_dispatch_record(store, &record);
        if (status != PYMQ_OK)
            break;
        *offset += taken;
        records++;
    }
    pymq_arrivals_flush(&store->arrivals);
    atomic_fetch_add_explicit(&store->stats.dispatch_records, records, memory_order_relaxed);
    return status;
}

/* One batch from `dispatched` towards `limit`. */
static int dispatch_batch(struct pymq_store *store, int64_t limit) {
    int64_t offset = atomic_load(&store->marks.dispatched);
    int64_t file_size = store->config.log_file_size;
    struct pymq_window *window;
    int status = pymq_mapped_queue_pin(&store->log.files, offset, PYMQ_WINDOW_REQUIRED, &window);
    if (status == PYMQ_ENOTFOUND && offset < pymq_commit_log_min(&store->log)) {
        pymq_dispatch_publish(store, pymq_commit_log_min(&store->log)); /* expired before it was dispatched */
        return PYMQ_OK;
    }
    if (status != PYMQ_OK)
        return status;
    int64_t at = offset % file_size;
    int64_t size = pymq_min64(pymq_min64(pymq_window_room(window, at), limit - offset), file_size - at);
    /* Whole windows first: a record that starts in this window is contiguous in it, thanks to the overlap. */
    int64_t begin = offset;
    status = dispatch_piece(store, pymq_window_at(window, at), size, &offset);
    pymq_window_unpin(window);
    if (status == PYMQ_ETRUNCATED && offset > begin)
        status = PYMQ_OK; /* the rest starts in the next window, or a batch end cut it: go on from here */
    pymq_dispatch_publish(store, offset);
    if (offset - atomic_load_explicit(&store->checkpoint_safe, memory_order_relaxed) >=
        store->config.checkpoint_bytes_max)
        pymq_gate_ring(&store->queue_flusher.gate);
    atomic_fetch_add_explicit(&store->stats.dispatch_batches, 1, memory_order_relaxed);
    return status;
}

/* Something new may be seen: behind what is dispatched, and not where the last look ended inside a record. */
static bool has_work(void *context) {
    struct pymq_store *store = context;
    int64_t visible = atomic_load_explicit(&store->marks.visible, memory_order_acquire);
    return atomic_load(&store->dispatcher.stop) ||
           (visible > atomic_load_explicit(&store->marks.dispatched, memory_order_relaxed) &&
            visible != atomic_load(&store->dispatch_waits_at));
}

static bool stops(void *context) { return atomic_load(&((struct pymq_store *)context)->dispatcher.stop); }

/* A record below `visible` that does not decode: bytes changed under us. Serving on could deliver wrong messages. */
static void fail_corrupt(struct pymq_store *store, int status) {
    struct pymq_error error;
    int64_t offset = atomic_load(&store->marks.dispatched);
    pymq_fail(
        &error, PYMQ_ECORRUPT, 0,
        "%s: no whole record at offset %lld (%s) although it was written; dispatch has stopped: check the disk and "
        "open the store again",
        store->log.files.directory, (long long)offset, pymq_status_name(status));
    pymq_marks_fail(&store->marks, &error);
}

static void *run(void *context) {
    struct pymq_store *store = context;
    while (!atomic_load(&store->dispatcher.stop)) {
        int64_t visible = atomic_load_explicit(&store->marks.visible, memory_order_acquire);
        int64_t dispatched = atomic_load(&store->marks.dispatched);
        if (visible <= dispatched || visible == atomic_load(&store->dispatch_waits_at)) {
            pymq_gate_wait(&store->marks.visible_moved, -1, has_work, store);
            continue;
        }
        int status = dispatch_batch(store, pymq_min64(visible, dispatched + BATCH_SIZE));
        if (status == PYMQ_ETRUNCATED && visible > dispatched + BATCH_SIZE)
            status = dispatch_batch(store, visible); /* one record longer than a batch */
        if (status == PYMQ_ETRUNCATED && visible < atomic_load(&store->marks.written)) {
            /* Replicas report bytes, not records: the rest of this one is not theirs yet. */
            atomic_store(&store->dispatch_waits_at, visible);
            pymq_gate_ring(&store->marks.arrived);
            continue;
        }
        if (status == PYMQ_ECORRUPT || status == PYMQ_ETRUNCATED) {
            fail_corrupt(store, status);
            pymq_gate_wait(&store->dispatcher.gate, -1, stops, store);
            continue;
        }
        atomic_store(&store->dispatch_blocked, status);
        if (status == PYMQ_EFAILED) /* the index had to be synced and could not: say so now, as the checkpoint does */
            pymq_checkpoint_round(store, false);
        if (status != PYMQ_OK)
            pymq_gate_wait(&store->dispatcher.gate, RETRY_INTERVAL_MS, stops, store);
    }
    return NULL;
}

int pymq_dispatcher_start(struct pymq_store *store) {
    return pymq_worker_start(&store->dispatcher, "pymq-dispatch", run, store);
}
