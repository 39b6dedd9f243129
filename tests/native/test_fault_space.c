/* No space, short transfers, interrupted calls (R6): a put is refused with PYMQ_ENOSPC or done, never half done, and
 * the store goes on by itself when space returns. */
#include "../../csrc/testing/fault_io.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <errno.h>
#include <unistd.h>

#define MESSAGES_MAX 4096
#define LAST_WRITES 200 /* of each kind are failed, one run each */
#define SENDS 40
#define WAIT_MS 10000

static char root[PYMQ_PATH_MAX];
static char path[PYMQ_PATH_MAX];
static struct pymq_store_config config;
static struct message_model model;

static void begin(enum pymq_flush_mode flush_mode, bool pool) {
    small_store_config(&config, flush_mode);
    config.transient_pool_enable = pool;
    config.transient_pool_wait_ms = 5;
    message_model_open(&model, MESSAGES_MAX, &config);
    fault_io_start(&pymq_io_unsynced);
}

static void end(void) {
    message_model_close(&model);
    scratch_remove(path);
}

/* What stays after a close: reopen without faults and hold everything against the model. */
static void check_reopened(const struct model_promise *promise, const char *what, uint64_t n) {
    struct model_found found;
    char why[MODEL_WHY_MAX];
    CHECK(fault_io_open_descriptors() == 0 && fault_io_open_mappings() == 0, "%s %llu: leaked", what,
          (unsigned long long)n);
    fault_io_stop();
    pymq_io_use(&pymq_io_unsynced);
    struct pymq_store *store = small_store_open(path, &config);
    CHECK(message_model_verify(&model, store, promise, &found, why), "%s %llu, reopened: %s", what,
          (unsigned long long)n, why);
    CHECK(pymq_store_close(store) == PYMQ_OK, "%s %llu: close", what, (unsigned long long)n);
    pymq_io_use(NULL);
}

/* Send until it works again; the store may need a moment to notice that space is back. */
static void send_until_accepted(struct pymq_store *store, const char *what) {
    int64_t deadline_us = monotonic_us() + WAIT_MS * 1000LL;
    int status;
    while ((status = message_model_send(&model, store, 0, 0, 900, true)) != PYMQ_OK && monotonic_us() < deadline_us)
        usleep(1000);
    CHECK(status == PYMQ_OK, "%s: no put works after space returned: %s", what, pymq_status_name(status));
}

/* The disk is full for good at the k-th allocation of a log file, and then it is not. */
static void full_disk_refuses_puts_and_recovers(uint64_t k, bool pool) {
    struct model_found found;
    char why[MODEL_WHY_MAX];
    begin(PYMQ_SYNC_FLUSH, pool);
    struct pymq_store *store = small_store_open(path, &config);
    fault_io_add(&(struct fault_rule){FAULT_FALLOCATE, k, FAULT_FOREVER, ENOSPC, "commitlog"});
    int status = PYMQ_OK;
    for (int sent = 0; sent < 200 && status == PYMQ_OK; sent++)
        status = message_model_send(&model, store, 0, 0, 900, true);
    CHECK(status == PYMQ_ENOSPC, "full at allocation %llu: %s", (unsigned long long)k, pymq_status_name(status));
    for (int i = 0; i < 5; i++) {
        status = message_model_send(&model, store, 1, 0, 4000, true);
        CHECK(status == PYMQ_ENOSPC || status == PYMQ_OK, "still full: %s", pymq_status_name(status));
    }
    struct model_promise promise = message_model_promise(&model);
    promise.count = 0; /* ids refused in between have no place; what was promised is checked once all is sent */
    CHECK(message_model_verify(&model, store, &promise, &found, why), "reading while full: %s", why);
    CHECK(found.count > 0 || k == 1, "nothing is readable while full");
    fault_io_clear();
    send_until_accepted(store, "full disk");
    for (int i = 0; i < 30; i++) {
        status = message_model_send(&model, store, 2, 0, 900, true);
        CHECK(status == PYMQ_OK, "after space returned: %s", pymq_status_name(status));
    }
    CHECK(pymq_store_close(store) == PYMQ_OK, "close");
    static uint8_t flags[MESSAGES_MAX];
    for (uint32_t id = 0; id < MESSAGES_MAX; id++)
        flags[id] = id < atomic_load(&model.count) && model.messages[id].physical_offset >= 0;
    promise.flags = flags;
    check_reopened(&promise, "full disk", k);
    end();
}

/* Queues or index cannot grow: dispatch waits, nothing is lost, and it catches up. */
static void full_disk_below_dispatch_recovers(const char *path_part, enum fault_call call) {
    struct model_found found;
    char why[MODEL_WHY_MAX];
    static uint8_t flags[MESSAGES_MAX];
    begin(PYMQ_SYNC_FLUSH, false);
    struct pymq_store *store = small_store_open(path, &config);
    int rule = fault_io_add(&(struct fault_rule){call, 1, FAULT_FOREVER, ENOSPC, path_part});
    memset(flags, 0, sizeof flags);
    for (int sent = 0; sent < 60; sent++) {
        uint32_t id = atomic_load(&model.count);
        int status = message_model_send(&model, store, (uint8_t)(sent % 3), 0, 300, true);
        flags[id] = status == PYMQ_OK;
        CHECK(status == PYMQ_OK || status == PYMQ_ENOSPC || status == PYMQ_EREADONLY, "%s full: %s", path_part,
              pymq_status_name(status));
    }
    int64_t deadline_us = monotonic_us() + WAIT_MS * 1000LL;
    while (fault_io_hits(rule) == 0 && monotonic_us() < deadline_us) /* dispatch has a thread of its own */
        usleep(1000);
    CHECK(fault_io_hits(rule) > 0, "no %s call met the full disk below %s", fault_call_name(call), path_part);
    fault_io_clear();
    deadline_us = monotonic_us() + WAIT_MS * 1000LL;
    while (pymq_store_wait_dispatched(store, 100) != PYMQ_OK && monotonic_us() < deadline_us)
        usleep(1000);
    struct model_promise promise = {.flags = flags};
    CHECK(message_model_verify(&model, store, &promise, &found, why), "%s, space returned: %s", path_part, why);
    flags[atomic_load(&model.count)] = 0;
    send_until_accepted(store, path_part);
    CHECK(pymq_store_close(store) == PYMQ_OK, "%s: close", path_part);
    check_reopened(&promise, path_part, 0);
    end();
}

/* Opens, sends, checkpoints and closes; returns how many calls of the kind that took. */
static uint64_t run_with(enum fault_call call, uint64_t n, int sys_errno, bool pool) {
    static uint8_t flags[MESSAGES_MAX];
    const char *what = fault_call_name(call);
    begin(PYMQ_SYNC_FLUSH, pool);
    memset(flags, 0, sizeof flags);
    if (n > 0)
        fault_io_add(&(struct fault_rule){call, n, sys_errno == EINTR || sys_errno == 0 ? 3 : 1, sys_errno, NULL});
    struct pymq_store *store = NULL;
    struct pymq_error error = {0};
    int status = pymq_store_open(path, &config, &store, &error);
    CHECK(status == PYMQ_OK || status == PYMQ_ENOSPC, "%s %llu: open: %s: %s", what, (unsigned long long)n,
          pymq_status_name(status), error.text);
    if (status == PYMQ_OK) {
        for (int sent = 0; sent < SENDS; sent++) {
            uint32_t id = atomic_load(&model.count);
            status = message_model_send(&model, store, (uint8_t)(sent % 3), (uint8_t)(sent % 2), 700, true);
            flags[id] = status == PYMQ_OK;
            CHECK(status == PYMQ_OK || status == PYMQ_ENOSPC || (pool && status == PYMQ_EPOOL),
                  "%s %llu errno %d: send: %s", what, (unsigned long long)n, sys_errno, pymq_status_name(status));
            CHECK(status == PYMQ_OK || sys_errno == ENOSPC, "%s %llu: refused although nothing was full", what,
                  (unsigned long long)n);
            if (sent % 16 == 15)
                pymq_store_checkpoint(store);
        }
        send_until_accepted(store, what);
        status = pymq_store_close(store);
        CHECK(status == PYMQ_OK || sys_errno == ENOSPC, "%s %llu: close: %s", what, (unsigned long long)n,
              pymq_status_name(status));
    }
    uint64_t count = fault_io_count(call);
    struct model_promise promise = {.flags = flags};
    check_reopened(&promise, what, n);
    end();
    return count;
}

int main(void) {
    uint64_t runs = 0;
    scratch_make_in_memory(root, sizeof root, "fault-space");
    scratch_join(path, sizeof path, root, "store");
    for (uint64_t k = 1; k <= 4; k++) {
        full_disk_refuses_puts_and_recovers(k, false);
        full_disk_refuses_puts_and_recovers(k, true);
    }
    full_disk_below_dispatch_recovers("consumequeue", FAULT_FALLOCATE);
    full_disk_below_dispatch_recovers("index", FAULT_FALLOCATE);
    full_disk_below_dispatch_recovers("consumequeue", FAULT_OPEN);
    full_disk_below_dispatch_recovers("index", FAULT_OPEN);
    int64_t step = environment_integer("PYMQ_FULL", 0) != 0 ? 1 : 4;
    static const enum fault_call calls[] = {FAULT_PWRITE, FAULT_FALLOCATE, FAULT_PREAD};
    for (size_t c = 0; c < sizeof calls / sizeof calls[0]; c++) {
        for (int pool = 0; pool < 2; pool++) {
            uint64_t count = run_with(calls[c], 0, 0, pool != 0);
            uint64_t first = count > LAST_WRITES ? count - LAST_WRITES : 1;
            for (uint64_t n = first; n <= count; n += (uint64_t)step) {
                if (calls[c] != FAULT_PREAD)
                    run_with(calls[c], n, ENOSPC, pool != 0);
                if (calls[c] != FAULT_FALLOCATE) { /* posix_fallocate restarts by itself and has no short form */
                    run_with(calls[c], n, EINTR, pool != 0);
                    run_with(calls[c], n, 0, pool != 0);
                }
                runs++;
            }
        }
    }
    scratch_remove(root);
    printf("test_fault_space: full disks for good and for once, short and interrupted calls, %llu places: ok\n",
           (unsigned long long)runs);
    return 0;
}
