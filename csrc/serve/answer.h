/* Answers to sends and offset requests, written straight into a connection's output. */
#ifndef PYMQ_SERVE_ANSWER_H
#define PYMQ_SERVE_ANSWER_H

#include "serve_internal.h"

enum pymq_response_code {
    PYMQ_RESPONSE_SUCCESS = 0,
    PYMQ_RESPONSE_SYSTEM_ERROR = 1,
    PYMQ_RESPONSE_SYSTEM_BUSY = 2,
    PYMQ_RESPONSE_FLUSH_DISK_TIMEOUT = 10,
    PYMQ_RESPONSE_FLUSH_SLAVE_TIMEOUT = 12,
    PYMQ_RESPONSE_MESSAGE_ILLEGAL = 13,
    PYMQ_RESPONSE_SERVICE_NOT_AVAILABLE = 14,
    PYMQ_RESPONSE_TOPIC_NOT_EXIST = 17,
    PYMQ_RESPONSE_QUERY_NOT_FOUND = 22,
};

#define PYMQ_MESSAGE_ID_SIZE_MAX 56 /* of an IPv6 store host; 32 of an IPv4 one */

/* Address, port and physical offset in hexadecimal. Returns the size. */
size_t pymq_message_id(uint8_t *target, const struct pymq_host *host, int64_t physical_offset);

/* What a request was, for the shape of its answer. */
enum pymq_asked {
    PYMQ_ASKED_SEND = 0,
    PYMQ_ASKED_BACK, /* CONSUMER_SEND_MSG_BACK */
    PYMQ_ASKED_END,  /* END_TRANSACTION */
};

/* What the answer to a request repeats of it. */
struct pymq_asker {
    pymq_connection_id connection;
    int32_t opaque;
    uint8_t serialize_type;
    uint8_t asked; /* enum pymq_asked */
};

/* A send that is in the log. */
struct pymq_sent {
    struct pymq_asker asker;
    int32_t queue_id;
    int64_t queue_offset;                 /* of its first message */
    const struct pymq_append_item *items; /* one, or those of a batch */
    uint32_t item_count;
    struct pymq_slice key; /* UNIQ_KEY, said as transactionId; data NULL: not said */
};

/* How many bytes pymq_answer_sent may write. */
size_t pymq_answer_sent_room(const struct pymq_sent *sent);

/* Write the frame; returns its size. */
size_t pymq_answer_sent(const struct pymq_serve_config *config, const struct pymq_sent *sent, uint8_t *target,
                        size_t capacity);

/* The same frame with another code: the code is the first thing in a header. `target` has room for 2 bytes more than
 * `size`. Returns its size. */
size_t pymq_answer_recode(const uint8_t *frame, size_t size, int32_t code, uint8_t *target);

/* An answer of a code and, where it has one, a remark. */
size_t pymq_answer_plain(const struct pymq_asker *asker, int32_t code, struct pymq_slice remark, uint8_t *target,
                         size_t capacity);

/* What is said when an answer comes too late: nothing, or that the message may come back all the same. */
struct pymq_slice pymq_late_remark(const struct pymq_asker *asker);

/* pymq_refusal_make in the words for what was asked. */
void pymq_refusal_for(struct pymq_refusal *refusal, const struct pymq_serve *serve, const struct pymq_asker *asker,
                      int status);

/* `waiting` sends are parked, and no more may be. */
void pymq_refusal_parked(struct pymq_refusal *refusal, const struct pymq_serve *serve, int64_t waiting);
size_t pymq_answer_refused(const struct pymq_serve_config *config, const struct pymq_asker *asker,
                           const struct pymq_refusal *refusal, uint8_t *target, size_t capacity);
#define PYMQ_REFUSED_ROOM (PYMQ_HEADER_ROOM + 6 * PYMQ_REMARK_MAX) /* a remark's byte becomes at most six in JSON */

#endif
