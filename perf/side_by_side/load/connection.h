/* One TCP connection to a broker with its two buffers; sized once, nothing is allocated afterwards.
 *
 * Requests are composed straight into the output buffer and leave in as few send() calls as the loop makes; answers are
 * read in bulk and handed out frame by frame, in place. Errors of the connection end the program: a load that lost a
 * connection has no figure to report. */
#ifndef PYMQ_LOAD_CONNECTION_H
#define PYMQ_LOAD_CONNECTION_H

#include "decode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection {
    int fd;
    const char *address; /* host:port, for messages */
    uint8_t *out;
    size_t out_begin;
    size_t out_end;
    size_t out_capacity;
    uint8_t *in;
    size_t in_begin;
    size_t in_end;
    size_t in_capacity;
    struct shapes shapes;
};

/* Connect to `address` ("host:port"), without Nagle's delay, non-blocking. */
void connection_open(struct connection *connection, const char *address, size_t in_capacity, size_t out_capacity);
void connection_close(struct connection *connection);

/* Let recv() and send() wait, at most `wait_ms` at a time: with one connection there is nothing else to wait for, and
 * epoll would only add a call to every round trip. */
void connection_block(struct connection *connection, int wait_ms);
void connection_unblock(struct connection *connection);

/* Room for `size` bytes at the end of the output; the caller never has more under way than the capacity. */
uint8_t *connection_reserve(struct connection *connection, size_t size);
void connection_commit(struct connection *connection, size_t size);

/* Send what is there. True when all of it is gone. */
bool connection_flush(struct connection *connection);

/* Read what has arrived. False when there was nothing. */
bool connection_fill(struct connection *connection);

/* The next whole frame, valid until the next connection_fill(); NULL when there is none. */
const uint8_t *connection_next(struct connection *connection, size_t *size);

#endif
