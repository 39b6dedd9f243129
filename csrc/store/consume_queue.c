/* One consume queue: writing units, flushing them, moving the minimum, dropping files. Finding where a queue ends
 * after a stop is in consume_queue_recover.c. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>

#include "pymq/io.h"
#include "queue.h"

/* Blocks are allocated this far ahead of the write position, less for young files: ten thousand idle queues should
 * not hold hundreds of megabytes. */
#define ALLOCATE_STEP_MAX (64 * 1024)

static int64_t allocate_step(int64_t position) {
    return pymq_max64(PYMQ_PAGE_SIZE, pymq_min64(position, ALLOCATE_STEP_MAX));
}

/* The file that holds byte `position`, made when it is the next one. */
static int file_for(struct pymq_queue *queue, int64_t position, struct pymq_file **file) {
    *file = pymq_mapped_queue_find(&queue->files, position);
    if (*file != NULL)
        return PYMQ_OK;
    struct pymq_mapped_queue *files = &queue->files;
    int64_t base = position / files->file_size * files->file_size;
    int status = pymq_file_create(files->directory, base, files->file_size,
                                  PYMQ_PAGE_SIZE < files->file_size ? PYMQ_PAGE_SIZE : files->file_size, false, file);
    if (status != PYMQ_OK)
        return status;
    pymq_file_close(*file); /* idle queue files hold no descriptor */
    pymq_file_retain(*file);
    status = pymq_mapped_queue_add(files, *file);
    if (status != PYMQ_OK) {
        pymq_file_release(*file);
        pymq_file_release(*file);
    }
    return status;
}

static int write_unit(struct pymq_queue *queue, int64_t position, int64_t physical_offset, int32_t size,
                      int64_t tags_code) {
    struct pymq_file *file;
    int status = file_for(queue, position, &file);
    if (status != PYMQ_OK)
        return status;
    int64_t at = position - file->base;
    status = pymq_file_allocate(file, at + PYMQ_CQ_UNIT_SIZE, allocate_step(at));
    struct pymq_window *window;
    if (status == PYMQ_OK)
        status = pymq_window_pin(queue->files.cache, file, at, PYMQ_WINDOW_REQUIRED, &window);
    if (status == PYMQ_OK) {
        pymq_cq_encode(pymq_window_at(window, at), physical_offset, size, tags_code);
        pymq_window_unpin(window);
    }
    pymq_file_release(file);
    return status;
}

static void publish(struct pymq_queue *queue, int64_t position) {
    atomic_store_explicit(&queue->max_position, position, memory_order_release);
    atomic_store_explicit(&queue->dirty, true, memory_order_release);
}

/* Fill [from, to) with filler units, so that a unit's place always follows from its queue offset. */
static int fill(struct pymq_queue *queue, int64_t from, int64_t to) {
    for (int64_t position = from; position < to; position += PYMQ_CQ_UNIT_SIZE) {
        int status = write_unit(queue, position, 0, PYMQ_CQ_BLANK_RECORD_SIZE, 0);
        if (status != PYMQ_OK)
            return status;
    }
    return PYMQ_OK;
}

/* The queue's first unit is not number 0: its log before is gone. Start in the file where it belongs. */
static int start_at(struct pymq_queue *queue, int64_t position) {
    int64_t base = position / queue->files.file_size * queue->files.file_size;
    int status = fill(queue, base, position);
    if (status != PYMQ_OK)
        return status;
    atomic_store(&queue->min_position, position);
    atomic_store(&queue->flushed_position, base);
    publish(queue, position);
    return PYMQ_OK;
}

int pymq_queue_put(struct pymq_queue *queue, int64_t physical_offset, int32_t size, int64_t tags_code,
                   int64_t queue_offset, enum pymq_skip skip) {
    if (queue_offset < 0 || queue_offset > INT64_MAX / PYMQ_CQ_UNIT_SIZE - queue->files.file_size)
        return PYMQ_ECORRUPT;
    int64_t position = queue_offset * PYMQ_CQ_UNIT_SIZE;
    int64_t current = atomic_load_explicit(&queue->max_position, memory_order_relaxed);
    if (physical_offset + size <= queue->max_physical || position < current)
        return PYMQ_OK;
    int status = PYMQ_OK;
    if (position > current) {
        /* Differs from Apache, which would write the unit in the wrong place and log a bug: a gap is filled. */
        bool empty = pymq_mapped_queue_count(&queue->files) == 0;
        int64_t units = (position - current) / PYMQ_CQ_UNIT_SIZE;
        if (empty ? skip == PYMQ_SKIP_DAMAGED : skip != PYMQ_SKIP_FILLED || units > PYMQ_SKIP_UNITS_MAX)
            return PYMQ_ECORRUPT;
        status = empty ? start_at(queue, position) : fill(queue, current, position);
    }
    if (status == PYMQ_OK)
        status = write_unit(queue, position, physical_offset, size, tags_code);
    if (status != PYMQ_OK)
        return status;
    queue->max_physical = physical_offset + size;
    publish(queue, position + PYMQ_CQ_UNIT_SIZE);
    return PYMQ_OK;
}

int pymq_queue_unit(struct pymq_queue *queue, int64_t offset, struct pymq_cq_unit *unit) {
    int64_t position = offset * PYMQ_CQ_UNIT_SIZE;
    struct pymq_window *window;
    int status = pymq_mapped_queue_pin(&queue->files, position, PYMQ_WINDOW_REQUIRED, &window);
    if (status != PYMQ_OK)
        return status;
    pymq_cq_decode_one(pymq_window_at(window, position % queue->files.file_size), unit);
    pymq_window_unpin(window);
    return PYMQ_OK;
}

/* ---- flush and retention --------------------------------------------------------------------------------------- */

/* The queue's directory and, once per process, the topic's above it: units in a directory that a power cut forgets
 * would be as lost as unsynced ones. consumequeue/ itself is synced by the checkpoint. */
static int sync_directories(struct pymq_queue *queue) {
    if (pymq_io_sync_directory(queue->files.directory) != PYMQ_OK)
        return PYMQ_EFAILED;
    if (queue->directories_synced)
        return PYMQ_OK;
    char topic[PYMQ_PATH_MAX];
    memcpy(topic, queue->files.directory, strlen(queue->files.directory) + 1);
    *strrchr(topic, '/') = '\0';
    queue->directories_synced = pymq_io_sync_directory(topic) == PYMQ_OK;
    return queue->directories_synced ? PYMQ_OK : PYMQ_EFAILED;
}

int pymq_queue_flush(struct pymq_queue *queue) {
    atomic_store_explicit(&queue->dirty, false, memory_order_release); /* before the look: a later put sets it again */
    int64_t target = atomic_load_explicit(&queue->max_position, memory_order_acquire);
    int64_t from = atomic_load(&queue->flushed_position);
    if (queue->cut_unsynced) /* the file that was cut, even if its last unit is the one before the cut */
        from = pymq_min64(from, target - 1);
    int status = PYMQ_OK;
    bool new_file = false;
    for (int64_t at = from; at < target && status == PYMQ_OK;) {
        struct pymq_file *file = pymq_mapped_queue_find(&queue->files, at);
        if (file == NULL)
            break; /* removed by retention meanwhile */
        char path[PYMQ_PATH_MAX];
        int fd = pymq_file_path(queue->files.directory, file->base, path, sizeof path) == PYMQ_OK
                     ? pymq_io->open(path, O_RDWR, 0)
                     : -1;
        if (fd < 0) /* gone by retention is fine; gone otherwise is not */
            status = errno == ENOENT && pymq_mapped_queue_begin(&queue->files) > file->base ? PYMQ_OK : PYMQ_EIO;
        else if (pymq_io->fdatasync(fd) != 0)
            status = PYMQ_EFAILED;
        int saved = errno;
        if (fd >= 0)
            pymq_io->close(fd);
        errno = saved;
        new_file = new_file || at == file->base;
        at = file->base + file->size;
        pymq_file_release(file);
    }
    if (status == PYMQ_OK && (new_file || !queue->directories_synced))
        status = sync_directories(queue);
    if (status != PYMQ_OK) {
        atomic_store_explicit(&queue->dirty, true, memory_order_release);
        return status;
    }
    atomic_store(&queue->flushed_position, target);
    queue->cut_unsynced = false;
    return PYMQ_OK;
}

int pymq_queue_correct_min(struct pymq_queue *queue, int64_t physical_min) {
    int64_t begin = pymq_mapped_queue_begin(&queue->files);
    int64_t low = pymq_max64(atomic_load(&queue->min_position), begin) / PYMQ_CQ_UNIT_SIZE;
    int64_t high = atomic_load_explicit(&queue->max_position, memory_order_acquire) / PYMQ_CQ_UNIT_SIZE;
    if (begin < 0)
        return PYMQ_OK;
    while (low < high) { /* first unit that is neither filler nor below the log */
        int64_t middle = low + (high - low) / 2;
        struct pymq_cq_unit unit;
        int status = pymq_queue_unit(queue, middle, &unit);
        if (status != PYMQ_OK)
            return status;
        if (unit.size == PYMQ_CQ_BLANK_RECORD_SIZE || unit.physical_offset < physical_min)
            low = middle + 1;
        else
            high = middle;
    }
    atomic_store_explicit(&queue->min_position, low * PYMQ_CQ_UNIT_SIZE, memory_order_release);
    return PYMQ_OK;
}

ssize_t pymq_queue_remove_expired(struct pymq_queue *queue) {
    ssize_t removed = 0;
    int64_t min = atomic_load_explicit(&queue->min_position, memory_order_acquire);
    /* The file behind must have a durable unit: one that a power cut leaves empty says nothing, and the queue would
     * start at 0 again. */
    min = pymq_min64(min, atomic_load(&queue->flushed_position) - PYMQ_CQ_UNIT_SIZE);
    while (pymq_mapped_queue_count(&queue->files) > 1 &&
           pymq_mapped_queue_begin(&queue->files) + queue->files.file_size <= min) {
        int status = pymq_mapped_queue_remove_first(&queue->files);
        if (status != PYMQ_OK)
            return status;
        removed++;
    }
    return removed;
}
