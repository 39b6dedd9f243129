/* fsync fails (R5): the store stops acknowledging at once and for good, says which file, and a restart keeps every
 * message it had acknowledged. A retried fsync can succeed without the data, so the fault here is a single one: a store
 * that tries again would be believed, and caught. */
#include "../../csrc/testing/fault_io.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <errno.h>
#include <unistd.h>

#define SYNCS_FAILED_MAX 50
#define MESSAGES_MAX 400
#define SENDS_MAX 150
#define LATER_SENDS 3
#define WAIT_MS 10000

static char root[PYMQ_PATH_MAX];
static char path[PYMQ_PATH_MAX];

static void check_refuses(struct message_model *model, struct pymq_store *store, int64_t end_offset, int n) {
    for (int i = 0; i < LATER_SENDS; i++) {
        int status = message_model_send(model, store, 1, 1, 100, false);
        CHECK(status == PYMQ_EFAILED, "n %d: a put after the failure: %s", n, pymq_status_name(status));
        status = pymq_store_wait_acknowledged(store, end_offset, 0);
        CHECK(status == PYMQ_EFAILED, "n %d: a wait after the failure: %s", n, pymq_status_name(status));
        status = pymq_store_poll_acknowledged(store, end_offset);
        CHECK(status == PYMQ_EFAILED, "n %d: a poll after the failure: %s", n, pymq_status_name(status));
    }
    struct pymq_error failure = {0};
    struct pymq_store_stats stats;
    pymq_store_failure(store, &failure);
    pymq_store_stats(store, &stats);
    CHECK(failure.status == PYMQ_EFAILED || failure.status == PYMQ_EIO || failure.status == PYMQ_ENOSPC,
          "n %d: failure status %s", n, pymq_status_name(failure.status));
    CHECK(stats.failed_status != PYMQ_OK, "n %d: the statistics know of no failure", n);
    CHECK(strstr(failure.text, "commitlog") != NULL && strstr(failure.text, "0000000") != NULL,
          "n %d: the failure does not name its file: %s", n, failure.text);
}

/* Fail the n-th sync of a log file while messages are sent one by one; 60 messages roll the log several times. */
static void sync_failure(int n, int sys_errno, bool pool) {
    struct pymq_store_config config;
    struct message_model model;
    struct model_found found;
    char why[MODEL_WHY_MAX];
    small_store_config(&config, PYMQ_SYNC_FLUSH);
    config.transient_pool_enable = pool;
    message_model_open(&model, MESSAGES_MAX, &config);
    fault_io_start(&pymq_io_unsynced);
    struct pymq_store *store = small_store_open(path, &config);
    int rule = fault_io_add(&(struct fault_rule){FAULT_SYNC, (uint64_t)n, 1, sys_errno, "commitlog"});
    int status = PYMQ_OK;
    int sent = 0;
    for (; sent < SENDS_MAX && status == PYMQ_OK; sent++)
        status = message_model_send(&model, store, (uint8_t)(sent % 3), 0, 900, true);
    CHECK(fault_io_hits(rule) == 1, "n %d: %d messages made no %d syncs", n, sent, n);
    CHECK(status == PYMQ_EFAILED, "n %d: the sender of the failed round got %s", n, pymq_status_name(status));
    struct pymq_watermarks marks;
    pymq_store_watermarks(store, &marks);
    check_refuses(&model, store, marks.written + 1, n); /* what is durable already stays acknowledged */
    CHECK(pymq_store_close(store) != PYMQ_OK, "n %d: a failed store closed cleanly", n);
    CHECK(fault_io_open_descriptors() == 0 && fault_io_open_mappings() == 0, "n %d: leaked", n);
    fault_io_stop();

    struct model_promise promise = message_model_promise(&model);
    pymq_io_use(&pymq_io_unsynced);
    store = small_store_open(path, &config);
    CHECK(message_model_verify(&model, store, &promise, &found, why), "n %d after restart: %s", n, why);
    status = message_model_send(&model, store, 0, 0, 100, true);
    CHECK(status == PYMQ_OK, "n %d: send after restart: %s", n, pymq_status_name(status));
    CHECK(pymq_store_close(store) == PYMQ_OK, "n %d: close after restart", n);
    pymq_io_use(NULL);
    message_model_close(&model);
    scratch_remove(path);
}

/* Nobody waits under ASYNC_FLUSH, so the next put must learn of it. */
static void async_sync_failure_refuses_puts(int n) {
    struct pymq_store_config config;
    struct message_model model;
    small_store_config(&config, PYMQ_ASYNC_FLUSH);
    message_model_open(&model, MESSAGES_MAX, &config);
    fault_io_start(&pymq_io_unsynced);
    struct pymq_store *store = small_store_open(path, &config);
    int rule = fault_io_add(&(struct fault_rule){FAULT_SYNC, (uint64_t)n, 1, EIO, "commitlog"});
    int status = PYMQ_OK;
    for (int sent = 0; sent < SENDS_MAX && fault_io_hits(rule) == 0; sent++) {
        status = message_model_send(&model, store, 0, 0, 900, false);
        CHECK(status == PYMQ_OK || fault_io_hits(rule) == 1, "refused early: %s", pymq_status_name(status));
        usleep(1000);
    }
    CHECK(fault_io_hits(rule) == 1, "n %d: no sync was failed", n);
    int64_t deadline_us = monotonic_us() + WAIT_MS * 1000LL;
    while ((status = message_model_send(&model, store, 0, 0, 16, false)) == PYMQ_OK && monotonic_us() < deadline_us)
        usleep(1000);
    CHECK(status == PYMQ_EFAILED, "n %d: puts go on after a failed fsync: %s", n, pymq_status_name(status));
    CHECK(pymq_store_flush(store) == PYMQ_EFAILED, "n %d: flush after a failed fsync", n);
    CHECK(pymq_store_close(store) != PYMQ_OK, "n %d: a failed store closed cleanly", n);
    CHECK(fault_io_open_descriptors() == 0 && fault_io_open_mappings() == 0, "n %d: leaked", n);
    fault_io_stop();
    message_model_close(&model);
    scratch_remove(path);
}

/* A sync of any other file (queue, index, checkpoint, directory) fails: whatever the store does about it, it loses
 * nothing it acknowledges, before or after. */
static void other_sync_failure_loses_nothing(enum fault_call call, const char *path_part, int n) {
    struct pymq_store_config config;
    struct message_model model;
    struct model_found found;
    char why[MODEL_WHY_MAX];
    small_store_config(&config, PYMQ_SYNC_FLUSH);
    message_model_open(&model, MESSAGES_MAX, &config);
    fault_io_start(&pymq_io_unsynced);
    struct pymq_store *store = small_store_open(path, &config);
    fault_io_add(&(struct fault_rule){call, (uint64_t)n, 1, EIO, path_part});
    for (int sent = 0; sent < 40; sent++) {
        int status = message_model_send(&model, store, (uint8_t)(sent % 3), 0, 900, true);
        CHECK(status == PYMQ_OK || status == PYMQ_EFAILED || status == PYMQ_EIO || status == PYMQ_ENOSPC, "%s: %s",
              path_part, pymq_status_name(status)); /* refused, whatever the reason given: not acknowledged */
        if (sent % 10 == 9)
            pymq_store_checkpoint(store); /* may fail: that is the fault */
        if (status != PYMQ_OK)
            break;
    }
    pymq_store_abandon(store);
    CHECK(fault_io_open_descriptors() == 0 && fault_io_open_mappings() == 0, "%s: leaked", path_part);
    fault_io_stop();
    struct model_promise promise = message_model_promise(&model);
    pymq_io_use(&pymq_io_unsynced);
    store = small_store_open(path, &config);
    CHECK(message_model_verify(&model, store, &promise, &found, why), "%s n %d: %s", path_part, n, why);
    CHECK(pymq_store_close(store) == PYMQ_OK, "%s n %d: close", path_part, n);
    pymq_io_use(NULL);
    message_model_close(&model);
    scratch_remove(path);
}

int main(void) {
    scratch_make_in_memory(root, sizeof root, "faults");
    scratch_join(path, sizeof path, root, "store");
    for (int n = 1; n <= SYNCS_FAILED_MAX; n++) {
        sync_failure(n, EIO, n % 5 == 0);
        sync_failure(n, ENOSPC, n % 5 == 1);
    }
    for (int n = 1; n <= 5; n++)
        async_sync_failure_refuses_puts(n);
    for (int n = 1; n <= 4; n++) {
        other_sync_failure_loses_nothing(FAULT_SYNC, "consumequeue", n);
        other_sync_failure_loses_nothing(FAULT_SYNC, "index", n);
        other_sync_failure_loses_nothing(FAULT_SYNC, "checkpoint", n);
        other_sync_failure_loses_nothing(FAULT_SYNC_DIRECTORY, "store", n);
    }
    scratch_remove(root);
    printf("test_faults: %d failing syncs with EIO and with ENOSPC, 5 under async flush, 16 of other files: ok\n",
           SYNCS_FAILED_MAX);
    return 0;
}
