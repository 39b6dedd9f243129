/* Mode follow: what comes after a send. First --count messages are sent and the answers kept; then, in a window of its
 * own, each gets its second request: END_TRANSACTION with a commit, or CONSUMER_SEND_MSG_BACK.
 *
 * The two halves are reported apart and together. A transaction is both; a retry is only the second. */
#include "modes.h"

#include "admin.h"
#include "bytes.h"
#include "fail.h"
#include "producer.h"
#include "report.h"
#include "schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 256
#define LOOK_UP_NS (100 * NS_PER_MS)
#define OFFSET_DIGITS 16 /* of a message id: its last part is the place in the log, in hexadecimal */
#define COMMIT "8"       /* MessageSysFlag.TRANSACTION_COMMIT_TYPE */

struct sent {
    char key[UNIQ_KEY_SIZE + 1]; /* its transaction id */
    int64_t log_offset;
    int64_t queue_offset; /* of a half: in the queue of halves */
};

struct follow_run {
    const struct options *options;
    struct producer producer;
    struct sent *sent;
    uint64_t sent_count;
    uint64_t next;  /* of sent, to be followed */
    uint64_t done;  /* followed and answered */
    uint64_t refused;
    char remark[160]; /* of the first refusal, with its code */
    unsigned *pending;
    uint32_t opaque;
    int epoll_fd;
    int64_t deadline_ns;
};

static void keep(void *context, const struct answer *answer) {
    struct follow_run *run = context;
    const struct text *id = &answer->msg_id;
    char digits[OFFSET_DIGITS + 1] = "";
    if (id->size < OFFSET_DIGITS || answer->queue_offset == ANSWER_UNKNOWN)
        fail(EXIT_PEER, "%s acknowledged a message without saying where it is", run->options->address);
    memcpy(digits, id->bytes + id->size - OFFSET_DIGITS, OFFSET_DIGITS);
    struct sent *sent = &run->sent[run->sent_count++];
    sent->log_offset = (int64_t)strtoull(digits, NULL, 16);
    sent->queue_offset = answer->queue_offset;
    if (answer->transaction_id.size == UNIQ_KEY_SIZE)
        memcpy(sent->key, answer->transaction_id.bytes, UNIQ_KEY_SIZE);
}

static void check_deadline(const struct follow_run *run) {
    if (monotonic_ns() > run->deadline_ns)
        fail(EXIT_TIME_OUT, "timed out after %.0f s: %" PRIu64 " sent, %" PRIu64 " followed, %" PRIu64 " refused",
             run->options->timeout_s, run->sent_count, run->done, run->refused);
}

static void send_all(struct follow_run *run) {
    struct epoll_event events[EVENTS_MAX];
    struct producer *producer = &run->producer;
    for (unsigned i = 0; i < run->options->connections; i++)
        producer_fill(producer, &producer->senders[i]);
    while (producer_may_begin(producer) || producer_pending(producer) > 0) {
        int found = wait_until(run->epoll_fd, events, EVENTS_MAX, monotonic_ns() + LOOK_UP_NS);
        for (int i = 0; i < found; i++) {
            struct sender *sender = &producer->senders[events[i].data.u64];
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                producer_receive(producer, sender);
            producer_fill(producer, sender);
        }
        check_deadline(run);
    }
}

/* ---- the second requests ---------------------------------------------------------------------------------------- */

static size_t encode_follow_up(struct follow_run *run, const struct sent *sent, uint8_t *target, size_t *opaque_at) {
    const struct options *options = run->options;
    char log_digits[24], queue_digits[24];
    snprintf(log_digits, sizeof log_digits, "%" PRId64, sent->log_offset);
    snprintf(queue_digits, sizeof queue_digits, "%" PRId64, sent->queue_offset);
    const struct field commit[] = {
        {"topic", options->topic},           {"producerGroup", options->group}, {"tranStateTableOffset", queue_digits},
        {"commitLogOffset", log_digits},     {"commitOrRollback", COMMIT},      {"fromTransactionCheck", "false"},
        {"bname", options->broker_name},     {"msgId", sent->key},              {"transactionId", sent->key},
    };
    const struct field send_back[] = {
        {"offset", log_digits},          {"group", options->group},   {"delayLevel", "0"},
        {"originTopic", options->topic}, {"unitMode", "false"},       {"maxReconsumeTimes", "16"},
        {"bname", options->broker_name}, {"originMsgId", sent->key},
    };
    const struct request request = {
        .code = options->follow_up == FOLLOW_COMMIT ? REQUEST_END_TRANSACTION : REQUEST_CONSUMER_SEND_MSG_BACK,
        .fields = options->follow_up == FOLLOW_COMMIT ? commit : send_back,
        .field_count = options->follow_up == FOLLOW_COMMIT ? sizeof commit / sizeof commit[0]
                                                           : sizeof send_back / sizeof send_back[0],
    };
    return encode_request(target, FOLLOW_UP_SIZE_MAX, options->codec, &request, opaque_at);
}

static void fill(struct follow_run *run, unsigned index) {
    struct sender *sender = &run->producer.senders[index];
    while (run->pending[index] < run->options->window && run->next < run->sent_count) {
        size_t opaque_at;
        uint8_t *target = connection_reserve(&sender->connection, FOLLOW_UP_SIZE_MAX);
        size_t size = encode_follow_up(run, &run->sent[run->next++], target, &opaque_at);
        if (size == 0)
            fail(EXIT_USAGE, "a request does not fit into %d bytes; shorten topic and group", FOLLOW_UP_SIZE_MAX);
        run->opaque = run->opaque + 1 == OPAQUE_END / 2 ? OPAQUE_FIRST : run->opaque + 1;
        patch_opaque(target, opaque_at, run->options->codec, run->opaque);
        connection_commit(&sender->connection, size);
        run->pending[index]++;
    }
    producer_flush(&run->producer, sender);
}

static void receive(struct follow_run *run, unsigned index) {
    struct connection *connection = &run->producer.senders[index].connection;
    const uint8_t *frame;
    size_t size;
    if (!connection_fill(connection))
        return;
    while ((frame = connection_next(connection, &size)) != NULL) {
        struct answer answer;
        if (!decode_answer(frame, size, &answer))
            fail(EXIT_PEER, "%s sent an unreadable answer", run->options->address);
        if (is_request(&answer))
            continue;
        run->pending[index]--;
        if (answer.code == RESPONSE_SUCCESS)
            run->done++;
        else if (run->refused++ == 0)
            snprintf(run->remark, sizeof run->remark, "code %d: %.*s", answer.code, (int)answer.remark.size,
                     answer.remark.bytes);
    }
}

static void follow_all(struct follow_run *run) {
    struct epoll_event events[EVENTS_MAX];
    run->opaque = OPAQUE_FIRST;
    for (unsigned i = 0; i < run->options->connections; i++)
        fill(run, i);
    while (run->done + run->refused < run->sent_count) {
        int found = wait_until(run->epoll_fd, events, EVENTS_MAX, monotonic_ns() + LOOK_UP_NS);
        for (int i = 0; i < found; i++) {
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                receive(run, (unsigned)events[i].data.u64);
            fill(run, (unsigned)events[i].data.u64);
        }
        check_deadline(run);
    }
}

static void report(const struct follow_run *run, const struct window *first, const struct window *second) {
    struct window both = *first;
    both.load_end_ns = first->load_end_ns + (second->load_end_ns - second->begin_ns);
    both.end_ns = first->end_ns + (second->end_ns - second->begin_ns);
    both.broker_end = cpu_time_plus(first->broker_end, cpu_time_between(second->broker_begin, second->broker_end));
    both.own_end = cpu_time_plus(first->own_end, cpu_time_between(second->own_begin, second->own_end));
    report_begin();
    report_options("follow", run->options);
    report_integer("sent", (int64_t)run->sent_count);
    report_integer("acknowledged", (int64_t)run->done);
    report_integer("refused", (int64_t)(run->refused + run->producer.refused));
    report_text("refusals", run->remark);
    report_window(&both, run->options, run->done);
    report_object_begin("send");
    report_window(first, run->options, run->sent_count);
    report_object_end();
    report_object_begin("follow_up");
    report_window(second, run->options, run->done);
    report_object_end();
    report_end();
}

void run_follow(const struct options *options) {
    static struct follow_run run;
    struct window first, second;
    int64_t sum_before = 0;
    run.options = options;
    run.deadline_ns = monotonic_ns() + (int64_t)(options->timeout_s * NS_PER_S);
    run.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    run.sent = calloc(options->count_max, sizeof *run.sent);
    run.pending = calloc(options->connections, sizeof *run.pending);
    if (run.sent == NULL || run.pending == NULL)
        fail(EXIT_MACHINE, "no memory for %" PRIu64 " messages", options->count_max);
    producer_open(&run.producer, options, NULL, run.epoll_fd, 0);
    run.producer.acknowledge = keep;
    run.producer.context = &run;
    struct connection *connection = &run.producer.senders[0].connection;
    if (options->create_topic)
        admin_create_topic(connection, options, run.deadline_ns);
    if (options->follow_up == FOLLOW_SEND_BACK) /* makes the group */
        admin_register_consumer(connection, options, 0, run.deadline_ns);
    sum_before = admin_max_offset_sum(connection, options, run.deadline_ns);

    window_begin(&first, options);
    send_all(&run);
    first.load_end_ns = monotonic_ns();
    window_end(&first, options);
    window_begin(&second, options);
    follow_all(&run);
    second.load_end_ns = monotonic_ns();
    if (options->settle && options->follow_up == FOLLOW_COMMIT)
        admin_settle(connection, options, sum_before + (int64_t)run.done, run.deadline_ns);
    window_end(&second, options);

    report(&run, &first, &second);
    producer_close(&run.producer);
    free(run.sent);
    free(run.pending);
    close(run.epoll_fd);
}
