/* Slots of an index file whose last items are taken away, against a file that never had them. */
#include "pymq/index_cut.h"

#include "check.h"

#define SLOTS 7
#define ITEMS 60

/* Put `count` items with random hashes, as a writer does; the same state gives the same items. */
static void fill(uint8_t *slots, uint8_t *items, int32_t count, uint64_t state) {
    memset(slots, 0, SLOTS * 4);
    memset(items, 0, ITEMS * 20);
    for (int32_t number = 1; number <= count; number++) {
        uint32_t hash = (uint32_t)(check_random(&state) % 1000);
        uint8_t *slot = slots + hash % SLOTS * 4;
        pymq_store_be32(items + number * 20, hash);
        pymq_store_be32(items + number * 20 + 16, pymq_load_be32(slot));
        pymq_store_be32(slot, (uint32_t)number);
    }
}

static int32_t used_in(const uint8_t *slots) {
    int32_t used = 0;
    for (int i = 0; i < SLOTS; i++)
        used += pymq_load_be32(slots + i * 4) != 0;
    return used;
}

static void test_cut_slots_are_those_of_a_file_that_never_had_the_items(void) {
    uint8_t expected[SLOTS * 4], fewer[ITEMS * 20], slots[SLOTS * 4], items[ITEMS * 20];
    for (uint64_t seed = 1; seed < 50; seed++) {
        for (int32_t kept = 0; kept < ITEMS; kept++) {
            fill(expected, fewer, kept, seed);
            fill(slots, items, ITEMS - 1, seed);
            uint8_t *exact = check_exact(items, sizeof items);
            CHECK_EQ(pymq_index_cut_slots(slots, SLOTS, exact, ITEMS, kept + 1), used_in(expected));
            CHECK_BYTES(slots, sizeof slots, expected, sizeof expected);
            free(exact);
        }
    }
}

static void test_damage_ends_and_stays_inside(void) {
    uint8_t slots[SLOTS * 4] = {0}, items[ITEMS * 20] = {0};
    pymq_store_be32(slots, 59);
    pymq_store_be32(items + 59 * 20 + 16, 59); /* a circle */
    pymq_store_be32(slots + 4, 58);
    pymq_store_be32(items + 58 * 20 + 16, 0x80000000u);
    pymq_store_be32(slots + 8, 60);  /* beyond the file */
    pymq_store_be32(slots + 12, UINT32_MAX);
    pymq_store_be32(slots + 16, 3); /* below the cut: not looked at */
    uint8_t *exact = check_exact(items, sizeof items);
    CHECK_EQ(pymq_index_cut_slots(slots, SLOTS, exact, ITEMS, 10), 3);
    CHECK_EQ(pymq_load_be32(slots), 0);
    CHECK_EQ(pymq_load_be32(slots + 4), 0);
    CHECK_EQ(pymq_load_be32(slots + 8), 60);
    CHECK_EQ(pymq_load_be32(slots + 12), UINT32_MAX);
    CHECK_EQ(pymq_load_be32(slots + 16), 3);
    free(exact);
}

int main(void) {
    RUN(test_cut_slots_are_those_of_a_file_that_never_had_the_items);
    RUN(test_damage_ends_and_stays_inside);
    return check_summary();
}
