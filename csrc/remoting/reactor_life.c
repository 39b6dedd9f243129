/* Making and freeing a reactor; its thread runs in between. */
#include "remoting_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int watch(struct pymq_reactor *reactor, int fd, uint64_t tag) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = tag};
    return epoll_ctl(reactor->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void reactor_begin(struct pymq_reactor *reactor) {
    const struct pymq_transport_config *config = &reactor->transport->config;
    pthread_mutex_init(&reactor->turn_lock, NULL);
    pthread_mutex_init(&reactor->slot_lock, NULL);
    reactor->slot_free_first = reactor->slot_free_last = NOBODY;
    reactor->service_due_ms = reactor->idle_due_ms = reactor->pinned_due_ms = INT64_MAX;
    reactor->lane_due_ms = reactor->accept_due_ms = INT64_MAX;
    for (int i = 0; i < IDLE_SLOTS; i++)
        reactor->idle_heads[i] = NOBODY;
    /* Half a wheel of ticks, so that the place of a deadline never laps the one being looked at. */
    if (config->idle_timeout_ms > 0)
        reactor->idle_tick_ms = pymq_max64(1, config->idle_timeout_ms / (IDLE_SLOTS / 2));
    pymq_reactor_read_clocks(reactor);
    if (reactor->idle_tick_ms != 0)
        reactor->idle_position = reactor->now_ms / reactor->idle_tick_ms;
}

/* Into transport->reactors[index], also when it fails: pymq_reactor_free takes what is there. */
int pymq_reactor_make(struct pymq_transport *transport, unsigned index, struct pymq_error *error) {
    struct pymq_reactor *reactor = calloc(1, sizeof *reactor);
    if (reactor == NULL)
        return pymq_fail(error, PYMQ_ENOMEM, 0, "no memory for reactor %u", index);
    transport->reactors[index] = reactor;
    reactor->transport = transport;
    reactor->index = index;
    reactor_begin(reactor);
    reactor->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    reactor->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    reactor->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (reactor->epoll_fd < 0 || reactor->wake_fd < 0 || reactor->event_fd < 0 ||
        watch(reactor, reactor->wake_fd, TAG_WAKE) != 0 || watch(reactor, reactor->event_fd, TAG_EVENT) != 0)
        return pymq_fail(error, PYMQ_EIO, errno, "reactor %u: no epoll or eventfd: %s; raise RLIMIT_NOFILE", index,
                         strerror(errno));
    reactor->slabs = calloc(SLABS_MAX, sizeof *reactor->slabs);
    reactor->read_buffer = malloc(CARRIED_SIZE_MAX + (size_t)transport->config.turn_bytes_max);
    reactor->scratch = malloc(SCRATCH_SIZE);
    if (reactor->slabs == NULL || reactor->read_buffer == NULL || reactor->scratch == NULL)
        return pymq_fail(error, PYMQ_ENOMEM, 0, "no memory for the buffers of reactor %u", index);
    return PYMQ_OK;
}

static void end_connections(struct pymq_reactor *reactor) {
    for (uint32_t slot = 0; slot < reactor->slot_count; slot++) {
        struct pymq_connection *connection = pymq_connection_at(reactor, slot);
        if (atomic_load_explicit(&connection->live, memory_order_relaxed) == 0)
            continue;
        connection->flags &= ~(uint32_t)CONNECTION_OPENED; /* nobody is left to be told */
        pymq_connection_end(connection, false);
    }
    for (uint32_t i = 0; i * CONNECTIONS_PER_SLAB < reactor->slot_count; i++)
        free(atomic_load_explicit(&reactor->slabs[i], memory_order_relaxed));
}

/* After its thread has ended, or when it never began. */
void pymq_reactor_free(struct pymq_reactor *reactor) {
    if (reactor == NULL)
        return;
    pymq_inbox_discard(reactor);
    if (reactor->slabs != NULL)
        end_connections(reactor);
    while (reactor->pool != NULL) {
        struct chunk *chunk = reactor->pool;
        reactor->pool = chunk->next;
        free(chunk);
    }
    if (reactor->epoll_fd >= 0)
        close(reactor->epoll_fd);
    if (reactor->wake_fd >= 0)
        close(reactor->wake_fd);
    if (reactor->event_fd >= 0)
        close(reactor->event_fd);
    pthread_mutex_destroy(&reactor->turn_lock);
    pthread_mutex_destroy(&reactor->slot_lock);
    free(reactor->slabs);
    free(reactor->read_buffer);
    free(reactor->scratch);
    free(reactor);
}
