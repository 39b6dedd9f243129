/* Queue units: bytes, checked decode at its bounds, the tag scan against a plain loop. */
#include "pymq/cq_unit.h"

#include "check.h"

static void test_layout(void) {
    uint8_t bytes[PYMQ_CQ_UNIT_SIZE];
    struct pymq_cq_unit unit;
    pymq_cq_encode(bytes, 0x0102030405060708, 0x11121314, -2);
    CHECK_BYTES(bytes, sizeof bytes, "\1\2\3\4\5\6\7\10\x11\x12\x13\x14\xff\xff\xff\xff\xff\xff\xff\xfe", 20);
    pymq_cq_decode_one(bytes, &unit);
    CHECK_EQ(unit.physical_offset, 0x0102030405060708);
    CHECK_EQ(unit.size, 0x11121314);
    CHECK_EQ(unit.tags_code, -2);
}

static void test_decode_takes_whole_units_up_to_the_limit(void) {
    uint8_t bytes[3 * PYMQ_CQ_UNIT_SIZE];
    for (int i = 0; i < 3; i++) {
        pymq_cq_encode(bytes + i * PYMQ_CQ_UNIT_SIZE, i * 100, 100, i);
    }
    for (size_t size = 0; size <= sizeof bytes; size++) {
        uint8_t *exact = check_exact(bytes, size);
        for (size_t count_max = 0; count_max <= 4; count_max++) {
            struct pymq_cq_unit units[4];
            size_t whole = size / PYMQ_CQ_UNIT_SIZE;
            size_t expected = whole < count_max ? whole : count_max;
            CHECK_EQ(pymq_cq_decode(exact, size, units, count_max, 300), expected);
            for (size_t i = 0; i < expected; i++) {
                CHECK_EQ(units[i].physical_offset, i * 100);
            }
        }
        free(exact);
    }
}

static void test_decode_refuses_sizes_and_offsets_outside(void) {
    static const struct {
        int64_t offset;
        int32_t size;
        int64_t max;
        bool good;
    } cases[] = {
        {0, 1, 1, true},      {0, 0, 1, false},      {0, -1, 1, false},    {-1, 1, 1, false},
        {99, 10, 100, true},  {100, 10, 100, false}, {101, 10, 100, false}, {INT64_MAX, 1, INT64_MAX, false},
        {0, INT32_MAX, 1, true}, {0, 1, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[PYMQ_CQ_UNIT_SIZE];
        struct pymq_cq_unit unit;
        pymq_cq_encode(bytes, cases[i].offset, cases[i].size, 0);
        CHECK_EQ(pymq_cq_decode(bytes, sizeof bytes, &unit, 1, cases[i].max), cases[i].good ? 1 : PYMQ_ECORRUPT);
    }
}

/* For every count around the step, every number of hashes and every limit: the same as a plain loop. */
static void test_scan_agrees_with_a_plain_loop(void) {
    uint64_t random = 31;
    for (int round = 0; round < 3000; round++) {
        size_t count = check_random(&random) % 40, hash_count = check_random(&random) % 6;
        size_t matched_max = check_random(&random) % 12, expected_count = 0, expected_scanned = count, scanned = 999;
        int64_t hashes[6];
        uint32_t expected[12], matched[12];
        uint8_t *units = malloc(count * PYMQ_CQ_UNIT_SIZE + 1);
        uint8_t *exact;
        CHECK(units != NULL);
        for (size_t i = 0; i < hash_count; i++) {
            hashes[i] = (int64_t)(check_random(&random) % 7) - 3;
        }
        for (size_t i = 0; i < count; i++) {
            pymq_cq_encode(units + i * PYMQ_CQ_UNIT_SIZE, 1, 1, (int64_t)(check_random(&random) % 30) - 3);
        }
        exact = check_exact(units, count * PYMQ_CQ_UNIT_SIZE);
        if (matched_max == 0) {
            expected_scanned = 0;
        }
        for (size_t i = 0; i < count && expected_count < matched_max; i++) {
            int64_t tags = (int64_t)pymq_load_be64(units + i * PYMQ_CQ_UNIT_SIZE + 12);
            for (size_t k = 0; k < hash_count; k++) {
                if (hashes[k] == tags) {
                    expected[expected_count++] = (uint32_t)i;
                    if (expected_count == matched_max) {
                        expected_scanned = i + 1;
                    }
                    break;
                }
            }
        }
        CHECK_EQ(pymq_cq_scan_tags(exact, count, hashes, hash_count, matched, matched_max, &scanned), expected_count);
        CHECK_EQ(scanned, expected_scanned);
        CHECK_BYTES(matched, expected_count * sizeof matched[0], expected, expected_count * sizeof expected[0]);
        free(exact);
        free(units);
    }
}

/* Codes that differ in one bit only, so that a comparison of fewer than 64 bits would be caught. */
static void test_scan_compares_all_64_bits(void) {
    uint8_t units[64 * PYMQ_CQ_UNIT_SIZE];
    int64_t wanted[3] = {0, 0, 0};
    uint32_t matched[4];
    size_t scanned;
    for (int bit = 0; bit < 64; bit++) {
        pymq_cq_encode(units + bit * PYMQ_CQ_UNIT_SIZE, 1, 1, (int64_t)(1ull << bit));
    }
    for (size_t hash_count = 1; hash_count <= 3; hash_count++) {
        CHECK_EQ(pymq_cq_scan_tags(units, 64, wanted, hash_count, matched, 4, &scanned), 0);
        CHECK_EQ(scanned, 64);
    }
}

int main(void) {
    RUN(test_layout);
    RUN(test_decode_takes_whole_units_up_to_the_limit);
    RUN(test_decode_refuses_sizes_and_offsets_outside);
    RUN(test_scan_agrees_with_a_plain_loop);
    RUN(test_scan_compares_all_64_bits);
    return check_summary();
}
