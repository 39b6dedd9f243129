/* Removing topics: whole or not at all, whatever stops the process in between, and never back again. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "pymq/io.h"
#include "store_help.h"

#define TIMEOUT_MS 20000

static int remove_topic(struct pymq_store *store, const char *topic) {
    return pymq_store_remove_topic(store, (const uint8_t *)topic, strlen(topic), TIMEOUT_MS);
}

static bool exists(const char *path, const char *name) {
    char full[1024];
    struct stat found;
    snprintf(full, sizeof full, "%s/%s", path, name);
    return stat(full, &found) == 0;
}

static struct pymq_queue *find(struct pymq_store *store, const char *topic, int32_t queue_id) {
    struct pymq_queue *queue = NULL;
    int status = pymq_store_queue(store, (const uint8_t *)topic, strlen(topic), queue_id, false, &queue);
    return status == PYMQ_OK ? queue : NULL;
}

static void fill(struct pymq_store *store, const char *topic, int count, const char *what) {
    for (int i = 0; i < count; i++) {
        char body[64];
        snprintf(body, sizeof body, "%s %s %d", topic, what, i);
        send_text(store, topic, i % 2, body);
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, TIMEOUT_MS), PYMQ_OK);
}

static void check_filled(struct pymq_store *store, const char *topic, int count, const char *what) {
    CHECK_EQ(info_of(store, topic, 0).max_offset, (count + 1) / 2);
    CHECK_EQ(info_of(store, topic, 1).max_offset, count / 2);
    for (int i = 0; i < count; i++) {
        char body[64];
        snprintf(body, sizeof body, "%s %s %d", topic, what, i);
        check_text(store, topic, i % 2, i / 2, body);
    }
}

static void test_removed_topic_is_gone_and_begins_again_at_0(void) {
    const char *path = scratch("remove-again");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, "gone", 40, "old");
    fill(store, "stays", 10, "x");
    struct pymq_queue *kept = find(store, "gone", 0);
    CHECK_EQ(remove_topic(store, "gone"), PYMQ_OK);
    CHECK(find(store, "gone", 0) == NULL && find(store, "gone", 1) == NULL);
    CHECK(!exists(path, "consumequeue/gone"));
    CHECK_EQ(remove_topic(store, "gone"), PYMQ_ENOTFOUND);

    struct pymq_cq_unit unit;
    struct pymq_queue_info info;
    CHECK_EQ(pymq_queue_units(store, kept, 0, &unit, 1), PYMQ_ENOTFOUND);
    CHECK_EQ(pymq_queue_wait(store, kept, 0, TIMEOUT_MS), PYMQ_ENOTFOUND);
    pymq_queue_info(kept, &info);
    CHECK_EQ(info.max_offset, 0);
    uint8_t record[256] = {0};
    struct pymq_append_result result;
    struct pymq_record source = {.body = text("late"), .topic = text("gone"), .properties = text(""),
                                 .born_host = {.size = 4}, .store_host = {.size = 4}};
    ssize_t size = pymq_record_encode(&source, record, sizeof record);
    struct pymq_append_item item = {.queue = kept, .record = record, .size = (uint32_t)size};
    CHECK_EQ(pymq_store_append(store, &item, 1, 0, &result), PYMQ_ENOTFOUND);

    CHECK_EQ(send_text(store, "gone", 0, "gone new 0").queue_offset, 0);
    CHECK_EQ(send_text(store, "gone", 1, "gone new 1").queue_offset, 0);
    CHECK_EQ(pymq_store_wait_dispatched(store, TIMEOUT_MS), PYMQ_OK);
    check_filled(store, "gone", 2, "new");
    check_filled(store, "stays", 10, "x");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    store = open_or_die(path, &config);
    struct pymq_store_stats stats;
    pymq_store_stats(store, &stats);
    CHECK_EQ(stats.recovered_records, 0); /* the checkpoint's counts fit: nothing was walked */
    check_filled(store, "gone", 2, "new");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Queues that are built again from the log must not mix two lives of a topic, nor bring a dead one back. */
static void test_rebuilt_queues_know_what_was_removed(void) {
    const char *path = scratch("remove-rebuild");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, "again", 9, "old");
    fill(store, "gone", 5, "old");
    fill(store, "stays", 7, "x");
    CHECK_EQ(remove_topic(store, "again"), PYMQ_OK);
    CHECK_EQ(remove_topic(store, "gone"), PYMQ_OK);
    fill(store, "again", 4, "new");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    char queues[1024];
    snprintf(queues, sizeof queues, "%s/consumequeue", path);
    scratch_end(queues);
    store = open_or_die(path, &config);
    check_filled(store, "again", 4, "new");
    check_filled(store, "stays", 7, "x");
    CHECK(find(store, "gone", 0) == NULL);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Symptom: messages sent to a topic of the same name were not in its queue after a crash, because the log had been lost
 * and begun anew below the offset at which the older topic was removed. */
static void test_log_that_begins_anew_is_not_taken_for_removed(void) {
    const char *path = scratch("remove-anew");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, "T", 40, "old");
    CHECK_EQ(remove_topic(store, "T"), PYMQ_OK);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    char log[1024];
    snprintf(log, sizeof log, "%s/commitlog", path);
    scratch_end(log);
    config.truncate_damaged = true; /* the operator's decision to start empty */
    store = open_or_die(path, &config);
    fill(store, "T", 6, "new");
    CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
    pymq_store_abandon(store);
    char queues[1024];
    snprintf(queues, sizeof queues, "%s/consumequeue", path);
    scratch_end(queues);
    store = open_or_die(path, &config);
    check_filled(store, "T", 6, "new");
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Removals beside senders and readers of everything, for the thread sanitizer. */
struct busy {
    struct pymq_store *store;
    _Atomic bool stop;
    _Atomic int64_t sent, read;
};

static void *run_sender(void *context) {
    struct busy *busy = context;
    for (int i = 0; !atomic_load(&busy->stop); i++) {
        send_text(busy->store, "busy", i % 3, "x");
        atomic_fetch_add(&busy->sent, 1);
        if (i % 64 == 0)
            usleep(100);
    }
    return NULL;
}

static void *run_reader(void *context) {
    struct busy *busy = context;
    struct pymq_cq_unit units[8];
    while (!atomic_load(&busy->stop)) {
        struct pymq_queue *queue = find(busy->store, "T", 0);
        ssize_t count = queue != NULL ? pymq_queue_units(busy->store, queue, 0, units, 8) : 0;
        for (ssize_t i = 0; i < count; i++) {
            struct pymq_span span;
            if (pymq_store_record(busy->store, units[i].physical_offset, (uint32_t)units[i].size, &span) == PYMQ_OK)
                pymq_span_release(busy->store, &span);
        }
        atomic_fetch_add(&busy->read, count > 0 ? count : 0);
    }
    return NULL;
}

static void test_topics_come_and_go_beside_senders_and_readers(void) {
    const char *path = scratch("remove-busy");
    struct pymq_store_config config = small_config();
    config.log_file_size = 1 << 20;
    config.log_window_size = 1 << 18;
    config.queue_file_size = 20 * 1000;
    struct pymq_store *store = open_or_die(path, &config);
    struct busy busy = {.store = store};
    pthread_t sender, reader;
    pthread_create(&sender, NULL, run_sender, &busy);
    pthread_create(&reader, NULL, run_reader, &busy);
    for (int round = 0; round < 30; round++) {
        fill(store, "T", 7, "x");
        check_filled(store, "T", 7, "x");
        CHECK_EQ(remove_topic(store, "T"), PYMQ_OK);
        /* Symptom: dispatch met files of the dying queue, and blocked the sends of every topic. */
        CHECK(pymq_store_is_writable(store));
    }
    atomic_store(&busy.stop, true);
    pthread_join(sender, NULL);
    pthread_join(reader, NULL);
    CHECK_EQ(pymq_store_wait_dispatched(store, TIMEOUT_MS), PYMQ_OK);
    int64_t total = 0;
    for (int32_t i = 0; i < 3; i++)
        total += info_of(store, "busy", i).max_offset;
    CHECK_EQ(total, atomic_load(&busy.sent));
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    store = open_or_die(path, &config);
    struct pymq_store_stats stats;
    pymq_store_stats(store, &stats);
    CHECK_EQ(stats.recovered_records, 0); /* what was counted off fits */
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_messages_not_yet_visible_hold_a_removal_up_and_nothing_changes(void) {
    const char *path = scratch("remove-gate");
    struct pymq_store_config config = small_config();
    config.replica_gate = true;
    struct pymq_store *store = open_or_die(path, &config);
    pymq_store_set_replica(store, 0, true);
    send_text(store, "T", 0, "not replicated yet");
    CHECK_EQ(pymq_store_remove_topic(store, (const uint8_t *)"T", 1, 50), PYMQ_ETIMEDOUT);
    struct sent second = send_text(store, "T", 0, "and still accepted");
    CHECK_EQ(second.queue_offset, 1);
    pymq_store_set_replica(store, second.end_offset, true);
    CHECK_EQ(remove_topic(store, "T"), PYMQ_OK);
    CHECK_EQ(send_text(store, "T", 0, "new").queue_offset, 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* ---- stopped in the middle ------------------------------------------------------------------------------------ */

static _Atomic int calls_left = INT32_MAX; /* of changes to directories and syncs, before the process is gone */

static void count_down(void) {
    if (atomic_fetch_sub(&calls_left, 1) == 0)
        kill(getpid(), SIGKILL);
}

static int dying_unlink(const char *path) {
    count_down();
    return pymq_io_kernel.unlink(path);
}
static int dying_rename(const char *from, const char *to) {
    count_down();
    return pymq_io_kernel.rename(from, to);
}
static int dying_rmdir(const char *path) {
    count_down();
    return pymq_io_kernel.rmdir(path);
}
static int dying_fsync(int fd) {
    count_down();
    return pymq_io_kernel.fsync(fd);
}
static int dying_fdatasync(int fd) {
    count_down();
    return pymq_io_kernel.fdatasync(fd);
}
static ssize_t dying_pwrite(int fd, const void *source, size_t size, off_t offset) {
    count_down();
    return pymq_io_kernel.pwrite(fd, source, size, offset);
}

/* In a child: two lives of other topics, then the removal, killed at its n-th call. Whether it came to its end. */
static bool killed_removal(const char *path, const struct pymq_store_config *config, int at) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        static struct pymq_io dying;
        dying = pymq_io_kernel;
        dying.unlink = dying_unlink;
        dying.rename = dying_rename;
        dying.rmdir = dying_rmdir;
        dying.fsync = dying_fsync;
        dying.fdatasync = dying_fdatasync;
        dying.pwrite = dying_pwrite;
        pymq_io_use(&dying);
        struct pymq_store *store = open_or_die(path, config);
        fill(store, "other", 6, "x");
        fill(store, "again", 6, "old");
        remove_topic(store, "again");
        fill(store, "again", 3, "new");
        fill(store, "T", 31, "x");
        atomic_store(&calls_left, at);
        remove_topic(store, "T");
        kill(getpid(), SIGKILL);
    }
    int state;
    CHECK_EQ(waitpid(child, &state, 0), child);
    CHECK(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
    return exists(path, "consumequeue/T/0") || exists(path, "consumequeue/T/1");
}

static void test_removal_killed_anywhere_leaves_all_or_nothing(void) {
    struct pymq_store_config config = small_config();
    /* The flushers sleep, so that the calls counted are the removal's own. */
    config.flush_interval_ms = 1000000;
    config.queue_flush_interval_ms = 1000000;
    config.checkpoint_bytes_max = INT64_MAX;
    int whole = 0, gone = 0;
    for (int at = 0; at < 60; at++) {
        const char *path = scratch("remove-killed");
        killed_removal(path, &config, at);
        struct pymq_store *store = open_or_die(path, &config);
        check_filled(store, "other", 6, "x");
        check_filled(store, "again", 3, "new");
        bool first = find(store, "T", 0) != NULL && info_of(store, "T", 0).max_offset > 0;
        bool second = find(store, "T", 1) != NULL && info_of(store, "T", 1).max_offset > 0;
        CHECK_EQ(first, second);
        if (first) {
            check_filled(store, "T", 31, "x");
            CHECK_EQ(remove_topic(store, "T"), PYMQ_OK); /* and can be asked for again */
        }
        whole += first;
        gone += !first;
        fill(store, "T", 5, "new");
        check_filled(store, "T", 5, "new");
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        store = open_or_die(path, &config);
        check_filled(store, "T", 5, "new");
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        scratch_end(path);
    }
    printf("killed removals: %d left the topic whole, %d left nothing\n", whole, gone);
    CHECK(whole > 0 && gone > 0); /* both sides of the moment were met */
}

struct slow_removal {
    struct pymq_store *store;
    int status;
};

static void *run_removal(void *context) {
    struct slow_removal *removal = context;
    removal->status = remove_topic(removal->store, "T");
    return NULL;
}

/* Symptom: a topic made again while its removal was under way kept the dying queue, and stayed empty for ever. */
static void test_queue_of_a_topic_being_removed_is_given_to_nobody(void) {
    const char *path = scratch("remove-dying");
    struct pymq_store_config config = small_config();
    config.replica_gate = true; /* holds the removal up for as long as we like */
    struct pymq_store *store = open_or_die(path, &config);
    pymq_store_set_replica(store, 0, true);
    struct sent sent = send_text(store, "T", 0, "old");
    struct pymq_queue *dying = find(store, "T", 0), *other;
    struct slow_removal removal = {.store = store};
    pthread_t thread;
    pthread_create(&thread, NULL, run_removal, &removal);
    while (!pymq_queue_is_removed(dying))
        usleep(100);
    CHECK_EQ(pymq_store_queue(store, (const uint8_t *)"T", 1, 0, true, &other), PYMQ_ENOTFOUND);
    pymq_store_set_replica(store, sent.end_offset, true);
    pthread_join(thread, NULL);
    CHECK_EQ(removal.status, PYMQ_OK);
    other = queue_of(store, "T", 0);
    CHECK(other != dying && !pymq_queue_is_removed(other));
    CHECK_EQ(send_text(store, "T", 0, "new").queue_offset, 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_damaged_list_of_removed_topics_is_refused_by_name(void) {
    const char *path = scratch("remove-damaged");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, "T", 3, "x");
    CHECK_EQ(remove_topic(store, "T"), PYMQ_OK);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    char file[1024];
    snprintf(file, sizeof file, "%s/removedTopics", path);
    FILE *list = fopen(file, "a");
    CHECK(list != NULL);
    fputs("12 99 T\n", list);
    fclose(list);
    struct pymq_error error;
    CHECK_EQ(pymq_store_open(path, &config, &store, &error), PYMQ_ECORRUPT);
    CHECK(strstr(error.text, "removedTopics") != NULL && strstr(error.text, "move it away") != NULL);
    CHECK_EQ(remove(file), 0);
    store = open_or_die(path, &config);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

int main(void) {
    RUN(test_removed_topic_is_gone_and_begins_again_at_0);
    RUN(test_rebuilt_queues_know_what_was_removed);
    RUN(test_log_that_begins_anew_is_not_taken_for_removed);
    RUN(test_topics_come_and_go_beside_senders_and_readers);
    RUN(test_messages_not_yet_visible_hold_a_removal_up_and_nothing_changes);
    RUN(test_queue_of_a_topic_being_removed_is_given_to_nobody);
    RUN(test_damaged_list_of_removed_topics_is_refused_by_name);
    RUN(test_removal_killed_anywhere_leaves_all_or_nothing);
    return check_summary();
}
