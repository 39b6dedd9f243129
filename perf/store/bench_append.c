/* Appending: the throughput of one thread, and what single appends cost while queues are being flushed. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <time.h>

#include "bench_support.h"

#define RECORD_OVERHEAD 256 /* what the bench's message adds to its body, rounded up */
#define LATENCY_COUNT_MAX 1000000
#define PACE_NS 50000
#define LATENCY_BODY_SIZE 128

int bench_append(struct pymq_store *store, int64_t count, int32_t body_size, int32_t batch, struct bench_cost *cost) {
    struct bench_message message;
    struct pymq_append_result result;
    struct pymq_queue *queue;
    size_t stride = (size_t)body_size + RECORD_OVERHEAD;
    uint8_t *buffer = malloc(stride * (size_t)batch);
    struct pymq_append_item *items = calloc((size_t)batch, sizeof *items);
    int status = buffer != NULL && items != NULL ? bench_message_init(&message, BENCH_TOPIC, 0, body_size)
                                                 : bench_fail(PYMQ_ENOMEM, "a batch of %d", batch);
    if (status != PYMQ_OK)
        goto out_buffers;
    status = pymq_store_queue(store, (const uint8_t *)BENCH_TOPIC, strlen(BENCH_TOPIC), 0, true, &queue);
    /* The first append takes the file the allocator has made: not what is measured. */
    int64_t bytes = 0;
    struct bench_clock clock;
    bench_begin(&clock);
    for (int64_t done = -1; done < count && status == PYMQ_OK;) {
        int64_t wanted = done < 0 ? 1 : pymq_min64(batch, count - done);
        if (done == 0)
            bench_begin(&clock);
        for (int64_t i = 0; i < wanted; i++) {
            uint8_t *target = buffer + (size_t)i * stride;
            ssize_t size = bench_message_encode(&message, target, stride);
            items[i].queue = queue;
            items[i].record = target;
            items[i].size = (uint32_t)size;
            bytes += size;
        }
        if (done < 0)
            bytes = 0;
        status = pymq_store_append(store, items, (size_t)wanted, 0, &result);
        done += wanted;
    }
    bench_end(&clock, count, bytes, cost);
    if (status != PYMQ_OK)
        bench_fail(status, "append");
    bench_message_destroy(&message);
out_buffers:
    free(buffer);
    free(items);
    return status;
}

int bench_fill_queues(struct pymq_store *store, int32_t topics, int32_t queues, struct bench_cost *cost) {
    struct bench_clock clock;
    uint8_t buffer[LATENCY_BODY_SIZE + RECORD_OVERHEAD];
    int status = PYMQ_OK;
    int64_t bytes = 0;
    bench_begin(&clock);
    for (int32_t number = 0; number < topics * queues && status == PYMQ_OK; number++) {
        struct bench_message message;
        struct pymq_append_item item = {.record = buffer};
        struct pymq_append_result result;
        char topic[32];
        int size = snprintf(topic, sizeof topic, "topic-%06d", number / queues);
        status = bench_message_init(&message, topic, number % queues, LATENCY_BODY_SIZE);
        if (status != PYMQ_OK)
            return status;
        message.number = (uint64_t)number;
        item.size = (uint32_t)bench_message_encode(&message, buffer, sizeof buffer);
        bytes += item.size;
        status = pymq_store_queue(store, (const uint8_t *)topic, (size_t)size, number % queues, true, &item.queue);
        if (status == PYMQ_OK)
            status = pymq_store_append(store, &item, 1, 0, &result);
        bench_message_destroy(&message);
    }
    bench_end(&clock, (int64_t)topics * queues, bytes, cost);
    return status == PYMQ_OK ? PYMQ_OK : bench_fail(status, "append to many queues");
}

/* ---- latency beside a flush --------------------------------------------------------------------------------------- */

struct checkpointing {
    struct pymq_store *store;
    int status;
    double took;
    _Atomic bool done;
};

static void *write_checkpoint(void *context) {
    struct checkpointing *work = context;
    double begin = bench_now();
    work->status = pymq_store_checkpoint(work->store);
    work->took = bench_now() - begin;
    work->done = true;
    return NULL;
}

static int compare(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void summarize(double *samples, int64_t count, struct bench_latency *latency) {
    memset(latency, 0, sizeof *latency);
    latency->count = count;
    if (count == 0)
        return;
    qsort(samples, (size_t)count, sizeof *samples, compare);
    latency->median = samples[count / 2];
    latency->p99 = samples[count * 99 / 100];
    latency->p999 = samples[count * 999 / 1000];
    latency->max = samples[count - 1];
}

int bench_append_meanwhile(struct pymq_store *store, bool thorough, int64_t syncs, int32_t idle_ms, double seconds_max,
                           struct bench_latency *latency, double *took) {
    struct checkpointing work = {.store = store};
    struct bench_message message;
    struct pymq_append_item item;
    struct pymq_append_result result;
    uint8_t buffer[LATENCY_BODY_SIZE + RECORD_OVERHEAD];
    pthread_t thread;
    double *samples = malloc(LATENCY_COUNT_MAX * sizeof *samples);
    int64_t count = 0, syncs_before = syncs > 0 ? bench_queue_syncs() : 0;
    int status = bench_message_init(&message, BENCH_TOPIC, 0, LATENCY_BODY_SIZE);
    if (status != PYMQ_OK || samples == NULL)
        return bench_fail(PYMQ_ENOMEM, "latencies");
    status = pymq_store_queue(store, (const uint8_t *)BENCH_TOPIC, strlen(BENCH_TOPIC), 0, true, &item.queue);
    item.record = buffer;
    double begin = bench_now();
    if (thorough)
        pthread_create(&thread, NULL, write_checkpoint, &work);
    while (status == PYMQ_OK && count < LATENCY_COUNT_MAX) {
        item.size = (uint32_t)bench_message_encode(&message, buffer, sizeof buffer);
        double before = bench_now();
        status = pymq_store_append(store, &item, 1, 0, &result);
        samples[count++] = bench_now() - before;
        *took = bench_now() - begin;
        if (thorough ? work.done : syncs > 0 ? bench_queue_syncs() - syncs_before >= syncs : *took * 1e3 >= idle_ms)
            break;
        if (*took > seconds_max && !thorough)
            status = PYMQ_ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = PACE_NS}, NULL);
    }
    if (thorough) {
        pthread_join(thread, NULL);
        status = status == PYMQ_OK ? work.status : status;
        *took = work.took;
    }
    summarize(samples, count, latency);
    free(samples);
    bench_message_destroy(&message);
    return status == PYMQ_OK ? PYMQ_OK : bench_fail(status, "append beside a flush");
}

int bench_arrival(struct pymq_store *store, int32_t count, struct bench_latency *latency) {
    struct bench_message message;
    uint8_t record[1024];
    double *samples = malloc((size_t)count * sizeof *samples);
    int status = bench_message_init(&message, BENCH_TOPIC, 0, 128);
    struct pymq_append_item item = {.record = record};
    if (samples == NULL || status != PYMQ_OK) {
        free(samples);
        return bench_fail(PYMQ_ENOMEM, "arrival: out of memory");
    }
    status = pymq_store_queue(store, (const uint8_t *)BENCH_TOPIC, strlen(BENCH_TOPIC), 0, true, &item.queue);
    for (int32_t i = 0; i < count && status == PYMQ_OK; i++) {
        struct pymq_append_result result;
        ssize_t size = bench_message_encode(&message, record, sizeof record);
        if (size < 0) {
            status = (int)size;
            break;
        }
        item.size = (uint32_t)size;
        usleep(1000); /* long enough for the dispatcher to fall asleep: its waking is part of the figure */
        double begin = bench_now();
        status = pymq_store_append(store, &item, 1, 0, &result);
        if (status == PYMQ_OK)
            status = pymq_queue_wait(store, item.queue, item.queue_offset, 5000);
        samples[i] = bench_now() - begin;
    }
    if (status == PYMQ_OK)
        summarize(samples, count, latency);
    free(samples);
    bench_message_destroy(&message);
    return status == PYMQ_OK ? 0 : bench_fail(status, "arrival: %s", pymq_status_name(status));
}
