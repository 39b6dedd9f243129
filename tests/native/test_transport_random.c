/* Random streams: frames of random sizes, written in random pieces over several connections, answered or handed over.
 *
 * Each connection has a writer and a reader that draw the same numbers from the same seed, so the reader knows what
 * must come. Settings are small and odd, so that pauses, carried rests, growing frames and resumed reads all happen
 * at once. PYMQ_SEED repeats a run, PYMQ_RANDOM_FRAMES lengthens it.
 */
#include "transport_help.h"

#include <pthread.h>

enum { CONNECTIONS = 6, BODY_MAX = 90000 };

struct stream {
    int fd;
    uint64_t seed;
    int32_t frames;
    int32_t handed;     /* of those, how many the control loop got */
    uint8_t pattern[BODY_MAX];
};

struct piece {
    int32_t code;
    uint8_t type;
    size_t body_size;
};

/* What the next frame of a stream is. Mostly small, sometimes around the sizes where the reading changes its way. */
static struct piece next_piece(uint64_t *seed) {
    static const size_t edges[] = {0, 1, 1000, 16 * 1024, 20000, 64 * 1024, BODY_MAX - 8};
    struct piece piece;
    uint64_t draw = check_random(seed);
    piece.type = (uint8_t)(draw & 1);
    piece.code = draw >> 8 & 7 ? CODE_ECHO : CODE_OTHER;
    piece.body_size = draw >> 16 & 15 ? (draw >> 20) % 300 : edges[(draw >> 20) % 7] + (draw >> 30) % 8;
    return piece;
}

static void *run_writer(void *context) {
    struct stream *stream = context;
    uint64_t seed = stream->seed, cuts = stream->seed ^ 0x5555;
    static const size_t steps[] = {1, 7, 100, 1500, 5000, 70000};
    uint8_t *batch = malloc(4 * BODY_MAX);
    size_t size = 0;
    CHECK(batch != NULL);
    for (int32_t i = 0; i < stream->frames; i++) {
        struct piece piece = next_piece(&seed);
        size += frame_make(batch + size, piece.type, piece.code, 0, i, stream->pattern, piece.body_size);
        if (size < 2 * BODY_MAX && i + 1 < stream->frames && check_random(&cuts) % 8 != 0)
            continue;
        for (size_t at = 0; at < size;) {
            size_t step = steps[check_random(&cuts) % 6];
            if (step > size - at)
                step = size - at;
            client_write(stream->fd, batch + at, step);
            at += step;
        }
        size = 0;
    }
    free(batch);
    return NULL;
}

static void *run_reader(void *context) {
    struct stream *stream = context;
    uint64_t seed = stream->seed, naps = stream->seed ^ 0xaaaa;
    for (int32_t i = 0; i < stream->frames; i++) {
        struct piece piece = next_piece(&seed);
        if (piece.code != CODE_ECHO) {
            stream->handed++;
            continue;
        }
        struct answer answer;
        CHECK(client_answer(stream->fd, &answer));
        CHECK_EQ(answer.command.opaque, i);
        CHECK_EQ(answer.command.serialize_type, piece.type);
        CHECK_BYTES(answer.command.body.data, answer.command.body.size, stream->pattern, piece.body_size);
        answer_free(&answer);
        if (check_random(&naps) % 200 == 0)
            help_pause_ms(3); /* long enough for the peer to be paused */
    }
    return NULL;
}

static int64_t setting(const char *name, int64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

static void test_random_streams_are_answered_in_order_and_whole(void) {
    static struct stream streams[CONNECTIONS];
    struct server server;
    struct pymq_transport_config config = help_config();
    pthread_t writers[CONNECTIONS], readers[CONNECTIONS];
    int64_t seed = setting("PYMQ_SEED", 20261), handed = 0, frames = 0;
    printf("seed %" PRId64 "\n", seed);
    config.reactors = 2;
    config.output_size_pause = 20011;
    config.turn_bytes_max = 30011;
    config.lane_count_max[PYMQ_LANE_ADMIN] = INT32_MAX;
    config.lane_bytes_max[PYMQ_LANE_ADMIN] = INT64_MAX;
    config.lane_wait_ms[PYMQ_LANE_ADMIN] = 0;
    server_open(&server, &config);
    for (int i = 0; i < CONNECTIONS; i++) {
        struct stream *stream = &streams[i];
        stream->fd = client_connect(server.port);
        stream->seed = (uint64_t)seed * 1000003 + (uint64_t)i + 1;
        stream->frames = (int32_t)setting("PYMQ_RANDOM_FRAMES", 3000);
        frames += stream->frames;
        uint64_t bytes = stream->seed;
        check_random_bytes(&bytes, stream->pattern, sizeof stream->pattern);
        CHECK(pthread_create(&writers[i], NULL, run_writer, stream) == 0);
        CHECK(pthread_create(&readers[i], NULL, run_reader, stream) == 0);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        CHECK(pthread_join(writers[i], NULL) == 0 && pthread_join(readers[i], NULL) == 0);
        handed += streams[i].handed;
    }
    HELP_UNTIL(server_stats(&server).frames_in == frames);
    CHECK_EQ(server_stats(&server).lane_waiting[PYMQ_LANE_ADMIN], handed);
    CHECK(handed > 0);
    HELP_UNTIL(server_stats(&server).buffer_bytes == 0);
    for (int i = 0; i < CONNECTIONS; i++)
        close(streams[i].fd);
    server_close(&server);
}

int main(void) {
    RUN(test_random_streams_are_answered_in_order_and_whole);
    return check_summary();
}
