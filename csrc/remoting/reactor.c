/* The loop of one reactor thread: sleep, then one turn.
 *
 *   inbox      what other threads want sent, started, closed
 *   events     which sockets have something, or take something again
 *   service    its eventfd rang
 *   input      one read per connection, frames served as they lie
 *   settle     the service appends and answers what it collected
 *   timers
 *   output     one send per connection
 *   end        of connections that ended
 *
 * The turn's lock is held from inbox to end and never while sleeping.
 */
#include "remoting_internal.h"

#include <time.h>

void pymq_reactor_read_clocks(struct pymq_reactor *reactor) {
    struct timespec monotonic, wall;
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    clock_gettime(CLOCK_REALTIME, &wall);
    reactor->now_us = (int64_t)monotonic.tv_sec * 1000000 + monotonic.tv_nsec / 1000;
    reactor->now_ms = reactor->now_us / 1000;
    reactor->wall_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
}

/* To be read in the next round of inputs: in this turn when called before, in the next one otherwise. */
void pymq_reactor_make_ready(struct pymq_reactor *reactor, struct pymq_connection *connection) {
    if (connection->flags & CONNECTION_READY)
        return;
    connection->flags |= CONNECTION_READY;
    connection->next_ready = NULL;
    if (reactor->ready_last != NULL)
        reactor->ready_last->next_ready = connection;
    else
        reactor->ready_first = connection;
    reactor->ready_last = connection;
}

/* Mutexes are not fair: a busy reactor could take its lock again and again before an excluder wakes. So it passes
 * through the excluder's own lock first, when there is one, and that is free only after include. */
static void turn_begin(struct pymq_reactor *reactor) {
    struct pymq_transport *transport = reactor->transport;
    if (atomic_load_explicit(&transport->excluders, memory_order_relaxed) != 0) {
        pthread_mutex_lock(&transport->exclude_lock);
        pthread_mutex_unlock(&transport->exclude_lock);
    }
    pthread_mutex_lock(&reactor->turn_lock);
    pymq_reactor_read_clocks(reactor);
}

static void turn_end(struct pymq_reactor *reactor) {
    do { /* the service may answer others when it hears that one has ended */
        pymq_output_write_all(reactor);
        pymq_connection_end_doomed(reactor);
    } while (reactor->dirty_first != NULL);
    if (reactor->written_due && reactor->transport->service->written != NULL)
        reactor->transport->service->written(reactor->transport->service->context, reactor);
    reactor->written_due = false;
    count(&reactor->counters.turns, 1);
    pthread_mutex_unlock(&reactor->turn_lock);
}

static void drain_begin(struct pymq_reactor *reactor) {
    reactor->draining = true;
    reactor->accept_due_ms = INT64_MAX;
    if (reactor->index == 0)
        pymq_listeners_close(reactor->transport);
    while (reactor->ready_first != NULL) {
        reactor->ready_first->flags &= ~(uint32_t)CONNECTION_READY;
        reactor->ready_first = reactor->ready_first->next_ready;
    }
    reactor->ready_last = NULL;
    atomic_store(&reactor->drain_seen, true);
}

static void connection_event(struct pymq_reactor *reactor, struct pymq_connection *connection, uint32_t events) {
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        connection->flags |= CONNECTION_READABLE;
        if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
            connection->flags |= CONNECTION_HANGUP;
        pymq_reactor_make_ready(reactor, connection);
    }
    if ((events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) && (connection->flags & CONNECTION_WRITE_FULL)) {
        connection->flags &= ~(uint32_t)CONNECTION_WRITE_FULL;
        pymq_output_make_dirty(connection);
    }
}

static void events_serve(struct pymq_reactor *reactor, const struct epoll_event *events, int event_count) {
    const struct pymq_service *service = reactor->transport->service;
    bool rang = false;
    for (int i = 0; i < event_count; i++) {
        uint64_t tag = events[i].data.u64;
        if (tag >= TAG_LISTENER + LISTENERS_MAX)
            connection_event(reactor, events[i].data.ptr, events[i].events);
        else if (tag >= TAG_LISTENER)
            pymq_listener_accept(reactor, (unsigned)(tag - TAG_LISTENER));
        else if (tag == TAG_EVENT)
            rang = true;
    }
    if (rang && service != NULL && service->event != NULL)
        service->event(service->context, reactor);
}

/* Each connection that has something once, until the turn has read enough; the rest are first in the next turn. */
static void inputs_serve(struct pymq_reactor *reactor) {
    size_t got = 0;
    struct pymq_connection *last = reactor->ready_last, *connection = NULL;
    while (reactor->ready_first != NULL && connection != last && got < TURN_BYTES_ALL_MAX) {
        connection = reactor->ready_first;
        reactor->ready_first = connection->next_ready;
        if (reactor->ready_first == NULL)
            reactor->ready_last = NULL;
        connection->flags &= ~(uint32_t)CONNECTION_READY;
        if ((connection->flags & CONNECTION_DOOMED) == 0 && !reactor->draining)
            got += pymq_connection_read(connection);
    }
    const struct pymq_service *service = reactor->transport->service;
    if (reactor->settle_due && service->settle != NULL)
        service->settle(service->context, reactor);
    reactor->written_due = reactor->written_due || reactor->settle_due;
    reactor->settle_due = false;
}

/* Says that it sleeps before it looks at the inbox a last time; see inbox.c. */
static int sleep_for_events(struct pymq_reactor *reactor, struct epoll_event *events) {
    int wait_ms = pymq_timers_wait_ms(reactor);
    if (wait_ms != 0) {
        atomic_store(&reactor->sleeping, true);
        if (atomic_load(&reactor->inbox) != NULL || atomic_load(&reactor->transport->stopping) ||
            atomic_load(&reactor->transport->draining) != reactor->draining)
            wait_ms = 0;
    }
    int found = epoll_wait(reactor->epoll_fd, events, EVENTS_PER_TURN, wait_ms);
    atomic_store_explicit(&reactor->sleeping, false, memory_order_relaxed);
    return found;
}

static void turn(struct pymq_reactor *reactor, const struct epoll_event *events, int event_count) {
    turn_begin(reactor);
    if (!reactor->draining && atomic_load_explicit(&reactor->transport->draining, memory_order_relaxed))
        drain_begin(reactor);
    pymq_inbox_empty(reactor);
    events_serve(reactor, events, event_count);
    inputs_serve(reactor);
    pymq_timers_run(reactor);
    turn_end(reactor);
}

void *pymq_reactor_run(void *context) {
    struct pymq_reactor *reactor = context;
    struct epoll_event events[EVENTS_PER_TURN];
    atomic_store_explicit(&reactor->self, (uintptr_t)pthread_self(), memory_order_relaxed);
    turn_begin(reactor);
    reactor->service_due_ms = reactor->now_ms; /* the service's timer, once at the start */
    pymq_timers_run(reactor);
    turn_end(reactor);
    while (!atomic_load_explicit(&reactor->transport->stopping, memory_order_relaxed)) {
        int found = sleep_for_events(reactor, events);
        turn(reactor, events, found > 0 ? found : 0);
    }
    atomic_store_explicit(&reactor->self, 0, memory_order_relaxed);
    return NULL;
}

unsigned pymq_reactor_index(const struct pymq_reactor *reactor) { return reactor->index; }

struct pymq_transport *pymq_reactor_transport(const struct pymq_reactor *reactor) { return reactor->transport; }

int pymq_reactor_event_fd(const struct pymq_reactor *reactor) { return reactor->event_fd; }

int64_t pymq_reactor_now_ms(const struct pymq_reactor *reactor) { return reactor->now_ms; }

int64_t pymq_reactor_wall_ms(const struct pymq_reactor *reactor) { return reactor->wall_ms; }
