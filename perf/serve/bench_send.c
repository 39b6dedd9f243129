/* CPU of one native send, without sockets: prepared frames go straight to the service, answers stay in memory.
 *
 *     bench_send STORE_DIRECTORY MESSAGES [json|rocketmq] [java]
 *
 * A turn is 64 sends, as from one pipelined producer. Prints nanoseconds per send of this thread's CPU, for decoding the
 * header (the transport's part) and for serving it (this directory's). Dispatch runs on threads of its own and is not
 * counted. `java` sends the properties a Java client sends; without it there are none. */
#include <time.h>

#include "serve_help.h"

#define TURN 64
#define BODY_SIZE 128
#define JAVA_PROPERTIES                                                                                                \
    "KEYS\x01key-000017\x02UNIQ_KEY\x01" "7F0000010B2E5FFD2B274DAD12960000\x02WAIT\x01true\x02TAGS\x01TagA\x02"

static int64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: bench_send STORE_DIRECTORY MESSAGES [json|rocketmq] [java]\n");
        return 2;
    }
    setenv("TMPDIR", argv[1], 1);
    long turns = atol(argv[2]) / TURN;
    uint8_t type = argc > 3 && strcmp(argv[3], "rocketmq") == 0 ? PYMQ_SERIALIZE_ROCKETMQ : PYMQ_SERIALIZE_JSON;
    struct pymq_store_config store_config;
    pymq_store_config_default(&store_config);
    struct pymq_serve_config config = serve_config();
    serve_start("bench", &store_config, &config);
    publish("TopicTest", 8);

    char body[BODY_SIZE + 1];
    memset(body, 'x', BODY_SIZE);
    body[BODY_SIZE] = '\0';
    uint8_t frames[TURN][1024], scratch_bytes[1024];
    size_t sizes[TURN];
    for (int i = 0; i < TURN; i++) {
        char queue_id[8];
        snprintf(queue_id, sizeof queue_id, "%d", i % 8);
        struct request request = send_request(i, "TopicTest", queue_id, argc > 4 ? JAVA_PROPERTIES : "", body);
        request.type = type;
        sizes[i] = request_encode(&request, frames[i], sizeof frames[i]);
    }

    struct pymq_connection *connection = fake_connect(0);
    struct pymq_command command;
    int64_t decode_ns = 0, all_ns = 0;
    for (long turn = 0; turn < turns; turn++) {
        fake.reactor.wall_ms++;
        int64_t begin_ns = cpu_ns();
        for (int i = 0; i < TURN; i++) {
            CHECK_EQ(pymq_command_decode(frames[i], sizes[i], scratch_bytes, sizeof scratch_bytes, &command), PYMQ_OK);
            CHECK_EQ(served.service->request(served.service->context, &fake.reactor, connection, &command, frames[i],
                                             sizes[i]),
                     PYMQ_SERVED);
        }
        settle();
        all_ns += cpu_ns() - begin_ns;
        connection->output_size = 0;
        begin_ns = cpu_ns();
        for (int i = 0; i < TURN; i++)
            CHECK_EQ(pymq_command_decode(frames[i], sizes[i], scratch_bytes, sizeof scratch_bytes, &command), PYMQ_OK);
        decode_ns += cpu_ns() - begin_ns;
    }
    double sends = (double)turns * TURN;
    printf("%.0f sends: decode %.0f ns, serve %.0f ns, together %.0f ns a send\n", sends, (double)decode_ns / sends,
           (double)(all_ns - decode_ns) / sends, (double)all_ns / sends);
    serve_end();
    return 0;
}
