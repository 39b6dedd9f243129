/* The kill loop (R1): a process sends from several threads and is killed at a random moment; nothing it had seen
 * acknowledged may be missing afterwards, nothing else may be there.
 *
 * The child is this program again (--child). It writes the id of each message to a pipe once the message has been
 * acknowledged; the parent reads to the end, which is the kill, opens the store and judges it. Each run goes on in the
 * same store, so that files roll and recoveries follow one another. A process kill leaves the page cache alone, so
 * with ASYNC_FLUSH nothing acknowledged is lost either; with the transient pool under ASYNC_FLUSH what only the pool
 * held is, and then only at the end: the log is still a whole prefix, which verify holds anyway.
 *
 * PYMQ_KILL_RUNS (6) runs under sync flush, a quarter of that (at least 2) in each of the three other modes.
 */
#define _GNU_SOURCE /* pipe2 */
#include "../../csrc/testing/message_content.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/random.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNS_DEFAULT 6
#define SENDERS 4
#define BODY_SIZE 1024
#define IDS_OF_RUN 65536
#define KILL_MS_MIN 5
#define KILL_MS_MAX 500
#define RUNS_OF_STORE 8 /* then a fresh one: reading everything back takes longer with every run */
#define OTHER_READS_STEP 23
#define SEND_PAUSE_AFTER 1500 /* messages of a run go as fast as they can, later ones slowly: the disk is shared */

enum mode { MODE_SYNC, MODE_SYNC_POOL, MODE_ASYNC, MODE_ASYNC_POOL, MODES };

static const char *const mode_names[MODES] = {"sync flush", "sync flush with pool", "async flush",
                                              "async flush with pool"};

static void mode_config(struct pymq_store_config *config, enum mode mode) {
    small_store_config(config, mode == MODE_SYNC || mode == MODE_SYNC_POOL ? PYMQ_SYNC_FLUSH : PYMQ_ASYNC_FLUSH);
    config->log_file_size = 256 * 1024;
    config->log_window_size = config->log_file_size;
    config->checkpoint_bytes_max = 4 * config->log_file_size;
    config->queue_file_size = PYMQ_CQ_UNIT_SIZE * 1000;
    config->index_slot_count = 1000;
    config->index_item_count = 4000;
    config->transient_pool_enable = mode == MODE_SYNC_POOL || mode == MODE_ASYNC_POOL;
    config->append_record_crc = mode == MODE_SYNC || mode == MODE_ASYNC_POOL; /* a mapping and a pool, each once */
    config->transient_pool_size = 5;
    config->transient_pool_wait_ms = 5000;
    config->queue_flush_interval_ms = 20;
    config->queue_flush_thorough_interval_ms = 100;
}

/* ---- the child ------------------------------------------------------------------------------------------------ */

static struct {
    struct pymq_store *store;
    struct message_model model;
    uint32_t first_id;
} child;

static void *child_sender(void *argument) {
    uint8_t number = (uint8_t)(size_t)argument;
    for (;;) {
        struct pymq_append_result result;
        uint32_t id = message_model_add(&child.model, (uint8_t)(number % MODEL_TOPICS), number % MODEL_QUEUES,
                                        MODEL_BODY_SIZE_MIN + (BODY_SIZE - MODEL_BODY_SIZE_MIN) / (1u + number));
        int status = message_model_append(&child.model, child.store, &id, 1, 0, &result);
        CHECK(status == PYMQ_OK, "append: %s", pymq_status_name(status));
        status = pymq_store_wait_acknowledged(child.store, result.end_offset, -1);
        CHECK(status == PYMQ_OK, "wait: %s", pymq_status_name(status));
        CHECK(write(STDOUT_FILENO, &id, sizeof id) == sizeof id, "the parent is gone"); /* a pipe: whole or not */
        if (id - child.first_id > SEND_PAUSE_AFTER)
            usleep(2000);
    }
    return NULL;
}

static int child_main(const char *path, enum mode mode, uint32_t first_id) {
    struct pymq_store_config config;
    pthread_t threads[SENDERS];
    mode_config(&config, mode);
    message_model_open(&child.model, first_id + IDS_OF_RUN, &config);
    atomic_store(&child.model.count, first_id);
    child.first_id = first_id;
    child.store = small_store_open(path, &config);
    for (size_t i = 0; i < SENDERS; i++)
        CHECK(pthread_create(&threads[i], NULL, child_sender, (void *)i) == 0, "thread");
    pause(); /* until killed */
    return 0;
}

/* ---- the parent ----------------------------------------------------------------------------------------------- */

struct run {
    enum mode mode;
    int64_t number;
    uint32_t first_id;
    uint8_t *flags; /* by id: acknowledged */
    uint32_t acknowledged;
};

/* The pipe holds 64 KiB and the child stops when it is full, so it is emptied while the child lives. */
static void read_ids(int fd, struct run *run) {
    uint32_t id;
    ssize_t got;
    while ((got = read(fd, &id, sizeof id)) == (ssize_t)sizeof id) {
        CHECK(id >= run->first_id && id < run->first_id + IDS_OF_RUN, "id %u", id);
        run->flags[id] = 1;
        run->acknowledged++;
    }
    CHECK(got == 0, "pipe: %zd", got);
}

static pid_t start_child(const char *path, const struct run *run, int *read_fd) {
    int ends[2];
    char mode[16], first_id[16];
    CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe: %s", strerror(errno));
    snprintf(mode, sizeof mode, "%d", (int)run->mode);
    snprintf(first_id, sizeof first_id, "%u", run->first_id);
    pid_t pid = fork();
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "test_crash_kill", "--child", path, mode, first_id, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *read_fd = ends[0];
    return pid;
}

struct killer {
    pid_t pid;
    uint64_t delay_ms;
};

static void *kill_later(void *argument) {
    const struct killer *killer = argument;
    usleep((useconds_t)(killer->delay_ms * 1000));
    kill(killer->pid, SIGKILL);
    return NULL;
}

static void run_once(const char *path, struct message_model *model, struct run *run, struct test_random *random) {
    struct pymq_store_config config;
    struct killer killer = {.delay_ms = KILL_MS_MIN + test_random_below(random, KILL_MS_MAX - KILL_MS_MIN)};
    pthread_t thread;
    int read_fd, ended;
    killer.pid = start_child(path, run, &read_fd);
    CHECK(pthread_create(&thread, NULL, kill_later, &killer) == 0, "thread");
    read_ids(read_fd, run);
    close(read_fd);
    pthread_join(thread, NULL);
    CHECK(waitpid(killer.pid, &ended, 0) == killer.pid, "waitpid");
    CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL, "%s: the child ended by itself: %d", mode_names[run->mode],
          ended);
    mode_config(&config, run->mode);
    struct pymq_store *store = small_store_open(path, &config);
    /* With the pool and async flush the tail may be lost; the ids seen now are what later runs must keep. */
    struct model_promise promise = {.flags = run->mode == MODE_ASYNC_POOL ? NULL : run->flags};
    struct model_found found;
    char why[MODEL_WHY_MAX];
    atomic_store(&model->count, run->first_id + IDS_OF_RUN);
    CHECK(message_model_verify(model, store, &promise, &found, why), "%s, run %lld, killed after %llu ms: %s",
          mode_names[run->mode], (long long)run->number, (unsigned long long)killer.delay_ms, why);
    for (uint32_t id = 0; id < run->first_id + IDS_OF_RUN; id++)
        run->flags[id] = model->messages[id].seen; /* what came back once stays */
    pymq_store_abandon(store);
}

static uint32_t run_mode(enum mode mode, int64_t runs, const char *root, struct test_random *random) {
    static uint8_t flags[IDS_OF_RUN * RUNS_OF_STORE];
    struct pymq_store_config config;
    struct message_model model;
    char path[PYMQ_PATH_MAX];
    uint32_t acknowledged = 0;
    mode_config(&config, mode);
    scratch_join(path, sizeof path, root, "store");
    for (int64_t number = 0; number < runs;) {
        message_model_open(&model, IDS_OF_RUN * RUNS_OF_STORE, &config);
        model.places_unknown = true;
        model.other_reads_step = OTHER_READS_STEP;
        for (uint32_t id = 0; id < model.capacity; id++)
            model.messages[id].physical_offset = -1;
        memset(flags, 0, sizeof flags);
        for (int64_t i = 0; i < RUNS_OF_STORE && number < runs; i++, number++) {
            struct run run = {mode, number, (uint32_t)i * IDS_OF_RUN, flags, 0};
            run_once(path, &model, &run, random);
            acknowledged += run.acknowledged;
        }
        message_model_close(&model);
        scratch_remove(path);
    }
    return acknowledged;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--child") == 0)
        return child_main(argv[2], (enum mode)strtol(argv[3], NULL, 10), (uint32_t)strtoul(argv[4], NULL, 10));
    struct test_random random = {.state = environment_seed("test_crash_kill")};
    int64_t sync_runs = environment_integer("PYMQ_KILL_RUNS", RUNS_DEFAULT);
    char root[PYMQ_PATH_MAX];
    scratch_make(root, sizeof root, "crash-kill"); /* on a disk: its fsync takes time, and kills shall meet that */
    for (int mode = 0; mode < MODES; mode++) {
        int64_t begin_us = monotonic_us();
        int64_t runs = mode == MODE_SYNC ? sync_runs : sync_runs / 4 > 2 ? sync_runs / 4 : 2;
        uint32_t acknowledged = run_mode((enum mode)mode, runs, root, &random);
        CHECK(acknowledged > 0 || runs < 3, "%s: no message was ever acknowledged", mode_names[mode]);
        printf("test_crash_kill: %s: %lld kills, %u messages acknowledged, %s, %.1f s\n", mode_names[mode],
               (long long)runs, acknowledged, mode == MODE_ASYNC_POOL ? "the log always whole" : "0 lost",
               (double)(monotonic_us() - begin_us) / 1e6);
        fflush(stdout);
    }
    scratch_remove(root);
    printf("test_crash_kill: ok\n");
    return 0;
}
