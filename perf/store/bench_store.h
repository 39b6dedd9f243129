/* What the store suite asks of C: loops whose calls Python must not be part of. Read by cffi too, so declarations
 * only: lines that start with # are left out there. Every function returns 0, or a negative pymq_status whose reason
 * bench_error() tells. Times are seconds. */
#ifndef PYMQ_PERF_BENCH_STORE_H
#define PYMQ_PERF_BENCH_STORE_H
#include <stdbool.h>
#include <stdint.h>

struct pymq_store;

/* The settings the suite varies; bench_settings_default() gives the store's own. */
struct bench_settings {
    int64_t log_file_size;
    int64_t prefault_size;
    int64_t checkpoint_bytes_max;
    bool sync_flush;
    bool index_enable;
    bool append_record_crc;
    int32_t flush_interval_ms;
    int32_t queue_flush_interval_ms;
    int32_t queue_flush_thorough_interval_ms;
    int32_t queue_flush_least_pages;
};

/* What a timed region cost. `cpu` is that of the thread that ran it, `others_cpu` that of the rest of the process. */
struct bench_cost {
    double wall;
    double cpu;
    double others_cpu;
    int64_t count;
    int64_t bytes;
    int64_t faults;   /* page faults of the thread */
    int64_t switches; /* times the thread went to sleep or was put to sleep */
};

struct bench_latency {
    int64_t count;
    double median;
    double p99;
    double p999;
    double max;
};

struct bench_opened {
    double wall;    /* of pymq_store_open */
    double recover; /* of recovery alone: stats.recover_us */
    int64_t from;
    int64_t to;
    int64_t records;
    bool clean;
};

const char *bench_error(void);
void bench_settings_default(struct bench_settings *settings);
double bench_thread_cpu(void);

/* `opened` may be NULL. */
int bench_open(const char *path, const struct bench_settings *settings, struct pymq_store **store,
               struct bench_opened *opened);
int bench_close(struct pymq_store *store);
void bench_abandon(struct pymq_store *store);

/* Wait until the allocator has faulted in this many bytes of log since bench_open. */
int bench_wait_prefaulted(int64_t bytes, int32_t timeout_ms);

/* Wait until dispatch has caught up; how long that took goes to `wall`. */
int bench_wait_dispatched(struct pymq_store *store, double *wall);

/* The log offset below which queues and index hold everything. */
int64_t bench_dispatched(struct pymq_store *store);

/* Encode (with CRC and a UNIQ_KEY of its own each) and append `count` messages to one queue, `batch` per call. */
int bench_append(struct pymq_store *store, int64_t count, int32_t body_size, int32_t batch, struct bench_cost *cost);

/* How long a reader waits for a message: append one about every millisecond, wait until its queue has it. */
int bench_arrival(struct pymq_store *store, int32_t count, struct bench_latency *latency);

/* The same number of copies of as many bytes, from one place to consecutive ones. */
int bench_memcpy(int32_t record_size, int64_t count, struct bench_cost *cost);

/* Count and slow down syncs until bench_io_end. With `delay_us` 0 syncs go to the disk; otherwise they take at least
 * that long and reach no disk. No store may be open when these two are called. */
void bench_io_begin(uint32_t delay_us);
void bench_io_end(void);
int64_t bench_log_syncs(void);
int64_t bench_queue_syncs(void);

/* `senders` threads each append one message and wait for its acknowledgement, `rounds` times. In step: all start a
 * round together, and `syncs_of_round` gets what each round cost. Otherwise each goes on as soon as it is answered. */
int bench_group_commit(struct pymq_store *store, int32_t senders, int32_t rounds, bool in_step,
                       int64_t *syncs_of_round, struct bench_cost *cost);

/* One thread as a reactor would: append `parked` messages, then wait on an eventfd until all are acknowledged. */
int bench_parked_commit(struct pymq_store *store, int32_t parked, int32_t rounds, struct bench_cost *cost);

/* One thread, one message, one wait, through the store; and without a store: pwrite of a record, fdatasync. */
int bench_sync_each(struct pymq_store *store, int32_t count, struct bench_cost *cost);
int bench_plain_sync_each(const char *path, int32_t count, int32_t record_size, struct bench_cost *cost);

/* pread every file of a directory, up to `bytes_max`, as recovery reads: 8 MiB at a time. */
int bench_read_files(const char *directory, int64_t bytes_max, struct bench_cost *cost);

/* Write back and drop every file of a directory from the page cache. */
int bench_evict(const char *directory);

/* One message to each of `topics` times `queues` queues. */
int bench_fill_queues(struct pymq_store *store, int32_t topics, int32_t queues, struct bench_cost *cost);

/* Append one message about every 50 us until the checkpoint (when `thorough`) is written, or the queue flusher has
 * synced `syncs` files, or `idle_ms` have passed with neither (`syncs` 0). `took` gets how long that was; after
 * `seconds_max` it is an error. */
int bench_append_meanwhile(struct pymq_store *store, bool thorough, int64_t syncs, int32_t idle_ms, double seconds_max,
                           struct bench_latency *latency, double *took);
#endif
