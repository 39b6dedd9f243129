/* Reading: units of a queue, records of the log, look-ups by time and by key. Nothing here sees beyond the visible
 * watermark, because queues end there and records are checked against it. */
#include <errno.h>
#include <stdlib.h>

#include "store_internal.h"

/* ---- units -------------------------------------------------------------------------------------------------- */

void pymq_queue_info(const struct pymq_queue *queue, struct pymq_queue_info *info) {
    info->topic = (struct pymq_slice){queue->topic, queue->topic_size};
    info->queue_id = queue->queue_id;
    info->max_offset = atomic_load_explicit(&queue->max_position, memory_order_acquire) / PYMQ_CQ_UNIT_SIZE;
    info->min_offset = atomic_load_explicit(&queue->min_position, memory_order_acquire) / PYMQ_CQ_UNIT_SIZE;
}

/* Units that lie contiguous in one pinned window, from `offset` on. */
struct run {
    struct pymq_window *window;
    const uint8_t *data;
    size_t count;
};

static int run_pin(struct pymq_queue *queue, int64_t offset, int64_t offset_max, struct run *run) {
    int64_t position = offset * PYMQ_CQ_UNIT_SIZE;
    /* Held for a moment only, so the bound may be passed by one window per reading thread. */
    int status = pymq_mapped_queue_pin(&queue->files, position, PYMQ_WINDOW_REQUIRED, &run->window);
    if (status != PYMQ_OK)
        return status;
    int64_t at = position % queue->files.file_size;
    run->data = pymq_window_at(run->window, at);
    run->count = (size_t)pymq_min64(pymq_window_room(run->window, at) / PYMQ_CQ_UNIT_SIZE, offset_max - offset);
    return PYMQ_OK;
}

static int check_range(struct pymq_queue *queue, int64_t offset, int64_t *offset_max) {
    struct pymq_queue_info info;
    pymq_queue_info(queue, &info);
    *offset_max = info.max_offset;
    if (atomic_load_explicit(&queue->dead, memory_order_acquire))
        return PYMQ_ENOTFOUND;
    return offset < info.min_offset || offset > info.max_offset ? PYMQ_ENOTFOUND : PYMQ_OK;
}

ssize_t pymq_queue_units(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, struct pymq_cq_unit *units,
                         size_t count_max) {
    int64_t offset_max;
    int status = check_range(queue, offset, &offset_max);
    if (status != PYMQ_OK)
        return status;
    size_t done = 0;
    while (done < count_max && offset + (int64_t)done < offset_max) {
        struct run run;
        status = run_pin(queue, offset + (int64_t)done, offset_max, &run);
        if (status != PYMQ_OK)
            return status;
        size_t wanted = run.count < count_max - done ? run.count : count_max - done;
        ssize_t got = pymq_cq_decode(run.data, wanted * PYMQ_CQ_UNIT_SIZE, units + done, wanted,
                                     atomic_load(&store->marks.visible));
        pymq_window_unpin(run.window);
        if (got < 0)
            return got;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

ssize_t pymq_queue_units_by_tag(struct pymq_store *store, struct pymq_queue *queue, int64_t offset,
                                const int64_t *hashes, size_t hash_count, struct pymq_cq_unit *units, int64_t *offsets,
                                size_t count_max, int64_t *next) {
    (void)store;
    int64_t offset_max;
    int status = check_range(queue, offset, &offset_max);
    if (status != PYMQ_OK)
        return status;
    size_t done = 0;
    uint32_t matched[256];
    *next = offset;
    while (done < count_max && *next < offset_max) {
        struct run run;
        status = run_pin(queue, *next, offset_max, &run);
        if (status != PYMQ_OK)
            return status;
        size_t room = count_max - done < 256 ? count_max - done : 256;
        size_t scanned;
        size_t found = pymq_cq_scan_tags(run.data, run.count, hashes, hash_count, matched, room, &scanned);
        for (size_t i = 0; i < found; i++, done++) {
            pymq_cq_decode_one(run.data + (size_t)matched[i] * PYMQ_CQ_UNIT_SIZE, &units[done]);
            offsets[done] = *next + matched[i];
        }
        pymq_window_unpin(run.window);
        *next += (int64_t)scanned;
    }
    return (ssize_t)done;
}

struct arrival {
    struct pymq_store *store;
    struct pymq_queue *queue;
    int64_t position;
};

static bool has_arrived(void *context) {
    struct arrival *arrival = context;
    return atomic_load_explicit(&arrival->queue->max_position, memory_order_acquire) > arrival->position ||
           atomic_load(&arrival->store->closing) || atomic_load(&arrival->queue->dead);
}

int pymq_queue_wait(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, int32_t timeout_ms) {
    struct arrival arrival = {store, queue, offset * PYMQ_CQ_UNIT_SIZE};
    int64_t deadline = pymq_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    while (!has_arrived(&arrival)) {
        int64_t left_ms = timeout_ms < 0 ? -1 : (deadline - pymq_monotonic_ns() + 999999) / 1000000;
        if (timeout_ms >= 0 && left_ms <= 0)
            return PYMQ_ETIMEDOUT;
        pymq_gate_wait(&store->marks.arrived, left_ms, has_arrived, &arrival);
    }
    if (atomic_load(&queue->dead))
        return PYMQ_ENOTFOUND;
    return atomic_load_explicit(&queue->max_position, memory_order_acquire) > arrival.position ? PYMQ_OK : PYMQ_ECLOSED;
}

/* ---- records ------------------------------------------------------------------------------------------------ */

/* Spans are pinned windows, or private copies marked by the lowest bit of `owner`. */
#define COPY_MARK ((uintptr_t)1)

static int copy_record(struct pymq_store *store, int64_t offset, uint32_t size, struct pymq_span *span) {
    uint8_t *copy = malloc(size);
    if (copy == NULL)
        return PYMQ_ENOMEM;
    ssize_t got = pymq_mapped_queue_read(&store->log.files, offset, copy, size);
    if (got != (ssize_t)size) {
        free(copy);
        return got < 0 ? PYMQ_EIO : PYMQ_ENOTFOUND;
    }
    *span = (struct pymq_span){copy, size, (void *)((uintptr_t)copy | COPY_MARK)};
    return PYMQ_OK;
}

void pymq_span_release(struct pymq_store *store, struct pymq_span *span) {
    (void)store;
    uintptr_t owner = (uintptr_t)span->owner;
    if (owner & COPY_MARK)
        free((void *)(owner & ~COPY_MARK));
    else if (span->owner != NULL)
        pymq_window_unpin(span->owner);
    *span = (struct pymq_span){NULL, 0, NULL};
}

/* The total size of the record that starts at `data`, or why none does. */
static ssize_t record_size_at(struct pymq_store *store, const uint8_t *data, int64_t offset, uint32_t size) {
    uint32_t total = pymq_load_be32(data), magic = pymq_load_be32(data + 4);
    int64_t file_left = store->config.log_file_size - offset % store->config.log_file_size;
    if (magic == PYMQ_RECORD_MAGIC_BLANK)
        return PYMQ_ENOTFOUND;
    if ((magic != PYMQ_RECORD_MAGIC_V1 && magic != PYMQ_RECORD_MAGIC_V2) || total < PYMQ_RECORD_SIZE_MIN ||
        total > file_left || (size != 0 && size != total))
        return PYMQ_ECORRUPT;
    if (offset + total > atomic_load_explicit(&store->marks.visible, memory_order_acquire))
        return PYMQ_ENOTFOUND;
    return (ssize_t)total;
}

static int read_record(struct pymq_store *store, int64_t offset, uint32_t size, struct pymq_span *span) {
    struct pymq_window *window;
    const uint8_t *data;
    int status = pymq_commit_log_pin(&store->log, offset, PYMQ_BLANK_SIZE_MIN, &window, &data);
    if (status == PYMQ_EMAPS) { /* every window is pinned: copy instead of waiting for one */
        uint8_t head[PYMQ_BLANK_SIZE_MIN];
        if (pymq_mapped_queue_read(&store->log.files, offset, head, sizeof head) != (ssize_t)sizeof head)
            return PYMQ_EMAPS;
        ssize_t total = record_size_at(store, head, offset, size);
        return total < 0 ? (int)total : copy_record(store, offset, (uint32_t)total, span);
    }
    if (status != PYMQ_OK)
        return status == PYMQ_ETOOBIG ? PYMQ_ECORRUPT : status;
    ssize_t total = record_size_at(store, data, offset, size);
    bool fits = total > 0 && pymq_window_room(window, offset % store->config.log_file_size) >= total;
    if (fits) {
        *span = (struct pymq_span){data, (uint32_t)total, window};
        return PYMQ_OK;
    }
    pymq_window_unpin(window);
    return total < 0 ? (int)total : copy_record(store, offset, (uint32_t)total, span);
}

int pymq_store_record(struct pymq_store *store, int64_t physical_offset, uint32_t size, struct pymq_span *span) {
    int status = PYMQ_ENOTFOUND;
    if (physical_offset >= 0 && physical_offset < atomic_load_explicit(&store->marks.visible, memory_order_acquire))
        status = read_record(store, physical_offset, size, span);
    if (status == PYMQ_OK) {
        atomic_fetch_add_explicit(&store->stats.get_count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&store->stats.get_bytes, span->size, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&store->stats.get_missed, 1, memory_order_relaxed);
    }
    return status;
}

/* ---- by time ------------------------------------------------------------------------------------------------- */

/* The store time of a unit's record; INT64_MIN for filler and for records no longer in the log. By pread, not through a
 * window: a search touches places all over the log, and must not push out what others read. */
static int64_t unit_timestamp_ms(struct pymq_store *store, const struct pymq_cq_unit *unit) {
    uint8_t head[PYMQ_RECORD_SIZE_MIN];
    if (unit->size == PYMQ_CQ_BLANK_RECORD_SIZE ||
        pymq_mapped_queue_read(&store->log.files, unit->physical_offset, head, sizeof head) != (ssize_t)sizeof head)
        return INT64_MIN;
    return pymq_record_store_timestamp_ms(head);
}

int64_t pymq_queue_offset_by_time(struct pymq_store *store, struct pymq_queue *queue, int64_t timestamp_ms,
                                  enum pymq_boundary boundary) {
    struct pymq_queue_info info;
    pymq_queue_info(queue, &info);
    int64_t low = info.min_offset, high = info.max_offset;
    /* First unit stored at or after the time (lower), or after it (upper, then one back). */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct pymq_cq_unit unit;
        if (pymq_queue_unit(queue, middle, &unit) != PYMQ_OK)
            return info.min_offset;
        int64_t stored_ms = unit_timestamp_ms(store, &unit);
        if (stored_ms < timestamp_ms || (boundary == PYMQ_BOUNDARY_UPPER && stored_ms == timestamp_ms))
            low = middle + 1;
        else
            high = middle;
    }
    if (boundary == PYMQ_BOUNDARY_LOWER)
        return info.max_offset == 0 ? 0 : low;
    return low > info.min_offset ? low - 1 : 0; /* Compat: Apache answers 0 when every message is later */
}

/* ---- by key -------------------------------------------------------------------------------------------------- */

#define INDEX_TIME_STEP_MS 1000

struct key_query {
    struct pymq_store *store;
    struct pymq_slice topic, key;
    int64_t begin_ms, end_ms;
};

static bool slice_equals(struct pymq_slice a, struct pymq_slice b) {
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* Whether `key` is one of the space-separated words of `keys`. */
static bool keys_hold(struct pymq_slice keys, struct pymq_slice key) {
    for (uint32_t at = 0; at < keys.size;) {
        const uint8_t *space = memchr(keys.data + at, ' ', keys.size - at);
        uint32_t end = space != NULL ? (uint32_t)(space - keys.data) : keys.size;
        if (slice_equals((struct pymq_slice){keys.data + at, end - at}, key))
            return true;
        at = end + 1;
    }
    return false;
}

/* Whether `key` is how the index knows messages with these tags: "T#" and the tags. */
static bool is_tag_key(struct pymq_slice tags, struct pymq_slice key) {
    return tags.size > 0 && key.size == tags.size + 2 && memcmp(key.data, "T#", 2) == 0 &&
           memcmp(key.data + 2, tags.data, tags.size) == 0;
}

static int verify_key(void *context, int64_t physical_offset) {
    struct key_query *query = context;
    struct pymq_span span;
    if (pymq_store_record(query->store, physical_offset, 0, &span) != PYMQ_OK)
        return 0;
    struct pymq_record record;
    struct pymq_record_keys keys;
    int wanted = 0;
    if (pymq_record_decode(span.data, span.size, PYMQ_CHECK_OFFSET, physical_offset, &record) > 0 &&
        record.store_timestamp_ms >= query->begin_ms && record.store_timestamp_ms <= query->end_ms &&
        slice_equals(record.topic, query->topic)) {
        pymq_record_keys(&record, &query->store->config.delay_levels, &keys);
        wanted = (keys.unique_key.data != NULL && slice_equals(keys.unique_key, query->key)) ||
                 (keys.keys.data != NULL && keys_hold(keys.keys, query->key)) || is_tag_key(keys.tags, query->key);
    }
    pymq_span_release(query->store, &span);
    return wanted;
}

ssize_t pymq_store_query(struct pymq_store *store, const uint8_t *topic, size_t topic_size, const uint8_t *key,
                         size_t key_size, int64_t begin_ms, int64_t end_ms, int64_t *offsets, size_t count_max) {
    if (store->index == NULL)
        return PYMQ_EUNSUPPORTED;
    /* The index keeps whole seconds, rounded down: ask it for a second more, and go by the record. */
    int64_t index_begin_ms = begin_ms > INDEX_TIME_STEP_MS ? begin_ms - INDEX_TIME_STEP_MS : 0;
    struct key_query query = {store, {topic, (uint32_t)topic_size}, {key, (uint32_t)key_size}, begin_ms, end_ms};
    return pymq_index_query(store->index, topic, topic_size, key, key_size, index_begin_ms, end_ms,
                            pymq_commit_log_min(&store->log), atomic_load(&store->marks.visible), verify_key, &query,
                            offsets, count_max);
}

int64_t pymq_store_indexed(struct pymq_store *store) {
    struct pymq_index_marks marks = {.end_offset = -1};
    if (store->index != NULL)
        pymq_index_marks(store->index, &marks);
    return marks.end_offset;
}
