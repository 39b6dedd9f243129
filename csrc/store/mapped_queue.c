/* See mapped_queue.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SEEK_DATA */
#endif
#include "mapped_queue.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pymq/io.h"

#define FILES_CAPACITY_MIN 4

int pymq_mapped_queue_init(struct pymq_mapped_queue *queue, const char *directory, int64_t file_size,
                           struct pymq_window_cache *cache) {
    memset(queue, 0, sizeof *queue);
    queue->directory = strdup(directory);
    if (queue->directory == NULL)
        return PYMQ_ENOMEM;
    queue->file_size = file_size;
    queue->cache = cache;
    pthread_mutex_init(&queue->lock, NULL);
    return PYMQ_OK;
}

void pymq_mapped_queue_destroy(struct pymq_mapped_queue *queue) {
    if (queue->directory == NULL)
        return;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct pymq_file *file = queue->files[queue->first + i];
        pymq_window_forget(queue->cache, file);
        pymq_file_release(file);
    }
    free(queue->files);
    free(queue->directory);
    queue->directory = NULL;
    pthread_mutex_destroy(&queue->lock);
}

int pymq_mapped_queue_add(struct pymq_mapped_queue *queue, struct pymq_file *file) {
    int status = PYMQ_OK;
    pthread_mutex_lock(&queue->lock);
    if (queue->first + queue->count == queue->capacity) {
        if (queue->first > 0) {
            memmove(queue->files, queue->files + queue->first, queue->count * sizeof *queue->files);
            queue->first = 0;
        } else {
            uint32_t capacity = queue->capacity > 0 ? queue->capacity * 2 : FILES_CAPACITY_MIN;
            struct pymq_file **files = realloc(queue->files, capacity * sizeof *files);
            if (files == NULL)
                status = PYMQ_ENOMEM;
            else {
                queue->files = files;
                queue->capacity = capacity;
            }
        }
    }
    assert(queue->count == 0 || file->base == queue->files[queue->first + queue->count - 1]->base + queue->file_size);
    if (status == PYMQ_OK)
        queue->files[queue->first + queue->count++] = file;
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* Under the lock. */
static struct pymq_file *find_locked(const struct pymq_mapped_queue *queue, int64_t offset) {
    if (queue->count == 0 || offset < queue->files[queue->first]->base)
        return NULL;
    int64_t index = (offset - queue->files[queue->first]->base) / queue->file_size;
    return index < (int64_t)queue->count ? queue->files[queue->first + (uint32_t)index] : NULL;
}

static struct pymq_file *retained(struct pymq_mapped_queue *queue, struct pymq_file *file) {
    if (file != NULL)
        pymq_file_retain(file);
    pthread_mutex_unlock(&queue->lock);
    return file;
}

struct pymq_file *pymq_mapped_queue_find(struct pymq_mapped_queue *queue, int64_t offset) {
    pthread_mutex_lock(&queue->lock);
    return retained(queue, find_locked(queue, offset));
}

struct pymq_file *pymq_mapped_queue_last(struct pymq_mapped_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    return retained(queue, queue->count > 0 ? queue->files[queue->first + queue->count - 1] : NULL);
}

uint32_t pymq_mapped_queue_count(struct pymq_mapped_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    uint32_t count = queue->count;
    pthread_mutex_unlock(&queue->lock);
    return count;
}

int pymq_mapped_queue_pin(struct pymq_mapped_queue *queue, int64_t offset, enum pymq_window_urgency urgency,
                          struct pymq_window **window) {
    pthread_mutex_lock(&queue->lock);
    struct pymq_file *file = find_locked(queue, offset);
    int status =
        file != NULL ? pymq_window_pin(queue->cache, file, offset - file->base, urgency, window) : PYMQ_ENOTFOUND;
    pthread_mutex_unlock(&queue->lock);
    return status;
}

int64_t pymq_mapped_queue_begin(struct pymq_mapped_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    int64_t begin = queue->count > 0 ? queue->files[queue->first]->base : -1;
    pthread_mutex_unlock(&queue->lock);
    return begin;
}

int64_t pymq_mapped_queue_end(struct pymq_mapped_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    int64_t end = queue->count > 0 ? queue->files[queue->first + queue->count - 1]->base + queue->file_size : 0;
    pthread_mutex_unlock(&queue->lock);
    return end;
}

/* Unlink the first or the last file and drop it from the list. */
static int unlist_at(struct pymq_mapped_queue *queue, bool front) {
    pthread_mutex_lock(&queue->lock);
    if (queue->count == 0) {
        pthread_mutex_unlock(&queue->lock);
        return PYMQ_ENOTFOUND;
    }
    struct pymq_file *file = queue->files[front ? queue->first : queue->first + queue->count - 1];
    char path[PYMQ_PATH_MAX];
    int status = pymq_file_path(queue->directory, file->base, path, sizeof path);
    if (status == PYMQ_OK && pymq_io->unlink(path) != 0 && errno != ENOENT)
        status = PYMQ_EIO;
    if (status == PYMQ_OK) {
        if (front)
            queue->first++;
        queue->count--;
        if (queue->count == 0)
            queue->first = 0;
    }
    pthread_mutex_unlock(&queue->lock);
    if (status != PYMQ_OK)
        return status;
    pymq_window_forget(queue->cache, file);
    pymq_file_release(file);
    return PYMQ_OK;
}

static int remove_at(struct pymq_mapped_queue *queue, bool front) {
    int status = unlist_at(queue, front);
    return status == PYMQ_OK ? pymq_io_sync_directory(queue->directory) : status;
}

int pymq_mapped_queue_remove_all(struct pymq_mapped_queue *queue) {
    int status;
    do
        status = unlist_at(queue, false);
    while (status == PYMQ_OK);
    return status == PYMQ_ENOTFOUND ? PYMQ_OK : status;
}

int pymq_mapped_queue_remove_first(struct pymq_mapped_queue *queue) { return remove_at(queue, true); }
int pymq_mapped_queue_remove_last(struct pymq_mapped_queue *queue) { return remove_at(queue, false); }

/* Whether everything from `position` on already reads as zeros: the rest of its page by reading, what lies behind by
 * asking for data extents. Saves a sync per queue when thousands are opened after a crash. */
static bool is_zero_from(int fd, int64_t position, int64_t size) {
    uint8_t page[PYMQ_PAGE_SIZE];
    int64_t page_end = pymq_min64(pymq_round_up(position + 1, PYMQ_PAGE_SIZE), size);
    ssize_t got = pymq_io_pread_full(fd, page, (size_t)(page_end - position), position);
    if (got != page_end - position)
        return false;
    for (ssize_t i = 0; i < got; i++) {
        if (page[i] != 0)
            return false;
    }
    return page_end == size || (lseek(fd, page_end, SEEK_DATA) < 0 && errno == ENXIO);
}

/* Zeros from `position` on. A log file keeps its blocks, since it is stored into without asking for them again, and is
 * synced, because records follow at once. A sparse one gives its blocks back, or ten thousand queues would grow to
 * their full size at their first recovery; its owner syncs it before a checkpoint vouches for it. */
static int clear_from(struct pymq_mapped_queue *queue, int fd, int64_t position, int64_t size) {
    if (queue->sparse)
        return pymq_io_punch(fd, position, size - position);
    int status = pymq_io_zero(fd, position, size - position);
    if (status == PYMQ_OK && pymq_io->fdatasync(fd) != 0)
        status = PYMQ_EIO;
    return status;
}

int pymq_mapped_queue_truncate(struct pymq_mapped_queue *queue, int64_t offset) {
    int status = PYMQ_OK;
    for (;;) {
        struct pymq_file *last = pymq_mapped_queue_last(queue);
        if (last == NULL)
            break;
        int64_t base = last->base;
        pymq_file_release(last);
        if (base < offset || pymq_mapped_queue_count(queue) == 1)
            break;
        status = pymq_mapped_queue_remove_last(queue);
        if (status != PYMQ_OK)
            return status;
    }
    struct pymq_file *last = pymq_mapped_queue_last(queue);
    if (last != NULL) {
        int64_t position = pymq_max64(offset - last->base, 0);
        if (position < last->size) {
            int fd = pymq_file_lend(last);
            if (fd < 0)
                status = PYMQ_EIO;
            else if (!is_zero_from(fd, position, last->size))
                status = clear_from(queue, fd, position, last->size);
            pymq_file_lend_end(last, fd);
        }
        pymq_file_release(last);
    }
    return status;
}

ssize_t pymq_mapped_queue_read(struct pymq_mapped_queue *queue, int64_t offset, void *target, size_t size) {
    size_t done = 0;
    while (done < size) {
        int64_t at = offset + (int64_t)done;
        struct pymq_file *file = pymq_mapped_queue_find(queue, at);
        if (file == NULL)
            break;
        char path[PYMQ_PATH_MAX];
        int fd = pymq_file_path(queue->directory, file->base, path, sizeof path) == PYMQ_OK
                     ? pymq_io->open(path, O_RDONLY, 0)
                     : -1;
        size_t step = (size_t)pymq_min64((int64_t)(size - done), file->base + file->size - at);
        ssize_t got = fd >= 0 ? pymq_io_pread_full(fd, (uint8_t *)target + done, step, at - file->base) : PYMQ_EIO;
        if (fd >= 0)
            pymq_io->close(fd);
        pymq_file_release(file);
        if (got < 0)
            return PYMQ_EIO;
        done += (size_t)got;
        if ((size_t)got < step)
            break;
    }
    return (ssize_t)done;
}

/* ---- loading ---------------------------------------------------------------------------------------------- */

static bool parse_name(const char *name, int64_t *base) {
    int64_t value = 0;
    for (int i = 0; i < PYMQ_FILE_NAME_SIZE; i++) {
        if (name[i] < '0' || name[i] > '9' || value > (INT64_MAX - 9) / 10)
            return false;
        value = value * 10 + (name[i] - '0');
    }
    *base = value;
    return name[PYMQ_FILE_NAME_SIZE] == '\0';
}

static int compare_bases(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

/* The bases found in the directory, ascending; caller frees. Count, or a failure (a missing directory counts 0). */
static ssize_t list_bases(const char *directory, int64_t **result) {
    *result = NULL;
    DIR *stream = opendir(directory);
    if (stream == NULL)
        return errno == ENOENT ? 0 : PYMQ_EIO;
    int64_t *bases = NULL;
    size_t count = 0, capacity = 0;
    struct dirent *entry;
    while ((entry = readdir(stream)) != NULL) {
        int64_t base;
        if (!parse_name(entry->d_name, &base))
            continue;
        if (count == capacity) {
            capacity = capacity > 0 ? capacity * 2 : 16;
            int64_t *grown = realloc(bases, capacity * sizeof *bases);
            if (grown == NULL) {
                free(bases);
                closedir(stream);
                return PYMQ_ENOMEM;
            }
            bases = grown;
        }
        bases[count++] = base;
    }
    closedir(stream);
    if (count > 1)
        qsort(bases, count, sizeof *bases, compare_bases);
    *result = bases;
    return (ssize_t)count;
}

static int mismatch(struct pymq_error *error, const char *path, int64_t found, int64_t expected, const char *setting) {
    return pymq_fail(error, PYMQ_EMISMATCH, 0,
                     "%s: file is %" PRId64 " bytes, but %s is %" PRId64
                     "; open the store with the size it was written with",
                     path, found, setting, expected);
}

/* A short file behind whole ones: a copy or a creation that was cut off. Its missing end reads as zeros. */
static int extend_short(const char *path, int64_t size) {
    int fd = pymq_io->open(path, O_RDWR, 0);
    if (fd < 0)
        return PYMQ_EIO;
    int code = pymq_io->ftruncate(fd, size) == 0 ? 0 : errno;
    int status = code == 0 ? PYMQ_OK : pymq_io_status(code);
    if (status == PYMQ_OK && pymq_io->fsync(fd) != 0)
        status = PYMQ_EIO;
    pymq_io->close(fd);
    return status;
}

/* Judge one file by its size: 1 to list it, 0 when it was removed, or a failure. */
static int check_size(struct pymq_mapped_queue *queue, const char *path, bool last, bool alone, const char *setting,
                      struct pymq_error *error) {
    struct stat found;
    if (stat(path, &found) != 0)
        return pymq_fail(error, PYMQ_EIO, errno, "%s: cannot be read: %s", path, strerror(errno));
    if (found.st_size == queue->file_size)
        return 1;
    if (last && found.st_size == 0) {
        if (pymq_io->unlink(path) != 0)
            return pymq_fail(error, PYMQ_EIO, errno, "%s: empty file cannot be removed: %s", path, strerror(errno));
        return 0;
    }
    bool empty = found.st_size == 0;
    if (!empty && (!last || alone || found.st_size > queue->file_size))
        return mismatch(error, path, found.st_size, queue->file_size, setting);
    int status = extend_short(path, queue->file_size);
    if (status != PYMQ_OK)
        return pymq_fail(error, status, errno, "%s: short file cannot be extended: %s", path, strerror(errno));
    return 1;
}

/* The files after a gap: remove them, newest first, so that another crash leaves no other gap. */
static int drop_from(struct pymq_mapped_queue *queue, const int64_t *bases, ssize_t first, ssize_t count,
                     struct pymq_error *error) {
    for (ssize_t i = count - 1; i >= first; i--) {
        char path[PYMQ_PATH_MAX];
        if (pymq_file_path(queue->directory, bases[i], path, sizeof path) != PYMQ_OK ||
            (pymq_io->unlink(path) != 0 && errno != ENOENT) || pymq_io_sync_directory(queue->directory) != PYMQ_OK)
            return pymq_fail(error, PYMQ_EIO, errno, "%s: file after a gap cannot be removed: %s", queue->directory,
                             strerror(errno));
    }
    return PYMQ_OK;
}

static int load_file(struct pymq_mapped_queue *queue, int64_t base, bool last, bool alone, const char *setting,
                     struct pymq_error *error) {
    char path[PYMQ_PATH_MAX];
    if (pymq_file_path(queue->directory, base, path, sizeof path) != PYMQ_OK)
        return pymq_fail(error, PYMQ_EINVAL, 0, "%s: path too long", queue->directory);
    int keep = check_size(queue, path, last, alone, setting, error);
    if (keep <= 0)
        return keep;
    struct pymq_file *file = pymq_file_new(queue->directory, base, queue->file_size);
    return file != NULL ? pymq_mapped_queue_add(queue, file) : PYMQ_ENOMEM;
}

int pymq_mapped_queue_load(struct pymq_mapped_queue *queue, const char *setting, enum pymq_gap gap,
                           struct pymq_error *error) {
    int64_t *bases = NULL;
    ssize_t count = list_bases(queue->directory, &bases);
    if (count < 0)
        return pymq_fail(error, (int)count, errno, "%s: cannot be listed: %s", queue->directory, strerror(errno));
    int status = PYMQ_OK;
    for (ssize_t i = 0; i < count && status == PYMQ_OK; i++) {
        bool follows = bases[i] % queue->file_size == 0 && (i == 0 || bases[i] == bases[i - 1] + queue->file_size);
        if (!follows && i > 0 && gap == PYMQ_GAP_DROPS) {
            status = drop_from(queue, bases, i, count, error);
            break;
        }
        status = follows ? load_file(queue, bases[i], i == count - 1, count == 1, setting, error)
                         : pymq_fail(error, PYMQ_EMISMATCH, 0,
                                     "%s/%020" PRId64 ": files do not follow each other in steps of %s (%" PRId64
                                     "): a file is missing, the size differs, or the log lies in several paths, which "
                                     "pymq does not read",
                                     queue->directory, bases[i], setting, queue->file_size);
    }
    free(bases);
    return status;
}
