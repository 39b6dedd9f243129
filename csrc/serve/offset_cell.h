/* The offset of one queue of a group, and what keeps older commits from undoing a reset of it.
 *
 * A commit says an offset and nothing about when it was meant. One from before the reset is told from one behind it by
 * what the broker knows, while the guard lasts:
 *   - nothing counts until somebody has pulled from where the reset went;
 *   - then a commit lies between that place and the end of what was served from there on: `low` to `high`. A skip is
 *     not undone by what was pulled before it, and going back not by what has not been served again;
 *   - and comes from a connection that goes on from there, a follower: it began at the reset's place, or where the
 *     group stands or stood when it asked (a new owner), or where the last pull of a follower began or ended (a client
 *     that reconnected). So an old owner's commits do not count when others have read beyond them again;
 *   - a client may go to the new place and still send what it had consumed before (Java's lite pull does until it is
 *     polled). One that was told of the reset is doubted: its commits within what had been read before do not count
 *     until it sends one that can only be of now. The end of what was served does: who reads everything again says it.
 *
 * Commits store `offset`, whoever they come from and from any thread; a reset is made under exclusion, so a commit is
 * wholly before or wholly after it. */
#ifndef PYMQ_SERVE_OFFSET_CELL_H
#define PYMQ_SERVE_OFFSET_CELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pymq/serve.h"

/* How long the guard lasts after a reset was followed: as long as a member may be silent before its connection is
 * closed. */
#define PYMQ_RESET_GUARD_MS 120000
#define PYMQ_RESET_FOLLOWERS 4 /* connections remembered; the oldest makes room, and comes back with its next pull */

/* The last few connections of a kind. */
struct pymq_connection_ring {
    _Atomic uint32_t count; /* so far */
    _Atomic uint64_t members[PYMQ_RESET_FOLLOWERS];
};

struct pymq_reset_guard {
    _Atomic int64_t until_ms;              /* CLOCK_MONOTONIC; 0: not followed yet */
    _Atomic int64_t low, high;             /* where the reset went, and the end of what was served from there on */
    _Atomic int64_t last_begin, last_end;  /* of a follower's last pull */
    _Atomic int64_t stale_low, stale_high; /* where clients were before; nowhere: low > high */
    _Atomic uint64_t doubted; /* the connection, or 0 */
    struct pymq_connection_ring followers, askers;
};

struct pymq_offset_cell {
    _Atomic int64_t offset;  /* PYMQ_OFFSET_NONE: never committed. Any number is kept, as Apache does; a query takes
                              * a negative one for not found */
    _Atomic int64_t pending; /* PYMQ_OFFSET_NONE, or where a reset wants the group to pull from */
    _Atomic int64_t pulled;  /* PYMQ_OFFSET_NONE, or where the last pull ended: how far the group has read ahead */
    struct pymq_reset_guard *guard; /* of the last reset; NULL: there was none. Changes under exclusion */
};

static inline int64_t pymq_offset_load(const _Atomic int64_t *place) {
    return atomic_load_explicit(place, memory_order_acquire);
}

static inline void pymq_offset_set(_Atomic int64_t *place, int64_t value) {
    atomic_store_explicit(place, value, memory_order_release);
}

static inline void pymq_offset_raise(_Atomic int64_t *place, int64_t value) {
    int64_t seen = pymq_offset_load(place);
    while (seen < value && !atomic_compare_exchange_weak_explicit(place, &seen, value, memory_order_acq_rel,
                                                                  memory_order_acquire)) {
    }
}

static inline void pymq_offset_lower(_Atomic int64_t *place, int64_t value) {
    int64_t seen = pymq_offset_load(place);
    while (seen > value && !atomic_compare_exchange_weak_explicit(place, &seen, value, memory_order_acq_rel,
                                                                  memory_order_acquire)) {
    }
}

/* ---- the guard -------------------------------------------------------------------------------------------------- */

/* Clients were at `offset` before the reset. */
static inline void pymq_guard_stale(struct pymq_reset_guard *guard, int64_t offset) {
    pymq_offset_lower(&guard->stale_low, offset);
    pymq_offset_raise(&guard->stale_high, offset);
}

static inline bool pymq_guard_doubts(const struct pymq_reset_guard *guard, uint64_t connection) {
    return atomic_load_explicit(&guard->doubted, memory_order_acquire) == connection;
}

/* `connection` speaks of `offset`, which it has from before the reset. */
static inline void pymq_guard_doubt(struct pymq_reset_guard *guard, uint64_t connection, int64_t offset) {
    if (offset > pymq_offset_load(&guard->low))
        pymq_guard_stale(guard, offset);
    atomic_store_explicit(&guard->doubted, connection, memory_order_release);
}

/* `connection` has said what can only be of now. */
static inline void pymq_guard_believe(struct pymq_reset_guard *guard, uint64_t connection) {
    atomic_compare_exchange_strong_explicit(&guard->doubted, &connection, 0, memory_order_acq_rel,
                                            memory_order_acquire);
}

static inline bool pymq_ring_has(const struct pymq_connection_ring *ring, uint64_t connection) {
    for (int i = 0; i < PYMQ_RESET_FOLLOWERS; i++)
        if (atomic_load_explicit(&ring->members[i], memory_order_acquire) == connection)
            return true;
    return false;
}

static inline void pymq_ring_add(struct pymq_connection_ring *ring, uint64_t connection) {
    if (pymq_ring_has(ring, connection))
        return;
    uint32_t place = atomic_fetch_add_explicit(&ring->count, 1, memory_order_relaxed);
    atomic_store_explicit(&ring->members[place % PYMQ_RESET_FOLLOWERS], connection, memory_order_release);
}

static inline void pymq_ring_clear(struct pymq_connection_ring *ring) {
    for (int i = 0; i < PYMQ_RESET_FOLLOWERS; i++)
        atomic_store_explicit(&ring->members[i], 0, memory_order_release);
}

/* `connection` goes on where one was that was told, or follows, and has not asked: it is that client, and as
 * doubtful. */
static inline void pymq_guard_continue(struct pymq_reset_guard *guard, uint64_t connection) {
    if (pymq_ring_has(&guard->followers, connection))
        return;
    if (!pymq_guard_doubts(guard, 0) && !pymq_ring_has(&guard->askers, connection))
        atomic_store_explicit(&guard->doubted, connection, memory_order_release);
    pymq_ring_add(&guard->followers, connection);
}

/* Whether `connection` asked where to begin, and does within what was served. */
static inline bool pymq_guard_has_asked(const struct pymq_reset_guard *guard, uint64_t connection, int64_t offset) {
    return pymq_ring_has(&guard->askers, connection) && offset >= pymq_offset_load(&guard->low) &&
           offset <= pymq_offset_load(&guard->high);
}

static inline bool pymq_guard_admits(struct pymq_reset_guard *guard, uint64_t connection, int64_t offset) {
    int64_t high = pymq_offset_load(&guard->high);
    if (offset < pymq_offset_load(&guard->low) || !pymq_ring_has(&guard->followers, connection))
        return false;
    if (offset > high) { /* it follows, and says what it had consumed before */
        pymq_guard_doubt(guard, connection, offset);
        return false;
    }
    if (offset == pymq_offset_load(&guard->low)) /* changes nothing, and says nothing of what comes next */
        return true;
    if (offset >= pymq_offset_load(&guard->stale_low) && offset <= pymq_offset_load(&guard->stale_high))
        return offset == high || !pymq_guard_doubts(guard, connection);
    pymq_guard_believe(guard, connection);
    return true;
}

/* Begin anew for a reset to `target`; under exclusion. What was read before an earlier reset may still be around when
 * nobody has followed that, or not for long. */
static inline void pymq_guard_begin(struct pymq_reset_guard *guard, const struct pymq_offset_cell *cell, int64_t now_ms,
                                    int64_t target) {
    int64_t offset = pymq_offset_load(&cell->offset), pulled = pymq_offset_load(&cell->pulled);
    if (pymq_offset_load(&cell->pending) == PYMQ_OFFSET_NONE && now_ms >= pymq_offset_load(&guard->until_ms)) {
        pymq_offset_set(&guard->stale_low, INT64_MAX);
        pymq_offset_set(&guard->stale_high, INT64_MIN);
        atomic_store_explicit(&guard->doubted, 0, memory_order_release);
    }
    pymq_offset_set(&guard->until_ms, 0);
    pymq_offset_set(&guard->low, target);
    pymq_offset_set(&guard->high, target);
    pymq_offset_set(&guard->last_begin, target);
    pymq_offset_set(&guard->last_end, target);
    pymq_ring_clear(&guard->followers);
    pymq_ring_clear(&guard->askers);
    if (offset >= 0 && offset != target)
        pymq_guard_stale(guard, offset);
    if (pulled >= 0)
        pymq_guard_stale(guard, pulled);
}

/* ---- the cell --------------------------------------------------------------------------------------------------- */

/* What a query answers: the pending reset, else the offset, else PYMQ_OFFSET_NONE. */
static inline int64_t pymq_offset_value(const struct pymq_offset_cell *cell) {
    int64_t pending = pymq_offset_load(&cell->pending);
    return pending != PYMQ_OFFSET_NONE ? pending : pymq_offset_load(&cell->offset);
}

/* The same for a client. By the time it pulls from there the old owner's last commit may have moved the group on. */
static inline int64_t pymq_offset_ask(struct pymq_offset_cell *cell, uint64_t connection) {
    if (cell->guard != NULL && connection != 0)
        pymq_ring_add(&cell->guard->askers, connection);
    return pymq_offset_value(cell);
}

/* Commit in the name of `connection` (0: the broker's own word, which only a pending reset keeps out). False when an
 * older position must not win; the client is told all is well. */
static inline bool pymq_offset_store(struct pymq_offset_cell *cell, uint64_t connection, int64_t now_ms,
                                     int64_t offset) {
    struct pymq_reset_guard *guard = cell->guard;
    if (guard != NULL) {
        int64_t pending = pymq_offset_load(&cell->pending);
        if (pending != PYMQ_OFFSET_NONE) {
            if (offset == pending) /* a client that drops what it has says so before it begins anew */
                pymq_guard_believe(guard, connection);
            else if (offset > pending)
                pymq_guard_stale(guard, offset);
            return false;
        }
        if (connection != 0 && now_ms < pymq_offset_load(&guard->until_ms) &&
            !pymq_guard_admits(guard, connection, offset))
            return false;
    }
    pymq_offset_set(&cell->offset, offset);
    return true;
}

/* `connection` pulls from `offset`. PYMQ_OFFSET_NONE, or the place to begin from instead, because a reset has not been
 * followed. */
static inline int64_t pymq_offset_begin(struct pymq_offset_cell *cell, uint64_t connection, int64_t now_ms,
                                        int64_t offset) {
    struct pymq_reset_guard *guard = cell->guard;
    if (guard == NULL)
        return PYMQ_OFFSET_NONE;
    int64_t pending = pymq_offset_load(&cell->pending);
    if (pending == offset) {
        pymq_guard_continue(guard, connection);
        pymq_offset_set(&guard->until_ms, now_ms + PYMQ_RESET_GUARD_MS);
        pymq_offset_set(&cell->pending, PYMQ_OFFSET_NONE); /* last: commits ask it first */
    } else if (pending != PYMQ_OFFSET_NONE) {
        pymq_guard_doubt(guard, connection, offset);
        return pending;
    } else if (now_ms < pymq_offset_load(&guard->until_ms) &&
               (offset == pymq_offset_load(&cell->offset) || pymq_guard_has_asked(guard, connection, offset) ||
                offset == pymq_offset_load(&guard->last_begin) || offset == pymq_offset_load(&guard->last_end)))
        pymq_guard_continue(guard, connection);
    return PYMQ_OFFSET_NONE;
}

/* Its pull is answered and goes on at `next`. A commit that rides on it is stored before: it cannot mean what is only
 * now on its way. An answer may lead below the reset's place, when the queue has nothing there. */
static inline void pymq_offset_served(struct pymq_offset_cell *cell, uint64_t connection, int64_t now_ms, int64_t begin,
                                      int64_t next) {
    atomic_store_explicit(&cell->pulled, next, memory_order_relaxed);
    struct pymq_reset_guard *guard = cell->guard;
    if (guard == NULL || pymq_offset_load(&cell->pending) != PYMQ_OFFSET_NONE ||
        now_ms >= pymq_offset_load(&guard->until_ms) || !pymq_ring_has(&guard->followers, connection) ||
        begin < pymq_offset_load(&guard->low) || begin > pymq_offset_load(&guard->high))
        return;
    pymq_offset_set(&guard->last_begin, begin);
    pymq_offset_set(&guard->last_end, next);
    pymq_offset_lower(&guard->low, next);
    pymq_offset_raise(&guard->high, next);
}

#endif
