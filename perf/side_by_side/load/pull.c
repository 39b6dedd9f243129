/* Mode pull: catch-up. Every queue is read from its start to where it ended when the run began, 32 messages a pull. */
#include "modes.h"

#include "bytes.h"
#include "consumer.h"
#include "fail.h"
#include "report.h"
#include "schedule.h"

#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 64
#define LOOK_UP_NS (100 * NS_PER_MS)

static bool is_over(const struct consumer *consumer, int64_t load_end_ns) {
    return stop_requested || consumer->queues_open == 0 || consumer->received >= consumer->options->count_max ||
           monotonic_ns() >= load_end_ns;
}

static void report(const struct consumer *consumer, const struct window *window) {
    report_begin();
    report_options("pull", consumer->options);
    report_integer("received", (int64_t)consumer->received);
    report_integer("received_bytes", (int64_t)consumer->received_bytes);
    report_integer("pulls_found", (int64_t)consumer->pulls_found);
    report_integer("pulls_empty", (int64_t)consumer->pulls_empty);
    report_number("messages_per_pull",
                  consumer->pulls_found == 0 ? 0 : (double)consumer->received / (double)consumer->pulls_found);
    report_integer("queues_unfinished", consumer->queues_open);
    report_integer("gaps", (int64_t)consumer->gaps);
    report_integer("corrupt", (int64_t)consumer->corrupt);
    report_window(window, consumer->options, consumer->received);
    report_histogram("pull_latency_us", &consumer->pull_latency);
    report_end();
}

void run_pull(const struct options *options) {
    static struct consumer consumer;
    struct epoll_event events[EVENTS_MAX];
    struct window window;
    int64_t deadline_ns = monotonic_ns() + (int64_t)(options->timeout_s * NS_PER_S);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct ledger *ledger = options->ledger_path == NULL ? NULL : ledger_open(options->ledger_path, options->topic);
    consumer_open(&consumer, options, ledger, epoll_fd, 0, options->connections, false, deadline_ns);

    window_begin(&window, options);
    int64_t load_end_ns = window.begin_ns + (int64_t)(options->duration_s * NS_PER_S);
    consumer_begin(&consumer);
    while (!is_over(&consumer, load_end_ns)) {
        int found = wait_until(epoll_fd, events, EVENTS_MAX, monotonic_ns() + LOOK_UP_NS);
        for (int i = 0; i < found; i++) {
            struct puller *puller = &consumer.pullers[events[i].data.u64];
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                consumer_receive(&consumer, puller);
            else
                consumer_flush(&consumer, puller);
        }
        if (monotonic_ns() > deadline_ns)
            fail(EXIT_TIME_OUT, "timed out after %.0f s: %llu messages received, %u queues not at their end",
                 options->timeout_s, (unsigned long long)consumer.received, consumer.queues_open);
    }
    window.load_end_ns = monotonic_ns();
    window_end(&window, options);

    report(&consumer, &window);
    consumer_close(&consumer);
    ledger_close(ledger);
    close(epoll_fd);
}
