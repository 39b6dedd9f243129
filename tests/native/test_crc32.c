/* CRC-32: the accelerated way, the tables and a bit-by-bit reading agree at every size where the code changes path. */
#include "pymq/crc32.h"

#include "check.h"

static uint32_t crc32_bitwise(uint32_t seed, const uint8_t *source, size_t size) {
    uint32_t state = ~seed;
    for (size_t i = 0; i < size; i++) {
        state ^= source[i];
        for (int bit = 0; bit < 8; bit++) {
            state = (state >> 1) ^ ((state & 1) ? 0xedb88320u : 0);
        }
    }
    return ~state;
}

static void test_known_answers(void) {
    static const uint8_t digits[] = "123456789";
    CHECK_EQ(pymq_crc32(0, digits, 9), 0xcbf43926u);
    CHECK_EQ(pymq_crc32_table(0, digits, 9), 0xcbf43926u);
    CHECK_EQ(pymq_body_crc(digits, 9), 0x4bf43926); /* 31 bits */
    CHECK_EQ(pymq_crc32(0, NULL, 0), 0);
    CHECK_EQ(pymq_crc32_table(0, NULL, 0), 0);
    CHECK_EQ(pymq_crc32(0x12345678u, NULL, 0), 0x12345678u);
    CHECK_EQ(pymq_body_crc(NULL, 0), 0);
}

/* Every size from 0 to beyond two rounds of the widest loop, with and without a seed, exact buffers. */
static void test_every_size_agrees_with_bitwise(void) {
    uint64_t random = 11;
    uint8_t bytes[700];
    check_random_bytes(&random, bytes, sizeof bytes);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        uint8_t *exact = check_exact(bytes, size);
        uint32_t seed = (uint32_t)check_random(&random);
        CHECK_EQ(pymq_crc32(0, exact, size), crc32_bitwise(0, exact, size));
        CHECK_EQ(pymq_crc32(seed, exact, size), crc32_bitwise(seed, exact, size));
        CHECK_EQ(pymq_crc32_table(seed, exact, size), crc32_bitwise(seed, exact, size));
        free(exact);
    }
}

static void test_alignment_does_not_matter(void) {
    uint64_t random = 13;
    uint8_t bytes[4096 + 64];
    check_random_bytes(&random, bytes, sizeof bytes);
    for (size_t start = 0; start < 64; start++) {
        static const size_t sizes[] = {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1024, 4095, 4096};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            CHECK_EQ(pymq_crc32(7, bytes + start, sizes[i]), pymq_crc32_table(7, bytes + start, sizes[i]));
        }
    }
}

/* crc(a + b) == crc(crc(a), b) for every cut. */
static void test_seed_continues(void) {
    uint64_t random = 17;
    uint8_t bytes[331];
    uint32_t whole;
    check_random_bytes(&random, bytes, sizeof bytes);
    whole = pymq_crc32(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t seed = pymq_crc32(0, bytes, cut);
        CHECK_EQ(pymq_crc32(seed, bytes + cut, sizeof bytes - cut), whole);
        CHECK_EQ(pymq_crc32_table(seed, bytes + cut, sizeof bytes - cut), whole);
    }
}

static void test_every_single_bit_flip_shows(void) {
    uint8_t bytes[200] = {0};
    uint32_t clean = pymq_crc32(0, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        CHECK(pymq_crc32(0, bytes, sizeof bytes) != clean);
        bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
    }
}

static void test_large_buffer_agrees(void) {
    uint64_t random = 19;
    size_t size = 1 << 20;
    uint8_t *bytes = malloc(size);
    CHECK(bytes != NULL);
    check_random_bytes(&random, bytes, size);
    CHECK_EQ(pymq_crc32(0, bytes, size), pymq_crc32_table(0, bytes, size));
    CHECK_EQ(pymq_crc32(0, bytes + 1, size - 1), pymq_crc32_table(0, bytes + 1, size - 1));
    free(bytes);
}

int main(void) {
    printf("carry-less multiply: %s\n", pymq_crc32_is_accelerated() ? "yes" : "no");
    RUN(test_known_answers);
    RUN(test_every_size_agrees_with_bitwise);
    RUN(test_alignment_does_not_matter);
    RUN(test_seed_continues);
    RUN(test_every_single_bit_flip_shows);
    RUN(test_large_buffer_agrees);
    return check_summary();
}
