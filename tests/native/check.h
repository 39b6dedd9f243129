/* The whole test framework of the C programs: a check that fails says where and ends the program.
 *
 *     static void test_empty_body_decodes(void) { CHECK(...); CHECK_EQ(a, b); }
 *     int main(void) { RUN(test_empty_body_decodes); return check_summary(); }
 *
 * A test's name is its claim. `check_exact` gives bytes whose neighbours belong to nobody, so that a sanitizer sees a
 * read one byte outside.
 */
#ifndef PYMQ_TESTS_CHECK_H
#define PYMQ_TESTS_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_passed;

#define CHECK_FAIL(...)                                                                                                \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, __func__);                                                  \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        exit(1);                                                                                                       \
    } while (0)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            CHECK_FAIL("not so: %s", #condition);                                                                      \
        }                                                                                                              \
    } while (0)

/* Integers of any width, compared as signed 64-bit. */
#define CHECK_EQ(actual, expected)                                                                                     \
    do {                                                                                                               \
        int64_t check_actual = (int64_t)(actual), check_expected = (int64_t)(expected);                                \
        if (check_actual != check_expected) {                                                                          \
            CHECK_FAIL("%s is %" PRId64 ", expected %s = %" PRId64, #actual, check_actual, #expected, check_expected); \
        }                                                                                                              \
    } while (0)

#define CHECK_BYTES(actual, actual_size, expected, expected_size)                                                      \
    do {                                                                                                               \
        CHECK_EQ(actual_size, expected_size);                                                                          \
        if ((expected_size) != 0 && memcmp(actual, expected, (size_t)(expected_size)) != 0) {                          \
            CHECK_FAIL("bytes differ: %s and %s", #actual, #expected);                                                 \
        }                                                                                                              \
    } while (0)

#define RUN(test)                                                                                                      \
    do {                                                                                                               \
        test();                                                                                                        \
        check_passed++;                                                                                                \
    } while (0)

static inline int check_summary(void) {
    printf("%d passed, 0 failed\n", check_passed);
    return 0;
}

/* A heap copy of exactly `size` bytes; the caller frees it. */
static inline uint8_t *check_exact(const void *source, size_t size) {
    uint8_t *copy = malloc(size != 0 ? size : 1);
    if (copy == NULL) {
        CHECK_FAIL("out of memory for %zu bytes", size);
    }
    if (size != 0) {
        memcpy(copy, source, size);
    }
    return copy;
}

/* Numbers that are the same in every run (xorshift64*). */
static inline uint64_t check_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static inline void check_random_bytes(uint64_t *state, uint8_t *target, size_t size) {
    for (size_t i = 0; i < size; i++) {
        target[i] = (uint8_t)(check_random(state) >> 32);
    }
}

/* A file of the repository (programs run from its root); the caller frees it. */
static inline uint8_t *check_read_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    long end;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (end = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0) {
        CHECK_FAIL("cannot read %s; run from the repository's root", path);
    }
    *size = (size_t)end;
    data = malloc(*size != 0 ? *size : 1);
    if (data == NULL || fread(data, 1, *size, file) != *size) {
        CHECK_FAIL("cannot read %s", path);
    }
    fclose(file);
    return data;
}

#endif
