/* See parked.h. */
#include "parked.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define FRAME_INLINE_MAX 440 /* the answer to one message; with a batch's it is allocated */
#define BLOCK_ENTRIES 128    /* allocated at once; freed when nothing waits */
#define UNRUNG_POLL_MS 2

struct pymq_parked_entry {
    struct pymq_parked_entry *next, *previous;
    struct pymq_asker asker;
    int64_t end_offset;
    int64_t deadline_ms;
    uint8_t *frames; /* the answer; then those for time-out and failure, when they are not made from it. A plain answer
                      * is not here (size 0): it is written when it is time */
    uint32_t size, late_size, failed_size;
    bool is_foreign; /* the control loop's: its three frames stand here, and it was allocated by itself */
    uint8_t inline_frames[FRAME_INLINE_MAX];
};

struct pymq_parked_block {
    struct pymq_parked_block *next;
    struct pymq_parked_entry entries[BLOCK_ENTRIES];
};

int pymq_parked_init(struct pymq_parked *parked) {
    memset(parked, 0, sizeof *parked);
    atomic_init(&parked->event_fd, -1);
    pthread_mutex_init(&parked->inbox_lock, NULL);
    return PYMQ_OK;
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

static struct pymq_parked_entry *entry_take(struct pymq_parked *parked) {
    if (parked->unused == NULL) {
        struct pymq_parked_block *block = malloc(sizeof *block);
        if (block == NULL)
            return NULL;
        block->next = parked->blocks;
        parked->blocks = block;
        for (size_t i = 0; i < BLOCK_ENTRIES; i++) {
            block->entries[i].next = parked->unused;
            parked->unused = &block->entries[i];
        }
    }
    struct pymq_parked_entry *entry = parked->unused;
    parked->unused = entry->next;
    return entry;
}

static void entry_give_back(struct pymq_parked *parked, struct pymq_parked_entry *entry) {
    if (entry->frames != entry->inline_frames)
        free(entry->frames);
    if (entry->is_foreign) {
        free(entry);
        return;
    }
    entry->next = parked->unused;
    parked->unused = entry;
}

/* Nothing waits: the memory of the worst moment goes back, all but one block. */
static void blocks_trim(struct pymq_parked *parked) {
    if (parked->blocks == NULL || parked->blocks->next == NULL)
        return;
    while (parked->blocks->next != NULL) {
        struct pymq_parked_block *block = parked->blocks;
        parked->blocks = block->next;
        free(block);
    }
    parked->unused = NULL;
    for (size_t i = 0; i < BLOCK_ENTRIES; i++) {
        parked->blocks->entries[i].next = parked->unused;
        parked->unused = &parked->blocks->entries[i];
    }
}

void pymq_parked_destroy(struct pymq_parked *parked) {
    struct pymq_parked_entry *lists[] = {parked->head, parked->inbox};
    for (size_t i = 0; i < 2; i++) {
        for (struct pymq_parked_entry *entry = lists[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            entry_give_back(parked, entry);
        }
    }
    while (parked->blocks != NULL) {
        struct pymq_parked_block *block = parked->blocks;
        parked->blocks = block->next;
        free(block);
    }
    pthread_mutex_destroy(&parked->inbox_lock);
}

/* ---- the list --------------------------------------------------------------------------------------------------- */

/* From the tail: offsets grow, so the place is nearly always the last. */
static void link_by_offset(struct pymq_parked *parked, struct pymq_parked_entry *entry) {
    struct pymq_parked_entry *before = parked->tail;
    while (before != NULL && before->end_offset > entry->end_offset)
        before = before->previous;
    entry->previous = before;
    entry->next = before != NULL ? before->next : parked->head;
    *(entry->next != NULL ? &entry->next->previous : &parked->tail) = entry;
    *(before != NULL ? &before->next : &parked->head) = entry;
}

static void unlink_head(struct pymq_parked *parked) {
    struct pymq_parked_entry *entry = parked->head;
    parked->head = entry->next;
    *(parked->head != NULL ? &parked->head->previous : &parked->tail) = NULL;
    entry_give_back(parked, entry);
    if (atomic_fetch_sub_explicit(&parked->count, 1, memory_order_relaxed) == 1 && parked->head == NULL)
        blocks_trim(parked);
}

static void take_inbox(struct pymq_parked *parked) {
    pthread_mutex_lock(&parked->inbox_lock);
    struct pymq_parked_entry *entry = parked->inbox;
    parked->inbox = parked->inbox_tail = NULL;
    pthread_mutex_unlock(&parked->inbox_lock);
    while (entry != NULL) {
        struct pymq_parked_entry *next = entry->next;
        link_by_offset(parked, entry);
        entry = next;
    }
}

/* When to look again at the latest: at the head's deadline. A store that would not ring is asked every few ms,
 * because it takes a bounded number of listeners. */
static int64_t due_ms(const struct pymq_serve_reactor *state) {
    const struct pymq_parked_entry *head = state->parked->head;
    if (head == NULL)
        return INT64_MAX;
    return state->listening ? head->deadline_ms
                            : pymq_min64(head->deadline_ms, pymq_reactor_now_ms(state->reactor) + UNRUNG_POLL_MS);
}

static void wake_when_due(struct pymq_serve_reactor *state) {
    if (state->parked->head != NULL)
        pymq_reactor_set_timer(state->reactor, due_ms(state));
}

void pymq_parked_send(struct pymq_serve_reactor *state, const struct pymq_sent *sent, int64_t end_offset) {
    struct pymq_parked *parked = state->parked;
    struct pymq_parked_entry *entry = entry_take(parked);
    if (entry == NULL)
        return;
    size_t room = pymq_answer_sent_room(sent);
    uint8_t on_stack[4096];
    uint8_t *target = room <= sizeof on_stack ? on_stack : malloc(room);
    size_t size = target != NULL ? pymq_answer_sent(&state->serve->config, sent, target, room) : 0;
    uint8_t *frames = size <= FRAME_INLINE_MAX ? entry->inline_frames : malloc(size);
    entry->is_foreign = false;
    entry->frames = entry->inline_frames;
    if (size == 0 || frames == NULL) {
        entry_give_back(parked, entry);
    } else {
        memcpy(frames, target, size);
        entry->frames = frames;
        entry->size = (uint32_t)size;
        entry->late_size = entry->failed_size = 0;
        entry->asker = sent->asker;
        entry->end_offset = end_offset;
        entry->deadline_ms = pymq_reactor_now_ms(state->reactor) + state->serve->config.send_timeout_ms;
        link_by_offset(parked, entry);
        atomic_fetch_add_explicit(&parked->count, 1, memory_order_relaxed);
        wake_when_due(state);
    }
    if (target != on_stack)
        free(target);
}

void pymq_parked_plain(struct pymq_serve_reactor *state, const struct pymq_asker *asker, int64_t end_offset) {
    struct pymq_parked *parked = state->parked;
    struct pymq_parked_entry *entry = entry_take(parked);
    if (entry == NULL)
        return;
    entry->is_foreign = false;
    entry->frames = entry->inline_frames;
    entry->size = entry->late_size = entry->failed_size = 0;
    entry->asker = *asker;
    entry->end_offset = end_offset;
    entry->deadline_ms = pymq_reactor_now_ms(state->reactor) + state->serve->config.send_timeout_ms;
    link_by_offset(parked, entry);
    atomic_fetch_add_explicit(&parked->count, 1, memory_order_relaxed);
    wake_when_due(state);
}

/* ---- answering -------------------------------------------------------------------------------------------------- */

static void write_frame(struct pymq_serve_reactor *state, pymq_connection_id connection, const uint8_t *frame,
                        size_t size) {
    struct pymq_connection *found = pymq_reactor_find(state->reactor, connection);
    uint8_t *target = found != NULL && size > 0 ? pymq_connection_reserve(found, size) : NULL;
    if (target == NULL)
        return; /* its client is gone and will ask again elsewhere */
    memcpy(target, frame, size);
    pymq_connection_commit(found, size);
}

static void write_plain(struct pymq_serve_reactor *state, const struct pymq_asker *asker, int32_t code,
                        struct pymq_slice remark) {
    uint8_t frame[PYMQ_HEADER_ROOM];
    size_t size = pymq_answer_plain(asker, code, remark, frame, sizeof frame);
    write_frame(state, asker->connection, frame, size);
}

static void answer_failed(struct pymq_serve_reactor *state, const struct pymq_parked_entry *entry, int status) {
    if (entry->is_foreign) {
        write_frame(state, entry->asker.connection, entry->frames + entry->size + entry->late_size,
                    entry->failed_size);
        return;
    }
    struct pymq_refusal refusal;
    uint8_t frame[PYMQ_REFUSED_ROOM];
    pymq_refusal_for(&refusal, state->serve, &entry->asker, status);
    size_t size = pymq_answer_refused(&state->serve->config, &entry->asker, &refusal, frame, sizeof frame);
    write_frame(state, entry->asker.connection, frame, size);
}

/* Which gate is late. A log that is on disk waits for a replica. */
static int32_t late_code(struct pymq_serve *serve, int64_t end_offset) {
    struct pymq_watermarks marks;
    pymq_store_watermarks(serve->store, &marks);
    return marks.flushed >= end_offset ? PYMQ_RESPONSE_FLUSH_SLAVE_TIMEOUT : PYMQ_RESPONSE_FLUSH_DISK_TIMEOUT;
}

static void answer_late(struct pymq_serve_reactor *state, const struct pymq_parked_entry *entry) {
    pymq_count(&state->counters.parked_late, 1);
    if (entry->is_foreign) {
        write_frame(state, entry->asker.connection, entry->frames + entry->size, entry->late_size);
        return;
    }
    if (entry->size == 0) {
        write_plain(state, &entry->asker, late_code(state->serve, entry->end_offset), pymq_late_remark(&entry->asker));
        return;
    }
    uint8_t on_stack[FRAME_INLINE_MAX + 2];
    uint8_t *frame = entry->size <= FRAME_INLINE_MAX ? on_stack : malloc(entry->size + 2);
    if (frame == NULL)
        return; /* the producer's own time-out takes over */
    write_frame(state, entry->asker.connection, frame,
                pymq_answer_recode(entry->frames, entry->size, late_code(state->serve, entry->end_offset), frame));
    if (frame != on_stack)
        free(frame);
}

void pymq_parked_complete(struct pymq_serve_reactor *state) {
    struct pymq_parked *parked = state->parked;
    take_inbox(parked);
    while (parked->head != NULL) {
        struct pymq_parked_entry *entry = parked->head;
        int status = pymq_store_poll_acknowledged(state->serve->store, entry->end_offset);
        if (status == PYMQ_ETIMEDOUT)
            break;
        if (status == PYMQ_OK && entry->size == 0)
            write_plain(state, &entry->asker, PYMQ_RESPONSE_SUCCESS, (struct pymq_slice){NULL, 0});
        else if (status == PYMQ_OK)
            write_frame(state, entry->asker.connection, entry->frames, entry->size);
        else
            answer_failed(state, entry, status);
        unlink_head(parked);
    }
    wake_when_due(state);
}

/* By the head's deadline. One behind it can be due a little earlier, when the control loop was late in leaving the head
 * here; it then waits as long as the loop had taken. */
int64_t pymq_parked_expire(struct pymq_serve_reactor *state, int64_t now_ms) {
    struct pymq_parked *parked = state->parked;
    pymq_parked_complete(state);
    while (parked->head != NULL && parked->head->deadline_ms <= now_ms) {
        answer_late(state, parked->head);
        unlink_head(parked);
    }
    return due_ms(state);
}

/* ---- the control loop's side ------------------------------------------------------------------------------------- */

static int64_t monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The lock keeps a transport that is being closed until we are done with it. */
static int send_now(struct pymq_serve *serve, pymq_connection_id connection, const uint8_t *frame, size_t size) {
    pthread_mutex_lock(&serve->tables.control_lock);
    int status = serve->transport != NULL ? pymq_transport_send(serve->transport, connection, frame, size)
                                          : PYMQ_ECLOSED;
    pthread_mutex_unlock(&serve->tables.control_lock);
    return status;
}

int pymq_serve_park(struct pymq_serve *serve, pymq_connection_id connection, int64_t end_offset, const uint8_t *frame,
                    size_t size, const uint8_t *late, size_t late_size, const uint8_t *failed, size_t failed_size) {
    uint64_t index = connection >> 56;
    if (connection == 0 || index >= PYMQ_REACTORS_MAX || size + late_size + failed_size > UINT32_MAX)
        return PYMQ_EINVAL;
    struct pymq_parked *parked = serve->reactors[index].parked;
    int status = pymq_store_poll_acknowledged(serve->store, end_offset);
    /* Need not wait; but what is still parked may be this connection's, and is answered first. */
    if (status != PYMQ_ETIMEDOUT && atomic_load_explicit(&parked->count, memory_order_acquire) == 0)
        return status == PYMQ_OK ? send_now(serve, connection, frame, size)
                                 : send_now(serve, connection, failed, failed_size);
    int event_fd = atomic_load_explicit(&parked->event_fd, memory_order_acquire);
    if (event_fd < 0)
        return PYMQ_ECLOSED;
    struct pymq_parked_entry *entry = calloc(1, sizeof *entry);
    uint8_t *frames = malloc(size + late_size + failed_size + 1);
    if (entry == NULL || frames == NULL) {
        free(entry);
        free(frames);
        return PYMQ_ENOMEM;
    }
    memcpy(frames, frame, size);
    if (late_size != 0) /* an absent frame has no address memcpy may be given */
        memcpy(frames + size, late, late_size);
    if (failed_size != 0)
        memcpy(frames + size + late_size, failed, failed_size);
    entry->frames = frames;
    entry->size = (uint32_t)size;
    entry->late_size = (uint32_t)late_size;
    entry->failed_size = (uint32_t)failed_size;
    entry->is_foreign = true;
    entry->asker.connection = connection;
    entry->end_offset = end_offset;
    pthread_mutex_lock(&serve->tables.control_lock); /* settings may be replaced by another thread */
    entry->deadline_ms = monotonic_ms() + serve->config.send_timeout_ms;
    pthread_mutex_unlock(&serve->tables.control_lock);
    pthread_mutex_lock(&parked->inbox_lock);
    *(parked->inbox_tail != NULL ? &parked->inbox_tail->next : &parked->inbox) = entry;
    parked->inbox_tail = entry;
    atomic_fetch_add_explicit(&parked->count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&parked->inbox_lock);
    uint64_t one = 1;
    if (write(event_fd, &one, sizeof one) < 0) {
        /* A full eventfd (EAGAIN) already says what we came to say. */
    }
    return PYMQ_OK;
}
