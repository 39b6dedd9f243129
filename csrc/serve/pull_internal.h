/* The pull half of native serving, for its own files only.
 *
 *   get_message.c   reading a queue as DefaultMessageStore.getMessage does
 *   pull_fields.c   the fields of a pull request, and a subscription it brings along
 *   pull_request.c  a pull from its checks to its answer
 *   hold_table.c    held pulls by queue, by connection and by time: the structure
 *   holds.c         what ends a hold, and what happens then
 *   cold_reads.c    threads that read from disk so that reactors need not
 *   pull_service.c  the entries of serve_internal.h, and what the control loop calls
 *
 * A held or posted pull is its frame. When it goes on, the frame is decoded again and every check made again, as Apache
 * does: so nothing that is kept over turns can be outdated, except what holds.c is told of (queues never are, they
 * outlive all). Of the frame the header is kept: a pull says nothing in a body, and one of megabytes would stay for a
 * day. */
#ifndef PYMQ_SERVE_PULL_INTERNAL_H
#define PYMQ_SERVE_PULL_INTERNAL_H

#include "serve_internal.h"

#define PYMQ_PULL_MESSAGE 11
#define PYMQ_LITE_PULL_MESSAGE 361

enum pymq_response_code { /* of PullMessageProcessor */
    PYMQ_RESPONSE_SUCCESS = 0,
    PYMQ_RESPONSE_SYSTEM_ERROR = 1,
    PYMQ_RESPONSE_PULL_NOT_FOUND = 19,
    PYMQ_RESPONSE_PULL_RETRY_IMMEDIATELY = 20,
    PYMQ_RESPONSE_PULL_OFFSET_MOVED = 21,
    PYMQ_RESPONSE_POLLING_FULL = 209,
};

enum pymq_pull_sys_flag {
    PYMQ_PULL_COMMIT_OFFSET = 1 << 0,
    PYMQ_PULL_SUSPEND = 1 << 1,
    PYMQ_PULL_SUBSCRIPTION = 1 << 2, /* the request brings its own expression */
};

/* Which messages of a queue are wanted: all, those with one of the tags, or those that satisfy a program. */
struct pymq_filter {
    bool all;
    uint32_t count;
    const int32_t *hashes;
    struct pymq_shared_program *program; /* then there are no hashes */
};

/* What a unit alone says; with a program the record has to be looked at, too. */
bool pymq_filter_matches(const struct pymq_filter *filter, int64_t tags_code);

/* ---- get_message.c -------------------------------------------------------------------------------------------- */

/* Settings of a get, taken together once. */
struct pymq_get_limits {
    int32_t bytes_memory, count_memory, bytes_disk, count_disk;
    int64_t memory_bytes_max, hot_bytes;
};

struct pymq_get_limits pymq_get_limits(const struct pymq_serve_config *config);

/* pymq_serve_get with limits and queue at hand; `queue` NULL: nothing was ever stored. */
void pymq_get_read(struct pymq_store *store, const struct pymq_get_limits *limits, struct pymq_queue *queue,
                   struct pymq_get *get, struct pymq_span *spans, size_t span_max);

/* The first unit in [from, to) that the filter wants, or `to`. A record older than the newest `hot_bytes` of the log is
 * not looked at, it might be on disk only: it counts as wanted, for the pull to find out. */
int64_t pymq_get_first_match(struct pymq_store *store, struct pymq_queue *queue, int64_t from, int64_t to,
                             const struct pymq_filter *filter, int64_t hot_bytes);

/* ---- pull_fields.c -------------------------------------------------------------------------------------------- */

struct pymq_pull_fields {
    struct pymq_slice group, topic, subscription, expression_type;
    int32_t queue_id, count_max, sys_flag;
    int64_t offset, commit_offset, suspend_ms, sub_version;
    bool unusual; /* has a field that only the control loop understands */
};

/* PYMQ_OK, or PYMQ_EINVAL when one is missing or no number. */
int pymq_pull_fields(const struct pymq_command *command, struct pymq_pull_fields *fields);

/* The hashes of "a || b"; `hashes` holds PYMQ_TAGS_MAX. PYMQ_OK, PYMQ_EUNSUPPORTED when only the control loop can
 * tell. */
int pymq_pull_expression(const struct pymq_pull_fields *fields, struct pymq_filter *filter, int32_t *hashes);

/* What is kept of a frame: all but the body. */
size_t pymq_pull_kept_size(const uint8_t *frame, size_t frame_size);
/* Copy that much, as a frame of its own. */
void pymq_pull_keep(uint8_t *target, size_t kept_size, const uint8_t *frame, size_t frame_size);

/* ---- pull_request.c ------------------------------------------------------------------------------------------- */

/* How a pull is run: anew, from a hold, or back from the disk. */
struct pymq_pull_run {
    bool may_suspend; /* and may commit: what a pull does in its first pass only */
    bool waited;      /* for the heartbeat that announces its subscription */
    int32_t cold_rounds;
    int64_t scanned;  /* a hold has seen that nothing below is wanted; -1 */
};

/* PYMQ_SERVED or PYMQ_HAND_OVER + reason. */
int pymq_pull_run(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                  const struct pymq_command *command, const uint8_t *frame, size_t frame_size,
                  const struct pymq_pull_run *run);

/* The same from a kept frame: find the connection, decode, run, and hand over what is not served. */
void pymq_pull_rerun(struct pymq_serve_reactor *state, pymq_connection_id connection, const uint8_t *frame,
                     size_t frame_size, const struct pymq_pull_run *run);

/* ---- hold_table.c --------------------------------------------------------------------------------------------- */

#define PYMQ_HOLD_FRAME_INLINE 448 /* a Java client's JSON pull fits; longer frames get memory of their own */
#define PYMQ_HOLD_BUCKETS 4096
#define PYMQ_HOLD_WHEEL 512        /* slots … */
#define PYMQ_HOLD_TICK_MS 64       /* … of this long: 32 s ahead, longer holds pass by more than once */

struct pymq_hold_queue;

struct pymq_hold {
    struct pymq_hold *next_of_queue, **link_of_queue; /* also the free list, and lists of ended holds */
    struct pymq_hold *next_of_connection, **link_of_connection;
    struct pymq_hold *next_of_slot, **link_of_slot;
    struct pymq_hold_queue *held_queue;
    pymq_connection_id connection;
    uint64_t topic_key, group_key; /* pymq_name_hash: enough to end holds by name, a collision ends one too many */
    const struct pymq_subscription *subscription; /* whose filter it is; NULL: `filter` */
    struct pymq_filter filter;     /* hashes owned, program used */
    int64_t offset;                /* as the request has it */
    int64_t scanned;               /* nothing in [offset, scanned) is wanted */
    int64_t due_ms;
    bool native;                   /* run again natively; otherwise handed over */
    bool waits;                    /* for its group's subscription, not for a message; then it runs as if just come */
    uint32_t frame_size;
    uint8_t *frame;                /* inline_frame, or memory of its own */
    uint8_t inline_frame[PYMQ_HOLD_FRAME_INLINE];
};

/* The holds of one queue. */
struct pymq_hold_queue {
    struct pymq_hold_queue *next; /* in its bucket; the free list */
    struct pymq_queue *queue;
    struct pymq_hold *holds;
};

struct pymq_hold_table {
    size_t count;
    int64_t tick; /* the next one to be looked at */
    struct pymq_hold *free_holds;
    struct pymq_hold_queue *free_queues;
    struct pymq_hold_chunk *chunks;
    struct pymq_hold_queue *queues[PYMQ_HOLD_BUCKETS];
    struct pymq_hold *connections[PYMQ_HOLD_BUCKETS];
    struct pymq_hold *wheel[PYMQ_HOLD_WHEEL];
    uint64_t wheel_used[PYMQ_HOLD_WHEEL / 64];
};

void pymq_hold_table_init(struct pymq_hold_table *table, int64_t now_ms);
void pymq_hold_table_destroy(struct pymq_hold_table *table);

/* A slot with a copy of what is kept of the frame and of the hashes, not yet in the table; NULL when out of memory. */
struct pymq_hold *pymq_hold_new(struct pymq_hold_table *table, const uint8_t *frame, size_t frame_size,
                                const struct pymq_filter *filter);
/* connection and due_ms are set. PYMQ_OK, or PYMQ_ENOMEM (the hold is still the caller's). */
int pymq_hold_insert(struct pymq_hold_table *table, struct pymq_hold *hold, struct pymq_queue *queue);
void pymq_hold_remove(struct pymq_hold_table *table, struct pymq_hold *hold);
/* Back to the pool; not in the table any more. */
void pymq_hold_free(struct pymq_hold_table *table, struct pymq_hold *hold);

struct pymq_hold_queue *pymq_hold_queue_find(struct pymq_hold_table *table, struct pymq_queue *queue);
/* Remove all that are due, as a list linked by next_of_queue. */
struct pymq_hold *pymq_hold_take_due(struct pymq_hold_table *table, int64_t now_ms);
/* Remove all that `wanted` names, as such a list. */
struct pymq_hold *pymq_hold_take(struct pymq_hold_table *table, bool (*wanted)(const struct pymq_hold *, const void *),
                                 const void *context);
/* Let those with the filter of `subscription`, which is about to go, go on with a copy of it. Returns those for which
 * there is no memory, removed, as such a list. */
struct pymq_hold *pymq_hold_detach(struct pymq_hold_table *table, const struct pymq_subscription *subscription);
struct pymq_hold *pymq_hold_take_connection(struct pymq_hold_table *table, pymq_connection_id connection);
/* When the first is due at the earliest, INT64_MAX when there is none. */
int64_t pymq_hold_next_due(const struct pymq_hold_table *table);

/* ---- holds.c -------------------------------------------------------------------------------------------------- */

enum pymq_hold_end { PYMQ_HOLD_ARRIVAL, PYMQ_HOLD_TIME, PYMQ_HOLD_OTHER };

/* Count a pull as held whose kept frame has so many bytes; false when it is one too many, and not counted. */
bool pymq_holds_count(struct pymq_serve *serve, size_t frame_size);
void pymq_holds_uncount(struct pymq_serve *serve, size_t frame_size);
/* Hold the pull, unless a message has come meanwhile: then it is run again at once, without suspending. PYMQ_OK,
 * PYMQ_ETOOBIG when too many or too large ones are held, PYMQ_ECLOSED when the broker stops, PYMQ_ENOMEM. */
int pymq_holds_add(struct pymq_serve_reactor *state, struct pymq_hold *hold, struct pymq_queue *queue);
void pymq_holds_arrived(struct pymq_serve_reactor *state);
void pymq_holds_check_all(struct pymq_serve_reactor *state);
/* Answer or hand over every hold of a list. */
void pymq_holds_end(struct pymq_serve_reactor *state, struct pymq_hold *list, enum pymq_hold_end why);

/* ---- cold_reads.c --------------------------------------------------------------------------------------------- */

#define PYMQ_COLD_JOBS_MAX 1024             /* posted and not yet back; beyond, pulls are handed over */
#define PYMQ_COLD_ROUNDS_MAX 3              /* then the reactor reads what it gets: memory is short anyway */
#define PYMQ_COLD_AHEAD (4 * 1024 * 1024)   /* asked for behind a cold pull: its reader will be back */
#define PYMQ_COLD_UNITS 16384               /* of the queue, read with it */

struct pymq_cold_job {
    struct pymq_cold_job *next;
    struct pymq_pull_reactor *home;
    pymq_connection_id connection;
    struct pymq_pull_run run;
    struct pymq_queue *queue;
    struct pymq_get_limits limits;
    struct pymq_get get;
    int32_t hashes[PYMQ_TAGS_MAX];
    uint32_t frame_size;
    uint8_t frame[];
};

struct pymq_cold_reads;
int pymq_cold_open(struct pymq_store *store, int32_t threads, struct pymq_cold_reads **cold);
void pymq_cold_close(struct pymq_cold_reads *cold);
void pymq_cold_free(struct pymq_cold_job *job);
/* PYMQ_OK, PYMQ_ETOOBIG or PYMQ_ENOMEM: then the pull is the caller's still. */
int pymq_cold_post(struct pymq_serve_reactor *state, pymq_connection_id connection, const uint8_t *frame,
                   size_t frame_size, const struct pymq_pull_run *run, struct pymq_queue *queue,
                   const struct pymq_get *get);

/* ---- pull_service.c ------------------------------------------------------------------------------------------- */

struct pymq_pull_reactor {
    struct pymq_serve_reactor *state;
    int wake_fd; /* a duplicate of the reactor's eventfd, so that it is never written to after the transport is gone */
    int watcher; /* of the store */
    int64_t check_ms; /* when all holds are looked at again */
    struct pymq_hold_table table;
    struct pymq_hold *ended; /* under exclusion, by the control loop: to be answered in the next turn */

    pthread_mutex_t inbox_lock; /* a leaf */
    struct pymq_hold_request *hold_requests; /* the control loop's, newest first */
    struct pymq_cold_job *cold_done;
};

/* A pull the control loop wants held, on its way to its reactor. */
struct pymq_hold_request {
    struct pymq_hold_request *next;
    pymq_connection_id connection;
    struct pymq_queue *queue;
    uint64_t topic_key, group_key;
    int64_t offset;
    int32_t timeout_ms;
    struct pymq_filter filter; /* hashes: `hashes`; program used */
    int32_t hashes[PYMQ_TAGS_MAX];
    uint32_t frame_size;
    uint8_t frame[];
};

struct pymq_pull_serve {
    struct pymq_cold_reads *cold;
    _Atomic int64_t holds, holds_bytes; /* of all reactors, and on their way */
    _Atomic bool stopping; /* nothing is held any more */
    _Atomic int64_t pulled_messages, pulled_bytes; /* by the control loop */
};

/* Write the reactor's eventfd. */
void pymq_pull_wake(struct pymq_pull_reactor *pull);

#endif
