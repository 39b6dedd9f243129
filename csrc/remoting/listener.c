/* Listening and accepting: one socket per address, served by the first reactor, which spreads connections over all.
 *
 * Accepting pauses, with a counter and without a busy loop, when descriptors or memory run out, and when the control
 * loop is so far behind that the events of more connections would be unbounded.
 */
#include "remoting_internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096
#define ACCEPTS_PER_TURN 64
#define ACCEPT_PAUSE_MS 100
#define TLS_HANDSHAKE_BYTE 0x16

static int listener_socket(const struct addrinfo *address) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int one = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        int kept = errno;
        close(fd);
        errno = kept;
        return -1;
    }
    return fd;
}

static int32_t bound_port_of(int fd) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return -1;
    if (address.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)&address)->sin_port);
}

/* Under the listener lock. */
static int listener_add(struct pymq_transport *transport, int fd) {
    unsigned index = atomic_load(&transport->listener_count);
    if (index == LISTENERS_MAX || atomic_load(&transport->draining))
        return PYMQ_EINVAL;
    transport->listeners[index] = fd;
    atomic_store(&transport->listener_count, index + 1);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = TAG_LISTENER + index};
    if (epoll_ctl(transport->reactors[0]->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        atomic_store(&transport->listener_count, index);
        return PYMQ_EIO;
    }
    return PYMQ_OK;
}

int pymq_transport_listen(struct pymq_transport *transport, const char *host, int32_t port, int32_t *bound_port,
                          struct pymq_error *error) {
    char service[16];
    if (port < 0 || port > 65535)
        return pymq_fail(error, PYMQ_EINVAL, 0, "cannot listen on %s:%d: a port lies between 0 and 65535", host, port);
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, service, &hints, &found);
    if (code != 0)
        return pymq_fail(error, PYMQ_EINVAL, 0, "cannot listen on %s:%d: %s", host, port, gai_strerror(code));
    int fd = listener_socket(found);
    int sys_errno = errno;
    freeaddrinfo(found);
    if (fd < 0)
        return pymq_fail(error, PYMQ_EIO, sys_errno, "cannot listen on %s:%d: %s%s", host, port, strerror(sys_errno),
                         sys_errno == EADDRINUSE ? "; another process has that port, choose another or 0" : "");
    int32_t bound = bound_port_of(fd);
    pthread_mutex_lock(&transport->listener_lock);
    int status = listener_add(transport, fd);
    pthread_mutex_unlock(&transport->listener_lock);
    if (status != PYMQ_OK) {
        close(fd);
        return pymq_fail(error, status, 0, "cannot listen on %s:%d: the transport is stopping, or has %d listeners",
                         host, port, LISTENERS_MAX);
    }
    if (bound_port != NULL)
        *bound_port = bound;
    return PYMQ_OK;
}

/* An IPv4 address that came in through an IPv6 socket is an IPv4 address to everybody else. */
static void host_of(const struct sockaddr_storage *address, struct pymq_host *host) {
    memset(host, 0, sizeof *host);
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *wide = (const struct sockaddr_in6 *)address;
        host->port = ntohs(wide->sin6_port);
        host->size = IN6_IS_ADDR_V4MAPPED(&wide->sin6_addr) ? 4 : 16;
        memcpy(host->address, wide->sin6_addr.s6_addr + (16 - host->size), host->size);
    } else {
        const struct sockaddr_in *narrow = (const struct sockaddr_in *)address;
        host->port = ntohs(narrow->sin_port);
        host->size = 4;
        memcpy(host->address, &narrow->sin_addr, 4);
    }
}

struct pymq_reactor *pymq_reactor_least_loaded(struct pymq_transport *transport) {
    struct pymq_reactor *best = transport->reactors[0];
    for (unsigned i = 1; i < transport->reactor_count; i++) {
        struct pymq_reactor *other = transport->reactors[i];
        if (atomic_load_explicit(&other->open, memory_order_relaxed) <
            atomic_load_explicit(&best->open, memory_order_relaxed))
            best = other;
    }
    return best;
}

static void accepted(struct pymq_reactor *reactor, int fd, const struct sockaddr_storage *address) {
    struct pymq_transport *transport = reactor->transport;
    struct pymq_host peer;
    int one = 1;
    host_of(address, &peer);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    struct pymq_reactor *chosen = pymq_reactor_least_loaded(transport);
    struct pymq_connection *connection = pymq_connection_make(chosen, fd, &peer);
    if (connection == NULL) {
        count(&reactor->counters.refused, 1);
        close(fd);
        return;
    }
    count(&reactor->counters.accepted, 1);
    uint32_t flags = atomic_load(&transport->tls_mode) != PYMQ_TLS_DISABLED ? CONNECTION_FIRST_BYTE : 0;
    if (chosen == reactor) {
        pymq_connection_start(connection, flags);
    } else if (pymq_reactor_post(chosen, LETTER_START, connection_id(connection), flags, NULL) == PYMQ_OK) {
        pymq_inbox_ring(chosen);
    } else {
        pymq_connection_abandon(connection);
        close(fd);
    }
}

static void arm_listeners(struct pymq_transport *transport, uint32_t events) {
    pthread_mutex_lock(&transport->listener_lock);
    for (unsigned i = 0; i < atomic_load(&transport->listener_count); i++) {
        struct epoll_event event = {.events = events, .data.u64 = TAG_LISTENER + i};
        epoll_ctl(transport->reactors[0]->epoll_fd, EPOLL_CTL_MOD, transport->listeners[i], &event);
    }
    pthread_mutex_unlock(&transport->listener_lock);
}

static void pause_accepting(struct pymq_reactor *reactor) {
    count(&reactor->counters.accept_failed, 1);
    reactor->accept_due_ms = reactor->now_ms + ACCEPT_PAUSE_MS;
    arm_listeners(reactor->transport, 0);
}

void pymq_listener_resume(struct pymq_reactor *reactor) {
    reactor->accept_due_ms = INT64_MAX;
    arm_listeners(reactor->transport, EPOLLIN);
}

/* Every connection brings two events. More than this says that nobody takes them. */
static bool events_overflow(const struct pymq_transport *transport) {
    int64_t events_max = 2 * (int64_t)transport->config.connections_max + ACCEPTS_PER_TURN;
    return atomic_load_explicit(&transport->lanes[PYMQ_LANE_EVENT].waiting, memory_order_relaxed) >=
           pymq_min64(events_max, transport->config.lane_count_max[PYMQ_LANE_EVENT]);
}

void pymq_listener_accept(struct pymq_reactor *reactor, unsigned index) {
    struct pymq_transport *transport = reactor->transport;
    if (reactor->draining)
        return;
    int listener = transport->listeners[index];
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        if (events_overflow(transport)) {
            pause_accepting(reactor);
            return;
        }
        struct sockaddr_storage address;
        socklen_t size = sizeof address;
        int fd = accept4(listener, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            accepted(reactor, fd, &address);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            pause_accepting(reactor);
        if (errno != ECONNABORTED && errno != EINTR) /* anything else: not now; the level says when again */
            return;
    }
}

/* On the first reactor, when the transport drains. */
void pymq_listeners_close(struct pymq_transport *transport) {
    pthread_mutex_lock(&transport->listener_lock);
    for (unsigned i = 0; i < atomic_load(&transport->listener_count); i++) {
        epoll_ctl(transport->reactors[0]->epoll_fd, EPOLL_CTL_DEL, transport->listeners[i], NULL);
        close(transport->listeners[i]);
    }
    atomic_store(&transport->listener_count, 0);
    pthread_mutex_unlock(&transport->listener_lock);
}

/* The first byte of a connection tells a TLS handshake from a frame, whose first byte is the top of a size of at most
 * 16 MiB. False: the connection is not to be read, now (no byte yet) or here (it has left, or is doomed). */
bool pymq_first_byte_look(struct pymq_connection *connection) {
    struct pymq_reactor *reactor = connection->reactor;
    struct pymq_transport *transport = reactor->transport;
    uint8_t first;
    ssize_t got = recv(connection->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        pymq_connection_doom(connection);
        return false;
    }
    if (first == TLS_HANDSHAKE_BYTE) {
        struct pymq_host peer = connection->peer;
        int fd = connection->fd;
        pymq_connection_end(connection, true);
        pymq_lane_put_event(transport, PYMQ_HANDED_TLS, 0, &peer, reactor->now_us, fd);
        return false;
    }
    if (atomic_load(&transport->tls_mode) == PYMQ_TLS_ENFORCING) {
        pymq_connection_doom(connection);
        return false;
    }
    connection->flags = (connection->flags & ~(uint32_t)CONNECTION_FIRST_BYTE) | CONNECTION_OPENED;
    pymq_lane_put_event(transport, PYMQ_HANDED_OPENED, connection_id(connection), &connection->peer, reactor->now_us,
                        -1);
    return true;
}
