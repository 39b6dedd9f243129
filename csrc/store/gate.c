/* See gate.h. */
#include "gate.h"

#include <errno.h>
#include <time.h>

int64_t pymq_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t pymq_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void pymq_gate_init(struct pymq_gate *gate) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&gate->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&gate->lock, NULL);
    atomic_init(&gate->sleepers, 0);
    gate->rings = 0;
}

void pymq_gate_destroy(struct pymq_gate *gate) {
    pthread_cond_destroy(&gate->wake);
    pthread_mutex_destroy(&gate->lock);
}

static struct timespec deadline_after(int64_t timeout_ms) {
    int64_t at = pymq_monotonic_ns() + timeout_ms * 1000000;
    struct timespec deadline = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
    return deadline;
}

bool pymq_gate_wait(struct pymq_gate *gate, int64_t timeout_ms, bool (*ready)(void *context), void *context) {
    struct timespec deadline = {0};
    if (timeout_ms >= 0)
        deadline = deadline_after(timeout_ms);
    pthread_mutex_lock(&gate->lock);
    uint64_t rings = gate->rings;
    atomic_fetch_add_explicit(&gate->sleepers, 1, memory_order_acq_rel);
    bool happened = ready(context);
    int code = 0;
    while (!happened && code == 0 && gate->rings == rings)
        code = timeout_ms < 0 ? pthread_cond_wait(&gate->wake, &gate->lock)
                              : pthread_cond_timedwait(&gate->wake, &gate->lock, &deadline);
    happened = happened || gate->rings != rings;
    atomic_fetch_sub_explicit(&gate->sleepers, 1, memory_order_relaxed);
    pthread_mutex_unlock(&gate->lock);
    return happened;
}

void pymq_gate_ring_slow(struct pymq_gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->rings++;
    pthread_cond_broadcast(&gate->wake);
    pthread_mutex_unlock(&gate->lock);
}
