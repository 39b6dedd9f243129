/* Every system call the store makes on a file or a mapping, behind one table.
 *
 * In production the table is the kernel. Tests replace it (before any store is opened) to fail the n-th fsync, to
 * run out of space, or to record every write and barrier and rebuild the disk as a power cut might have left it.
 * Calls keep the kernel's contract: -1 and errno on failure, except `fallocate`, which returns an errno value.
 */
#ifndef PYMQ_IO_H
#define PYMQ_IO_H

#include "pymq/base.h"

struct pymq_io {
    int (*open)(const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    int (*ftruncate)(int fd, off_t size);
    int (*fallocate)(int fd, off_t offset, off_t size);  /* allocate blocks; like posix_fallocate, returns errno */
    int (*zero_range)(int fd, off_t offset, off_t size); /* read as zeros afterwards, blocks stay allocated; errno */
    int (*punch_hole)(int fd, off_t offset, off_t size); /* the same, blocks given back; NULL stands for the kernel's */
    ssize_t (*pread)(int fd, void *target, size_t size, off_t offset);
    ssize_t (*pwrite)(int fd, const void *source, size_t size, off_t offset);
    int (*fdatasync)(int fd);
    int (*fsync)(int fd);
    int (*unlink)(const char *path);
    int (*rename)(const char *from, const char *to);
    int (*mkdir)(const char *path, mode_t mode);
    int (*rmdir)(const char *path);
    void *(*mmap)(size_t size, int protection, int fd, off_t offset); /* MAP_SHARED; MAP_FAILED on failure */
    int (*munmap)(void *address, size_t size);
    int (*madvise)(void *address, size_t size, int advice);
    int (*mlock)(const void *address, size_t size);
    int (*munlock)(const void *address, size_t size);
};

/* The table in use. Written only by pymq_io_use, before the first store is opened. */
extern const struct pymq_io *pymq_io;
extern const struct pymq_io pymq_io_kernel;

/* Use `io` from now on; NULL restores the kernel. Not thread-safe on purpose: call it before opening stores. */
void pymq_io_use(const struct pymq_io *io);

/* Read or write everything or fail: short transfers and EINTR are retried.
 * pread returns the bytes read, fewer than `size` only at the end of the file; pwrite returns PYMQ_OK. */
ssize_t pymq_io_pread_full(int fd, void *target, size_t size, int64_t offset);
int pymq_io_pwrite_full(int fd, const void *source, size_t size, int64_t offset);

/* fsync the directory itself, so that names made or removed in it survive. PYMQ_OK or PYMQ_EIO. */
int pymq_io_sync_directory(const char *path);

/* The same for the directory that holds `path`. */
int pymq_io_sync_parent(const char *path);

/* Create `path` and its missing parents; with `sync` each one's name is durable. PYMQ_OK or PYMQ_EIO (errno kept). */
int pymq_io_make_directories(const char *path, bool sync);

/* Make bytes [offset, offset + size) of `fd` read as zeros and stay allocated, whatever the file system offers. */
int pymq_io_zero(int fd, int64_t offset, int64_t size);

/* Make them read as zeros and give their blocks back where the file system can. */
int pymq_io_punch(int fd, int64_t offset, int64_t size);

/* ENOSPC and EDQUOT become PYMQ_ENOSPC, ENOMEM PYMQ_ENOMEM, everything else PYMQ_EIO. */
int pymq_io_status(int sys_errno);

#endif
