/* Calls that run out of memory, descriptors or privilege (R7): each kind fails at its n-th call until none fails.
 * Whatever the store answers, it does not crash, leaks no descriptor and no mapping, and keeps what it acknowledged.
 * Refused mlock is no error at all: the store runs on and says so. */
#include "../../csrc/testing/fault_io.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define MESSAGES_MAX 512
#define SENDS 24
#define NEVER_MS 3600000 /* one checkpoint, in the middle */

static char root[PYMQ_PATH_MAX];
static char path[PYMQ_PATH_MAX];
static struct pymq_store_config config;
static struct message_model model;

static void check_reopened(const uint8_t *flags, int64_t removed_below, const char *what, uint64_t n) {
    struct model_promise promise = {.flags = flags, .removed_below = removed_below};
    struct model_found found;
    char why[MODEL_WHY_MAX];
    CHECK(fault_io_open_descriptors() == 0, "%s %llu: %lld descriptors leaked", what, (unsigned long long)n,
          (long long)fault_io_open_descriptors());
    CHECK(fault_io_open_mappings() == 0, "%s %llu: %lld mappings leaked", what, (unsigned long long)n,
          (long long)fault_io_open_mappings());
    fault_io_stop();
    pymq_io_use(&pymq_io_unsynced);
    struct pymq_store *store = small_store_open(path, &config);
    CHECK(message_model_verify(&model, store, &promise, &found, why), "%s %llu, reopened: %s", what,
          (unsigned long long)n, why);
    CHECK(pymq_store_close(store) == PYMQ_OK, "%s %llu: close", what, (unsigned long long)n);
    pymq_io_use(NULL);
}

/* One life of a store whose n-th call of a kind fails. Returns whether that call was reached. */
static bool live_with(enum fault_call call, uint64_t n, int sys_errno, bool pool) {
    static uint8_t flags[MESSAGES_MAX];
    const char *what = fault_call_name(call);
    struct pymq_store *store = NULL;
    struct pymq_error error = {0};
    int64_t removed_below = 0;
    small_store_config(&config, PYMQ_SYNC_FLUSH);
    config.transient_pool_enable = pool;
    config.transient_pool_wait_ms = 5;
    config.lock_log_memory = true;
    message_model_open(&model, MESSAGES_MAX, &config);
    memset(flags, 0, sizeof flags);
    fault_io_start(&pymq_io_unsynced);
    int rule = fault_io_add(&(struct fault_rule){call, n, 1, sys_errno, NULL});
    int status = pymq_store_open(path, &config, &store, &error);
    if (status != PYMQ_OK) {
        CHECK(store == NULL, "%s %llu: a failed open left a store", what, (unsigned long long)n);
        CHECK(error.text[0] != '\0' && error.status == status, "%s %llu: a failed open says nothing", what,
              (unsigned long long)n);
    } else {
        for (int sent = 0; sent < SENDS; sent++) {
            uint32_t id = atomic_load(&model.count);
            status = message_model_send(&model, store, (uint8_t)(sent % 3), 0, 1500, true);
            flags[id] = status == PYMQ_OK;
            if (sent == SENDS / 2) {
                pymq_store_checkpoint(store); /* may fail: that is the fault */
                struct pymq_log_file_info files[2], removed;
                if (pymq_store_log_files(store, files, 2) >= 2)
                    removed_below = files[1].base_offset;
                pymq_store_remove_oldest(store, &removed);
            }
        }
        pymq_store_close(store);
    }
    bool reached = fault_io_hits(rule) > 0;
    check_reopened(flags, removed_below, what, n);
    message_model_close(&model);
    scratch_remove(path);
    return reached;
}

/* A killed store with a damaged tail, queues that lag and an index that lags: all of recovery has work to do. */
static void make_killed(const char *killed, uint8_t *flags) {
    char log_path[PYMQ_PATH_MAX];
    small_store_config(&config, PYMQ_SYNC_FLUSH);
    config.queue_flush_interval_ms = config.queue_flush_thorough_interval_ms = NEVER_MS;
    message_model_open(&model, MESSAGES_MAX, &config);
    pymq_io_use(&pymq_io_unsynced);
    struct pymq_store *store = small_store_open(killed, &config);
    for (int sent = 0; sent < SENDS; sent++) {
        int status = message_model_send(&model, store, (uint8_t)(sent % 3), 0, 500, true);
        CHECK(status == PYMQ_OK, "send: %s", pymq_status_name(status));
        if (sent == SENDS / 3)
            CHECK(pymq_store_checkpoint(store) == PYMQ_OK, "checkpoint");
    }
    CHECK(pymq_store_wait_dispatched(store, 10000) == PYMQ_OK, "dispatch");
    pymq_store_abandon(store);
    pymq_io_use(NULL);
    const struct model_message *damaged = &model.messages[SENDS - 3];
    CHECK(damaged->physical_offset < config.log_file_size, "the damage lies in the first file");
    scratch_join(log_path, sizeof log_path, killed, "commitlog/00000000000000000000");
    int fd = open(log_path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "damage", 6, damaged->physical_offset + 200) == 6, "write into %s", log_path);
    close(fd);
    memset(flags, 0, MESSAGES_MAX);
    memset(flags, 1, SENDS - 3);
}

/* Recovery whose n-th call of a kind fails: it says why, leaks nothing, and the next one finds everything. */
static bool recover_with(enum fault_call call, uint64_t n, int sys_errno, const char *killed, const uint8_t *flags) {
    const char *what = fault_call_name(call);
    struct pymq_store *store = NULL;
    struct pymq_error error = {0};
    scratch_copy(killed, path);
    fault_io_start(&pymq_io_unsynced);
    int rule = fault_io_add(&(struct fault_rule){call, n, 1, sys_errno, NULL});
    int status = pymq_store_open(path, &config, &store, &error);
    bool reached = fault_io_hits(rule) > 0;
    CHECK(status == PYMQ_OK || (store == NULL && error.text[0] != '\0'), "recovery, %s %llu: refused without a reason",
          what, (unsigned long long)n);
    CHECK(status == PYMQ_OK || reached, "recovery: refused without a fault: %s", error.text);
    if (status == PYMQ_OK)
        pymq_store_abandon(store);
    check_reopened(flags, 0, what, n);
    scratch_remove(path);
    return reached;
}

static void refused_mlock_is_reported_and_harmless(int sys_errno, bool pool) {
    struct pymq_store_stats stats;
    small_store_config(&config, PYMQ_SYNC_FLUSH);
    config.transient_pool_enable = pool;
    config.lock_log_memory = true;
    message_model_open(&model, MESSAGES_MAX, &config);
    fault_io_start(&pymq_io_unsynced);
    int rule = fault_io_add(&(struct fault_rule){FAULT_MLOCK, 1, FAULT_FOREVER, sys_errno, NULL});
    struct pymq_store *store = small_store_open(path, &config);
    for (int sent = 0; sent < SENDS; sent++) {
        int status = message_model_send(&model, store, 0, 0, 1500, true);
        CHECK(status == PYMQ_OK, "send without locked memory: %s", pymq_status_name(status));
    }
    CHECK(fault_io_hits(rule) > 0, "nothing asked for locked memory");
    pymq_store_stats(store, &stats);
    CHECK(stats.memory_lock_refused, "the refusal is not reported");
    CHECK(pymq_store_close(store) == PYMQ_OK, "close");
    static uint8_t flags[MESSAGES_MAX];
    memset(flags, 1, atomic_load(&model.count));
    check_reopened(flags, 0, "mlock refused", 0);
    message_model_close(&model);
    scratch_remove(path);
}

int main(void) {
    static const struct {
        enum fault_call call;
        int sys_errno;
    } kinds[] = {
        {FAULT_MMAP, ENOMEM}, {FAULT_MLOCK, ENOMEM}, {FAULT_OPEN, EMFILE},
        {FAULT_MKDIR, EACCES}, {FAULT_FTRUNCATE, EIO}, {FAULT_UNLINK, EIO},
        {FAULT_RENAME, EIO}, {FAULT_PREAD, EIO}, {FAULT_PWRITE, EIO},
        {FAULT_SYNC_DIRECTORY, EIO}, {FAULT_SYNC, EIO}, {FAULT_FALLOCATE, EIO},
        {FAULT_MADVISE, EAGAIN}, {FAULT_ZERO_RANGE, EIO}, {FAULT_PUNCH_HOLE, EOPNOTSUPP},
    };
    uint64_t lives = 0;
    bool full = environment_integer("PYMQ_FULL", 0) != 0;
    scratch_make_in_memory(root, sizeof root, "fault-memory");
    scratch_join(path, sizeof path, root, "store");
    refused_mlock_is_reported_and_harmless(EPERM, false);
    refused_mlock_is_reported_and_harmless(ENOMEM, true);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int pool = 0; pool < 2; pool++) {
            /* every one of the first calls, then ever wider steps: the late ones repeat one another */
            for (uint64_t n = 1; live_with(kinds[k].call, n, kinds[k].sys_errno, pool); n += full || n < 12 ? 1 : 9)
                lives++;
        }
    }
    uint64_t recoveries = 0;
    static uint8_t flags[MESSAGES_MAX];
    char killed[PYMQ_PATH_MAX];
    scratch_join(killed, sizeof killed, root, "killed");
    make_killed(killed, flags);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (uint64_t n = 1; recover_with(kinds[k].call, n, kinds[k].sys_errno, killed, flags); n++)
            recoveries++;
    message_model_close(&model);
    scratch_remove(root);
    printf("test_fault_memory: %llu lives with one failing call each: ok; %llu recoveries too\n",
           (unsigned long long)lives, (unsigned long long)recoveries);
    return 0;
}
