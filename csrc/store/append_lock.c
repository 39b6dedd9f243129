/* See append_lock.h; the sleeping half, on a futex. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "append_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS_BEFORE_SLEEP 128

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void pymq_append_lock_acquire_slow(struct pymq_append_lock *lock) {
    for (int i = 0; i < LOOKS_BEFORE_SLEEP; i++) {
        uint32_t free_state = 0;
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_weak_explicit(&lock->state, &free_state, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        pause_briefly();
    }
    atomic_fetch_add_explicit(&lock->contended, 1, memory_order_relaxed);
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}

void pymq_append_lock_wake(struct pymq_append_lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
