/* Connections' and the transport's own beginning and end: ids, adoption, limits, idleness, TLS, draining. */
#include "transport_help.h"

#include <fcntl.h>
#include <sys/resource.h>

enum { MANY = 2000 };

static pymq_connection_id event_id(struct server *server, enum pymq_handed_kind kind) {
    struct pymq_handed *handed = help_event(server->transport, kind);
    pymq_connection_id id = handed->connection;
    pymq_handed_free(server->transport, handed);
    return id;
}

static void test_an_id_is_never_given_to_somebody_else(void) {
    enum { ROUNDS = 200 };
    struct server server;
    struct pymq_transport_config config = help_config();
    pymq_connection_id ids[ROUNDS];
    uint8_t frame[8] = {0, 0, 0, 4, 0, 0, 0, 0};
    server_open(&server, &config);
    for (int i = 0; i < ROUNDS; i++) {
        int fd = client_connect(server.port);
        ids[i] = event_id(&server, PYMQ_HANDED_OPENED);
        CHECK(ids[i] != 0);
        for (int j = 0; j < i; j++)
            CHECK(ids[j] != ids[i]);
        if (i > 0)
            CHECK_EQ(pymq_transport_send(server.transport, ids[i - 1], frame, sizeof frame), PYMQ_ECLOSED);
        CHECK_EQ(pymq_transport_send(server.transport, ids[i], frame, sizeof frame), PYMQ_OK);
        CHECK(client_read(fd, frame, sizeof frame));
        close(fd);
        CHECK_EQ(event_id(&server, PYMQ_HANDED_CLOSED), ids[i]);
    }
    CHECK_EQ((uint32_t)(ids[ROUNDS - 1] >> 32), (uint32_t)(ids[0] >> 32)); /* the slot is the same all the time */
    CHECK_EQ(pymq_transport_send(server.transport, 0, frame, sizeof frame), PYMQ_ECLOSED);
    CHECK_EQ(pymq_transport_send(server.transport, UINT64_MAX, frame, sizeof frame), PYMQ_ECLOSED);
    CHECK_EQ(pymq_transport_send(server.transport, ids[0] | 1ull << 50, frame, sizeof frame), PYMQ_ECLOSED);
    CHECK_EQ(atomic_load(&server.echo.closed), ROUNDS);
    server_close(&server);
}

static void test_an_adopted_socket_is_an_ordinary_connection(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    struct pymq_host peer = {.address = {10, 1, 2, 3}, .size = 4, .port = 4711};
    struct pymq_error error;
    int pair[2];
    config.idle_timeout_ms = 60;
    server_open(&server, &config);
    for (int is_client = 0; is_client < 2; is_client++) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
        pymq_connection_id id = pymq_transport_adopt(server.transport, pair[0], &peer, is_client, &error);
        CHECK(id != 0);
        uint8_t frame[100] = {0, 0, 0, 96};
        CHECK_EQ(pymq_transport_send(server.transport, id, frame, sizeof frame), PYMQ_OK); /* at once, and in order */
        CHECK(client_read(pair[1], frame, sizeof frame));
        client_echo(pair[1], 5, "through a pair", 14);
        client_request(pair[1], CODE_OTHER, 6, NULL, 0);
        struct pymq_handed *handed = help_take(server.transport, PYMQ_LANE_ADMIN);
        CHECK_EQ(handed->connection, id);
        CHECK_EQ(handed->peer.port, 4711);
        CHECK_BYTES(handed->peer.address, 4, peer.address, 4);
        pymq_handed_free(server.transport, handed);
        if (is_client) {
            help_pause_ms(200); /* never idle-closed */
            client_echo(pair[1], 7, "still here", 10);
            close(pair[1]);
        } else {
            CHECK_EQ(event_id(&server, PYMQ_HANDED_OPENED), id);
            CHECK(client_is_ended(pair[1])); /* idle */
            close(pair[1]);
        }
        CHECK_EQ(event_id(&server, PYMQ_HANDED_CLOSED), id);
    }
    CHECK_EQ(server_stats(&server).idle_closed, 1);
    server_close(&server);
}

static void test_idle_connections_are_closed_and_busy_ones_are_not(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    config.idle_timeout_ms = 200;
    server_open(&server, &config);
    int idle = client_connect(server.port), busy = client_connect(server.port);
    int64_t begin = help_now_ms();
    while (server_stats(&server).idle_closed == 0) { /* one byte at a time keeps it alive */
        client_echo(busy, 1, "x", 1);
        help_pause_ms(10);
        CHECK(help_now_ms() - begin < WAIT_MS);
    }
    CHECK(help_now_ms() - begin >= 150);
    CHECK(client_is_ended(idle));
    client_echo(busy, 2, "x", 1);
    CHECK_EQ(server_stats(&server).open, 1);
    close(idle);
    close(busy);
    server_close(&server);
}

static void test_connections_above_the_maximum_are_refused_by_closing(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    config.connections_max = 3;
    server_open(&server, &config);
    int fds[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = client_connect(server.port);
        client_echo(fds[i], i, "x", 1);
    }
    int refused = client_connect(server.port);
    CHECK(client_is_ended(refused));
    CHECK_EQ(server_stats(&server).refused, 1);
    struct pymq_host peer = {.size = 4};
    struct pymq_error error;
    CHECK_EQ(pymq_transport_adopt(server.transport, refused, &peer, true, &error), 0);
    CHECK(strstr(error.text, "connections_max") != NULL);
    close(refused);
    close(fds[0]);
    HELP_UNTIL(server_stats(&server).open == 2);
    fds[0] = client_connect(server.port);
    for (int i = 0; i < 3; i++) {
        client_echo(fds[i], i, "x", 1);
        close(fds[i]);
    }
    server_close(&server);
}

/* The limit is lowered below what is open: accept fails with EMFILE for real. */
static void test_without_descriptors_accepting_pauses_and_goes_on_later(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    struct rlimit before, lowered;
    config.connections_max = 1000;
    server_open(&server, &config);
    int served = client_connect(server.port), waiting = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    client_echo(served, 1, "x", 1);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    lowered = before;
    lowered.rlim_cur = 3;
    CHECK(setrlimit(RLIMIT_NOFILE, &lowered) == 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(waiting, (struct sockaddr *)&address, sizeof address) == 0);
    HELP_UNTIL(server_stats(&server).accept_failed > 0);
    int64_t turns = server_stats(&server).turns;
    help_pause_ms(250);
    CHECK(server_stats(&server).turns - turns < 20); /* no busy loop: one attempt every 100 ms */
    client_echo(served, 2, "x", 1);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    client_echo(waiting, 3, "accepted late", 13);
    close(served);
    close(waiting);
    server_close(&server);
}

static void test_a_tls_handshake_leaves_with_its_descriptor(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    pymq_transport_set_tls_mode(server.transport, PYMQ_TLS_PERMISSIVE);
    int plain = client_connect(server.port), secret = client_connect(server.port), silent = client_connect(server.port);
    client_echo(plain, 1, "plain", 5);
    pymq_connection_id id = event_id(&server, PYMQ_HANDED_OPENED);
    client_write(secret, "\x16\x03\x01", 3);
    struct pymq_handed *handed = help_event(server.transport, PYMQ_HANDED_TLS);
    CHECK_EQ(handed->connection, 0);
    uint8_t bytes[3];
    CHECK(fcntl(handed->fd, F_SETFL, 0) == 0); /* blocking, for this reader */
    CHECK(client_read(handed->fd, bytes, 3)); /* nothing was taken from it */
    CHECK_BYTES(bytes, 3, "\x16\x03\x01", 3);
    client_write(handed->fd, "hello", 5);
    CHECK(client_read(secret, bytes, 3));
    CHECK_EQ(handed->peer.size, 4);
    close(handed->fd);
    pymq_handed_free(server.transport, handed);
    pymq_transport_set_tls_mode(server.transport, PYMQ_TLS_ENFORCING);
    client_echo(plain, 2, "was let in before", 17);
    int late = client_connect(server.port);
    client_request(late, CODE_ECHO, 3, NULL, 0);
    CHECK(client_is_ended(late));
    close(plain);
    CHECK_EQ(event_id(&server, PYMQ_HANDED_CLOSED), id); /* the others were never opened to anybody */
    close(silent);
    close(late);
    close(secret);
    HELP_UNTIL(server_stats(&server).open == 0);
    CHECK(pymq_transport_take(server.transport, PYMQ_LANE_EVENT, 1) == NULL);
    int untaken = client_connect(server.port); /* its descriptor is closed with the transport */
    client_write(untaken, "\x16", 1);
    HELP_UNTIL(server_stats(&server).lane_waiting[PYMQ_LANE_EVENT] == 1);
    server_close(&server);
    CHECK(client_is_ended(untaken));
    close(untaken);
}

static void test_draining_answers_what_was_read_and_reads_no_more(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    int fd = client_connect(server.port);
    pymq_handed_free(server.transport, help_event(server.transport, PYMQ_HANDED_OPENED));
    client_request(fd, CODE_OTHER, 1, "question", 8);
    HELP_UNTIL(server_stats(&server).lane_waiting[PYMQ_LANE_ADMIN] == 1);
    CHECK(!pymq_transport_is_drained(server.transport));
    pymq_transport_drain(server.transport);
    pymq_transport_drain(server.transport);
    help_pause_ms(20);
    CHECK(!pymq_transport_is_drained(server.transport)); /* a lane holds something */
    client_request(fd, CODE_ECHO, 2, NULL, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(late, (struct sockaddr *)&address, sizeof address) != 0);
    close(late);
    struct pymq_handed *handed = help_take(server.transport, PYMQ_LANE_ADMIN);
    CHECK_EQ(pymq_transport_send(server.transport, handed->connection, handed->frame, handed->size), PYMQ_OK);
    HELP_UNTIL(pymq_transport_is_drained(server.transport));
    uint8_t back[PYMQ_HEADER_ROOM];
    CHECK(client_read(fd, back, handed->size));
    CHECK_EQ(atomic_load(&server.echo.requests), 1); /* the second was not read */
    size_t size = handed->size;
    for (int i = 0; i < 100; i++) /* what is queued when it closes is written */
        CHECK_EQ(pymq_transport_send(server.transport, handed->connection, handed->frame, size), PYMQ_OK);
    pymq_handed_free(server.transport, handed);
    pymq_transport_close(server.transport, WAIT_MS);
    for (int i = 0; i < 100; i++)
        CHECK(client_read(fd, back, size));
    CHECK(client_is_ended(fd));
    close(fd);
}

static void test_a_control_loop_that_takes_no_events_stops_accepting(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    int fds[30];
    config.lane_count_max[PYMQ_LANE_EVENT] = 10;
    server_open(&server, &config);
    for (int i = 0; i < 30; i++)
        fds[i] = client_connect(server.port);
    HELP_UNTIL(server_stats(&server).accept_failed > 1);
    CHECK_EQ(server_stats(&server).open, 10);
    for (int i = 0; i < 30; i++) /* the kernel kept the others */
        pymq_handed_free(server.transport, help_event(server.transport, PYMQ_HANDED_OPENED));
    for (int i = 0; i < 30; i++) {
        client_echo(fds[i], i, "x", 1);
        close(fds[i]);
    }
    server_close(&server);
}

static void test_an_ipv6_peer_is_named_by_its_sixteen_bytes(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    struct pymq_error error;
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int32_t port;
    server_open(&server, &config);
    if (pymq_transport_listen(server.transport, "::1", 0, &port, &error) == PYMQ_OK) { /* not every machine has it */
        int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        address.sin6_port = htons((uint16_t)port);
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
        struct pymq_handed *handed = help_event(server.transport, PYMQ_HANDED_OPENED);
        CHECK_EQ(handed->peer.size, 16);
        CHECK_BYTES(handed->peer.address, 16, address.sin6_addr.s6_addr, 16);
        CHECK(handed->peer.port > 0);
        pymq_handed_free(server.transport, handed);
        close(fd);
    }
    if (pymq_transport_listen(server.transport, "::", 0, &port, &error) == PYMQ_OK) { /* and IPv4 through it is IPv4 */
        int fd = client_connect(port);
        client_echo(fd, 1, "x", 1);
        struct pymq_handed *handed;
        while ((handed = help_take(server.transport, PYMQ_LANE_EVENT))->kind != PYMQ_HANDED_OPENED)
            pymq_handed_free(server.transport, handed);
        CHECK_EQ(handed->peer.size, 4);
        CHECK_EQ(handed->peer.address[0], 127);
        pymq_handed_free(server.transport, handed);
        close(fd);
    }
    server_close(&server);
}

static void test_two_thousand_connections_come_and_go(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    config.reactors = 3;
    server_open(&server, &config);
    static int fds[MANY];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++)
            fds[i] = client_connect(server.port);
        for (int i = 0; i < MANY; i++)
            client_request(fds[i], CODE_ECHO, i, "x", 1);
        for (int i = 0; i < MANY; i++) {
            struct answer answer;
            CHECK(client_answer(fds[i], &answer));
            CHECK_EQ(answer.command.opaque, i);
            answer_free(&answer);
        }
        CHECK_EQ(server_stats(&server).open, MANY);
        HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
        for (int i = 0; i < MANY; i++)
            close(fds[i]);
        HELP_UNTIL(server_stats(&server).open == 0);
    }
    CHECK_EQ(server_stats(&server).accepted, 2 * MANY);
    CHECK_EQ(server_stats(&server).closed, 2 * MANY);
    CHECK_EQ(server_stats(&server).lane_waiting[PYMQ_LANE_EVENT], 4 * MANY);
    server_close(&server);
}

static void test_the_services_timer_and_event_are_called(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    HELP_UNTIL(atomic_load(&server.echo.timers) == 1); /* at the start */
    help_pause_ms(30);
    CHECK_EQ(atomic_load(&server.echo.timers), 1);
    for (int64_t rings = 1; rings <= 20; rings++) { /* every ring is heard, though nobody reads the descriptor */
        uint64_t one = 1;
        CHECK(write(atomic_load(&server.echo.event_fd), &one, sizeof one) == sizeof one);
        HELP_UNTIL(atomic_load(&server.echo.events) >= rings);
    }
    CHECK_EQ(atomic_load(&server.echo.stopped), 0);
    server_close(&server);
    CHECK_EQ(atomic_load(&server.echo.stopped), 1);
    memset(&server, 0, sizeof server);
    atomic_store(&server.echo.timer_period_ms, 5);
    server.echo.service = (struct pymq_service){.context = &server.echo, .timer = echo_timer, .event = echo_event};
    server_open_plain(&server, &config, &server.echo.service);
    HELP_UNTIL(atomic_load(&server.echo.timers) >= 10);
    server_close(&server);
}

static void test_settings_outside_their_range_are_refused_with_words(void) {
    struct pymq_transport *transport;
    struct pymq_error error;
    struct pymq_transport_config config = help_config();
    config.reactors = PYMQ_REACTORS_MAX + 1;
    CHECK_EQ(pymq_transport_open(&config, NULL, &transport, &error), PYMQ_EINVAL);
    CHECK(strstr(error.text, "reactors") != NULL);
    struct server server;
    config = help_config();
    server_open(&server, &config);
    int32_t port;
    CHECK_EQ(pymq_transport_listen(server.transport, "127.0.0.1", server.port, &port, &error), PYMQ_EIO);
    CHECK_EQ(error.sys_errno, EADDRINUSE);
    CHECK_EQ(pymq_transport_listen(server.transport, "no.such.host.invalid", 0, &port, &error), PYMQ_EINVAL);
    CHECK_EQ(pymq_transport_listen(server.transport, "127.0.0.1", 65536, &port, &error), PYMQ_EINVAL);
    CHECK_EQ(pymq_transport_listen(server.transport, "127.0.0.1", 0, &port, &error), PYMQ_OK); /* a second address */
    int fd = client_connect(port);
    client_echo(fd, 1, "x", 1);
    close(fd);
    server_close(&server);
    pymq_transport_close(NULL, 0);
}

static void test_an_open_without_descriptors_says_so_and_keeps_nothing(void) {
    struct pymq_transport_config config = help_config();
    struct rlimit before, lowered;
    config.reactors = 2;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    lowered = before;
    int used = dup(0);
    close(used);
    for (int left = 0; left < 7; left++) { /* one eventfd, and an epoll and two eventfds per reactor */
        struct pymq_transport *transport;
        struct pymq_error error;
        lowered.rlim_cur = (rlim_t)(used + left);
        CHECK(setrlimit(RLIMIT_NOFILE, &lowered) == 0);
        CHECK_EQ(pymq_transport_open(&config, NULL, &transport, &error), PYMQ_EIO);
        CHECK(strstr(error.text, "RLIMIT_NOFILE") != NULL && transport == NULL);
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    int after = dup(0);
    CHECK_EQ(after, used); /* every descriptor came back */
    close(after);
}

int main(void) {
    RUN(test_an_id_is_never_given_to_somebody_else);
    RUN(test_an_adopted_socket_is_an_ordinary_connection);
    RUN(test_idle_connections_are_closed_and_busy_ones_are_not);
    RUN(test_connections_above_the_maximum_are_refused_by_closing);
    RUN(test_without_descriptors_accepting_pauses_and_goes_on_later);
    RUN(test_a_tls_handshake_leaves_with_its_descriptor);
    RUN(test_draining_answers_what_was_read_and_reads_no_more);
    RUN(test_a_control_loop_that_takes_no_events_stops_accepting);
    RUN(test_an_ipv6_peer_is_named_by_its_sixteen_bytes);
    RUN(test_two_thousand_connections_come_and_go);
    RUN(test_the_services_timer_and_event_are_called);
    RUN(test_an_open_without_descriptors_says_so_and_keeps_nothing);
    RUN(test_settings_outside_their_range_are_refused_with_words);
    return check_summary();
}
