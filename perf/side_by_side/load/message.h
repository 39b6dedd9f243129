/* The messages a run sends: bodies that say which message they are, properties, and the frames around them.
 *
 * Body (at least 24 bytes):
 *
 *   magic (4, "PyLd")  sender (4)  sequence (8)  intended send time, monotonic ns (8)  filling, always the same
 *
 * so a receiver knows without any table how long the message was on its way, which one it is, and if it is whole.
 *
 * A frame is made once per queue and patched per message: opaque, bornTimestamp, UNIQ_KEY, KEYS, the body's stamp. */
#ifndef PYMQ_LOAD_MESSAGE_H
#define PYMQ_LOAD_MESSAGE_H

#include "encode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BODY_STAMP_SIZE 24
#define BATCH_COUNT_MAX 64
#define UNIQ_KEY_SIZE 32

/* What a Java producer puts into a message, cumulatively. */
enum properties {
    PROPERTIES_NONE,      /* an empty string: the broker itself adds a UNIQ_KEY */
    PROPERTIES_JAVA,      /* UNIQ_KEY and WAIT, as `new Message(topic, body)` leaves the client */
    PROPERTIES_JAVA_TAGS, /* and a tag */
    PROPERTIES_JAVA_KEYS, /* and a tag and a key, different for each message */
};

struct message_plan {
    enum codec codec;
    enum properties properties;
    const char *topic;
    const char *producer_group;
    const char *broker_name;
    const char *added; /* more properties, NAME=VALUE;NAME=VALUE; NULL: none */
    unsigned queue_count;
    unsigned batch_count; /* messages a request; more than 1 is SEND_BATCH_MESSAGE */
    size_t body_size;
    uint32_t sender;
};

/* Where the digits of one message stand in its frame; 0 is nowhere. */
struct message_places {
    size_t body;
    size_t uniq_key;
    size_t keys;
};

struct message_frame {
    uint8_t *bytes;
    size_t size;
    size_t opaque;
    size_t born_timestamp;
    size_t outer_uniq_key; /* the batch's own, besides those of its messages */
    struct message_places messages[BATCH_COUNT_MAX];
};

struct message_source {
    struct message_plan plan;
    struct message_frame *frames; /* one a queue */
    uint64_t next_sequence;
    int64_t now_ms;
    uint8_t now_digits[13]; /* bornTimestamp */
    uint8_t now_hex[8];     /* UNIQ_KEY's time */
    uint16_t uniq_counter;
};

/* False when there is no memory for it. */
bool message_source_open(struct message_source *source, const struct message_plan *plan);
void message_source_close(struct message_source *source);

/* The size of every frame: queue numbers may differ in digits. */
size_t message_frame_size_max(const struct message_source *source);

/* Set the time that goes into the messages composed from now on. */
void message_source_tick(struct message_source *source, int64_t now_ms);

/* Write the next request for `queue` to `target`, which has room for it. Takes `batch_count` sequence numbers. Returns
 * the frame's size. */
size_t message_compose(struct message_source *source, unsigned queue, uint32_t opaque, int64_t intended_ns,
                       uint8_t *target);

struct body_stamp {
    uint32_t sender;
    uint64_t sequence;
    int64_t intended_ns;
};

/* Read the stamp of a body. False when it is not one of ours. */
bool body_read_stamp(const uint8_t *body, size_t size, struct body_stamp *stamp);

/* Whether all bytes behind the stamp are what a sender wrote. */
bool body_filling_is_right(const uint8_t *body, size_t size);

#endif
