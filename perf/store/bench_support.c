/* See bench_support.h; also opening and closing the store under measurement, and the memcpy to compare with. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench_support.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static char error_text[PYMQ_ERROR_TEXT_MAX + 128];
static int64_t resident_before; /* pages of files mapped when bench_open was called */

const char *bench_error(void) { return error_text; }

int bench_fail(int status, const char *format, ...) {
    va_list arguments;
    int used = snprintf(error_text, sizeof error_text, "%s: ", pymq_status_name(status));
    va_start(arguments, format);
    vsnprintf(error_text + used, sizeof error_text - (size_t)used, format, arguments);
    va_end(arguments);
    return status;
}

/* ---- clocks ---------------------------------------------------------------------------------------------------- */

static double read_clock(clockid_t which) {
    struct timespec moment;
    clock_gettime(which, &moment);
    return (double)moment.tv_sec + (double)moment.tv_nsec * 1e-9;
}

double bench_now(void) { return read_clock(CLOCK_MONOTONIC); }

double bench_thread_cpu(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void bench_begin(struct bench_clock *clock) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    clock->faults = usage.ru_minflt + usage.ru_majflt;
    clock->switches = usage.ru_nvcsw + usage.ru_nivcsw;
    clock->process = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    clock->thread = bench_thread_cpu();
    clock->wall = bench_now();
}

void bench_end(const struct bench_clock *clock, int64_t count, int64_t bytes, struct bench_cost *cost) {
    struct rusage usage;
    cost->wall = bench_now() - clock->wall;
    cost->cpu = bench_thread_cpu() - clock->thread;
    cost->others_cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID) - clock->process - cost->cpu;
    getrusage(RUSAGE_THREAD, &usage);
    cost->faults = usage.ru_minflt + usage.ru_majflt - clock->faults;
    cost->switches = usage.ru_nvcsw + usage.ru_nivcsw - clock->switches;
    cost->count = count;
    cost->bytes = bytes;
}

/* ---- the message ------------------------------------------------------------------------------------------------ */

int bench_message_init(struct bench_message *message, const char *topic, int32_t queue_id, int32_t body_size) {
    static const char head[] = "UNIQ_KEY\1" "7F0000010001AABBCCDD0000";
    uint32_t state = 12345;
    memset(message, 0, sizeof *message);
    message->body = malloc((size_t)body_size + 1);
    if (message->body == NULL)
        return bench_fail(PYMQ_ENOMEM, "a body of %d bytes", body_size);
    for (int32_t i = 0; i < body_size; i++) {
        state = state * 1664525u + 1013904223u;
        message->body[i] = (uint8_t)(state >> 24);
    }
    memcpy(message->properties, head, sizeof head - 1);
    message->properties[9 + BENCH_KEY_SIZE] = PYMQ_PROPERTY_SEPARATOR;
    struct pymq_record *record = &message->record;
    record->queue_id = queue_id;
    record->born_timestamp_ms = 1700000000000;
    record->born_host = record->store_host = (struct pymq_host){.address = {127, 0, 0, 1}, .size = 4, .port = 10911};
    record->body = (struct pymq_slice){message->body, (uint32_t)body_size};
    record->topic = (struct pymq_slice){(const uint8_t *)topic, (uint32_t)strlen(topic)};
    record->properties = (struct pymq_slice){message->properties, 9 + BENCH_KEY_SIZE + 1};
    return PYMQ_OK;
}

void bench_message_destroy(struct bench_message *message) { free(message->body); }

ssize_t bench_message_encode(struct bench_message *message, uint8_t *target, size_t capacity) {
    static const char digits[] = "0123456789ABCDEF";
    uint8_t *tail = message->properties + 9 + BENCH_KEY_SIZE - 8;
    uint64_t number = message->number++;
    for (int shift = 28; shift >= 0; shift -= 4)
        *tail++ = (uint8_t)digits[(number >> shift) & 15];
    return pymq_record_encode(&message->record, target, capacity);
}

/* ---- the store -------------------------------------------------------------------------------------------------- */

static int64_t resident_file_pages(void) {
    long long pages = 0;
    FILE *stream = fopen("/proc/self/statm", "r");
    if (stream == NULL || fscanf(stream, "%*d %*d %lld", &pages) != 1)
        pages = 0;
    if (stream != NULL)
        fclose(stream);
    return pages;
}

void bench_settings_default(struct bench_settings *settings) {
    struct pymq_store_config config;
    pymq_store_config_default(&config);
    *settings = (struct bench_settings){
        .log_file_size = config.log_file_size,
        .prefault_size = config.prefault_size,
        .checkpoint_bytes_max = config.checkpoint_bytes_max,
        .sync_flush = config.flush_mode == PYMQ_SYNC_FLUSH,
        .index_enable = config.index_enable,
        .append_record_crc = config.append_record_crc,
        .flush_interval_ms = config.flush_interval_ms,
        .queue_flush_interval_ms = config.queue_flush_interval_ms,
        .queue_flush_thorough_interval_ms = config.queue_flush_thorough_interval_ms,
        .queue_flush_least_pages = config.queue_flush_least_pages,
    };
}

int bench_open(const char *path, const struct bench_settings *settings, struct pymq_store **store,
               struct bench_opened *opened) {
    struct pymq_store_config config;
    struct pymq_store_stats stats;
    struct pymq_error error = {0};
    pymq_store_config_default(&config);
    config.log_file_size = settings->log_file_size;
    config.prefault_size = settings->prefault_size;
    config.checkpoint_bytes_max = settings->checkpoint_bytes_max;
    config.flush_mode = settings->sync_flush ? PYMQ_SYNC_FLUSH : PYMQ_ASYNC_FLUSH;
    config.index_enable = settings->index_enable;
    config.append_record_crc = settings->append_record_crc;
    config.flush_interval_ms = settings->flush_interval_ms;
    config.queue_flush_interval_ms = settings->queue_flush_interval_ms;
    config.queue_flush_thorough_interval_ms = settings->queue_flush_thorough_interval_ms;
    config.queue_flush_least_pages = settings->queue_flush_least_pages;
    config.sync_flush_timeout_ms = 60000; /* a busy machine is no fault */
    resident_before = resident_file_pages();
    double begin = bench_now();
    int status = pymq_store_open(path, &config, store, &error);
    double wall = bench_now() - begin;
    if (status != PYMQ_OK)
        return bench_fail(status, "open %s: %s", path, error.text);
    if (opened != NULL) {
        pymq_store_stats(*store, &stats);
        *opened = (struct bench_opened){.wall = wall,
                                        .recover = (double)stats.recover_us * 1e-6,
                                        .from = stats.recovered_from,
                                        .to = stats.recovered_to,
                                        .records = stats.recovered_records,
                                        .clean = stats.recovered_clean};
    }
    return PYMQ_OK;
}

int bench_close(struct pymq_store *store) {
    int status = pymq_store_close(store);
    return status == PYMQ_OK ? PYMQ_OK : bench_fail(status, "close");
}

void bench_abandon(struct pymq_store *store) { pymq_store_abandon(store); }

int bench_wait_prefaulted(int64_t bytes, int32_t timeout_ms) {
    double deadline = bench_now() + timeout_ms * 1e-3;
    while ((resident_file_pages() - resident_before) * PYMQ_PAGE_SIZE < bytes) {
        if (bench_now() >= deadline)
            return bench_fail(PYMQ_ETIMEDOUT, "%lld bytes are not faulted in after %d ms", (long long)bytes, timeout_ms);
        usleep(2000);
    }
    return PYMQ_OK;
}

int bench_wait_dispatched(struct pymq_store *store, double *wall) {
    double begin = bench_now();
    int status = pymq_store_wait_dispatched(store, 120000);
    *wall = bench_now() - begin;
    return status == PYMQ_OK ? PYMQ_OK : bench_fail(status, "dispatch did not catch up");
}

int64_t bench_dispatched(struct pymq_store *store) {
    struct pymq_watermarks marks;
    pymq_store_watermarks(store, &marks);
    return marks.dispatched;
}

/* ---- what a copy costs here -------------------------------------------------------------------------------------- */

int bench_memcpy(int32_t record_size, int64_t count, struct bench_cost *cost) {
    size_t total = (size_t)record_size * (size_t)count;
    uint8_t *target = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint8_t *source = calloc(1, (size_t)record_size);
    if (target == MAP_FAILED || source == NULL) {
        free(source);
        return bench_fail(PYMQ_ENOMEM, "%zu bytes to copy to", total);
    }
    struct bench_clock clock;
    bench_begin(&clock);
    for (int64_t i = 0; i < count; i++) {
        memcpy(target + i * record_size, source, (size_t)record_size);
        __asm__ volatile("" : : "r"(target) : "memory");
    }
    bench_end(&clock, count, (int64_t)total, cost);
    munmap(target, total);
    free(source);
    return PYMQ_OK;
}
