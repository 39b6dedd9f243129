/* load: a lean load generator for brokers that speak RocketMQ's protocol. See README.md and options.c. */
#include "modes.h"

#include "fail.h"

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

volatile sig_atomic_t stop_requested;

static void request_stop(int signal_number) {
    (void)signal_number;
    stop_requested = 1;
}

int main(int argc, char **argv) {
    struct options options;
    struct sigaction action = {.sa_handler = request_stop};
    options_parse(&options, argc, argv);
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0)
        fail(EXIT_MACHINE, "sigaction: %s", strerror(errno));
    /* A schedule is kept to the microsecond or it measures itself: the kernel may otherwise add 50 µs to each sleep. */
    prctl(PR_SET_TIMERSLACK, 1UL);
    switch (options.mode) {
    case MODE_SEND: run_send(&options); break;
    case MODE_PULL: run_pull(&options); break;
    case MODE_DELIVER: run_deliver(&options); break;
    case MODE_FOLLOW: run_follow(&options); break;
    case MODE_AWAIT: run_await(&options); break;
    case MODE_SYNC_PROBE: run_sync_probe(&options); break;
    }
    return 0;
}
