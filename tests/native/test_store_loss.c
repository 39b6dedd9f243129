/* Ways an operator, a setting or a crash might lose what was acknowledged, each seen once in a review: every one of
 * them is refused before anything changes, or everything is found again. */
#include "store_help.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "pymq/io.h"

#define MESSAGES 200

static void fill(struct pymq_store *store, int from, int to) {
    for (int i = from; i < to; i++) {
        char body[64], properties[32];
        snprintf(body, sizeof body, "message %d", i);
        snprintf(properties, sizeof properties, "KEYS\1k%d\2", i);
        struct sent sent = send_record(store, "loss", i % 2, text(body), properties, 0);
        CHECK_EQ(sent.status, PYMQ_OK);
        CHECK_EQ(sent.queue_offset, i / 2);
        CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 5000), PYMQ_OK);
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
}

static void check_all(struct pymq_store *store, int count) {
    for (int i = 0; i < count; i++) {
        char body[64], key[16];
        int64_t offsets[2];
        snprintf(body, sizeof body, "message %d", i);
        snprintf(key, sizeof key, "k%d", i);
        check_text(store, "loss", i % 2, i / 2, body);
        CHECK_EQ(pymq_store_query(store, (const uint8_t *)"loss", 4, (const uint8_t *)key, strlen(key), 0, INT64_MAX,
                                  offsets, 2),
                 1);
    }
    CHECK_EQ(info_of(store, "loss", 0).min_offset, 0);
    CHECK_EQ(info_of(store, "loss", 0).max_offset, (count + 1) / 2);
}

static struct pymq_store_config sync_config(void) {
    struct pymq_store_config config = small_config();
    config.flush_mode = PYMQ_SYNC_FLUSH;
    return config;
}

static void stop(struct pymq_store *store, bool clean) {
    if (clean)
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    else
        pymq_store_abandon(store);
}

static void remove_part(const char *path, const char *part) {
    char victim[1024];
    snprintf(victim, sizeof victim, "%s/%s", path, part);
    scratch_end(victim);
    CHECK(access(victim, F_OK) != 0);
}

static void test_removed_queues_and_index_are_built_again(void) {
    static const char *const victims[] = {"consumequeue", "consumequeue/loss/1", "index",
                                          "consumequeue/loss/0/00000000000000001960"};
    for (size_t v = 0; v < sizeof victims / sizeof *victims; v++) {
        for (int clean = 0; clean < 2; clean++) {
            const char *path = scratch("removed");
            struct pymq_store_config config = sync_config();
            struct pymq_store *store = open_or_die(path, &config);
            fill(store, 0, MESSAGES);
            CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
            stop(store, clean);
            remove_part(path, victims[v]);
            store = open_or_die(path, &config);
            check_all(store, MESSAGES);
            fill(store, MESSAGES, MESSAGES + 2);
            stop(store, clean);
            store = open_or_die(path, &config);
            check_all(store, MESSAGES + 2);
            CHECK_EQ(pymq_store_close(store), PYMQ_OK);
            scratch_end(path);
        }
    }
}

/* Sizes and bytes of everything below `path`, added up: equal before and after something that must change nothing. */
static uint64_t digest;

static int add_to_digest(const char *path, const struct stat *found, int kind, struct FTW *walk) {
    (void)walk;
    if (kind != FTW_F || strstr(path, "/lock") != NULL)
        return 0;
    uint8_t bytes[4096];
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    digest = digest * 31 + (uint64_t)found->st_size;
    for (const char *name = path; *name != '\0'; name++)
        digest = digest * 31 + (uint8_t)*name;
    for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0;) {
        for (ssize_t i = 0; i < got; i++)
            digest = digest * 31 + bytes[i];
    }
    close(fd);
    return 0;
}

static int compare_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static char *paths[4096];
static size_t path_count;

static int collect(const char *path, const struct stat *found, int kind, struct FTW *walk) {
    (void)found, (void)walk;
    if (kind == FTW_F && path_count < 4096)
        paths[path_count++] = strdup(path);
    return 0;
}

static uint64_t digest_of(const char *path) {
    struct FTW walk = {0};
    digest = 7;
    path_count = 0;
    nftw(path, collect, 16, FTW_PHYS);
    qsort(paths, path_count, sizeof *paths, compare_order);
    for (size_t i = 0; i < path_count; i++) {
        struct stat found;
        CHECK_EQ(stat(paths[i], &found), 0);
        add_to_digest(paths[i], &found, FTW_F, &walk);
        free(paths[i]);
    }
    return digest;
}

static void check_refused_unchanged(const char *path, const struct pymq_store_config *config, int status) {
    uint64_t before = digest_of(path);
    struct pymq_store *store;
    struct pymq_error error;
    CHECK_EQ(pymq_store_open(path, config, &store, &error), status);
    CHECK(error.text[0] != '\0');
    CHECK(digest_of(path) == before);
}

static void test_a_missing_log_is_refused_and_nothing_is_removed(void) {
    for (int clean = 0; clean < 2; clean++) {
        const char *path = scratch("nolog");
        char log_path[1024], kept[1024];
        struct pymq_store_config config = sync_config();
        struct pymq_store *store = open_or_die(path, &config);
        fill(store, 0, MESSAGES);
        CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
        stop(store, clean);
        snprintf(log_path, sizeof log_path, "%s/commitlog", path);
        snprintf(kept, sizeof kept, "%s-kept", path);
        CHECK_EQ(rename(log_path, kept), 0);
        CHECK_EQ(mkdir(log_path, 0755), 0);
        check_refused_unchanged(path, &config, PYMQ_ECORRUPT);
        CHECK_EQ(rmdir(log_path), 0);
        CHECK_EQ(rename(kept, log_path), 0);
        store = open_or_die(path, &config);
        check_all(store, MESSAGES);
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        scratch_end(path);
    }
}

static void test_a_missing_newest_log_file_is_refused_and_comes_back_whole(void) {
    for (int clean = 0; clean < 2; clean++) {
        const char *path = scratch("newest");
        char newest[1024], kept[1024];
        struct pymq_store_config config = sync_config();
        struct pymq_store *store = open_or_die(path, &config);
        fill(store, 0, MESSAGES);
        CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
        struct pymq_watermarks marks;
        pymq_store_watermarks(store, &marks);
        stop(store, clean);
        int64_t base = marks.written / config.log_file_size * config.log_file_size;
        snprintf(newest, sizeof newest, "%s/commitlog/%020lld", path, (long long)base);
        snprintf(kept, sizeof kept, "%s-kept", path);
        CHECK_EQ(rename(newest, kept), 0);
        char ahead[1024]; /* the file made ahead, if there is one, would look like a gap */
        snprintf(ahead, sizeof ahead, "%s/commitlog/%020lld", path, (long long)(base + config.log_file_size));
        unlink(ahead);
        check_refused_unchanged(path, &config, PYMQ_ECORRUPT);
        CHECK_EQ(rename(kept, newest), 0);
        store = open_or_die(path, &config);
        check_all(store, MESSAGES);
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        scratch_end(path);
    }
}

/* The walk's buffer follows the records on disk, not the limit of today. */
static void test_a_smaller_message_limit_hides_no_message(void) {
    for (int clean = 0; clean < 2; clean++) {
        const char *path = scratch("limit");
        struct pymq_store_config config = sync_config();
        config.log_file_size = 40 * 1024 * 1024;
        config.message_size_max = 20 * 1024 * 1024;
        config.log_window_size = 1024 * 1024;
        static uint8_t large[18 * 1024 * 1024];
        struct pymq_store *store = open_or_die(path, &config);
        send_text(store, "size", 0, "before");
        struct pymq_slice body = {large, sizeof large};
        CHECK_EQ(send_record(store, "size", 0, body, "", 0).status, PYMQ_OK);
        struct sent sent = send_text(store, "size", 0, "after");
        CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 20000), PYMQ_OK);
        stop(store, clean);
        config.message_size_max = 4096;
        store = open_or_die(path, &config);
        CHECK_EQ(info_of(store, "size", 0).max_offset, 3);
        check_text(store, "size", 0, 2, "after");
        CHECK_EQ(pymq_store_close(store), PYMQ_OK);
        scratch_end(path);
    }
}

/* Replicas acknowledge bytes: a watermark inside a record is one to wait behind, not the end of the store. */
static void test_a_replica_watermark_inside_a_record_is_waited_out(void) {
    const char *path = scratch("inside");
    struct pymq_store_config config = small_config();
    config.replica_gate = true;
    struct pymq_store *store = open_or_die(path, &config);
    pymq_store_set_replica(store, 0, true);
    struct sent first = send_text(store, "r", 0, "one"), second = send_text(store, "r", 0, "two");
    for (int64_t at = 1; at <= second.end_offset; at++) {
        pymq_store_set_replica(store, at, true);
        CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
        CHECK_EQ(info_of(store, "r", 0).max_offset, (at >= first.end_offset) + (at >= second.end_offset));
    }
    send_text(store, "r", 0, "three");
    pymq_store_set_replica(store, second.end_offset + 5, true);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK); /* and a close does not wait for it for ever */
    config.replica_gate = false;
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "r", 0).max_offset, 3);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Zeros that a crash could not be told from are refused before they are promised. */
static void test_properties_that_look_torn_are_refused(void) {
    const char *path = scratch("zeros");
    struct pymq_store_config config = sync_config();
    struct pymq_store *store = open_or_die(path, &config);
    static uint8_t properties[2000];
    memset(properties, 0, sizeof properties);
    memcpy(properties, "x\1", 2);
    properties[sizeof properties - 1] = 2;
    struct pymq_record record = {.born_host = config.store_host, .store_host = config.store_host, .topic = text("z")};
    record.body = text("body");
    static const uint32_t sizes[] = {1000, 2000, 300};
    static const bool ends[] = {false, true, true};
    static const int expected[] = {PYMQ_EPROPERTIES, PYMQ_EPROPERTIES, PYMQ_OK};
    for (int i = 0; i < 3; i++) {
        uint8_t bytes[4096];
        uint8_t last = properties[sizes[i] - 1];
        properties[sizes[i] - 1] = ends[i] ? 2 : 0;
        record.properties = (struct pymq_slice){properties, sizes[i]};
        ssize_t size = pymq_record_encode(&record, bytes, sizeof bytes);
        struct pymq_append_item item = {.queue = queue_of(store, "z", 0), .record = bytes, .size = (uint32_t)size};
        struct pymq_append_result result;
        CHECK_EQ(pymq_store_append(store, &item, 1, 0, &result), expected[i]);
        properties[sizes[i] - 1] = last;
    }
    struct sent sent = send_text(store, "z", 0, "behind the few zeros that are allowed");
    CHECK_EQ(pymq_store_wait_acknowledged(store, sent.end_offset, 5000), PYMQ_OK);
    pymq_store_abandon(store);
    store = open_or_die(path, &config);
    CHECK_EQ(info_of(store, "z", 0).max_offset, 2);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* Store time never goes back along the log, also when the clock did while the store was down. */
static void test_store_time_goes_on_after_a_kill_that_left_nothing_to_walk(void) {
    const char *path = scratch("clock");
    struct pymq_store_config config = sync_config();
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, 0, 3);
    CHECK_EQ(pymq_store_checkpoint(store), PYMQ_OK);
    pymq_store_abandon(store);
    /* The records' times, moved a day ahead, are what a clock set back by a day looks like. */
    char log_path[1024];
    snprintf(log_path, sizeof log_path, "%s/commitlog/%020d", path, 0);
    int fd = open(log_path, O_RDWR);
    uint8_t head[128];
    int64_t offset = 0, ahead_ms = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(pread(fd, head, sizeof head, offset), sizeof head);
        ahead_ms = pymq_record_store_timestamp_ms(head) + 86400000;
        pymq_store_be64(head + 56, (uint64_t)ahead_ms);
        CHECK_EQ(pwrite(fd, head + 56, 8, offset + 56), 8);
        offset += pymq_load_be32(head);
    }
    close(fd);
    store = open_or_die(path, &config);
    CHECK(send_text(store, "loss", 1, "later").timestamp_ms >= ahead_ms);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

/* What open does to the disk, in order: names of files made and directories synced. */
static char trace[512][512];
static size_t trace_count;
static char fd_paths[1024][512];
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER; /* the store's threads make files too */

static void note(const char *what, const char *path) {
    pthread_mutex_lock(&trace_lock);
    if (trace_count < 512)
        snprintf(trace[trace_count++], sizeof trace[0], "%s %s", what, path);
    pthread_mutex_unlock(&trace_lock);
}

static int tracing_open(const char *path, int flags, mode_t mode) {
    int fd = pymq_io_kernel.open(path, flags, mode);
    pthread_mutex_lock(&trace_lock);
    if (fd >= 0 && fd < 1024)
        snprintf(fd_paths[fd], sizeof fd_paths[0], "%s", path);
    pthread_mutex_unlock(&trace_lock);
    if (flags & O_CREAT)
        note("make", path);
    return fd;
}

static int tracing_fsync(int fd) {
    char path[512] = "?";
    pthread_mutex_lock(&trace_lock);
    if (fd < 1024)
        memcpy(path, fd_paths[fd], sizeof path);
    pthread_mutex_unlock(&trace_lock);
    note("sync", path);
    return pymq_io_kernel.fsync(fd);
}

static ssize_t traced(const char *what, const char *path) {
    char line[512];
    ssize_t found = -1;
    snprintf(line, sizeof line, "%s %s", what, path);
    pthread_mutex_lock(&trace_lock);
    for (size_t i = 0; i < trace_count && found < 0; i++) {
        if (strcmp(trace[i], line) == 0)
            found = (ssize_t)i;
    }
    pthread_mutex_unlock(&trace_lock);
    return found;
}

static struct pymq_io tracing_io(void) {
    struct pymq_io io = pymq_io_kernel;
    io.open = tracing_open;
    io.fsync = tracing_fsync;
    trace_count = 0;
    return io;
}

/* Recovery of a cleanly stopped store may have queues to build; a power cut meanwhile must not look like a clean stop.
 */
static void test_abort_is_there_before_recovery_makes_a_file(void) {
    const char *path = scratch("abort");
    char abort_path[600], queue_path[700];
    struct pymq_store_config config = sync_config();
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, 0, 20);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    remove_part(path, "consumequeue");
    struct pymq_io io = tracing_io();
    pymq_io_use(&io);
    store = open_or_die(path, &config);
    snprintf(abort_path, sizeof abort_path, "%s/abort", path);
    snprintf(queue_path, sizeof queue_path, "%s/consumequeue/loss/0/%020d", path, 0);
    ssize_t aborted = traced("make", abort_path), built = traced("make", queue_path);
    CHECK(aborted >= 0 && built >= 0);
    CHECK(aborted < built);
    ssize_t synced = -1; /* the name of abort, in the store's own directory, after it was made and before the queue */
    for (ssize_t i = aborted; i < built; i++) {
        if (strncmp(trace[i], "sync ", 5) == 0 && strcmp(trace[i] + 5, path) == 0)
            synced = i;
    }
    CHECK(synced > aborted);
    pymq_store_abandon(store);
    pymq_io_use(NULL);
    scratch_end(path);
}

/* A store whose parents a power cut forgets is as lost as an unsynced one. */
static void test_every_directory_made_is_synced_in_its_parent(void) {
    char root[512], child[600], store_path[700];
    snprintf(root, sizeof root, "%s", scratch("parents"));
    CHECK_EQ(mkdir(root, 0755), 0);
    snprintf(child, sizeof child, "%s/one", root);
    snprintf(store_path, sizeof store_path, "%s/two", child);
    struct pymq_io io = tracing_io();
    pymq_io_use(&io);
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(store_path, &config);
    CHECK(traced("sync", root) >= 0);
    CHECK(traced("sync", child) >= 0);
    CHECK(traced("sync", store_path) >= 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    pymq_io_use(NULL);
    scratch_end(root);
}

/* With every window pinned a look-up by time took all messages for older than any time. */
static void test_look_up_by_time_is_right_when_no_window_is_free(void) {
    const char *path = scratch("nowindow");
    struct pymq_store_config config = small_config();
    config.log_map_size_max = config.log_file_size;
    struct pymq_store *store = open_or_die(path, &config);
    struct sent sent[200];
    for (int i = 0; i < 200; i++) {
        sent[i] = send_text(store, "t", 0, "a body that fills several files, each of which would be a window");
        if (i % 40 == 39)
            usleep(2000);
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, 5000), PYMQ_OK);
    struct pymq_span held;
    CHECK_EQ(pymq_store_record(store, 0, 0, &held), PYMQ_OK);
    for (int i = 0; i < 200; i++) {
        int64_t expected = 0;
        while (sent[expected].timestamp_ms < sent[i].timestamp_ms)
            expected++;
        CHECK_EQ(pymq_queue_offset_by_time(store, queue_of(store, "t", 0), sent[i].timestamp_ms, PYMQ_BOUNDARY_LOWER),
                 expected);
    }
    pymq_span_release(store, &held);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

int main(void) {
    RUN(test_removed_queues_and_index_are_built_again);
    RUN(test_a_missing_log_is_refused_and_nothing_is_removed);
    RUN(test_a_missing_newest_log_file_is_refused_and_comes_back_whole);
    RUN(test_a_smaller_message_limit_hides_no_message);
    RUN(test_a_replica_watermark_inside_a_record_is_waited_out);
    RUN(test_properties_that_look_torn_are_refused);
    RUN(test_store_time_goes_on_after_a_kill_that_left_nothing_to_walk);
    RUN(test_abort_is_there_before_recovery_makes_a_file);
    RUN(test_every_directory_made_is_synced_in_its_parent);
    RUN(test_look_up_by_time_is_right_when_no_window_is_free);
    return check_summary();
}
