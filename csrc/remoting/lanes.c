/* Hand-over: bounded queues of frames between the reactors and the control loop, and one wake-up for all of them.
 *
 * A lane is a list under a lock: what passes here costs microseconds of Python anyway. The wake-up is an eventfd with
 * a flag that says whether it is raised, so that a busy loop is not rung for every request. The loop lowers it when
 * all lanes are empty and looks again afterwards; a reactor first counts its entry in and then looks at the flag.
 */
#include "remoting_internal.h"

#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define REMARK_SIZE 256

static const char *const lane_names[PYMQ_LANES] = {"client", "send", "pull", "admin", "reply", "event"};

void pymq_lanes_make(struct pymq_transport *transport) {
    for (int i = 0; i < PYMQ_LANES; i++)
        pthread_mutex_init(&transport->lanes[i].lock, NULL);
}

/* ---- which lane --------------------------------------------------------------------------------------------- */

static uint64_t lane_row(int32_t code, enum pymq_lane lane) { return (uint64_t)(uint32_t)code << 8 | (lane + 1u); }

static size_t lane_place(int32_t code) { return ((uint32_t)code * 2654435761u) % LANE_ROWS; }

/* A handful of codes are said once at the start. A full table leaves the rest in the ADMIN lane. */
void pymq_transport_set_lane(struct pymq_transport *transport, int32_t code, enum pymq_lane lane) {
    size_t place = lane_place(code);
    for (size_t tries = 0; tries < LANE_ROWS; tries++, place = (place + 1) % LANE_ROWS) {
        uint64_t row = atomic_load_explicit(&transport->lane_rows[place], memory_order_relaxed);
        if (row == 0 || (int32_t)(uint32_t)(row >> 8) == code) {
            atomic_store_explicit(&transport->lane_rows[place], lane_row(code, lane), memory_order_relaxed);
            return;
        }
    }
}

enum pymq_lane pymq_lane_of(const struct pymq_transport *transport, int32_t code) {
    size_t place = lane_place(code);
    for (size_t tries = 0; tries < LANE_ROWS; tries++, place = (place + 1) % LANE_ROWS) {
        uint64_t row = atomic_load_explicit(&transport->lane_rows[place], memory_order_relaxed);
        if (row == 0)
            break;
        if ((int32_t)(uint32_t)(row >> 8) == code)
            return (enum pymq_lane)((row & 0xff) - 1);
    }
    return PYMQ_LANE_ADMIN;
}

/* ---- the wake-up -------------------------------------------------------------------------------------------- */

static void wake_raise(struct pymq_transport *transport) {
    if (atomic_load(&transport->wake_raised) || atomic_exchange(&transport->wake_raised, true))
        return;
    uint64_t one = 1;
    ssize_t written = write(transport->wake_fd, &one, sizeof one);
    (void)written;
    atomic_fetch_add_explicit(&transport->wakes, 1, memory_order_relaxed);
}

void pymq_transport_clear_wake(struct pymq_transport *transport) {
    if (atomic_load(&transport->waiting) > 0)
        return;
    /* Also when it does not count as raised: who raised it may have been held up between saying so and writing, and
     * what it then writes must not stay there, waking a loop for nothing again and again. */
    uint64_t rings;
    ssize_t got = read(transport->wake_fd, &rings, sizeof rings);
    (void)got; /* nothing to read: another thread was faster */
    atomic_store(&transport->wake_raised, false);
    if (atomic_load(&transport->waiting) > 0)
        wake_raise(transport);
}

int pymq_transport_wake_fd(const struct pymq_transport *transport) { return transport->wake_fd; }

/* ---- putting in --------------------------------------------------------------------------------------------- */

static void handed_free(struct pymq_handed *handed) {
    if (handed != NULL)
        pymq_buffer_free(handed, sizeof *handed + handed->size);
}

static struct pymq_handed *handed_make(pymq_connection_id id, const struct pymq_host *peer, int64_t now_us,
                                       const uint8_t *frame, size_t size) {
    struct pymq_handed *handed = pymq_buffer_make(sizeof *handed + size);
    if (handed == NULL)
        return NULL;
    memset(handed, 0, sizeof *handed);
    handed->connection = id;
    handed->peer = *peer;
    handed->received_us = now_us;
    handed->code = -1;
    handed->fd = -1;
    handed->size = (uint32_t)size;
    if (size != 0)
        memcpy(handed->frame, frame, size);
    return handed;
}

/* Under the lane's lock. */
static void lane_append(struct pymq_transport *transport, struct lane *lane, struct pymq_handed *handed) {
    if (lane->last != NULL)
        lane->last->next = handed;
    else
        lane->first = handed;
    lane->last = handed;
    lane->bytes += handed->size;
    atomic_fetch_add_explicit(&lane->waiting, 1, memory_order_relaxed);
    atomic_fetch_add(&transport->waiting, 1);
}

/* Which limit of `lane` one more frame of `size` bytes would exceed, as the words of a remark; 0 for none. What was
 * taken and is not answered counts: otherwise whoever takes moves the queue to where nothing bounds it. A frame is
 * never refused by an empty lane, however large it is. */
static int lane_refusal(const struct pymq_transport *transport, enum pymq_lane which, const struct lane *lane,
                        size_t size, char *remark) {
    int64_t held = atomic_load_explicit(&lane->waiting, memory_order_relaxed) +
                   atomic_load_explicit(&lane->running, memory_order_relaxed);
    int64_t bytes = lane->bytes + atomic_load_explicit(&lane->running_bytes, memory_order_relaxed);
    int64_t count_max = transport->config.lane_count_max[which], bytes_max = transport->config.lane_bytes_max[which];
    const char *words = "[REJECTREQUEST]system busy, start flow control for a while";
    if (held >= count_max)
        return snprintf(remark, REMARK_SIZE, "%s: lane %s holds %lld of %lld requests", words, lane_names[which],
                        (long long)held, (long long)count_max);
    if (held > 0 && bytes + (int64_t)size > bytes_max)
        return snprintf(remark, REMARK_SIZE, "%s: lane %s holds %lld of %lld bytes", words, lane_names[which],
                        (long long)bytes, (long long)bytes_max);
    return 0;
}

/* Waiting requests grow old: the reactor that put one in looks when that is so. */
static void arm_expiry(const struct pymq_transport *transport, enum pymq_lane which) {
    struct pymq_reactor *reactor = reactor_here(transport);
    int32_t wait_ms = transport->config.lane_wait_ms[which];
    if (reactor != NULL && wait_ms > 0)
        reactor->lane_due_ms = pymq_min64(reactor->lane_due_ms, reactor->now_ms + wait_ms);
}

/* An unreadable frame is told only when it came from the wire, as the service was told of it then: a hold that ended
 * with it is the service's own. */
static void tell_dropped(const struct pymq_transport *transport, pymq_connection_id id, int32_t code, uint8_t reason,
                         const uint8_t *frame, size_t size) {
    const struct pymq_service *service = transport->service;
    if (service != NULL && service->dropped != NULL && (code >= 0 || reason == PYMQ_TRANSPORT_REASON_HEADER))
        service->dropped(service->context, id, code, frame, size);
}

/* A frame for the control loop; `command` is NULL when its header could not be decoded here. PYMQ_OK, or PYMQ_EPOOL
 * when the lane is full: then the peer has been told, if it can be. */
int pymq_lane_put(struct pymq_transport *transport, enum pymq_lane which, pymq_connection_id id,
                  const struct pymq_host *peer, int64_t now_us, const struct pymq_command *command,
                  const uint8_t *frame, size_t size, uint8_t reason) {
    struct lane *lane = &transport->lanes[which];
    struct pymq_handed *handed = handed_make(id, peer, now_us, frame, size);
    char remark[REMARK_SIZE] = "[OVERLOAD]system busy, start flow control for a while: no memory";
    int refusal = handed == NULL ? (int)strlen(remark) : 0;
    if (handed != NULL) {
        handed->kind = PYMQ_HANDED_FRAME;
        handed->lane = (uint8_t)which;
        handed->reason = reason;
        handed->code = command != NULL ? command->code : -1;
        pthread_mutex_lock(&lane->lock);
        refusal = lane_refusal(transport, which, lane, size, remark);
        if (refusal == 0)
            lane_append(transport, lane, handed);
        pthread_mutex_unlock(&lane->lock);
    }
    if (refusal == 0) {
        arm_expiry(transport, which);
        wake_raise(transport);
        return PYMQ_OK;
    }
    handed_free(handed);
    atomic_fetch_add_explicit(&lane->refused, 1, memory_order_relaxed);
    if (command != NULL)
        pymq_frame_refuse(transport, id, command, remark, (size_t)refusal);
    if (which != PYMQ_LANE_REPLY)
        tell_dropped(transport, id, command != NULL ? command->code : -1, reason, frame, size);
    return PYMQ_EPOOL;
}

/* Events are never refused: what they tell is true already. Accepting pauses instead (listener.c). */
void pymq_lane_put_event(struct pymq_transport *transport, enum pymq_handed_kind kind, pymq_connection_id id,
                         const struct pymq_host *peer, int64_t now_us, int fd) {
    struct lane *lane = &transport->lanes[PYMQ_LANE_EVENT];
    struct pymq_handed *handed = handed_make(id, peer, now_us, NULL, 0);
    if (handed == NULL) {
        if (fd >= 0)
            close(fd);
        atomic_fetch_add_explicit(&lane->refused, 1, memory_order_relaxed);
        return;
    }
    handed->kind = (uint8_t)kind;
    handed->lane = PYMQ_LANE_EVENT;
    handed->fd = fd;
    pthread_mutex_lock(&lane->lock);
    lane_append(transport, lane, handed);
    pthread_mutex_unlock(&lane->lock);
    wake_raise(transport);
}

/* ---- taking out --------------------------------------------------------------------------------------------- */

/* Under the lane's lock: the first entry leaves. */
static struct pymq_handed *lane_pop(struct pymq_transport *transport, struct lane *lane) {
    struct pymq_handed *handed = lane->first;
    lane->first = handed->next;
    if (lane->first == NULL)
        lane->last = NULL;
    handed->next = NULL;
    lane->bytes -= handed->size;
    atomic_fetch_sub_explicit(&lane->waiting, 1, memory_order_relaxed);
    atomic_fetch_sub(&transport->waiting, 1);
    return handed;
}

struct pymq_handed *pymq_transport_take(struct pymq_transport *transport, enum pymq_lane which, size_t count_max) {
    struct lane *lane = &transport->lanes[which];
    struct pymq_handed *first = NULL, **link = &first;
    int64_t taken = 0;
    if (atomic_load_explicit(&lane->waiting, memory_order_relaxed) == 0)
        return NULL;
    pthread_mutex_lock(&lane->lock);
    while (lane->first != NULL && (size_t)taken < count_max) {
        *link = lane_pop(transport, lane);
        link = &(*link)->next;
        taken++;
    }
    pthread_mutex_unlock(&lane->lock);
    atomic_fetch_add_explicit(&lane->taken, taken, memory_order_relaxed);
    return first;
}

void pymq_handed_free(struct pymq_transport *transport, struct pymq_handed *handed) {
    (void)transport;
    handed_free(handed);
}

void pymq_transport_count_running(struct pymq_transport *transport, enum pymq_lane which, int64_t requests,
                                  int64_t bytes) {
    atomic_fetch_add_explicit(&transport->lanes[which].running, requests, memory_order_relaxed);
    atomic_fetch_add_explicit(&transport->lanes[which].running_bytes, bytes, memory_order_relaxed);
}

void pymq_transport_count_expired(struct pymq_transport *transport, enum pymq_lane which) {
    atomic_fetch_add_explicit(&transport->lanes[which].expired, 1, memory_order_relaxed);
}

/* ---- fast failure ------------------------------------------------------------------------------------------- */

static void refuse_expired(struct pymq_transport *transport, enum pymq_lane which, struct pymq_handed *handed,
                           int64_t now_us, int64_t waiting) {
    struct frame_reading *reading = pymq_frame_read(handed->frame, handed->size);
    if (reading != NULL) {
        char remark[REMARK_SIZE];
        int size = snprintf(remark, sizeof remark,
                            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
                            "period in queue: %lldms, size of queue: %lld, limit of lane %s: %dms",
                            (long long)((now_us - handed->received_us) / 1000), (long long)waiting, lane_names[which],
                            transport->config.lane_wait_ms[which]);
        pymq_frame_refuse(transport, handed->connection, &reading->command, remark, (size_t)size);
    }
    pymq_frame_read_free(reading);
    tell_dropped(transport, handed->connection, handed->code, handed->reason, handed->frame, handed->size);
    handed_free(handed);
}

/* Answer what has waited too long. Returns when the next one will have (CLOCK_MONOTONIC ms), INT64_MAX for never. */
int64_t pymq_lanes_expire(struct pymq_transport *transport, int64_t now_us) {
    int64_t due_ms = INT64_MAX;
    for (int which = 0; which < PYMQ_LANE_REPLY; which++) {
        struct lane *lane = &transport->lanes[which];
        int64_t wait_us = (int64_t)transport->config.lane_wait_ms[which] * 1000;
        if (wait_us == 0 || atomic_load_explicit(&lane->waiting, memory_order_relaxed) == 0)
            continue;
        struct pymq_handed *expired = NULL, **link = &expired;
        pthread_mutex_lock(&lane->lock);
        while (lane->first != NULL && now_us - lane->first->received_us >= wait_us) {
            *link = lane_pop(transport, lane);
            link = &(*link)->next;
        }
        if (lane->first != NULL)
            due_ms = pymq_min64(due_ms, (lane->first->received_us + wait_us + 999) / 1000);
        int64_t waiting = atomic_load_explicit(&lane->waiting, memory_order_relaxed);
        pthread_mutex_unlock(&lane->lock);
        while (expired != NULL) {
            struct pymq_handed *next = expired->next;
            atomic_fetch_add_explicit(&lane->expired, 1, memory_order_relaxed);
            refuse_expired(transport, (enum pymq_lane)which, expired, now_us, waiting);
            expired = next;
        }
    }
    return due_ms;
}

/* The reactors have ended; what nobody took is dropped. */
void pymq_lanes_free(struct pymq_transport *transport) {
    for (int which = 0; which < PYMQ_LANES; which++) {
        struct lane *lane = &transport->lanes[which];
        while (lane->first != NULL) {
            struct pymq_handed *handed = lane_pop(transport, lane);
            if (handed->kind == PYMQ_HANDED_TLS)
                close(handed->fd);
            else if (handed->kind == PYMQ_HANDED_FRAME && which != PYMQ_LANE_REPLY)
                tell_dropped(transport, handed->connection, handed->code, handed->reason, handed->frame, handed->size);
            handed_free(handed);
        }
        pthread_mutex_destroy(&lane->lock);
    }
}
