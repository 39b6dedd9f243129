/* Everything at once, for the thread sanitizer: clients that come and go, exclusion, a control loop, sends to the
 * dead. */
#include "transport_help.h"

#include <pthread.h>
#include <sched.h>

enum { REACTORS = 3, PIPELINE = 32, IDS = 64 };

struct world {
    struct server server;
    _Atomic bool stop;
    _Atomic int64_t excluded, echoed, churned, taken, sent, refused;
    _Atomic uint64_t ids[IDS]; /* some live, some long gone */
    uint64_t seed;
};

/* Bursts of pipelined requests, so that reactors are never out of work. */
static void *run_client(void *context) {
    struct world *world = context;
    uint8_t frames[PIPELINE * 512];
    size_t size = 0;
    for (int32_t i = 0; i < PIPELINE; i++)
        size += frame_make(frames + size, (uint8_t)(i & 1), CODE_ECHO, 0, i, "0123456789", 10);
    int fd = client_connect(world->server.port);
    while (!atomic_load(&world->stop)) {
        client_write(fd, frames, size);
        for (int32_t i = 0; i < PIPELINE;) {
            struct answer answer;
            CHECK(client_answer(fd, &answer));
            if (answer.command.opaque == i) /* between them come the strangers' frames */
                i++;
            answer_free(&answer);
        }
        atomic_fetch_add(&world->echoed, PIPELINE);
    }
    close(fd);
    return NULL;
}

/* Connections that end in every state: idle, in mid-frame, with answers unread. */
static void *run_churner(void *context) {
    struct world *world = context;
    uint8_t frame[PYMQ_HEADER_ROOM];
    for (unsigned round = 0; !atomic_load(&world->stop); round++) {
        int fd = client_connect(world->server.port);
        size_t size = frame_make(frame, PYMQ_SERIALIZE_JSON, round % 2 ? CODE_ECHO : CODE_OTHER, 0, -1, "bye", 3);
        if (round % 3 != 0)
            client_write(fd, frame, round % 5 == 0 ? size / 2 : size);
        close(fd);
        atomic_fetch_add(&world->churned, 1);
    }
    return NULL;
}

/* What the service reads in its turns is changed in two steps; see echo_request. */
static void *run_excluder(void *context) {
    struct world *world = context;
    struct echo *echo = &world->server.echo;
    while (!atomic_load(&world->stop)) {
        pymq_transport_exclude(world->server.transport);
        atomic_fetch_add_explicit(&echo->table, 1, memory_order_relaxed);
        echo->table_twin++;
        pymq_transport_include(world->server.transport);
        atomic_fetch_add(&world->excluded, 1);
        help_pause_ms(1);
    }
    return NULL;
}

static void *run_control_loop(void *context) {
    struct world *world = context;
    struct pymq_transport *transport = world->server.transport;
    unsigned next = 0;
    while (!atomic_load(&world->stop)) {
        struct pollfd waiting = {.fd = pymq_transport_wake_fd(transport), .events = POLLIN};
        poll(&waiting, 1, 10);
        for (int lane = 0; lane < PYMQ_LANES; lane++) {
            struct pymq_handed *handed = pymq_transport_take(transport, (enum pymq_lane)lane, 100);
            while (handed != NULL) {
                struct pymq_handed *following = handed->next;
                if (handed->kind == PYMQ_HANDED_OPENED)
                    atomic_store(&world->ids[next++ % IDS], handed->connection);
                if (handed->kind == PYMQ_HANDED_FRAME)
                    pymq_transport_send(transport, handed->connection, handed->frame, handed->size);
                pymq_handed_free(transport, handed);
                atomic_fetch_add(&world->taken, 1);
                handed = following;
            }
        }
        pymq_transport_clear_wake(transport);
    }
    return NULL;
}

/* Frames and closes for whoever has an id, alive or not. Never a close for one that may be a steady client. */
static void *run_stranger(void *context) {
    struct world *world = context;
    uint8_t frame[PYMQ_HEADER_ROOM];
    size_t size = frame_make(frame, PYMQ_SERIALIZE_JSON, CODE_OTHER, PYMQ_COMMAND_RESPONSE, -2, NULL, 0);
    uint64_t seed = 7;
    while (!atomic_load(&world->stop)) {
        pymq_connection_id id = atomic_load(&world->ids[check_random(&seed) % IDS]);
        int status = pymq_transport_send(world->server.transport, id, frame, size);
        CHECK(status == PYMQ_OK || status == PYMQ_ECLOSED);
        atomic_fetch_add(status == PYMQ_OK ? &world->sent : &world->refused, 1);
        int again = pymq_transport_hand_over(world->server.transport, id, frame, size, 1);
        CHECK(again == PYMQ_OK || again == PYMQ_ECLOSED || again == PYMQ_EPOOL);
        struct pymq_transport_stats stats = server_stats(&world->server);
        CHECK(stats.open >= 0);
        help_pause_ms(1);
    }
    return NULL;
}

static void test_everything_at_once_keeps_its_promises(void) {
    static struct world world;
    struct pymq_transport_config config = help_config();
    void *(*const runs[])(void *) = {run_client,   run_client,       run_client,   run_client,  run_churner,
                                     run_excluder, run_control_loop, run_stranger, run_excluder};
    enum { THREADS = sizeof runs / sizeof runs[0] };
    pthread_t threads[THREADS];
    config.reactors = REACTORS;
    server_open(&world.server, &config);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, runs[i], &world) == 0);
    HELP_UNTIL(atomic_load(&world.excluded) >= 300 && atomic_load(&world.echoed) >= 3000 &&
               atomic_load(&world.churned) >= 100 && atomic_load(&world.taken) >= 200 &&
               atomic_load(&world.sent) > 0 && atomic_load(&world.refused) > 0);
    atomic_store(&world.stop, true);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    HELP_UNTIL(server_stats(&world.server).open == 0);
    CHECK_EQ(server_stats(&world.server).buffer_bytes, 0);
    CHECK_EQ(server_stats(&world.server).broken_frames, 0);
    server_close(&world.server);
}

/* A timer that is always due never lets the reactor sleep: it lets its lock go only to take it again. An unfair lock
 * would keep the excluder out for as long as it likes. */
static void test_an_excluder_is_not_starved_by_a_busy_reactor(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    memset(&server, 0, sizeof server);
    atomic_store(&server.echo.timer_period_ms, -1);
    server.echo.service = (struct pymq_service){.context = &server.echo, .timer = echo_timer};
    server_open_plain(&server, &config, &server.echo.service);
    HELP_UNTIL(atomic_load(&server.echo.timers) > 1000);
    int waited_long = 0;
    for (int i = 0; i < 1000; i++) {
        int64_t before = server_stats(&server).turns;
        pymq_transport_exclude(server.transport);
        waited_long += server_stats(&server).turns - before > 3;
        pymq_transport_include(server.transport);
        HELP_UNTIL(server_stats(&server).turns > before + 3); /* it runs again, at full speed */
    }
    /* One turn before it was asked, the one under way, one that was about to begin. More only when this thread was
     * put to sleep between looking and asking, which is nobody's fault and rare. */
    CHECK(waited_long < 200);
    server_close(&server);
}

static void *run_sender(void *context) {
    struct world *world = context;
    uint8_t frame[100] = {0, 0, 0, 96};
    while (!atomic_load(&world->stop)) {
        for (int i = 0; i < IDS; i++)
            pymq_transport_send(world->server.transport, atomic_load(&world->ids[i]), frame, sizeof frame);
    }
    return NULL;
}

/* The transport ends under load: connections open, answers waiting, letters on their way. */
static void test_a_close_under_load_joins_and_frees_everything(void) {
    for (int round = 0; round < 10; round++) {
        static struct world world;
        struct pymq_transport_config config = help_config();
        pthread_t sender;
        int fds[IDS];
        memset(&world, 0, sizeof world);
        config.reactors = 1 + round % REACTORS;
        server_open(&world.server, &config);
        for (int i = 0; i < IDS; i++) {
            fds[i] = client_connect(world.server.port);
            struct pymq_handed *handed = help_event(world.server.transport, PYMQ_HANDED_OPENED);
            atomic_store(&world.ids[i], handed->connection);
            pymq_handed_free(world.server.transport, handed);
        }
        CHECK(pthread_create(&sender, NULL, run_sender, &world) == 0);
        for (int i = 0; i < IDS; i++)
            client_request(fds[i], i % 2 ? CODE_ECHO : CODE_OTHER, i, "x", 1);
        atomic_store(&world.stop, true);
        pthread_join(sender, NULL);
        pymq_transport_close(world.server.transport, round % 2 ? 100 : 0);
        for (int i = 0; i < IDS; i++) {
            CHECK(client_is_ended(fds[i]));
            close(fds[i]);
        }
    }
}

/* What a service with a control loop of its own does: it uses the transport under a lock and forgets it when told. */
static struct {
    pthread_mutex_t lock;
    struct pymq_transport *transport;
    _Atomic int64_t uses;
    _Atomic bool stop;
} user = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void user_stopped(void *context) {
    (void)context;
    pthread_mutex_lock(&user.lock);
    user.transport = NULL;
    pthread_mutex_unlock(&user.lock);
}

static void *run_user(void *context) {
    uint8_t frame[100] = {0, 0, 0, 96};
    pymq_connection_id id = *(const pymq_connection_id *)context;
    while (!atomic_load(&user.stop)) {
        pthread_mutex_lock(&user.lock);
        if (user.transport != NULL) {
            pymq_transport_exclude(user.transport);
            pymq_transport_include(user.transport);
            pymq_transport_send(user.transport, id, frame, sizeof frame);
            pymq_transport_hand_over(user.transport, id, frame, sizeof frame, 1);
            atomic_fetch_add(&user.uses, 1);
        }
        pthread_mutex_unlock(&user.lock);
        sched_yield();
    }
    return NULL;
}

/* The symptom: reactors were freed before the service was told, and a publication on the way used freed locks. */
static void test_a_transport_can_be_used_until_its_service_is_told_that_it_stopped(void) {
    for (int round = 0; round < 20; round++) {
        struct server server;
        struct pymq_transport_config config = help_config();
        pthread_t thread;
        config.reactors = 2;
        memset(&server, 0, sizeof server);
        server.echo.service = (struct pymq_service){.context = &server.echo, .stopped = user_stopped};
        server_open_plain(&server, &config, &server.echo.service);
        int fd = client_connect(server.port);
        struct pymq_handed *handed = help_event(server.transport, PYMQ_HANDED_OPENED);
        pymq_connection_id id = handed->connection;
        pymq_handed_free(server.transport, handed);
        user.transport = server.transport;
        atomic_store(&user.uses, 0);
        atomic_store(&user.stop, false);
        CHECK(pthread_create(&thread, NULL, run_user, &id) == 0);
        HELP_UNTIL(atomic_load(&user.uses) > 10);
        pymq_transport_close(server.transport, 0);
        CHECK(user.transport == NULL);
        help_pause_ms(1);
        atomic_store(&user.stop, true);
        CHECK(pthread_join(thread, NULL) == 0);
        close(fd);
    }
}

int main(void) {
    RUN(test_everything_at_once_keeps_its_promises);
    RUN(test_an_excluder_is_not_starved_by_a_busy_reactor);
    RUN(test_a_transport_can_be_used_until_its_service_is_told_that_it_stopped);
    RUN(test_a_close_under_load_joins_and_frees_everything);
    return check_summary();
}
