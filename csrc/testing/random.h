/* A seeded generator for tests: the same seed gives the same choices on every machine. */
#ifndef PYMQ_TESTING_RANDOM_H
#define PYMQ_TESTING_RANDOM_H

#include "pymq/base.h"

struct test_random {
    uint64_t state;
};

/* splitmix64: passes the statistics a test needs, and any 64-bit seed is a good one. */
static inline uint64_t test_random_next(struct test_random *random) {
    uint64_t z = (random->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number in [0, bound); 0 when bound is 0. */
static inline uint64_t test_random_below(struct test_random *random, uint64_t bound) {
    return bound == 0 ? 0 : test_random_next(random) % bound;
}

/* True in `percent` of a hundred cases. */
static inline bool test_random_chance(struct test_random *random, uint32_t percent) {
    return test_random_below(random, 100) < percent;
}

static inline void test_random_fill(struct test_random *random, uint8_t *target, size_t size) {
    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = test_random_next(random);
        memcpy(target + at, &word, size - at < 8 ? size - at : 8);
    }
}

#endif
