/* Frames through the transport: cut anywhere, in heaps, huge, lying, of every kind. */
#include "transport_help.h"

#include <pthread.h>

static struct {
    pthread_t thread;
    int fd;
    const uint8_t *bytes;
    size_t size;
} writer;

static void *writer_run(void *context) {
    client_write(writer.fd, writer.bytes, writer.size);
    return context;
}

/* More than the socket's buffers hold must be written while answers are read. */
static bool writer_start(int fd, const uint8_t *bytes, size_t size) {
    writer.fd = fd;
    writer.bytes = bytes;
    writer.size = size;
    return pthread_create(&writer.thread, NULL, writer_run, NULL) == 0;
}

static bool writer_join(void) { return pthread_join(writer.thread, NULL) == 0; }

static void test_a_frame_cut_at_every_byte_is_served_once(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    int fd = client_connect(server.port);
    uint8_t frame[PYMQ_HEADER_ROOM + 64];
    for (int type = PYMQ_SERIALIZE_JSON; type <= PYMQ_SERIALIZE_ROCKETMQ; type++) {
        size_t size = frame_make(frame, (uint8_t)type, CODE_ECHO, 0, -7, "hello", 5);
        for (size_t cut = 1; cut < size; cut++) {
            int64_t before = server_stats(&server).reads;
            client_write(fd, frame, cut);
            HELP_UNTIL(server_stats(&server).reads > before);
            client_write(fd, frame + cut, size - cut);
            struct answer answer;
            CHECK(client_answer(fd, &answer));
            CHECK_EQ(answer.command.opaque, -7);
            CHECK_EQ(answer.command.serialize_type, type);
            CHECK_BYTES(answer.command.body.data, answer.command.body.size, "hello", 5);
            answer_free(&answer);
        }
    }
    HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
    close(fd);
    server_close(&server);
}

static void test_pipelined_requests_are_answered_in_order(void) {
    enum { COUNT = 20000 };
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    int fd = client_connect(server.port);
    uint8_t *frames = malloc(COUNT * 512), body[300];
    size_t size = 0;
    CHECK(frames != NULL);
    for (int32_t i = 0; i < COUNT; i++) {
        memset(body, i & 255, sizeof body);
        size += frame_make(frames + size, (uint8_t)(i & 1), CODE_ECHO, 0, i, body, (size_t)(i % 97));
    }
    CHECK(writer_start(fd, frames, size));
    for (int32_t i = 0; i < COUNT; i++) {
        struct answer answer;
        CHECK(client_answer(fd, &answer));
        memset(body, i & 255, sizeof body);
        CHECK_EQ(answer.command.opaque, i);
        CHECK_EQ(answer.command.serialize_type, i & 1);
        CHECK_BYTES(answer.command.body.data, answer.command.body.size, body, i % 97);
        answer_free(&answer);
    }
    CHECK(writer_join());
    CHECK_EQ(atomic_load(&server.echo.requests), COUNT);
    CHECK(atomic_load(&server.echo.settles) > 0);
    HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
    free(frames);
    close(fd);
    server_close(&server);
}

/* Sizes around every buffer of the transport, each followed by a small frame in the same write. */
static void test_large_bodies_come_back_whole(void) {
    static const size_t sizes[] = {0,         1,          16 * 1024 - 200, 16 * 1024, 64 * 1024, 256 * 1024 - 150,
                                   256 * 1024, 300 * 1024, 1 << 20,        4 << 20,   (16 << 20) - 1024};
    struct server server;
    struct pymq_transport_config config = help_config();
    uint64_t seed = 42;
    server_open(&server, &config);
    int fd = client_connect(server.port);
    uint8_t *body = malloc(16 << 20), *frames = malloc((16 << 20) + 4096);
    CHECK(body != NULL && frames != NULL);
    check_random_bytes(&seed, body, 16 << 20);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct answer answer;
        size_t size = frame_make(frames, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 1, body, sizes[i]);
        size += frame_make(frames + size, PYMQ_SERIALIZE_ROCKETMQ, CODE_ECHO, 0, 2, "next", 4);
        CHECK(writer_start(fd, frames, size));
        CHECK(client_answer(fd, &answer));
        CHECK_EQ(answer.command.opaque, 1);
        CHECK_BYTES(answer.command.body.data, answer.command.body.size, body, sizes[i]);
        answer_free(&answer);
        CHECK(client_answer(fd, &answer));
        CHECK_EQ(answer.command.opaque, 2);
        answer_free(&answer);
        CHECK(writer_join());
    }
    HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
    close(fd);
    server_close(&server);
    free(body);
    free(frames);
}

static void test_a_lying_length_costs_what_was_sent_and_no_more(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    int fds[50];
    for (int i = 0; i < 50; i++) {
        uint8_t prefix[104] = {0x00, 0xff, 0xff, 0xff, 0, 0, 1, 0};
        fds[i] = client_connect(server.port);
        client_write(fds[i], prefix, sizeof prefix);
    }
    HELP_UNTIL(server_stats(&server).bytes_in == 50 * 104);
    CHECK(server_stats(&server).buffer_bytes <= 50 * 256);
    int fd = client_connect(server.port);
    client_echo(fd, 1, "others", 6);
    close(fd);
    for (int i = 0; i < 50; i++)
        close(fds[i]);
    HELP_UNTIL(server_stats(&server).open == 0);
    CHECK_EQ(server_stats(&server).buffer_bytes, 0);
    server_close(&server);
}

static void expect_broken(struct server *server, const void *bytes, size_t size) {
    int64_t before = server_stats(server).broken_frames;
    int fd = client_connect(server->port);
    client_write(fd, bytes, size);
    CHECK(client_is_ended(fd));
    close(fd);
    HELP_UNTIL(server_stats(server).broken_frames == before + 1);
}

static void test_frames_that_cannot_be_trusted_end_their_connection(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    expect_broken(&server, "\xff\xff\xff\xff", 4);                     /* a negative size */
    expect_broken(&server, "\x01\x00\x00\x01", 4);                     /* 16 MiB + 1 */
    expect_broken(&server, "\x00\x00\x00\x03", 4);                     /* too small for a header mark */
    expect_broken(&server, "\x00\x00\x00\x04\x00\x00\x00\x05", 8);     /* a header beyond the frame */
    expect_broken(&server, "\x00\x00\x00\x06\x07\x00\x00\x02{}", 10);  /* no such serialization */
    expect_broken(&server, "GET / HTTP/1.1\r\n\r\n", 18);
    int fd = client_connect(server.port); /* what was whole before is served, what comes behind is not */
    uint8_t frames[2 * PYMQ_HEADER_ROOM];
    size_t size = frame_make(frames, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 5, NULL, 0);
    memcpy(frames + size, "\xff\xff\xff\xff", 4);
    client_write(fd, frames, size + 4);
    CHECK(client_is_ended(fd));
    CHECK_EQ(atomic_load(&server.echo.requests), 1);
    close(fd);
    CHECK_EQ(server_stats(&server).buffer_bytes, 0);
    server_close(&server);
}

static void test_the_largest_frame_is_served_and_one_byte_more_is_not(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    config.frame_size_max = 4096;
    server_open(&server, &config);
    uint8_t frame[8192] = {0}, body[4096] = {0};
    int fd = client_connect(server.port);
    size_t header = frame_make(frame, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 1, body, 1000) - 1000;
    size_t size = frame_make(frame, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 1, body, 4096 + 4 - header);
    CHECK_EQ(pymq_load_be32(frame), 4096);
    client_write(fd, frame, size);
    struct answer answer;
    CHECK(client_answer(fd, &answer));
    answer_free(&answer);
    size = frame_make(frame, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 1, body, 4096 + 5 - header);
    client_write(fd, frame, size);
    CHECK(client_is_ended(fd));
    CHECK_EQ(server_stats(&server).broken_frames, 1);
    close(fd);
    server_close(&server);
}

static void test_a_header_only_python_can_read_is_handed_over_raw(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    int fd = client_connect(server.port);
    const char *header = "{code:10,'opaque':3}";
    uint8_t frame[64];
    pymq_store_be32(frame, (uint32_t)(4 + strlen(header) + 3));
    pymq_store_be32(frame + 4, (uint32_t)strlen(header));
    memcpy(frame + 8, header, strlen(header));
    memcpy(frame + 8 + strlen(header), "abc", 3);
    client_write(fd, frame, 8 + strlen(header) + 3);
    struct pymq_handed *handed = help_take(server.transport, PYMQ_LANE_ADMIN);
    CHECK_EQ(handed->code, -1);
    CHECK_EQ(atomic_load(&server.echo.unreadable), 1); /* told before it could be taken */
    CHECK_EQ(handed->reason, PYMQ_TRANSPORT_REASON_HEADER);
    CHECK_BYTES(handed->frame, handed->size, frame, 8 + strlen(header) + 3);
    CHECK_EQ(handed->peer.size, 4);
    CHECK_EQ(handed->peer.address[0], 127);
    pymq_handed_free(server.transport, handed);
    CHECK_EQ(atomic_load(&server.echo.requests), 0);
    close(fd);
    server_close(&server);
}

/* 16 MiB of escapes: the scratch is as large as the header, for the moment. */
static void test_a_header_of_sixteen_mebibytes_is_served_or_handed_over(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    size_t total = PYMQ_FRAME_SIZE_MAX, header = total - 4;
    uint8_t *frame = malloc(total + 4);
    CHECK(frame != NULL);
    const char *begin = "{\"code\":34,\"flag\":0,\"language\":\"JAVA\",\"opaque\":9,\"version\":1,\"remark\":\"";
    pymq_store_be32(frame, (uint32_t)total);
    pymq_store_be32(frame + 4, (uint32_t)header);
    memset(frame + 8, 'x', header);
    memcpy(frame + 8, begin, strlen(begin));
    for (size_t i = 8 + strlen(begin); i + 4 < total; i += 2)
        memcpy(frame + i, "\\n", 2);
    memcpy(frame + 4 + total - 2, "\"}", 2);
    frame[4 + total - 3] = 'x';
    frame[4 + total - 4] = 'x';
    int fd = client_connect(server.port);
    client_write(fd, frame, total + 4);
    struct pymq_handed *handed = help_take(server.transport, PYMQ_LANE_ADMIN);
    CHECK_EQ(handed->size, total + 4);
    CHECK(memcmp(handed->frame, frame, total + 4) == 0);
    pymq_handed_free(server.transport, handed);
    HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
    free(frame);
    close(fd);
    server_close(&server);
}

static void test_responses_take_their_own_lane_and_oneways_get_no_answer(void) {
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    pymq_transport_set_lane(server.transport, CODE_HAND_OVER, PYMQ_LANE_CLIENT);
    int fd = client_connect(server.port);
    uint8_t frames[4 * PYMQ_HEADER_ROOM];
    size_t size = frame_make(frames, PYMQ_SERIALIZE_JSON, CODE_ECHO, PYMQ_COMMAND_RESPONSE, 77, "r", 1);
    size += frame_make(frames + size, PYMQ_SERIALIZE_JSON, CODE_ECHO, PYMQ_COMMAND_ONEWAY, 78, "o", 1);
    size += frame_make(frames + size, PYMQ_SERIALIZE_JSON, CODE_HAND_OVER, 0, 79, "h", 1);
    size += frame_make(frames + size, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 80, "e", 1);
    client_write(fd, frames, size);
    struct answer answer;
    CHECK(client_answer(fd, &answer));
    CHECK_EQ(answer.command.opaque, 80);
    answer_free(&answer);
    struct pymq_handed *reply = help_take(server.transport, PYMQ_LANE_REPLY);
    CHECK_EQ(reply->code, CODE_ECHO);
    struct pymq_handed *request = help_take(server.transport, PYMQ_LANE_CLIENT);
    CHECK_EQ(request->code, CODE_HAND_OVER);
    CHECK_EQ(request->reason, REASON_OF_TEST);
    CHECK_EQ(request->connection, reply->connection);
    pymq_handed_free(server.transport, reply);
    pymq_handed_free(server.transport, request);
    struct pymq_code_count rows[8];
    CHECK_EQ(pymq_transport_code_counts(server.transport, rows, 8), 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(rows[i].reason, rows[i].code == CODE_ECHO ? -1 : REASON_OF_TEST);
        CHECK_EQ(rows[i].count, rows[i].code == CODE_ECHO ? 2 : 1);
    }
    close(fd);
    server_close(&server);
}

/* Codes nobody has heard of do not fill memory: beyond the table they are counted together. */
static void test_made_up_codes_are_counted_within_bounds(void) {
    enum { COUNT = 3000 };
    struct server server;
    struct pymq_transport_config config = help_config();
    server_open(&server, &config);
    int fd = client_connect(server.port);
    uint8_t frame[PYMQ_HEADER_ROOM];
    for (int32_t code = 1000; code < 1000 + COUNT; code++)
        client_write(fd, frame, frame_make(frame, PYMQ_SERIALIZE_ROCKETMQ, code, 0, code, NULL, 0));
    HELP_UNTIL(server_stats(&server).frames_in == COUNT);
    struct pymq_code_count *rows = calloc(4096, sizeof *rows);
    CHECK(rows != NULL);
    size_t found = pymq_transport_code_counts(server.transport, rows, 4096);
    int64_t sum = 0;
    CHECK(found > 100 && found <= 1024);
    for (size_t i = 0; i < found; i++)
        sum += rows[i].count;
    CHECK_EQ(sum, COUNT);
    free(rows);
    close(fd);
    server_close(&server);
}

int main(void) {
    RUN(test_a_frame_cut_at_every_byte_is_served_once);
    RUN(test_pipelined_requests_are_answered_in_order);
    RUN(test_large_bodies_come_back_whole);
    RUN(test_a_lying_length_costs_what_was_sent_and_no_more);
    RUN(test_frames_that_cannot_be_trusted_end_their_connection);
    RUN(test_the_largest_frame_is_served_and_one_byte_more_is_not);
    RUN(test_a_header_only_python_can_read_is_handed_over_raw);
    RUN(test_a_header_of_sixteen_mebibytes_is_served_or_handed_over);
    RUN(test_responses_take_their_own_lane_and_oneways_get_no_answer);
    RUN(test_made_up_codes_are_counted_within_bounds);
    return check_summary();
}
