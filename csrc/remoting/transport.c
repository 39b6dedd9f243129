/* A transport's life, what other threads ask of it, and exclusion. */
#include "remoting_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../store/thread.h"

#define DESCRIPTORS_KEPT_MIN 64        /* of RLIMIT_NOFILE, for files, eventfds and whatever else the process opens */
#define CONNECTIONS_MAX_FALLBACK 65536 /* when the limit says infinity */
#define TURN_BYTES_MIN 4096
#define TURN_BYTES_MAX (4 << 20)
#define DRAIN_POLL_NS 1000000

void pymq_transport_config_default(struct pymq_transport_config *config) {
    static const int32_t count_max[PYMQ_LANES] = {50000, 10000, 100000, 10000, 65536, INT32_MAX};
    static const int64_t bytes_max[PYMQ_LANES] = {32 << 20, 64 << 20, 32 << 20, 64 << 20, 256 << 20, INT64_MAX};
    static const int32_t wait_ms[PYMQ_LANES] = {31000, 200, 5000, 5000, 0, 0};
    memset(config, 0, sizeof *config);
    config->frame_size_max = PYMQ_FRAME_SIZE_MAX;
    config->idle_timeout_ms = 120000;
    config->output_size_max = 64 << 20;
    config->output_size_pause = 1 << 20;
    config->pinned_timeout_ms = 10000;
    memcpy(config->lane_count_max, count_max, sizeof count_max);
    memcpy(config->lane_bytes_max, bytes_max, sizeof bytes_max);
    memcpy(config->lane_wait_ms, wait_ms, sizeof wait_ms);
    config->turn_bytes_max = 256 * 1024;
}

/* Half of the processors: the other half serve the control loop, dispatch and flushing. */
static unsigned choose_reactors(int32_t asked) {
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t chosen = asked > 0 ? asked : processors / 2;
    return (unsigned)pymq_max64(1, pymq_min64(chosen, PYMQ_REACTORS_MAX));
}

static int32_t choose_connections(int32_t asked) {
    struct rlimit limit;
    if (asked > 0)
        return (int32_t)pymq_min64(asked, SLOTS_MAX);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return CONNECTIONS_MAX_FALLBACK;
    int64_t kept = pymq_max64(DESCRIPTORS_KEPT_MIN, (int64_t)limit.rlim_cur / 16);
    return (int32_t)pymq_max64(1, pymq_min64((int64_t)limit.rlim_cur - kept, SLOTS_MAX));
}

static int start(struct pymq_transport *transport, struct pymq_error *error) {
    transport->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (transport->wake_fd < 0)
        return pymq_fail(error, PYMQ_EIO, errno, "no eventfd: %s; raise RLIMIT_NOFILE", strerror(errno));
    for (unsigned i = 0; i < transport->reactor_count; i++) {
        int status = pymq_reactor_make(transport, i, error);
        if (status != PYMQ_OK)
            return status;
    }
    for (unsigned i = 0; i < transport->reactor_count; i++) {
        struct pymq_reactor *reactor = transport->reactors[i];
        char name[16];
        snprintf(name, sizeof name, "pymq-reactor-%u", i % PYMQ_REACTORS_MAX);
        int code = pymq_thread_start(&reactor->thread, name, pymq_reactor_run, reactor);
        if (code != 0)
            return pymq_fail(error, PYMQ_ENOMEM, code, "no thread for reactor %u: %s", i, strerror(code));
        reactor->started = true;
    }
    return PYMQ_OK;
}

static void stop_and_free(struct pymq_transport *transport) {
    atomic_store(&transport->stopping, true);
    for (unsigned i = 0; i < transport->reactor_count; i++) {
        struct pymq_reactor *reactor = transport->reactors[i];
        if (reactor == NULL || !reactor->started)
            continue;
        pymq_reactor_ring(reactor);
        pthread_join(reactor->thread, NULL);
    }
    /* Before anything is freed: whoever publishes or answers through the service is inside until this returns. */
    if (transport->service != NULL && transport->service->stopped != NULL)
        transport->service->stopped(transport->service->context);
    if (transport->reactors[0] != NULL)
        pymq_listeners_close(transport);
    for (unsigned i = 0; i < transport->reactor_count; i++)
        pymq_reactor_free(transport->reactors[i]);
    pymq_lanes_free(transport);
    if (transport->wake_fd >= 0)
        close(transport->wake_fd);
    pthread_mutex_destroy(&transport->listener_lock);
    pthread_mutex_destroy(&transport->exclude_lock);
    free(transport);
}

int pymq_transport_open(const struct pymq_transport_config *config, const struct pymq_service *service,
                        struct pymq_transport **result, struct pymq_error *error) {
    *result = NULL;
    if (config->reactors < 0 || config->reactors > PYMQ_REACTORS_MAX)
        return pymq_fail(error, PYMQ_EINVAL, 0, "reactors is %d; it lies between 0 (chosen) and %d", config->reactors,
                         PYMQ_REACTORS_MAX);
    if (config->frame_size_max > INT32_MAX || config->output_size_max < config->output_size_pause)
        return pymq_fail(error, PYMQ_EINVAL, 0,
                         "frame_size_max is above 2 GiB, or output_size_max below output_size_pause");
    struct pymq_transport *transport = calloc(1, sizeof *transport);
    if (transport == NULL)
        return pymq_fail(error, PYMQ_ENOMEM, 0, "no memory for a transport");
    transport->config = *config;
    transport->config.connections_max = choose_connections(config->connections_max);
    transport->config.turn_bytes_max =
        (int32_t)pymq_max64(TURN_BYTES_MIN, pymq_min64(config->turn_bytes_max, TURN_BYTES_MAX));
    transport->service = service;
    transport->reactor_count = choose_reactors(config->reactors);
    pthread_mutex_init(&transport->listener_lock, NULL);
    pthread_mutex_init(&transport->exclude_lock, NULL);
    pymq_lanes_make(transport);
    int status = start(transport, error);
    if (status != PYMQ_OK) {
        stop_and_free(transport);
        return status;
    }
    *result = transport;
    return PYMQ_OK;
}

void pymq_transport_drain(struct pymq_transport *transport) {
    if (atomic_exchange(&transport->draining, true))
        return;
    for (unsigned i = 0; i < transport->reactor_count; i++)
        pymq_reactor_ring(transport->reactors[i]);
}

/* Every reactor knows, no letter is on its way, no byte waits. In this order: a letter counts until its bytes do. */
static bool outputs_empty(struct pymq_transport *transport) {
    for (unsigned i = 0; i < transport->reactor_count; i++) {
        const struct pymq_reactor *reactor = transport->reactors[i];
        if (!atomic_load(&reactor->drain_seen) || atomic_load(&reactor->posted) != 0 ||
            atomic_load(&reactor->counters.output_bytes) != 0)
            return false;
    }
    return true;
}

bool pymq_transport_is_drained(struct pymq_transport *transport) {
    return atomic_load(&transport->draining) && atomic_load(&transport->waiting) == 0 && outputs_empty(transport);
}

void pymq_transport_close(struct pymq_transport *transport, int32_t drain_ms) {
    if (transport == NULL)
        return;
    pymq_transport_drain(transport);
    struct timespec pause = {.tv_nsec = DRAIN_POLL_NS};
    for (int32_t waited = 0; waited < drain_ms && !outputs_empty(transport); waited++)
        nanosleep(&pause, NULL);
    stop_and_free(transport);
}

void pymq_transport_exclude(struct pymq_transport *transport) {
    atomic_fetch_add_explicit(&transport->excluders, 1, memory_order_relaxed);
    pthread_mutex_lock(&transport->exclude_lock);
    for (unsigned i = 0; i < transport->reactor_count; i++)
        pthread_mutex_lock(&transport->reactors[i]->turn_lock);
}

void pymq_transport_include(struct pymq_transport *transport) {
    atomic_fetch_sub_explicit(&transport->excluders, 1, memory_order_relaxed);
    for (unsigned i = transport->reactor_count; i-- > 0;)
        pthread_mutex_unlock(&transport->reactors[i]->turn_lock);
    pthread_mutex_unlock(&transport->exclude_lock);
}

void pymq_transport_set_tls_mode(struct pymq_transport *transport, enum pymq_tls_mode mode) {
    atomic_store(&transport->tls_mode, (int)mode);
}

pymq_connection_id pymq_transport_adopt(struct pymq_transport *transport, int fd, const struct pymq_host *peer,
                                        bool is_client, struct pymq_error *error) {
    struct pymq_reactor *reactor = pymq_reactor_least_loaded(transport);
    if (atomic_load(&transport->draining)) {
        pymq_fail(error, PYMQ_ECLOSED, 0, "the transport is stopping and takes no more connections");
        return 0;
    }
    struct pymq_connection *connection = pymq_connection_make(reactor, fd, peer);
    if (connection == NULL) {
        pymq_fail(error, PYMQ_ETOOBIG, 0, "%d connections are open already; raise connections_max",
                  transport->config.connections_max);
        return 0;
    }
    pymq_connection_id id = connection_id(connection);
    if (pymq_reactor_post(reactor, LETTER_START, id, is_client ? CONNECTION_CLIENT : 0, NULL) != PYMQ_OK) {
        pymq_connection_abandon(connection);
        pymq_fail(error, PYMQ_ENOMEM, 0, "no memory for a connection");
        return 0;
    }
    pymq_inbox_ring(reactor);
    return id;
}

int pymq_transport_queue(struct pymq_transport *transport, pymq_connection_id connection, const uint8_t *frame,
                         size_t size) {
    struct pymq_reactor *reactor = pymq_reactor_of(transport, connection);
    if (reactor == NULL || pymq_connection_named(reactor, connection) == NULL)
        return PYMQ_ECLOSED;
    if (reactor_is_here(reactor)) {
        struct pymq_connection *here = pymq_reactor_find(reactor, connection);
        uint8_t *target = here != NULL ? pymq_connection_reserve(here, size) : NULL;
        if (target == NULL)
            return PYMQ_ECLOSED;
        memcpy(target, frame, size);
        pymq_connection_commit(here, size);
        return PYMQ_OK;
    }
    struct chunk *chunk = pymq_chunk_of_frame(frame, size);
    return chunk != NULL ? pymq_reactor_post(reactor, LETTER_SEND, connection, 0, chunk) : PYMQ_ENOMEM;
}

void pymq_transport_ring(struct pymq_transport *transport) {
    for (unsigned i = 0; i < transport->reactor_count; i++) {
        if (atomic_load(&transport->reactors[i]->inbox) != NULL)
            pymq_inbox_ring(transport->reactors[i]);
    }
}

int pymq_transport_send(struct pymq_transport *transport, pymq_connection_id connection, const uint8_t *frame,
                        size_t size) {
    int status = pymq_transport_queue(transport, connection, frame, size);
    if (status == PYMQ_OK)
        pymq_inbox_ring(pymq_reactor_of(transport, connection));
    return status;
}

void pymq_transport_close_connection(struct pymq_transport *transport, pymq_connection_id connection) {
    struct pymq_reactor *reactor = pymq_reactor_of(transport, connection);
    if (reactor == NULL || pymq_connection_named(reactor, connection) == NULL)
        return;
    if (pymq_reactor_post(reactor, LETTER_CLOSE, connection, 0, NULL) == PYMQ_OK)
        pymq_inbox_ring(reactor);
}

/* The peer, as long as the id names somebody; the lock keeps the slot from being used anew meanwhile. */
static bool peer_of(struct pymq_reactor *reactor, pymq_connection_id id, struct pymq_host *peer) {
    pthread_mutex_lock(&reactor->slot_lock);
    struct pymq_connection *connection = pymq_connection_named(reactor, id);
    if (connection != NULL)
        *peer = connection->peer;
    pthread_mutex_unlock(&reactor->slot_lock);
    return connection != NULL;
}

static int64_t monotonic_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int pymq_transport_hand_over(struct pymq_transport *transport, pymq_connection_id connection, const uint8_t *frame,
                             size_t size, uint8_t reason) {
    struct pymq_reactor *reactor = pymq_reactor_of(transport, connection);
    struct pymq_host peer;
    if (reactor == NULL || !peer_of(reactor, connection, &peer))
        return PYMQ_ECLOSED;
    struct frame_reading *reading = pymq_frame_read(frame, size);
    const struct pymq_command *command = reading != NULL ? &reading->command : NULL;
    enum pymq_lane lane = command != NULL ? pymq_lane_of(transport, command->code) : PYMQ_LANE_ADMIN;
    int status = pymq_lane_put(transport, lane, connection, &peer, monotonic_us(), command, frame, size, reason);
    pymq_frame_read_free(reading);
    return status;
}
