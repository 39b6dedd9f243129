/* Frames through the transport: cut anywhere, in heaps, huge, lying, of every kind. */
#include "transport_help.h"

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

int main(void) {
    RUN(test_a_frame_cut_at_every_byte_is_served_once);
    return check_summary();
}
