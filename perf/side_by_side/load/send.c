/* Mode send: pipelined, one at a time, batched, or on a schedule; it is all one loop with other numbers.
 *
 *   8 connections x 64 under way    throughput and CPU
 *   1 x 1                           the round trip; one connection blocks in recv() instead of epoll
 *   64 x 1                          senders that each wait for their flush
 *   8 x 8, --batch 32               SEND_BATCH_MESSAGE
 *   --rate                          a schedule, for what a send costs while something else goes on
 *
 * The window of the figures opens after connections, topic and queue ends are there, and closes when the queues show
 * every acknowledged message: an answer given before its dispatch is done is not yet all of the broker's work. */
#include "modes.h"

#include "admin.h"
#include "bytes.h"
#include "fail.h"
#include "producer.h"
#include "report.h"
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 256
#define BLOCK_MS 200
#define LOOK_UP_NS (100 * NS_PER_MS) /* how often time-outs are looked at when nothing happens */

struct send_run {
    const struct options *options;
    struct producer producer;
    int epoll_fd;
    int64_t load_end_ns; /* no message is begun after this */
    int64_t deadline_ns;
};

static bool is_over(const struct send_run *run) {
    return stop_requested || !producer_may_begin(&run->producer) || monotonic_ns() >= run->load_end_ns;
}

static void check_deadline(const struct send_run *run) {
    const struct producer *producer = &run->producer;
    if (monotonic_ns() > run->deadline_ns)
        fail(EXIT_TIME_OUT, "timed out after %.0f s: %llu messages acknowledged, %llu refused, %llu under way",
             run->options->timeout_s, (unsigned long long)producer->acknowledged, (unsigned long long)producer->refused,
             (unsigned long long)producer_pending(producer));
}

/* One connection: it sleeps in recv() itself. */
static void loop_blocking(struct send_run *run) {
    struct sender *sender = &run->producer.senders[0];
    connection_block(&sender->connection, BLOCK_MS);
    while (!is_over(run)) {
        producer_fill(&run->producer, sender);
        if (producer_receive(&run->producer, sender) == 0)
            check_deadline(run);
    }
    while (producer_pending(&run->producer) > 0) {
        producer_flush(&run->producer, sender);
        if (producer_receive(&run->producer, sender) == 0)
            check_deadline(run);
    }
    connection_unblock(&sender->connection);
}

static void handle(struct send_run *run, const struct epoll_event *event, bool refill) {
    struct sender *sender = &run->producer.senders[event->data.u64];
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        producer_receive(&run->producer, sender);
    if (refill)
        producer_fill(&run->producer, sender);
    else if (event->events & EPOLLOUT)
        producer_flush(&run->producer, sender);
}

/* Closed loop over several connections: every answer makes room for the next request. */
static void loop_closed(struct send_run *run) {
    struct epoll_event events[EVENTS_MAX];
    for (unsigned i = 0; i < run->options->connections; i++)
        producer_fill(&run->producer, &run->producer.senders[i]);
    while (!is_over(run) || producer_pending(&run->producer) > 0) {
        bool refill = !is_over(run);
        int found = wait_until(run->epoll_fd, events, EVENTS_MAX, monotonic_ns() + LOOK_UP_NS);
        for (int i = 0; i < found; i++)
            handle(run, &events[i], refill);
        check_deadline(run);
    }
}

/* Open loop: what is due is sent if any window has room, and stays due if not. */
static void loop_scheduled(struct send_run *run) {
    struct epoll_event events[EVENTS_MAX];
    struct schedule schedule = schedule_begin(monotonic_ns(), run->options->rate);
    bool over = false;
    while (!over || producer_pending(&run->producer) > 0) {
        bool room = true;
        over = over || is_over(run);
        while (!over && room && schedule_due_ns(&schedule) <= monotonic_ns()) {
            room = producer_send_due(&run->producer, schedule_due_ns(&schedule));
            schedule.next += room;
            over = is_over(run);
        }
        int64_t until_ns = monotonic_ns() + LOOK_UP_NS;
        if (!over && room && schedule_due_ns(&schedule) < until_ns)
            until_ns = schedule_due_ns(&schedule);
        int found = wait_until(run->epoll_fd, events, EVENTS_MAX, until_ns);
        for (int i = 0; i < found; i++)
            handle(run, &events[i], false);
        check_deadline(run);
    }
}

static void report(const struct send_run *run, const struct window *window) {
    const struct producer *producer = &run->producer;
    report_begin();
    report_options("send", run->options);
    report_integer("acknowledged", (int64_t)producer->acknowledged);
    report_integer("refused", (int64_t)producer->refused);
    report_object_begin("refusals");
    for (unsigned i = 0; i < producer->refusal_count; i++) {
        char code[16];
        snprintf(code, sizeof code, "%d", producer->refusals[i].code);
        report_object_begin(code);
        report_integer("count", (int64_t)producer->refusals[i].count);
        report_text("remark", producer->refusals[i].remark);
        report_object_end();
    }
    report_object_end();
    report_window(window, run->options, producer->acknowledged);
    report_histogram("latency_us", &producer->latency);
    if (run->options->rate > 0)
        report_histogram("lateness_us", &producer->lateness);
    report_end();
}

void run_send(const struct options *options) {
    static struct send_run run;
    struct window window;
    int64_t sum_before = 0;
    run.options = options;
    run.deadline_ns = monotonic_ns() + (int64_t)(options->timeout_s * NS_PER_S);
    run.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct ledger *ledger = options->ledger_path == NULL ? NULL : ledger_open(options->ledger_path, options->topic);
    producer_open(&run.producer, options, ledger, run.epoll_fd, 0);
    struct connection *first = &run.producer.senders[0].connection;
    if (options->create_topic)
        admin_create_topic(first, options, run.deadline_ns);
    if (options->settle)
        sum_before = admin_max_offset_sum(first, options, run.deadline_ns);

    window_begin(&window, options);
    run.load_end_ns = window.begin_ns + (int64_t)(options->duration_s * NS_PER_S);
    if (options->rate > 0)
        loop_scheduled(&run);
    else if (options->connections == 1)
        loop_blocking(&run);
    else
        loop_closed(&run);
    window.load_end_ns = monotonic_ns();
    if (options->settle)
        admin_settle(first, options, sum_before + (int64_t)run.producer.acknowledged, run.deadline_ns);
    window_end(&window, options);

    report(&run, &window);
    producer_close(&run.producer);
    ledger_close(ledger);
    close(run.epoll_fd);
}
