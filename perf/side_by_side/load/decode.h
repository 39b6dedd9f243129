/* Answers of a broker, in either header codec: just what a load generator has to know of them.
 *
 * The full reader walks the header whatever the order of its keys. Answers to one kind of request look alike, so a
 * `struct shapes` remembers where the full reader found code, flag and opaque in an answer of a given header length;
 * the next one of that length is checked at those places (the names of the keys included) and read without a walk. */
#ifndef PYMQ_LOAD_DECODE_H
#define PYMQ_LOAD_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_SIZE_MAX (16U << 20)
#define ANSWER_UNKNOWN INT64_MIN

enum response_code {
    RESPONSE_SUCCESS = 0,
    RESPONSE_SYSTEM_BUSY = 2,
    RESPONSE_FLUSH_DISK_TIMEOUT = 10,
    RESPONSE_PULL_NOT_FOUND = 19,
    RESPONSE_PULL_RETRY_IMMEDIATELY = 20,
    RESPONSE_PULL_OFFSET_MOVED = 21,
};

struct text {
    const char *bytes;
    size_t size;
};

/* Fields that were not in the header are ANSWER_UNKNOWN, or empty texts. Texts point into the frame. */
struct answer {
    int32_t code;
    int32_t flag;
    int32_t opaque;
    int64_t queue_id;
    int64_t queue_offset;
    int64_t next_begin_offset;
    int64_t min_offset;
    int64_t max_offset;
    int64_t offset;
    struct text msg_id;
    struct text transaction_id;
    struct text remark;
    const uint8_t *body;
    size_t body_size;
};

#define SHAPE_COUNT 16

struct shape {
    uint32_t header_word; /* type and length; 0 is unused */
    uint16_t code_position;
    uint16_t flag_position;
    uint16_t opaque_position;
};

struct shapes {
    struct shape of[SHAPE_COUNT];
};

/* Whether a whole frame lies in `source`: its size with the length word, 0 when more must arrive, -1 when the length
 * cannot be. */
int64_t frame_size(const uint8_t *source, size_t size);

/* Read a whole frame. False when it is not an answer or a request in one of the codecs. */
bool decode_answer(const uint8_t *frame, size_t size, struct answer *answer);

/* The same, but only code, flag, opaque and the body are promised; `shapes` must be zeroed before its first use. */
bool decode_answer_shaped(const uint8_t *frame, size_t size, struct shapes *shapes, struct answer *answer);

/* sizeof(struct answer), for whoever mirrors it in another language. */
size_t answer_size(void);

/* A request of the broker to us (flag bit 0 clear): a notification we need not answer. */
static inline bool is_request(const struct answer *answer) { return (answer->flag & 1) == 0; }

#endif
