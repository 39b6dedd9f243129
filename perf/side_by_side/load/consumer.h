/* The receiving half: pulls as a push consumer makes them, one under way a queue at most, the suspend flag always set.
 *
 * A queue belongs to one connection. A connection works on `window` of its queues at a time; the others wait until one
 * of those has reached its end. Queues without an end (long polling) never leave. */
#ifndef PYMQ_LOAD_CONSUMER_H
#define PYMQ_LOAD_CONSUMER_H

#include "connection.h"
#include "histogram.h"
#include "ledger.h"
#include "options.h"
#include "records.h"

#define OFFSET_ENDLESS INT64_MAX

struct cursor {
    int64_t next_offset;
    int64_t end_offset; /* OFFSET_ENDLESS: never done */
    uint32_t opaque;    /* 0: no pull under way */
    int64_t sent_ns;
};

struct puller {
    struct connection connection;
    unsigned next_queue; /* the first of its queues not begun */
    bool wants_write;
};

struct consumer {
    const struct options *options;
    struct ledger *ledger;
    struct puller *pullers;
    unsigned puller_count;
    struct cursor *cursors; /* one a queue */
    uint32_t generation;
    int epoll_fd;
    uint64_t event_base;
    unsigned queues_open; /* not yet at their end */
    uint64_t received;
    uint64_t received_bytes;
    uint64_t pulls_found;
    uint64_t pulls_empty;
    uint64_t gaps;                 /* messages whose queue offset was not the one after the last */
    uint64_t corrupt;              /* bodies that no generator wrote; looked at only with a ledger or in deliver */
    struct histogram pull_latency; /* of pulls that found something */
    struct histogram delivery;     /* from intended send to receipt, of messages of `measure_sender` */
    bool measure_delivery;
};

/* Connect, announce the group, and learn where queues begin and end: from 0 to now, or from now on without end. */
void consumer_open(struct consumer *consumer, const struct options *options, struct ledger *ledger, int epoll_fd,
                   uint64_t event_base, unsigned puller_count, bool endless, int64_t deadline_ns);
void consumer_close(struct consumer *consumer);

/* Send the first pulls. */
void consumer_begin(struct consumer *consumer);

/* Read answers, take the messages, send the next pulls. */
void consumer_receive(struct consumer *consumer, struct puller *puller);
void consumer_flush(struct consumer *consumer, struct puller *puller);

#endif
