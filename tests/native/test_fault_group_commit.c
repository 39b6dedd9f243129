/* Group commit: 256 senders that wait cost at most 3 syncs of the log a round, with an fsync that takes 2 ms. */
#include "../../csrc/testing/fault_io.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <pthread.h>

#define SENDERS 256
#define ROUNDS 8
#define SYNCS_OF_ROUND_MAX 3
#define SYNC_DELAY_US 2000
#define SENDER_STACK_SIZE (256 * 1024)

static struct pymq_store *store;
static struct message_model model;
static pthread_barrier_t appended, answered;
static int log_syncs; /* rule that counts */
static uint64_t syncs_of_round[ROUNDS];

static void *sender(void *argument) {
    size_t number = (size_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct pymq_append_result result;
        uint32_t id = message_model_add(&model, (uint8_t)(number % 3), 0, 100);
        int status = message_model_append(&model, store, &id, 1, 0, &result);
        CHECK(status == PYMQ_OK, "append: %s", pymq_status_name(status));
        if (pthread_barrier_wait(&appended) == PTHREAD_BARRIER_SERIAL_THREAD)
            syncs_of_round[round] = fault_io_matched(log_syncs);
        pthread_barrier_wait(&answered); /* the count is taken before anybody waits */
        status = pymq_store_wait_acknowledged(store, result.end_offset, -1);
        CHECK(status == PYMQ_OK, "wait: %s", pymq_status_name(status));
        if (pthread_barrier_wait(&appended) == PTHREAD_BARRIER_SERIAL_THREAD)
            syncs_of_round[round] = fault_io_matched(log_syncs) - syncs_of_round[round];
        pthread_barrier_wait(&answered);
    }
    return NULL;
}

int main(void) {
    char path[PYMQ_PATH_MAX];
    struct pymq_store_config config;
    pthread_t threads[SENDERS];
    pthread_attr_t attributes;
    scratch_make(path, sizeof path, "group-commit");
    small_store_config(&config, PYMQ_SYNC_FLUSH);
    config.log_file_size = 16 << 20; /* no roll in between: a second file is a second sync */
    config.log_window_size = config.log_file_size;
    config.checkpoint_bytes_max = config.log_file_size;
    config.index_item_count = 100000;
    config.queue_file_size = PYMQ_CQ_UNIT_SIZE * 10000;
    message_model_open(&model, SENDERS * ROUNDS, &config);
    fault_io_start(&pymq_io_unsynced);
    fault_io_delay_sync(SYNC_DELAY_US);
    log_syncs = fault_io_add(&(struct fault_rule){FAULT_SYNC, FAULT_FOREVER, 0, 0, "commitlog"});
    store = small_store_open(path, &config);
    pthread_barrier_init(&appended, NULL, SENDERS);
    pthread_barrier_init(&answered, NULL, SENDERS);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, SENDER_STACK_SIZE);
    for (size_t i = 0; i < SENDERS; i++)
        CHECK(pthread_create(&threads[i], &attributes, sender, (void *)i) == 0, "thread %zu", i);
    for (size_t i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    uint64_t most = 0;
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(syncs_of_round[round] <= SYNCS_OF_ROUND_MAX, "round %d: %d senders cost %llu syncs", round, SENDERS,
              (unsigned long long)syncs_of_round[round]);
        most = syncs_of_round[round] > most ? syncs_of_round[round] : most;
    }
    CHECK(fault_io_matched(log_syncs) >= ROUNDS, "messages were acknowledged without a sync");
    CHECK(pymq_store_close(store) == PYMQ_OK, "close");
    fault_io_stop();
    message_model_close(&model);
    pthread_attr_destroy(&attributes);
    scratch_remove(path);
    printf("test_fault_group_commit: %d senders, %d rounds, at most %llu syncs a round: ok\n", SENDERS, ROUNDS,
           (unsigned long long)most);
    return 0;
}
