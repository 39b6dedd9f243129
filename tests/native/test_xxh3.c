/* XXH3-64: values of the reference implementation at every edge of its length classes, and no byte read outside. */
#include "pymq/xxh3.h"

#include "check.h"

#define PATTERN_SIZE 5000
#define CHAIN_SIZE 2600

static uint8_t pattern[PATTERN_SIZE];

static void fill_pattern(void) {
    for (size_t i = 0; i < PATTERN_SIZE; i++) {
        pattern[i] = (uint8_t)(i * i * 31 + i * 7 + 3);
    }
}

static void test_values_at_the_edges_of_the_length_classes(void) {
    static const struct {
        size_t size;
        uint64_t value;
    } known[] = {
        {0, 0x2d06800538d394c2ull},    {1, 0x13e608bc156defedull},    {3, 0xb7391e018153d37aull},
        {4, 0xfdf480d413c14ab0ull},    {8, 0xec39ab64bbdd3e16ull},    {9, 0xb72b2752390382d5ull},
        {16, 0x2866d96771d12b4eull},   {17, 0x385c21b59bf6407dull},   {32, 0x517f9edce3f15ef7ull},
        {33, 0x2c72ff70c3862d20ull},   {64, 0x1143068e609ba129ull},   {65, 0xb85378dccfb4cf02ull},
        {96, 0x5093e5d8ce622d6aull},   {97, 0xcf5f8dd810961012ull},   {128, 0xa4b9dca2ee00ce72ull},
        {129, 0xfb9e35f274249234ull},  {240, 0x4ed2e5c562eae4c1ull},  {241, 0x6819923e2201397dull},
        {1023, 0xdacdd1a09be419ecull}, {1024, 0xefbb20e87adc204cull}, {1025, 0x99244ee55b2fae5dull},
        {2048, 0xf03407c0f4011c1dull}, {4999, 0xa3685ef27af3965full},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        CHECK(pymq_xxh3_64(pattern, known[i].size) == known[i].value);
    }
}

/* Every length once, from memory whose neighbours belong to nobody: the chain of all values is the reference's. */
static void test_every_length_reads_only_its_own_bytes(void) {
    uint64_t chain = 0;
    for (size_t size = 0; size <= CHAIN_SIZE; size++) {
        uint8_t *exact = check_exact(pattern, size);
        chain = chain * 31 + pymq_xxh3_64(exact, size);
        free(exact);
    }
    CHECK(chain == 0xe90353ec96937322ull);
}

static void test_a_changed_bit_changes_the_value(void) {
    uint64_t before = pymq_xxh3_64(pattern, PATTERN_SIZE);
    for (size_t at = 0; at < PATTERN_SIZE; at += 97) {
        pattern[at] ^= 0x10;
        CHECK(pymq_xxh3_64(pattern, PATTERN_SIZE) != before);
        pattern[at] ^= 0x10;
    }
    CHECK(pymq_xxh3_64(pattern, PATTERN_SIZE) == before);
}

int main(void) {
    fill_pattern();
    RUN(test_values_at_the_edges_of_the_length_classes);
    RUN(test_every_length_reads_only_its_own_bytes);
    RUN(test_a_changed_bit_changes_the_value);
    return check_summary();
}
