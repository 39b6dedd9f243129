/* Opening: what is refused and in which words, what is repaired, and what a store costs while it is open. */
#include "store_help.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

static char refused_text[PYMQ_ERROR_TEXT_MAX];

/* The status with which open refuses; the words are in refused_text. */
static int refused(const char *path, const struct pymq_store_config *config) {
    struct pymq_store *store;
    struct pymq_error error;
    int status = pymq_store_open(path, config, &store, &error);
    CHECK(status < 0 && store == NULL);
    CHECK_EQ(error.status, status);
    memcpy(refused_text, error.text, sizeof refused_text);
    return status;
}

static void write_file(const char *directory, const char *name, const void *bytes, size_t size) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, bytes, size), size);
    close(fd);
}

static void fill_store(const char *path, const struct pymq_store_config *config, int count) {
    struct pymq_store *store = open_or_die(path, config);
    for (int i = 0; i < count; i++)
        send_record(store, "open", i % 3, text("some message body"), "KEYS\1k\2", 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
}

static void test_a_second_open_is_refused_with_the_lock_named(void) {
    const char *path = scratch("lock");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    CHECK_EQ(refused(path, &config), PYMQ_ELOCKED);
    CHECK(strstr(refused_text, "/lock") != NULL && strstr(refused_text, "this process") != NULL);
    send_text(store, "t", 0, "the first handle goes on");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "t", 0).max_offset, 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_other_file_sizes_are_refused_by_name(void) {
    const char *path = scratch("sizes");
    struct pymq_store_config config = small_config();
    fill_store(path, &config, 100);
    struct pymq_store_config other = config;
    other.log_file_size = config.log_file_size * 2;
    CHECK_EQ(refused(path, &other), PYMQ_EMISMATCH);
    CHECK(strstr(refused_text, "mappedFileSizeCommitLog") != NULL && strstr(refused_text, "8209") != NULL);
    other = config;
    other.queue_file_size = 20 * 9;
    CHECK_EQ(refused(path, &other), PYMQ_EMISMATCH);
    CHECK(strstr(refused_text, "mappedFileSizeConsumeQueue") != NULL);
    other = config;
    other.index_item_count++;
    CHECK_EQ(refused(path, &other), PYMQ_EMISMATCH);
    struct pymq_store *store = open_or_die(path, &config); /* a refusal has changed nothing */
    CHECK_EQ(info_of(store, "open", 0).max_offset, 34);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_a_missing_log_file_is_refused(void) {
    const char *path = scratch("gap");
    struct pymq_store_config config = small_config();
    fill_store(path, &config, 300);
    char second[1024];
    snprintf(second, sizeof second, "%s/commitlog/%020d", path, 8209);
    CHECK_EQ(unlink(second), 0);
    CHECK_EQ(refused(path, &config), PYMQ_EMISMATCH);
    CHECK(strstr(refused_text, "several paths") != NULL);
    scratch_end(path);
}

static void test_what_we_do_not_read_is_refused_by_name(void) {
    static const char *const foreign[] = {"consumequeue_rocksdb/000012.sst",
                                          "batchconsumequeue/t/0/00000000000000000000",
                                          "consumequeue_ext/t/0/00000000000000000000"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        const char *path = scratch("foreign");
        struct pymq_store_config config = small_config();
        fill_store(path, &config, 3);
        write_file(path, foreign[i], "data", 4);
        CHECK_EQ(refused(path, &config), PYMQ_EUNSUPPORTED);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)(strchr(foreign[i], '/') - foreign[i]), foreign[i]);
        CHECK(strstr(refused_text, name) != NULL);
        scratch_end(path);
    }
}

static void test_bad_settings_are_refused_before_anything_is_made(void) {
    const char *path = scratch("settings");
    struct pymq_store_config config = small_config();
    config.log_file_size = 100;
    CHECK_EQ(refused(path, &config), PYMQ_EINVAL);
    CHECK(strstr(refused_text, "mappedFileSizeCommitLog") != NULL);
    CHECK(access(path, F_OK) != 0);
    config = small_config();
    config.transient_pool_enable = true;
    config.transient_pool_size = 1;
    CHECK_EQ(refused(path, &config), PYMQ_EINVAL);
    CHECK_EQ(refused("", &config), PYMQ_EINVAL);
}

/* apache/rocketmq#9728 and #10108: an empty last queue file kept brokers from starting. */
static void test_empty_and_short_last_files_are_normal(void) {
    const char *path = scratch("short");
    struct pymq_store_config config = small_config();
    fill_store(path, &config, 300);
    struct pymq_store *store = open_or_die(path, &config);
    struct pymq_watermarks marks;
    pymq_store_watermarks(store, &marks);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    char name[128];
    int64_t next_log = (marks.written / 8209 + 1) * 8209;
    snprintf(name, sizeof name, "commitlog/%020lld", (long long)next_log);
    write_file(path, name, "", 0);
    write_file(path, "consumequeue/open/0/00000000000000002100", "", 0);
    uint8_t zeros[60] = {0};
    write_file(path, "consumequeue/open/1/00000000000000002100", zeros, sizeof zeros);
    for (int round = 0; round < 2; round++) {
        store = open_or_die(path, &config);
        for (int queue = 0; queue < 3; queue++)
            CHECK_EQ(info_of(store, "open", queue).max_offset, 100 + round);
        for (int queue = 0; queue < 3; queue++)
            CHECK_EQ(send_text(store, "open", queue, "and on").queue_offset, 100 + round);
        if (round == 0)
            CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        else
            pymq_store_abandon(store);
    }
    scratch_end(path);
}

/* Queues and index are derived data: without them the log gives everything back. */
static void test_queues_and_index_are_rebuilt_from_the_log(void) {
    const char *path = scratch("rebuild");
    struct pymq_store_config config = small_config();
    fill_store(path, &config, 200);
    char part[1024];
    snprintf(part, sizeof part, "%s/consumequeue", path);
    scratch_end(part);
    snprintf(part, sizeof part, "%s/index", path);
    scratch_end(part);
    snprintf(part, sizeof part, "%s/checkpoint", path);
    CHECK_EQ(unlink(part), 0);
    write_file(path, "abort", "", 0);
    struct pymq_store *store = open_or_die(path, &config);
    int64_t offsets[256];
    for (int queue = 0; queue < 3; queue++)
        CHECK_EQ(info_of(store, "open", queue).max_offset, (200 - queue + 2) / 3);
    CHECK_EQ(pymq_store_query(store, (const uint8_t *)"open", 4, (const uint8_t *)"k", 1, 0, INT64_MAX, offsets, 256),
             200);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* With the head of the log gone, a rebuilt queue starts where its first remaining message belongs (CQ-10). */
static void test_a_rebuilt_queue_starts_at_its_first_remaining_message(void) {
    const char *path = scratch("prefill");
    struct pymq_store_config config = small_config();
    fill_store(path, &config, 300);
    struct pymq_store *store = open_or_die(path, &config);
    struct pymq_log_file_info removed;
    CHECK_EQ(pymq_store_remove_oldest(store, &removed), PYMQ_OK);
    CHECK_EQ(removed.base_offset, 0);
    CHECK(pymq_store_clean_queues(store) > 0);
    int64_t min = info_of(store, "open", 1).min_offset;
    CHECK(min > 7);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    char part[1024];
    snprintf(part, sizeof part, "%s/consumequeue", path);
    scratch_end(part);
    write_file(path, "abort", "", 0);
    snprintf(part, sizeof part, "%s/checkpoint", path);
    CHECK_EQ(unlink(part), 0);
    for (int round = 0; round < 2; round++) {
        store = open_or_die(path, &config);
        CHECK_EQ(info_of(store, "open", 1).min_offset, min);
        CHECK_EQ(info_of(store, "open", 1).max_offset, 100);
        check_text(store, "open", 1, min, "some message body");
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    }
    scratch_end(path);
}

static void flip_byte(const char *directory, const char *name, off_t at) {
    char path[1024];
    uint8_t byte;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    CHECK_EQ(pread(fd, &byte, 1, at), 1);
    byte ^= 0x40;
    CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Damage below the durable end is not a torn tail: cutting there would drop acknowledged messages. The replica gate
 * keeps dispatch back, so that the checkpoint knows a log that is durable further than queues and index are. */
static void test_a_log_damaged_below_its_durable_end_is_not_cut_silently(void) {
    const char *path = scratch("damage");
    struct pymq_store_config config = small_config();
    config.flush_mode = PYMQ_SYNC_FLUSH;
    config.replica_gate = true;
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent[20];
    pymq_store_set_replica(store, 0, true);
    for (int i = 0; i < 20; i++)
        sent[i] = send_text(store, "d", 0, "a body whose bytes will not all survive");
    pymq_store_set_replica(store, sent[9].end_offset, true);
    CHECK_EQ(pymq_store_flush(store), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
    pymq_store_abandon(store);

    flip_byte(path, "commitlog/00000000000000000000", sent[15].physical_offset + 100);
    CHECK_EQ(refused(path, &config), PYMQ_ECORRUPT);
    CHECK(strstr(refused_text, "commitlog/00000000000000000000") != NULL);
    CHECK(strstr(refused_text, "truncate_damaged") != NULL);
    CHECK_EQ(refused(path, &config), PYMQ_ECORRUPT); /* and refusing has changed nothing */
    config.truncate_damaged = true;
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "d", 0).max_offset, 15);
    CHECK_EQ(send_text(store, "d", 0, "in its place").physical_offset, sent[15].physical_offset);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_a_crash_after_damage_was_cut_does_not_ask_for_the_operator_again(void) {
    const char *path = scratch("damage-again");
    struct pymq_store_config config = small_config();
    config.flush_mode = PYMQ_SYNC_FLUSH;
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent[20];
    for (int i = 0; i < 20; i++)
        sent[i] = send_text(store, "d", 0, "a body whose bytes will not all survive");
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    flip_byte(path, "commitlog/00000000000000000000", sent[19].physical_offset + 100);
    CHECK_EQ(refused(path, &config), PYMQ_ECORRUPT);
    config.truncate_damaged = true;
    store = open_or_die(path, &config);
    int64_t kept = info_of(store, "d", 0).max_offset;
    CHECK_EQ(kept, 19);
    pymq_store_abandon(store);

    config.truncate_damaged = false;
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "d", 0).max_offset, kept);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Below what a checkpoint vouches for nothing is walked; damage there shows when the message is read. */
static void test_a_damaged_body_is_seen_by_its_crc(void) {
    const char *path = scratch("body");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent = send_text(store, "d", 0, "a body whose bytes will not all survive");
    send_text(store, "d", 0, "the last one, which a clean open looks at");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    flip_byte(path, "commitlog/00000000000000000000", sent.physical_offset + 100);
    store = open_or_die(path, &config);
    struct pymq_span span;
    struct pymq_record record;
    CHECK_EQ(pymq_store_record(store, sent.physical_offset, 0, &span), PYMQ_OK);
    CHECK_EQ(pymq_record_decode(span.data, span.size, PYMQ_CHECK_BODY_CRC, 0, &record), PYMQ_ECORRUPT);
    pymq_span_release(store, &span);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Memory of many idle queues: no descriptors, few mappings. */
static void test_idle_queues_hold_no_descriptor_and_few_mappings(void) {
    const char *path = scratch("idle");
    struct pymq_store_config config = small_config();
    config.queue_map_count_max = 16;
    struct pymq_store *store = open_or_die(path, &config);
    for (int i = 0; i < 400; i++)
        send_text(store, "idle", i, "one message each");
    CHECK_EQ(pymq_store_wait_dispatched(store, 10000), PYMQ_OK);
    struct pymq_store_stats stats;
    pymq_store_stats(store, &stats);
    CHECK(stats.mapped_queue_windows <= 16);
    CHECK(stats.window_evictions >= 384);
    int open_files = 0;
    DIR *stream = opendir("/proc/self/fd");
    while (readdir(stream) != NULL)
        open_files++;
    closedir(stream);
    CHECK(open_files < 60);
    for (int i = 0; i < 400; i++)
        check_text(store, "idle", i, 0, "one message each");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* A store many times larger than what may be mapped: every message is read, in an order that no cache likes, and the
 * mappings stay within their bound (and the writer's own window). */
static void test_a_large_log_is_read_through_few_windows(void) {
    const char *path = scratch("windows");
    struct pymq_store_config config = small_config();
    config.log_map_size_max = 3 * config.log_file_size;
    struct pymq_store *store = open_or_die(path, &config);
    int64_t offsets[600];
    for (int i = 0; i < 600; i++) {
        struct sent sent =
            send_text(store, "windows", 0, "a body of some length, so that files fill up quickly .......");
        offsets[i] = sent.physical_offset;
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    CHECK(offsets[599] > 10 * config.log_file_size);
    struct pymq_store_stats stats;
    for (int i = 0; i < 600; i++) {
        int at = i * 367 % 600;
        struct pymq_span span;
        struct pymq_record record;
        CHECK_EQ(pymq_store_record(store, offsets[at], 0, &span), PYMQ_OK);
        CHECK(pymq_record_decode(span.data, span.size, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET, offsets[at], &record) >
              0);
        CHECK_EQ(record.queue_offset, at);
        pymq_span_release(store, &span);
        pymq_store_stats(store, &stats);
        CHECK(stats.mapped_log_bytes <= config.log_map_size_max + 2 * config.log_file_size);
    }
    CHECK(stats.window_evictions > 100);
    /* With everything pinned readers get copies instead of waiting. */
    struct pymq_span held[600];
    for (int i = 0; i < 600; i++)
        CHECK_EQ(pymq_store_record(store, offsets[i], 0, &held[i]), PYMQ_OK);
    for (int i = 0; i < 600; i++) {
        struct pymq_record record;
        CHECK(pymq_record_decode(held[i].data, held[i].size, PYMQ_CHECK_BODY_CRC, 0, &record) > 0);
        CHECK_EQ(record.queue_offset, i);
        pymq_span_release(store, &held[i]);
    }
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* How far the queues reach by the checkpoint on disk, as Apache reads it: after a crash it rebuilds from there. */
static int64_t logics_physical_offset(const char *path) {
    char file[1024];
    uint8_t bytes[48];
    snprintf(file, sizeof file, "%s/checkpoint", path);
    int fd = open(file, O_RDONLY);
    CHECK(fd >= 0 && pread(fd, bytes, sizeof bytes, 0) == sizeof bytes);
    close(fd);
    return (int64_t)pymq_load_be64(bytes + 40);
}

/* Apache drops an index file that is not full after a crash, and keys from before the run went with it: the checkpoint
 * of the clean stop stood until the first one of the new run. */
static void test_the_checkpoint_of_a_clean_stop_does_not_outlive_it(void) {
    const char *path = scratch("clean-checkpoint");
    struct pymq_store_config config = small_config();
    config.queue_flush_thorough_interval_ms = 3600000;
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent = {0};
    for (int i = 0; i < 20; i++) {
        char properties[32];
        snprintf(properties, sizeof properties, "KEYS\1k%d\2", i);
        sent = send_record(store, "T", 0, text("body"), properties, 0);
        CHECK_EQ(sent.status, PYMQ_OK);
    }
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    CHECK_EQ(logics_physical_offset(path), sent.end_offset);
    store = open_or_die(path, &config);
    CHECK_EQ(logics_physical_offset(path), 0); /* where the only index file begins */
    pymq_store_abandon(store);
    CHECK_EQ(logics_physical_offset(path), 0);
    scratch_end(path);
}

int main(void) {
    RUN(test_a_second_open_is_refused_with_the_lock_named);
    RUN(test_other_file_sizes_are_refused_by_name);
    RUN(test_a_missing_log_file_is_refused);
    RUN(test_what_we_do_not_read_is_refused_by_name);
    RUN(test_bad_settings_are_refused_before_anything_is_made);
    RUN(test_empty_and_short_last_files_are_normal);
    RUN(test_queues_and_index_are_rebuilt_from_the_log);
    RUN(test_a_rebuilt_queue_starts_at_its_first_remaining_message);
    RUN(test_a_log_damaged_below_its_durable_end_is_not_cut_silently);
    RUN(test_a_crash_after_damage_was_cut_does_not_ask_for_the_operator_again);
    RUN(test_the_checkpoint_of_a_clean_stop_does_not_outlive_it);
    RUN(test_a_damaged_body_is_seen_by_its_crc);
    RUN(test_idle_queues_hold_no_descriptor_and_few_mappings);
    RUN(test_a_large_log_is_read_through_few_windows);
    return check_summary();
}
