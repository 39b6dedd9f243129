/* See mapped_file.h. */
#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pymq/io.h"

int pymq_file_path(const char *directory, int64_t base, char *path, size_t path_size) {
    int length = snprintf(path, path_size, "%s/%020" PRId64, directory, base);
    return length > 0 && (size_t)length < path_size ? PYMQ_OK : PYMQ_EINVAL;
}

struct pymq_file *pymq_file_new(const char *directory, int64_t base, int64_t size) {
    struct pymq_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->base = base;
    file->size = size;
    file->fd = -1;
    file->directory = directory;
    atomic_init(&file->references, 1);
    return file;
}

int pymq_file_create(const char *directory, int64_t base, int64_t size, int64_t allocate, bool sync_directory,
                     struct pymq_file **result) {
    char path[PYMQ_PATH_MAX];
    if (pymq_file_path(directory, base, path, sizeof path) != PYMQ_OK)
        return PYMQ_EINVAL;
    struct pymq_file *file = pymq_file_new(directory, base, size);
    if (file == NULL)
        return PYMQ_ENOMEM;
    file->fd = pymq_io->open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    if (file->fd < 0 && errno == ENOENT &&
        !sync_directory) { /* a queue's first file; the log's directory must be there */
        int made = pymq_io_make_directories(directory, false);
        if (made == PYMQ_OK)
            file->fd = pymq_io->open(path, O_RDWR | O_CREAT | O_EXCL, 0644);
    }
    if (file->fd < 0) {
        int status = pymq_io_status(errno);
        pymq_file_release(file);
        return status;
    }
    /* Size first, in one step, so that a crash leaves either an empty file or one of the right size. */
    int code = pymq_io->ftruncate(file->fd, size) == 0 ? 0 : errno;
    if (code == 0 && allocate > 0)
        code = pymq_io->fallocate(file->fd, 0, allocate);
    int status = code == 0 ? PYMQ_OK : pymq_io_status(code);
    if (status == PYMQ_OK && sync_directory) { /* its size before its name: what is listed has its size */
        bool synced = pymq_io->fsync(file->fd) == 0 && pymq_io_sync_directory(directory) == PYMQ_OK;
        code = synced ? 0 : errno;
        status = synced ? PYMQ_OK : PYMQ_EFAILED;
    }
    if (status != PYMQ_OK) {
        pymq_io->unlink(path);
        pymq_file_release(file);
        errno = code;
        return status;
    }
    file->allocated = allocate;
    *result = file;
    return PYMQ_OK;
}

int pymq_file_open(struct pymq_file *file) {
    if (file->fd >= 0)
        return PYMQ_OK;
    char path[PYMQ_PATH_MAX];
    if (pymq_file_path(file->directory, file->base, path, sizeof path) != PYMQ_OK)
        return PYMQ_EINVAL;
    file->fd = pymq_io->open(path, O_RDWR, 0);
    return file->fd >= 0 ? PYMQ_OK : PYMQ_EIO;
}

void pymq_file_close(struct pymq_file *file) {
    if (file->fd >= 0)
        pymq_io->close(file->fd);
    file->fd = -1;
}

int pymq_file_lend(struct pymq_file *file) {
    if (file->fd >= 0)
        return file->fd;
    char path[PYMQ_PATH_MAX];
    if (pymq_file_path(file->directory, file->base, path, sizeof path) != PYMQ_OK)
        return -1;
    return pymq_io->open(path, O_RDWR, 0);
}

void pymq_file_lend_end(struct pymq_file *file, int fd) {
    if (fd >= 0 && fd != file->fd)
        pymq_io->close(fd);
}

int pymq_file_allocate(struct pymq_file *file, int64_t end, int64_t step) {
    if (end <= file->allocated)
        return PYMQ_OK;
    int64_t target = pymq_min64(pymq_max64(end, file->allocated + step), file->size);
    int fd = pymq_file_lend(file);
    if (fd < 0)
        return PYMQ_EIO;
    int code = pymq_io->fallocate(fd, file->allocated, target - file->allocated);
    if (code != 0 && target > end) { /* not enough for the step ahead: what is needed now may still fit */
        target = end;
        code = pymq_io->fallocate(fd, file->allocated, target - file->allocated);
    }
    pymq_file_lend_end(file, fd);
    if (code != 0) {
        errno = code;
        return pymq_io_status(code);
    }
    file->allocated = target;
    return PYMQ_OK;
}

bool pymq_file_is_unlinked(const struct pymq_file *file) {
    struct stat found;
    return file->fd >= 0 && fstat(file->fd, &found) == 0 && found.st_nlink == 0;
}

void pymq_file_release(struct pymq_file *file) {
    if (atomic_fetch_sub_explicit(&file->references, 1, memory_order_acq_rel) != 1)
        return;
    pymq_file_close(file);
    free(file->windows);
    free(file);
}
