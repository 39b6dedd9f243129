/* Scratch directories, environment settings and the table without barriers. */
#define _GNU_SOURCE /* nftw */
#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define COPY_CHUNK_SIZE (64 * 1024)
#define WALK_DESCRIPTORS 16
#define MEMORY_DIRECTORY "/dev/shm"
#define MEMORY_FREE_MIN (256u << 20)

static char in_memory[PYMQ_PATH_MAX]; /* removed also on failure: memory is not a place to leave things */

void check_failed(const char *file, int line, const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "%s:%d: ", file, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(stderr);
    if (in_memory[0] != '\0') {
        char path[PYMQ_PATH_MAX];
        memcpy(path, in_memory, sizeof path);
        in_memory[0] = '\0'; /* a second failure, in here, ends at once */
        scratch_remove(path);
    }
    _exit(1); /* threads of an open store may still run: no handlers, no destructors */
}

/* ---- a table without barriers --------------------------------------------------------------------------------- */

static int unsynced_open(const char *path, int flags, mode_t mode) { return pymq_io_kernel.open(path, flags, mode); }

static int unsynced_sync(int fd) { return fcntl(fd, F_GETFD) < 0 ? -1 : 0; } /* a closed descriptor stays an error */

static int unsynced_fallocate(int fd, off_t offset, off_t size) { return posix_fallocate(fd, offset, size); }

static int unsynced_zero_range(int fd, off_t offset, off_t size) {
    return pymq_io_kernel.zero_range(fd, offset, size);
}

static int unsynced_punch_hole(int fd, off_t offset, off_t size) {
    return pymq_io_kernel.punch_hole(fd, offset, size);
}

static void *unsynced_mmap(size_t size, int protection, int fd, off_t offset) {
    return mmap(NULL, size, protection, MAP_SHARED, fd, offset);
}

const struct pymq_io pymq_io_unsynced = {
    .open = unsynced_open,
    .close = close,
    .ftruncate = ftruncate,
    .fallocate = unsynced_fallocate,
    .zero_range = unsynced_zero_range,
    .punch_hole = unsynced_punch_hole,
    .pread = pread,
    .pwrite = pwrite,
    .fdatasync = unsynced_sync,
    .fsync = unsynced_sync,
    .unlink = unlink,
    .rename = rename,
    .mkdir = mkdir,
    .rmdir = rmdir,
    .mmap = unsynced_mmap,
    .munmap = munmap,
    .madvise = madvise,
    .mlock = mlock,
    .munlock = munlock,
};

/* ---- directories ---------------------------------------------------------------------------------------------- */

void scratch_join(char *path, size_t capacity, const char *directory, const char *name) {
    int length = snprintf(path, capacity, "%s/%s", directory, name);
    CHECK(length > 0 && (size_t)length < capacity, "path too long: %s/%s", directory, name);
}

static void make_below(const char *parent, char *path, size_t capacity, const char *name) {
    int length = snprintf(path, capacity, "%s/pymq-%s-XXXXXX", parent, name);
    CHECK(length > 0 && (size_t)length < capacity, "TMPDIR too long: %s", parent);
    CHECK(mkdtemp(path) != NULL, "no scratch directory %s: %s", path, strerror(errno));
}

void scratch_make(char *path, size_t capacity, const char *name) {
    const char *parent = getenv("TMPDIR");
    make_below(parent != NULL && parent[0] != '\0' ? parent : "/tmp", path, capacity, name);
}

void scratch_make_in_memory(char *path, size_t capacity, const char *name) {
    struct statvfs space;
    bool usable = statvfs(MEMORY_DIRECTORY, &space) == 0 && access(MEMORY_DIRECTORY, W_OK) == 0 &&
                  (uint64_t)space.f_bavail * space.f_frsize >= MEMORY_FREE_MIN;
    if (!usable) {
        scratch_make(path, capacity, name);
        return;
    }
    make_below(MEMORY_DIRECTORY, path, capacity, name);
    snprintf(in_memory, sizeof in_memory, "%s", path);
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *walk) {
    (void)found;
    (void)kind;
    (void)walk;
    CHECK(remove(path) == 0 || errno == ENOENT, "cannot remove %s: %s", path, strerror(errno));
    return 0;
}

void scratch_remove(const char *path) {
    struct stat found;
    if (lstat(path, &found) != 0 && errno == ENOENT)
        return;
    CHECK(nftw(path, remove_one, WALK_DESCRIPTORS, FTW_DEPTH | FTW_PHYS) == 0, "cannot walk %s", path);
}

static void copy_file(const char *source, const char *target, mode_t mode) {
    static _Thread_local uint8_t chunk[COPY_CHUNK_SIZE];
    int from = open(source, O_RDONLY | O_CLOEXEC);
    int to = open(target, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0777);
    CHECK(from >= 0 && to >= 0, "cannot copy %s to %s: %s", source, target, strerror(errno));
    for (;;) {
        ssize_t got = read(from, chunk, sizeof chunk);
        CHECK(got >= 0, "cannot read %s: %s", source, strerror(errno));
        if (got == 0)
            break;
        CHECK(write(to, chunk, (size_t)got) == got, "cannot write %s: %s", target, strerror(errno));
    }
    close(from);
    close(to);
}

/* nftw hands over no context; one copy runs at a time per thread. */
static _Thread_local const char *copy_source;
static _Thread_local const char *copy_target;

static int copy_one(const char *path, const struct stat *found, int kind, struct FTW *walk) {
    char target[PYMQ_PATH_MAX];
    (void)walk;
    int length = snprintf(target, sizeof target, "%s%s", copy_target, path + strlen(copy_source));
    CHECK(length > 0 && (size_t)length < sizeof target, "path too long below %s", copy_target);
    if (kind == FTW_D)
        CHECK(mkdir(target, 0755) == 0, "cannot make %s: %s", target, strerror(errno));
    else
        copy_file(path, target, found->st_mode);
    return 0;
}

void scratch_copy(const char *source, const char *target) {
    copy_source = source;
    copy_target = target;
    CHECK(nftw(source, copy_one, WALK_DESCRIPTORS, FTW_PHYS) == 0, "cannot walk %s", source);
}

/* ---- settings ------------------------------------------------------------------------------------------------- */

int64_t environment_integer(const char *name, int64_t otherwise) {
    const char *text = getenv(name);
    if (text == NULL || text[0] == '\0')
        return otherwise;
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    CHECK(errno == 0 && *end == '\0', "%s=%s is not a number", name, text);
    return value;
}

uint64_t environment_seed(const char *program) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t by_clock = (now.tv_sec * 1000003 + now.tv_nsec) & 0x7fffffff;
    uint64_t seed = (uint64_t)environment_integer("PYMQ_SEED", by_clock);
    printf("%s: PYMQ_SEED=%llu\n", program, (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

int64_t monotonic_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
