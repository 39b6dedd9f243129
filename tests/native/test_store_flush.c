/* When bytes become durable: the interval's rules, the time-out of a slow disk, warm-up, and how far behind a
 * checkpoint may fall. Waits are for something to happen; only "it does not happen" has to rest on a short sleep. */
#include "store_help.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>

#include "pymq/io.h"

#define NOT_WITHIN_US 60000 /* many of the intervals below */

static int64_t flushed(struct pymq_store *store) {
    struct pymq_watermarks marks;
    pymq_store_watermarks(store, &marks);
    return marks.flushed;
}

static struct pymq_store_config interval_config(int32_t least_pages, int32_t thorough_ms) {
    struct pymq_store_config config = small_config();
    config.log_file_size = 256 * 1024;
    config.flush_interval_ms = 2;
    config.flush_least_pages = least_pages;
    config.flush_thorough_interval_ms = thorough_ms;
    return config;
}

static void test_few_dirty_pages_wait_for_the_thorough_interval(void) {
    const char *path = scratch("least");
    struct pymq_store_config config = interval_config(1000, 600000);
    struct pymq_store *store = open_or_die(path, &config);
    send_text(store, "f", 0, "less than a thousand pages");
    usleep(NOT_WITHIN_US);
    CHECK_EQ(flushed(store), 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);

    path = scratch("thorough");
    config = interval_config(1000, 20);
    store = open_or_die(path, &config);
    struct sent sent = send_text(store, "f", 0, "due all the same after the thorough interval");
    while (flushed(store) < sent.end_offset)
        usleep(1000);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_enough_dirty_pages_are_flushed_at_the_interval(void) {
    const char *path = scratch("pages");
    struct pymq_store_config config = interval_config(2, 600000);
    struct pymq_store *store = open_or_die(path, &config);
    static uint8_t body[4000];
    send_text(store, "f", 0, "within the first page: not yet");
    usleep(NOT_WITHIN_US);
    CHECK_EQ(flushed(store), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(send_record(store, "f", 0, (struct pymq_slice){body, sizeof body}, "", 0).status, PYMQ_OK);
    while (flushed(store) < 2 * 4096)
        usleep(1000);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* A disk that answers when it is told to. */
static _Atomic bool sync_stalls;

static int stalling_fdatasync(int fd) {
    while (atomic_load(&sync_stalls))
        usleep(500);
    return pymq_io_kernel.fdatasync(fd);
}

static void test_a_slow_flush_times_out_and_the_message_still_becomes_durable(void) {
    const char *path = scratch("slow");
    struct pymq_store_config config = small_config();
    config.flush_mode = PYMQ_SYNC_FLUSH;
    config.sync_flush_timeout_ms = 20;
    struct pymq_io io = pymq_io_kernel;
    io.fdatasync = stalling_fdatasync;
    pymq_io_use(&io);
    struct pymq_store *store = open_or_die(path, &config);
    atomic_store(&sync_stalls, true);
    struct sent sent = send_text(store, "slow", 0, "late");
    CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, -1), PYMQ_ETIMEDOUT);
    CHECK_EQ(info_of(store, "slow", 0).max_offset, 0);
    atomic_store(&sync_stalls, false);
    CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 20000), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    check_text(store, "slow", 0, 0, "late");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    pymq_io_use(NULL);
    scratch_end(path);
}

/* Warm-up writes zeros over the whole new file, so that a later flush has no unwritten extents to convert. */
static _Atomic int64_t log_bytes_written;

static ssize_t counting_pwrite(int fd, const void *source, size_t size, off_t offset) {
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    if (strstr(path, "/commitlog/") != NULL)
        atomic_fetch_add(&log_bytes_written, (int64_t)size);
    return pymq_io_kernel.pwrite(fd, source, size, offset);
}

static void test_warm_up_writes_the_whole_file_before_it_is_used(void) {
    for (int warm = 0; warm < 2; warm++) {
        const char *path = scratch("warm");
        struct pymq_store_config config = small_config();
        config.log_file_size = 256 * 1024;
        config.warm_file_enable = warm == 1;
        struct pymq_io io = pymq_io_kernel;
        io.pwrite = counting_pwrite;
        pymq_io_use(&io);
        atomic_store(&log_bytes_written, 0);
        struct pymq_store *store = open_or_die(path, &config);
        send_text(store, "warm", 0, "goes through the mapping");
        CHECK_EQ(atomic_load(&log_bytes_written), warm == 1 ? config.log_file_size : 0);
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        pymq_io_use(NULL);
        store = open_or_die(path, &config);
        check_text(store, "warm", 0, 0, "goes through the mapping");
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        scratch_end(path);
    }
}

/* The walk after a kill is bounded by bytes, also when the checkpoint's interval is far away. */
static void test_a_checkpoint_follows_after_so_many_bytes_of_log(void) {
    const char *path = scratch("bytes");
    struct pymq_store_config config = small_config();
    config.queue_flush_interval_ms = 600000;
    config.queue_flush_thorough_interval_ms = 600000;
    config.checkpoint_bytes_max = 20000;
    struct pymq_store *store = open_or_die(path, &config);
    char checkpoint[1024];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", path);
    struct sent sent;
    for (int i = 0; i < 100; i++)
        sent = send_text(store, "bytes", 0, "some two hundred bytes of record each, give or take a few of them ....");
    CHECK(sent.end_offset < config.checkpoint_bytes_max);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    usleep(NOT_WITHIN_US);
    CHECK(access(checkpoint, F_OK) != 0);
    for (int i = 0; i < 100; i++)
        send_text(store, "bytes", 0, "some two hundred bytes of record each, give or take a few of them ....");
    while (access(checkpoint, F_OK) != 0)
        usleep(1000);
    pymq_store_abandon(store);
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "bytes", 0).max_offset, 200);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Slices of any size leave no dirty queue behind. */
static _Atomic int queue_syncs;

static int counting_fdatasync(int fd) {
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    path[size > 0 ? size : 0] = '\0';
    atomic_fetch_add(&queue_syncs, strstr(path, "/consumequeue/") != NULL);
    return pymq_io_kernel.fdatasync(fd);
}

static void test_slices_flush_every_dirty_queue_once(void) {
    for (int32_t slice = 1; slice <= 64; slice *= 4) {
        const char *path = scratch("slices");
        struct pymq_store_config config = small_config();
        config.queue_flush_slice = slice;
        config.queue_flush_interval_ms = 600000;
        struct pymq_io io = pymq_io_kernel;
        io.fdatasync = counting_fdatasync;
        pymq_io_use(&io);
        struct pymq_store *store = open_or_die(path, &config);
        for (int i = 0; i < 50; i++)
            send_text(store, "slices", i, "one each");
        CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
        atomic_store(&queue_syncs, 0);
        CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
        CHECK_EQ(atomic_load(&queue_syncs), 50);
        CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
        CHECK_EQ(atomic_load(&queue_syncs), 50); /* nothing was dirty any more */
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        pymq_io_use(NULL);
        scratch_end(path);
    }
}

/* Whether `fd` is a file below index/. */
static bool is_index(int fd) {
    char link[64], target[PYMQ_PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, target, sizeof target - 1) > 0 && strstr(target, "/index/") != NULL;
}

static int index_sync_fails(int fd) {
    if (!is_index(fd))
        return pymq_io_kernel.fdatasync(fd);
    errno = EIO;
    return -1;
}

/* No checkpoint is due; so many index files are full that the dispatcher has to sync them itself, and cannot. */
static void test_an_index_that_cannot_be_synced_ends_acknowledging_before_the_checkpoint(void) {
    const char *path = scratch("index");
    struct pymq_store_config config = interval_config(1, 20);
    struct pymq_io io = pymq_io_kernel;
    struct pymq_error error = {0};
    config.index_item_count = 3;
    config.queue_flush_interval_ms = config.queue_flush_thorough_interval_ms = 3600000;
    io.fdatasync = index_sync_fails;
    pymq_io_use(&io);
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent = {.status = PYMQ_OK};
    while (sent.status == PYMQ_OK) {
        sent = send_record(store, "f", 0, text("body"), "KEYS\1a b\2", 0);
        usleep(100); /* dispatch is another thread */
    }
    CHECK_EQ(sent.status, PYMQ_EFAILED);
    while (error.text[0] == '\0')
        pymq_store_failure(store, &error);
    CHECK(strstr(error.text, "/index: a sync failed") != NULL);
    CHECK(pymq_store_close(store) != PYMQ_OK);
    pymq_io_use(NULL);
    scratch_end(path);
}

int main(void) {
    RUN(test_few_dirty_pages_wait_for_the_thorough_interval);
    RUN(test_enough_dirty_pages_are_flushed_at_the_interval);
    RUN(test_a_slow_flush_times_out_and_the_message_still_becomes_durable);
    RUN(test_warm_up_writes_the_whole_file_before_it_is_used);
    RUN(test_a_checkpoint_follows_after_so_many_bytes_of_log);
    RUN(test_slices_flush_every_dirty_queue_once);
    RUN(test_an_index_that_cannot_be_synced_ends_acknowledging_before_the_checkpoint);
    return check_summary();
}
