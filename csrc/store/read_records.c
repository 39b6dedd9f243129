/* Reading many records at once, and asking whether that would wait for the disk. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "pymq/io.h"
#include "store_internal.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14; an older kernel refuses it, then the pages are touched */
#endif

#define PROBE_PAGES 256 /* asked about in one call */

/* ---- records -------------------------------------------------------------------------------------------------- */

struct reading {
    struct pymq_store *store;
    struct pymq_span *spans;
    size_t span_count, span_max;
    struct pymq_window *window; /* pinned, or NULL */
    size_t window_spans;        /* of `spans` that lie in it */
    int64_t window_begin, window_end; /* physical offsets */
};

/* Done with the window: its last span takes the pin over. */
static void leave_window(struct reading *reading) {
    if (reading->window == NULL)
        return;
    if (reading->window_spans > 0)
        reading->spans[reading->span_count - 1].owner = reading->window;
    else
        pymq_window_unpin(reading->window);
    reading->window = NULL;
    reading->window_spans = 0;
}

static int enter_window(struct reading *reading, int64_t offset) {
    struct pymq_store *store = reading->store;
    leave_window(reading);
    int status = pymq_mapped_queue_pin(&store->log.files, offset, PYMQ_WINDOW_BOUNDED, &reading->window);
    if (status != PYMQ_OK) {
        reading->window = NULL;
        return status;
    }
    int64_t file_begin = offset - offset % store->config.log_file_size;
    reading->window_begin = file_begin + reading->window->position;
    reading->window_end = reading->window_begin + (int64_t)reading->window->size;
    return PYMQ_OK;
}

static bool is_record(const uint8_t *data, int32_t size) {
    uint32_t magic = pymq_load_be32(data + 4);
    return pymq_load_be32(data) == (uint32_t)size && (magic == PYMQ_RECORD_MAGIC_V1 || magic == PYMQ_RECORD_MAGIC_V2);
}

/* One record by itself: crossing windows, or while all windows are pinned. */
static int read_alone(struct reading *reading, const struct pymq_cq_unit *unit) {
    leave_window(reading);
    if (reading->span_count == reading->span_max)
        return PYMQ_ETRUNCATED;
    int status = pymq_store_record(reading->store, unit->physical_offset, (uint32_t)unit->size,
                                   &reading->spans[reading->span_count]);
    reading->span_count += status == PYMQ_OK;
    return status;
}

/* PYMQ_ETRUNCATED: no span is left. */
static int read_one(struct reading *reading, const struct pymq_cq_unit *unit) {
    int64_t offset = unit->physical_offset, end = offset + unit->size;
    if (reading->window == NULL || offset < reading->window_begin || end > reading->window_end) {
        int status = enter_window(reading, offset);
        if (status != PYMQ_OK && status != PYMQ_EMAPS)
            return status;
        if (status == PYMQ_EMAPS || end > reading->window_end)
            return read_alone(reading, unit);
    }
    const uint8_t *data = reading->window->data + (offset - reading->window_begin);
    if (unit->size < PYMQ_RECORD_SIZE_MIN || !is_record(data, unit->size))
        return PYMQ_ECORRUPT;
    struct pymq_span *last = reading->window_spans > 0 ? &reading->spans[reading->span_count - 1] : NULL;
    if (last != NULL && last->data + last->size == data) {
        last->size += (uint32_t)unit->size; /* at most a window and its overlap: far below 4 GiB */
        return PYMQ_OK;
    }
    if (reading->span_count == reading->span_max)
        return PYMQ_ETRUNCATED;
    reading->spans[reading->span_count++] = (struct pymq_span){data, (uint32_t)unit->size, NULL};
    reading->window_spans++;
    return PYMQ_OK;
}

size_t pymq_store_records(struct pymq_store *store, const struct pymq_cq_unit *units, size_t count,
                          struct pymq_span *spans, size_t span_max, size_t *span_count, int *status) {
    struct reading reading = {.store = store, .spans = spans, .span_max = span_max};
    int64_t visible = atomic_load_explicit(&store->marks.visible, memory_order_acquire), bytes = 0;
    size_t done = 0;
    *status = PYMQ_OK;
    for (; done < count; done++) {
        const struct pymq_cq_unit *unit = &units[done];
        *status = unit->physical_offset >= 0 && unit->size > 0 && unit->physical_offset + unit->size <= visible
                      ? read_one(&reading, unit)
                      : PYMQ_ENOTFOUND;
        if (*status != PYMQ_OK)
            break;
        bytes += unit->size;
    }
    leave_window(&reading);
    *span_count = reading.span_count;
    if (*status == PYMQ_ETRUNCATED)
        *status = PYMQ_OK;
    atomic_fetch_add_explicit(&store->stats.get_count, (int64_t)done, memory_order_relaxed);
    atomic_fetch_add_explicit(&store->stats.get_bytes, bytes, memory_order_relaxed);
    if (*status != PYMQ_OK)
        atomic_fetch_add_explicit(&store->stats.get_missed, 1, memory_order_relaxed);
    return done;
}

/* ---- residency ------------------------------------------------------------------------------------------------ */

/* Do `visit` with every piece of [offset, + size) that lies in one window, until it says no. */
static bool for_pieces(struct pymq_mapped_queue *files, int64_t offset, int64_t size,
                       bool (*visit)(uint8_t *data, size_t size)) {
    int64_t end = offset + size;
    bool going = true;
    while (going && offset < end) {
        struct pymq_window *window;
        if (pymq_mapped_queue_pin(files, offset, PYMQ_WINDOW_BOUNDED, &window) != PYMQ_OK)
            break; /* gone, or no window free: then reading copies */
        int64_t at = offset % files->file_size;
        int64_t step = pymq_min64(end - offset, pymq_window_room(window, at));
        going = visit(pymq_window_at(window, at), (size_t)step);
        pymq_window_unpin(window);
        offset += step;
    }
    return going;
}

static bool piece_is_resident(uint8_t *data, size_t size) {
    uintptr_t begin = (uintptr_t)data & ~(uintptr_t)(PYMQ_PAGE_SIZE - 1), end = (uintptr_t)data + size;
    while (begin < end) {
        unsigned char pages[PROBE_PAGES];
        size_t count = (end - begin + PYMQ_PAGE_SIZE - 1) / PYMQ_PAGE_SIZE;
        count = count < PROBE_PAGES ? count : PROBE_PAGES;
        if (mincore((void *)begin, count * PYMQ_PAGE_SIZE, pages) != 0)
            return true; /* the kernel does not tell */
        for (size_t i = 0; i < count; i++) {
            if ((pages[i] & 1) == 0)
                return false;
        }
        begin += count * PYMQ_PAGE_SIZE;
    }
    return true;
}

bool pymq_store_is_resident(struct pymq_store *store, int64_t physical_offset, int64_t size) {
    return for_pieces(&store->log.files, physical_offset, size, piece_is_resident);
}

bool pymq_queue_is_resident(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, int64_t count) {
    (void)store;
    return for_pieces(&queue->files, offset * PYMQ_CQ_UNIT_SIZE, count * PYMQ_CQ_UNIT_SIZE, piece_is_resident);
}

static bool load_piece(uint8_t *data, size_t size) {
    uintptr_t begin = (uintptr_t)data & ~(uintptr_t)(PYMQ_PAGE_SIZE - 1), end = (uintptr_t)data + size;
    if (madvise((void *)begin, end - begin, MADV_POPULATE_READ) == 0 || errno != EINVAL)
        return true; /* a page that cannot be read is met again by its reader */
    for (uintptr_t page = begin; page < end; page += PYMQ_PAGE_SIZE)
        (void)*(volatile const uint8_t *)page;
    return true;
}

static bool want_piece(uint8_t *data, size_t size) {
    uintptr_t begin = (uintptr_t)data & ~(uintptr_t)(PYMQ_PAGE_SIZE - 1);
    madvise((void *)begin, (uintptr_t)data + size - begin, MADV_WILLNEED);
    return true;
}

void pymq_store_load(struct pymq_store *store, int64_t physical_offset, int64_t size, int64_t ahead) {
    int64_t end = physical_offset + size;
    int64_t visible = atomic_load_explicit(&store->marks.visible, memory_order_acquire);
    for_pieces(&store->log.files, end, pymq_min64(ahead, visible - end), want_piece);
    for_pieces(&store->log.files, physical_offset, size, load_piece);
}

void pymq_queue_load(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, int64_t count) {
    (void)store;
    for_pieces(&queue->files, offset * PYMQ_CQ_UNIT_SIZE, count * PYMQ_CQ_UNIT_SIZE, load_piece);
}
