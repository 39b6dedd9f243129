/* Waiting for the disk: many senders on one group commit, and one message per sync to compare with. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../../csrc/testing/fault_io.h"
#include "../../csrc/testing/scratch.h"
#include "bench_support.h"

#define BODY_SIZE 128
#define BUFFER_SIZE 512
#define SENDER_STACK_SIZE (128 * 1024)
#define SENDERS_MAX 1024

static int log_rule, queue_rule; /* rules that never strike: they count */

void bench_io_begin(uint32_t delay_us) {
    fault_io_start(delay_us > 0 ? &pymq_io_unsynced : NULL);
    fault_io_delay_sync(delay_us);
    log_rule = fault_io_add(&(struct fault_rule){FAULT_SYNC, FAULT_FOREVER, 0, 0, "commitlog"});
    queue_rule = fault_io_add(&(struct fault_rule){FAULT_SYNC, FAULT_FOREVER, 0, 0, "consumequeue"});
}

void bench_io_end(void) { fault_io_stop(); }

int64_t bench_log_syncs(void) { return (int64_t)fault_io_matched(log_rule); }

int64_t bench_queue_syncs(void) { return (int64_t)fault_io_matched(queue_rule); }

/* ---- group commit ------------------------------------------------------------------------------------------------ */

struct group {
    struct pymq_store *store;
    struct pymq_queue *queue;
    int32_t rounds;
    bool in_step;
    pthread_barrier_t begin, end;
    int64_t *syncs_of_round;
    _Atomic int status;
};

static int send_one(struct group *group, struct bench_message *message, uint8_t *buffer) {
    struct pymq_append_result result;
    struct pymq_append_item item = {.queue = group->queue, .record = buffer};
    item.size = (uint32_t)bench_message_encode(message, buffer, BUFFER_SIZE);
    int status = pymq_store_append(group->store, &item, 1, 0, &result);
    return status == PYMQ_OK ? pymq_store_wait_acknowledged(group->store, result.end_offset, -1) : status;
}

static void *sender(void *context) {
    struct group *group = context;
    struct bench_message message;
    uint8_t buffer[BUFFER_SIZE];
    int status = bench_message_init(&message, BENCH_TOPIC, 0, BODY_SIZE);
    pthread_barrier_wait(&group->begin);
    for (int32_t round = 0; round < group->rounds; round++) {
        if (status == PYMQ_OK)
            status = send_one(group, &message, buffer);
        if (!group->in_step)
            continue;
        /* One thread takes the count while the others are held at the next barrier. */
        if (pthread_barrier_wait(&group->end) == PTHREAD_BARRIER_SERIAL_THREAD)
            group->syncs_of_round[round] = bench_log_syncs();
        pthread_barrier_wait(&group->begin);
    }
    if (status != PYMQ_OK)
        group->status = status;
    pthread_barrier_wait(&group->end);
    bench_message_destroy(&message);
    return NULL;
}

int bench_group_commit(struct pymq_store *store, int32_t senders, int32_t rounds, bool in_step,
                       int64_t *syncs_of_round, struct bench_cost *cost) {
    struct group group = {.store = store, .rounds = rounds, .in_step = in_step, .syncs_of_round = syncs_of_round};
    pthread_t threads[SENDERS_MAX];
    pthread_attr_t attributes;
    struct bench_clock clock;
    if (senders > SENDERS_MAX)
        return bench_fail(PYMQ_EINVAL, "%d senders; %d are possible", senders, SENDERS_MAX);
    int status = pymq_store_queue(store, (const uint8_t *)BENCH_TOPIC, strlen(BENCH_TOPIC), 0, true, &group.queue);
    if (status != PYMQ_OK)
        return bench_fail(status, "queue");
    pthread_barrier_init(&group.begin, NULL, (unsigned)senders + 1u);
    pthread_barrier_init(&group.end, NULL, (unsigned)senders + 1u);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SENDER_STACK_SIZE);
    for (int32_t i = 0; i < senders; i++) {
        if (pthread_create(&threads[i], &attributes, sender, &group) != 0)
            abort(); /* the others wait at a barrier that can no longer fill */
    }
    int64_t before = bench_log_syncs();
    bench_begin(&clock);
    pthread_barrier_wait(&group.begin);
    for (int32_t round = 0; in_step && round < rounds; round++) {
        if (pthread_barrier_wait(&group.end) == PTHREAD_BARRIER_SERIAL_THREAD)
            syncs_of_round[round] = bench_log_syncs();
        pthread_barrier_wait(&group.begin);
    }
    pthread_barrier_wait(&group.end);
    bench_end(&clock, (int64_t)senders * rounds, 0, cost);
    for (int32_t i = 0; i < senders; i++)
        pthread_join(threads[i], NULL);
    for (int32_t round = rounds - 1; in_step && round >= 0; round--) /* from totals to differences */
        syncs_of_round[round] -= round > 0 ? syncs_of_round[round - 1] : before;
    pthread_attr_destroy(&attributes);
    pthread_barrier_destroy(&group.begin);
    pthread_barrier_destroy(&group.end);
    return group.status == PYMQ_OK ? PYMQ_OK : bench_fail(group.status, "a sender failed");
}

/* Wait until everything below `end_offset` is acknowledged, asleep on `fd`. */
static int await_parked(struct pymq_store *store, int fd, int64_t end_offset) {
    for (;;) {
        uint64_t rings;
        int status = pymq_store_poll_acknowledged(store, end_offset);
        if (status != PYMQ_ETIMEDOUT)
            return status;
        if (read(fd, &rings, sizeof rings) < 0 && errno != EINTR)
            return PYMQ_EIO;
    }
}

int bench_parked_commit(struct pymq_store *store, int32_t parked, int32_t rounds, struct bench_cost *cost) {
    struct bench_message message;
    struct bench_clock clock;
    struct pymq_append_result result = {0};
    uint8_t buffer[BUFFER_SIZE];
    struct pymq_append_item item = {.record = buffer};
    int fd = eventfd(0, EFD_CLOEXEC);
    int status = pymq_store_queue(store, (const uint8_t *)BENCH_TOPIC, strlen(BENCH_TOPIC), 0, true, &item.queue);
    if (status == PYMQ_OK)
        status = pymq_store_listen(store, fd, PYMQ_EVENT_ACKNOWLEDGED);
    if (status != PYMQ_OK || (status = bench_message_init(&message, BENCH_TOPIC, 0, BODY_SIZE)) != PYMQ_OK) {
        close(fd);
        return bench_fail(status, "listen");
    }
    bench_begin(&clock);
    for (int32_t round = 0; round < rounds && status == PYMQ_OK; round++) {
        for (int32_t i = 0; i < parked && status == PYMQ_OK; i++) {
            item.size = (uint32_t)bench_message_encode(&message, buffer, sizeof buffer);
            status = pymq_store_append(store, &item, 1, 0, &result);
        }
        if (status == PYMQ_OK)
            status = await_parked(store, fd, result.end_offset);
    }
    bench_end(&clock, (int64_t)parked * rounds, 0, cost);
    pymq_store_unlisten(store, fd);
    close(fd);
    bench_message_destroy(&message);
    return status == PYMQ_OK ? PYMQ_OK : bench_fail(status, "parked sends");
}

/* ---- one sync a message ------------------------------------------------------------------------------------------ */

int bench_sync_each(struct pymq_store *store, int32_t count, struct bench_cost *cost) {
    struct group group = {.store = store};
    struct bench_message message;
    struct bench_clock clock;
    uint8_t buffer[BUFFER_SIZE];
    int status = pymq_store_queue(store, (const uint8_t *)BENCH_TOPIC, strlen(BENCH_TOPIC), 0, true, &group.queue);
    if (status == PYMQ_OK)
        status = bench_message_init(&message, BENCH_TOPIC, 0, BODY_SIZE);
    if (status != PYMQ_OK)
        return bench_fail(status, "queue");
    bench_begin(&clock);
    for (int32_t i = 0; i < count && status == PYMQ_OK; i++)
        status = send_one(&group, &message, buffer);
    bench_end(&clock, count, 0, cost);
    bench_message_destroy(&message);
    return status == PYMQ_OK ? PYMQ_OK : bench_fail(status, "send");
}

int bench_plain_sync_each(const char *path, int32_t count, int32_t record_size, struct bench_cost *cost) {
    struct bench_clock clock;
    uint8_t *record = calloc(1, (size_t)record_size);
    int fd = pymq_io->open(path, O_RDWR | O_CREAT, 0644);
    off_t total = (off_t)count * record_size;
    if (record == NULL || fd < 0 || pymq_io->fallocate(fd, 0, total) != 0 || pymq_io->fdatasync(fd) != 0) {
        free(record);
        return bench_fail(PYMQ_EIO, "%s: %s", path, strerror(errno));
    }
    int status = PYMQ_OK;
    bench_begin(&clock);
    for (int32_t i = 0; i < count && status == PYMQ_OK; i++) {
        status = pymq_io_pwrite_full(fd, record, (size_t)record_size, (int64_t)i * record_size);
        if (status == PYMQ_OK && pymq_io->fdatasync(fd) != 0)
            status = PYMQ_EIO;
    }
    bench_end(&clock, count, total, cost);
    pymq_io->close(fd);
    free(record);
    return status == PYMQ_OK ? PYMQ_OK : bench_fail(status, "%s: %s", path, strerror(errno));
}
