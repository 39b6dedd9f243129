/* The sending half: connections with a window of requests each, what is under way on them, and what became of it.
 *
 * Two ways to drive it. Closed loop: `producer_fill` keeps every window full, and a round trip is measured from the
 * moment the request is handed over. Open loop: `producer_send_due` follows a schedule; a message's time starts at its
 * *intended* moment whether or not the generator or the window let it go then, so a stall is paid by every message it
 * delayed (no coordinated omission). */
#ifndef PYMQ_LOAD_PRODUCER_H
#define PYMQ_LOAD_PRODUCER_H

#include "connection.h"
#include "histogram.h"
#include "ledger.h"
#include "message.h"
#include "options.h"

#define REFUSAL_KINDS_MAX 8

struct in_flight {
    uint32_t opaque; /* 0: the slot is free */
    uint32_t queue;
    uint64_t sequence; /* of the first message */
    int64_t intended_ns;
    int64_t sent_ns;
};

struct sender {
    struct connection connection;
    struct in_flight *slots;
    uint32_t *free_slots;
    uint32_t free_count;
    uint32_t generation;
    bool wants_write;
};

struct refusal {
    int32_t code;
    uint64_t count;
    char remark[160]; /* of the first */
};

#define FOLLOW_UP_SIZE_MAX 1024 /* of a request that follows a message; its connection has room for a window of them */

struct producer {
    const struct options *options;
    void (*acknowledge)(void *context, const struct answer *answer); /* told of each, after producer_open; or NULL */
    void *context;
    struct message_source source;
    struct sender *senders;
    struct ledger *ledger;
    unsigned next_queue;
    unsigned next_sender;
    uint32_t generation_count;
    size_t frame_size_max;
    int epoll_fd;
    uint64_t event_base;
    uint64_t begun;        /* messages handed to a connection */
    uint64_t acknowledged; /* messages */
    uint64_t refused;      /* messages */
    struct refusal refusals[REFUSAL_KINDS_MAX];
    unsigned refusal_count;
    struct histogram latency;  /* a request: from intended (open loop) or handed over (closed loop) to answered */
    struct histogram lateness; /* open loop: from intended to handed over */
};

/* Connect everything. If the program ends while requests are under way, they go into the ledger as unknown. Connections
 * are added to `epoll_fd` with `event_base` + number as their data. */
void producer_open(struct producer *producer, const struct options *options, struct ledger *ledger, int epoll_fd,
                   uint64_t event_base);
void producer_close(struct producer *producer);

/* Whether another message may be begun under --count. */
bool producer_may_begin(const struct producer *producer);

/* Compose requests until the window is full, and send them. */
void producer_fill(struct producer *producer, struct sender *sender);

/* Send the message intended for `intended_ns` on the next connection that has room. False when none has. */
bool producer_send_due(struct producer *producer, int64_t intended_ns);

/* Read answers. Returns how many requests they ended. */
unsigned producer_receive(struct producer *producer, struct sender *sender);

/* Send what composed requests are left; called when epoll says a connection takes more. */
void producer_flush(struct producer *producer, struct sender *sender);

/* Requests without an answer yet. */
uint64_t producer_pending(const struct producer *producer);

#endif
