/* The lock every append takes: short, adaptive, never a pure spin.
 *
 * Holders keep it for a few hundred nanoseconds, so a contender first looks a bounded number of times and then
 * sleeps in the kernel. 0 free, 1 held, 2 held with sleepers.
 */
#ifndef PYMQ_STORE_APPEND_LOCK_H
#define PYMQ_STORE_APPEND_LOCK_H

#include <stdatomic.h>
#include <stdint.h>

struct pymq_append_lock {
    _Atomic uint32_t state;
    _Atomic int64_t contended; /* times somebody had to sleep */
};

void pymq_append_lock_acquire_slow(struct pymq_append_lock *lock);
void pymq_append_lock_wake(struct pymq_append_lock *lock);

static inline void pymq_append_lock_acquire(struct pymq_append_lock *lock) {
    uint32_t free_state = 0;
    if (!atomic_compare_exchange_strong_explicit(&lock->state, &free_state, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        pymq_append_lock_acquire_slow(lock);
}

static inline void pymq_append_lock_release(struct pymq_append_lock *lock) {
    if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2)
        pymq_append_lock_wake(lock);
}

#endif
