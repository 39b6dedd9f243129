/* See allocator.h. One thread, one mutex. Work in order of urgency: a file somebody waits for, pages ahead of the
 * write position, the next file once the active one is half full. */
#include "allocator.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "commit_log.h"
#include "pymq/io.h"
#include "thread.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PREFAULT_CHUNK_SIZE (1024 * 1024)
#define WARM_CHUNK_SIZE (1024 * 1024)

struct pymq_allocator {
    struct pymq_commit_log *log;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t done;
    bool stop;
    int64_t wanted_base; /* -1: nothing to make */
    bool making;
    int make_status;
    bool is_slow; /* somebody waited in vain, and no file has been made in time since: nobody with a bound waits */
    struct pymq_new_file ready; /* ready.file == NULL: none */
    bool ready_prefaulted;
    int64_t entered_base; /* of the file the writer is in: its successor is the only one to make ahead */
    int64_t position;     /* the writer's, as last told */
    int64_t prefaulted;   /* pages below are faulted in */
    /* Read without the lock by every append: positions from which on there is something to do. */
    _Atomic int64_t prefault_trigger;
    _Atomic int64_t file_trigger;
    bool prefault_works;
};

/* ---- on the thread ------------------------------------------------------------------------------------------- */

static void prefault_range(struct pymq_allocator *allocator, struct pymq_file *file, int64_t begin, int64_t end) {
    struct pymq_window_cache *cache = &allocator->log->cache;
    while (begin < end && allocator->prefault_works) {
        struct pymq_window *window;
        if (pymq_window_pin(cache, file, begin, PYMQ_WINDOW_REQUIRED, &window) != PYMQ_OK)
            return;
        int64_t stop = pymq_min64(end, window->position + cache->window_size);
        while (begin < stop && allocator->prefault_works) {
            int64_t first = begin & ~(int64_t)(PYMQ_PAGE_SIZE - 1);
            int64_t last = pymq_min64(pymq_round_up(pymq_min64(begin + PREFAULT_CHUNK_SIZE, stop), PYMQ_PAGE_SIZE),
                                      window->position + (int64_t)window->size);
            if (pymq_io->madvise(pymq_window_at(window, first), (size_t)(last - first), MADV_POPULATE_WRITE) != 0 &&
                errno == EINVAL)
                allocator->prefault_works = false; /* an older kernel: the writer takes its faults itself */
            begin = pymq_max64(last, begin + 1);
        }
        pymq_window_unpin(window);
    }
}

/* Write zeros over the whole file, so that its extents are written ones and a later fdatasync has less to do. */
static int warm(struct pymq_file *file) {
    uint8_t *zeros = calloc(1, WARM_CHUNK_SIZE);
    if (zeros == NULL)
        return PYMQ_ENOMEM;
    int status = PYMQ_OK;
    for (int64_t at = 0; at < file->size && status == PYMQ_OK; at += WARM_CHUNK_SIZE)
        status = pymq_io_pwrite_full(file->fd, zeros, (size_t)pymq_min64(WARM_CHUNK_SIZE, file->size - at), at);
    free(zeros);
    return status;
}

static int make_file(struct pymq_allocator *allocator, int64_t base, struct pymq_new_file *made) {
    struct pymq_commit_log *log = allocator->log;
    uint8_t *buffer = NULL;
    if (log->pool != NULL) {
        buffer = pymq_store_pool_borrow(log->pool);
        if (buffer == NULL)
            return PYMQ_EPOOL;
    }
    struct pymq_file *file;
    int64_t size = log->config->log_file_size;
    int status = pymq_file_create(log->files.directory, base, size, size, true, &file);
    if (status == PYMQ_EFAILED) { /* nothing was lost with it, but a disk that cannot sync keeps no promise */
        struct pymq_error error;
        int code = errno;
        pymq_fail(&error, PYMQ_EFAILED, code,
                  "%s/%020" PRId64 ": a new file cannot be synced: %s; the store acknowledges "
                  "nothing any more: repair the disk and open the store again",
                  log->files.directory, base, strerror(code));
        pymq_marks_fail(log->marks, &error);
    }
    if (status == PYMQ_OK && log->config->warm_file_enable) {
        status = warm(file);
        if (status != PYMQ_OK) {
            char path[PYMQ_PATH_MAX];
            if (pymq_file_path(log->files.directory, base, path, sizeof path) == PYMQ_OK)
                pymq_io->unlink(path);
            pymq_file_release(file);
        }
    }
    if (status != PYMQ_OK) {
        if (buffer != NULL)
            pymq_store_pool_give_back(log->pool, buffer);
        return status;
    }
    *made = (struct pymq_new_file){file, buffer};
    return PYMQ_OK;
}

/* Under the lock; gives it up meanwhile. */
static void make_wanted(struct pymq_allocator *allocator) {
    int64_t base = allocator->wanted_base;
    allocator->making = true;
    pthread_mutex_unlock(&allocator->lock);
    struct pymq_new_file made = {NULL, NULL};
    int64_t begin_ns = pymq_monotonic_ns();
    int status = make_file(allocator, base, &made);
    pthread_mutex_lock(&allocator->lock);
    if (pymq_monotonic_ns() - begin_ns < PYMQ_APPEND_WAIT_MS_MAX * 1000000LL)
        allocator->is_slow = false;
    allocator->making = false;
    allocator->make_status = status;
    allocator->ready = made;
    allocator->ready_prefaulted = false;
    allocator->wanted_base = -1;
    pthread_cond_broadcast(&allocator->done);
    if (made.file == NULL || made.buffer != NULL)
        return;
    /* Whoever waited has it already; its first pages come now, while it is not needed yet. */
    pymq_file_retain(made.file);
    pthread_mutex_unlock(&allocator->lock);
    prefault_range(allocator, made.file, 0, pymq_min64(allocator->log->config->prefault_size, made.file->size));
    pthread_mutex_lock(&allocator->lock);
    allocator->ready_prefaulted = allocator->ready.file == made.file;
    pymq_file_release(made.file);
}

static void prefault_ahead(struct pymq_allocator *allocator) {
    struct pymq_commit_log *log = allocator->log;
    int64_t position = allocator->position;
    int64_t begin = pymq_max64(allocator->prefaulted, position);
    int64_t end = position + log->config->prefault_size;
    pthread_mutex_unlock(&allocator->lock);
    struct pymq_file *file = pymq_mapped_queue_find(&log->files, begin);
    if (file != NULL) {
        end = pymq_min64(end, file->base + file->size);
        prefault_range(allocator, file, begin - file->base, end - file->base);
        pymq_file_release(file);
    }
    pthread_mutex_lock(&allocator->lock);
    allocator->prefaulted = end;
    atomic_store_explicit(&allocator->prefault_trigger, end - log->config->prefault_size / 2, memory_order_relaxed);
}

static bool prefault_is_due(struct pymq_allocator *allocator) {
    struct pymq_commit_log *log = allocator->log;
    if (log->pool != NULL || log->config->prefault_size <= 0 || !allocator->prefault_works)
        return false;
    return allocator->position > atomic_load_explicit(&allocator->prefault_trigger, memory_order_relaxed);
}

static void *run(void *context) {
    struct pymq_allocator *allocator = context;
    pthread_mutex_lock(&allocator->lock);
    while (!allocator->stop) {
        if (allocator->wanted_base >= 0 && allocator->ready.file == NULL)
            make_wanted(allocator);
        else if (prefault_is_due(allocator))
            prefault_ahead(allocator);
        else
            pthread_cond_wait(&allocator->work, &allocator->lock);
    }
    pthread_cond_broadcast(&allocator->done);
    pthread_mutex_unlock(&allocator->lock);
    return NULL;
}

/* ---- for others ---------------------------------------------------------------------------------------------- */

struct pymq_allocator *pymq_allocator_start(struct pymq_commit_log *log) {
    struct pymq_allocator *allocator = calloc(1, sizeof *allocator);
    if (allocator == NULL)
        return NULL;
    allocator->log = log;
    allocator->wanted_base = log->active == NULL ? log->position : -1; /* the first append should not wait for it */
    allocator->prefault_works = true;
    allocator->position = log->position;
    allocator->prefaulted = log->position;
    atomic_init(&allocator->prefault_trigger, log->active != NULL ? log->position - 1 : INT64_MAX);
    allocator->entered_base = log->active != NULL ? log->active->base : log->position;
    atomic_init(&allocator->file_trigger,
                log->active != NULL ? log->active->base + log->config->log_file_size / 2 : INT64_MAX);
    pthread_mutex_init(&allocator->lock, NULL);
    pthread_cond_init(&allocator->work, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&allocator->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pymq_thread_start(&allocator->thread, "pymq-allocator", run, allocator) != 0) {
        free(allocator);
        return NULL;
    }
    return allocator;
}

static void drop_ready(struct pymq_allocator *allocator) {
    struct pymq_commit_log *log = allocator->log;
    struct pymq_new_file *ready = &allocator->ready;
    if (ready->buffer != NULL)
        pymq_store_pool_give_back(log->pool, ready->buffer);
    pymq_window_forget(&log->cache, ready->file);
    pymq_file_release(ready->file);
    *ready = (struct pymq_new_file){NULL, NULL};
}

void pymq_allocator_stop(struct pymq_allocator *allocator, bool abandon) {
    if (allocator == NULL)
        return;
    pthread_mutex_lock(&allocator->lock);
    allocator->stop = true;
    pthread_cond_signal(&allocator->work);
    pthread_mutex_unlock(&allocator->lock);
    pthread_join(allocator->thread, NULL);
    struct pymq_new_file *ready = &allocator->ready;
    if (ready->file != NULL) {
        char path[PYMQ_PATH_MAX];
        struct pymq_commit_log *log = allocator->log;
        if (!abandon && pymq_file_path(log->files.directory, ready->file->base, path, sizeof path) == PYMQ_OK)
            pymq_io->unlink(path);
        drop_ready(allocator);
    }
    pthread_mutex_destroy(&allocator->lock);
    pthread_cond_destroy(&allocator->work);
    pthread_cond_destroy(&allocator->done);
    free(allocator);
}

/* Wait until something is done. False when the time is over. */
static bool wait_done(struct pymq_allocator *allocator, int64_t deadline_ns) {
    if (deadline_ns == INT64_MAX)
        return pthread_cond_wait(&allocator->done, &allocator->lock) == 0;
    struct timespec deadline = {.tv_sec = deadline_ns / 1000000000, .tv_nsec = deadline_ns % 1000000000};
    return pthread_cond_timedwait(&allocator->done, &allocator->lock, &deadline) == 0;
}

/* Wait until nothing is being made; with `wanted` until that has been made too. */
static bool wait_made(struct pymq_allocator *allocator, bool wanted, int64_t deadline_ns) {
    while (allocator->making || (wanted && allocator->wanted_base >= 0 && !allocator->stop)) {
        if (!wait_done(allocator, deadline_ns))
            return false;
    }
    return true;
}

/* It is made all the same, for whoever comes next. */
static int give_up_locked(struct pymq_allocator *allocator) {
    allocator->is_slow = true;
    pthread_mutex_unlock(&allocator->lock);
    return PYMQ_EPOOL;
}

int pymq_allocator_take(struct pymq_allocator *allocator, int64_t base, int64_t wait_ms, struct pymq_new_file *taken) {
    pthread_mutex_lock(&allocator->lock);
    /* The caller has the append lock: one wait is as long as everybody waits. A second one, by the next turn of a
     * reactor or for the next file of the same disk, would add to it, and so on for as long as the disk is slow. */
    int64_t deadline_ns = INT64_MAX;
    if (wait_ms >= 0)
        deadline_ns = allocator->is_slow ? 0 : pymq_monotonic_ns() + wait_ms * 1000000;
    if (!wait_made(allocator, false, deadline_ns))
        return give_up_locked(allocator);
    if (allocator->ready.file != NULL && pymq_file_is_unlinked(allocator->ready.file))
        drop_ready(allocator);
    if (allocator->ready.file == NULL && !allocator->stop) {
        allocator->wanted_base = base;
        pthread_cond_signal(&allocator->work);
        if (!wait_made(allocator, true, deadline_ns))
            return give_up_locked(allocator);
    }
    int status = allocator->make_status;
    if (allocator->ready.file != NULL) {
        *taken = allocator->ready;
        allocator->entered_base = base;
        atomic_store_explicit(&allocator->file_trigger, base + allocator->log->config->log_file_size / 2,
                              memory_order_relaxed);
        allocator->ready = (struct pymq_new_file){NULL, NULL};
        status = PYMQ_OK;
        int64_t prefaulted = allocator->ready_prefaulted ? allocator->log->config->prefault_size : 0;
        allocator->position = base;
        allocator->prefaulted = base + prefaulted;
        atomic_store_explicit(&allocator->prefault_trigger, base + prefaulted / 2, memory_order_relaxed);
    } else if (allocator->stop) {
        status = PYMQ_ECLOSED;
    }
    pthread_mutex_unlock(&allocator->lock);
    return status;
}

void pymq_allocator_advance(struct pymq_allocator *allocator, int64_t position) {
    if (position <= atomic_load_explicit(&allocator->file_trigger, memory_order_relaxed) &&
        position <= atomic_load_explicit(&allocator->prefault_trigger, memory_order_relaxed))
        return;
    pthread_mutex_lock(&allocator->lock);
    allocator->position = pymq_max64(allocator->position, position);
    if (position > atomic_load_explicit(&allocator->file_trigger, memory_order_relaxed)) {
        if (allocator->ready.file == NULL && allocator->wanted_base < 0 && !allocator->making)
            allocator->wanted_base = allocator->entered_base + allocator->log->config->log_file_size;
        atomic_store_explicit(&allocator->file_trigger, INT64_MAX, memory_order_relaxed); /* until it is taken */
    }
    pthread_cond_signal(&allocator->work);
    pthread_mutex_unlock(&allocator->lock);
}
