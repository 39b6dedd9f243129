/* The sends of one turn, encoded and waiting to be appended together.
 *
 * All connections of a reactor share one arena: records are encoded into it as their requests come, and when the turn
 * has no more of them (or the arena is full) they go into the log with one call, under one acquisition of its lock. A
 * batch is a call of its own, in the order of arrival, because it must stay in one piece. Then each is answered, or
 * parked. */
#ifndef PYMQ_SERVE_COLLECT_H
#define PYMQ_SERVE_COLLECT_H

#include "answer.h"
#include "send.h"

#define PYMQ_COLLECT_SENDS_MAX 1024              /* of one append */
#define PYMQ_COLLECT_ITEMS_MAX 2048              /* messages of one append, and of one batch served natively */
#define PYMQ_COLLECT_ARENA_SIZE (1024 * 1024)    /* kept; a larger message gets a larger one for a moment */
#define PYMQ_COLLECT_RECORD_ROOM 160             /* what a record adds to its body, topic and properties, at most */

struct pymq_collected {
    struct pymq_asker asker;
    struct pymq_topic *topic;
    int32_t queue_id;      /* in which it is stored */
    int32_t sent_queue_id; /* which the answer says: another one while the message waits for its time or its end */
    uint32_t first_item, item_count;
    struct pymq_slice key; /* in the arena */
    int64_t half_offset;   /* of a commit: in the half queue, claimed */
    bool is_oneway, wait;
    bool has_new_queue; /* its first one was gone when it was to be appended */
};

struct pymq_collect {
    uint8_t *arena;
    size_t arena_size, arena_used;
    uint32_t send_count, item_count;
    struct pymq_collected sends[PYMQ_COLLECT_SENDS_MAX];
    struct pymq_append_item items[PYMQ_COLLECT_ITEMS_MAX];
    uint8_t properties[PYMQ_PROPERTIES_SIZE_MAX + 1]; /* of the message at hand, rewritten */
};

/* Made by zeroing. */
void pymq_collect_destroy(struct pymq_collect *collect);

/* Room for one send more with `item_count` messages and `size` bytes of records; appends and answers what was collected
 * where that is in the way. False without memory. */
bool pymq_collect_make_room(struct pymq_serve_reactor *state, uint32_t item_count, size_t size);

/* Encode a record at offset `arena_at` of the arena, where there is room for it, as item `item_index`. PYMQ_OK and its
 * size, or why it cannot be stored; nothing is counted as collected yet. */
int pymq_collect_encode(struct pymq_collect *collect, const struct pymq_record *record, struct pymq_queue *queue,
                        uint32_t item_index, size_t arena_at, size_t *size);

/* Append and answer everything collected. */
void pymq_collect_settle(struct pymq_serve_reactor *state);

#endif
