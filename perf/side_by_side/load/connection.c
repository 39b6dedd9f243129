/* See connection.h. */
#include "connection.h"

#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static int connect_to(const char *address) {
    char host[256];
    const char *colon = strrchr(address, ':');
    if (colon == NULL || (size_t)(colon - address) >= sizeof host)
        fail(EXIT_USAGE, "the address '%s' is not host:port", address);
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = 0;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int status = getaddrinfo(host, colon + 1, &hints, &found);
    if (status != 0)
        fail(EXIT_USAGE, "the address '%s' cannot be resolved: %s", address, gai_strerror(status));
    int fd = -1, problem = 0;
    for (struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            problem = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        fail(EXIT_PEER, "cannot connect to %s: %s", address, strerror(problem));
    return fd;
}

void connection_open(struct connection *connection, const char *address, size_t in_capacity, size_t out_capacity) {
    int on = 1;
    *connection = (struct connection){.fd = connect_to(address),
                                      .address = address,
                                      .out = malloc(out_capacity),
                                      .out_capacity = out_capacity,
                                      .in = malloc(in_capacity),
                                      .in_capacity = in_capacity};
    if (connection->out == NULL || connection->in == NULL)
        fail(EXIT_MACHINE, "no memory for a connection's buffers (%zu bytes)", in_capacity + out_capacity);
    if (setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        fcntl(connection->fd, F_SETFL, O_NONBLOCK) != 0)
        fail(EXIT_MACHINE, "cannot set up the connection to %s: %s", address, strerror(errno));
}

void connection_close(struct connection *connection) {
    close(connection->fd);
    free(connection->in);
    free(connection->out);
    connection->in = connection->out = NULL;
}

void connection_block(struct connection *connection, int wait_ms) {
    struct timeval wait = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
    if (fcntl(connection->fd, F_SETFL, 0) != 0 ||
        setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) != 0 ||
        setsockopt(connection->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) != 0)
        fail(EXIT_MACHINE, "cannot make the connection to %s wait: %s", connection->address, strerror(errno));
}

void connection_unblock(struct connection *connection) {
    if (fcntl(connection->fd, F_SETFL, O_NONBLOCK) != 0)
        fail(EXIT_MACHINE, "cannot stop the connection to %s from waiting: %s", connection->address, strerror(errno));
}

uint8_t *connection_reserve(struct connection *connection, size_t size) {
    if (connection->out_capacity - connection->out_end < size) {
        size_t unsent = connection->out_end - connection->out_begin;
        memmove(connection->out, connection->out + connection->out_begin, unsent);
        connection->out_begin = 0;
        connection->out_end = unsent;
        if (connection->out_capacity - unsent < size)
            fail(EXIT_MACHINE, "output buffer of %zu bytes is too small", connection->out_capacity);
    }
    return connection->out + connection->out_end;
}

void connection_commit(struct connection *connection, size_t size) { connection->out_end += size; }

bool connection_flush(struct connection *connection) {
    while (connection->out_begin < connection->out_end) {
        ssize_t sent = send(connection->fd, connection->out + connection->out_begin,
                            connection->out_end - connection->out_begin, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (sent < 0)
            fail(EXIT_PEER, "sending to %s: %s", connection->address, strerror(errno));
        connection->out_begin += (size_t)sent;
    }
    connection->out_begin = connection->out_end = 0;
    return true;
}

bool connection_fill(struct connection *connection) {
    if (connection->in_begin > 0) {
        memmove(connection->in, connection->in + connection->in_begin, connection->in_end - connection->in_begin);
        connection->in_end -= connection->in_begin;
        connection->in_begin = 0;
    }
    if (connection->in_end == connection->in_capacity)
        fail(EXIT_PEER, "%s sent a frame larger than %zu bytes", connection->address, connection->in_capacity);
    ssize_t received =
        recv(connection->fd, connection->in + connection->in_end, connection->in_capacity - connection->in_end, 0);
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (received < 0)
        fail(EXIT_PEER, "receiving from %s: %s", connection->address, strerror(errno));
    if (received == 0)
        fail(EXIT_PEER, "%s closed the connection", connection->address);
    connection->in_end += (size_t)received;
    return true;
}

const uint8_t *connection_next(struct connection *connection, size_t *size) {
    const uint8_t *frame = connection->in + connection->in_begin;
    int64_t found = frame_size(frame, connection->in_end - connection->in_begin);
    if (found < 0)
        fail(EXIT_PEER, "%s sent a frame with an impossible length word", connection->address);
    if (found == 0)
        return NULL;
    connection->in_begin += (size_t)found;
    *size = (size_t)found;
    return frame;
}
