/* Messages a test has sent, and the whole of what a store must say about them.
 *
 * Every byte of a message follows from its id, queue and body size, which the body itself carries: a reader can tell a
 * right message from a wrong one without asking anybody. The model remembers where each one went and judges a store:
 * message_model_verify reads everything through the public API and holds it against what was sent and promised.
 */
#ifndef PYMQ_TESTING_MESSAGE_MODEL_H
#define PYMQ_TESTING_MESSAGE_MODEL_H

#include "pymq/base.h"
#include "pymq/store.h"

#include <stdatomic.h>

#define MODEL_TOPICS 3       /* the last one has a name of more than 127 bytes: v2 records */
#define MODEL_QUEUES 2       /* of each topic */
#define MODEL_BODY_SIZE_MIN 16
#define MODEL_GROUPS 4       /* messages share one of these keys, beside one of their own */
#define MODEL_WHY_MAX 512
#define MODEL_RECORD_SLACK 512 /* what a record of the model adds to its body at most */

struct model_message {
    uint32_t body_size;
    uint8_t topic, queue_id;
    uint32_t size;           /* of the record; 0 until appended */
    int64_t queue_offset;    /* -1 until known */
    int64_t physical_offset; /* -1 until known */
    bool seen;               /* by the last verify */
    bool dead;               /* cut off by a recovery that has ended: may never be found again */
    bool lost;               /* died with its process in memory, unpromised: was never on any disk */
};

struct message_model {
    struct model_message *messages; /* by id */
    uint32_t capacity;
    atomic_uint count;
    atomic_uint promised_count;    /* ids below this may not be lost: a single sender's acknowledgements */
    atomic_int_fast64_t removed_below; /* retention was asked to remove the log below this */
    int64_t log_file_size;
    bool index_enable;
    bool record_crc; /* every record carries a CRC over itself, and it is right */
    uint32_t other_reads_step; /* 1: every message is also read by offset and key; n: every n-th, and no shared keys */
    bool places_unknown;       /* another process sends: a message without a place may be found */
};

/* What must hold at the moment a crash is taken. */
struct model_promise {
    uint32_t count;           /* ids below this must be found … */
    const uint8_t *flags;     /* … and the ids flagged here; may be NULL */
    int64_t removed_below;    /* … unless their record lay below this */
    bool forbid_dead;         /* dead messages are an error, not a possibility */
};

/* What a verify found. */
struct model_found {
    uint32_t count;
    int64_t end; /* physical end of the last record, or the log's minimum without one */
};

void message_model_open(struct message_model *model, uint32_t capacity, const struct pymq_store_config *config);
void message_model_close(struct message_model *model);

/* The promise as it stands. Safe from any thread. */
struct model_promise message_model_promise(struct message_model *model);

/* Announce a message; returns its id. Safe from any thread. */
uint32_t message_model_add(struct message_model *model, uint8_t topic, uint8_t queue_id, uint32_t body_size);

/* Encode the record of an announced message; returns its size. */
size_t message_model_encode(const struct message_model *model, uint32_t id, uint8_t *target, size_t capacity);

/* Append announced messages in one call and note where they went. */
int message_model_append(struct message_model *model, struct pymq_store *store, const uint32_t *ids, size_t count,
                         unsigned flags, struct pymq_append_result *result);

/* Announce, append and, in sync flush, wait and promise. The status of whichever failed. */
int message_model_send(struct message_model *model, struct pymq_store *store, uint8_t topic, uint8_t queue_id,
                       uint32_t body_size, bool wait);

/* Everything announced so far is promised from now on. */
void message_model_promise_all(struct message_model *model);

/* Forget ids from `count` on, so that the next state starts from the same messages; the dead live again. */
void message_model_rewind(struct message_model *model, uint32_t count);

/* What the last verify did not see and retention did not remove is dead. */
void message_model_bury_unseen(struct message_model *model, int64_t min);

/* The process was killed and the last verify was the first look afterwards: what it did not see is lost. */
void message_model_lose_unseen(struct message_model *model, int64_t min);

/* Read the whole store and judge it:
 *   queues   offsets run without a hole from minimum to maximum; unit and record agree; physical offsets increase;
 *   log      the records found cover it from its minimum to its end: nothing missing, nothing between;
 *   messages each is one that was sent, byte for byte, where it was sent to; the promised ones are there;
 *   reads    by physical offset, by both keys (newest first, complete) and by tag answer the same.
 * False, with the reason in `why`, when anything does not hold. */
bool message_model_verify(struct message_model *model, struct pymq_store *store, const struct model_promise *promise,
                          struct model_found *found, char why[MODEL_WHY_MAX]);

const char *model_topic(uint8_t topic);

#endif
