/* Arrivals by queue: a watch is never lost between the look and the sleep, a full ring says so, closed watchers are
 * left alone. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

#include "store_help.h"

#define RACES 100000
#define RACES_SANITIZED 20000
#define WAIT_MS 20000
#define PAUSE_MAX 20000

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define RACE_COUNT RACES_SANITIZED
#else
#define RACE_COUNT RACES
#endif

static struct pymq_store *open_roomy(const char *path) {
    struct pymq_store_config config = small_config();
    config.log_file_size = 64 * 1024 * 1024;
    config.log_window_size = 4 * 1024 * 1024;
    config.queue_file_size = 20 * 300000;
    config.queue_map_count_max = 4096;
    config.index_enable = false;
    return open_or_die(path, &config);
}

static bool rings(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    uint64_t value;
    return poll(&wait, 1, WAIT_MS) == 1 && read(fd, &value, sizeof value) == (ssize_t)sizeof value;
}

static void test_arrival_is_posted_once_per_watch_and_only_for_that_queue(void) {
    const char *path = scratch("watch-once");
    struct pymq_store *store = open_roomy(path);
    int fd = eventfd(0, EFD_NONBLOCK);
    int watcher = pymq_store_open_watcher(store, fd);
    CHECK(watcher >= 0);
    struct pymq_queue *watched = queue_of(store, "T", 0), *taken[8];
    bool all;
    CHECK_EQ(pymq_queue_watch(watched, watcher), 0);
    send_text(store, "T", 1, "another queue");
    CHECK_EQ(pymq_store_wait_dispatched(store, WAIT_MS), PYMQ_OK);
    CHECK_EQ(pymq_store_take_arrivals(store, watcher, taken, 8, &all), 0);
    send_text(store, "T", 0, "first");
    CHECK(rings(fd));
    CHECK_EQ(pymq_store_take_arrivals(store, watcher, taken, 8, &all), 1);
    CHECK(taken[0] == watched && !all);
    send_text(store, "T", 0, "nobody watches now");
    CHECK_EQ(pymq_store_wait_dispatched(store, WAIT_MS), PYMQ_OK);
    CHECK_EQ(pymq_store_take_arrivals(store, watcher, taken, 8, &all), 0);
    CHECK_EQ(pymq_queue_watch(watched, watcher), 2); /* what came in between is seen behind the watch */
    pymq_store_close_watcher(store, watcher);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    close(fd);
    scratch_end(path);
}

static void test_full_ring_asks_for_a_look_at_all(void) {
    const char *path = scratch("watch-full");
    struct pymq_store *store = open_roomy(path);
    enum { QUEUES = 4200 }; /* more than a ring holds */
    int fd = eventfd(0, EFD_NONBLOCK);
    int watcher = pymq_store_open_watcher(store, fd);
    for (int32_t i = 0; i < QUEUES; i++)
        pymq_queue_watch(queue_of(store, "T", i), watcher);
    for (int32_t i = 0; i < QUEUES; i++)
        send_text(store, "T", i, "x");
    CHECK_EQ(pymq_store_wait_dispatched(store, WAIT_MS), PYMQ_OK);
    static struct pymq_queue *taken[QUEUES];
    bool all;
    size_t count = pymq_store_take_arrivals(store, watcher, taken, QUEUES, &all);
    CHECK(count < QUEUES);
    CHECK(all);
    CHECK_EQ(pymq_store_take_arrivals(store, watcher, taken, QUEUES, &all), 0);
    CHECK(!all);
    pymq_store_close_watcher(store, watcher);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    close(fd);
    scratch_end(path);
}

static void test_watchers_run_out_and_places_are_used_again(void) {
    const char *path = scratch("watch-places");
    struct pymq_store *store = open_roomy(path);
    int fd = eventfd(0, EFD_NONBLOCK), last = -1;
    for (int i = 0; i < 32; i++)
        CHECK((last = pymq_store_open_watcher(store, fd)) >= 0);
    CHECK_EQ(pymq_store_open_watcher(store, fd), PYMQ_EINVAL);
    pymq_store_close_watcher(store, last);
    CHECK_EQ(pymq_store_open_watcher(store, fd), last);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    close(fd);
    scratch_end(path);
}

struct race {
    struct pymq_store *store;
    _Atomic int64_t wanted; /* messages the watcher has seen and wants one more than */
};

static void *appender(void *context) {
    struct race *race = context;
    for (int64_t sent = 0; sent < RACE_COUNT; sent++) {
        while (atomic_load(&race->wanted) < sent)
            ; /* spin: the watch and the append should meet as closely as two cores allow */
        send_text(race->store, "T", 0, "x");
    }
    return NULL;
}

/* The watcher asks for message after message, going to sleep each time as a reactor with a held pull does. A lost
 * wake-up shows as a poll that times out. */
static void test_no_wake_up_is_lost_between_the_watch_and_the_sleep(void) {
    const char *path = scratch("watch-race");
    struct pymq_store *store = open_roomy(path);
    struct race race = {.store = store};
    int fd = eventfd(0, EFD_NONBLOCK);
    int watcher = pymq_store_open_watcher(store, fd);
    struct pymq_queue *queue = queue_of(store, "T", 0);
    pthread_t thread;
    pthread_create(&thread, NULL, appender, &race);
    int64_t seen = 0, slept = 0;
    uint64_t random = 88172645463325252u;
    while (seen < RACE_COUNT) {
        atomic_store(&race.wanted, seen);
        for (volatile uint64_t pause = check_random(&random) % PAUSE_MAX; pause > 0; pause--)
            ; /* so that the watch falls before, into and behind the dispatch */
        int64_t end = pymq_queue_watch(queue, watcher);
        if (end <= seen) {
            if (!rings(fd))
                CHECK_FAIL("no wake-up for message %" PRId64, seen);
            slept++;
            struct pymq_queue *taken[2];
            bool all;
            pymq_store_take_arrivals(store, watcher, taken, 2, &all);
            struct pymq_queue_info info;
            pymq_queue_info(queue, &info);
            end = info.max_offset;
        }
        seen = end > seen ? seen + 1 : seen; /* a ring for what was seen already is no harm */
    }
    pthread_join(thread, NULL);
    printf("lost wake-ups: 0 of %d races, %" PRId64 " slept\n", RACE_COUNT, slept);
    pymq_store_close_watcher(store, watcher);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    close(fd);
    scratch_end(path);
}

int main(void) {
    RUN(test_arrival_is_posted_once_per_watch_and_only_for_that_queue);
    RUN(test_full_ring_asks_for_a_look_at_all);
    RUN(test_watchers_run_out_and_places_are_used_again);
    RUN(test_no_wake_up_is_lost_between_the_watch_and_the_sleep);
    return check_summary();
}
