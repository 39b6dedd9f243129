/* Many threads on one store: appenders, readers, a tail, retention. Order per queue is the order of append, nothing is
 * lost or doubled, and ThreadSanitizer has nothing to say. */
#include "store_help.h"

#include <pthread.h>
#include <stdatomic.h>

#define APPENDERS 4
#define MESSAGES 400 /* per appender */

struct shared {
    struct pymq_store *store;
    _Atomic int number;
    _Atomic bool done;
    bool wait;
};

/* Each appender has a queue of its own and sends its numbers in order. */
static void *append(void *context) {
    struct shared *shared = context;
    int queue_id = atomic_fetch_add(&shared->number, 1);
    for (int i = 0; i < MESSAGES; i++) {
        char body[64];
        snprintf(body, sizeof body, "%d-%d", queue_id, i);
        struct sent sent = send_record(shared->store, "threads", queue_id, text(body), "KEYS\1one\2", 0);
        CHECK_EQ(sent.status, PYMQ_OK);
        CHECK_EQ(sent.queue_offset, i);
        if (shared->wait)
            CHECK_EQ(pymq_store_wait_acknowledged(shared->store, sent.end_offset, 20000), PYMQ_OK);
    }
    return NULL;
}

/* Follows one queue by waiting for each message; after an acknowledgement nobody may wait in vain. */
static void *tail(void *context) {
    struct shared *shared = context;
    struct pymq_queue *queue = queue_of(shared->store, "threads", 0);
    for (int i = 0; i < MESSAGES; i++) {
        char body[64];
        CHECK_EQ(pymq_queue_wait(shared->store, queue, i, 20000), PYMQ_OK);
        snprintf(body, sizeof body, "0-%d", i);
        check_text(shared->store, "threads", 0, i, body);
    }
    return NULL;
}

/* Reads whatever is there, in every way, while it changes. */
static void *read_around(void *context) {
    struct shared *shared = context;
    while (!atomic_load(&shared->done)) {
        for (int queue_id = 0; queue_id < APPENDERS; queue_id++) {
            struct pymq_queue_info info = info_of(shared->store, "threads", queue_id);
            if (info.max_offset == info.min_offset)
                continue;
            char expected[64];
            int64_t offset = info.max_offset - 1;
            snprintf(expected, sizeof expected, "%d-%d", queue_id, (int)offset);
            check_text(shared->store, "threads", queue_id, offset, expected);
            int64_t found[4];
            CHECK(pymq_store_query(shared->store, (const uint8_t *)"threads", 7, (const uint8_t *)"one", 3, 0,
                                   INT64_MAX, found, 4) >= 0);
            CHECK(pymq_queue_offset_by_time(shared->store, queue_of(shared->store, "threads", queue_id), 0,
                                            PYMQ_BOUNDARY_LOWER) >= 0);
        }
        struct pymq_store_stats stats;
        struct pymq_watermarks marks;
        pymq_store_stats(shared->store, &stats);
        pymq_store_watermarks(shared->store, &marks);
        CHECK(marks.dispatched <= marks.visible && marks.visible <= marks.written);
    }
    return NULL;
}

static void run_threads(const char *name, enum pymq_flush_mode mode, bool pool) {
    const char *path = scratch(name);
    struct pymq_store_config config = small_config();
    config.flush_mode = mode;
    config.transient_pool_enable = pool;
    config.transient_pool_wait_ms = 20000;
    config.log_file_size = 32 * 1024;
    config.queue_flush_interval_ms = 1;
    config.queue_flush_thorough_interval_ms = 3;
    config.flush_interval_ms = 1;
    struct shared shared = {.store = open_or_die(path, &config), .wait = mode == PYMQ_SYNC_FLUSH};
    pthread_t appenders[APPENDERS], readers[2];
    CHECK_EQ(pthread_create(&readers[0], NULL, tail, &shared), 0);
    CHECK_EQ(pthread_create(&readers[1], NULL, read_around, &shared), 0);
    for (int i = 0; i < APPENDERS; i++)
        CHECK_EQ(pthread_create(&appenders[i], NULL, append, &shared), 0);
    for (int i = 0; i < APPENDERS; i++)
        pthread_join(appenders[i], NULL);
    pthread_join(readers[0], NULL);
    atomic_store(&shared.done, true);
    pthread_join(readers[1], NULL);
    CHECK_EQ(pymq_store_flush(shared.store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(shared.store, 20000), PYMQ_OK);
    CHECK_EQ(pymq_store_close(shared.store), PYMQ_OK);

    shared.store = open_or_die(path, &config);
    for (int queue_id = 0; queue_id < APPENDERS; queue_id++) {
        CHECK_EQ(info_of(shared.store, "threads", queue_id).max_offset, MESSAGES);
        for (int i = 0; i < MESSAGES; i++) {
            char body[64];
            snprintf(body, sizeof body, "%d-%d", queue_id, i);
            check_text(shared.store, "threads", queue_id, i, body);
        }
    }
    CHECK_EQ(pymq_store_close(shared.store), PYMQ_OK);
    scratch_end(path);
}

static void test_threads_keep_order_and_lose_nothing_async(void) { run_threads("tasync", PYMQ_ASYNC_FLUSH, false); }
static void test_threads_keep_order_and_lose_nothing_sync(void) { run_threads("tsync", PYMQ_SYNC_FLUSH, false); }
static void test_threads_keep_order_and_lose_nothing_pooled(void) { run_threads("tpool", PYMQ_ASYNC_FLUSH, true); }

/* Retention removes files under readers: they see a message or its absence, and spans they hold stay readable. */
static void *remove_oldest(void *context) {
    struct shared *shared = context;
    while (!atomic_load(&shared->done)) {
        struct pymq_log_file_info removed;
        int status = pymq_store_remove_oldest(shared->store, &removed);
        CHECK(status == PYMQ_OK || status == PYMQ_ENOTFOUND);
        CHECK(pymq_store_clean_queues(shared->store) >= 0);
        usleep(500);
    }
    return NULL;
}

static void test_retention_beside_readers_takes_no_memory_from_them(void) {
    const char *path = scratch("retain");
    struct pymq_store_config config = small_config();
    config.flush_interval_ms = 1;
    config.flush_least_pages = 0;
    struct shared shared = {.store = open_or_die(path, &config)};
    pthread_t remover;
    struct pymq_span held[64];
    size_t held_count = 0;
    CHECK_EQ(pthread_create(&remover, NULL, remove_oldest, &shared), 0);
    for (int i = 0; i < 2000; i++) {
        struct sent sent = send_text(shared.store, "r", 0, "a message of some length, to be removed soon");
        if (held_count < 64 && pymq_store_record(shared.store, sent.physical_offset, 0, &held[held_count]) == PYMQ_OK)
            held_count++;
    }
    CHECK_EQ(pymq_store_flush(shared.store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(shared.store, 20000), PYMQ_OK);
    usleep(20000);
    atomic_store(&shared.done, true);
    pthread_join(remover, NULL);
    CHECK_EQ(held_count, 64);
    for (size_t i = 0; i < held_count; i++) {
        struct pymq_record record;
        CHECK(pymq_record_decode(held[i].data, held[i].size, PYMQ_CHECK_BODY_CRC, 0, &record) > 0);
        pymq_span_release(shared.store, &held[i]);
    }
    CHECK(pymq_store_clean_queues(shared.store) >= 0);
    struct pymq_queue_info info = info_of(shared.store, "r", 0);
    CHECK_EQ(info.max_offset, 2000);
    CHECK(info.min_offset > 0);
    check_text(shared.store, "r", 0, info.min_offset, "a message of some length, to be removed soon");
    struct pymq_cq_unit unit;
    CHECK_EQ(pymq_queue_units(shared.store, queue_of(shared.store, "r", 0), info.min_offset - 1, &unit, 1),
             PYMQ_ENOTFOUND);
    CHECK_EQ(pymq_store_close(shared.store), PYMQ_OK);

    struct pymq_store *store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "r", 0).min_offset, info.min_offset);
    CHECK_EQ(info_of(store, "r", 0).max_offset, 2000);
    CHECK_EQ(send_text(store, "r", 0, "goes on").queue_offset, 2000);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

int main(void) {
    RUN(test_threads_keep_order_and_lose_nothing_async);
    RUN(test_threads_keep_order_and_lose_nothing_sync);
    RUN(test_threads_keep_order_and_lose_nothing_pooled);
    RUN(test_retention_beside_readers_takes_no_memory_from_them);
    return check_summary();
}
