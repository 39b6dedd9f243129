/* The store by itself: what is appended is found again, by every way of looking, through every way of stopping.
 * Files are tiny, so that a few hundred messages roll logs, queues and index many times. */
#include "store_help.h"

#include <errno.h>
#include <sys/mman.h>

#include "pymq/io.h"

static void fill_text(char *body, size_t size, int number) {
    snprintf(body, size, "message %d %0*d", number, number % 97, 0);
}

static void send_numbered(struct pymq_store *store, int from, int to) {
    for (int i = from; i < to; i++) {
        char body[256], properties[64];
        fill_text(body, sizeof body, i);
        snprintf(properties, sizeof properties, "KEYS\1k%d shared\2TAGS\1t%d\2", i, i % 3);
        struct sent sent = send_record(store, "numbers", i % 4, text(body), properties, 0);
        CHECK_EQ(sent.status, PYMQ_OK);
        CHECK_EQ(sent.queue_offset, i / 4);
        CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 5000), PYMQ_OK);
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
}

static void check_numbered(struct pymq_store *store, int from, int to) {
    for (int i = from; i < to; i++) {
        char body[256], key[32];
        int64_t offsets[4];
        struct pymq_cq_unit unit;
        fill_text(body, sizeof body, i);
        check_text(store, "numbers", i % 4, i / 4, body);
        CHECK_EQ(pymq_queue_units(store, queue_of(store, "numbers", i % 4), i / 4, &unit, 1), 1);
        snprintf(key, sizeof key, "k%d", i);
        CHECK_EQ(pymq_store_query(store, (const uint8_t *)"numbers", 7, (const uint8_t *)key, strlen(key), 0, INT64_MAX,
                                  offsets, 4),
                 1);
        CHECK_EQ(offsets[0], unit.physical_offset);
    }
    for (int queue = 0; queue < 4; queue++)
        CHECK_EQ(info_of(store, "numbers", queue).max_offset, (to - queue + 3) / 4);
}

static void run_lifecycle(const char *name, enum pymq_flush_mode mode, bool pool) {
    const char *path = scratch(name);
    struct pymq_store_config config = small_config();
    config.flush_mode = mode;
    config.transient_pool_enable = pool;
    struct pymq_store *store = open_or_die(path, &config);
    send_numbered(store, 0, 300);
    if (pool) /* an asynchronous acknowledgement comes from the pool; make it readable */
        CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    check_numbered(store, 0, 300);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);

    store = open_or_die(path, &config);
    struct pymq_store_stats stats;
    pymq_store_stats(store, &stats);
    CHECK(stats.recovered_clean);
    CHECK_EQ(stats.recovered_records, 0); /* a clean stop leaves nothing to walk */
    check_numbered(store, 0, 300);
    send_numbered(store, 300, 400);
    if (pool)
        CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    pymq_store_abandon(store);

    store = open_or_die(path, &config);
    pymq_store_stats(store, &stats);
    CHECK(!stats.recovered_clean);
    check_numbered(store, 0, 400);
    send_numbered(store, 400, 410);
    if (pool)
        CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    check_numbered(store, 0, 410);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_async_flush_keeps_messages_over_close_and_kill(void) {
    run_lifecycle("async", PYMQ_ASYNC_FLUSH, false);
}
static void test_sync_flush_keeps_messages_over_close_and_kill(void) { run_lifecycle("sync", PYMQ_SYNC_FLUSH, false); }
static void test_pool_with_async_flush_keeps_what_was_committed(void) {
    run_lifecycle("apool", PYMQ_ASYNC_FLUSH, true);
}
static void test_pool_with_sync_flush_commits_before_it_syncs(void) { run_lifecycle("spool", PYMQ_SYNC_FLUSH, true); }

/* A record may use all of a file but the eight bytes of the blank tail. */
static void test_a_record_fills_its_file_to_the_last_byte_but_eight(void) {
    const char *path = scratch("fill");
    struct pymq_store_config config = small_config();
    config.log_file_size = 2048;
    struct pymq_store *store = open_or_die(path, &config);
    static uint8_t body[2048];
    memset(body, 'x', sizeof body);
    uint32_t most = 2048 - 8 - PYMQ_RECORD_SIZE_MIN - 1;
    CHECK_EQ(send_record(store, "t", 0, (struct pymq_slice){body, most + 1}, "", 0).status, PYMQ_ETOOBIG);
    struct sent first = send_record(store, "t", 0, (struct pymq_slice){body, most}, "", 0);
    struct sent second = send_record(store, "t", 0, (struct pymq_slice){body, most - 1}, "", 0);
    CHECK_EQ(first.physical_offset, 0);
    CHECK_EQ(second.physical_offset, 2048);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK_EQ(read_body(store, "t", 0, 1, body, sizeof body), most - 1);
    pymq_store_abandon(store);
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "t", 0).max_offset, 2);
    CHECK_EQ(send_text(store, "t", 0, "third").physical_offset, 2048 * 2);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* A client batch is not split over two files, and is refused when no file can hold it. */
static void test_a_batch_stays_together_in_one_file(void) {
    const char *path = scratch("batch");
    struct pymq_store_config config = small_config();
    config.log_file_size = 1024;
    struct pymq_store *store = open_or_die(path, &config);
    static uint8_t some[250]; /* of the first file, so that the batch does not fit behind it */
    send_record(store, "b", 0, (struct pymq_slice){some, sizeof some}, "", 0);
    uint8_t records[5][256];
    struct pymq_append_item items[5];
    for (int i = 0; i < 5; i++) {
        struct pymq_record record = {
            .born_host = config.store_host, .store_host = config.store_host, .topic = text("b")};
        record.body = (struct pymq_slice){some, 70};
        ssize_t size = pymq_record_encode(&record, records[i], sizeof records[i]);
        items[i] =
            (struct pymq_append_item){.queue = queue_of(store, "b", 0), .record = records[i], .size = (uint32_t)size};
    }
    struct pymq_append_result result;
    CHECK_EQ(pymq_store_append(store, items, 5, PYMQ_APPEND_TOGETHER, &result), PYMQ_OK);
    CHECK_EQ(result.appended, 5);
    CHECK_EQ(items[0].physical_offset, 1024);
    CHECK_EQ(items[4].physical_offset / 1024, 1);
    CHECK_EQ(items[4].queue_offset, 5);
    struct pymq_append_item many[8];
    for (int i = 0; i < 8; i++)
        many[i] = items[i % 5];
    CHECK_EQ(pymq_store_append(store, many, 8, PYMQ_APPEND_TOGETHER, &result), PYMQ_ETOOBIG);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Address space that runs out in the middle of a batch: all of it or none. */
static int maps_left = -1;

static void *counting_mmap(size_t size, int protection, int fd, off_t offset) {
    if (maps_left == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    maps_left -= maps_left > 0;
    return pymq_io_kernel.mmap(size, protection, fd, offset);
}

static void test_a_batch_that_cannot_be_completed_is_taken_back(void) {
    const char *path = scratch("takeback");
    struct pymq_store_config config = small_config();
    config.log_file_size = 256 * 1024;
    config.prefault_size = 0;
    struct pymq_io io = pymq_io_kernel;
    io.mmap = counting_mmap;
    pymq_io_use(&io);
    struct pymq_store *store = open_or_die(path, &config);
    send_text(store, "b", 0, "before");
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    static uint8_t body[1000], records[60][1200];
    struct pymq_append_item items[60];
    for (int i = 0; i < 60; i++) {
        struct pymq_record record = {.born_host = config.store_host, .store_host = config.store_host};
        record.topic = text("b");
        record.body = (struct pymq_slice){body, sizeof body};
        ssize_t size = pymq_record_encode(&record, records[i], sizeof records[i]);
        items[i] =
            (struct pymq_append_item){.queue = queue_of(store, "b", 0), .record = records[i], .size = (uint32_t)size};
    }
    struct pymq_append_result result;
    struct pymq_watermarks before, after;
    pymq_store_watermarks(store, &before);
    maps_left = 3;
    CHECK(pymq_store_append(store, items, 60, PYMQ_APPEND_TOGETHER, &result) < 0);
    CHECK_EQ(result.appended, 0);
    maps_left = -1;
    pymq_store_watermarks(store, &after);
    CHECK_EQ(after.written, before.written);
    CHECK_EQ(send_text(store, "b", 0, "after").queue_offset, 1);
    CHECK_EQ(pymq_store_append(store, items, 60, PYMQ_APPEND_TOGETHER, &result), PYMQ_OK);
    CHECK_EQ(items[59].queue_offset, 61);
    pymq_store_abandon(store);
    pymq_io_use(NULL);
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "b", 0).max_offset, 62);
    check_text(store, "b", 0, 1, "after");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Half messages and rollbacks are in the log, take no queue offset, and no unit points to them. */
static void test_prepared_and_rollback_records_do_not_advance_their_queue(void) {
    const char *path = scratch("half");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    CHECK_EQ(send_record(store, "h", 0, text("one"), "", 0).queue_offset, 0);
    CHECK_EQ(send_record(store, "h", 0, text("half"), "", PYMQ_SYS_TRANSACTION_PREPARED).queue_offset, 0);
    CHECK_EQ(send_record(store, "h", 0, text("back"), "", PYMQ_SYS_TRANSACTION_ROLLBACK).queue_offset, 0);
    CHECK_EQ(send_record(store, "h", 0, text("two"), "", PYMQ_SYS_TRANSACTION_COMMIT).queue_offset, 1);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    check_text(store, "h", 0, 1, "two");
    CHECK_EQ(info_of(store, "h", 0).max_offset, 2);
    pymq_store_abandon(store);
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "h", 0).max_offset, 2);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* "Aa" and "BB" have one Java hash; a query must look at the message. */
static void test_a_hash_collision_never_returns_another_message(void) {
    const char *path = scratch("collide");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    send_record(store, "c", 0, text("a"), "KEYS\1Aa\2", 0);
    send_record(store, "c", 0, text("b"), "KEYS\1BB\2UNIQ_KEY\1u1\2", 0);
    send_record(store, "d", 0, text("other topic"), "KEYS\1Aa\2", 0);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    int64_t offsets[8];
    CHECK_EQ(pymq_store_query(store, (const uint8_t *)"c", 1, (const uint8_t *)"Aa", 2, 0, INT64_MAX, offsets, 8), 1);
    CHECK_EQ(offsets[0], 0);
    CHECK_EQ(pymq_store_query(store, (const uint8_t *)"c", 1, (const uint8_t *)"BB", 2, 0, INT64_MAX, offsets, 8), 1);
    CHECK_EQ(pymq_store_query(store, (const uint8_t *)"c", 1, (const uint8_t *)"u1", 2, 0, INT64_MAX, offsets, 8), 1);
    CHECK_EQ(pymq_store_query(store, (const uint8_t *)"c", 1, (const uint8_t *)"C#", 2, 0, INT64_MAX, offsets, 8), 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* The filter by tag code returns what a plain scan would, with the offset to go on from. */
static void test_units_by_tag_equal_a_plain_scan(void) {
    const char *path = scratch("tags");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    for (int i = 0; i < 100; i++) {
        char properties[32];
        snprintf(properties, sizeof properties, "TAGS\1tag%d\2", i % 7);
        CHECK_EQ(send_record(store, "f", 0, text("x"), properties, 0).status, PYMQ_OK);
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    struct pymq_queue *queue = queue_of(store, "f", 0);
    struct pymq_cq_unit all[100], some[100];
    int64_t offsets[100], next;
    CHECK_EQ(pymq_queue_units(store, queue, 0, all, 100), 100);
    int64_t hashes[2] = {all[3].tags_code, all[5].tags_code};
    ssize_t found = pymq_queue_units_by_tag(store, queue, 0, hashes, 2, some, offsets, 100, &next);
    ssize_t expected = 0;
    for (int i = 0; i < 100; i++) {
        if (i % 7 == 3 || i % 7 == 5)
            CHECK_EQ(offsets[expected++], i);
    }
    CHECK_EQ(found, expected);
    CHECK_EQ(next, 100);
    CHECK_EQ(pymq_queue_units_by_tag(store, queue, 0, hashes, 2, some, offsets, 3, &next), 3);
    CHECK_EQ(next, offsets[2] + 1);
    CHECK_EQ(pymq_queue_units(store, queue, 100, all, 1), 0);
    CHECK_EQ(pymq_queue_units(store, queue, 101, all, 1), PYMQ_ENOTFOUND);
    CHECK_EQ(pymq_queue_units(store, queue, -1, all, 1), PYMQ_ENOTFOUND);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* In the delay topic the unit's tag field is the delivery time. */
static void test_the_delay_topic_keeps_the_delivery_time(void) {
    const char *path = scratch("delay");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent = send_record(store, "SCHEDULE_TOPIC_XXXX", 2, text("later"), "DELAY\0013\2TAGS\1a\2", 0);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    struct pymq_cq_unit unit;
    CHECK_EQ(pymq_queue_units(store, queue_of(store, "SCHEDULE_TOPIC_XXXX", 2), 0, &unit, 1), 1);
    CHECK_EQ(unit.tags_code, sent.timestamp_ms + 10000);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static int64_t by_time_slowly(const int64_t *times, int64_t count, int64_t when, bool upper) {
    int64_t answer = upper ? 0 : count;
    for (int64_t i = 0; i < count; i++) {
        if (upper && times[i] <= when)
            answer = i;
        if (!upper && times[i] >= when)
            return i;
    }
    return answer;
}

static void test_look_up_by_time_equals_a_linear_search(void) {
    const char *path = scratch("time");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    int64_t times[60];
    for (int i = 0; i < 60; i++) {
        times[i] = send_text(store, "w", 0, "tick").timestamp_ms;
        if (i % 5 == 4)
            usleep(3000);
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    struct pymq_queue *queue = queue_of(store, "w", 0);
    for (int64_t when = times[0] - 2; when <= times[59] + 2; when++) {
        CHECK_EQ(pymq_queue_offset_by_time(store, queue, when, PYMQ_BOUNDARY_LOWER),
                 by_time_slowly(times, 60, when, false));
        CHECK_EQ(pymq_queue_offset_by_time(store, queue, when, PYMQ_BOUNDARY_UPPER),
                 by_time_slowly(times, 60, when, true));
    }
    CHECK_EQ(pymq_queue_offset_by_time(store, queue_of(store, "empty", 0), 5, PYMQ_BOUNDARY_LOWER), 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

int main(void) {
    RUN(test_async_flush_keeps_messages_over_close_and_kill);
    RUN(test_sync_flush_keeps_messages_over_close_and_kill);
    RUN(test_pool_with_async_flush_keeps_what_was_committed);
    RUN(test_pool_with_sync_flush_commits_before_it_syncs);
    RUN(test_a_record_fills_its_file_to_the_last_byte_but_eight);
    RUN(test_a_batch_stays_together_in_one_file);
    RUN(test_a_batch_that_cannot_be_completed_is_taken_back);
    RUN(test_prepared_and_rollback_records_do_not_advance_their_queue);
    RUN(test_a_hash_collision_never_returns_another_message);
    RUN(test_units_by_tag_equal_a_plain_scan);
    RUN(test_the_delay_topic_keeps_the_delivery_time);
    RUN(test_look_up_by_time_equals_a_linear_search);
    return check_summary();
}
