/* Whole tables: the golden log and its queues and index give the same sums, texts are gathered rightly, and the next
 * record behind damage is found from exactly the bytes given. */
#include "pymq/scan_digest.h"
#include "pymq/scan_text.h"

#include "pymq/cq_unit.h"

#include "check.h"

#define GOLDEN "tests/data/golden-store/store/"
#define LOG_FILE_SIZE 65536
#define ROWS_MAX 400
#define TABLE_SIZE 256
#define GOLDEN_SLOTS 100

static int64_t longs[9][ROWS_MAX];
static int32_t ints[9][ROWS_MAX];
static uint8_t status_column[ROWS_MAX], text_column[ROWS_MAX];
static struct pymq_group groups[TABLE_SIZE];
static struct pymq_topic topics[TABLE_SIZE];
static uint8_t names[4096];

static struct pymq_log_columns columns(void) {
    struct pymq_log_columns made;
    memset(&made, 0, sizeof made);
    made.physical_offset = longs[0];
    made.queue_offset = longs[1];
    made.store_timestamp_ms = longs[2];
    made.tags_code = longs[3];
    made.topic_position = longs[4];
    made.unique_key_position = longs[5];
    made.keys_position = longs[6];
    made.tags_position = longs[7];
    made.record_position = longs[8];
    made.total_size = ints[0];
    made.queue_id = ints[1];
    made.sys_flag = ints[2];
    made.topic_size = ints[3];
    made.unique_key_size = ints[4];
    made.keys_size = ints[5];
    made.tags_size = ints[6];
    made.status = status_column;
    made.text_state = text_column;
    return made;
}

static struct pymq_topic_table topic_table(void) {
    struct pymq_topic_table table = {topics, TABLE_SIZE, 0, names, sizeof names, 0};
    memset(topics, 0, sizeof topics);
    return table;
}

static struct pymq_group_table group_table(void) {
    struct pymq_group_table table = {groups, TABLE_SIZE, 0};
    memset(groups, 0, sizeof groups);
    return table;
}

static const struct pymq_group *find(int32_t kind, int32_t queue_id, int64_t bucket, int32_t topic) {
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        if (groups[i].count > 0 && groups[i].kind == kind && groups[i].queue_id == queue_id &&
            groups[i].bucket == bucket && groups[i].topic == topic) {
            return &groups[i];
        }
    }
    return NULL;
}

/* Fold both golden log files; returns how many records there were. */
static size_t fold_golden(struct pymq_topic_table *topic_names, struct pymq_group_table *table) {
    static const char *const paths[] = {GOLDEN "commitlog/00000000000000000000",
                                        GOLDEN "commitlog/00000000000000065536"};
    struct pymq_delay_levels levels;
    size_t total = 0;
    CHECK_EQ(pymq_delay_levels_parse("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", &levels), PYMQ_OK);
    for (int file = 0; file < 2; file++) {
        struct pymq_log_columns wanted = columns();
        struct pymq_log_walk walk;
        size_t size;
        uint8_t *bytes = check_read_file(paths[file], &size);
        pymq_scan_log(bytes, size, (int64_t)file * LOG_FILE_SIZE, 0, &levels, &wanted, ROWS_MAX, &walk);
        for (size_t row = 0; row < walk.count; row++) {
            CHECK_EQ(status_column[row], PYMQ_ROW_OK);
            CHECK_EQ(text_column[row], 0);
        }
        CHECK_EQ(pymq_scan_fold(bytes, &wanted, 0, walk.count, topic_names, table), walk.count);
        total += walk.count;
        free(bytes);
    }
    return total;
}

static void test_golden_records_and_units_have_the_same_digest(void) {
    struct pymq_topic_table topic_names = topic_table();
    struct pymq_group_table table = group_table();
    const struct pymq_group *records = NULL;
    struct pymq_unit_order order = {.count = 0};
    struct pymq_unit_fault faults[4];
    size_t size, fault_count = 0;
    uint8_t *bytes;
    CHECK_EQ(fold_golden(&topic_names, &table), 325);
    for (int32_t topic = 0; topic < TABLE_SIZE; topic++) {
        if (topics[topic].used && topics[topic].name_size == 19 &&
            memcmp(names + topics[topic].name_at, "SCHEDULE_TOPIC_XXXX", 19) == 0) {
            records = find(PYMQ_GROUP_RECORDS, 17, 0, topic);
        }
    }
    CHECK(records != NULL);
    bytes = check_read_file(GOLDEN "consumequeue/SCHEDULE_TOPIC_XXXX/17/00000000000000000000", &size);
    size = pymq_scan_written(bytes, size);
    size = (size + PYMQ_CQ_UNIT_SIZE - 1) / PYMQ_CQ_UNIT_SIZE;
    if (records != NULL) {
        struct pymq_group kept = *records;
        struct pymq_group_table units = group_table();
        size_t taken = pymq_scan_fold_units(bytes, size, 0, &order, &units, faults, 4, &fault_count);
        const struct pymq_group *found = find(PYMQ_GROUP_UNITS, 0, 0, -1);
        CHECK_EQ(taken, size);
        CHECK_EQ(fault_count, 0);
        CHECK(found != NULL && found->count == kept.count && found->digest == kept.digest);
        CHECK(found != NULL && found->physical_offset_end == kept.physical_offset_end);
    }
    free(bytes);
}

static void test_golden_keys_and_items_have_the_same_digest(void) {
    static const char *const paths[] = {GOLDEN "index/20261116015600332"};
    struct pymq_topic_table topic_names = topic_table();
    struct pymq_group_table table = group_table();
    struct pymq_index_columns wanted = {ints[0], longs[0], ints[1], ints[2]};
    static int32_t slots[GOLDEN_SLOTS], newest[GOLDEN_SLOTS];
    struct pymq_chain_fault faults[4];
    const struct pymq_group *keys;
    size_t size;
    ssize_t count;
    uint8_t *bytes = check_read_file(paths[0], &size);
    fold_golden(&topic_names, &table);
    keys = find(PYMQ_GROUP_KEYS, 0, 0, -1);
    CHECK(keys != NULL && keys->count == 826);
    count = pymq_scan_index_items(bytes, size, GOLDEN_SLOTS, 1, &wanted, ROWS_MAX);
    CHECK_EQ(pymq_scan_fold_items(ints[0], longs[0], (size_t)count, &table), (size_t)count);
    CHECK_EQ(find(PYMQ_GROUP_ITEMS, 0, 0, -1)->count, count);
    pymq_scan_index_slots(bytes, size, GOLDEN_SLOTS, slots, GOLDEN_SLOTS);
    CHECK_EQ(pymq_scan_chain_items(ints[0], ints[2], (size_t)count, 1, GOLDEN_SLOTS, NULL, 0, newest, faults, 4), 0);
    CHECK_EQ(pymq_scan_chain_slots(slots, newest, GOLDEN_SLOTS, faults, 4), 0);
    slots[7]++;
    CHECK_EQ(pymq_scan_chain_slots(slots, newest, GOLDEN_SLOTS, faults, 4), 1);
    CHECK_EQ(faults[0].slot, 7);
    CHECK_EQ(faults[0].expected, slots[7] - 1);
    memset(newest, 0, sizeof newest);
    ints[2][9] ^= 1;
    CHECK_EQ(pymq_scan_chain_items(ints[0], ints[2], (size_t)count, 1, GOLDEN_SLOTS, NULL, 0, newest, faults, 0), 1);
    free(bytes);
}

static void test_a_full_table_stops_the_fold_before_the_row_that_may_not_fit(void) {
    struct pymq_log_columns wanted = columns();
    struct pymq_log_walk walk;
    size_t size, row = 0, drained = 0, rounds = 0;
    int64_t members = 0;
    uint8_t *bytes = check_read_file(GOLDEN "commitlog/00000000000000000000", &size);
    pymq_scan_log(bytes, size, 0, 0, NULL, &wanted, ROWS_MAX, &walk);
    while (row < walk.count) {
        struct pymq_topic_table topic_names = topic_table();
        struct pymq_group_table table = group_table();
        struct pymq_group_columns none;
        size_t next;
        memset(&none, 0, sizeof none);
        table.capacity = 16;
        next = pymq_scan_fold(bytes, &wanted, row, walk.count, &topic_names, &table);
        CHECK(next > row);
        CHECK(table.count <= 12);
        for (size_t i = 0; i < 16; i++) {
            members += groups[i].count > 0 && groups[i].kind == PYMQ_GROUP_TRAFFIC ? groups[i].count : 0;
        }
        drained += pymq_scan_groups(&table, PYMQ_GROUP_TRAFFIC, &none);
        pymq_scan_groups_clear(&table);
        CHECK_EQ(pymq_scan_groups(&table, PYMQ_GROUP_TRAFFIC, &none), 0);
        row = next;
        rounds++;
    }
    CHECK(rounds > 1 && drained >= rounds);
    CHECK_EQ((size_t)members, walk.count);
    free(bytes);
}

/* The golden log with its first record destroyed, cut at every byte around the second: found when it is whole. */
static void test_the_next_record_is_found_from_every_cut(void) {
    size_t size;
    uint8_t *bytes = check_read_file(GOLDEN "commitlog/00000000000000000000", &size);
    memset(bytes, 0xee, 100);
    for (size_t cut = 0; cut < 700; cut++) {
        uint8_t *exact = check_exact(bytes, cut);
        struct pymq_find found;
        pymq_scan_find(exact, cut, 0, LOG_FILE_SIZE, LOG_FILE_SIZE, &found);
        CHECK_EQ(found.kind, cut >= 633 ? PYMQ_FIND_RECORD : cut >= 308 ? PYMQ_FIND_MORE : PYMQ_FIND_NOTHING);
        CHECK_EQ(found.position, cut >= 308 ? 300 : cut < 8 ? 0 : cut - 7);
        CHECK(found.kind != PYMQ_FIND_MORE || found.size == 333);
        free(exact);
    }
    free(bytes);
}

static void test_the_blank_tail_is_found_only_when_it_ends_with_the_file(void) {
    uint8_t bytes[200] = {0};
    struct pymq_find found;
    pymq_store_be32(bytes + 150, 50);
    pymq_store_be32(bytes + 154, PYMQ_RECORD_MAGIC_BLANK);
    pymq_scan_find(bytes, sizeof bytes, 1000, 1200, 1200, &found);
    CHECK_EQ(found.kind, PYMQ_FIND_BLANK);
    CHECK_EQ(found.position, 150);
    pymq_scan_find(bytes, sizeof bytes, 1000, 1200, 1201, &found);
    CHECK_EQ(found.kind, PYMQ_FIND_NOTHING);
    CHECK_EQ(pymq_scan_written(bytes, sizeof bytes), 158);
    CHECK_EQ(pymq_scan_written(bytes, 150), 0);
}

static bool utf8(const char *text) {
    uint8_t *exact = check_exact(text, strlen(text));
    bool is = pymq_is_utf8(exact, strlen(text));
    free(exact);
    return is;
}

static void test_utf8_as_the_standard_has_it(void) {
    CHECK(utf8("") && utf8("plain ascii of more than thirty-two bytes, to pass the long step"));
    CHECK(utf8("\xc2\x80") && utf8("\xe0\xa0\x80") && utf8("\xed\x9f\xbf") && utf8("\xee\x80\x80"));
    CHECK(utf8("\xf0\x90\x80\x80") && utf8("\xf4\x8f\xbf\xbf") && utf8("0123456789\xe6\x97\xa5\xe6\x9c\xac"));
    CHECK(!utf8("\x80") && !utf8("\xc0\x80") && !utf8("\xc1\xbf") && !utf8("\xc2") && !utf8("\xc2x"));
    CHECK(!utf8("\xe0\x9f\xbf") && !utf8("\xed\xa0\x80") && !utf8("\xe6\x97") && !utf8("\xe6\x97z"));
    CHECK(!utf8("\xf0\x8f\xbf\xbf") && !utf8("\xf4\x90\x80\x80") && !utf8("\xf5\x80\x80\x80") && !utf8("\xff"));
    CHECK(!utf8("0123456789012345678901234567890123456789\xff"));
}

static uint8_t text_state(const char *properties) {
    static const uint8_t topic[] = {'T'};
    struct pymq_slice name = {topic, 1}, text = {(const uint8_t *)properties, (uint32_t)strlen(properties)};
    return pymq_text_state(name, text);
}

static void test_pieces_that_are_no_pair_are_told(void) {
    CHECK_EQ(text_state(""), 0);
    CHECK_EQ(text_state("a\x01" "b\x02"), 0);
    CHECK_EQ(text_state("a\x01" "b\x02" "c\x01" "d"), 0);
    CHECK_EQ(text_state("a\x01\x02"), 0);
    CHECK_EQ(text_state("a\x02"), PYMQ_TEXT_BAD_PROPERTIES);
    CHECK_EQ(text_state("\x01" "b\x02"), PYMQ_TEXT_BAD_PROPERTIES);
    CHECK_EQ(text_state("a\x01" "b\x01" "c\x02"), PYMQ_TEXT_BAD_PROPERTIES);
    CHECK_EQ(text_state("a\x01" "b\x02\x02"), PYMQ_TEXT_BAD_PROPERTIES);
    CHECK_EQ(text_state("a\x01" "\xff\x02"), PYMQ_TEXT_BAD_UTF8);
}

static void test_gathered_pieces_and_their_absence(void) {
    static const uint8_t source[] = "onetwothree";
    const int64_t positions[] = {0, 3, 6, 99};
    const int32_t sizes[] = {3, 0, 5, -1};
    int32_t offsets[5];
    uint8_t validity[1];
    uint8_t *data = check_exact("........", 8);
    CHECK_EQ(pymq_scan_gather_size(sizes, 4), 8);
    CHECK_EQ(pymq_scan_gather(source, positions, sizes, 4, offsets, data, validity), 1);
    CHECK_BYTES(data, 8, "onethree", 8);
    CHECK_EQ(validity[0], 7);
    CHECK_EQ(offsets[1], 3);
    CHECK_EQ(offsets[2], 3);
    CHECK_EQ(offsets[4], 8);
    free(data);
}

/* Physical offsets 10 20 30 with one spoilt: whichever way, the spoilt unit is the one that is told. */
static void test_the_unit_out_of_order_is_the_one_that_is_told(void) {
    static const struct {
        int64_t offsets[4];
        int64_t culprit;
    } cases[] = {{{10, 20, 30, 40}, -1}, {{10, 99, 30, 40}, 1}, {{10, 20, 5, 40}, 2}, {{10, 10, 30, 40}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[4 * PYMQ_CQ_UNIT_SIZE];
        struct pymq_group_table table = group_table();
        struct pymq_unit_order order = {.count = 0};
        struct pymq_unit_fault faults[4];
        size_t fault_count = 0;
        for (int unit = 0; unit < 4; unit++) {
            pymq_cq_encode(bytes + unit * PYMQ_CQ_UNIT_SIZE, cases[i].offsets[unit], 10, 0);
        }
        CHECK_EQ(pymq_scan_fold_units(bytes, 4, 100, &order, &table, faults, 4, &fault_count), 4);
        CHECK_EQ(fault_count, cases[i].culprit < 0 ? 0 : 1);
        CHECK(fault_count == 0 || faults[0].queue_offset == 100 + cases[i].culprit);
    }
}

int main(void) {
    RUN(test_golden_records_and_units_have_the_same_digest);
    RUN(test_golden_keys_and_items_have_the_same_digest);
    RUN(test_a_full_table_stops_the_fold_before_the_row_that_may_not_fit);
    RUN(test_the_next_record_is_found_from_every_cut);
    RUN(test_the_blank_tail_is_found_only_when_it_ends_with_the_file);
    RUN(test_utf8_as_the_standard_has_it);
    RUN(test_pieces_that_are_no_pair_are_told);
    RUN(test_gathered_pieces_and_their_absence);
    RUN(test_the_unit_out_of_order_is_the_one_that_is_told);
    return check_summary();
}
