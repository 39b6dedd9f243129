/* What a power cut right after retention leaves of a queue. The crash sweep found it about once in a thousand states
 * (seed 1687024926, workload 21); here in a few lines. */
#include "../../csrc/testing/crash_disk.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <unistd.h>

#define LAZY_MS 60000
#define UNITS_OF_FILE 3
#define TOPIC 0
#define OTHER_TOPIC 1
#define BODY_SIZE 1500

static int64_t next_offset(struct pymq_store *store) {
    const char *topic = model_topic(TOPIC);
    struct pymq_queue *queue = NULL;
    struct pymq_queue_info info;
    CHECK(pymq_store_wait_dispatched(store, 30000) == PYMQ_OK, "dispatch");
    CHECK(pymq_store_queue(store, (const uint8_t *)topic, strlen(topic), 0, true, &queue) == PYMQ_OK, "queue");
    pymq_queue_info(queue, &info);
    return info.max_offset;
}

static void send(struct message_model *model, struct pymq_store *store, uint8_t topic) {
    CHECK(message_model_send(model, store, topic, 0, BODY_SIZE, false) == PYMQ_OK, "send");
}

/* Queue files of three units: one full file that is durable, and the next begun by a message no checkpoint knows. */
static void expire_all_but_the_newest(struct message_model *model, struct pymq_store *store) {
    struct pymq_log_file_info files[4], removed;
    for (int i = 0; i < UNITS_OF_FILE; i++)
        send(model, store, TOPIC);
    while (pymq_store_log_files(store, files, 4) < 2)
        send(model, store, OTHER_TOPIC);
    CHECK(pymq_store_wait_dispatched(store, 30000) == PYMQ_OK, "dispatch");
    CHECK(pymq_store_checkpoint(store) == PYMQ_OK, "checkpoint");
    send(model, store, TOPIC); /* not promised: nothing is flushed any more */
    CHECK(next_offset(store) == UNITS_OF_FILE + 1, "four messages");
    CHECK(pymq_store_remove_oldest(store, &removed) == PYMQ_OK, "the oldest log file goes");
    CHECK(pymq_store_clean_queues(store) >= 0, "clean queues");
}

static void test_a_power_cut_after_retention_starts_a_queue_at_zero_again(void) {
    char root[PYMQ_PATH_MAX], path[PYMQ_PATH_MAX], state[PYMQ_PATH_MAX];
    struct pymq_store_config config;
    struct message_model model;
    scratch_make(root, sizeof root, "crash-retention");
    CHECK(snprintf(path, sizeof path, "%.400s/store", root) > 0, "path");
    small_store_config(&config, PYMQ_ASYNC_FLUSH);
    config.log_file_size = config.log_window_size = 8192;
    config.queue_file_size = UNITS_OF_FILE * PYMQ_CQ_UNIT_SIZE;
    config.flush_interval_ms = config.flush_thorough_interval_ms = LAZY_MS;
    config.queue_flush_interval_ms = config.queue_flush_thorough_interval_ms = LAZY_MS;
    config.checkpoint_bytes_max = INT64_MAX;
    message_model_open(&model, 64, &config);
    CHECK(pymq_io_make_directories(path, true) == PYMQ_OK, "store directory");
    crash_disk_start(path, NULL, NULL);
    struct pymq_store *store = small_store_open(path, &config);
    expire_all_but_the_newest(&model, store);
    struct crash_image *image = crash_disk_image(false);
    pymq_store_abandon(store);
    crash_disk_stop();
    for (int style = 0; style < CRASH_STYLES; style++) {
        struct test_random random = {.state = (uint64_t)style};
        CHECK(snprintf(state, sizeof state, "%.400s/state-%d", root, style) > 0, "path");
        crash_image_write(image, (enum crash_style)style, &random, state);
        store = small_store_open(state, &config);
        CHECK(next_offset(store) >= UNITS_OF_FILE, "style %s: the queue goes on at %lld, it had %d promised messages",
              crash_style_name((enum crash_style)style), (long long)next_offset(store), UNITS_OF_FILE);
        CHECK(pymq_store_close(store) == PYMQ_OK, "close");
    }
    crash_image_free(image);
    message_model_close(&model);
    scratch_remove(root);
}

/* … and the file is not kept for ever: it goes as soon as the next one is durable. */
static void test_a_queue_file_goes_once_the_next_is_durable(void) {
    char path[PYMQ_PATH_MAX], file[PYMQ_PATH_MAX];
    struct pymq_store_config config;
    struct message_model model;
    scratch_make(path, sizeof path, "crash-retention");
    small_store_config(&config, PYMQ_ASYNC_FLUSH);
    config.log_file_size = config.log_window_size = 8192;
    config.queue_file_size = UNITS_OF_FILE * PYMQ_CQ_UNIT_SIZE;
    config.queue_flush_interval_ms = config.queue_flush_thorough_interval_ms = LAZY_MS;
    config.checkpoint_bytes_max = INT64_MAX;
    message_model_open(&model, 64, &config);
    struct pymq_store *store = small_store_open(path, &config);
    expire_all_but_the_newest(&model, store);
    CHECK(snprintf(file, sizeof file, "%.400s/consumequeue/%s/0/%020d", path, model_topic(TOPIC), 0) > 0, "path");
    CHECK(access(file, F_OK) == 0, "kept while it is the only durable one");
    CHECK(pymq_store_checkpoint(store) == PYMQ_OK, "checkpoint");
    CHECK(pymq_store_clean_queues(store) == 1, "one file goes");
    CHECK(access(file, F_OK) != 0, "gone");
    CHECK(pymq_store_close(store) == PYMQ_OK, "close");
    message_model_close(&model);
    scratch_remove(path);
}

int main(void) {
    test_a_power_cut_after_retention_starts_a_queue_at_zero_again();
    test_a_queue_file_goes_once_the_next_is_durable();
    printf("test_crash_retention: ok\n");
    return 0;
}
