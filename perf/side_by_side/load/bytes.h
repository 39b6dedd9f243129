/* Big-endian words, decimal and hexadecimal digits, and the clock: the small change of a load generator.
 *
 * Nothing here is shared with the broker on purpose. A mistake in its helpers must not be repeated on this side, where
 * it would look like agreement. */
#ifndef PYMQ_LOAD_BYTES_H
#define PYMQ_LOAD_BYTES_H

#include <stdint.h>
#include <string.h>
#include <time.h>

#define NS_PER_S 1000000000LL
#define NS_PER_MS 1000000LL
#define NS_PER_US 1000LL

static inline uint16_t get_be16(const uint8_t *source) { return (uint16_t)(source[0] << 8 | source[1]); }

static inline uint32_t get_be32(const uint8_t *source) {
    uint32_t value;
    memcpy(&value, source, sizeof value);
    return __builtin_bswap32(value);
}

static inline uint64_t get_be64(const uint8_t *source) {
    uint64_t value;
    memcpy(&value, source, sizeof value);
    return __builtin_bswap64(value);
}

static inline void put_be16(uint8_t *target, uint16_t value) {
    target[0] = (uint8_t)(value >> 8);
    target[1] = (uint8_t)value;
}

static inline void put_be32(uint8_t *target, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(target, &value, sizeof value);
}

static inline void put_be64(uint8_t *target, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(target, &value, sizeof value);
}

/* `count` decimal digits of `value`, leading zeros included. */
static inline void put_digits(uint8_t *target, uint64_t value, int count) {
    for (int i = count - 1; i >= 0; i--) {
        target[i] = (uint8_t)('0' + value % 10);
        value /= 10;
    }
}

/* `count` upper-case hexadecimal digits of `value`. */
static inline void put_hex(uint8_t *target, uint64_t value, int count) {
    for (int i = count - 1; i >= 0; i--) {
        target[i] = (uint8_t)"0123456789ABCDEF"[value & 15];
        value >>= 4;
    }
}

/* Time for durations: the same clock for every process of the machine. */
static inline int64_t monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Time for people and for bornTimestamp. */
static inline int64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

#endif
