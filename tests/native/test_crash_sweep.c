/* The crash-state sweep (R2): small workloads on a crash disk, many possible disks of many moments, each recovered.
 *
 * A workload is a handful of operations drawn from a seed (append, batch, roll, flush, checkpoint, retention, clean
 * close and reopen) on a store with tiny files. While it runs, images of the disk are taken just before and just after
 * system calls, together with what had been promised by then. Of each image several disks are drawn, and each must
 *   open; hold every promised message and nothing that was never sent (message_model_verify);
 *   take one more short message, be killed, open again and hold exactly that;
 *   take a batch and more, close cleanly, open again and hold exactly that.
 * Some disks are recovered on a crash disk instead, and recovery itself is crashed and recovered.
 *
 * PYMQ_CRASH_STATES disks (300), PYMQ_SEED, PYMQ_CRASH_WORKLOAD to run one workload only.
 */
#include "../../csrc/testing/crash_disk.h"
#include "../../csrc/testing/message_model.h"
#include "../../csrc/testing/scratch.h"
#include "../../csrc/testing/small_store.h"

#include <unistd.h>

#define STATES_DEFAULT 300
#define MESSAGES_MAX 512
#define OPERATIONS_MAX 9 /* small workloads find most, and a reader can follow them … */
#define LONG_PERCENT 15  /* … and some are longer, to roll and remove files more than once */
#define LONG_FACTOR 5
#define LAZY_MS 60000
#define IMAGES_MAX 8 /* of one workload */
#define IMAGES_OF_RECOVERY_MAX 4
#define STATES_OF_IMAGE 3
#define RECOVERY_CRASH_PERCENT 15
#define OPERATIONS_TEXT_MAX 256

struct taken {
    struct crash_image *image;
    struct model_promise promise;
    uint64_t event_number;
    char moment[64];
    bool recovered; /* taken after a recovery under the crash disk had ended */
};

/* Reservoir sampling: each event of a run is equally likely to be among the images kept. */
struct collector {
    struct taken list[IMAGES_MAX];
    size_t count, limit;
    uint64_t offered;
    struct test_random random;
    struct message_model *model;
    atomic_bool recovered;
};

static struct {
    struct pymq_store_config config;
    struct message_model model;
    struct test_random random;
    uint64_t seed;
    int64_t workload;
    bool lazy; /* senders hardly ever wait */
    bool crc_changes;
    char operations[OPERATIONS_TEXT_MAX];
    char root[PYMQ_PATH_MAX];       /* scratch of the program */
    char store_path[PYMQ_PATH_MAX]; /* the workload's store */
    char state_path[PYMQ_PATH_MAX]; /* the disk drawn */
    int64_t states, states_wanted, images, workloads, recoveries;
} sweep;

/* ---- images --------------------------------------------------------------------------------------------------- */

static void take(struct taken *taken, struct collector *collector, const struct crash_event *event, bool locked) {
    /* The promise is read before the image is taken: what is promised later may be missing, never the other way. */
    taken->promise = message_model_promise(collector->model);
    taken->recovered = atomic_load(&collector->recovered);
    taken->image = crash_disk_image(locked);
    taken->event_number = event->number;
    const char *name = strrchr(event->path, '/');
    snprintf(taken->moment, sizeof taken->moment, "%s %s %.40s", event->moment == CRASH_BEFORE ? "before" : "after",
             event->call, name != NULL ? name + 1 : event->path);
}

static void collect(void *context, const struct crash_event *event) {
    struct collector *collector = context;
    struct taken *taken;
    uint64_t offered = ++collector->offered;
    if (collector->count < collector->limit) {
        taken = &collector->list[collector->count++];
    } else {
        uint64_t place = test_random_below(&collector->random, offered);
        if (place >= collector->limit)
            return;
        taken = &collector->list[place];
        crash_image_free(taken->image);
    }
    take(taken, collector, event, true);
}

static void collector_open(struct collector *collector, size_t limit) {
    memset(collector, 0, sizeof *collector);
    collector->limit = limit;
    collector->model = &sweep.model;
    collector->random.state = test_random_next(&sweep.random);
}

static void collector_close(struct collector *collector) {
    for (size_t i = 0; i < collector->count; i++)
        crash_image_free(collector->list[i].image);
}

/* ---- workloads ------------------------------------------------------------------------------------------------ */

static void draw_config(void) {
    static const int64_t log_sizes[] = {4096, 12288, 20480, 8192};
    struct pymq_store_config *config = &sweep.config;
    small_store_config(config, test_random_chance(&sweep.random, 67) ? PYMQ_SYNC_FLUSH : PYMQ_ASYNC_FLUSH);
    config->log_file_size = log_sizes[test_random_below(&sweep.random, 4)];
    config->queue_file_size = PYMQ_CQ_UNIT_SIZE * (int64_t)(3 + test_random_below(&sweep.random, 8));
    config->index_item_count = 20;
    config->message_size_max = (int32_t)config->log_file_size;
    config->transient_pool_enable = test_random_chance(&sweep.random, 25);
    config->transient_pool_wait_ms = 2000;
    sweep.lazy = test_random_chance(&sweep.random, 40);
    if (sweep.lazy) { /* nothing is flushed unless asked for: long tails that a crash can tear anywhere */
        config->flush_interval_ms = config->flush_thorough_interval_ms = LAZY_MS;
        config->queue_flush_interval_ms = config->queue_flush_thorough_interval_ms = LAZY_MS;
    }
    config->log_window_size = config->log_file_size;
    config->checkpoint_bytes_max = config->log_file_size * 2;
    config->append_record_crc = test_random_chance(&sweep.random, 50);
    sweep.crc_changes = test_random_chance(&sweep.random, 33);
}

/* The setting may be another one at every open: what recovery demands of a record must be what its writer promised. */
static const struct pymq_store_config *next_config(void) {
    sweep.config.append_record_crc ^= sweep.crc_changes;
    return &sweep.config;
}

static struct pymq_store *open_store(const char *path) {
    struct pymq_store *store = NULL;
    struct pymq_error error = {0};
    int status = pymq_store_open(path, next_config(), &store, &error);
    CHECK(status == PYMQ_OK, "seed %llu workload %lld [%s]: open: %s: %s", (unsigned long long)sweep.seed,
          (long long)sweep.workload, sweep.operations, pymq_status_name(status), error.text);
    return store;
}

static uint32_t draw_body_size(struct test_random *random) {
    if (test_random_chance(random, 15)) /* large: at least a third of a file, so that files roll */
        return (uint32_t)(sweep.config.log_file_size / 3 +
                          (int64_t)test_random_below(random, (uint64_t)sweep.config.log_file_size / 3));
    return MODEL_BODY_SIZE_MIN + (uint32_t)test_random_below(random, 300);
}

static void expect(int status, const char *what) {
    CHECK(status == PYMQ_OK, "seed %llu workload %lld [%s]: %s: %s", (unsigned long long)sweep.seed,
          (long long)sweep.workload, sweep.operations, what, pymq_status_name(status));
}

/* Several messages in one call; with `together` they are a client's batch: one queue, one file. */
static void send_several(struct pymq_store *store, struct test_random *random, bool together) {
    uint32_t ids[4];
    struct pymq_append_result result;
    size_t count = 2 + test_random_below(random, 3);
    uint8_t topic = (uint8_t)test_random_below(random, MODEL_TOPICS);
    for (size_t i = 0; i < count; i++) {
        if (!together)
            topic = (uint8_t)test_random_below(random, MODEL_TOPICS);
        uint32_t body_size = MODEL_BODY_SIZE_MIN + (uint32_t)test_random_below(random, 200);
        ids[i] = message_model_add(&sweep.model, topic, 0, body_size);
    }
    unsigned flags = together ? PYMQ_APPEND_TOGETHER : 0;
    expect(message_model_append(&sweep.model, store, ids, count, flags, &result), "append");
    CHECK(result.appended == count, "appended %zu of %zu", result.appended, count);
    if (sweep.config.flush_mode != PYMQ_SYNC_FLUSH || test_random_chance(random, sweep.lazy ? 90 : 25))
        return;
    expect(pymq_store_wait_acknowledged(store, result.end_offset, -1), "wait");
    message_model_promise_all(&sweep.model);
}

static void retain(struct pymq_store *store) {
    struct pymq_log_file_info files[2], removed;
    if (pymq_store_log_files(store, files, 2) < 2)
        return;
    /* Announced first: the file may vanish at any moment from here on. */
    atomic_store(&sweep.model.removed_below, files[1].base_offset);
    int status = pymq_store_remove_oldest(store, &removed);
    CHECK(status == PYMQ_OK || status == PYMQ_ENOTFOUND, "remove: %s", pymq_status_name(status));
    CHECK(pymq_store_clean_queues(store) >= 0, "clean queues");
}

/* The process dies, the machine does not: what was in the page cache is read back. Under sync flush a reader can see it
 * now, so from now on it has to survive a power cut too. */
static struct pymq_store *die_and_reopen(struct pymq_store *store) {
    struct model_promise promise = message_model_promise(&sweep.model);
    struct model_found found;
    struct pymq_watermarks marks;
    char why[MODEL_WHY_MAX];
    pymq_store_abandon(store);
    if (!sweep.config.transient_pool_enable)
        promise.count = atomic_load(&sweep.model.count); /* every append had reached the page cache */
    store = open_store(sweep.store_path);
    CHECK(message_model_verify(&sweep.model, store, &promise, &found, why),
          "seed %llu workload %lld [%s]: after a process kill: %s", (unsigned long long)sweep.seed,
          (long long)sweep.workload, sweep.operations, why);
    pymq_store_watermarks(store, &marks);
    message_model_lose_unseen(&sweep.model, marks.min);
    if (sweep.config.flush_mode == PYMQ_SYNC_FLUSH)
        message_model_promise_all(&sweep.model);
    return store;
}

/* One operation; returns the store, which a reopen replaces. */
static struct pymq_store *operate(struct pymq_store *store, struct test_random *random, char *letter) {
    bool sync = sweep.config.flush_mode == PYMQ_SYNC_FLUSH;
    uint64_t drawn = test_random_below(random, 100);
    uint8_t topic = (uint8_t)test_random_below(random, MODEL_TOPICS);
    uint8_t queue_id = (uint8_t)test_random_below(random, MODEL_QUEUES);
    if (drawn < 35) {
        *letter = 'a';
        expect(message_model_send(&sweep.model, store, topic, queue_id, draw_body_size(random),
                                  sync && test_random_chance(random, sweep.lazy ? 10 : 75)),
               "send");
    } else if (drawn < 50) {
        *letter = 'b';
        send_several(store, random, true);
    } else if (drawn < 60) {
        *letter = 'm';
        send_several(store, random, false);
    } else if (drawn < 70) {
        *letter = 'f';
        expect(pymq_store_flush(store), "flush");
        message_model_promise_all(&sweep.model);
    } else if (drawn < 80) {
        *letter = 'k';
        expect(pymq_store_checkpoint(store), "checkpoint");
    } else if (drawn < 90) {
        *letter = 'd';
        retain(store);
    } else if (drawn < 93) {
        *letter = 'c';
        expect(pymq_store_close(store), "close");
        message_model_promise_all(&sweep.model);
        store = open_store(sweep.store_path);
    } else if (drawn < 97) {
        *letter = 'x';
        store = die_and_reopen(store);
    } else {
        *letter = 'w'; /* let the background threads do something */
        usleep(4000);
    }
    if (test_random_chance(random, 50))
        crash_disk_sample();
    return store;
}

static void run_workload(struct collector *collector) {
    size_t count = 1 + test_random_below(&sweep.random, OPERATIONS_MAX);
    if (test_random_chance(&sweep.random, LONG_PERCENT))
        count *= LONG_FACTOR;
    size_t text = 0;
    memset(sweep.operations, 0, sizeof sweep.operations);
    CHECK(pymq_io_make_directories(sweep.store_path, true) == PYMQ_OK, "store directory");
    crash_disk_start(sweep.store_path, collect, collector);
    struct pymq_store *store = open_store(sweep.store_path);
    for (size_t i = 0; i < count; i++)
        store = operate(store, &sweep.random, &sweep.operations[text++]);
    if (test_random_chance(&sweep.random, 60)) {
        sweep.operations[text] = 'c';
        expect(pymq_store_close(store), "close");
        message_model_promise_all(&sweep.model);
    } else {
        pymq_store_abandon(store);
    }
    uint64_t unallocated = crash_disk_unallocated_writes();
    CHECK(unallocated == 0, "seed %llu workload %lld [%s]: %llu pages written through a mapping before allocation",
          (unsigned long long)sweep.seed, (long long)sweep.workload, sweep.operations,
          (unsigned long long)unallocated);
    struct crash_event end = {"end", "", CRASH_AFTER, false, crash_disk_event_count()};
    collect(collector, &end); /* nothing else runs any more: the lock it expects is not needed */
    crash_disk_stop();
    scratch_remove(sweep.store_path);
}

/* ---- states --------------------------------------------------------------------------------------------------- */

struct drawn {
    const struct taken *taken;
    enum crash_style style;
    struct test_random random; /* as before the draw, to draw the same disk again */
    const char *step;
};

__attribute__((noreturn)) static void state_failed(const struct drawn *drawn, const char *why) {
    char kept[PYMQ_PATH_MAX];
    struct test_random again = drawn->random;
    scratch_make(kept, sizeof kept, "failed-state");
    scratch_remove(kept);
    crash_image_write(drawn->taken->image, drawn->style, &again, kept);
    check_failed(__FILE__, __LINE__,
                 "state %lld: %s: %s\n  PYMQ_SEED=%llu PYMQ_CRASH_WORKLOAD=%lld\n  operations %s; crash %s (event "
                 "%llu%s), style %s\n  log files of %lld, queue files of %lld, %s flush%s\n  the disk is kept in %s",
                 (long long)sweep.states, drawn->step, why, (unsigned long long)sweep.seed, (long long)sweep.workload,
                 sweep.operations, drawn->taken->moment, (unsigned long long)drawn->taken->event_number,
                 drawn->taken->recovered ? ", after a recovery" : "", crash_style_name(drawn->style),
                 (long long)sweep.config.log_file_size, (long long)sweep.config.queue_file_size,
                 sweep.config.flush_mode == PYMQ_SYNC_FLUSH ? "sync" : "async",
                 sweep.config.transient_pool_enable ? " with pool" : "", kept);
}

static struct pymq_store *open_state(const struct drawn *drawn) {
    struct pymq_store *store = NULL;
    struct pymq_error error = {0};
    if (pymq_store_open(sweep.state_path, next_config(), &store, &error) != PYMQ_OK)
        state_failed(drawn, error.text);
    return store;
}

static void verify(const struct drawn *drawn, struct pymq_store *store, const struct model_promise *promise,
                   struct model_found *found) {
    char why[MODEL_WHY_MAX];
    if (!message_model_verify(&sweep.model, store, promise, found, why))
        state_failed(drawn, why);
}

static void require(const struct drawn *drawn, int status) {
    if (status != PYMQ_OK)
        state_failed(drawn, pymq_status_name(status));
}

/* From now on exactly what the last verify saw is promised, and the rest is dead. */
static struct model_promise settle(struct pymq_store *store, int64_t removed_below, uint8_t *flags) {
    struct pymq_watermarks marks;
    pymq_store_watermarks(store, &marks);
    message_model_bury_unseen(&sweep.model, marks.min);
    for (uint32_t id = 0; id < MESSAGES_MAX; id++)
        flags[id] = id < atomic_load(&sweep.model.count) && sweep.model.messages[id].seen;
    return (struct model_promise){.flags = flags, .removed_below = removed_below, .forbid_dead = true};
}

/* A message for the place behind the cut: as long as the record that died there, or shorter, so that its successor
 * would be found again if recovery had left it there. */
static void send_behind_cut(const struct drawn *drawn, struct pymq_store *store, int64_t end, uint8_t *flags,
                            struct test_random *random, struct taken *between, struct collector *collector) {
    uint8_t topic = (uint8_t)test_random_below(random, MODEL_TOPICS), queue_id = 0;
    uint32_t body_size = MODEL_BODY_SIZE_MIN;
    for (uint32_t id = 0; id < atomic_load(&sweep.model.count); id++) {
        const struct model_message *message = &sweep.model.messages[id];
        if (message->dead && message->physical_offset == end && test_random_chance(random, 70)) {
            topic = message->topic;
            queue_id = message->queue_id;
            body_size = message->body_size;
        }
    }
    struct pymq_append_result result;
    uint32_t id = message_model_add(&sweep.model, topic, queue_id, body_size);
    require(drawn, message_model_append(&sweep.model, store, &id, 1, 0, &result));
    if (between != NULL && collector != NULL) {
        struct crash_event event = {"append", "", CRASH_AFTER, false, crash_disk_event_count()};
        take(between, collector, &event, false);
    }
    if (sweep.config.flush_mode == PYMQ_SYNC_FLUSH)
        require(drawn, pymq_store_wait_acknowledged(store, result.end_offset, -1));
    else
        require(drawn, pymq_store_flush(store));
    message_model_promise_all(&sweep.model);
    flags[id] = 1;
}

static void check_state(struct drawn *drawn) {
    static uint8_t flags[MESSAGES_MAX];
    struct test_random random = {.state = test_random_next(&sweep.random)};
    struct model_promise promise = drawn->taken->promise;
    struct model_found found = {0};
    pymq_io_use(&pymq_io_unsynced);
    drawn->step = "after the crash";
    promise.forbid_dead = drawn->taken->recovered;
    struct pymq_store *store = open_state(drawn);
    verify(drawn, store, &promise, &found);

    promise = settle(store, promise.removed_below, flags);
    drawn->step = "sending after the crash";
    send_behind_cut(drawn, store, found.end, flags, &random, NULL, NULL);
    pymq_store_abandon(store);
    drawn->step = "after a kill that followed";
    store = open_state(drawn);
    verify(drawn, store, &promise, &found);

    drawn->step = "sending more";
    uint32_t first = atomic_load(&sweep.model.count);
    send_several(store, &random, true);
    for (int i = 0; i < 2; i++)
        require(drawn, message_model_send(&sweep.model, store, 1, 1, draw_body_size(&random), false));
    memset(flags + first, 1, atomic_load(&sweep.model.count) - first);
    require(drawn, pymq_store_close(store));
    drawn->step = "after a clean close that followed";
    store = open_state(drawn);
    verify(drawn, store, &promise, &found);
    require(drawn, pymq_store_close(store));
    pymq_io_use(NULL);
}

/* Recover on a crash disk, take images of that, send one message, and check disks of those images. */
static void check_recovery_crash(struct drawn *drawn) {
    static uint8_t flags[MESSAGES_MAX];
    static struct collector collector;
    struct test_random random = {.state = test_random_next(&sweep.random)};
    struct model_promise promise = drawn->taken->promise;
    struct model_found found = {0};
    uint32_t count = atomic_load(&sweep.model.count);
    drawn->step = "recovering on a crash disk";
    promise.forbid_dead = drawn->taken->recovered;
    collector_open(&collector, IMAGES_OF_RECOVERY_MAX);
    crash_disk_start(sweep.state_path, collect, &collector);
    struct pymq_store *store = open_state(drawn);
    atomic_store(&collector.recovered, true);
    verify(drawn, store, &promise, &found);
    promise = settle(store, promise.removed_below, flags);
    struct taken between;
    send_behind_cut(drawn, store, found.end, flags, &random, &between, &collector);
    pymq_store_abandon(store);
    crash_disk_stop();
    CHECK(collector.count < IMAGES_MAX, "no room for the image taken between append and acknowledgement");
    collector.list[collector.count++] = between;
    for (size_t i = 0; i < collector.count; i++) {
        struct taken *taken = &collector.list[i];
        struct drawn again = {.taken = taken, .random = sweep.random, .step = "after a crash of recovery"};
        again.style = (enum crash_style)test_random_below(&sweep.random, CRASH_STYLES);
        again.random = sweep.random;
        scratch_remove(sweep.state_path);
        crash_image_write(taken->image, again.style, &sweep.random, sweep.state_path);
        /* What recovery found was on disk; the message sent after it counts when it was promised by the image. */
        struct model_promise later = promise;
        later.forbid_dead = taken->recovered;
        flags[count] = taken->promise.count > count;
        pymq_io_use(&pymq_io_unsynced);
        store = open_state(&again);
        verify(&again, store, &later, &found);
        require(&again, pymq_store_close(store));
        pymq_io_use(NULL);
        sweep.states++;
    }
    collector_close(&collector);
    sweep.recoveries++;
}

static void check_image(const struct taken *taken) {
    uint32_t count = atomic_load(&sweep.model.count);
    uint32_t promised_count = atomic_load(&sweep.model.promised_count);
    int64_t state_count = crash_image_choices(taken->image) == 0 ? 1 : STATES_OF_IMAGE;
    for (int64_t i = 0; i < state_count && sweep.states < sweep.states_wanted; i++) {
        struct drawn drawn = {.taken = taken, .step = "drawing"};
        drawn.style = (enum crash_style)test_random_below(&sweep.random, CRASH_STYLES);
        drawn.random = sweep.random;
        crash_image_write(taken->image, drawn.style, &sweep.random, sweep.state_path);
        sweep.states++;
        if (test_random_chance(&sweep.random, RECOVERY_CRASH_PERCENT))
            check_recovery_crash(&drawn);
        else
            check_state(&drawn);
        scratch_remove(sweep.state_path);
        message_model_rewind(&sweep.model, count);
        atomic_store(&sweep.model.promised_count, promised_count);
    }
    sweep.images++;
}

int main(void) {
    static struct collector collector;
    sweep.seed = environment_seed("test_crash_sweep");
    sweep.states_wanted = environment_integer("PYMQ_CRASH_STATES", STATES_DEFAULT);
    int64_t only = environment_integer("PYMQ_CRASH_WORKLOAD", -1);
    scratch_make_in_memory(sweep.root, sizeof sweep.root, "crash-sweep");
    scratch_join(sweep.store_path, sizeof sweep.store_path, sweep.root, "store");
    scratch_join(sweep.state_path, sizeof sweep.state_path, sweep.root, "state");
    int64_t begin_us = monotonic_us();
    for (int64_t workload = only >= 0 ? only : 0; sweep.states < sweep.states_wanted; workload += only >= 0 ? 0 : 1) {
        sweep.workload = workload;
        sweep.random.state = sweep.seed * 1000003 + (uint64_t)workload;
        draw_config();
        message_model_open(&sweep.model, MESSAGES_MAX, &sweep.config);
        sweep.model.record_crc = sweep.config.append_record_crc && !sweep.crc_changes;
        collector_open(&collector, IMAGES_MAX);
        run_workload(&collector);
        for (size_t i = 0; i < collector.count; i++)
            check_image(&collector.list[i]);
        collector_close(&collector);
        message_model_close(&sweep.model);
        sweep.workloads++;
    }
    double seconds = (double)(monotonic_us() - begin_us) / 1e6;
    scratch_remove(sweep.root);
    printf("test_crash_sweep: %lld states of %lld images of %lld workloads, %lld recoveries crashed, %.0f/s: ok\n",
           (long long)sweep.states, (long long)sweep.images, (long long)sweep.workloads, (long long)sweep.recoveries,
           (double)sweep.states / seconds);
    return 0;
}
