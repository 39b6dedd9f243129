/* See consumer.h. */
#include "consumer.h"

#include "admin.h"
#include "bytes.h"
#include "fail.h"
#include "message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define PULL_ANSWERS_SIZE (4 << 20)
#define PULL_FRAME_SIZE_MAX 2048
#define SUB_VERSION "1700000000000" /* a time, as clients have it; older than the one of our heartbeat */
#define SYS_FLAG_COMMIT_OFFSET 1
#define SYS_FLAG_SUSPEND 2

static unsigned queues_at_once(const struct consumer *consumer) {
    return consumer->options->mode == MODE_DELIVER ? consumer->options->queues : consumer->options->window;
}

void consumer_open(struct consumer *consumer, const struct options *options, struct ledger *ledger, int epoll_fd,
                   uint64_t event_base, unsigned puller_count, bool endless, int64_t deadline_ns) {
    memset(consumer, 0, sizeof *consumer);
    consumer->options = options;
    consumer->ledger = ledger;
    consumer->epoll_fd = epoll_fd;
    consumer->event_base = event_base;
    consumer->puller_count = puller_count;
    consumer->measure_delivery = endless;
    histogram_clear(&consumer->pull_latency);
    histogram_clear(&consumer->delivery);
    consumer->pullers = calloc(puller_count, sizeof *consumer->pullers);
    consumer->cursors = calloc(options->queues, sizeof *consumer->cursors);
    if (consumer->pullers == NULL || consumer->cursors == NULL)
        fail(EXIT_MACHINE, "no memory for %u queues", options->queues);
    for (unsigned i = 0; i < puller_count; i++) {
        struct puller *puller = &consumer->pullers[i];
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = event_base + i};
        size_t out_capacity = (options->queues + 8) * (size_t)PULL_FRAME_SIZE_MAX;
        connection_open(&puller->connection, options->address, PULL_ANSWERS_SIZE, out_capacity);
        puller->next_queue = i;
        admin_register_consumer(&puller->connection, options, i, deadline_ns);
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, puller->connection.fd, &event) != 0)
            fail(EXIT_MACHINE, "epoll: %s", strerror(errno));
    }
    for (unsigned queue = 0; queue < options->queues; queue++) {
        int64_t end_offset = admin_max_offset(&consumer->pullers[0].connection, options, queue, deadline_ns);
        consumer->cursors[queue].next_offset = endless ? end_offset : 0;
        consumer->cursors[queue].end_offset = endless ? OFFSET_ENDLESS : end_offset;
        consumer->queues_open += endless || end_offset > 0;
    }
}

void consumer_close(struct consumer *consumer) {
    for (unsigned i = 0; i < consumer->puller_count; i++)
        connection_close(&consumer->pullers[i].connection);
    free(consumer->pullers);
    free(consumer->cursors);
}

/* Compose the pull of `queue` from its cursor. */
static void pull(struct consumer *consumer, struct puller *puller, unsigned queue) {
    const struct options *options = consumer->options;
    struct cursor *cursor = &consumer->cursors[queue];
    char queue_digits[12], offset_digits[24], commit_digits[24], batch_digits[12], sys_flag_digits[12];
    /* A client lets the offset it has consumed ride on its pulls; here everything received counts as consumed. */
    int sys_flag = SYS_FLAG_SUSPEND | (cursor->next_offset > 0 ? SYS_FLAG_COMMIT_OFFSET : 0);
    snprintf(queue_digits, sizeof queue_digits, "%u", queue);
    snprintf(offset_digits, sizeof offset_digits, "%lld", (long long)cursor->next_offset);
    snprintf(commit_digits, sizeof commit_digits, "%lld", (long long)cursor->next_offset);
    snprintf(batch_digits, sizeof batch_digits, "%u", options->pull_batch);
    snprintf(sys_flag_digits, sizeof sys_flag_digits, "%d", sys_flag);
    const char *type = options->sql != NULL ? "SQL92" : "TAG", *expression = options->sql != NULL ? options->sql : "*";
    const struct field json[] = {
        {"queueId", queue_digits},       {"maxMsgBytes", "262144"},         {"maxMsgNums", batch_digits},
        {"sysFlag", sys_flag_digits},    {"suspendTimeoutMillis", "15000"}, {"commitOffset", commit_digits},
        {"bname", options->broker_name}, {"topic", options->topic},         {"queueOffset", offset_digits},
        {"expressionType", type},        {"subVersion", SUB_VERSION},       {"consumerGroup", options->group},
        {"subscription", expression},
    };
    const struct field binary[] = {
        {"consumerGroup", options->group}, {"topic", options->topic},         {"queueId", queue_digits},
        {"queueOffset", offset_digits},    {"maxMsgNums", batch_digits},      {"sysFlag", sys_flag_digits},
        {"commitOffset", commit_digits},   {"suspendTimeoutMillis", "15000"}, {"subVersion", SUB_VERSION},
        {"expressionType", type},          {"maxMsgBytes", "262144"},         {"bname", options->broker_name},
        {"subscription", expression},
    };
    const struct request request = {
        .code = REQUEST_PULL_MESSAGE,
        .fields = options->codec == CODEC_JSON ? json : binary,
        /* A push client leaves its expression out: the broker knows it. The last field is for the other kind. */
        .field_count = sizeof json / sizeof json[0] - (options->sql == NULL),
    };
    size_t opaque_position;
    uint8_t *target = connection_reserve(&puller->connection, PULL_FRAME_SIZE_MAX);
    size_t size = encode_request(target, PULL_FRAME_SIZE_MAX, options->codec, &request, &opaque_position);
    if (size == 0)
        fail(EXIT_USAGE, "a pull does not fit into %d bytes; shorten the topic or the group", PULL_FRAME_SIZE_MAX);
    uint32_t generation_count = (OPAQUE_END / 2 - OPAQUE_FIRST) / options->queues;
    consumer->generation = (consumer->generation + 1) % generation_count;
    cursor->opaque = OPAQUE_FIRST + consumer->generation * options->queues + queue;
    cursor->sent_ns = monotonic_ns();
    patch_opaque(target, opaque_position, options->codec, cursor->opaque);
    connection_commit(&puller->connection, size);
}

/* Begin the puller's next queue that has anything to read. */
static void pull_next_queue(struct consumer *consumer, struct puller *puller) {
    while (puller->next_queue < consumer->options->queues) {
        unsigned queue = puller->next_queue;
        puller->next_queue += consumer->puller_count;
        if (consumer->cursors[queue].next_offset < consumer->cursors[queue].end_offset) {
            pull(consumer, puller, queue);
            return;
        }
    }
}

void consumer_flush(struct consumer *consumer, struct puller *puller) {
    bool left = !connection_flush(&puller->connection);
    if (left == puller->wants_write)
        return;
    struct epoll_event event = {
        .events = left ? EPOLLIN | EPOLLOUT : EPOLLIN,
        .data.u64 = consumer->event_base + (uint64_t)(puller - consumer->pullers),
    };
    puller->wants_write = left;
    if (epoll_ctl(consumer->epoll_fd, EPOLL_CTL_MOD, puller->connection.fd, &event) != 0)
        fail(EXIT_MACHINE, "epoll: %s", strerror(errno));
}

void consumer_begin(struct consumer *consumer) {
    for (unsigned i = 0; i < consumer->puller_count; i++) {
        for (unsigned n = 0; n < queues_at_once(consumer); n++)
            pull_next_queue(consumer, &consumer->pullers[i]);
        consumer_flush(consumer, &consumer->pullers[i]);
    }
}

/* Look into a message: how long it took, whether it is whole, and a line in the ledger. */
static void examine(struct consumer *consumer, const struct record *record, int64_t now_ns) {
    struct body_stamp stamp;
    char msg_id[MSG_ID_SIZE_MAX];
    bool ours = body_read_stamp(record->body, record->body_size, &stamp) &&
                body_filling_is_right(record->body, record->body_size);
    if (!ours)
        consumer->corrupt++;
    else if (consumer->measure_delivery && stamp.sender == consumer->options->sender)
        histogram_add(&consumer->delivery, now_ns - stamp.intended_ns);
    if (consumer->ledger == NULL)
        return;
    const struct ledger_entry entry = {
        .kind = ours ? 'R' : 'C',
        .queue = record->queue_id,
        .queue_offset = record->queue_offset,
        .msg_id = {msg_id, record_msg_id(record, msg_id)},
        .sender = ours ? (int64_t)stamp.sender : -1,
        .sequence = ours ? (int64_t)stamp.sequence : -1,
        .intended_ns = ours ? stamp.intended_ns : -1,
        .sent_ns = -1,
        .done_ns = now_ns,
    };
    ledger_write(consumer->ledger, &entry);
}

static void take_messages(struct consumer *consumer, struct cursor *cursor, const struct answer *answer,
                          int64_t now_ns) {
    struct record record;
    size_t position = 0;
    int status;
    int64_t expected = cursor->next_offset;
    while ((status = record_next(answer->body, answer->body_size, &position, &record)) > 0) {
        consumer->gaps += record.queue_offset != expected && consumer->options->sql == NULL;
        expected = record.queue_offset + 1;
        consumer->received++;
        if (consumer->measure_delivery || consumer->ledger != NULL)
            examine(consumer, &record, now_ns);
    }
    if (status < 0)
        fail(EXIT_PEER, "%s sent a body that is not a row of records: byte %zu of %zu, queue %ld of %s",
             consumer->options->address, position, answer->body_size, (long)(cursor - consumer->cursors),
             consumer->options->topic);
    consumer->received_bytes += answer->body_size;
    consumer->pulls_found++;
    histogram_add(&consumer->pull_latency, now_ns - cursor->sent_ns);
}

static void take_answer(struct consumer *consumer, struct puller *puller, const struct answer *answer, int64_t now_ns) {
    const struct options *options = consumer->options;
    unsigned queue = ((uint32_t)answer->opaque - OPAQUE_FIRST) % options->queues;
    struct cursor *cursor = &consumer->cursors[queue];
    if (cursor->opaque != (uint32_t)answer->opaque)
        fail(EXIT_PEER, "%s answered opaque %d, which is not under way", options->address, answer->opaque);
    cursor->opaque = 0;
    switch (answer->code) {
    case RESPONSE_SUCCESS: take_messages(consumer, cursor, answer, now_ns); break;
    case RESPONSE_PULL_NOT_FOUND:
    case RESPONSE_PULL_RETRY_IMMEDIATELY:
    case RESPONSE_PULL_OFFSET_MOVED: consumer->pulls_empty++; break;
    default:
        fail(EXIT_PEER, "%s refused a pull of queue %u of %s at %lld: code %d, %.*s", options->address, queue,
             options->topic, (long long)cursor->next_offset, answer->code, (int)answer->remark.size,
             answer->remark.bytes);
    }
    if (answer->next_begin_offset == ANSWER_UNKNOWN)
        fail(EXIT_PEER, "%s answered a pull without nextBeginOffset", options->address);
    cursor->next_offset = answer->next_begin_offset;
    if (cursor->next_offset < cursor->end_offset) {
        pull(consumer, puller, queue);
    } else {
        consumer->queues_open--;
        pull_next_queue(consumer, puller);
    }
}

void consumer_receive(struct consumer *consumer, struct puller *puller) {
    size_t size;
    const uint8_t *frame;
    if (!connection_fill(&puller->connection))
        return;
    int64_t now_ns = monotonic_ns();
    while ((frame = connection_next(&puller->connection, &size)) != NULL) {
        struct answer answer;
        if (!decode_answer(frame, size, &answer))
            fail(EXIT_PEER, "%s sent an unreadable answer", consumer->options->address);
        if (!is_request(&answer))
            take_answer(consumer, puller, &answer, now_ns);
    }
    consumer_flush(consumer, puller);
}
