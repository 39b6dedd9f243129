/* The kernel's side of pymq_io, and the loops every caller would otherwise write again. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fallocate */
#endif
#include "pymq/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 0x01
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#define FALLOC_FL_PUNCH_HOLE 0x02
#endif
#ifndef FALLOC_FL_ZERO_RANGE
#define FALLOC_FL_ZERO_RANGE 0x10
#endif

#define ZERO_CHUNK_SIZE (64 * 1024)

static int kernel_open(const char *path, int flags, mode_t mode) { return open(path, flags | O_CLOEXEC, mode); }

static int kernel_fallocate(int fd, off_t offset, off_t size) { return posix_fallocate(fd, offset, size); }

static int kernel_zero_range(int fd, off_t offset, off_t size) {
    return fallocate(fd, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, offset, size) == 0 ? 0 : errno;
}

static int kernel_punch_hole(int fd, off_t offset, off_t size) {
    return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, size) == 0 ? 0 : errno;
}

static void *kernel_mmap(size_t size, int protection, int fd, off_t offset) {
    return mmap(NULL, size, protection, MAP_SHARED, fd, offset);
}

const struct pymq_io pymq_io_kernel = {
    .open = kernel_open,
    .close = close,
    .ftruncate = ftruncate,
    .fallocate = kernel_fallocate,
    .zero_range = kernel_zero_range,
    .punch_hole = kernel_punch_hole,
    .pread = pread,
    .pwrite = pwrite,
    .fdatasync = fdatasync,
    .fsync = fsync,
    .unlink = unlink,
    .rename = rename,
    .mkdir = mkdir,
    .rmdir = rmdir,
    .mmap = kernel_mmap,
    .munmap = munmap,
    .madvise = madvise,
    .mlock = mlock,
    .munlock = munlock,
};

const struct pymq_io *pymq_io = &pymq_io_kernel;

void pymq_io_use(const struct pymq_io *io) { pymq_io = io != NULL ? io : &pymq_io_kernel; }

int pymq_io_status(int sys_errno) {
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
        return PYMQ_ENOSPC;
    case ENOMEM:
        return PYMQ_ENOMEM;
    default:
        return PYMQ_EIO;
    }
}

ssize_t pymq_io_pread_full(int fd, void *target, size_t size, int64_t offset) {
    size_t done = 0;
    while (done < size) {
        ssize_t got = pymq_io->pread(fd, (uint8_t *)target + done, size - done, offset + (int64_t)done);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return PYMQ_EIO;
        }
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int pymq_io_pwrite_full(int fd, const void *source, size_t size, int64_t offset) {
    size_t done = 0;
    while (done < size) {
        ssize_t put = pymq_io->pwrite(fd, (const uint8_t *)source + done, size - done, offset + (int64_t)done);
        if (put < 0) {
            if (errno == EINTR)
                continue;
            return pymq_io_status(errno);
        }
        if (put == 0) { /* no progress and no reason: treat as a full device rather than spin */
            errno = ENOSPC;
            return PYMQ_ENOSPC;
        }
        done += (size_t)put;
    }
    return PYMQ_OK;
}

int pymq_io_sync_directory(const char *path) {
    int fd = pymq_io->open(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return PYMQ_EIO;
    int status = pymq_io->fsync(fd) == 0 ? PYMQ_OK : PYMQ_EIO;
    int saved = errno;
    pymq_io->close(fd);
    errno = saved;
    return status;
}

int pymq_io_sync_parent(const char *path) {
    char parent[PYMQ_PATH_MAX];
    memcpy(parent, path, strlen(path) + 1);
    char *slash = strrchr(parent, '/');
    if (slash == parent)
        slash[1] = '\0';
    else if (slash != NULL)
        *slash = '\0';
    return pymq_io_sync_directory(slash != NULL ? parent : ".");
}

int pymq_io_make_directories(const char *path, bool sync) {
    char partial[PYMQ_PATH_MAX];
    size_t size = strlen(path);
    if (size == 0 || size >= sizeof partial) {
        errno = ENAMETOOLONG;
        return PYMQ_EIO;
    }
    memcpy(partial, path, size + 1);
    for (size_t i = 1; i <= size; i++) {
        if (partial[i] != '/' && partial[i] != '\0')
            continue;
        char kept = partial[i];
        partial[i] = '\0';
        int code = pymq_io->mkdir(partial, 0755) == 0 ? 0 : errno;
        if (code != 0 && code != EEXIST) {
            errno = code;
            return pymq_io_status(code);
        }
        if (code == 0 && sync && pymq_io_sync_parent(partial) != PYMQ_OK)
            return PYMQ_EIO;
        partial[i] = kept;
    }
    struct stat found;
    if (stat(path, &found) != 0)
        return PYMQ_EIO;
    if (!S_ISDIR(found.st_mode)) {
        errno = ENOTDIR;
        return PYMQ_EIO;
    }
    return PYMQ_OK;
}

int pymq_io_zero(int fd, int64_t offset, int64_t size) {
    static const uint8_t zeros[ZERO_CHUNK_SIZE];
    if (size <= 0)
        return PYMQ_OK;
    int code = pymq_io->zero_range(fd, offset, size);
    if (code == 0)
        return PYMQ_OK;
    if (code != EOPNOTSUPP && code != ENOSYS && code != EINVAL) {
        errno = code;
        return pymq_io_status(code);
    }
    while (size > 0) {
        size_t step = (size_t)pymq_min64(size, ZERO_CHUNK_SIZE);
        int status = pymq_io_pwrite_full(fd, zeros, step, offset);
        if (status != PYMQ_OK)
            return status;
        offset += (int64_t)step;
        size -= (int64_t)step;
    }
    return PYMQ_OK;
}

int pymq_io_punch(int fd, int64_t offset, int64_t size) {
    if (size <= 0)
        return PYMQ_OK;
    int code = (pymq_io->punch_hole != NULL ? pymq_io->punch_hole : kernel_punch_hole)(fd, offset, size);
    if (code == EOPNOTSUPP || code == ENOSYS)
        return pymq_io_zero(fd, offset, size);
    errno = code;
    return code == 0 ? PYMQ_OK : pymq_io_status(code);
}
