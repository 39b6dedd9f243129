/* Native serving: send, pull and consumer offsets, from tables the control loop publishes.
 *
 * One rule decides who serves a request: natively only when everything it needs is in these tables and nothing about it
 * is special. Anything else is handed to the control loop with a reason, which calls the functions below itself:
 * nothing is implemented twice in meaning. With `native` off every request is handed over (dataPlane=python), while
 * tables, offsets, holds and parked answers stay the same objects.
 *
 * Tables are read by reactors inside their turns without any lock, and changed by the control loop between
 * pymq_transport_exclude and _include (the pymq_serve_publish_* functions do that themselves). When such a function has
 * returned, no reactor acts on the older row any more.
 *
 * Consumer offsets live only here; the control loop reads snapshots to persist them. Their rows have atomics of their
 * own, so a commit needs no exclusion; making a new row does (then the request is handed over once, GROUP_UNKNOWN).
 */
#ifndef PYMQ_SERVE_H
#define PYMQ_SERVE_H

#include "pymq/store.h"
#include "pymq/transport.h"

struct pymq_serve;

/* Why a request went to the control loop; the number travels in pymq_handed.reason, pymq_reason_name names it. */
enum pymq_reason {
    PYMQ_REASON_CODE = 0,         /* not one of the codes served natively */
    PYMQ_REASON_PLANE,            /* dataPlane=python */
    PYMQ_REASON_HEADER,           /* the C parser did not accept the header outright */
    PYMQ_REASON_FIELD,            /* a field is missing, malformed or out of range: an error to be worded */
    PYMQ_REASON_TOPIC_UNKNOWN,
    PYMQ_REASON_TOPIC_SPECIAL,    /* system, retry, static, ordered while the broker is read-only … */
    PYMQ_REASON_GROUP_UNKNOWN,    /* no such group, or no offset row for it on this topic yet */
    PYMQ_REASON_GROUP_SPECIAL,    /* disabled, broadcast refused, forbidden … */
    PYMQ_REASON_SUBSCRIPTION,     /* none, or older than the request's */
    PYMQ_REASON_FILTER,           /* SQL92 or another expression type; more tags than a row holds */
    PYMQ_REASON_PROPERTY,         /* transaction, delay, timer, multi-dispatch, priority …: a property with a meaning */
    PYMQ_REASON_PERMISSION,
    PYMQ_REASON_ROLE,             /* slave, or refusing writes */
    PYMQ_REASON_STORE,            /* the store refused: the answer is an error to be worded */
    PYMQ_REASON_HOLD_ENDED,       /* a held pull of the control loop's is to be run again, without suspending */
    PYMQ_REASON_ORDER,            /* an earlier send of this connection to the topic is with the control loop still */
    PYMQ_REASON_MESSAGE,          /* the message it speaks of is not there, not in memory, or an unusual one */
    PYMQ_REASON_TRANSACTION,      /* its transaction has ended, is being asked about, or began before this start */
    PYMQ_REASONS,
};
const char *pymq_reason_name(int reason); /* "topic-unknown"; never NULL */

#define PYMQ_BROKER_NAME_MAX 127
#define PYMQ_TAGS_MAX 64 /* tag hashes of one subscription served natively */

struct pymq_serve_config {
    bool native;
    bool long_polling;                /* longPollingEnable */
    int32_t short_polling_ms;         /* shortPollingTimeMills, 1000 */
    int32_t hold_check_ms;            /* re-check of all holds, 5000 */
    int32_t holds_max;                /* held pulls, beyond: POLLING_FULL answer to the newest, 100000 */
    int64_t holds_bytes_max;          /* of their headers together, beyond: the same, 64 MiB */
    int32_t parked_max;               /* sends waiting for a flush or replica, beyond: SYSTEM_BUSY, 100000 */
    int32_t send_timeout_ms;          /* syncFlushTimeout: then FLUSH_DISK_TIMEOUT (10), or FLUSH_SLAVE_TIMEOUT (12) */
    int32_t transfer_bytes_memory, transfer_count_memory; /* maxTransferBytes/CountOnMessageInMemory: 262144, 32 */
    int32_t transfer_bytes_disk, transfer_count_disk;     /* …OnMessageInDisk: 65536, 8 */
    int64_t memory_bytes_max;         /* physical memory * accessMessageInMemoryMaxRatio: older is "on disk" */
    int64_t hot_bytes;                /* the newest bytes of the log taken to be resident without asking, 4 MiB */
    int32_t cold_read_threads;        /* 2 */
    int32_t message_size_max;         /* maxMessageSize */
    int32_t delay_level_max;          /* levels of messageDelayLevel; 0: delayed messages are the control loop's */
    bool transactions;                /* half messages are stored here; otherwise they are the control loop's */
    bool trace_on;                    /* traceOn: TRACE_ON */
    bool slave_read_enable;           /* slaveReadEnable */
    bool begin_as_asked;              /* newGroupOffsetPolicy=asked: a group without an offset is the control loop's */
    int32_t broker_permission;        /* brokerPermission: 2 write, 4 read */
    struct pymq_host store_host;      /* brokerIP1 and the listen port: in records and message ids */
    char cluster[PYMQ_BROKER_NAME_MAX + 1]; /* CLUSTER */
    char region[PYMQ_BROKER_NAME_MAX + 1];  /* MSG_REGION */
    char broker_ip[64];
};
void pymq_serve_config_default(struct pymq_serve_config *config);

/* The service of a broker's transport. Open order: store, serve, transport(service), serve_attach, listen. Close order:
 * pymq_serve_end_holds, pymq_transport_drain … close, pymq_serve_close, store. */
int pymq_serve_open(const struct pymq_serve_config *config, struct pymq_store *store, struct pymq_serve **serve,
                    struct pymq_error *error);
const struct pymq_service *pymq_serve_service(struct pymq_serve *serve);
void pymq_serve_attach(struct pymq_serve *serve, struct pymq_transport *transport); /* NULL: it is gone */
void pymq_serve_close(struct pymq_serve *serve);
/* Settings that may change while running (native, polling, permission, limits): excluded, then replaced. */
void pymq_serve_configure(struct pymq_serve *serve, const struct pymq_serve_config *config);

/* ---- tables: published by the control loop ------------------------------------------------------------------- */

enum pymq_topic_flag {
    PYMQ_TOPIC_SEND_SPECIAL = 1 << 0, /* every send goes to the control loop */
    PYMQ_TOPIC_PULL_SPECIAL = 1 << 1,
};

struct pymq_topic_row {
    const uint8_t *name; /* copied */
    uint32_t name_size;
    int32_t permission;  /* 2 write, 4 read, 1 inherit */
    int32_t read_queues, write_queues;
    int32_t sys_flag;    /* topicSysFlag, answered to pulls */
    uint32_t flags;      /* enum pymq_topic_flag */
};

/* Insert or replace; the row keeps its incarnation unless the topic was removed in between. */
int pymq_serve_publish_topic(struct pymq_serve *serve, const struct pymq_topic_row *row);
/* Remove, end its holds (answered TOPIC_NOT_EXIST by the control loop: handed over with HOLD_ENDED), remove its offsets
 * when asked. */
void pymq_serve_remove_topic(struct pymq_serve *serve, const uint8_t *name, uint32_t size, bool offsets_too);

enum pymq_group_flag {
    PYMQ_GROUP_DISABLED = 1 << 0, /* consumeEnable=false */
    PYMQ_GROUP_SPECIAL = 1 << 1,  /* every pull goes to the control loop */
};

struct pymq_group_row {
    const uint8_t *name;
    uint32_t name_size;
    uint32_t flags;
    int32_t sys_flag;               /* groupSysFlag */
    int64_t broker_id;              /* brokerId */
    int64_t broker_id_when_slow;    /* whichBrokerWhenConsumeSlowly */
    int32_t retry_queues;           /* retryQueueNums; 0: what is sent back is the control loop's */
    int32_t retry_max_times;        /* retryMaxTimes */
};
int pymq_serve_publish_group(struct pymq_serve *serve, const struct pymq_group_row *row);
void pymq_serve_remove_group(struct pymq_serve *serve, const uint8_t *name, uint32_t size, bool offsets_too);

/* What a group's heartbeats said about one topic. */
struct pymq_subscription_row {
    const uint8_t *group, *topic;
    uint32_t group_size, topic_size;
    int64_t version;                /* subVersion */
    bool all;                       /* "*" */
    bool special;                   /* not tags, class filter, more than PYMQ_TAGS_MAX …: served by the control loop */
    uint32_t tag_count;
    int32_t tag_hashes[PYMQ_TAGS_MAX]; /* Java's hash of each tag */
    const uint8_t *program;         /* NULL, or a filter program (pymq/filter_program.h) instead of tags; copied */
    uint32_t program_size;
    const uint8_t *expression;      /* the SQL92 text it was made of: a pull that brings the same is served by it */
    uint32_t expression_size;
};
/* PYMQ_ECORRUPT when the program is none: the row stays as it was. */
int pymq_serve_publish_subscription(struct pymq_serve *serve, const struct pymq_subscription_row *row);
void pymq_serve_remove_subscription(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size,
                                    const uint8_t *topic, uint32_t topic_size);

/* Until released, sends of this connection to `topic` are handed over too (ORDER), so that a pipelined producer is not
 * reordered by the switch to the native path: entered by the reactor itself when it hands over a send, left by the
 * control loop through this call once that send is in the log or refused. An empty topic: the send's header was one
 * that only the Python codec reads (HEADER), and every topic of the connection waits for it. */
void pymq_serve_send_settled(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *topic,
                             uint32_t topic_size);

/* ---- consumer offsets ------------------------------------------------------------------------------------------ */

#define PYMQ_OFFSET_NONE INT64_MIN

/* PYMQ_OK, or PYMQ_ENOTFOUND. */
int pymq_serve_offset_query(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                            uint32_t topic_size, int32_t queue_id, int64_t *offset);
/* The same in the name of a client, which is about to begin there. */
int pymq_serve_offset_query_by(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                               uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id,
                               int64_t *offset);
/* Any value, also a smaller one (the broker logs it); makes the row. The broker's own word: only while a reset is
 * pending it is accepted and ignored. */
int pymq_serve_offset_commit(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                             uint32_t topic_size, int32_t queue_id, int64_t offset);
/* The same in the name of a client. 1 when it is stored; 0 while a reset is pending, or was lately and this may be from
 * before it; or a negative status. */
int pymq_serve_offset_commit_by(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                                uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id,
                                int64_t offset);
/* Reset to `offset`: older commits in flight do not win. Pending until the group has pulled from it; for
 * PYMQ_RESET_GUARD_MS behind that only what was served from there on is committed, by who goes on from there. */
int pymq_serve_offset_reset(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                            uint32_t topic_size, int32_t queue_id, int64_t offset);
void pymq_serve_offset_remove(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                              uint32_t topic_size); /* empty topic: all of the group; empty group: all of the topic */
struct pymq_offset_entry {
    struct pymq_slice group, topic; /* valid until the next call that changes tables */
    int32_t queue_id;
    int64_t offset;  /* PYMQ_OFFSET_NONE: never committed */
    int64_t pending; /* a reset that has not been followed, or PYMQ_OFFSET_NONE */
    int64_t pulled;  /* where the last pull ended, or PYMQ_OFFSET_NONE */
};
/* All offsets, in no order. Returns how many there are, fills at most `count_max`; call on the control loop. */
size_t pymq_serve_offsets(struct pymq_serve *serve, struct pymq_offset_entry *entries, size_t count_max);

/* ---- what the control loop does itself, with the same objects ------------------------------------------------- */

/* A message as it will be stored: properties already final (with their last separator). */
struct pymq_put {
    struct pymq_slice topic, body, properties;
    int32_t queue_id, flag, sys_flag, reconsume_times;
    int64_t born_timestamp_ms, prepared_transaction_offset;
    struct pymq_host born_host;
    int64_t queue_offset, physical_offset, end_offset, store_timestamp_ms; /* out */
};
/* Append `count` messages together (a batch) or one by one. Never waits for a flush. */
int pymq_serve_put(struct pymq_serve *serve, struct pymq_put *puts, size_t count, bool together);

/* A message to be put again, log to log: the record at `source`, edited. Born host and time, flag and body are kept. */
struct pymq_reput {
    int64_t source;                /* its physical offset */
    struct pymq_slice topic;       /* empty: its own REAL_TOPIC property says where to */
    int32_t queue_id;              /* negative: its own REAL_QID property */
    struct pymq_slice remove;      /* names of properties to drop, each followed by 0x02 */
    struct pymq_slice set;         /* name 0x01 value 0x02 …: in place of those of the same name, behind the others */
    int32_t sys_flag_clear, sys_flag_set;
    int32_t reconsume_times;       /* negative: kept */
    int64_t prepared_transaction_offset;
    int status;                    /* out; the rest only with PYMQ_OK */
    int64_t queue_offset, physical_offset, end_offset, store_timestamp_ms;
};

/* Put `count` records again, in this order, in as few appends as the arena allows. Each gets a status of its own:
 * PYMQ_ENOTFOUND (no record begins there, or not any more), PYMQ_ECORRUPT (one does, damaged: it is not made whole by
 * being copied), PYMQ_EPROPERTIES, PYMQ_ETOPIC (no topic is given, nor has it one of its own), PYMQ_EINVAL (nor a
 * queue; or `set` is not well formed), PYMQ_EREMOVED (its topic is going), PYMQ_ETOOBIG, or what the store says to
 * everything. One that fails keeps no other out, unless `in_order`: then nothing behind it is put. Returns how many
 * precede the first that failed. May wait for the disk, never for a flush. Any thread but a reactor. */
size_t pymq_serve_reput(struct pymq_serve *serve, struct pymq_reput *items, size_t count, bool in_order);

/* What is due in a delay level: a queue whose units hold the time of delivery where others hold the hash of a tag. */
struct pymq_due {
    struct pymq_slice topic;
    int32_t queue_id;
    int64_t offset, now_ms;
    int64_t correct_max_ms;        /* > 0: a time later than this from now is taken for now */
    size_t count_max;
    struct pymq_slice remove;      /* as in pymq_reput */
    /* out */
    int64_t next_offset;           /* the first not delivered; never below what is still in the log */
    size_t delivered;
    int64_t next_due_ms;           /* when that one is due; -1 when there is none */
    int64_t last_end_offset;       /* what to wait for; 0 when nothing was delivered */
    int64_t lateness_ms_max;
    int status;                    /* PYMQ_OK, or why the message at next_offset could not be delivered */
};

/* Put the messages that are due again, each to its REAL_TOPIC and REAL_QID, in order: up to the first that is not due
 * or fails, or count_max. An offset outside the queue is moved to its nearer end, as ScheduleMessageService does. */
void pymq_serve_deliver_due(struct pymq_serve *serve, struct pymq_due *due);

/* ---- transactions that end natively ---------------------------------------------------------------------------- */

/* A half message is named by its offset in the half queue. Whoever ends one, or puts it again, claims it first: the
 * reactor for an END_TRANSACTION it serves, the control loop for everything it does itself. A claim is given once. */

#define PYMQ_TRANSACTION_SPAN_MAX (1 << 28)     /* offsets between the lowest that is remembered and the highest */
#define PYMQ_TRANSACTIONS_ENDED_MAX (1 << 20)   /* ends the control loop has not taken yet; beyond: handed over */

struct pymq_transaction_end {
    int64_t queue_offset;
    int32_t how; /* PYMQ_SYS_TRANSACTION_COMMIT or _ROLLBACK */
};

/* From now on half messages at or behind the log's offset `begin_offset` may be ended natively; those of the half queue
 * below `floor` have ended. */
void pymq_serve_transactions_begin(struct pymq_serve *serve, int64_t floor, int64_t begin_offset);
/* Whether the caller may end it: it has not ended, and nobody else has claimed it. */
bool pymq_serve_transaction_claim(struct pymq_serve *serve, int64_t queue_offset);
/* Nothing came of it: it may be claimed again. */
void pymq_serve_transaction_release(struct pymq_serve *serve, int64_t queue_offset);
/* Take native ends, oldest first; a commit is here once its message is in the log. Returns how many. */
size_t pymq_serve_transactions_ended(struct pymq_serve *serve, struct pymq_transaction_end *ends, size_t count_max);
/* Everything below has ended; it need not be remembered. */
void pymq_serve_transactions_forget(struct pymq_serve *serve, int64_t floor);

/* Answer `connection` with `frame` once everything below `end_offset` is acknowledged (at once if it is); with `late`
 * when send_timeout_ms pass first; with `failed` when the store stops acknowledging. Frames are copied. In order with
 * the reactor's own parked sends. connection 0: nobody to answer, PYMQ_EINVAL. */
int pymq_serve_park(struct pymq_serve *serve, pymq_connection_id connection, int64_t end_offset, const uint8_t *frame,
                    size_t size, const uint8_t *late, size_t late_size, const uint8_t *failed, size_t failed_size);

/* Why a send was not taken, in Apache's words: the answer to a store's status, or PYMQ_ETIMEDOUT for a busy store. */
#define PYMQ_REMARK_MAX 512
struct pymq_refusal {
    int32_t code;
    bool has_fields; /* TRACE_ON and MSG_REGION are said */
    uint32_t remark_size;
    char remark[PYMQ_REMARK_MAX];
};
void pymq_refusal_make(struct pymq_refusal *refusal, const struct pymq_serve *serve, int status);

enum pymq_get_status { /* GetMessageStatus, and the codes it becomes are PullMessageProcessor's */
    PYMQ_GET_FOUND = 0,
    PYMQ_GET_NO_MATCHED_MESSAGE,
    PYMQ_GET_MESSAGE_WAS_REMOVING,
    PYMQ_GET_OFFSET_FOUND_NULL,
    PYMQ_GET_OFFSET_OVERFLOW_BADLY,
    PYMQ_GET_OFFSET_OVERFLOW_ONE,
    PYMQ_GET_OFFSET_TOO_SMALL,
    PYMQ_GET_NO_MATCHED_LOGIC_QUEUE,
    PYMQ_GET_NO_MESSAGE_IN_QUEUE,
    PYMQ_GET_COLD,  /* only with `no_wait`: the records are not in memory */
    PYMQ_GET_ERROR, /* `error_status` says which */
};

/* A filter program for the control loop's own gets and holds: verified, its bytes copied. A hold keeps it as long as it
 * needs it. PYMQ_OK, PYMQ_ECORRUPT, PYMQ_ETOOBIG, PYMQ_ENOMEM. */
struct pymq_shared_program;
int pymq_shared_program_make(const uint8_t *bytes, size_t size, struct pymq_shared_program **program);
void pymq_shared_program_leave(struct pymq_shared_program *program);

#define PYMQ_GET_COUNT_MAX 1024 /* messages of one pull at most, whatever the request says */

struct pymq_get {
    struct pymq_slice topic;
    int32_t queue_id;
    int64_t offset;
    int32_t count_max;              /* maxMsgNums */
    int32_t bytes_max;              /* maxMsgBytes, <= 0 for the default */
    const int32_t *tag_hashes;      /* NULL: all */
    uint32_t tag_count;
    struct pymq_shared_program *program; /* NULL, or what records must satisfy besides: pymq_shared_program_make */
    bool no_wait;                   /* do not touch what is not resident */
    /* out */
    enum pymq_get_status status;
    int error_status;
    int64_t next_offset, min_offset, max_offset;
    bool suggest_slave;
    uint32_t message_count;
    uint32_t span_count;            /* fewer than messages where those lie side by side: pymq_store_records */
    uint64_t bytes;
};
/* Read as DefaultMessageStore.getMessage does. Spans are the caller's to release. */
void pymq_serve_get(struct pymq_serve *serve, struct pymq_get *get, struct pymq_span *spans, size_t span_max);

/* A pull of the control loop's begins at `offset`: PYMQ_OK and the place in `*reset_to` when a reset wants it to begin
 * elsewhere; PYMQ_ENOTFOUND when none is pending, or was until now and is followed by this pull. */
int pymq_serve_pull_begins(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                           uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id,
                           int64_t offset, int64_t *reset_to);
/* The control loop has served a pull from `offset` that goes on at `next_offset`; its own commit is stored before. */
void pymq_serve_pulled(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *group,
                       uint32_t group_size, const uint8_t *topic, uint32_t topic_size, int32_t queue_id, int64_t offset,
                       int64_t next_offset);
/* Such a pull has found messages: count them. */
void pymq_serve_count_pull(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size, const uint8_t *topic,
                           uint32_t topic_size, int64_t messages, int64_t bytes);

/* Hold `frame` (a pull of the control loop's) until a message with one of the tags, or that satisfies the program,
 * arrives at or behind `offset` in the queue, or `timeout_ms` pass, or the topic, group, role or broker ends it; then
 * it is handed over again with HOLD_ENDED. */
int pymq_serve_hold(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *frame, size_t size,
                    const struct pymq_get *get, const uint8_t *group, uint32_t group_size, int32_t timeout_ms);
/* End holds: of a topic (group empty), a group (topic empty) or all (both empty). Native ones are run again without
 * suspending; the control loop's are handed over. Returns how many. */
size_t pymq_serve_end_holds(struct pymq_serve *serve, const uint8_t *topic, uint32_t topic_size, const uint8_t *group,
                            uint32_t group_size);

/* The broker stops: end all holds, and hold nothing any more; what would be held is answered. */
size_t pymq_serve_stop_holds(struct pymq_serve *serve);

/* The 32-character UNIQ_KEY: ten random bytes per process where Apache has address and pid …, then time and one
 * counter over all threads; see unique_key.c for the exact shape. Writes PYMQ_UNIQUE_KEY_SIZE characters. */
#define PYMQ_UNIQUE_KEY_SIZE 32
void pymq_unique_key(uint8_t *target);

struct pymq_serve_stats {
    int64_t holds, holds_bytes, holds_ended_arrival, holds_ended_time, holds_ended_other;
    int64_t parked, parked_late, cold_reads;
    int64_t sent_messages, sent_bytes, pulled_messages, pulled_bytes, commits;
    int64_t sent_back, transactions; /* CONSUMER_SEND_MSG_BACK and END_TRANSACTION served natively */
};
void pymq_serve_stats(const struct pymq_serve *serve, struct pymq_serve_stats *stats);

/* Per topic (group empty) puts and per (group, topic) gets since start, for topic and consume statistics. */
struct pymq_traffic {
    struct pymq_slice topic, group;
    int64_t messages, bytes;
};
size_t pymq_serve_traffic(struct pymq_serve *serve, struct pymq_traffic *rows, size_t count_max);

#endif
