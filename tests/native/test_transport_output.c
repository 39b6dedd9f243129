/* What waits for a peer: back-pressure, limits, frames of other threads, spans of the log. */
#include "store_help.h"
#include "transport_help.h"

enum { CODE_SPANS = 11, RECORD_BODY = 100 * 1024, RECORDS = 40, SPANS_MAX = 200 };

/* A peer whose kernel buffers hold little, so that bytes wait with the transport. */
static int narrow_connect(int32_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), size = 4096;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct timeval patience = {.tv_sec = WAIT_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static pymq_connection_id opened(struct server *server) {
    struct pymq_handed *handed = help_event(server->transport, PYMQ_HANDED_OPENED);
    pymq_connection_id id = handed->connection;
    pymq_handed_free(server->transport, handed);
    return id;
}

/* Requests that fit a read by the dozen, and requests of which a read holds a few and a large rest. */
static void deaf_for_a_while(size_t body_size) {
    struct server server;
    struct pymq_transport_config config = help_config();
    config.output_size_pause = 64 * 1024;
    server_open(&server, &config);
    int fd = narrow_connect(server.port), other = client_connect(server.port);
    static uint8_t body[60000], frame[sizeof body + PYMQ_HEADER_ROOM];
    size_t size = frame_make(frame, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 0, body, body_size);
    size_t sent = 0, total = 32 << 20, position = 0;
    int32_t answered = 0;
    while (sent < total) { /* until nothing more is taken: the transport has stopped reading */
        ssize_t got = send(fd, frame + position, size - position, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (got < 0) {
            int64_t requests = atomic_load(&server.echo.requests);
            help_pause_ms(30);
            if (atomic_load(&server.echo.requests) == requests)
                break;
            continue;
        }
        sent += (size_t)got;
        position = (position + (size_t)got) % size;
    }
    CHECK(sent < total); /* otherwise the kernel held it all and the test shows nothing */
    CHECK(server_stats(&server).buffer_bytes < 64 * 1024 + 2 * 256 * 1024 + 4 * 16 * 1024);
    client_echo(other, 1, "served meanwhile", 16);
    while (answered < (int32_t)(sent / size)) {
        struct answer answer;
        CHECK(client_answer(fd, &answer));
        CHECK_BYTES(answer.command.body.data, answer.command.body.size, body, body_size);
        answer_free(&answer);
        answered++;
    }
    client_write(fd, frame + position, position != 0 ? size - position : 0); /* the frame that was under way */
    if (position != 0) {
        struct answer answer;
        CHECK(client_answer(fd, &answer));
        answer_free(&answer);
    }
    client_echo(fd, 2, "goes on", 7);
    HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
    close(fd);
    close(other);
    server_close(&server);
}

static void test_a_peer_that_does_not_read_is_not_read_and_loses_nothing(void) {
    deaf_for_a_while(8192);
    deaf_for_a_while(60000);
}

static void test_a_peer_above_the_output_limit_is_closed(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    config.output_size_pause = 64 * 1024;
    config.output_size_max = 1 << 20;
    server_open(&server, &config);
    static uint8_t frame[256 * 1024];
    pymq_store_be32(frame, sizeof frame - 4);
    int fd = narrow_connect(server.port), other = client_connect(server.port);
    pymq_connection_id id = opened(&server);
    int status = PYMQ_OK;
    for (int i = 0; i < 200 && status == PYMQ_OK; i++) {
        status = pymq_transport_send(server.transport, id, frame, sizeof frame);
        help_pause_ms(1);
    }
    CHECK_EQ(status, PYMQ_ECLOSED);
    HELP_UNTIL(server_stats(&server).output_closed == 1);
    HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
    client_echo(other, 1, "x", 1);
    CHECK(client_is_ended(fd));
    close(fd);
    close(other);
    server_close(&server);
}

static void test_frames_of_another_thread_arrive_in_order_and_a_close_follows_them(void) {
    enum { COUNT = 500 };
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    int fd = client_connect(server.port);
    pymq_connection_id id = opened(&server);
    static uint8_t frame[40000];
    for (uint32_t i = 0; i < COUNT; i++) { /* small ones are joined, large ones linked */
        size_t size = i % 10 == 0 ? sizeof frame : 100 + i;
        pymq_store_be32(frame, (uint32_t)size - 4);
        pymq_store_be32(frame + 4, i);
        CHECK_EQ(pymq_transport_send(server.transport, id, frame, size), PYMQ_OK);
    }
    pymq_transport_close_connection(server.transport, id);
    static uint8_t back[sizeof frame];
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t size = i % 10 == 0 ? sizeof frame : 100 + i;
        CHECK(client_read(fd, back, size));
        CHECK_EQ(pymq_load_be32(back), size - 4);
        CHECK_EQ(pymq_load_be32(back + 4), i);
    }
    CHECK(!client_read(fd, back, 1));
    HELP_UNTIL(server_stats(&server).open == 0);
    CHECK_EQ(pymq_transport_send(server.transport, id, frame, 100), PYMQ_ECLOSED);
    pymq_transport_close_connection(server.transport, id); /* nothing to close, nothing happens */
    pymq_handed_free(server.transport, help_event(server.transport, PYMQ_HANDED_CLOSED));
    CHECK_EQ(server_stats(&server).buffer_bytes, 0);
    close(fd);
    server_close(&server);
}

static void test_a_batch_of_frames_rings_its_sleeping_reactor_once(void) {
    enum { COUNT = 300 };
    struct server server;
    struct pymq_transport_config config = help_config();
    uint8_t frame[20] = {0, 0, 0, 16}, back[20];
    server_open(&server, &config);
    int fd = client_connect(server.port);
    pymq_connection_id id = opened(&server);
    help_pause_ms(20); /* it sleeps by now */
    int64_t before = server_stats(&server).wakes;
    for (uint32_t i = 0; i < COUNT; i++) {
        pymq_store_be32(frame + 4, i);
        CHECK_EQ(pymq_transport_queue(server.transport, id, frame, sizeof frame), PYMQ_OK);
    }
    CHECK_EQ(server_stats(&server).wakes, before);
    pymq_transport_ring(server.transport);
    for (uint32_t i = 0; i < COUNT; i++) {
        CHECK(client_read(fd, back, sizeof back));
        CHECK_EQ(pymq_load_be32(back + 4), i);
    }
    pymq_transport_ring(server.transport); /* nothing to ring for */
    CHECK_EQ(server_stats(&server).wakes, before + 1);
    CHECK_EQ(pymq_transport_queue(server.transport, 0, frame, sizeof frame), PYMQ_ECLOSED);
    close(fd);
    server_close(&server);
}

/* ---- spans --------------------------------------------------------------------------------------------------- */

struct log_server {
    struct server server;
    struct pymq_store *store;
    char path[512];
    int64_t offsets[RECORDS];
    uint32_t sizes[RECORDS];
};

/* Body of a CODE_SPANS request: first record, count, step; with a step of 1 the spans are neighbours. */
static int spans_request(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                         const struct pymq_command *command, const uint8_t *frame, size_t frame_size) {
    struct log_server *log = context;
    struct pymq_span spans[SPANS_MAX];
    uint32_t first, span_count, step, total = 0;
    if (command->code != CODE_SPANS)
        return echo_request(&log->server.echo, reactor, connection, command, frame, frame_size);
    first = pymq_load_be32(command->body.data);
    span_count = pymq_load_be32(command->body.data + 4);
    step = pymq_load_be32(command->body.data + 8);
    for (uint32_t i = 0; i < span_count; i++) {
        uint32_t record = (first + i * step) % RECORDS;
        CHECK_EQ(pymq_store_record(log->store, log->offsets[record], log->sizes[record], &spans[i]), PYMQ_OK);
        total += spans[i].size;
    }
    uint8_t head[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, head, sizeof head, command->serialize_type, 0, PYMQ_COMMAND_RESPONSE, command->opaque,
                      (struct pymq_slice){NULL, 0});
    ssize_t head_size = pymq_header_end(&writer, total);
    pymq_connection_send_spans(connection, log->store, head, (size_t)head_size, spans, span_count);
    return PYMQ_SERVED;
}

static void log_open(struct log_server *log, const char *name, const struct pymq_transport_config *config) {
    memset(log, 0, sizeof *log);
    snprintf(log->path, sizeof log->path, "%s", scratch(name));
    struct pymq_store_config store_config;
    pymq_store_config_default(&store_config);
    store_config.log_file_size = 16 << 20;
    store_config.log_window_size = 1 << 20;
    store_config.prefault_size = 4096;
    store_config.queue_file_size = 20 * 100;
    store_config.index_enable = false;
    log->store = open_or_die(log->path, &store_config);
    uint8_t *body = malloc(RECORD_BODY);
    CHECK(body != NULL);
    for (int i = 0; i < RECORDS; i++) { /* every fourth is small, every fourth is of middle size */
        uint32_t size = i % 4 == 3 ? 100 : i % 4 == 1 ? RECORD_BODY / 3 : RECORD_BODY;
        memset(body, 'a' + i % 26, size);
        struct sent sent = send_record(log->store, "T", 0, (struct pymq_slice){body, size}, "", 0);
        CHECK_EQ(sent.status, PYMQ_OK);
        log->offsets[i] = sent.physical_offset;
        log->sizes[i] = (uint32_t)(sent.end_offset - sent.physical_offset);
    }
    free(body);
    log->server.echo.service = (struct pymq_service){.context = log, .request = spans_request};
    server_open_plain(&log->server, config, &log->server.echo.service);
}

static void log_close(struct log_server *log) {
    server_close(&log->server);
    CHECK_EQ(pymq_store_close(log->store), PYMQ_OK);
    scratch_end(log->path);
}

static void ask_scattered(int fd, int32_t opaque, uint32_t first, uint32_t span_count, uint32_t step) {
    uint8_t body[12];
    pymq_store_be32(body, first);
    pymq_store_be32(body + 4, span_count);
    pymq_store_be32(body + 8, step);
    client_request(fd, CODE_SPANS, opaque, body, sizeof body);
}

static void ask_spans(int fd, int32_t opaque, uint32_t first, uint32_t span_count) {
    ask_scattered(fd, opaque, first, span_count, 1);
}

/* The answer's body is the records, byte for byte. */
static void expect_scattered(struct log_server *log, int fd, int32_t opaque, uint32_t first, uint32_t span_count,
                             uint32_t step) {
    struct answer answer;
    CHECK(client_answer(fd, &answer));
    CHECK_EQ(answer.command.opaque, opaque);
    const uint8_t *at = answer.command.body.data;
    for (uint32_t i = 0; i < span_count; i++) {
        struct pymq_span span;
        uint32_t record = (first + i * step) % RECORDS;
        CHECK_EQ(pymq_store_record(log->store, log->offsets[record], log->sizes[record], &span), PYMQ_OK);
        CHECK(memcmp(at, span.data, span.size) == 0);
        at += span.size;
        pymq_span_release(log->store, &span);
    }
    CHECK_EQ(at - answer.command.body.data, answer.command.body.size);
    answer_free(&answer);
}

static void expect_spans(struct log_server *log, int fd, int32_t opaque, uint32_t first, uint32_t span_count) {
    expect_scattered(log, fd, opaque, first, span_count, 1);
}

static void test_spans_of_the_log_arrive_as_they_stand_in_it(void) {
    struct log_server log;
    struct pymq_transport_config config = help_config();
    log_open(&log, "spans", &config);
    int fd = client_connect(log.server.port);
    int32_t opaque = 0;
    for (uint32_t span_count = 0; span_count <= RECORDS; span_count += 3) {
        for (uint32_t first = 0; first + span_count <= RECORDS; first += 7) {
            ask_spans(fd, opaque, first, span_count);
            expect_spans(&log, fd, opaque++, first, span_count);
        }
    }
    for (uint32_t i = 0; i < 30; i++) /* pipelined, with the pause in between, small ones copied */
        ask_spans(fd, (int32_t)i, i, i % 4 == 0 ? 1 : 4);
    for (uint32_t i = 0; i < 30; i++)
        expect_spans(&log, fd, (int32_t)i, i, i % 4 == 0 ? 1 : 4);
    for (uint32_t step = 2; step < 40; step += 5) { /* no neighbours: more pieces than one call takes */
        ask_scattered(fd, 7, step, SPANS_MAX, step);
        expect_scattered(&log, fd, 7, step, SPANS_MAX, step);
    }
    HELP_UNTIL(server_stats(&log.server).buffer_bytes == 0);
    close(fd);
    log_close(&log);
}

/* Answers of 34 KiB until the socket is full: the one it cuts is copied, those behind it wait as they are. */
static void test_what_a_full_socket_leaves_of_a_small_answer_is_copied(void) {
    enum { COUNT = 400 };
    struct log_server log;
    struct pymq_transport_config config = help_config();
    config.pinned_timeout_ms = 1;
    config.output_size_pause = 8 * 1024; /* one answer waits at a time, so nothing large is ever pinned */
    log_open(&log, "copied", &config);
    int fd = narrow_connect(log.server.port);
    for (int32_t i = 0; i < COUNT; i++)
        ask_spans(fd, i, 1, 1);
    int64_t answered = -1;
    while (server_stats(&log.server).bytes_out != answered) { /* until the socket takes no more */
        answered = server_stats(&log.server).bytes_out;
        help_pause_ms(100);
    }
    CHECK(server_stats(&log.server).buffer_bytes > 0);
    for (int32_t i = 0; i < COUNT; i++)
        expect_spans(&log, fd, i, 1, 1);
    CHECK_EQ(server_stats(&log.server).pinned_closed, 0);
    HELP_UNTIL(server_stats(&log.server).buffer_bytes == 0);
    close(fd);
    log_close(&log);
}

static void test_spans_a_peer_reads_slowly_are_copied_or_pinned_and_arrive(void) {
    struct log_server log;
    struct pymq_transport_config config = help_config();
    log_open(&log, "slow", &config);
    int fd = narrow_connect(log.server.port);
    for (int32_t i = 0; i < 6; i++) {
        ask_spans(fd, i, (uint32_t)i, 30);
        ask_spans(fd, 100 + i, 3, 1);
        help_pause_ms(20);
        expect_spans(&log, fd, i, (uint32_t)i, 30);
        expect_spans(&log, fd, 100 + i, 3, 1);
    }
    HELP_UNTIL(server_stats(&log.server).buffer_bytes == 0);
    CHECK_EQ(server_stats(&log.server).pinned_closed, 0);
    close(fd);
    log_close(&log);
}

/* The symptom: a consumer on a thin line was closed "for not reading" in the middle of every large answer. */
static void test_a_peer_that_reads_steadily_but_slowly_is_not_cut_off(void) {
    struct log_server log;
    struct pymq_transport_config config = help_config();
    config.pinned_timeout_ms = 1000;
    log_open(&log, "steady", &config);
    int fd = narrow_connect(log.server.port);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < SPANS_MAX; i++)
        expected += log.sizes[i % RECORDS];
    ask_scattered(fd, 1, 0, SPANS_MAX, 1);
    static uint8_t sink[64 * 1024];
    uint8_t prefix[8];
    CHECK(client_read(fd, prefix, sizeof prefix));
    size_t rest = (size_t)pymq_load_be32(prefix) - 4;
    CHECK(rest > expected);
    int64_t begin = help_now_ms();
    while (rest != 0) { /* for three times the deadline a little at a time, then the rest */
        ssize_t got = recv(fd, sink, rest < sizeof sink ? rest : sizeof sink, 0);
        if (got <= 0)
            CHECK_FAIL("cut off with %zu bytes to come, pinned_closed %" PRId64, rest,
                       server_stats(&log.server).pinned_closed);
        rest -= (size_t)got;
        if (help_now_ms() - begin < 3 * config.pinned_timeout_ms)
            help_pause_ms(20);
    }
    CHECK_EQ(server_stats(&log.server).pinned_closed, 0);
    client_echo(fd, 2, "x", 1);
    HELP_UNTIL(server_stats(&log.server).buffer_bytes == 0);
    close(fd);
    log_close(&log);
}

static void test_a_peer_that_pins_the_log_by_not_reading_is_closed(void) {
    struct log_server log;
    struct pymq_transport_config config = help_config();
    config.pinned_timeout_ms = 3000; /* long enough for the one that reads, under a sanitizer on a busy machine */
    log_open(&log, "pinned", &config);
    int fd = narrow_connect(log.server.port), other = client_connect(log.server.port);
    int late = narrow_connect(log.server.port); /* reads, though not at once */
    ask_scattered(late, 1, 0, SPANS_MAX, 3);
    ask_scattered(fd, 1, 0, SPANS_MAX, 1);
    help_pause_ms(50);
    expect_scattered(&log, late, 1, 0, SPANS_MAX, 3);
    HELP_UNTIL(server_stats(&log.server).pinned_closed == 1);
    HELP_UNTIL(server_stats(&log.server).buffer_bytes == 0);
    client_echo(other, 1, "x", 1);
    CHECK(client_is_ended(fd));
    ask_spans(other, 2, 0, 2);
    expect_spans(&log, other, 2, 0, 2);
    client_echo(late, 3, "x", 1);
    close(late);
    close(fd);
    fd = narrow_connect(log.server.port); /* and one that goes away with spans in its output, and one at the close */
    ask_scattered(fd, 1, 0, SPANS_MAX, 1);
    HELP_UNTIL(server_stats(&log.server).buffer_bytes > 0);
    close(fd);
    HELP_UNTIL(server_stats(&log.server).buffer_bytes == 0);
    fd = narrow_connect(log.server.port);
    ask_scattered(fd, 1, 0, SPANS_MAX, 1);
    HELP_UNTIL(server_stats(&log.server).buffer_bytes > 0);
    pymq_transport_close(log.server.transport, 0);
    CHECK_EQ(pymq_store_close(log.store), PYMQ_OK);
    scratch_end(log.path);
    close(fd);
    close(other);
}

int main(void) {
    RUN(test_a_peer_that_does_not_read_is_not_read_and_loses_nothing);
    RUN(test_a_peer_above_the_output_limit_is_closed);
    RUN(test_frames_of_another_thread_arrive_in_order_and_a_close_follows_them);
    RUN(test_a_batch_of_frames_rings_its_sleeping_reactor_once);
    RUN(test_spans_of_the_log_arrive_as_they_stand_in_it);
    RUN(test_what_a_full_socket_leaves_of_a_small_answer_is_copied);
    RUN(test_spans_a_peer_reads_slowly_are_copied_or_pinned_and_arrive);
    RUN(test_a_peer_that_reads_steadily_but_slowly_is_not_cut_off);
    RUN(test_a_peer_that_pins_the_log_by_not_reading_is_closed);
    return check_summary();
}
