/* The failing table: counters, rules, and for each call of pymq_io a wrapper that asks them first. See fault_io.h.
 *
 * `fault.lock` guards rules and the descriptor table; it is never held over a system call. Counters are atomic.
 */
#include "fault_io.h"

#include "scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#define DESCRIPTORS_MAX 8192
#define DESCRIPTOR_PATH_MAX 256 /* the end of the path is kept: that is where file names differ */

struct rule_state {
    struct fault_rule rule;
    uint64_t matched;
    uint64_t hits;
};

struct descriptor {
    bool used;
    bool directory;
    char path[DESCRIPTOR_PATH_MAX];
};

static struct {
    const struct pymq_io *base;
    pthread_mutex_t lock;
    struct rule_state rules[FAULT_RULES_MAX];
    int rule_count;
    struct descriptor descriptors[DESCRIPTORS_MAX];
    char last_path[DESCRIPTOR_PATH_MAX];
    atomic_uint_fast64_t counts[FAULT_CALLS];
    atomic_int_fast64_t open_descriptors, open_mappings;
    atomic_uint_fast32_t sync_delay_us;
} fault = {.lock = PTHREAD_MUTEX_INITIALIZER};

#define SHORTENED (-1) /* verdict: transfer less than asked */

const char *fault_call_name(enum fault_call call) {
    static const char *const names[FAULT_CALLS] = {
        "open",   "ftruncate", "fallocate", "zero_range", "punch_hole", "pread",   "pwrite",
        "sync",   "sync of a directory",    "unlink",     "rename",     "mkdir",   "rmdir",
        "mmap",   "madvise",   "mlock",
    };
    return (unsigned)call < FAULT_CALLS ? names[call] : "unknown";
}

static void keep_path(char *target, const char *path) {
    size_t size = strlen(path);
    if (size >= DESCRIPTOR_PATH_MAX)
        path += size - DESCRIPTOR_PATH_MAX + 1;
    memcpy(target, path, strlen(path) + 1);
}

/* 0 to go on, SHORTENED, or the errno to fail with. */
static int judge(enum fault_call call, const char *path) {
    int verdict = 0;
    atomic_fetch_add(&fault.counts[call], 1);
    pthread_mutex_lock(&fault.lock);
    for (int i = 0; i < fault.rule_count; i++) {
        struct rule_state *state = &fault.rules[i];
        if (state->rule.call != call)
            continue;
        if (state->rule.path_part != NULL && strstr(path, state->rule.path_part) == NULL)
            continue;
        state->matched++;
        if (state->matched < state->rule.first || state->matched - state->rule.first >= state->rule.count)
            continue;
        state->hits++;
        keep_path(fault.last_path, path);
        if (verdict == 0)
            verdict = state->rule.sys_errno != 0 ? state->rule.sys_errno : SHORTENED;
    }
    pthread_mutex_unlock(&fault.lock);
    return verdict;
}

/* As above for a call on a descriptor; directories have their own kind of sync. */
static int judge_fd(enum fault_call call, int fd) {
    char path[DESCRIPTOR_PATH_MAX] = "";
    pthread_mutex_lock(&fault.lock);
    if (fd >= 0 && fd < DESCRIPTORS_MAX && fault.descriptors[fd].used) {
        memcpy(path, fault.descriptors[fd].path, sizeof path);
        if (call == FAULT_SYNC && fault.descriptors[fd].directory)
            call = FAULT_SYNC_DIRECTORY;
    }
    pthread_mutex_unlock(&fault.lock);
    return judge(call, path);
}

static int refuse(int sys_errno) {
    errno = sys_errno;
    return -1;
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

static int fault_open(const char *path, int flags, mode_t mode) {
    int verdict = judge(FAULT_OPEN, path);
    if (verdict > 0)
        return refuse(verdict);
    int fd = fault.base->open(path, flags, mode);
    if (fd < 0)
        return fd;
    CHECK(fd < DESCRIPTORS_MAX, "descriptor %d beyond the fault table", fd);
    pthread_mutex_lock(&fault.lock);
    fault.descriptors[fd].used = true;
    fault.descriptors[fd].directory = (flags & O_DIRECTORY) != 0;
    keep_path(fault.descriptors[fd].path, path);
    pthread_mutex_unlock(&fault.lock);
    atomic_fetch_add(&fault.open_descriptors, 1);
    return fd;
}

static int fault_close(int fd) {
    pthread_mutex_lock(&fault.lock);
    bool known = fd >= 0 && fd < DESCRIPTORS_MAX && fault.descriptors[fd].used;
    if (known)
        fault.descriptors[fd].used = false;
    pthread_mutex_unlock(&fault.lock);
    CHECK(known, "close of descriptor %d, which is not open", fd);
    atomic_fetch_sub(&fault.open_descriptors, 1);
    return fault.base->close(fd);
}

static int fault_ftruncate(int fd, off_t size) {
    int verdict = judge_fd(FAULT_FTRUNCATE, fd);
    return verdict > 0 ? refuse(verdict) : fault.base->ftruncate(fd, size);
}

static int fault_fallocate(int fd, off_t offset, off_t size) {
    int verdict = judge_fd(FAULT_FALLOCATE, fd);
    return verdict > 0 ? verdict : fault.base->fallocate(fd, offset, size);
}

static int fault_zero_range(int fd, off_t offset, off_t size) {
    int verdict = judge_fd(FAULT_ZERO_RANGE, fd);
    return verdict > 0 ? verdict : fault.base->zero_range(fd, offset, size);
}

static int fault_punch_hole(int fd, off_t offset, off_t size) {
    int verdict = judge_fd(FAULT_PUNCH_HOLE, fd);
    return verdict > 0 ? verdict : fault.base->punch_hole(fd, offset, size);
}

static size_t shortened(int verdict, size_t size) { return verdict == SHORTENED && size > 1 ? size - 1 : size; }

static ssize_t fault_pread(int fd, void *target, size_t size, off_t offset) {
    int verdict = judge_fd(FAULT_PREAD, fd);
    return verdict > 0 ? refuse(verdict) : fault.base->pread(fd, target, shortened(verdict, size), offset);
}

static ssize_t fault_pwrite(int fd, const void *source, size_t size, off_t offset) {
    int verdict = judge_fd(FAULT_PWRITE, fd);
    return verdict > 0 ? refuse(verdict) : fault.base->pwrite(fd, source, shortened(verdict, size), offset);
}

static int synced(int fd, int (*base)(int)) {
    uint32_t delay_us = (uint32_t)atomic_load(&fault.sync_delay_us);
    if (delay_us > 0) {
        struct timespec delay = {.tv_sec = delay_us / 1000000, .tv_nsec = (long)(delay_us % 1000000) * 1000};
        while (nanosleep(&delay, &delay) != 0 && errno == EINTR)
            continue;
    }
    int verdict = judge_fd(FAULT_SYNC, fd);
    return verdict > 0 ? refuse(verdict) : base(fd);
}

static int fault_fdatasync(int fd) { return synced(fd, fault.base->fdatasync); }

static int fault_fsync(int fd) { return synced(fd, fault.base->fsync); }

static int fault_unlink(const char *path) {
    int verdict = judge(FAULT_UNLINK, path);
    return verdict > 0 ? refuse(verdict) : fault.base->unlink(path);
}

static int fault_rename(const char *from, const char *to) {
    int verdict = judge(FAULT_RENAME, to);
    return verdict > 0 ? refuse(verdict) : fault.base->rename(from, to);
}

static int fault_mkdir(const char *path, mode_t mode) {
    int verdict = judge(FAULT_MKDIR, path);
    return verdict > 0 ? refuse(verdict) : fault.base->mkdir(path, mode);
}

static int fault_rmdir(const char *path) {
    int verdict = judge(FAULT_RMDIR, path);
    return verdict > 0 ? refuse(verdict) : fault.base->rmdir(path);
}

static void *fault_mmap(size_t size, int protection, int fd, off_t offset) {
    int verdict = judge_fd(FAULT_MMAP, fd);
    if (verdict > 0) {
        errno = verdict;
        return MAP_FAILED;
    }
    void *address = fault.base->mmap(size, protection, fd, offset);
    if (address != MAP_FAILED)
        atomic_fetch_add(&fault.open_mappings, 1);
    return address;
}

static int fault_munmap(void *address, size_t size) {
    int status = fault.base->munmap(address, size);
    if (status == 0)
        atomic_fetch_sub(&fault.open_mappings, 1);
    return status;
}

static int fault_madvise(void *address, size_t size, int advice) {
    int verdict = judge(FAULT_MADVISE, "");
    return verdict > 0 ? refuse(verdict) : fault.base->madvise(address, size, advice);
}

static int fault_mlock(const void *address, size_t size) {
    int verdict = judge(FAULT_MLOCK, "");
    return verdict > 0 ? refuse(verdict) : fault.base->mlock(address, size);
}

static int fault_munlock(const void *address, size_t size) { return fault.base->munlock(address, size); }

static const struct pymq_io fault_io_table = {
    .open = fault_open,
    .close = fault_close,
    .ftruncate = fault_ftruncate,
    .fallocate = fault_fallocate,
    .zero_range = fault_zero_range,
    .punch_hole = fault_punch_hole,
    .pread = fault_pread,
    .pwrite = fault_pwrite,
    .fdatasync = fault_fdatasync,
    .fsync = fault_fsync,
    .unlink = fault_unlink,
    .rename = fault_rename,
    .mkdir = fault_mkdir,
    .rmdir = fault_rmdir,
    .mmap = fault_mmap,
    .munmap = fault_munmap,
    .madvise = fault_madvise,
    .mlock = fault_mlock,
    .munlock = fault_munlock,
};

/* ---- control -------------------------------------------------------------------------------------------------- */

void fault_io_start(const struct pymq_io *base) {
    fault.base = base != NULL ? base : &pymq_io_kernel;
    memset(fault.descriptors, 0, sizeof fault.descriptors);
    fault.rule_count = 0;
    fault.last_path[0] = '\0';
    for (int i = 0; i < FAULT_CALLS; i++)
        atomic_store(&fault.counts[i], 0);
    atomic_store(&fault.open_descriptors, 0);
    atomic_store(&fault.open_mappings, 0);
    atomic_store(&fault.sync_delay_us, 0);
    pymq_io_use(&fault_io_table);
}

void fault_io_stop(void) { pymq_io_use(NULL); }

int fault_io_add(const struct fault_rule *rule) {
    pthread_mutex_lock(&fault.lock);
    CHECK(fault.rule_count < FAULT_RULES_MAX, "more than %d fault rules", FAULT_RULES_MAX);
    int number = fault.rule_count++;
    fault.rules[number] = (struct rule_state){.rule = *rule};
    pthread_mutex_unlock(&fault.lock);
    return number;
}

void fault_io_clear(void) {
    pthread_mutex_lock(&fault.lock);
    fault.rule_count = 0;
    pthread_mutex_unlock(&fault.lock);
}

uint64_t fault_io_hits(int rule) {
    pthread_mutex_lock(&fault.lock);
    CHECK(rule >= 0 && rule < fault.rule_count, "no fault rule %d", rule);
    uint64_t hits = fault.rules[rule].hits;
    pthread_mutex_unlock(&fault.lock);
    return hits;
}

uint64_t fault_io_matched(int rule) {
    pthread_mutex_lock(&fault.lock);
    CHECK(rule >= 0 && rule < fault.rule_count, "no fault rule %d", rule);
    uint64_t matched = fault.rules[rule].matched;
    pthread_mutex_unlock(&fault.lock);
    return matched;
}

uint64_t fault_io_count(enum fault_call call) { return atomic_load(&fault.counts[call]); }

int64_t fault_io_open_descriptors(void) { return atomic_load(&fault.open_descriptors); }

int64_t fault_io_open_mappings(void) { return atomic_load(&fault.open_mappings); }

void fault_io_delay_sync(uint32_t delay_us) { atomic_store(&fault.sync_delay_us, delay_us); }

void fault_io_last_path(char *path, size_t capacity) {
    pthread_mutex_lock(&fault.lock);
    snprintf(path, capacity, "%s", fault.last_path);
    pthread_mutex_unlock(&fault.lock);
}
