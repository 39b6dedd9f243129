/* Columns: the golden log, queues and index files as a whole, and every way a walk can end. */
#include "pymq/scan.h"

#include "pymq/cq_unit.h"

#include "check.h"

#define GOLDEN "tests/data/golden-store/store/"
#define ROWS_MAX 400

static int64_t offset_column[ROWS_MAX], tags_column[ROWS_MAX], body_at_column[ROWS_MAX], topic_at_column[ROWS_MAX];
static int64_t record_at_column[ROWS_MAX];
static int32_t size_column[ROWS_MAX], queue_column[ROWS_MAX], body_size_column[ROWS_MAX], topic_size_column[ROWS_MAX];
static uint8_t matches_column[ROWS_MAX];

static struct pymq_log_columns columns(void) {
    struct pymq_log_columns made;
    memset(&made, 0, sizeof made);
    made.physical_offset = offset_column;
    made.total_size = size_column;
    made.queue_id = queue_column;
    made.tags_code = tags_column;
    made.record_position = record_at_column;
    made.body_position = body_at_column;
    made.body_size = body_size_column;
    made.topic_position = topic_at_column;
    made.topic_size = topic_size_column;
    made.body_crc_matches = matches_column;
    return made;
}

static void test_golden_log_walks_to_its_ends(void) {
    struct pymq_log_columns wanted = columns();
    struct pymq_log_walk walk;
    size_t size, first_count;
    uint8_t *bytes = check_read_file(GOLDEN "commitlog/00000000000000000000", &size);
    pymq_scan_log(bytes, size, 0, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET, NULL, &wanted, ROWS_MAX, &walk);
    CHECK_EQ(walk.end, PYMQ_WALK_BLANK);
    CHECK_EQ(walk.position, 65366);
    CHECK_EQ(walk.blank_size, 170);
    CHECK_EQ(walk.crc_mismatch_count, 0);
    CHECK_EQ(offset_column[1], 300);
    CHECK_EQ(size_column[1], 333);
    CHECK_EQ(tags_column[0], 2598919);
    CHECK_BYTES(bytes + topic_at_column[0], topic_size_column[0], "GoldenA", 7);
    for (size_t row = 0; row < walk.count; row++) {
        CHECK_EQ(offset_column[row], record_at_column[row]);
        CHECK_EQ(matches_column[row], 1);
    }
    first_count = walk.count;
    free(bytes);
    bytes = check_read_file(GOLDEN "commitlog/00000000000000065536", &size);
    pymq_scan_log(bytes, size, 65536, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET, NULL, &wanted, ROWS_MAX, &walk);
    CHECK_EQ(walk.end, PYMQ_WALK_CORRUPT); /* zeros: never written */
    CHECK_EQ(walk.position, 55598);
    CHECK_EQ(first_count + walk.count, 325);
    free(bytes);
}

static void test_walk_goes_on_when_the_columns_are_full(void) {
    struct pymq_log_columns wanted = columns();
    struct pymq_log_walk whole, walk;
    size_t size, position = 0, count = 0;
    uint8_t *bytes = check_read_file(GOLDEN "commitlog/00000000000000000000", &size);
    pymq_scan_log(bytes, size, 0, 0, NULL, &wanted, ROWS_MAX, &whole);
    do {
        pymq_scan_log(bytes + position, size - position, (int64_t)position, PYMQ_CHECK_OFFSET, NULL, &wanted, 7, &walk);
        CHECK(walk.count <= 7);
        position += walk.position;
        count += walk.count;
    } while (walk.end == PYMQ_WALK_FULL);
    CHECK_EQ(walk.end, PYMQ_WALK_BLANK);
    CHECK_EQ(count, whole.count);
    CHECK_EQ(position, whole.position);
    free(bytes);
}

/* The first three golden records, cut at every byte: the whole ones are found, the rest is named rightly. */
static void test_walk_of_every_prefix(void) {
    struct pymq_log_columns wanted = columns();
    struct pymq_log_walk walk;
    size_t size, limit;
    uint8_t *bytes = check_read_file(GOLDEN "commitlog/00000000000000000000", &size);
    pymq_scan_log(bytes, size, 0, 0, NULL, &wanted, 3, &walk);
    limit = walk.position;
    for (size_t cut = 0; cut <= limit; cut++) {
        uint8_t *exact = check_exact(bytes, cut);
        pymq_scan_log(exact, cut, 0, PYMQ_CHECK_BODY_CRC, NULL, &wanted, ROWS_MAX, &walk);
        CHECK_EQ(walk.end, walk.position == cut ? PYMQ_WALK_DONE : PYMQ_WALK_TRUNCATED);
        CHECK_EQ(walk.count, cut == limit ? 3 : cut >= 633 ? 2 : cut >= 300 ? 1 : 0);
        free(exact);
    }
    free(bytes);
}

static void test_broken_body_is_counted_or_ends_the_walk(void) {
    struct pymq_log_columns wanted = columns(), none;
    struct pymq_log_walk walk, clean;
    size_t size;
    uint8_t *bytes = check_read_file(GOLDEN "commitlog/00000000000000000000", &size);
    memset(&none, 0, sizeof none);
    pymq_scan_log(bytes, size, 0, 0, NULL, &wanted, ROWS_MAX, &clean);
    bytes[body_at_column[1]] ^= 0x20;
    pymq_scan_log(bytes, size, 0, 0, NULL, &wanted, ROWS_MAX, &walk);
    CHECK_EQ(walk.count, clean.count);
    CHECK_EQ(walk.crc_mismatch_count, 1);
    CHECK_EQ(matches_column[0], 1);
    CHECK_EQ(matches_column[1], 0);
    pymq_scan_log(bytes, size, 0, PYMQ_CHECK_BODY_CRC, NULL, &none, ROWS_MAX, &walk);
    CHECK_EQ(walk.end, PYMQ_WALK_CORRUPT);
    CHECK_EQ(walk.position, 300);
    free(bytes);
}

static void test_queue_columns_equal_the_units(void) {
    struct pymq_queue_columns wanted = {offset_column, size_column, tags_column};
    uint8_t bytes[5 * PYMQ_CQ_UNIT_SIZE];
    for (int i = 0; i < 5; i++) {
        pymq_cq_encode(bytes + i * PYMQ_CQ_UNIT_SIZE, i - 1, i - 2, i - 3);
    }
    for (size_t size = 0; size <= sizeof bytes; size++) {
        uint8_t *exact = check_exact(bytes, size);
        size_t count = pymq_scan_queue(exact, size, &wanted, 4);
        CHECK_EQ(count, size / PYMQ_CQ_UNIT_SIZE < 4 ? size / PYMQ_CQ_UNIT_SIZE : 4);
        for (size_t i = 0; i < count; i++) {
            CHECK_EQ(offset_column[i], (int64_t)i - 1);
            CHECK_EQ(size_column[i], (int32_t)i - 2);
            CHECK_EQ(tags_column[i], (int64_t)i - 3);
        }
        free(exact);
    }
}

#define GOLDEN_INDEX GOLDEN "index/20261116015600332"
#define GOLDEN_SLOTS 100 /* maxHashSlotNum of the golden broker.conf */

static void test_golden_index_chains_hold_every_item_once(void) {
    static int32_t slots[GOLDEN_SLOTS], hashes[ROWS_MAX], seconds[ROWS_MAX], previous[ROWS_MAX];
    struct pymq_index_columns wanted = {hashes, offset_column, seconds, previous};
    struct pymq_index_header header;
    size_t size;
    ssize_t count;
    int visited = 0, used = 0;
    uint8_t *bytes = check_read_file(GOLDEN_INDEX, &size);
    CHECK_EQ(pymq_scan_index_header(bytes, size, &header), PYMQ_OK);
    CHECK_EQ(pymq_scan_index_slots(bytes, size, GOLDEN_SLOTS, slots, GOLDEN_SLOTS), GOLDEN_SLOTS);
    count = pymq_scan_index_items(bytes, size, GOLDEN_SLOTS, 1, &wanted, ROWS_MAX);
    CHECK_EQ(count, header.item_count - 1);
    for (int slot = 0; slot < GOLDEN_SLOTS; slot++) {
        used += slots[slot] != 0;
        for (int32_t number = slots[slot]; number != 0; number = previous[number - 1]) {
            CHECK(number >= 1 && number <= count);
            CHECK_EQ(hashes[number - 1] % GOLDEN_SLOTS, slot);
            visited++;
        }
    }
    CHECK_EQ(visited, count);
    CHECK_EQ(used, header.slot_used);
    CHECK_EQ(offset_column[0], header.begin_offset);
    CHECK_EQ(offset_column[count - 1], header.end_offset);
    free(bytes);
}

static void test_index_bounds(void) {
    static int32_t slots[4], hashes[4], seconds[4], previous[4];
    struct pymq_index_columns wanted = {hashes, offset_column, seconds, previous};
    struct pymq_index_header header;
    uint8_t bytes[40 + 2 * 4 + 3 * 20] = {0}; /* two slots; items 1 and 2 behind the unused position 0 */
    pymq_store_be32(bytes + 36, 3);
    pymq_store_be32(bytes + 48 + 20, 77);
    pymq_store_be32(bytes + 48 + 40, 78);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        uint8_t *exact = check_exact(bytes, size);
        CHECK_EQ(pymq_scan_index_header(exact, size, &header), size < 40 ? PYMQ_ETRUNCATED : PYMQ_OK);
        CHECK_EQ(pymq_scan_index_slots(exact, size, 2, slots, 4), size < 48 ? PYMQ_ETRUNCATED : 2);
        CHECK_EQ(pymq_scan_index_items(exact, size, 2, 1, &wanted, 4), size < sizeof bytes ? PYMQ_ETRUNCATED : 2);
        CHECK_EQ(pymq_scan_index_items(exact, size, 2, 1, &wanted, 1), size < 88 ? PYMQ_ETRUNCATED : 1);
        free(exact);
    }
    CHECK_EQ(pymq_scan_index_items(bytes, sizeof bytes, 2, 2, &wanted, 4), 1);
    CHECK_EQ(hashes[0], 78);
    CHECK_EQ(pymq_scan_index_items(bytes, sizeof bytes, 2, 3, &wanted, 4), 0);
    CHECK_EQ(pymq_scan_index_items(bytes, sizeof bytes, 2, 0, &wanted, 4), PYMQ_EINVAL);
    CHECK_EQ(pymq_scan_index_items(bytes, sizeof bytes, -1, 1, &wanted, 4), PYMQ_EINVAL);
    CHECK_EQ(pymq_scan_index_slots(bytes, sizeof bytes, -1, slots, 4), PYMQ_EINVAL);
    CHECK_EQ(pymq_scan_index_slots(bytes, sizeof bytes, INT32_MAX, slots, 4), PYMQ_ETRUNCATED);
    CHECK_EQ(pymq_scan_index_slots(bytes, sizeof bytes, 2, slots, 1), 1);
    pymq_store_be32(bytes + 36, 0x80000000u); /* nonsense counts */
    CHECK_EQ(pymq_scan_index_items(bytes, sizeof bytes, 2, 1, &wanted, 4), 0);
    pymq_store_be32(bytes + 36, INT32_MAX);
    CHECK_EQ(pymq_scan_index_items(bytes, sizeof bytes, 2, 1, &wanted, 4), PYMQ_ETRUNCATED);
}

int main(void) {
    RUN(test_golden_log_walks_to_its_ends);
    RUN(test_walk_goes_on_when_the_columns_are_full);
    RUN(test_walk_of_every_prefix);
    RUN(test_broken_body_is_counted_or_ends_the_walk);
    RUN(test_queue_columns_equal_the_units);
    RUN(test_golden_index_chains_hold_every_item_once);
    RUN(test_index_bounds);
    return check_summary();
}
