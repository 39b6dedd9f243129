/* How fast the transport alone is: requests a second and processor time per request, with a service that answers at
 * once.
 *
 * The load comes from a forked process, so the parent's processor time is the reactor's. By default it runs for a
 * moment, as a test that everything is answered; PYMQ_BENCH_SECONDS makes it a measurement. Shapes: 8 connections
 * with 64 requests in flight each, and one connection with one.
 */
#include "transport_help.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define CONNECTIONS_MAX 64
#define BODY_SIZE 128
#define ROUND_TRIPS_MAX 2000000

struct shape {
    const char *name;
    int connections, in_flight;
};

struct load_result {
    int64_t answered;
    double seconds;
    double p50_us, p99_us;
};

struct load_connection {
    int fd;
    size_t expected, rest; /* bytes of answers still to come; of the answer under way */
};

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double processor_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6 + (double)usage.ru_stime.tv_sec +
           (double)usage.ru_stime.tv_usec / 1e6;
}

/* A send as a Java client of 5.x writes it: one-letter field names, 128 bytes of body. */
static size_t send_request(uint8_t *target) {
    static const char *const fields[][2] = {
        {"a", "bench-producer-group"}, {"b", "BenchTopic"}, {"c", "TBW102"}, {"d", "4"}, {"e", "2"}, {"f", "0"},
        {"g", "1731761234567"},        {"h", "0"},          {"i", ""},       {"j", "0"}, {"k", "false"}, {"m", "false"},
    };
    uint8_t body[BODY_SIZE];
    struct pymq_header_writer writer;
    memset(body, 'x', sizeof body);
    pymq_header_begin(&writer, target, PYMQ_HEADER_ROOM, PYMQ_SERIALIZE_JSON, CODE_ECHO, 0, 12345,
                      (struct pymq_slice){NULL, 0});
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        pymq_header_field(&writer, fields[i][0], 1, (const uint8_t *)fields[i][1], strlen(fields[i][1]));
    ssize_t size = pymq_header_end(&writer, sizeof body);
    memcpy(target + size, body, sizeof body);
    return (size_t)size + sizeof body;
}

static int compare_floats(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

/* Every answer has the same size, so the load generator counts bytes and parses nothing. */
static struct load_result load_run(int32_t port, const struct shape *shape, size_t answer_size, double seconds) {
    static uint8_t requests[64 * 1024], sink[256 * 1024];
    uint8_t one[PYMQ_HEADER_ROOM + BODY_SIZE];
    size_t size = send_request(one);
    struct load_connection connections[CONNECTIONS_MAX];
    struct epoll_event events[CONNECTIONS_MAX];
    float *trips = malloc(ROUND_TRIPS_MAX * sizeof *trips);
    size_t trip_count = 0;
    int epoll_fd = epoll_create1(0);
    CHECK(trips != NULL && epoll_fd >= 0 && shape->in_flight * size <= sizeof requests);
    for (int i = 0; i < shape->in_flight; i++)
        memcpy(requests + (size_t)i * size, one, size);
    double begin = now_s(), end = begin, sent_at = begin;
    int64_t answered = 0, in_flight = 0;
    for (int i = 0; i < shape->connections; i++) {
        connections[i] = (struct load_connection){.fd = client_connect(port)};
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, connections[i].fd, &event);
    }
    begin = sent_at = now_s();
    for (int i = 0; i < shape->connections; i++) {
        client_write(connections[i].fd, requests, (size_t)shape->in_flight * size);
        in_flight += shape->in_flight;
    }
    while (in_flight > 0) {
        int found = epoll_wait(epoll_fd, events, CONNECTIONS_MAX, WAIT_MS);
        CHECK(found > 0);
        for (int i = 0; i < found; i++) {
            struct load_connection *connection = &connections[events[i].data.u32];
            ssize_t got = recv(connection->fd, sink, sizeof sink, 0);
            CHECK(got > 0);
            connection->rest += (size_t)got;
            int64_t whole = (int64_t)(connection->rest / answer_size);
            connection->rest %= answer_size;
            answered += whole;
            in_flight -= whole;
            end = now_s();
            if (shape->in_flight == 1 && trip_count < ROUND_TRIPS_MAX)
                trips[trip_count++] = (float)((end - sent_at) * 1e6);
            if (end - begin < seconds && whole > 0) {
                sent_at = now_s();
                client_write(connection->fd, requests, (size_t)whole * size);
                in_flight += whole;
            }
        }
    }
    struct load_result result = {.answered = answered, .seconds = end - begin};
    if (trip_count != 0) {
        qsort(trips, trip_count, sizeof *trips, compare_floats);
        result.p50_us = (double)trips[trip_count / 2];
        result.p99_us = (double)trips[trip_count * 99 / 100];
    }
    free(trips);
    return result;
}

static int bench_request(void *context, struct pymq_reactor *reactor, struct pymq_connection *connection,
                         const struct pymq_command *command, const uint8_t *frame, size_t frame_size) {
    (void)context;
    (void)reactor;
    (void)frame;
    (void)frame_size;
    uint8_t *target = pymq_connection_reserve(connection, PYMQ_HEADER_ROOM);
    if (target == NULL)
        return PYMQ_SERVED;
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, PYMQ_HEADER_ROOM, command->serialize_type, 0, PYMQ_COMMAND_RESPONSE,
                      command->opaque, (struct pymq_slice){NULL, 0});
    pymq_header_field(&writer, "queueId", 7, (const uint8_t *)"2", 1);
    pymq_header_field(&writer, "msgId", 5, (const uint8_t *)"7F00000100002A9F0000000000000000", 32);
    pymq_header_field(&writer, "queueOffset", 11, (const uint8_t *)"1000000", 7);
    ssize_t size = pymq_header_end(&writer, 0);
    pymq_connection_commit(connection, size > 0 ? (size_t)size : 0);
    return PYMQ_SERVED;
}

static size_t answer_size_of(int32_t port) {
    uint8_t request[PYMQ_HEADER_ROOM + BODY_SIZE];
    int fd = client_connect(port);
    struct answer answer;
    client_write(fd, request, send_request(request));
    CHECK(client_answer(fd, &answer));
    size_t size = answer.size;
    answer_free(&answer);
    close(fd);
    return size;
}

static void bench(const struct shape *shape, double seconds) {
    struct server server;
    struct pymq_transport_config config = help_config();
    int ports[2], results[2];
    CHECK(pipe(ports) == 0 && pipe(results) == 0);
    fflush(NULL);
    pid_t child = fork(); /* before any thread exists */
    if (child == 0) {
        int32_t port;
        CHECK(read(ports[0], &port, sizeof port) == sizeof port);
        struct load_result result = load_run(port, shape, answer_size_of(port), seconds);
        CHECK(write(results[1], &result, sizeof result) == sizeof result);
        _exit(0);
    }
    memset(&server, 0, sizeof server);
    server.echo.service =
        (struct pymq_service){.context = &server.echo, .request = bench_request, .settle = echo_settle};
    server_open_plain(&server, &config, &server.echo.service);
    double processor_before = processor_s();
    CHECK(write(ports[1], &server.port, sizeof server.port) == sizeof server.port);
    struct load_result result;
    CHECK(read(results[0], &result, sizeof result) == sizeof result);
    double processor = processor_s() - processor_before;
    struct pymq_transport_stats stats = server_stats(&server);
    CHECK_EQ(stats.frames_in, result.answered + 1);
    printf("%s: %.0f requests/s, %.3f us processor per request, %.2f requests per read, %.2f per write, %.2f per turn",
           shape->name, (double)result.answered / result.seconds, processor * 1e6 / (double)result.answered,
           (double)stats.frames_in / (double)stats.reads, (double)stats.frames_in / (double)stats.writes,
           (double)stats.frames_in / (double)stats.turns);
    if (result.p50_us > 0)
        printf(", round trip p50 %.1f us, p99 %.1f us", result.p50_us, result.p99_us);
    printf("\n");
    server_close(&server);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(ports[i]);
        close(results[i]);
    }
}

static void test_pipelined_requests_are_all_answered(void) {
    const char *setting = getenv("PYMQ_BENCH_SECONDS");
    double seconds = setting != NULL ? strtod(setting, NULL) : 0.2;
    const struct shape shapes[] = {{"8 x 64 in flight", 8, 64}, {"1 x 1 in flight", 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        bench(&shapes[i], seconds);
}

int main(void) {
    RUN(test_pipelined_requests_are_all_answered);
    return check_summary();
}
