/* Mode await: watch a topic fill that somebody else fills, a delay service say, until it shows --count messages.
 *
 * The window opens when something is there, and closes when all is: the rate is of what came in between. */
#include "modes.h"

#include "admin.h"
#include "bytes.h"
#include "fail.h"
#include "report.h"

#include <unistd.h>

#define LOOK_PAUSE_US 1000
#define ANSWERS_SIZE (64 << 10)
#define REQUESTS_SIZE (64 << 10)

/* How many messages there are, once that is `wanted` or more. */
static int64_t await_sum(struct connection *connection, const struct options *options, int64_t wanted,
                         int64_t deadline_ns) {
    for (;;) {
        int64_t reached = admin_max_offset_sum(connection, options, deadline_ns);
        if (reached >= wanted || stop_requested)
            return reached;
        if (monotonic_ns() > deadline_ns)
            fail(EXIT_TIME_OUT, "timed out after %.0f s: %lld of %llu messages are there", options->timeout_s,
                 (long long)reached, (unsigned long long)options->count_max);
        usleep(LOOK_PAUSE_US);
    }
}

void run_await(const struct options *options) {
    struct connection connection;
    struct window window;
    int64_t deadline_ns = monotonic_ns() + (int64_t)(options->timeout_s * NS_PER_S);
    connection_open(&connection, options->address, ANSWERS_SIZE, REQUESTS_SIZE);
    int64_t before = await_sum(&connection, options, 1, deadline_ns);
    window_begin(&window, options);
    int64_t reached = await_sum(&connection, options, (int64_t)options->count_max, deadline_ns);
    window.load_end_ns = monotonic_ns();
    window_end(&window, options);

    report_begin();
    report_options("await", options);
    report_integer("before", before);
    report_integer("reached", reached);
    report_window(&window, options, (uint64_t)(reached - before));
    report_end();
    connection_close(&connection);
}
