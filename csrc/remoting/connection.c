/* Connections: slots, generations, beginning and end.
 *
 * An id is reactor, slot and generation. A slot is used again only under the next generation and, the free list being a
 * queue, as late as possible; slabs of slots stay until the transport is freed, so that any thread may look at `live`.
 */
#include "remoting_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_READS_MAX 16 /* reads of what is thrown away so that close() does not reset the last answers */

struct pymq_reactor *pymq_reactor_of(struct pymq_transport *transport, pymq_connection_id id) {
    unsigned index = (unsigned)(id >> 56);
    return index < transport->reactor_count ? transport->reactors[index] : NULL;
}

struct pymq_connection *pymq_connection_at(struct pymq_reactor *reactor, uint32_t slot) {
    struct pymq_connection *slab =
        atomic_load_explicit(&reactor->slabs[slot / CONNECTIONS_PER_SLAB], memory_order_acquire);
    return slab != NULL ? &slab[slot % CONNECTIONS_PER_SLAB] : NULL;
}

struct pymq_connection *pymq_connection_named(struct pymq_reactor *reactor, pymq_connection_id id) {
    struct pymq_connection *connection = pymq_connection_at(reactor, (uint32_t)(id >> 32) & (SLOTS_MAX - 1));
    uint32_t generation = (uint32_t)id;
    if (connection == NULL || generation == 0 ||
        atomic_load_explicit(&connection->live, memory_order_acquire) != generation)
        return NULL;
    return connection;
}

/* A slot nobody uses, under the slot lock; NULL without memory. */
static struct pymq_connection *slot_take(struct pymq_reactor *reactor) {
    uint32_t slot = reactor->slot_free_first;
    if (slot != NOBODY) {
        struct pymq_connection *connection = pymq_connection_at(reactor, slot);
        reactor->slot_free_first = connection->idle_next;
        if (reactor->slot_free_first == NOBODY)
            reactor->slot_free_last = NOBODY;
        return connection;
    }
    slot = reactor->slot_count;
    if (slot == SLOTS_MAX)
        return NULL;
    uint32_t place = slot / CONNECTIONS_PER_SLAB;
    struct pymq_connection *slab = atomic_load_explicit(&reactor->slabs[place], memory_order_relaxed);
    if (slab == NULL) {
        slab = calloc(CONNECTIONS_PER_SLAB, sizeof *slab);
        if (slab == NULL)
            return NULL;
        for (uint32_t i = 0; i < CONNECTIONS_PER_SLAB; i++) {
            slab[i].slot = place * CONNECTIONS_PER_SLAB + i;
            slab[i].reactor = reactor;
        }
        atomic_store_explicit(&reactor->slabs[place], slab, memory_order_release);
    }
    reactor->slot_count++;
    return &slab[slot % CONNECTIONS_PER_SLAB];
}

static void slot_give_back(struct pymq_connection *connection) {
    struct pymq_reactor *reactor = connection->reactor;
    pthread_mutex_lock(&reactor->slot_lock);
    connection->idle_next = NOBODY;
    if (reactor->slot_free_last == NOBODY)
        reactor->slot_free_first = connection->slot;
    else
        pymq_connection_at(reactor, reactor->slot_free_last)->idle_next = connection->slot;
    reactor->slot_free_last = connection->slot;
    pthread_mutex_unlock(&reactor->slot_lock);
}

/* Any thread. The connection can be named at once; its reactor starts it when the letter arrives. NULL when there are
 * connections_max already, or no memory; the descriptor stays the caller's then. */
struct pymq_connection *pymq_connection_make(struct pymq_reactor *reactor, int fd, const struct pymq_host *peer) {
    struct pymq_transport *transport = reactor->transport;
    if (atomic_fetch_add(&transport->open, 1) >= transport->config.connections_max) {
        atomic_fetch_sub(&transport->open, 1);
        return NULL;
    }
    pthread_mutex_lock(&reactor->slot_lock);
    struct pymq_connection *connection = slot_take(reactor);
    if (connection != NULL) {
        connection->generation = connection->generation == UINT32_MAX ? 1 : connection->generation + 1;
        connection->flags = 0;
        connection->fd = fd;
        connection->peer = *peer;
        connection->output_bytes = 0;
        connection->reserved = 0;
        atomic_store_explicit(&connection->live, connection->generation, memory_order_release);
    }
    pthread_mutex_unlock(&reactor->slot_lock);
    if (connection == NULL) {
        atomic_fetch_sub(&transport->open, 1);
        return NULL;
    }
    atomic_fetch_add_explicit(&reactor->open, 1, memory_order_relaxed);
    return connection;
}

/* Undo pymq_connection_make when its reactor cannot be told. Only the caller's thread knows the connection. */
void pymq_connection_abandon(struct pymq_connection *connection) {
    struct pymq_reactor *reactor = connection->reactor;
    atomic_store_explicit(&connection->live, 0, memory_order_release);
    slot_give_back(connection);
    atomic_fetch_sub_explicit(&reactor->open, 1, memory_order_relaxed);
    atomic_fetch_sub(&reactor->transport->open, 1);
}

/* Edge-triggered, both directions, once and for all: no epoll_ctl happens again until the connection ends. */
void pymq_connection_start(struct pymq_connection *connection, uint32_t flags) {
    struct pymq_reactor *reactor = connection->reactor;
    connection->flags = CONNECTION_STARTED | flags;
    connection->active_ms = reactor->now_ms;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    if ((flags & CONNECTION_FIRST_BYTE) == 0) {
        connection->flags |= CONNECTION_OPENED;
        if ((flags & CONNECTION_CLIENT) == 0)
            pymq_lane_put_event(reactor->transport, PYMQ_HANDED_OPENED, connection_id(connection), &connection->peer,
                                reactor->now_us, -1);
    }
    if ((flags & CONNECTION_CLIENT) == 0)
        pymq_idle_add(connection);
    if (epoll_ctl(reactor->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0)
        pymq_connection_doom(connection);
}

/* Nothing more is read from it or written to it; its memory stays until the end of the turn. */
void pymq_connection_doom(struct pymq_connection *connection) {
    if (connection->flags & CONNECTION_DOOMED)
        return;
    connection->flags |= CONNECTION_DOOMED;
    connection->next_doomed = connection->reactor->doomed_first;
    connection->reactor->doomed_first = connection;
}

/* What the peer sent meanwhile would make close() send a reset, which can overtake and destroy the last answers. */
static void discard_input(int fd, uint8_t *buffer, size_t size) {
    for (int i = 0; i < LINGER_READS_MAX && recv(fd, buffer, size, MSG_DONTWAIT) > 0; i++)
        ;
}

/* Give everything back and tell those who know it. With `keep_fd` the socket lives on elsewhere (TLS). */
void pymq_connection_end(struct pymq_connection *connection, bool keep_fd) {
    struct pymq_reactor *reactor = connection->reactor;
    struct pymq_transport *transport = reactor->transport;
    pymq_connection_id id = connection_id(connection);
    atomic_store_explicit(&connection->live, 0, memory_order_release);
    pymq_idle_remove(connection);
    pymq_input_free(connection);
    pymq_output_free(connection);
    epoll_ctl(reactor->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    if (!keep_fd) {
        /* Shut down first: a forked child may hold the descriptor too, and then close() alone tells the peer nothing.
         */
        bool orderly = (connection->flags & CONNECTION_LAST_WRITES) != 0 || atomic_load(&transport->stopping);
        shutdown(connection->fd, orderly ? SHUT_WR : SHUT_RDWR);
        if (orderly)
            discard_input(connection->fd, reactor->read_buffer, CARRIED_SIZE_MAX);
        close(connection->fd);
        count(&reactor->counters.closed, 1);
    }
    uint32_t flags = connection->flags;
    struct pymq_host peer = connection->peer;
    connection->fd = -1;
    connection->flags = 0;
    slot_give_back(connection);
    atomic_fetch_sub_explicit(&reactor->open, 1, memory_order_relaxed);
    atomic_fetch_sub(&transport->open, 1);
    if ((flags & CONNECTION_OPENED) == 0)
        return;
    if (transport->service != NULL && transport->service->closed != NULL)
        transport->service->closed(transport->service->context, reactor, id);
    pymq_lane_put_event(transport, PYMQ_HANDED_CLOSED, id, &peer, reactor->now_us, -1);
}

/* The ready and the pinning list are the two that live on between turns. */
static void forget_doomed(struct pymq_reactor *reactor) {
    struct pymq_connection **link = &reactor->ready_first;
    reactor->ready_last = NULL;
    while (*link != NULL) {
        if ((*link)->flags & CONNECTION_DOOMED) {
            *link = (*link)->next_ready;
        } else {
            reactor->ready_last = *link;
            link = &(*link)->next_ready;
        }
    }
    link = &reactor->pinning_first;
    while (*link != NULL) {
        if ((*link)->flags & CONNECTION_DOOMED)
            *link = (*link)->next_pinning;
        else
            link = &(*link)->next_pinning;
    }
}

void pymq_connection_end_doomed(struct pymq_reactor *reactor) {
    if (reactor->doomed_first == NULL)
        return;
    forget_doomed(reactor);
    while (reactor->doomed_first != NULL) {
        struct pymq_connection *connection = reactor->doomed_first;
        reactor->doomed_first = connection->next_doomed;
        pymq_connection_end(connection, false);
    }
}

pymq_connection_id pymq_connection_name(const struct pymq_connection *connection) { return connection_id(connection); }

const struct pymq_host *pymq_connection_peer(const struct pymq_connection *connection) { return &connection->peer; }

struct pymq_connection *pymq_reactor_find(struct pymq_reactor *reactor, pymq_connection_id connection) {
    if (connection >> 56 != reactor->index)
        return NULL;
    struct pymq_connection *found = pymq_connection_named(reactor, connection);
    if (found == NULL || (found->flags & (CONNECTION_STARTED | CONNECTION_DOOMED)) != CONNECTION_STARTED)
        return NULL;
    return found;
}
