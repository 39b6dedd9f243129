/* See producer.h. */
#include "producer.h"

#include "bytes.h"
#include "fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define ANSWERS_SIZE (256 << 10)
#define ADMIN_ROOM (16 << 10)

static void sender_open(struct producer *producer, struct sender *sender) {
    const struct options *options = producer->options;
    size_t frame_size = producer->frame_size_max > FOLLOW_UP_SIZE_MAX ? producer->frame_size_max : FOLLOW_UP_SIZE_MAX;
    size_t out_capacity = options->window * frame_size + ADMIN_ROOM;
    connection_open(&sender->connection, options->address, ANSWERS_SIZE, out_capacity);
    sender->slots = calloc(options->window, sizeof *sender->slots);
    sender->free_slots = calloc(options->window, sizeof *sender->free_slots);
    if (sender->slots == NULL || sender->free_slots == NULL)
        fail(EXIT_MACHINE, "no memory for a window of %u requests", options->window);
    for (unsigned i = 0; i < options->window; i++)
        sender->free_slots[i] = options->window - 1 - i;
    sender->free_count = options->window;
}

static struct producer *open_producer; /* for atexit, which takes no argument; a run has one producer */

/* Requests nobody answered before the program ended. Runs before the ledger is closed: it was opened earlier. */
static void note_unknown(void) {
    const struct producer *producer = open_producer;
    if (producer == NULL || producer->ledger == NULL)
        return;
    for (unsigned i = 0; i < producer->options->connections; i++) {
        for (unsigned slot = 0; slot < producer->options->window; slot++) {
            const struct in_flight *request = &producer->senders[i].slots[slot];
            for (unsigned n = 0; request->opaque != 0 && n < producer->options->batch; n++) {
                const struct ledger_entry entry = {
                    .kind = 'U',
                    .queue = request->queue,
                    .queue_offset = -1,
                    .sender = producer->options->sender,
                    .sequence = (int64_t)(request->sequence + n),
                    .intended_ns = request->intended_ns,
                    .sent_ns = request->sent_ns,
                    .done_ns = -1,
                };
                ledger_write(producer->ledger, &entry);
            }
        }
    }
}

void producer_open(struct producer *producer, const struct options *options, struct ledger *ledger, int epoll_fd,
                   uint64_t event_base) {
    const struct message_plan plan = {
        .codec = options->codec,
        .properties = options->properties,
        .topic = options->topic,
        .producer_group = options->group,
        .broker_name = options->broker_name,
        .added = options->added,
        .queue_count = options->queues,
        .batch_count = options->batch,
        .body_size = options->body_size,
        .sender = options->sender,
    };
    memset(producer, 0, sizeof *producer);
    producer->options = options;
    producer->ledger = ledger;
    producer->epoll_fd = epoll_fd;
    producer->event_base = event_base;
    producer->generation_count = (OPAQUE_END / 2 - OPAQUE_FIRST) / options->window;
    histogram_clear(&producer->latency);
    histogram_clear(&producer->lateness);
    producer->senders = calloc(options->connections, sizeof *producer->senders);
    if (producer->senders == NULL || !message_source_open(&producer->source, &plan))
        fail(EXIT_MACHINE, "no memory for messages, or topic and group are too long for a header");
    producer->frame_size_max = message_frame_size_max(&producer->source);
    for (unsigned i = 0; i < options->connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = event_base + i};
        sender_open(producer, &producer->senders[i]);
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, producer->senders[i].connection.fd, &event) != 0)
            fail(EXIT_MACHINE, "epoll: %s", strerror(errno));
    }
    open_producer = producer;
    atexit(note_unknown);
}

void producer_close(struct producer *producer) {
    open_producer = NULL;
    for (unsigned i = 0; i < producer->options->connections; i++) {
        connection_close(&producer->senders[i].connection);
        free(producer->senders[i].slots);
        free(producer->senders[i].free_slots);
    }
    free(producer->senders);
    message_source_close(&producer->source);
}

bool producer_may_begin(const struct producer *producer) {
    return producer->begun + producer->options->batch <= producer->options->count_max;
}

/* Take a free slot and compose the next request into the connection's output. */
static void begin(struct producer *producer, struct sender *sender, int64_t intended_ns, int64_t now_ns) {
    uint32_t window = producer->options->window;
    uint32_t slot = sender->free_slots[--sender->free_count];
    uint32_t queue = producer->next_queue;
    producer->next_queue = queue + 1 == producer->options->queues ? 0 : queue + 1;
    sender->generation = sender->generation + 1 == producer->generation_count ? 0 : sender->generation + 1;
    uint32_t opaque = OPAQUE_FIRST + sender->generation * window + slot;
    sender->slots[slot] = (struct in_flight){
        .opaque = opaque,
        .queue = queue,
        .sequence = producer->source.next_sequence,
        .intended_ns = intended_ns,
        .sent_ns = now_ns,
    };
    uint8_t *target = connection_reserve(&sender->connection, producer->frame_size_max);
    connection_commit(&sender->connection, message_compose(&producer->source, queue, opaque, intended_ns, target));
    producer->begun += producer->options->batch;
}

void producer_flush(struct producer *producer, struct sender *sender) {
    bool left = !connection_flush(&sender->connection);
    if (left == sender->wants_write)
        return;
    struct epoll_event event = {
        .events = left ? EPOLLIN | EPOLLOUT : EPOLLIN,
        .data.u64 = producer->event_base + (uint64_t)(sender - producer->senders),
    };
    sender->wants_write = left;
    if (epoll_ctl(producer->epoll_fd, EPOLL_CTL_MOD, sender->connection.fd, &event) != 0)
        fail(EXIT_MACHINE, "epoll: %s", strerror(errno));
}

void producer_fill(struct producer *producer, struct sender *sender) {
    if (sender->free_count > 0 && producer_may_begin(producer)) {
        int64_t now_ns = monotonic_ns();
        message_source_tick(&producer->source, wall_ms());
        while (sender->free_count > 0 && producer_may_begin(producer))
            begin(producer, sender, now_ns, now_ns);
    }
    producer_flush(producer, sender);
}

bool producer_send_due(struct producer *producer, int64_t intended_ns) {
    unsigned count = producer->options->connections;
    for (unsigned tried = 0; tried < count; tried++) {
        struct sender *sender = &producer->senders[producer->next_sender];
        producer->next_sender = producer->next_sender + 1 == count ? 0 : producer->next_sender + 1;
        if (sender->free_count == 0)
            continue;
        int64_t now_ns = monotonic_ns();
        message_source_tick(&producer->source, wall_ms());
        begin(producer, sender, intended_ns, now_ns);
        histogram_add(&producer->lateness, now_ns - intended_ns);
        producer_flush(producer, sender);
        return true;
    }
    return false;
}

static void note_refusal(struct producer *producer, const struct answer *answer) {
    producer->refused += producer->options->batch;
    for (unsigned i = 0; i < producer->refusal_count; i++) {
        if (producer->refusals[i].code == answer->code) {
            producer->refusals[i].count += producer->options->batch;
            return;
        }
    }
    if (producer->refusal_count == REFUSAL_KINDS_MAX)
        return;
    struct refusal *refusal = &producer->refusals[producer->refusal_count++];
    refusal->code = answer->code;
    refusal->count = producer->options->batch;
    snprintf(refusal->remark, sizeof refusal->remark, "%.*s", (int)answer->remark.size, answer->remark.bytes);
}

static void note_in_ledger(struct producer *producer, const struct in_flight *request, const struct answer *answer,
                           int64_t now_ns) {
    char refusal[24];
    struct ledger_entry entry = {
        .queue = request->queue,
        .queue_offset = -1,
        .sender = producer->options->sender,
        .intended_ns = request->intended_ns,
        .sent_ns = request->sent_ns,
        .done_ns = now_ns,
    };
    struct text ids = answer->msg_id;
    for (unsigned i = 0; i < producer->options->batch; i++) {
        entry.sequence = (int64_t)(request->sequence + i);
        if (answer->code == RESPONSE_SUCCESS) {
            const char *comma = ids.size > 0 ? memchr(ids.bytes, ',', ids.size) : NULL;
            size_t size = comma != NULL ? (size_t)(comma - ids.bytes) : ids.size;
            entry.kind = 'A';
            entry.queue_offset = answer->queue_offset + i;
            entry.msg_id = (struct text){ids.bytes, size};
            if (comma != NULL)
                ids = (struct text){comma + 1, ids.size - size - 1};
        } else {
            int size = snprintf(refusal, sizeof refusal, "code:%d", answer->code);
            entry.kind = 'F';
            entry.msg_id = (struct text){refusal, (size_t)size};
        }
        ledger_write(producer->ledger, &entry);
    }
}

static void end(struct producer *producer, struct sender *sender, const uint8_t *frame, size_t size,
                struct answer *answer, int64_t now_ns) {
    uint32_t slot = ((uint32_t)answer->opaque - OPAQUE_FIRST) % producer->options->window;
    struct in_flight *request = &sender->slots[slot];
    if (request->opaque != (uint32_t)answer->opaque)
        fail(EXIT_PEER, "%s answered opaque %d, which is not under way", producer->options->address, answer->opaque);
    /* What the shape did not read is needed now. */
    bool whole = producer->ledger != NULL || producer->acknowledge != NULL || answer->code != RESPONSE_SUCCESS;
    if (whole && !decode_answer(frame, size, answer))
        fail(EXIT_PEER, "%s sent an unreadable answer", producer->options->address);
    if (answer->code == RESPONSE_SUCCESS) {
        producer->acknowledged += producer->options->batch;
        if (producer->acknowledge != NULL)
            producer->acknowledge(producer->context, answer);
        histogram_add(&producer->latency, now_ns - request->intended_ns);
    } else {
        note_refusal(producer, answer);
    }
    if (producer->ledger != NULL)
        note_in_ledger(producer, request, answer, now_ns);
    request->opaque = 0;
    sender->free_slots[sender->free_count++] = slot;
}

unsigned producer_receive(struct producer *producer, struct sender *sender) {
    unsigned ended = 0;
    size_t size;
    const uint8_t *frame;
    if (!connection_fill(&sender->connection))
        return 0;
    int64_t now_ns = monotonic_ns();
    while ((frame = connection_next(&sender->connection, &size)) != NULL) {
        struct answer answer;
        if (!decode_answer_shaped(frame, size, &sender->connection.shapes, &answer))
            fail(EXIT_PEER, "%s sent an unreadable answer", producer->options->address);
        if (is_request(&answer))
            continue;
        end(producer, sender, frame, size, &answer, now_ns);
        ended++;
    }
    return ended;
}

uint64_t producer_pending(const struct producer *producer) {
    return producer->begun - producer->acknowledged - producer->refused;
}
