/* UNIQ_KEY in the shape of Apache's MessageClientIDSetter, 16 bytes as 32 upper-case hexadecimal characters:
 *
 *   address, pid, class loader's hash   10   here ten random bytes, new in every process: two brokers in containers
 *                                            with the same address and pid would make the same keys otherwise
 *   milliseconds of this month           4   in local time, where tools read the time of a message from
 *   counter                              2   one over all threads; 65,536 keys a millisecond are more than can be sent
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "unique_key.h"

#define FIXED_SIZE 10
#define CLOCK_STEP_MS_MAX 1000000 /* as there: a clock set back by less than this gives 0, not a negative span */

static const char HEX_DIGITS[] = "0123456789ABCDEF";

static pthread_once_t made_once = PTHREAD_ONCE_INIT;
static uint8_t fixed_text[2 * FIXED_SIZE];
static _Atomic int64_t month_begin_ms, month_end_ms;
static _Atomic uint32_t counter;

static void put_hex(uint8_t *target, uint64_t value, int digits) {
    for (int i = digits - 1; i >= 0; i--) {
        target[i] = (uint8_t)HEX_DIGITS[value & 15];
        value >>= 4;
    }
}

/* Without entropy there is no way to keep keys of two processes apart: better no process than wrong keys. */
static void make_fixed(void) {
    uint8_t bytes[FIXED_SIZE];
    size_t got = 0;
    while (got < sizeof bytes) {
        ssize_t more = getrandom(bytes + got, sizeof bytes - got, 0);
        if (more < 0 && errno != EINTR) {
            perror("pymq: getrandom for message keys");
            abort();
        }
        got += more > 0 ? (size_t)more : 0;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        put_hex(fixed_text + 2 * i, bytes[i], 2);
}

static int64_t month_ms(const struct tm *of, int months_later) {
    struct tm month = {.tm_year = of->tm_year, .tm_mon = of->tm_mon + months_later, .tm_mday = 1, .tm_isdst = -1};
    return (int64_t)mktime(&month) * 1000;
}

/* Several threads may do this at the turn of a month; all come to the same. The begin is stored before the end is, so
 * that whoever sees the new end sees the new begin. */
static void turn_month(int64_t now_ms) {
    time_t now = (time_t)(now_ms / 1000);
    struct tm local;
    localtime_r(&now, &local);
    atomic_store_explicit(&month_begin_ms, month_ms(&local, 0), memory_order_relaxed);
    atomic_store_explicit(&month_end_ms, month_ms(&local, 1), memory_order_release);
}

void pymq_unique_key_at(uint8_t *target, int64_t wall_ms) {
    pthread_once(&made_once, make_fixed);
    if (wall_ms >= atomic_load_explicit(&month_end_ms, memory_order_acquire))
        turn_month(wall_ms);
    int64_t span_ms = wall_ms - atomic_load_explicit(&month_begin_ms, memory_order_relaxed);
    if (span_ms < 0 && span_ms > -CLOCK_STEP_MS_MAX)
        span_ms = 0;
    memcpy(target, fixed_text, sizeof fixed_text);
    put_hex(target + 2 * FIXED_SIZE, (uint64_t)span_ms, 8);
    put_hex(target + 2 * FIXED_SIZE + 8, atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed), 4);
}

void pymq_unique_key(uint8_t *target) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pymq_unique_key_at(target, (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
}
