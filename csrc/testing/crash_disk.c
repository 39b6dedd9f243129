/* The table of system calls that keeps the crash model up to date. See crash_disk.h.
 *
 * One lock, `disk.lock`, is held over each modelled call including the kernel's part of it, so that the order of
 * events in the model is the order in which they happened. Reads and mapping calls change nothing and do not take it.
 */
#include "crash_disk.h"

#include "crash_model.h"
#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 8192
#define ROOT_INODE UINT64_MAX /* the root is always there and no entry of anything */

struct descriptor {
    bool used;
    uint64_t inode;
    char path[CRASH_NAME_MAX]; /* as opened, relative; directories are synced by it */
};

static struct {
    pthread_mutex_t lock;
    bool active;
    char root[PYMQ_PATH_MAX];
    size_t root_size;
    struct crash_model model;
    uint64_t time;
    uint64_t event_count;
    uint64_t unallocated_writes;
    crash_hook hook;
    void *context;
    struct descriptor descriptors[DESCRIPTORS_MAX];
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- paths, descriptors, events ------------------------------------------------------------------------------- */

/* The path below the root without doubled slashes, "" for the root itself; NULL when it lies elsewhere. */
static const char *relative_path(const char *path, char *target) {
    size_t at = 0;
    if (strncmp(path, disk.root, disk.root_size) != 0)
        return NULL;
    if (path[disk.root_size] != '/' && path[disk.root_size] != '\0')
        return NULL;
    for (const char *p = path + disk.root_size; *p != '\0'; p++) {
        if (*p == '/' && (at == 0 || p[1] == '/' || p[1] == '\0'))
            continue;
        CHECK(at + 1 < CRASH_NAME_MAX, "path below the root too long: %s", path);
        target[at++] = *p;
    }
    target[at] = '\0';
    return target;
}

static struct descriptor *descriptor_of(int fd) {
    return fd >= 0 && fd < DESCRIPTORS_MAX && disk.descriptors[fd].used ? &disk.descriptors[fd] : NULL;
}

static struct crash_inode *file_of(int fd) {
    const struct descriptor *descriptor = descriptor_of(fd);
    return descriptor != NULL && descriptor->inode != ROOT_INODE ? disk.model.inodes[descriptor->inode] : NULL;
}

static void announce(const char *call, const char *path, enum crash_moment moment, bool barrier) {
    if (disk.hook == NULL)
        return;
    struct crash_event event = {call, path, moment, barrier, disk.event_count};
    disk.hook(disk.context, &event);
}

static void begin(const char *call, const char *path, bool barrier) {
    disk.event_count++;
    disk.time++;
    announce(call, path, CRASH_BEFORE, barrier);
    disk.time++; /* a hook's samples are older than what the call does */
}

static void sample_all(void) {
    for (size_t i = 0; i < disk.model.inode_count; i++)
        disk.unallocated_writes += crash_inode_sample(disk.model.inodes[i], disk.time);
    disk.time++;
}

/* ---- the model's side of opening ------------------------------------------------------------------------------ */

static int open_own(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0, "crash disk cannot read %s: %s", path, strerror(errno));
    return fd;
}

/* What is there before the disk starts is durable, allocated as far as its size says. */
static void adopt_file(const char *path, const char *relative) {
    struct crash_inode *inode = crash_model_add_inode(&disk.model, false);
    struct stat found;
    inode->read_fd = open_own(path);
    CHECK(fstat(inode->read_fd, &found) == 0, "fstat %s: %s", path, strerror(errno));
    crash_inode_allocated(inode, 0, found.st_size);
    crash_inode_sample(inode, disk.time);
    crash_inode_synced(inode);
    crash_names_set(&disk.model.live, relative, inode->id);
    crash_names_set(&disk.model.durable, relative, inode->id);
}

static void adopt_tree(const char *path, const char *relative) {
    DIR *directory = opendir(path);
    CHECK(directory != NULL, "crash disk cannot list %s: %s", path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char child[PYMQ_PATH_MAX], child_relative[CRASH_NAME_MAX];
        struct stat found;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        scratch_join(child, sizeof child, path, entry->d_name);
        if (relative[0] == '\0')
            snprintf(child_relative, sizeof child_relative, "%s", entry->d_name);
        else
            scratch_join(child_relative, sizeof child_relative, relative, entry->d_name);
        CHECK(stat(child, &found) == 0, "stat %s: %s", child, strerror(errno));
        if (S_ISDIR(found.st_mode)) {
            uint64_t id = crash_model_add_inode(&disk.model, true)->id;
            crash_names_set(&disk.model.live, child_relative, id);
            crash_names_set(&disk.model.durable, child_relative, id);
            adopt_tree(child, child_relative);
        } else {
            adopt_file(child, child_relative);
        }
    }
    closedir(directory);
}

static int disk_open(const char *path, int flags, mode_t mode) {
    char buffer[CRASH_NAME_MAX];
    pthread_mutex_lock(&disk.lock);
    const char *relative = relative_path(path, buffer);
    struct crash_inode *inode = relative != NULL ? crash_names_find(&disk.model, &disk.model.live, relative) : NULL;
    bool creates = relative != NULL && inode == NULL && relative[0] != '\0';
    bool truncates = inode != NULL && !inode->is_directory && (flags & O_TRUNC) != 0;
    if (creates || truncates)
        begin("open", relative, false);
    if (truncates) {
        crash_inode_sample(inode, disk.time);
        disk.time++;
    }
    int fd = pymq_io_kernel.open(path, flags, mode);
    int saved = errno;
    if (fd >= 0 && relative != NULL) {
        CHECK(fd < DESCRIPTORS_MAX, "descriptor %d beyond the crash disk's table", fd);
        if (creates) {
            inode = crash_model_add_inode(&disk.model, false);
            inode->read_fd = open_own(path);
            crash_model_change(&disk.model, CRASH_LINK, disk.time, inode->id, relative, "");
        }
        if (truncates)
            crash_inode_shrunk(inode, disk.time, 0);
        struct descriptor *descriptor = &disk.descriptors[fd];
        descriptor->used = true;
        descriptor->inode = inode != NULL ? inode->id : ROOT_INODE;
        memcpy(descriptor->path, relative, strlen(relative) + 1);
        if (inode != NULL)
            inode->open_count++;
    }
    if (fd >= 0 && (creates || truncates))
        announce("open", relative, CRASH_AFTER, false);
    pthread_mutex_unlock(&disk.lock);
    errno = saved;
    return fd;
}

static int disk_close(int fd) {
    pthread_mutex_lock(&disk.lock);
    struct descriptor *descriptor = descriptor_of(fd);
    if (descriptor != NULL) {
        if (descriptor->inode != ROOT_INODE)
            disk.model.inodes[descriptor->inode]->open_count--;
        descriptor->used = false;
    }
    int status = close(fd);
    int saved = errno;
    pthread_mutex_unlock(&disk.lock);
    errno = saved;
    return status;
}

/* ---- contents ------------------------------------------------------------------------------------------------- */

static int disk_ftruncate(int fd, off_t size) {
    pthread_mutex_lock(&disk.lock);
    struct crash_inode *inode = file_of(fd);
    if (inode != NULL) {
        begin("ftruncate", disk.descriptors[fd].path, false);
        disk.unallocated_writes += crash_inode_sample(inode, disk.time);
        disk.time++;
    }
    int status = ftruncate(fd, size);
    int saved = errno;
    if (status == 0 && inode != NULL) {
        if (size < inode->sizes[inode->size_count - 1].size)
            crash_inode_shrunk(inode, disk.time, size);
        crash_inode_sample(inode, disk.time);
        announce("ftruncate", disk.descriptors[fd].path, CRASH_AFTER, false);
    }
    pthread_mutex_unlock(&disk.lock);
    errno = saved;
    return status;
}

/* fallocate, zero_range and punch_hole: `then` tells the model whether the range has blocks afterwards. */
static int on_range(int fd, off_t offset, off_t size, const char *call, int (*kernel)(int, off_t, off_t),
                    void (*then)(struct crash_inode *, int64_t, int64_t)) {
    pthread_mutex_lock(&disk.lock);
    struct crash_inode *inode = file_of(fd);
    if (inode != NULL) {
        begin(call, disk.descriptors[fd].path, false);
        disk.unallocated_writes += crash_inode_sample(inode, disk.time);
        disk.time++;
    }
    int code = kernel(fd, offset, size);
    if (code == 0 && inode != NULL) {
        then(inode, offset, size);
        crash_inode_sample(inode, disk.time); /* the kernel wrote that, not a mapping: not counted */
        announce(call, disk.descriptors[fd].path, CRASH_AFTER, false);
    }
    pthread_mutex_unlock(&disk.lock);
    return code;
}

static int disk_fallocate(int fd, off_t offset, off_t size) {
    return on_range(fd, offset, size, "fallocate", pymq_io_kernel.fallocate, crash_inode_allocated);
}

static int disk_zero_range(int fd, off_t offset, off_t size) {
    return on_range(fd, offset, size, "zero_range", pymq_io_kernel.zero_range, crash_inode_allocated);
}

static int disk_punch_hole(int fd, off_t offset, off_t size) {
    return on_range(fd, offset, size, "punch_hole", pymq_io_kernel.punch_hole, crash_inode_punched);
}

static ssize_t disk_pwrite(int fd, const void *source, size_t size, off_t offset) {
    pthread_mutex_lock(&disk.lock);
    struct crash_inode *inode = file_of(fd);
    if (inode != NULL) {
        begin("pwrite", disk.descriptors[fd].path, false);
        disk.unallocated_writes += crash_inode_sample(inode, disk.time);
        disk.time++;
    }
    ssize_t put = pwrite(fd, source, size, offset);
    int saved = errno;
    if (put > 0 && inode != NULL) {
        crash_inode_allocated(inode, offset, put);
        crash_inode_sample(inode, disk.time);
        announce("pwrite", disk.descriptors[fd].path, CRASH_AFTER, false);
    }
    pthread_mutex_unlock(&disk.lock);
    errno = saved;
    return put;
}

/* ---- barriers ------------------------------------------------------------------------------------------------- */

static int barrier(int fd, const char *call) {
    pthread_mutex_lock(&disk.lock);
    const struct descriptor *descriptor = descriptor_of(fd);
    if (descriptor == NULL) {
        pthread_mutex_unlock(&disk.lock);
        return fcntl(fd, F_GETFD) < 0 ? -1 : 0; /* outside the root: nothing to model, still no closed descriptor */
    }
    struct crash_inode *inode = descriptor->inode != ROOT_INODE ? disk.model.inodes[descriptor->inode] : NULL;
    sample_all();
    begin(call, descriptor->path, true);
    if (inode == NULL || inode->is_directory) {
        crash_model_sync_directory(&disk.model, descriptor->path);
    } else {
        disk.unallocated_writes += crash_inode_sample(inode, disk.time);
        crash_inode_synced(inode);
    }
    announce(call, descriptor->path, CRASH_AFTER, true);
    pthread_mutex_unlock(&disk.lock);
    return 0;
}

static int disk_fdatasync(int fd) { return barrier(fd, "fdatasync"); }

static int disk_fsync(int fd) { return barrier(fd, "fsync"); }

/* ---- names ---------------------------------------------------------------------------------------------------- */

/* unlink, rmdir, rename and mkdir: an event, the kernel's call, a pending change. */
static int naming(const char *call, const char *path, const char *target, mode_t mode) {
    char buffer[CRASH_NAME_MAX], target_buffer[CRASH_NAME_MAX];
    int status = -1;
    pthread_mutex_lock(&disk.lock);
    const char *relative = relative_path(path, buffer);
    const char *relative_target = target != NULL ? relative_path(target, target_buffer) : "";
    bool makes = strcmp(call, "mkdir") == 0;
    bool renames = strcmp(call, "rename") == 0;
    struct crash_inode *inode = relative != NULL ? crash_names_find(&disk.model, &disk.model.live, relative) : NULL;
    if (relative != NULL)
        begin(call, relative, false);
    if (makes)
        status = mkdir(path, mode);
    else if (renames)
        status = rename(path, target);
    else
        status = strcmp(call, "rmdir") == 0 ? rmdir(path) : unlink(path);
    int saved = errno;
    if (status == 0 && relative != NULL) {
        if (makes)
            inode = crash_model_add_inode(&disk.model, true);
        CHECK(inode != NULL && relative_target != NULL, "%s of %s, which the crash disk never saw", call, path);
        crash_model_change(&disk.model, makes ? CRASH_LINK : renames ? CRASH_RENAME : CRASH_UNLINK, disk.time,
                           inode->id, relative, relative_target);
        announce(call, relative, CRASH_AFTER, false);
    }
    pthread_mutex_unlock(&disk.lock);
    errno = saved;
    return status;
}

static int disk_unlink(const char *path) { return naming("unlink", path, NULL, 0); }

static int disk_rmdir(const char *path) { return naming("rmdir", path, NULL, 0); }

static int disk_rename(const char *from, const char *to) { return naming("rename", from, to, 0); }

static int disk_mkdir(const char *path, mode_t mode) { return naming("mkdir", path, NULL, mode); }

/* Mappings need no bookkeeping: they share pages with the file, which is what the model reads. */
static void *disk_mmap(size_t size, int protection, int fd, off_t offset) {
    return pymq_io_kernel.mmap(size, protection, fd, offset);
}

static const struct pymq_io crash_disk_io = {
    .open = disk_open,
    .close = disk_close,
    .ftruncate = disk_ftruncate,
    .fallocate = disk_fallocate,
    .zero_range = disk_zero_range,
    .punch_hole = disk_punch_hole,
    .pread = pread,
    .pwrite = disk_pwrite,
    .fdatasync = disk_fdatasync,
    .fsync = disk_fsync,
    .unlink = disk_unlink,
    .rename = disk_rename,
    .mkdir = disk_mkdir,
    .rmdir = disk_rmdir,
    .mmap = disk_mmap,
    .munmap = munmap,
    .madvise = madvise,
    .mlock = mlock,
    .munlock = munlock,
};

/* ---- start, stop, images -------------------------------------------------------------------------------------- */

void crash_disk_start(const char *root, crash_hook hook, void *context) {
    CHECK(!disk.active, "a crash disk is active already");
    size_t size = strlen(root);
    CHECK(size > 0 && size < sizeof disk.root && root[size - 1] != '/', "root of the crash disk: %s", root);
    memcpy(disk.root, root, size + 1);
    disk.root_size = size;
    disk.time = 1;
    disk.event_count = 0;
    disk.unallocated_writes = 0;
    disk.hook = hook;
    disk.context = context;
    adopt_tree(root, "");
    disk.active = true;
    pymq_io_use(&crash_disk_io);
}

void crash_disk_stop(void) {
    CHECK(disk.active, "no crash disk is active");
    pymq_io_use(NULL);
    crash_model_free(&disk.model);
    memset(disk.descriptors, 0, sizeof disk.descriptors);
    disk.active = false;
}

void crash_disk_sample(void) {
    pthread_mutex_lock(&disk.lock);
    sample_all();
    pthread_mutex_unlock(&disk.lock);
}

uint64_t crash_disk_event_count(void) {
    pthread_mutex_lock(&disk.lock);
    uint64_t count = disk.event_count;
    pthread_mutex_unlock(&disk.lock);
    return count;
}

uint64_t crash_disk_unallocated_writes(void) {
    pthread_mutex_lock(&disk.lock);
    uint64_t count = disk.unallocated_writes;
    pthread_mutex_unlock(&disk.lock);
    return count;
}

struct crash_image *crash_disk_image(bool locked) {
    struct crash_image *image = calloc(1, sizeof *image);
    CHECK(image != NULL, "out of memory");
    if (!locked)
        pthread_mutex_lock(&disk.lock);
    sample_all();
    crash_model_copy(&image->model, &disk.model);
    if (!locked)
        pthread_mutex_unlock(&disk.lock);
    return image;
}

void crash_image_free(struct crash_image *image) {
    if (image == NULL)
        return;
    crash_model_free(&image->model);
    free(image);
}
