/* How a worker thread sleeps until somebody has work for it, at no cost to the somebody while it is awake.
 *
 * The sleeper announces itself, looks again at what it waits for, and only then sleeps; the waker first makes its
 * work visible and then looks whether anybody sleeps. Both look by a read-modify-write of `sleepers`: whichever comes
 * second in its modification order sees what the first one did before it.
 */
#ifndef PYMQ_STORE_GATE_H
#define PYMQ_STORE_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pymq_gate {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic int sleepers;
    uint64_t rings; /* guarded by lock: a wake-up between the last look and the sleep is not lost */
};

void pymq_gate_init(struct pymq_gate *gate);
void pymq_gate_destroy(struct pymq_gate *gate);

/* Sleep until rung, or until timeout_ms (< 0: no limit), unless `ready(context)` already holds. Returns whether
 * `ready` held or the gate was rung; false after the time-out. */
bool pymq_gate_wait(struct pymq_gate *gate, int64_t timeout_ms, bool (*ready)(void *context), void *context);

void pymq_gate_ring_slow(struct pymq_gate *gate);

/* Wake all sleepers, if there are any. */
static inline void pymq_gate_ring(struct pymq_gate *gate) {
    if (atomic_fetch_add_explicit(&gate->sleepers, 0, memory_order_acq_rel) > 0)
        pymq_gate_ring_slow(gate);
}

/* Milliseconds since the epoch; nanoseconds of a clock that never goes back. */
int64_t pymq_now_ms(void);
int64_t pymq_monotonic_ns(void);

#endif
