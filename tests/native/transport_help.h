/* What the transport's test programs share: a listening transport with an echo service, and plain blocking clients. */
#ifndef PYMQ_TESTS_TRANSPORT_HELP_H
#define PYMQ_TESTS_TRANSPORT_HELP_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "pymq/transport.h"

enum {
    CODE_ECHO = 10,      /* answered by the service with the request's body */
    CODE_HAND_OVER = 34, /* handed over, with reason 7 */
    CODE_OTHER = 105,
    REASON_OF_TEST = 7,
    WAIT_MS = 20000, /* for what must happen; sanitizers on a busy machine are slow */
};

static inline int64_t help_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline void help_pause_ms(int ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

/* Wait until a condition holds, and fail when it does not come to hold. */
#define HELP_UNTIL(condition)                                                                                          \
    do {                                                                                                               \
        int64_t help_deadline = help_now_ms() + WAIT_MS;                                                               \
        while (!(condition)) {                                                                                         \
            if (help_now_ms() > help_deadline)                                                                         \
                CHECK_FAIL("never came to hold: %s", #condition);                                                      \
            help_pause_ms(1);                                                                                          \
        }                                                                                                              \
    } while (0)

struct echo {
    struct pymq_service service;
    _Atomic int64_t requests, settles, events, timers, closed, dropped, stopped, unreadable;
    _Atomic int event_fd; /* of the last reactor whose timer ran */
    _Atomic int64_t timer_period_ms; /* 0: only at the start */
    _Atomic int32_t table;           /* changed under exclusion by two steps; a turn must never see the first alone */
    int32_t table_twin;              /* not atomic on purpose: a thread sanitizer sees a broken exclusion */
};

static inline void help_reply(struct pymq_connection *connection, const struct pymq_command *command,
                              struct pymq_slice body) {
    uint8_t *target = pymq_connection_reserve(connection, PYMQ_HEADER_ROOM + body.size);
    if (target == NULL)
        return;
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, PYMQ_HEADER_ROOM, command->serialize_type, 0, PYMQ_COMMAND_RESPONSE,
                      command->opaque, (struct pymq_slice){NULL, 0});
    ssize_t size = pymq_header_end(&writer, body.size);
    CHECK(size > 0);
    if (body.size != 0)
        memcpy(target + size, body.data, body.size);
    pymq_connection_commit(connection, (size_t)size + body.size);
}

static inline int echo_request(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                               const struct pymq_command *command, const uint8_t *frame, size_t frame_size) {
    struct echo *echo = context;
    CHECK(pymq_reactor_find(reactor, pymq_connection_name(connection)) == connection);
    CHECK(pymq_connection_peer(connection)->port != 0);
    CHECK(frame_size == (size_t)pymq_load_be32(frame) + 4);
    CHECK_EQ(atomic_load_explicit(&echo->table, memory_order_relaxed), echo->table_twin);
    atomic_fetch_add_explicit(&echo->requests, 1, memory_order_relaxed);
    if (command->code == CODE_HAND_OVER)
        return PYMQ_HAND_OVER + REASON_OF_TEST;
    if (command->code != CODE_ECHO)
        return PYMQ_HAND_OVER;
    if ((command->flag & PYMQ_COMMAND_ONEWAY) == 0)
        help_reply(connection, command, command->body);
    return PYMQ_SERVED;
}

static inline void echo_settle(void *context, struct pymq_reactor *reactor) {
    (void)reactor;
    atomic_fetch_add_explicit(&((struct echo *)context)->settles, 1, memory_order_relaxed);
}

static inline void echo_event(void *context, struct pymq_reactor *reactor) {
    (void)reactor;
    atomic_fetch_add_explicit(&((struct echo *)context)->events, 1, memory_order_relaxed);
}

static inline int64_t echo_timer(void *context, struct pymq_reactor *reactor, int64_t now_ms) {
    struct echo *echo = context;
    CHECK_EQ(now_ms, pymq_reactor_now_ms(reactor));
    CHECK(pymq_reactor_wall_ms(reactor) > now_ms && pymq_reactor_index(reactor) < PYMQ_REACTORS_MAX);
    atomic_store(&echo->event_fd, pymq_reactor_event_fd(reactor));
    atomic_fetch_add_explicit(&echo->timers, 1, memory_order_relaxed);
    int64_t period_ms = atomic_load_explicit(&echo->timer_period_ms, memory_order_relaxed);
    return period_ms != 0 ? now_ms + period_ms : INT64_MAX;
}

static inline void echo_closed(void *context, struct pymq_reactor *reactor, pymq_connection_id connection) {
    (void)reactor;
    CHECK(connection != 0);
    atomic_fetch_add_explicit(&((struct echo *)context)->closed, 1, memory_order_relaxed);
}

static inline void echo_dropped(void *context, pymq_connection_id connection, int32_t code, const uint8_t *frame,
                                size_t size) {
    CHECK(connection != 0 && code >= -1 && frame != NULL && size >= PYMQ_FRAME_PREFIX_SIZE);
    atomic_fetch_add_explicit(&((struct echo *)context)->dropped, 1, memory_order_relaxed);
}

static inline void echo_unreadable(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                                   const uint8_t *frame, size_t frame_size) {
    CHECK(pymq_connection_name(connection) >> 56 == pymq_reactor_index(reactor) && frame != NULL && frame_size >= 8);
    atomic_fetch_add_explicit(&((struct echo *)context)->unreadable, 1, memory_order_relaxed);
}

static inline void echo_stopped(void *context) { atomic_fetch_add(&((struct echo *)context)->stopped, 1); }

struct server {
    struct pymq_transport *transport;
    int32_t port;
    struct echo echo;
};

static inline struct pymq_transport_config help_config(void) {
    struct pymq_transport_config config;
    pymq_transport_config_default(&config);
    config.reactors = 1;
    return config;
}

static inline void server_open_plain(struct server *server, const struct pymq_transport_config *config,
                                     const struct pymq_service *service) {
    struct pymq_error error;
    if (pymq_transport_open(config, service, &server->transport, &error) != PYMQ_OK ||
        pymq_transport_listen(server->transport, "127.0.0.1", 0, &server->port, &error) != PYMQ_OK)
        CHECK_FAIL("%s", error.text);
    CHECK(server->port > 0);
}

static inline void server_open(struct server *server, const struct pymq_transport_config *config) {
    memset(server, 0, sizeof *server);
    server->echo.service = (struct pymq_service){
        .context = &server->echo,
        .request = echo_request,
        .settle = echo_settle,
        .event = echo_event,
        .timer = echo_timer,
        .closed = echo_closed,
        .dropped = echo_dropped,
        .unreadable = echo_unreadable,
        .stopped = echo_stopped,
    };
    server_open_plain(server, config, &server->echo.service);
}

static inline void server_close(struct server *server) { pymq_transport_close(server->transport, 1000); }

static inline struct pymq_transport_stats server_stats(const struct server *server) {
    struct pymq_transport_stats stats;
    pymq_transport_stats(server->transport, &stats);
    return stats;
}

/* ---- clients ------------------------------------------------------------------------------------------------ */

static inline int client_connect(int32_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval patience = {.tv_sec = WAIT_MS / 1000};
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        CHECK_FAIL("connect: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return fd;
}

static inline void client_write(int fd, const void *bytes, size_t size) {
    const uint8_t *at = bytes;
    while (size != 0) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0)
            CHECK_FAIL("send: %s", strerror(errno));
        at += sent;
        size -= (size_t)sent;
    }
}

/* Read exactly `size` bytes; false at the end of the stream, or when it was reset. */
static inline bool client_read(int fd, void *target, size_t size) {
    uint8_t *at = target;
    while (size != 0) {
        ssize_t got = recv(fd, at, size, 0);
        if (got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE)))
            return false;
        if (got < 0)
            CHECK_FAIL("recv: %s", strerror(errno));
        at += got;
        size -= (size_t)got;
    }
    return true;
}

/* Whether the server has ended the connection, once everything it wrote has been read. */
static inline bool client_is_ended(int fd) {
    uint8_t sink[65536];
    ssize_t got;
    while ((got = recv(fd, sink, sizeof sink, 0)) > 0)
        ;
    return got == 0 || errno == ECONNRESET || errno == EPIPE;
}

/* A request; returns its size. Room for PYMQ_HEADER_ROOM more than the body. */
static inline size_t frame_make(uint8_t *target, uint8_t type, int32_t code, int32_t flag, int32_t opaque,
                                const void *body, size_t body_size) {
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, PYMQ_HEADER_ROOM, type, code, flag, opaque, (struct pymq_slice){NULL, 0});
    pymq_header_field(&writer, "topic", 5, (const uint8_t *)"T", 1);
    ssize_t size = pymq_header_end(&writer, (uint32_t)body_size);
    CHECK(size > 0);
    if (body_size != 0)
        memcpy(target + size, body, body_size);
    return (size_t)size + body_size;
}

static inline void client_request(int fd, int32_t code, int32_t opaque, const void *body, size_t body_size) {
    uint8_t *frame = malloc(PYMQ_HEADER_ROOM + body_size);
    CHECK(frame != NULL);
    client_write(fd, frame, frame_make(frame, PYMQ_SERIALIZE_JSON, code, 0, opaque, body, body_size));
    free(frame);
}

struct answer {
    struct pymq_command command;
    uint8_t *frame, *scratch;
    size_t size;
};

/* The next frame of the server; false at the end of the stream. Free with answer_free. */
static inline bool client_answer(int fd, struct answer *answer) {
    uint8_t prefix[4];
    if (!client_read(fd, prefix, sizeof prefix))
        return false;
    answer->size = (size_t)pymq_load_be32(prefix) + 4;
    answer->frame = malloc(answer->size);
    answer->scratch = malloc(answer->size);
    CHECK(answer->frame != NULL && answer->scratch != NULL);
    memcpy(answer->frame, prefix, sizeof prefix);
    CHECK(client_read(fd, answer->frame + 4, answer->size - 4));
    CHECK_EQ(pymq_command_decode(answer->frame, answer->size, answer->scratch, answer->size, &answer->command),
             PYMQ_OK);
    return true;
}

static inline void answer_free(struct answer *answer) {
    free(answer->frame);
    free(answer->scratch);
}

/* One echo round trip. */
static inline void client_echo(int fd, int32_t opaque, const void *body, size_t body_size) {
    struct answer answer;
    client_request(fd, CODE_ECHO, opaque, body, body_size);
    CHECK(client_answer(fd, &answer));
    CHECK_EQ(answer.command.opaque, opaque);
    CHECK_EQ(answer.command.code, 0);
    CHECK_BYTES(answer.command.body.data, answer.command.body.size, body, body_size);
    answer_free(&answer);
}

/* The next entry of a lane, waited for through the wake descriptor; freed by the caller. */
static inline struct pymq_handed *help_take(struct pymq_transport *transport, enum pymq_lane lane) {
    int64_t deadline = help_now_ms() + WAIT_MS;
    for (;;) {
        struct pymq_handed *handed = pymq_transport_take(transport, lane, 1);
        if (handed != NULL)
            return handed;
        pymq_transport_clear_wake(transport);
        struct pollfd waiting = {.fd = pymq_transport_wake_fd(transport), .events = POLLIN};
        poll(&waiting, 1, 5);
        if (help_now_ms() > deadline)
            CHECK_FAIL("nothing came in lane %d", (int)lane);
    }
}

static inline struct pymq_handed *help_event(struct pymq_transport *transport, enum pymq_handed_kind kind) {
    struct pymq_handed *handed = help_take(transport, PYMQ_LANE_EVENT);
    CHECK_EQ(handed->kind, kind);
    return handed;
}

#endif
