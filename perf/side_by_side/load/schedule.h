/* An open-loop schedule: message n is due at begin + n / rate, whatever happened to the messages before it. */
#ifndef PYMQ_LOAD_SCHEDULE_H
#define PYMQ_LOAD_SCHEDULE_H

#include "bytes.h"

#include <stdint.h>
#include <sys/epoll.h>

struct schedule {
    int64_t begin_ns;
    double interval_ns;
    uint64_t next;
};

static inline struct schedule schedule_begin(int64_t begin_ns, double rate) {
    return (struct schedule){.begin_ns = begin_ns, .interval_ns = (double)NS_PER_S / rate};
}

static inline int64_t schedule_due_ns(const struct schedule *schedule) {
    return schedule->begin_ns + (int64_t)((double)schedule->next * schedule->interval_ns);
}

/* Wait for events, at most until `until_ns`. Returns their count; an interrupted wait is a wait without events. */
static inline int wait_until(int epoll_fd, struct epoll_event *events, int event_count, int64_t until_ns) {
    int64_t left_ns = until_ns - monotonic_ns();
    if (left_ns < 0)
        left_ns = 0;
    struct timespec wait = {.tv_sec = left_ns / NS_PER_S, .tv_nsec = left_ns % NS_PER_S};
    int found = epoll_pwait2(epoll_fd, events, event_count, &wait, NULL);
    return found < 0 ? 0 : found;
}

#endif
