/* See pull_internal.h. A hold stands in three lists at once: its queue's, its connection's bucket's, and a slot's of
 * the timer wheel. Slots of memory come in chunks and are used again; when nothing is held any more, all but one chunk
 * go back. */
#include <stdlib.h>

#include "pull_internal.h"

#define CHUNK_HOLDS 64

struct pymq_hold_chunk {
    struct pymq_hold_chunk *next;
    struct pymq_hold holds[CHUNK_HOLDS];
    struct pymq_hold_queue queues[CHUNK_HOLDS]; /* at most one per hold */
};

void pymq_hold_table_init(struct pymq_hold_table *table, int64_t now_ms) {
    memset(table, 0, sizeof *table);
    table->tick = now_ms / PYMQ_HOLD_TICK_MS;
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

static void list_chunk(struct pymq_hold_table *table, struct pymq_hold_chunk *chunk) {
    for (size_t i = 0; i < CHUNK_HOLDS; i++) {
        chunk->holds[i].next_of_queue = table->free_holds;
        table->free_holds = &chunk->holds[i];
        chunk->queues[i].next = table->free_queues;
        table->free_queues = &chunk->queues[i];
    }
}

static bool grow(struct pymq_hold_table *table) {
    struct pymq_hold_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL)
        return false;
    chunk->next = table->chunks;
    table->chunks = chunk;
    list_chunk(table, chunk);
    return true;
}

static void free_chunks(struct pymq_hold_table *table, struct pymq_hold_chunk *but) {
    while (table->chunks != NULL) {
        struct pymq_hold_chunk *chunk = table->chunks;
        table->chunks = chunk->next;
        if (chunk != but)
            free(chunk);
    }
    table->free_holds = NULL;
    table->free_queues = NULL;
    table->chunks = but;
    if (but != NULL) {
        but->next = NULL;
        list_chunk(table, but);
    }
}

static void free_content(struct pymq_hold *hold) {
    if (hold->frame != hold->inline_frame)
        free(hold->frame);
    free((void *)hold->filter.hashes);
    pymq_shared_program_leave(hold->filter.program);
}

static void free_list_content(struct pymq_hold *list) {
    for (; list != NULL; list = list->next_of_slot)
        free_content(list);
}

void pymq_hold_table_destroy(struct pymq_hold_table *table) {
    for (size_t i = 0; i < PYMQ_HOLD_WHEEL; i++)
        free_list_content(table->wheel[i]);
    free_chunks(table, NULL);
}

struct pymq_hold *pymq_hold_new(struct pymq_hold_table *table, const uint8_t *frame, size_t frame_size,
                                const struct pymq_filter *filter) {
    if (table->free_holds == NULL && !grow(table))
        return NULL;
    struct pymq_hold *hold = table->free_holds;
    size_t kept_size = pymq_pull_kept_size(frame, frame_size);
    uint8_t *bytes = kept_size <= PYMQ_HOLD_FRAME_INLINE ? hold->inline_frame : malloc(kept_size);
    bool has_hashes = !filter->all && filter->program == NULL;
    int32_t *hashes = has_hashes ? malloc((filter->count + 1) * sizeof *hashes) : NULL;
    if (bytes == NULL || (hashes == NULL && has_hashes)) {
        if (bytes != hold->inline_frame)
            free(bytes);
        free(hashes);
        return NULL;
    }
    table->free_holds = hold->next_of_queue;
    memset(hold, 0, offsetof(struct pymq_hold, inline_frame));
    pymq_pull_keep(bytes, kept_size, frame, frame_size);
    if (hashes != NULL && filter->count > 0)
        memcpy(hashes, filter->hashes, filter->count * sizeof *hashes);
    hold->frame = bytes;
    hold->frame_size = (uint32_t)kept_size;
    hold->filter = (struct pymq_filter){filter->all, has_hashes ? filter->count : 0, hashes,
                                        pymq_shared_program_use(filter->program)};
    table->count++;
    return hold;
}

void pymq_hold_free(struct pymq_hold_table *table, struct pymq_hold *hold) {
    free_content(hold);
    hold->next_of_queue = table->free_holds;
    table->free_holds = hold;
    if (--table->count == 0 && table->chunks->next != NULL)
        free_chunks(table, table->chunks);
}

/* ---- lists ---------------------------------------------------------------------------------------------------- */

#define LIST_PUSH(head, hold, kind)                                                                                    \
    do {                                                                                                               \
        (hold)->next_of_##kind = *(head);                                                                              \
        if (*(head) != NULL)                                                                                           \
            (*(head))->link_of_##kind = &(hold)->next_of_##kind;                                                       \
        (hold)->link_of_##kind = (head);                                                                               \
        *(head) = (hold);                                                                                              \
    } while (0)

#define LIST_REMOVE(hold, kind)                                                                                        \
    do {                                                                                                               \
        *(hold)->link_of_##kind = (hold)->next_of_##kind;                                                              \
        if ((hold)->next_of_##kind != NULL)                                                                            \
            (hold)->next_of_##kind->link_of_##kind = (hold)->link_of_##kind;                                           \
    } while (0)

static size_t bucket_of(uint64_t value) { return (value * 0x9e3779b97f4a7c15u) >> 52; } /* 12 bits: PYMQ_HOLD_BUCKETS */
_Static_assert(PYMQ_HOLD_BUCKETS == 1 << 12, "bucket_of gives 12 bits");

static struct pymq_hold **connection_bucket(struct pymq_hold_table *table, pymq_connection_id connection) {
    return &table->connections[bucket_of(connection)];
}

static struct pymq_hold_queue **queue_link(struct pymq_hold_table *table, const struct pymq_queue *queue) {
    struct pymq_hold_queue **link = &table->queues[bucket_of((uintptr_t)queue)];
    while (*link != NULL && (*link)->queue != queue)
        link = &(*link)->next;
    return link;
}

struct pymq_hold_queue *pymq_hold_queue_find(struct pymq_hold_table *table, struct pymq_queue *queue) {
    return *queue_link(table, queue);
}

/* The slot that is looked at when `due_ms` has passed, or the furthest one there is. */
static size_t slot_of(const struct pymq_hold_table *table, int64_t due_ms) {
    int64_t tick = due_ms / PYMQ_HOLD_TICK_MS + 1;
    tick = pymq_max64(table->tick, pymq_min64(tick, table->tick + PYMQ_HOLD_WHEEL - 1));
    return (size_t)(tick % PYMQ_HOLD_WHEEL);
}

static void put_in_wheel(struct pymq_hold_table *table, struct pymq_hold *hold) {
    size_t slot = slot_of(table, hold->due_ms);
    LIST_PUSH(&table->wheel[slot], hold, slot);
    table->wheel_used[slot / 64] |= UINT64_C(1) << slot % 64;
}

int pymq_hold_insert(struct pymq_hold_table *table, struct pymq_hold *hold, struct pymq_queue *queue) {
    struct pymq_hold_queue **link = queue_link(table, queue);
    if (*link == NULL) {
        struct pymq_hold_queue *fresh = table->free_queues;
        if (fresh == NULL) /* as many as holds, so there is one */
            return PYMQ_ENOMEM;
        table->free_queues = fresh->next;
        *fresh = (struct pymq_hold_queue){NULL, queue, NULL};
        *link = fresh;
    }
    hold->held_queue = *link;
    LIST_PUSH(&hold->held_queue->holds, hold, queue);
    LIST_PUSH(connection_bucket(table, hold->connection), hold, connection);
    put_in_wheel(table, hold);
    return PYMQ_OK;
}

void pymq_hold_remove(struct pymq_hold_table *table, struct pymq_hold *hold) {
    struct pymq_hold_queue *held_queue = hold->held_queue;
    LIST_REMOVE(hold, queue);
    LIST_REMOVE(hold, connection);
    LIST_REMOVE(hold, slot); /* its bit in wheel_used goes when the slot is looked at */
    if (held_queue->holds != NULL)
        return;
    struct pymq_hold_queue **link = queue_link(table, held_queue->queue);
    *link = held_queue->next;
    held_queue->next = table->free_queues;
    table->free_queues = held_queue;
}

/* ---- taking --------------------------------------------------------------------------------------------------- */

struct pymq_hold *pymq_hold_take_due(struct pymq_hold_table *table, int64_t now_ms) {
    struct pymq_hold *taken = NULL;
    int64_t now = now_ms / PYMQ_HOLD_TICK_MS;
    if (now - table->tick >= PYMQ_HOLD_WHEEL)
        table->tick = now - PYMQ_HOLD_WHEEL + 1; /* slept for a whole round: one look at each slot is enough */
    for (; table->tick <= now; table->tick++) {
        size_t slot = (size_t)(table->tick % PYMQ_HOLD_WHEEL);
        if ((table->wheel_used[slot / 64] & UINT64_C(1) << slot % 64) == 0)
            continue;
        table->wheel_used[slot / 64] &= ~(UINT64_C(1) << slot % 64);
        struct pymq_hold *list = table->wheel[slot], *later = NULL;
        while (list != NULL) {
            struct pymq_hold *hold = list;
            list = hold->next_of_slot;
            if (hold->due_ms <= now_ms) {
                pymq_hold_remove(table, hold);
                hold->next_of_queue = taken;
                taken = hold;
            } else {
                LIST_REMOVE(hold, slot);
                hold->next_of_slot = later;
                later = hold;
            }
        }
        while (later != NULL) { /* put further away than a round, or due within this tick: into a later slot */
            struct pymq_hold *hold = later;
            later = hold->next_of_slot;
            table->tick++;
            put_in_wheel(table, hold);
            table->tick--;
        }
    }
    return taken;
}

struct pymq_hold *pymq_hold_take(struct pymq_hold_table *table, bool (*wanted)(const struct pymq_hold *, const void *),
                                 const void *context) {
    struct pymq_hold *taken = NULL;
    for (size_t slot = 0; slot < PYMQ_HOLD_WHEEL; slot++) {
        for (struct pymq_hold *hold = table->wheel[slot], *next; hold != NULL; hold = next) {
            next = hold->next_of_slot;
            if (!wanted(hold, context))
                continue;
            pymq_hold_remove(table, hold);
            hold->next_of_queue = taken;
            taken = hold;
        }
    }
    return taken;
}

struct pymq_hold *pymq_hold_detach(struct pymq_hold_table *table, const struct pymq_subscription *subscription) {
    struct pymq_hold *failed = NULL;
    for (size_t slot = 0; slot < PYMQ_HOLD_WHEEL; slot++) {
        for (struct pymq_hold *hold = table->wheel[slot], *next; hold != NULL; hold = next) {
            next = hold->next_of_slot;
            if (hold->subscription != subscription)
                continue;
            size_t size = subscription->tag_count * sizeof *hold->filter.hashes;
            bool has_hashes = !subscription->all && subscription->program == NULL;
            int32_t *hashes = has_hashes ? malloc(size + 1) : NULL;
            hold->subscription = NULL;
            if (subscription->program != NULL) {
                hold->filter = (struct pymq_filter){.program = pymq_shared_program_use(subscription->program)};
            } else if (hashes != NULL) {
                memcpy(hashes, subscription->tag_hashes, size);
                hold->filter = (struct pymq_filter){false, subscription->tag_count, hashes, NULL};
            } else if (!subscription->all) {
                pymq_hold_remove(table, hold);
                hold->next_of_queue = failed;
                failed = hold;
            }
        }
    }
    return failed;
}

struct pymq_hold *pymq_hold_take_connection(struct pymq_hold_table *table, pymq_connection_id connection) {
    struct pymq_hold *taken = NULL;
    for (struct pymq_hold *hold = *connection_bucket(table, connection), *next; hold != NULL; hold = next) {
        next = hold->next_of_connection;
        if (hold->connection != connection)
            continue;
        pymq_hold_remove(table, hold);
        hold->next_of_queue = taken;
        taken = hold;
    }
    return taken;
}

int64_t pymq_hold_next_due(const struct pymq_hold_table *table) {
    for (int64_t tick = table->tick; tick < table->tick + PYMQ_HOLD_WHEEL;) {
        size_t slot = (size_t)(tick % PYMQ_HOLD_WHEEL);
        uint64_t bits = table->wheel_used[slot / 64] >> slot % 64;
        if (bits != 0)
            return pymq_min64(tick + __builtin_ctzll(bits), table->tick + PYMQ_HOLD_WHEEL - 1) * PYMQ_HOLD_TICK_MS;
        tick += 64 - (int64_t)(slot % 64);
    }
    return INT64_MAX;
}
