/* See commit_log.h. What happens under the append lock is in append_locked() and below: offsets, store time, the
 * copy, the CRC over the record if there is to be one (it covers the offsets), and at a file's end the blank tail and
 * the next file. Encoding and the body's CRC happened before, publication and waking happen after. */
#include "commit_log.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "allocator.h"
#include "pymq/io.h"
#include "queue.h"

#define LOG_WINDOWS_MAX 4096 /* the kernel bounds mappings by number too (vm.max_map_count) */

int pymq_commit_log_init(struct pymq_commit_log *log, const char *directory, const struct pymq_store_config *config,
                         struct pymq_marks *marks, struct pymq_store_pool *pool) {
    memset(log, 0, sizeof *log);
    log->config = config;
    log->marks = marks;
    log->pool = pool;
    log->last_record = -1;
    pthread_mutex_init(&log->commit_lock, NULL);
    /* The overlap makes the longest legal record contiguous in the window it starts in. */
    pymq_window_cache_init(&log->cache, config->log_window_size, config->message_size_max + PYMQ_RECORD_OVERHEAD_MAX,
                           config->log_map_size_max, LOG_WINDOWS_MAX);
    return pymq_mapped_queue_init(&log->files, directory, config->log_file_size, &log->cache);
}

static void leave_active(struct pymq_commit_log *log) {
    if (log->window != NULL)
        pymq_window_unpin(log->window);
    if (log->active != NULL)
        pymq_file_release(log->active);
    log->window = NULL;
    log->active = NULL;
    log->buffer = NULL;
}

void pymq_commit_log_destroy(struct pymq_commit_log *log) {
    if (log->config == NULL)
        return;
    leave_active(log);
    for (int32_t i = 0; i < log->pooled_count; i++)
        pymq_file_release(log->pooled[i].file);
    pymq_mapped_queue_destroy(&log->files);
    pymq_window_cache_destroy(&log->cache);
    pthread_mutex_destroy(&log->commit_lock);
    log->config = NULL;
}

int pymq_commit_log_resume(struct pymq_commit_log *log, int64_t end, int64_t last_timestamp_ms, int64_t last_record) {
    log->position = end;
    log->last_timestamp_ms = last_timestamp_ms;
    log->last_record = last_record;
    atomic_store(&log->timestamp_published_ms, last_timestamp_ms);
    atomic_store(&log->last_record_published, last_record);
    /* With the pool a half-filled file goes on through its mapping; the next file takes a buffer, as in Apache. */
    struct pymq_file *file = pymq_mapped_queue_find(&log->files, end);
    if (file == NULL)
        return PYMQ_OK;
    int status = pymq_file_open(file);
    if (status == PYMQ_OK)
        status = pymq_file_allocate(file, file->size, file->size); /* a copied store may be sparse */
    if (status != PYMQ_OK) {
        pymq_file_release(file);
        return status;
    }
    log->active = file;
    return PYMQ_OK;
}

/* ---- append ------------------------------------------------------------------------------------------------ */

/* Where the next `size` bytes go. */
static int target_locked(struct pymq_commit_log *log, int64_t size, uint8_t **target) {
    int64_t at = log->position - log->active->base;
    if (log->buffer != NULL) {
        *target = log->buffer + at;
        return PYMQ_OK;
    }
    struct pymq_window *window = log->window;
    if (window == NULL || at >= window->position + log->cache.window_size) {
        int status = pymq_window_pin(&log->cache, log->active, at, PYMQ_WINDOW_REQUIRED, &window);
        if (status != PYMQ_OK)
            return status;
        if (log->window != NULL)
            pymq_window_unpin(log->window);
        log->window = window;
        if (log->config->lock_log_memory && pymq_io->mlock(window->data, window->size) != 0)
            atomic_store_explicit(&log->memory_lock_refused, true, memory_order_relaxed);
    }
    if (pymq_window_room(window, at) < size)
        return PYMQ_ETOOBIG;
    *target = pymq_window_at(window, at);
    return PYMQ_OK;
}

static int enter_file_locked(struct pymq_commit_log *log, unsigned flags) {
    struct pymq_new_file taken;
    bool is_bounded = (flags & (PYMQ_APPEND_NO_WAIT | PYMQ_APPEND_BOUNDED)) != 0;
    int status =
        pymq_allocator_take(log->allocator, log->position, is_bounded ? PYMQ_APPEND_WAIT_MS_MAX : -1, &taken);
    if (status != PYMQ_OK)
        return status;
    if (taken.buffer != NULL) {
        pthread_mutex_lock(&log->commit_lock);
        pymq_file_retain(taken.file);
        log->pooled[log->pooled_count++] = (struct pymq_pooled_file){taken.file, taken.buffer};
        pthread_mutex_unlock(&log->commit_lock);
    }
    status = pymq_mapped_queue_add(&log->files, taken.file);
    if (status != PYMQ_OK) { /* out of memory for the list: the next open takes the file for a leftover */
        pymq_file_release(taken.file);
        return status;
    }
    pymq_file_retain(taken.file);
    log->active = taken.file;
    log->buffer = taken.buffer;
    atomic_fetch_add_explicit(&log->files_created, 1, memory_order_relaxed);
    return PYMQ_OK;
}

/* Fill the rest of the active file with a blank record and leave it. */
static int seal_locked(struct pymq_commit_log *log) {
    int64_t room = log->active->base + log->active->size - log->position;
    uint8_t *target;
    int status = target_locked(log, PYMQ_BLANK_SIZE_MIN, &target);
    if (status != PYMQ_OK)
        return status;
    pymq_record_encode_blank(target, (uint32_t)room);
    if (log->buffer != NULL) /* a pool buffer still holds an older file's bytes; the mapping reads as zeros */
        memset(target + PYMQ_BLANK_SIZE_MIN, 0, (size_t)(room - PYMQ_BLANK_SIZE_MIN));
    log->position += room;
    leave_active(log);
    return PYMQ_OK;
}

/* Make sure `size` bytes and the blank behind them fit into the active file. */
static int make_room_locked(struct pymq_commit_log *log, int64_t size, unsigned flags) {
    if (log->active != NULL && size + PYMQ_BLANK_SIZE_MIN > log->active->base + log->active->size - log->position) {
        int status = seal_locked(log);
        if (status != PYMQ_OK)
            return status;
    }
    return log->active != NULL ? PYMQ_OK : enter_file_locked(log, flags);
}

/* Prepared and rollback records are in no queue. */
static bool is_consumable(const uint8_t *record) {
    uint32_t transaction = pymq_load_be32(record + PYMQ_RECORD_SYS_FLAG_AT) & PYMQ_SYS_TRANSACTION_MASK;
    return transaction != PYMQ_SYS_TRANSACTION_PREPARED && transaction != PYMQ_SYS_TRANSACTION_ROLLBACK;
}

/* What the CRC over the record will add to it. */
static inline uint32_t crc_room(const struct pymq_commit_log *log, const struct pymq_append_item *item) {
    return log->config->append_record_crc ? pymq_record_crc_room(item->record, item->size) : 0;
}

/* A batch that cannot be completed is taken back: nobody has seen it, and its place reads as zeros again. */
static int take_back_locked(struct pymq_commit_log *log, struct pymq_append_item *items, size_t *appended,
                            int64_t begin) {
    if (*appended == 0)
        return PYMQ_OK;
    int status = pymq_io_zero(log->active->fd, begin - log->active->base, log->position - begin);
    if (status != PYMQ_OK)
        return status;
    for (size_t i = *appended; i > 0; i--) {
        items[i - 1].queue->next_offset -= is_consumable(items[i - 1].record);
        items[i - 1].size = pymq_load_be32(items[i - 1].record); /* as it was given, without a CRC */
    }
    if (log->window != NULL) /* it may lie behind the place we are back at */
        pymq_window_unpin(log->window);
    log->window = NULL;
    log->position = begin;
    *appended = 0;
    return PYMQ_OK;
}

static int append_locked(struct pymq_commit_log *log, struct pymq_append_item *items, size_t count, unsigned flags,
                         int64_t together_size, size_t *appended) {
    if (flags & PYMQ_APPEND_TOGETHER) {
        int status = make_room_locked(log, together_size, flags);
        if (status != PYMQ_OK)
            return status;
    }
    for (size_t i = 0; i < count; i++) {
        struct pymq_append_item *item = &items[i];
        uint8_t *target;
        if (atomic_load_explicit(&item->queue->closed, memory_order_relaxed))
            return PYMQ_ENOTFOUND;
        uint32_t room = crc_room(log, item);
        int status = make_room_locked(log, (int64_t)item->size + room, flags);
        if (status == PYMQ_OK)
            status = target_locked(log, (int64_t)item->size + room, &target);
        if (status != PYMQ_OK)
            return status;
        bool consumable = is_consumable(item->record);
        item->queue_offset = consumable ? item->queue->next_offset : 0;
        item->physical_offset = log->position;
        pymq_record_stamp(item->record, item->queue_offset, log->position, log->last_timestamp_ms);
        memcpy(target, item->record, item->size);
        if (room > 0) /* over the copy: the caller's buffer need not have the room, and stays as it is for a retry */
            item->size = pymq_record_crc_append(target, item->size);
        item->queue->next_offset += consumable;
        log->last_record = log->position;
        log->position += item->size;
        *appended = i + 1;
    }
    return PYMQ_OK;
}

/* The coarse clock: a hold worth knowing lasts longer than its tick, and every append pays for this. */
static int64_t coarse_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void note_hold(struct pymq_commit_log *log, int64_t begin_ns) {
    int64_t hold_us = (coarse_ns() - begin_ns) / 1000;
    if (hold_us > atomic_load_explicit(&log->hold_us_max, memory_order_relaxed))
        atomic_store_explicit(&log->hold_us_max, hold_us, memory_order_relaxed);
}

int pymq_commit_log_append(struct pymq_commit_log *log, struct pymq_append_item *items, size_t count, unsigned flags,
                           struct pymq_append_result *result) {
    int64_t total = 0;
    int64_t room = log->config->log_file_size - PYMQ_BLANK_SIZE_MIN;
    int64_t record_max = pymq_min64(room, (int64_t)log->config->message_size_max + PYMQ_RECORD_OVERHEAD_MAX);
    for (size_t i = 0; i < count; i++) {
        if (items[i].size > record_max)
            return PYMQ_ETOOBIG;
        if (pymq_record_looks_torn(items[i].record, items[i].size))
            return PYMQ_EPROPERTIES;
        if (log->config->append_record_crc) {
            ssize_t prepared = pymq_record_crc_prepare(items[i].record, items[i].size);
            if (prepared < 0)
                return (int)prepared;
            items[i].size = (uint32_t)prepared;
        }
        int64_t size = (int64_t)items[i].size + crc_room(log, &items[i]);
        if (size > record_max)
            return PYMQ_ETOOBIG;
        total += size;
    }
    if ((flags & PYMQ_APPEND_TOGETHER) && total > room)
        return PYMQ_ETOOBIG;

    result->appended = 0;
    pymq_append_lock_acquire(&log->lock);
    int64_t begin_ns = coarse_ns();
    int64_t now_ms = pymq_now_ms();
    atomic_store_explicit(&log->lock_begin_ms, now_ms, memory_order_relaxed);
    if (now_ms > log->last_timestamp_ms)
        log->last_timestamp_ms = now_ms;
    int64_t last_record = log->last_record;
    int status = append_locked(log, items, count, flags, total, &result->appended);
    if (status != PYMQ_OK && (flags & PYMQ_APPEND_TOGETHER) && result->appended > 0 &&
        take_back_locked(log, items, &result->appended, items[0].physical_offset) == PYMQ_OK)
        log->last_record = last_record;
    int64_t position = log->position;
    result->end_offset = position;
    result->store_timestamp_ms = log->last_timestamp_ms;
    atomic_store_explicit(&log->timestamp_published_ms, log->last_timestamp_ms, memory_order_relaxed);
    atomic_store_explicit(&log->last_record_published, log->last_record, memory_order_relaxed);
    atomic_store_explicit(&log->lock_begin_ms, 0, memory_order_relaxed);
    note_hold(log, begin_ns);
    pymq_append_lock_release(&log->lock);

    /* After the lock: whoever publishes a higher position has seen our bytes through that lock. */
    pymq_marks_written(log->marks, position, (flags & PYMQ_APPEND_QUIET) != 0);
    pymq_allocator_advance(log->allocator, position);
    return status;
}

/* ---- commit and flush --------------------------------------------------------------------------------------- */

static int commit_locked(struct pymq_commit_log *log, int64_t target) {
    while (log->pooled_count > 0) {
        struct pymq_pooled_file *entry = &log->pooled[0];
        int64_t committed = atomic_load(&log->marks->committed);
        int64_t begin = pymq_max64(committed, entry->file->base);
        int64_t end = pymq_min64(target, entry->file->base + entry->file->size);
        if (begin >= end)
            break;
        int64_t at = begin - entry->file->base;
        int status = pymq_io_pwrite_full(entry->file->fd, entry->buffer + at, (size_t)(end - begin), at);
        if (status != PYMQ_OK)
            return status;
        pymq_marks_committed(log->marks, end);
        if (end < entry->file->base + entry->file->size)
            break;
        pymq_store_pool_give_back(log->pool, entry->buffer);
        pymq_file_release(entry->file);
        log->pooled_count--;
        memmove(log->pooled, log->pooled + 1, (size_t)log->pooled_count * sizeof *log->pooled);
    }
    return PYMQ_OK;
}

int pymq_commit_log_commit(struct pymq_commit_log *log, int32_t least_pages) {
    if (log->pool == NULL)
        return PYMQ_OK;
    pthread_mutex_lock(&log->commit_lock);
    int64_t target = atomic_load_explicit(&log->marks->written, memory_order_acquire);
    int64_t committed = atomic_load(&log->marks->committed);
    int status = PYMQ_OK;
    bool boundary = target / log->config->log_file_size != committed / log->config->log_file_size;
    if (boundary || target / PYMQ_PAGE_SIZE - committed / PYMQ_PAGE_SIZE >= least_pages) {
        int64_t unpooled_end = log->pooled_count > 0 ? log->pooled[0].file->base : target;
        pymq_marks_committed(log->marks,
                             pymq_min64(target, unpooled_end)); /* written through a mapping: there already */
        status = commit_locked(log, target);
    }
    pthread_mutex_unlock(&log->commit_lock);
    return status;
}

int pymq_commit_log_flush_to(struct pymq_commit_log *log, int64_t target, struct pymq_error *error) {
    int64_t from = atomic_load(&log->marks->flushed);
    while (from < target) {
        struct pymq_file *file = pymq_mapped_queue_find(&log->files, from);
        if (file == NULL)
            return pymq_fail(error, PYMQ_EIO, 0, "%s: no file holds offset %" PRId64 " to flush", log->files.directory,
                             from);
        int64_t end = file->base + file->size;
        int code = file->fd < 0 ? EBADF : pymq_io->fdatasync(file->fd) == 0 ? 0 : errno;
        int64_t base = file->base;
        if (code == 0 && pymq_file_is_unlinked(file))
            code = ENOENT; /* durable, but in a file without a name: as good as lost */
        if (code == 0) {
            from = pymq_min64(end, target);
            pymq_marks_flushed(log->marks, from);
            if (target >= end)
                pymq_window_close_file(&log->cache, file);
        }
        pymq_file_release(file);
        if (code != 0)
            return pymq_fail(
                error, PYMQ_EFAILED, code,
                "%s/%020" PRId64 ": %s: %s; the store acknowledges nothing any more: repair the disk and open "
                "the store again (a retried fsync can report success for lost pages)",
                log->files.directory, base,
                code == ENOENT ? "removed by somebody else while in use" : "fdatasync failed", strerror(code));
    }
    return PYMQ_OK;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

int64_t pymq_commit_log_min(struct pymq_commit_log *log) {
    int64_t begin = pymq_mapped_queue_begin(&log->files);
    return begin >= 0 ? begin : atomic_load_explicit(&log->marks->written, memory_order_acquire);
}

int pymq_commit_log_pin(struct pymq_commit_log *log, int64_t offset, int64_t size, struct pymq_window **window,
                        const uint8_t **data) {
    int status = pymq_mapped_queue_pin(&log->files, offset, PYMQ_WINDOW_BOUNDED, window);
    if (status != PYMQ_OK)
        return status;
    int64_t at = offset % log->config->log_file_size;
    if (pymq_window_room(*window, at) < size) {
        pymq_window_unpin(*window);
        return PYMQ_ETOOBIG;
    }
    *data = pymq_window_at(*window, at);
    return PYMQ_OK;
}
