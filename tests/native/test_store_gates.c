/* Acknowledgement and visibility: which watermarks they wait for, who is told, and who is refused. */
#include "store_help.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "pymq/io.h"

static struct pymq_watermarks marks_of(struct pymq_store *store) {
    struct pymq_watermarks marks;
    pymq_store_watermarks(store, &marks);
    return marks;
}

/* The replica watermark, fed by hand as replication will feed it. */
static void test_the_replica_gate_holds_acknowledgement_and_visibility(void) {
    for (int mode = 0; mode < 2; mode++) {
        const char *path = scratch("replica");
        struct pymq_store_config config = small_config();
        config.flush_mode = mode == 0 ? PYMQ_ASYNC_FLUSH : PYMQ_SYNC_FLUSH;
        config.replica_gate = true;
        struct pymq_store *store = open_or_die(path, &config);
        pymq_store_set_replica(store, 0, true);
        struct sent first = send_text(store, "g", 0, "one"), second = send_text(store, "g", 0, "two");
        CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
        CHECK_EQ(pymq_store_wait_acknowledged(store, first.end_offset, 20), PYMQ_ETIMEDOUT);
        CHECK_EQ(info_of(store, "g", 0).max_offset, 0);
        pymq_store_set_replica(store, first.end_offset, true);
        CHECK_EQ(pymq_store_wait_acknowledged(store, first.end_offset, 5000), PYMQ_OK);
        CHECK_EQ(pymq_store_poll_acknowledged(store, second.end_offset), PYMQ_ETIMEDOUT);
        CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
        CHECK_EQ(info_of(store, "g", 0).max_offset, 1);
        struct pymq_span span;
        CHECK_EQ(pymq_store_record(store, second.physical_offset, 0, &span), PYMQ_ENOTFOUND);
        /* A late, lower report moves nothing back. */
        pymq_store_set_replica(store, 0, true);
        CHECK_EQ(marks_of(store).visible, first.end_offset);
        /* No replica in sync any more: the local gate decides. */
        pymq_store_set_replica(store, 0, false);
        CHECK_EQ(pymq_store_wait_acknowledged(store, second.end_offset, 5000), PYMQ_OK);
        CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
        check_text(store, "g", 0, 1, "two");
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        scratch_end(path);
    }
}

/* apache/rocketmq#8239: with SYNC_FLUSH consumers saw what was not durable yet. */
static void test_sync_flush_shows_nothing_that_is_not_flushed(void) {
    const char *path = scratch("unflushed");
    struct pymq_store_config config = small_config();
    config.flush_mode = PYMQ_SYNC_FLUSH;
    struct pymq_store *store = open_or_die(path, &config);
    for (int i = 0; i < 50; i++) {
        struct sent sent = send_text(store, "s", 0, "x");
        struct pymq_watermarks marks = marks_of(store);
        CHECK(marks.visible <= marks.flushed && marks.dispatched <= marks.visible);
        CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 5000), PYMQ_OK);
        CHECK(marks_of(store).flushed >= sent.end_offset);
    }
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* apache/rocketmq#2098: with the pool, what is not committed is not readable; the acknowledgement does not wait. */
static void test_the_pool_shows_only_what_is_committed(void) {
    const char *path = scratch("pool");
    struct pymq_store_config config = small_config();
    config.transient_pool_enable = true;
    config.commit_interval_ms = 60000;
    config.commit_thorough_interval_ms = 60000;
    config.commit_least_pages = 1000;
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent = send_text(store, "p", 0, "in the pool");
    CHECK_EQ(pymq_store_poll_acknowledged(store, sent.end_offset), PYMQ_OK);
    struct pymq_watermarks marks = marks_of(store);
    CHECK_EQ(marks.written, sent.end_offset);
    CHECK_EQ(marks.committed, 0);
    CHECK_EQ(marks.visible, 0);
    struct pymq_span span;
    CHECK_EQ(pymq_store_record(store, sent.physical_offset, 0, &span), PYMQ_ENOTFOUND);
    CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    check_text(store, "p", 0, 0, "in the pool");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* What only the pool held is what a kill may cost with ASYNC_FLUSH; what was committed stays. */
static void test_a_kill_loses_only_what_the_pool_held(void) {
    const char *path = scratch("poolkill");
    struct pymq_store_config config = small_config();
    config.transient_pool_enable = true;
    config.commit_interval_ms = 60000;
    config.commit_thorough_interval_ms = 60000;
    config.commit_least_pages = 1000;
    struct pymq_store *store = open_or_die(path, &config);
    send_text(store, "p", 0, "committed");
    CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    send_text(store, "p", 0, "in the pool");
    pymq_store_abandon(store);
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "p", 0).max_offset, 1);
    check_text(store, "p", 0, 0, "committed");
    CHECK_EQ(send_text(store, "p", 0, "again").queue_offset, 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* A disk that takes nothing: pwrite, by which buffers are committed, fails until `disk_works`. */
static _Atomic bool disk_works;

static ssize_t failing_pwrite(int fd, const void *source, size_t size, off_t offset) {
    if (!atomic_load(&disk_works) && size > 8) { /* the abort file's few bytes may pass */
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, source, size, offset);
}

/* No buffer comes back while nothing can be committed: the put is refused after the wait, and goes on afterwards. */
static void test_an_exhausted_pool_refuses_and_recovers(void) {
    const char *path = scratch("exhausted");
    struct pymq_store_config config = small_config();
    config.log_file_size = 2048;
    config.transient_pool_enable = true;
    config.transient_pool_size = 3;
    config.transient_pool_wait_ms = 5;
    struct pymq_io io = pymq_io_kernel;
    io.pwrite = failing_pwrite;
    pymq_io_use(&io);
    struct pymq_store *store = open_or_die(path, &config);
    static uint8_t body[900];
    struct sent sent;
    int count = 0;
    do {
        sent = send_record(store, "e", 0, (struct pymq_slice){body, sizeof body}, "", 0);
        count += sent.status == PYMQ_OK;
        CHECK(count < 20);
    } while (sent.status == PYMQ_OK);
    CHECK_EQ(sent.status, PYMQ_EPOOL);
    CHECK(count >= 3);
    struct pymq_store_stats stats;
    pymq_store_stats(store, &stats);
    CHECK_EQ(stats.pool_size, 3);
    CHECK_EQ(stats.pool_free, 0);
    CHECK_EQ(stats.failed_status, PYMQ_OK);
    atomic_store(&disk_works, true);
    CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(send_record(store, "e", 0, (struct pymq_slice){body, sizeof body}, "", 0).status, PYMQ_OK);
    CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK_EQ(info_of(store, "e", 0).max_offset, count + 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    pymq_io_use(NULL);
    scratch_end(path);
}

/* Seen once: a put that found no buffer at a file's end made the allocator go on with the file after the next. */
static void test_puts_that_wait_for_a_buffer_skip_no_file(void) {
    const char *path = scratch("waits");
    struct pymq_store_config config = small_config();
    config.log_file_size = 2048;
    config.transient_pool_enable = true;
    config.transient_pool_size = 2;
    config.transient_pool_wait_ms = 20000;
    config.commit_interval_ms = 2;
    struct pymq_store *store = open_or_die(path, &config);
    static uint8_t body[900];
    int64_t end = 0;
    for (int i = 0; i < 100; i++) {
        struct sent sent = send_record(store, "e", 0, (struct pymq_slice){body, sizeof body}, "", 0);
        CHECK_EQ(sent.status, PYMQ_OK);
        CHECK(sent.physical_offset - end < 2048);
        end = sent.end_offset;
    }
    CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK_EQ(info_of(store, "e", 0).max_offset, 100);
    CHECK_EQ(pymq_store_log_files(store, NULL, 0), end / 2048 + 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_listeners_are_told_of_flushes_and_arrivals(void) {
    const char *path = scratch("listen");
    struct pymq_store_config config = small_config();
    config.flush_mode = PYMQ_SYNC_FLUSH;
    struct pymq_store *store = open_or_die(path, &config);
    int acknowledged = eventfd(0, EFD_NONBLOCK), arrived = eventfd(0, EFD_NONBLOCK);
    CHECK_EQ(pymq_store_listen(store, acknowledged, PYMQ_EVENT_ACKNOWLEDGED), PYMQ_OK);
    CHECK_EQ(pymq_store_listen(store, arrived, PYMQ_EVENT_ARRIVAL), PYMQ_OK);
    struct sent sent = send_text(store, "l", 0, "x");
    CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 5000), PYMQ_OK);
    CHECK_EQ(pymq_queue_wait(store, queue_of(store, "l", 0), 0, 5000), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    usleep(1000);
    uint64_t value;
    CHECK_EQ(read(acknowledged, &value, sizeof value), sizeof value);
    CHECK_EQ(read(arrived, &value, sizeof value), sizeof value);
    pymq_store_unlisten(store, arrived);
    sent = send_text(store, "l", 0, "y");
    CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 5000), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK(read(arrived, &value, sizeof value) < 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    close(acknowledged);
    close(arrived);
    scratch_end(path);
}

static void test_listeners_are_bounded(void) {
    const char *path = scratch("bounded");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    int fd = eventfd(0, EFD_NONBLOCK);
    for (int i = 0; i < 64; i++)
        CHECK_EQ(pymq_store_listen(store, fd, PYMQ_EVENT_ARRIVAL), PYMQ_OK);
    CHECK_EQ(pymq_store_listen(store, fd, PYMQ_EVENT_ARRIVAL), PYMQ_EINVAL);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    close(fd);
    scratch_end(path);
}

/* A disk that is slow to allocate holds up whoever needs the next file, and with him the append lock. */
static _Atomic bool allocation_stalls;

static int stalling_fallocate(int fd, off_t offset, off_t size) {
    while (atomic_load(&allocation_stalls))
        usleep(1000);
    return posix_fallocate(fd, offset, size);
}

static void *send_over_the_edge(void *context) {
    static uint8_t body[1500];
    CHECK_EQ(send_record(context, "busy", 0, (struct pymq_slice){body, sizeof body}, "", 0).status, PYMQ_OK);
    return NULL;
}

static void test_a_lock_held_too_long_shows_as_page_cache_busy(void) {
    const char *path = scratch("busy");
    struct pymq_store_config config = small_config();
    config.log_file_size = 2048;
    config.page_cache_busy_ms = 20;
    struct pymq_io io = pymq_io_kernel;
    io.fallocate = stalling_fallocate;
    pymq_io_use(&io);
    struct pymq_store *store = open_or_die(path, &config);
    struct pymq_store_stats stats;
    static uint8_t small[600]; /* not yet half of the first file, so that no second one is made ahead */
    CHECK_EQ(send_record(store, "busy", 0, (struct pymq_slice){small, sizeof small}, "", 0).status, PYMQ_OK);
    pymq_store_stats(store, &stats);
    CHECK(!stats.page_cache_busy);
    atomic_store(&allocation_stalls, true);
    pthread_t sender;
    CHECK_EQ(pthread_create(&sender, NULL, send_over_the_edge, store), 0);
    do {
        usleep(1000);
        pymq_store_stats(store, &stats);
    } while (!stats.page_cache_busy);
    atomic_store(&allocation_stalls, false);
    pthread_join(sender, NULL);
    pymq_store_stats(store, &stats);
    CHECK(!stats.page_cache_busy);
    CHECK(stats.lock_hold_us_max >= 20000);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    pymq_io_use(NULL);
    scratch_end(path);
}

static void test_refused_writes_lose_nothing_and_come_back(void) {
    const char *path = scratch("readonly");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    send_text(store, "w", 0, "before");
    pymq_store_set_writable(store, false);
    CHECK(!pymq_store_is_writable(store));
    CHECK_EQ(send_record(store, "w", 0, text("no"), "", 0).status, PYMQ_EREADONLY);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    check_text(store, "w", 0, 0, "before");
    pymq_store_set_writable(store, true);
    CHECK_EQ(send_text(store, "w", 0, "after").queue_offset, 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void *wait_in_vain(void *context) {
    struct pymq_store *store = context;
    CHECK_EQ(pymq_queue_wait(store, queue_of(store, "never", 0), 5, -1), PYMQ_ECLOSED);
    return NULL;
}

static void test_close_wakes_those_who_wait(void) {
    const char *path = scratch("wake");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    CHECK_EQ(pymq_queue_wait(store, queue_of(store, "never", 0), 0, 5), PYMQ_ETIMEDOUT);
    pthread_t waiter;
    CHECK_EQ(pthread_create(&waiter, NULL, wait_in_vain, store), 0);
    usleep(20000);
    CHECK_EQ(pymq_store_shut(store), PYMQ_OK);
    pthread_join(waiter, NULL);
    CHECK_EQ(send_record(store, "w", 0, text("no"), "", 0).status, PYMQ_ECLOSED);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

int main(void) {
    RUN(test_the_replica_gate_holds_acknowledgement_and_visibility);
    RUN(test_sync_flush_shows_nothing_that_is_not_flushed);
    RUN(test_the_pool_shows_only_what_is_committed);
    RUN(test_a_kill_loses_only_what_the_pool_held);
    RUN(test_an_exhausted_pool_refuses_and_recovers);
    RUN(test_puts_that_wait_for_a_buffer_skip_no_file);
    RUN(test_listeners_are_told_of_flushes_and_arrivals);
    RUN(test_listeners_are_bounded);
    RUN(test_a_lock_held_too_long_shows_as_page_cache_busy);
    RUN(test_refused_writes_lose_nothing_and_come_back);
    RUN(test_close_wakes_those_who_wait);
    return check_summary();
}
