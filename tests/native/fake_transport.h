/* A transport without sockets, for tests and benchmarks of the serving: frames go in by a call, answers stay in memory.
 *
 * Defines what csrc/serve uses of transport.h, so a program that includes this (in one file) does not get the real one
 * from the archive. One thread; a reactor of each index; turns are what the test makes of them. */
#ifndef PYMQ_TESTS_FAKE_TRANSPORT_H
#define PYMQ_TESTS_FAKE_TRANSPORT_H

#include <sys/eventfd.h>
#include <unistd.h>

#include "check.h"
#include "pymq/serve.h"

#define FAKE_CONNECTIONS 16
#define FAKE_OUTPUT_SIZE (1024 * 1024)

struct pymq_connection {
    pymq_connection_id name;
    struct pymq_host peer;
    bool is_open;
    uint8_t *output;
    size_t output_size, read_at;
};

struct pymq_reactor {
    unsigned index;
    int event_fd;
    int64_t now_ms, wall_ms, due_ms;
    struct pymq_transport *transport;
    struct pymq_connection connections[FAKE_CONNECTIONS];
};

struct pymq_transport {
    int excluded;
    size_t handed_over, handed_size; /* how many, and of the newest: its size, and what it says of it */
    uint32_t handed_says;
    struct pymq_reactor reactor;
};

static struct pymq_transport fake;

static inline void fake_start(void) {
    memset(&fake, 0, sizeof fake);
    fake.reactor.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fake.reactor.now_ms = 1000;
    fake.reactor.wall_ms = 1794794460096;
    fake.reactor.due_ms = INT64_MAX;
    fake.reactor.transport = &fake;
}

static inline struct pymq_connection *fake_connect(unsigned slot) {
    struct pymq_connection *connection = &fake.reactor.connections[slot];
    static uint32_t generation;
    connection->name = (uint64_t)(slot + 1) << 32 | ++generation;
    connection->peer = (struct pymq_host){.address = {192, 0, 2, 7}, .size = 4, .port = 40000 + (int32_t)slot};
    connection->is_open = true;
    connection->output_size = connection->read_at = 0;
    if (connection->output == NULL)
        connection->output = malloc(FAKE_OUTPUT_SIZE);
    return connection;
}

static inline void fake_stop(void) {
    for (unsigned i = 0; i < FAKE_CONNECTIONS; i++)
        free(fake.reactor.connections[i].output);
    close(fake.reactor.event_fd);
}

/* The next answer that was written to a connection, decoded; `scratch` is as large as an answer can be. False when
 * there is none. */
static inline bool fake_answer(struct pymq_connection *connection, struct pymq_command *command, uint8_t *scratch,
                               size_t scratch_size) {
    size_t left = connection->output_size - connection->read_at;
    ssize_t size = pymq_frame_size(connection->output + connection->read_at, left, PYMQ_FRAME_SIZE_MAX);
    if (size <= 0)
        return false;
    CHECK((size_t)size <= left);
    const uint8_t *frame = connection->output + connection->read_at;
    CHECK_EQ(pymq_command_decode(frame, (size_t)size, scratch, scratch_size, command), PYMQ_OK);
    connection->read_at += (size_t)size;
    return true;
}

unsigned pymq_reactor_index(const struct pymq_reactor *reactor) { return reactor->index; }
struct pymq_transport *pymq_reactor_transport(const struct pymq_reactor *reactor) { return reactor->transport; }
int pymq_reactor_event_fd(const struct pymq_reactor *reactor) { return reactor->event_fd; }
int64_t pymq_reactor_now_ms(const struct pymq_reactor *reactor) { return reactor->now_ms; }
int64_t pymq_reactor_wall_ms(const struct pymq_reactor *reactor) { return reactor->wall_ms; }
void pymq_reactor_set_timer(struct pymq_reactor *reactor, int64_t due_ms) {
    reactor->due_ms = pymq_min64(reactor->due_ms, due_ms);
}

pymq_connection_id pymq_connection_name(const struct pymq_connection *connection) { return connection->name; }
const struct pymq_host *pymq_connection_peer(const struct pymq_connection *connection) { return &connection->peer; }

struct pymq_connection *pymq_reactor_find(struct pymq_reactor *reactor, pymq_connection_id name) {
    struct pymq_connection *connection = &reactor->connections[(name >> 32) - 1];
    return connection->is_open && connection->name == name ? connection : NULL;
}

uint8_t *pymq_connection_reserve(struct pymq_connection *connection, size_t size) {
    return connection->output_size + size <= FAKE_OUTPUT_SIZE ? connection->output + connection->output_size : NULL;
}

void pymq_connection_commit(struct pymq_connection *connection, size_t size) { connection->output_size += size; }

void pymq_connection_send_spans(struct pymq_connection *connection, struct pymq_store *store, const uint8_t *head,
                                size_t head_size, struct pymq_span *spans, size_t span_count) {
    memcpy(connection->output + connection->output_size, head, head_size);
    connection->output_size += head_size;
    for (size_t i = 0; i < span_count; i++) {
        memcpy(connection->output + connection->output_size, spans[i].data, spans[i].size);
        connection->output_size += spans[i].size;
    }
    for (size_t i = 0; i < span_count; i++)
        pymq_span_release(store, &spans[i]);
}

void pymq_transport_exclude(struct pymq_transport *transport) { CHECK_EQ(transport->excluded++, 0); }
void pymq_transport_include(struct pymq_transport *transport) { CHECK_EQ(--transport->excluded, 0); }

int pymq_transport_send(struct pymq_transport *transport, pymq_connection_id name, const uint8_t *frame, size_t size) {
    struct pymq_connection *connection = pymq_reactor_find(&transport->reactor, name);
    if (connection == NULL)
        return PYMQ_ECLOSED;
    memcpy(connection->output + connection->output_size, frame, size);
    connection->output_size += size;
    return PYMQ_OK;
}

int pymq_transport_hand_over(struct pymq_transport *transport, pymq_connection_id name, const uint8_t *frame,
                             size_t size, uint8_t reason) {
    (void)name, (void)reason;
    transport->handed_over++;
    transport->handed_size = size;
    transport->handed_says = size >= 4 ? pymq_load_be32(frame) : 0;
    return PYMQ_OK;
}

void pymq_transport_close_connection(struct pymq_transport *transport, pymq_connection_id name) {
    struct pymq_connection *connection = pymq_reactor_find(&transport->reactor, name);
    if (connection != NULL)
        connection->is_open = false;
}

#endif
