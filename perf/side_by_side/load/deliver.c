/* Mode deliver: messages on a schedule, received by long polling; from the intended moment of sending to the receipt.
 *
 * Producer and consumer share one thread and one clock. All queues are held open by pulls of one connection, as a push
 * consumer does; the messages go round the queues on the connections of the producer. */
#include "modes.h"

#include "admin.h"
#include "bytes.h"
#include "consumer.h"
#include "fail.h"
#include "producer.h"
#include "report.h"
#include "schedule.h"

#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define CONSUMER_EVENTS (1ULL << 32)
#define LOOK_UP_NS (100 * NS_PER_MS)

struct deliver_run {
    const struct options *options;
    struct producer producer;
    struct consumer consumer;
    int epoll_fd;
    int64_t deadline_ns;
};

static void handle(struct deliver_run *run, const struct epoll_event *event) {
    bool readable = event->events & (EPOLLIN | EPOLLHUP | EPOLLERR);
    if (event->data.u64 >= CONSUMER_EVENTS) {
        struct puller *puller = &run->consumer.pullers[event->data.u64 - CONSUMER_EVENTS];
        if (readable)
            consumer_receive(&run->consumer, puller);
        else
            consumer_flush(&run->consumer, puller);
        return;
    }
    struct sender *sender = &run->producer.senders[event->data.u64];
    if (readable)
        producer_receive(&run->producer, sender);
    if (event->events & EPOLLOUT)
        producer_flush(&run->producer, sender);
}

static void loop(struct deliver_run *run, int64_t load_end_ns) {
    struct epoll_event events[EVENTS_MAX];
    struct schedule schedule = schedule_begin(monotonic_ns(), run->options->rate);
    const struct producer *producer = &run->producer;
    bool over = false;
    /* The end: everything acknowledged has arrived. More may (a refused message can be in the log all the same). */
    while (!over || producer_pending(producer) > 0 || run->consumer.delivery.count < producer->acknowledged) {
        bool room = true;
        over = over || stop_requested || !producer_may_begin(producer) || monotonic_ns() >= load_end_ns;
        while (!over && room && schedule_due_ns(&schedule) <= monotonic_ns()) {
            room = producer_send_due(&run->producer, schedule_due_ns(&schedule));
            schedule.next += room;
            over = !producer_may_begin(producer);
        }
        int64_t until_ns = monotonic_ns() + LOOK_UP_NS;
        if (!over && room && schedule_due_ns(&schedule) < until_ns)
            until_ns = schedule_due_ns(&schedule);
        int found = wait_until(run->epoll_fd, events, EVENTS_MAX, until_ns);
        for (int i = 0; i < found; i++)
            handle(run, &events[i]);
        if (monotonic_ns() > run->deadline_ns)
            fail(EXIT_TIME_OUT, "timed out after %.0f s: %llu messages acknowledged, %llu of them received",
                 run->options->timeout_s, (unsigned long long)producer->acknowledged,
                 (unsigned long long)run->consumer.delivery.count);
    }
}

void run_deliver(const struct options *options) {
    static struct deliver_run run;
    struct window window;
    run.options = options;
    run.deadline_ns = monotonic_ns() + (int64_t)(options->timeout_s * NS_PER_S);
    run.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct ledger *ledger = options->ledger_path == NULL ? NULL : ledger_open(options->ledger_path, options->topic);
    producer_open(&run.producer, options, ledger, run.epoll_fd, 0);
    if (options->create_topic)
        admin_create_topic(&run.producer.senders[0].connection, options, run.deadline_ns);
    consumer_open(&run.consumer, options, ledger, run.epoll_fd, CONSUMER_EVENTS, 1, true, run.deadline_ns);
    consumer_begin(&run.consumer);

    window_begin(&window, options);
    loop(&run, window.begin_ns + (int64_t)(options->duration_s * NS_PER_S));
    window.load_end_ns = monotonic_ns();
    window_end(&window, options);

    report_begin();
    report_options("deliver", options);
    report_integer("acknowledged", (int64_t)run.producer.acknowledged);
    report_integer("refused", (int64_t)run.producer.refused);
    report_integer("received", (int64_t)run.consumer.received);
    report_integer("gaps", (int64_t)run.consumer.gaps);
    report_integer("corrupt", (int64_t)run.consumer.corrupt);
    report_window(&window, options, run.producer.acknowledged);
    report_histogram("delivery_us", &run.consumer.delivery);
    report_histogram("latency_us", &run.producer.latency);
    report_histogram("lateness_us", &run.producer.lateness);
    report_end();
    producer_close(&run.producer);
    consumer_close(&run.consumer);
    ledger_close(ledger);
    close(run.epoll_fd);
}
