/* A send as it is understood: its header read, its properties rewritten. */
#ifndef PYMQ_SERVE_SEND_H
#define PYMQ_SERVE_SEND_H

#include "serve_internal.h"

/* Request codes of sends. Which of them it was says only how the header is spelled: whether the body is a batch is a
 * field. */
enum pymq_send_code {
    PYMQ_CODE_SEND_MESSAGE = 10,        /* long names */
    PYMQ_CODE_SEND_MESSAGE_V2 = 310,    /* one letter each */
    PYMQ_CODE_SEND_BATCH_MESSAGE = 320, /* as V2 */
};

/* SendMessageRequestHeader, without what only the creation of a topic needs. */
struct pymq_send {
    struct pymq_slice topic, properties, body;
    int32_t queue_id, sys_flag, flag, reconsume_times;
    int64_t born_timestamp_ms;
    bool is_batch;
};

/* PYMQ_OK, or PYMQ_EINVAL when a field is missing or not a number: then the answer is the control loop's to word. The
 * topic is filled in whenever there is one. */
int pymq_send_parse(const struct pymq_command *command, struct pymq_send *send);

/* Flags a client's message may carry here: compression and its type. Others mean transactions, inner batches …; a half
 * message also says that it is one. */
#define PYMQ_SEND_SYS_FLAGS (PYMQ_SYS_COMPRESSED | PYMQ_SYS_MULTI_TAGS | 7 << 8)

#define PYMQ_SCHEDULE_TOPIC "SCHEDULE_TOPIC_XXXX"     /* where delayed messages wait, a queue for each level */
#define PYMQ_HALF_TOPIC "RMQ_SYS_TRANS_HALF_TOPIC"    /* where half messages wait, in queue 0 */
#define PYMQ_DELAY_LEVEL_DIGITS 2                     /* of a level that is taken here; PYMQ_DELAY_LEVELS_MAX has two */
/* Of a half message: what is added to it at its checks must fit besides. */
#define PYMQ_HALF_PROPERTIES_MAX (PYMQ_PROPERTIES_SIZE_MAX - 512)

#define PYMQ_BROKER_PROPERTIES_MAX (2 * PYMQ_BROKER_NAME_MAX + 64) /* MSG_REGION, TRACE_ON, CLUSTER with their values */

/* What the broker adds to every message, made once per setting. */
struct pymq_broker_properties {
    uint32_t size;
    uint8_t text[PYMQ_BROKER_PROPERTIES_MAX];
};

void pymq_broker_properties_make(struct pymq_broker_properties *added, const struct pymq_serve_config *config);

struct pymq_sent_properties {
    uint32_t size;                /* of all, in the target */
    uint32_t key_at, key_size;    /* UNIQ_KEY's value, in the target; size 0 when there is none */
    bool wait;                    /* WAIT: whether the producer waits for flush and replica */
    int32_t level;                /* DELAY: it waits in queue level - 1 of PYMQ_SCHEDULE_TOPIC; 0: it does not */
    bool is_half;                 /* TRAN_MSG: it waits in PYMQ_HALF_TOPIC for the end of its transaction */
};

/* Rewrite a message's properties as a broker does: what is the broker's to say is taken out and put behind the rest, a
 * UNIQ_KEY is made when missing, the last separator is always there; one that is to wait is told its topic and queue.
 * PYMQ_OK; PYMQ_EUNSUPPORTED when one of them has a meaning that only the control loop knows, or a name stands twice;
 * PYMQ_EPROPERTIES when the result is too long. */
int pymq_send_properties(const struct pymq_serve *serve, const struct pymq_send *send, int64_t wall_ms, uint8_t *target,
                         size_t capacity, struct pymq_sent_properties *result);

/* The same look at a batch's own header, whose properties are not stored. */
int pymq_batch_properties(struct pymq_slice source, struct pymq_slice *key, bool *wait);

/* Whether a message of a batch asks for nothing that only a message of its own can have: a delay, a time, an end of a
 * transaction to wait for. */
bool pymq_batch_item_is_plain(struct pymq_slice properties);

/* Hand a send over: what came before it on its connection is in the log, what comes behind it to its topic waits.
 * Returns PYMQ_HAND_OVER + reason. */
int pymq_send_hand_over(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                        const struct pymq_send *send, int reason);

/* For spreading, not for secrets. */
uint32_t pymq_serve_random(void);

/* Codes 10, 310, 320. PYMQ_SERVED (collected, or answered) or PYMQ_HAND_OVER + reason. */
int pymq_send_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                      const struct pymq_command *command);

#endif
