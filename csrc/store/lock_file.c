/* See lock_file.h. The file is opened only after the registry has said that nobody here has it: closing any
 * descriptor of a file drops all record locks this process holds on it. */
#include "lock_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct pymq_lock_file {
    int fd;
    pid_t owner; /* a forked child holds no lock and must not touch the registry of its parent */
    dev_t device;
    ino_t inode;
    struct pymq_lock_file *next;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pymq_lock_file *registry; /* guarded by registry_lock */

static bool held_here(const char *path) {
    struct stat found;
    if (stat(path, &found) != 0)
        return false;
    for (struct pymq_lock_file *lock = registry; lock != NULL; lock = lock->next) {
        if (lock->device == found.st_dev && lock->inode == found.st_ino && lock->owner == getpid())
            return true;
    }
    return false;
}

static int take_locked(const char *path, struct pymq_lock_file *lock, struct pymq_error *error) {
    if (held_here(path))
        return pymq_fail(error, PYMQ_ELOCKED, 0,
                         "%s: the store is already open in this process; share the one handle, or close it first",
                         path);
    lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock->fd < 0)
        return pymq_fail(error, PYMQ_EIO, errno, "%s: cannot be opened: %s", path, strerror(errno));
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    if (fcntl(lock->fd, F_SETLK, &range) != 0) {
        int code = errno;
        bool known = fcntl(lock->fd, F_GETLK, &range) == 0 && range.l_type != F_UNLCK;
        close(lock->fd);
        if (code != EAGAIN && code != EACCES)
            return pymq_fail(error, PYMQ_EIO, code, "%s: cannot be locked: %s", path, strerror(code));
        return pymq_fail(
            error, PYMQ_ELOCKED, code,
            "%s: another broker has this store open (process %ld); stop it first, or use another directory", path,
            known ? (long)range.l_pid : -1L);
    }
    struct stat found;
    if (fstat(lock->fd, &found) != 0 || pwrite(lock->fd, "lock", 4, 0) != 4) {
        int code = errno;
        close(lock->fd);
        return pymq_fail(error, PYMQ_EIO, code, "%s: cannot be written: %s", path, strerror(code));
    }
    lock->device = found.st_dev;
    lock->inode = found.st_ino;
    lock->owner = getpid();
    lock->next = registry;
    registry = lock;
    return PYMQ_OK;
}

int pymq_lock_file_take(const char *path, struct pymq_lock_file **result, struct pymq_error *error) {
    struct pymq_lock_file *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return pymq_fail(error, PYMQ_ENOMEM, errno, "%s: out of memory", path);
    pthread_mutex_lock(&registry_lock);
    int status = take_locked(path, lock, error);
    pthread_mutex_unlock(&registry_lock);
    if (status != PYMQ_OK) {
        free(lock);
        return status;
    }
    *result = lock;
    return PYMQ_OK;
}

void pymq_lock_file_release(struct pymq_lock_file *lock) {
    if (lock == NULL)
        return;
    pthread_mutex_lock(&registry_lock);
    for (struct pymq_lock_file **link = &registry; *link != NULL; link = &(*link)->next) {
        if (*link == lock) {
            *link = lock->next;
            break;
        }
    }
    close(lock->fd);
    pthread_mutex_unlock(&registry_lock);
    free(lock);
}
