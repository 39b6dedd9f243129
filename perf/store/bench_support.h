/* Shared by the suite's C files: clocks, costs, the message that is sent, and errors told to Python. */
#ifndef PYMQ_PERF_BENCH_SUPPORT_H
#define PYMQ_PERF_BENCH_SUPPORT_H

#include "bench_store.h"
#include "pymq/store.h"

#define BENCH_TOPIC "TopicTest"
#define BENCH_KEY_SIZE 32

/* A message as a producer sends it: a body of random bytes, one UNIQ_KEY that differs from message to message. */
struct bench_message {
    struct pymq_record record;
    uint8_t *body;
    uint8_t properties[64];
    uint64_t number; /* of the next one */
};

int bench_message_init(struct bench_message *message, const char *topic, int32_t queue_id, int32_t body_size);
void bench_message_destroy(struct bench_message *message);

/* The next message into `target`; returns its size or a negative status. */
ssize_t bench_message_encode(struct bench_message *message, uint8_t *target, size_t capacity);

struct bench_clock {
    double wall, thread, process;
    int64_t faults, switches;
};

double bench_now(void);
void bench_begin(struct bench_clock *clock);
void bench_end(const struct bench_clock *clock, int64_t count, int64_t bytes, struct bench_cost *cost);

/* Keep a reason for bench_error() and return `status`. */
int bench_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
