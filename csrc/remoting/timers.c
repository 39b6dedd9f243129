/* When a reactor wakes without an event: the service's timer, idle connections, pinned spans, waiting requests.
 *
 * Idle connections stand on a wheel by the time at which they would be idle for too long if nothing more came.
 * Activity only notes the time; a connection found active when its place comes up is put to its later place. So a
 * busy connection costs one move per time-out, and an idle one nothing.
 */
#include "remoting_internal.h"

#include <limits.h>
#include <time.h>

static int64_t idle_deadline_ms(const struct pymq_connection *connection) {
    return connection->active_ms + connection->reactor->transport->config.idle_timeout_ms;
}

void pymq_idle_add(struct pymq_connection *connection) {
    struct pymq_reactor *reactor = connection->reactor;
    if (reactor->idle_tick_ms == 0)
        return;
    int64_t tick = idle_deadline_ms(connection) / reactor->idle_tick_ms + 1;
    uint16_t place = (uint16_t)(tick % IDLE_SLOTS);
    uint32_t next = reactor->idle_heads[place];
    connection->idle_place = place;
    connection->idle_previous = NOBODY;
    connection->idle_next = next;
    if (next != NOBODY)
        pymq_connection_at(reactor, next)->idle_previous = connection->slot;
    reactor->idle_heads[place] = connection->slot;
    connection->flags |= CONNECTION_ON_WHEEL;
    reactor->idle_due_ms = pymq_min64(reactor->idle_due_ms, tick * reactor->idle_tick_ms);
}

void pymq_idle_remove(struct pymq_connection *connection) {
    struct pymq_reactor *reactor = connection->reactor;
    if ((connection->flags & CONNECTION_ON_WHEEL) == 0)
        return;
    connection->flags &= ~(uint32_t)CONNECTION_ON_WHEEL;
    if (connection->idle_previous == NOBODY)
        reactor->idle_heads[connection->idle_place] = connection->idle_next;
    else
        pymq_connection_at(reactor, connection->idle_previous)->idle_next = connection->idle_next;
    if (connection->idle_next != NOBODY)
        pymq_connection_at(reactor, connection->idle_next)->idle_previous = connection->idle_previous;
}

static void idle_check_place(struct pymq_reactor *reactor, unsigned place) {
    uint32_t slot = reactor->idle_heads[place];
    reactor->idle_heads[place] = NOBODY;
    while (slot != NOBODY) {
        struct pymq_connection *connection = pymq_connection_at(reactor, slot);
        slot = connection->idle_next;
        connection->flags &= ~(uint32_t)CONNECTION_ON_WHEEL;
        if (idle_deadline_ms(connection) > reactor->now_ms) {
            pymq_idle_add(connection);
        } else if ((connection->flags & CONNECTION_DOOMED) == 0) {
            count(&reactor->counters.idle_closed, 1);
            pymq_connection_doom(connection);
        }
    }
}

/* Every place whose time has come since the last look, then the next place that holds anybody. */
static void idle_check(struct pymq_reactor *reactor) {
    int64_t now_tick = reactor->now_ms / reactor->idle_tick_ms;
    int64_t from = pymq_max64(reactor->idle_position + 1, now_tick - IDLE_SLOTS + 1);
    for (int64_t tick = from; tick <= now_tick; tick++)
        idle_check_place(reactor, (unsigned)(tick % IDLE_SLOTS));
    reactor->idle_position = now_tick;
    reactor->idle_due_ms = INT64_MAX;
    for (int64_t tick = now_tick + 1; tick <= now_tick + IDLE_SLOTS; tick++) {
        if (reactor->idle_heads[tick % IDLE_SLOTS] != NOBODY) {
            reactor->idle_due_ms = tick * reactor->idle_tick_ms;
            break;
        }
    }
}

void pymq_reactor_set_timer(struct pymq_reactor *reactor, int64_t due_ms) {
    reactor->service_due_ms = pymq_min64(reactor->service_due_ms, due_ms);
}

static int64_t earliest_due_ms(const struct pymq_reactor *reactor) {
    int64_t due = pymq_min64(reactor->service_due_ms, reactor->idle_due_ms);
    due = pymq_min64(due, pymq_min64(reactor->pinned_due_ms, reactor->lane_due_ms));
    return pymq_min64(due, reactor->accept_due_ms);
}

/* For epoll_wait: 0 while there is work, -1 when nothing but an event can bring some. */
int pymq_timers_wait_ms(const struct pymq_reactor *reactor) {
    if (reactor->ready_first != NULL || reactor->dirty_first != NULL)
        return 0;
    int64_t due = earliest_due_ms(reactor);
    if (due == INT64_MAX)
        return -1;
    struct timespec now; /* the turn may have been long; the turn's own clock stays what it was until the next one */
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t wait = due - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    return wait <= 0 ? 0 : wait > INT_MAX ? INT_MAX : (int)wait;
}

void pymq_timers_run(struct pymq_reactor *reactor) {
    int64_t now_ms = reactor->now_ms;
    if (earliest_due_ms(reactor) > now_ms)
        return;
    const struct pymq_service *service = reactor->transport->service;
    if (reactor->service_due_ms <= now_ms) {
        reactor->service_due_ms = INT64_MAX;
        if (service != NULL && service->timer != NULL) {
            int64_t due_ms = service->timer(service->context, reactor, now_ms);
            pymq_reactor_set_timer(reactor, due_ms);
        }
    }
    if (reactor->idle_due_ms <= now_ms)
        idle_check(reactor);
    if (reactor->pinned_due_ms <= now_ms)
        pymq_spans_check(reactor);
    if (reactor->lane_due_ms <= now_ms) {
        reactor->lane_due_ms = INT64_MAX;
        int64_t due_ms = pymq_lanes_expire(reactor->transport, reactor->now_us);
        if (due_ms != INT64_MAX)
            reactor->lane_due_ms = pymq_max64(due_ms, now_ms + LANE_TICK_MS);
    }
    if (reactor->accept_due_ms <= now_ms)
        pymq_listener_resume(reactor);
}
