/* The message store: the only door for everything that is not the store itself.
 *
 * A store is a directory with Apache RocketMQ's files. One process has it open at a time (`lock`), through one
 * handle. Every function may be called from any thread without the GIL; none blocks on the disk except where its
 * comment says so.
 *
 * Threads the store owns (all block every signal and never call out): allocator, flusher, committer (only with the
 * transient pool), dispatcher, queue flusher. See docs/architecture.md.
 */
#ifndef PYMQ_STORE_H
#define PYMQ_STORE_H

#include "pymq/base.h"
#include "pymq/cq_unit.h"
#include "pymq/record.h"

struct pymq_store;
struct pymq_queue; /* one (topic, queue id); the object lives until the store is closed */

enum pymq_flush_mode { PYMQ_ASYNC_FLUSH = 0, PYMQ_SYNC_FLUSH = 1 };

/* Everything the store, its dispatch and its recovery need to know, given once at open. Names follow
 * MessageStoreConfig where there is one; pymq_store_config_default() fills Apache's defaults. */
struct pymq_store_config {
    int64_t log_file_size;          /* mappedFileSizeCommitLog, 1 GiB */
    int64_t queue_file_size;        /* mappedFileSizeConsumeQueue, 300000 * 20 */
    int32_t index_slot_count;       /* maxHashSlotNum, 5000000 */
    int32_t index_item_count;       /* maxIndexNum, 20000000 */
    bool index_enable;              /* messageIndexEnable */
    int32_t message_size_max;       /* maxMessageSize, bytes of body, 4 MiB */
    enum pymq_flush_mode flush_mode;
    int32_t sync_flush_timeout_ms;        /* syncFlushTimeout, 5000 */
    int32_t flush_interval_ms;            /* flushIntervalCommitLog, 500 */
    int32_t flush_least_pages;            /* flushCommitLogLeastPages, 4 */
    int32_t flush_thorough_interval_ms;   /* flushCommitLogThoroughInterval, 10000 */
    int32_t commit_interval_ms;           /* commitIntervalCommitLog, 200 */
    int32_t commit_least_pages;           /* commitCommitLogLeastPages, 4 */
    int32_t commit_thorough_interval_ms;  /* commitCommitLogThoroughInterval, 200 */
    int32_t queue_flush_interval_ms;          /* flushIntervalConsumeQueue, 1000 */
    int32_t queue_flush_least_pages;          /* flushConsumeQueueLeastPages, 2 */
    int32_t queue_flush_thorough_interval_ms; /* flushConsumeQueueThoroughInterval, 60000 */
    int32_t queue_flush_slice;                /* queues flushed before the flusher looks up again, 256 */
    bool transient_pool_enable;     /* transientStorePoolEnable */
    int32_t transient_pool_size;    /* transientStorePoolSize, buffers of log_file_size, 5 */
    int32_t transient_pool_wait_ms; /* how long a put waits for a free buffer before it is refused, 200 */
    bool warm_file_enable;          /* warmMapedFileEnable: touch every page of a new log file before use */
    bool lock_log_memory;           /* mlock the active log window */
    int64_t prefault_size;          /* bytes kept faulted in ahead of the write position, 32 MiB */
    int64_t log_window_size;        /* bytes of log mapped at once per window, 32 MiB */
    int64_t log_map_size_max;       /* bound on mapped log bytes, 512 MiB */
    int32_t queue_map_count_max;    /* bound on mapped queue windows, 16384 */
    int32_t page_cache_busy_ms;     /* osPageCacheBusyTimeOutMills, 1000 */
    bool check_crc_on_recover;      /* checkCRCOnRecover */
    bool append_record_crc;         /* enabledAppendPropCRC: every record gets a CRC over all of it, 20 bytes longer */
    bool require_record_crc;        /* forceVerifyPropCRC: a record without one is none; open refuses such a store */
    bool truncate_damaged;          /* cut a log that is damaged below its durable end, instead of refusing to open */
    bool replica_gate;              /* SYNC_MASTER: acknowledgement and visibility wait for the replica watermark */
    int64_t checkpoint_bytes_max;   /* write a checkpoint at the latest after this much log, 256 MiB */
    struct pymq_delay_levels delay_levels;
    struct pymq_host store_host;    /* stamped into records and message ids */
    /* Called during open with what recovery has read and will read, at most every 100 ms; may be NULL. */
    void (*progress)(void *context, const char *phase, int64_t done, int64_t total);
    void *progress_context;
};

void pymq_store_config_default(struct pymq_store_config *config);

/* Open or create the store in `path`. Recovers: blocks for as long as that takes, reporting progress.
 * On failure nothing stays open and `error` says what, where and the way out. */
int pymq_store_open(const char *path, const struct pymq_store_config *config, struct pymq_store **store,
                    struct pymq_error *error);

/* The first half of a close, for owners of a handle that other threads are using: refuse new puts, flush what was
 * appended, and wake everybody who waits (acknowledged where the flush brought that about, PYMQ_ECLOSED otherwise).
 * Calls in flight return soon; when the last has, pymq_store_close may follow. May be called more than once. */
int pymq_store_shut(struct pymq_store *store);

/* Stop accepting, complete waiters, commit, flush, checkpoint, remove `abort`, join, free. Idempotent through
 * NULL. Returns PYMQ_OK, or the status that kept the stop from being clean (then `abort` stays). */
int pymq_store_close(struct pymq_store *store);

/* As a crash of this process would leave it: stop the threads, flush and write nothing, keep `abort`. For tests. */
void pymq_store_abandon(struct pymq_store *store);

/* ---- writing --------------------------------------------------------------------------------------------- */

/* Find (or, with `create`, make) a queue. PYMQ_OK, PYMQ_ENOTFOUND (also with `create`, while its topic is being
 * removed), PYMQ_ETOPIC, PYMQ_EINVAL, PYMQ_ENOMEM. */
int pymq_store_queue(struct pymq_store *store, const uint8_t *topic, size_t topic_size, int32_t queue_id, bool create,
                     struct pymq_queue **queue);

/* One record, already encoded with pymq_record_encode, to be appended to `queue`. */
struct pymq_append_item {
    struct pymq_queue *queue;
    uint8_t *record; /* stamped in place under the lock, then copied */
    uint32_t size;           /* in and out: with append_record_crc it grows by 20 or 21, without room in `record` */
    int64_t queue_offset;    /* out */
    int64_t physical_offset; /* out */
};

enum pymq_append_flag {
    PYMQ_APPEND_TOGETHER = 1 << 0, /* a client batch: all items in one log file, consecutive, or none */
    PYMQ_APPEND_QUIET = 1 << 2,    /* do not wake dispatch: the caller does, by pymq_store_ring, once it has answered */
    PYMQ_APPEND_NO_WAIT = 1 << 1,  /* PYMQ_EPOOL at once, instead of waiting for a buffer of the pool; and _BOUNDED */
    PYMQ_APPEND_BOUNDED = 1 << 3,  /* PYMQ_EPOOL when the next log file is not there within PYMQ_APPEND_WAIT_MS_MAX */
};

/* Files are made half a file ahead: only a disk that stands still takes so long, or the first file of a new store. Once
 * one did, whoever is bounded is refused at once, until a file was made in less. */
#define PYMQ_APPEND_WAIT_MS_MAX 2000

struct pymq_append_result {
    size_t appended;             /* items appended, in order; fewer than asked only with a negative status */
    int64_t end_offset;          /* physical end of the last one: what to wait for */
    int64_t store_timestamp_ms;  /* of the last one */
};

/* Append under the log's lock. Never waits for the disk, except for the creation of a log file that the allocator
 * has not finished. Prepared and rollback records get queue offset 0 and do not advance their queue. */
int pymq_store_append(struct pymq_store *store, struct pymq_append_item *items, size_t count, unsigned flags,
                      struct pymq_append_result *result);

/* Wake dispatch after quiet appends. Waking a thread costs more than an append, and on a machine that sleeps between
 * requests the woken one takes the processor from whoever waits for the answer. */
void pymq_store_ring(struct pymq_store *store);

/* What must have happened before a message counts as acknowledged, by the flush mode and the replica gate: wait
 * until everything below `end_offset` is there. Blocks up to timeout_ms (< 0: the configured one).
 * PYMQ_OK, PYMQ_ETIMEDOUT, PYMQ_EFAILED (a flush failed), PYMQ_ECLOSED. */
int pymq_store_wait_acknowledged(struct pymq_store *store, int64_t end_offset, int32_t timeout_ms);

/* The same without blocking: PYMQ_OK when acknowledged, PYMQ_ETIMEDOUT when not yet, or the failure. The
 * append has asked for the flush already. Use with pymq_store_listen. */
int pymq_store_poll_acknowledged(struct pymq_store *store, int64_t end_offset);

enum pymq_event {
    PYMQ_EVENT_ACKNOWLEDGED = 1 << 0, /* a watermark that acknowledgements wait on has moved (or failed) */
    PYMQ_EVENT_ARRIVAL = 1 << 1,      /* dispatch has made messages visible */
};

/* Write 1 to the eventfd `fd` whenever one of `events` happens; 64 listeners at most. PYMQ_OK or PYMQ_EINVAL. */
int pymq_store_listen(struct pymq_store *store, int fd, unsigned events);
void pymq_store_unlisten(struct pymq_store *store, int fd);

struct pymq_watermarks {
    int64_t written, committed, flushed, replica; /* physical offsets; replica is INT64_MAX while nobody feeds it */
    int64_t visible;    /* dispatch and every reader stop here; never moves back */
    int64_t dispatched; /* consume queues and index hold everything below */
    int64_t min;        /* first offset still in the log */
};

void pymq_store_watermarks(const struct pymq_store *store, struct pymq_watermarks *marks);

/* The in-sync replicas have everything below `offset`. Moves only forward. `in_sync` false opens the gate locally
 * (no replica in sync: sends answer SLAVE_NOT_AVAILABLE and visibility follows the local watermarks). */
void pymq_store_set_replica(struct pymq_store *store, int64_t offset, bool in_sync);

/* Refuse puts with PYMQ_EREADONLY (disk level, role), or accept them again. */
void pymq_store_set_writable(struct pymq_store *store, bool writable);
bool pymq_store_is_writable(const struct pymq_store *store);

/* Make everything appended so far durable, now: commit, flush. Blocks. */
int pymq_store_flush(struct pymq_store *store);

/* Flush queues and index and write the checkpoint, now. Blocks. */
int pymq_store_checkpoint(struct pymq_store *store);

/* Wait until dispatch has reached what is visible now. PYMQ_OK or PYMQ_ETIMEDOUT. */
int pymq_store_wait_dispatched(struct pymq_store *store, int32_t timeout_ms);

/* ---- reading --------------------------------------------------------------------------------------------- */

struct pymq_queue_info {
    struct pymq_slice topic; /* lives as long as the store */
    int32_t queue_id;
    int64_t min_offset; /* first unit whose record is still in the log */
    int64_t max_offset; /* one past the last visible unit */
};

void pymq_queue_info(const struct pymq_queue *queue, struct pymq_queue_info *info);

/* Whether its topic was removed, or is being removed: whoever has kept the pointer looks it up again. */
bool pymq_queue_is_removed(const struct pymq_queue *queue);

/* All queues, in no order. Returns how many there are; fills at most `count_max`. */
size_t pymq_store_queues(struct pymq_store *store, struct pymq_queue **queues, size_t count_max);

/* A piece of the mapped log (or, for a cold or oversized record, a private copy). Release it soon. */
struct pymq_span {
    const uint8_t *data;
    uint32_t size;
    void *owner; /* opaque */
};

void pymq_span_release(struct pymq_store *store, struct pymq_span *span);

/* Decode up to `count_max` units from `offset` on. Returns how many (0 at the end), or PYMQ_ENOTFOUND when offset
 * lies below the minimum or above the maximum, or PYMQ_ECORRUPT / PYMQ_EIO. */
ssize_t pymq_queue_units(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, struct pymq_cq_unit *units,
                         size_t count_max);

/* The same, only units whose tags code is one of `hashes`; `offsets` gets each unit's queue offset and `*next` the
 * offset to go on from. */
ssize_t pymq_queue_units_by_tag(struct pymq_store *store, struct pymq_queue *queue, int64_t offset,
                                const int64_t *hashes, size_t hash_count, struct pymq_cq_unit *units, int64_t *offsets,
                                size_t count_max, int64_t *next);

/* The record at [physical_offset, + size); size 0 reads the length first. Only below the visible watermark.
 * PYMQ_OK, PYMQ_ENOTFOUND, PYMQ_ECORRUPT when no record starts there, PYMQ_EMAPS, PYMQ_EIO. */
int pymq_store_record(struct pymq_store *store, int64_t physical_offset, uint32_t size, struct pymq_span *span);

/* The records of `units`, in order. Neighbours in the log share a span, and spans of one window share its pin: a span
 * without owner is kept by a later one of the array. Release them all, in order or together. Returns how many units the
 * `*span_count` spans cover: all, or fewer when `span_max` is reached (`*status` PYMQ_OK) or the next cannot be read
 * (why). */
size_t pymq_store_records(struct pymq_store *store, const struct pymq_cq_unit *units, size_t count,
                          struct pymq_span *spans, size_t span_max, size_t *span_count, int *status);

/* Records looked at in turn, to decide about them: a pointer is good until the next look. What is pinned meanwhile is
 * one window of the log. */
struct pymq_record_reader {
    struct pymq_store *store;
    void *window; /* opaque; NULL: none */
    const uint8_t *data;
    int64_t window_begin, window_end; /* physical offsets */
    struct pymq_span alone;           /* a record that lies in no single window */
};
void pymq_record_reader_begin(struct pymq_record_reader *reader, struct pymq_store *store);
/* PYMQ_OK; PYMQ_ENOTFOUND when it is not there (any more), PYMQ_ECORRUPT when none begins there, PYMQ_EIO. */
int pymq_record_reader_at(struct pymq_record_reader *reader, const struct pymq_cq_unit *unit, const uint8_t **record);
void pymq_record_reader_end(struct pymq_record_reader *reader);

/* Whether reading these bytes of the log (these units) would not wait for the disk, as far as the kernel tells. */
bool pymq_store_is_resident(struct pymq_store *store, int64_t physical_offset, int64_t size);
bool pymq_queue_is_resident(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, int64_t count);

/* Read them into memory, and ask for `ahead` more bytes of log to follow. Blocks on the disk; what is not there is no
 * error. */
void pymq_store_load(struct pymq_store *store, int64_t physical_offset, int64_t size, int64_t ahead);
void pymq_queue_load(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, int64_t count);

enum pymq_boundary { PYMQ_BOUNDARY_LOWER = 0, PYMQ_BOUNDARY_UPPER = 1 };

/* The queue offset for a time: lower is the first message stored at or after it, upper the last one stored at or
 * before it. As Apache: past the end gives max (lower) or max - 1 (upper); an empty queue gives 0. */
int64_t pymq_queue_offset_by_time(struct pymq_store *store, struct pymq_queue *queue, int64_t timestamp_ms,
                                  enum pymq_boundary boundary);

/* Physical offsets of messages of `topic` with `key` (a KEYS word, the UNIQ_KEY, or T# and the TAGS) stored in
 * [begin_ms, end_ms], newest first, each verified against the record. Returns how many, at most `count_max`, or a
 * failure. */
ssize_t pymq_store_query(struct pymq_store *store, const uint8_t *topic, size_t topic_size, const uint8_t *key,
                         size_t key_size, int64_t begin_ms, int64_t end_ms, int64_t *offsets, size_t count_max);

/* The physical offset of the last record indexed; -1 when there is none, or no index. */
int64_t pymq_store_indexed(struct pymq_store *store);

/* Block until `queue` has a unit at `offset` (then PYMQ_OK), the time is over (PYMQ_ETIMEDOUT) or close. */
int pymq_queue_wait(struct pymq_store *store, struct pymq_queue *queue, int64_t offset, int32_t timeout_ms);

/* ---- arrivals by queue, for one thread that waits on many ------------------------------------------------- */

/* A watcher: `fd`, an eventfd, is written to when a watched queue has got units. Returns its number, or PYMQ_EINVAL
 * when all 32 are taken. One thread takes its arrivals. */
int pymq_store_open_watcher(struct pymq_store *store, int fd);
void pymq_store_close_watcher(struct pymq_store *store, int watcher);

/* Tell `watcher` once of the next units of `queue`. Returns the queue's maximum as read behind the watch: what lies
 * below it may never be told. Watch again after each arrival. */
int64_t pymq_queue_watch(struct pymq_queue *queue, int watcher);

/* Queues that have got units since they were watched. `*all`: more than were kept count, look at every queue. */
size_t pymq_store_take_arrivals(struct pymq_store *store, int watcher, struct pymq_queue **queues, size_t count_max,
                                bool *all);

/* ---- retention ------------------------------------------------------------------------------------------- */

struct pymq_log_file_info {
    int64_t base_offset;
    int64_t size;
    int64_t modified_ms;
    int64_t last_store_timestamp_ms; /* of its last record, 0 when unknown */
    bool active;                     /* the file being written: never removed */
};

/* Files of the log, oldest first. Returns how many there are; fills at most `count_max`. */
size_t pymq_store_log_files(struct pymq_store *store, struct pymq_log_file_info *files, size_t count_max);

/* Remove the oldest log file; queues and index follow. PYMQ_ENOTFOUND when only the active one is left, or when the
 * oldest is not flushed and dispatched yet. Writes a checkpoint first where one is due for it: may wait for the disk.
 * Readers that hold spans of it keep their memory; its name is gone at once. `*removed` gets what it was. */
int pymq_store_remove_oldest(struct pymq_store *store, struct pymq_log_file_info *removed);

/* Remove queue and index files that refer only to removed log. Returns files removed. */
ssize_t pymq_store_clean_queues(struct pymq_store *store);

/* Remove all queues of a topic. Appends to them are refused (PYMQ_ENOTFOUND) from the beginning of the call; it waits
 * up to timeout_ms until everything appended before is dispatched (PYMQ_ETIMEDOUT: nothing has changed). When it
 * returns PYMQ_OK, the files are gone, no rebuild brings their messages back, and pymq_store_queue(create) makes queues
 * that begin at 0. After a crash in the middle either all queues are there or none. Objects of removed queues stay
 * until close: empty, and PYMQ_ENOTFOUND to whoever reads, appends or waits. Other failures behind the removal itself
 * (files that could not be unlinked, the checkpoint) are reported; the next open finishes. Blocks on the disk.
 * PYMQ_ENOTFOUND when the topic has no queue. */
int pymq_store_remove_topic(struct pymq_store *store, const uint8_t *topic, size_t topic_size, int32_t timeout_ms);

/* ---- statistics ------------------------------------------------------------------------------------------ */

#define PYMQ_LATENCY_BUCKETS 13 /* as StoreStatsService: <=0ms <10 <50 <100 <200 <500 <1s <2s <3s <4s <5s <10s >=10s */

struct pymq_store_stats {
    int64_t put_count, put_bytes, put_failed;
    int64_t put_latency[PYMQ_LATENCY_BUCKETS];
    int64_t put_latency_us_max;
    int64_t get_count, get_bytes, get_missed;
    int64_t lock_hold_us_max, lock_contended;
    int64_t flush_rounds, flush_us_total, flush_us_max;
    int64_t commit_rounds;
    int64_t dispatch_records, dispatch_batches;
    int64_t log_files_created, mapped_log_bytes, mapped_queue_windows, window_evictions;
    int64_t pool_free, pool_size;
    int64_t recovered_from, recovered_to, recovered_records, recover_us; /* of the open */
    bool recovered_clean;       /* the last stop was clean */
    bool memory_lock_refused;   /* mlock said no; runs on without */
    bool page_cache_busy;       /* the append lock has been held longer than page_cache_busy_ms just now */
    int failed_status;          /* PYMQ_OK, or why acknowledging has ended */
};

void pymq_store_stats(const struct pymq_store *store, struct pymq_store_stats *stats);

/* Whether the append lock has been held for longer than page_cache_busy_ms (osPageCacheBusyTimeOutMills) just now. */
bool pymq_store_is_busy(const struct pymq_store *store);
int64_t pymq_store_lock_held_ms(const struct pymq_store *store, int32_t *busy_ms); /* for how long; and that limit */

/* Why the store acknowledges nothing any more: the first failure, or an empty text. */
void pymq_store_failure(const struct pymq_store *store, struct pymq_error *error);

/* Append 1-by-1 statistics of a put as its caller saw it. */
void pymq_store_count_put(struct pymq_store *store, int64_t messages, int64_t bytes, int64_t latency_us);

#endif
