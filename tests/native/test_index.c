/* The key index: what is put is found, and the bytes are Apache's. */
#include <fcntl.h>

#include "../../csrc/store/index_file.h"
#include "index_help.h"
#include "pymq/java_hash.h"

#define GOLDEN_STORE "tests/data/golden-store/store"
#define GOLDEN_SLOTS 100
#define GOLDEN_ITEMS 200

/* ---- format --------------------------------------------------------------------------------------------- */

static void test_chains_are_those_of_the_documented_example(void) {
    static const int32_t hashes[] = {16, 29, 29, 8, 16, 16};
    static const int32_t previous[] = {0, 0, 2, 0, 1, 5};
    char directory[DIRECTORY_MAX];
    struct index_layout layout = {.slot_count = 100, .item_limit = 10, .items_at = 440, .file_size = 640};
    struct index_file *file = NULL;
    scratch_make(directory);
    CHECK_EQ(pymq_index_file_create(directory, &layout, "20240101000000000", 0, 0, &file), PYMQ_OK);
    for (int i = 0; i < 6; i++)
        CHECK_EQ(pymq_index_file_put(file, &layout, hashes[i], 1000 + i, TIME_BASE_MS + i * 700), PYMQ_OK);
    for (int i = 0; i < 6; i++) {
        struct index_item item;
        index_item_decode(file->map + index_item_at(&layout, i + 1), &item);
        CHECK_EQ(item.hash, hashes[i]);
        CHECK_EQ(item.offset, 1000 + i);
        CHECK_EQ(item.seconds, i * 700 / 1000);
        CHECK_EQ(item.previous, previous[i]);
    }
    CHECK_EQ(pymq_load_be32(file->map + index_slot_at(&layout, 16)), 6);
    CHECK_EQ(pymq_load_be32(file->map + index_slot_at(&layout, 29)), 3);
    CHECK_EQ(pymq_load_be32(file->map + index_slot_at(&layout, 8)), 4);
    struct pymq_index_header header;
    pymq_index_header_decode(file->map, &header);
    CHECK_EQ(header.begin_timestamp_ms, TIME_BASE_MS);
    CHECK_EQ(header.end_timestamp_ms, TIME_BASE_MS + 3500);
    CHECK_EQ(header.begin_offset, 1000);
    CHECK_EQ(header.end_offset, 1005);
    CHECK_EQ(header.slot_used, 3);
    CHECK_EQ(header.item_count, 7);
    pymq_index_file_detach(file, &layout);
    free(file);
    scratch_remove(directory);
}

static void test_seconds_are_never_negative_and_never_beyond_an_int(void) {
    static const int64_t times[] = {5000, 1000, 5999, 6000, INT64_MAX, INT64_MIN};
    static const int32_t seconds[] = {0, 0, 0, 1, INT32_MAX, INT32_MAX}; /* the last wraps, as in Java */
    char directory[DIRECTORY_MAX];
    struct index_layout layout = {.slot_count = 10, .item_limit = 10, .items_at = 80, .file_size = 280};
    struct index_file *file = NULL;
    scratch_make(directory);
    CHECK_EQ(pymq_index_file_create(directory, &layout, "20240101000000000", 0, 0, &file), PYMQ_OK);
    for (int i = 0; i < 6; i++) {
        struct index_item item;
        CHECK_EQ(pymq_index_file_put(file, &layout, i, i, times[i]), PYMQ_OK);
        index_item_decode(file->map + index_item_at(&layout, i + 1), &item);
        CHECK_EQ(item.seconds, seconds[i]);
    }
    pymq_index_file_detach(file, &layout);
    free(file);
    scratch_remove(directory);
}

/* Put every record of the golden log into `index`. Returns records seen. */
static int put_golden_log(struct pymq_index *index, const char *store) {
    char path[PYMQ_PATH_MAX];
    char *paths[FILES_MAX];
    struct pymq_delay_levels levels = {0};
    int records = 0;
    snprintf(path, sizeof path, "%s/commitlog", store);
    int count = list_files(path, paths);
    for (int i = 0; i < count; i++) {
        size_t size;
        uint8_t *bytes = check_read_file(paths[i], &size);
        int64_t base = strtoll(strrchr(paths[i], '/') + 1, NULL, 10);
        for (size_t at = 0; at < size;) {
            struct pymq_record record;
            struct pymq_record_keys keys;
            ssize_t step = pymq_record_decode(bytes + at, size - at, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET,
                                              base + (int64_t)at, &record);
            if (step <= 0)
                break;
            pymq_record_keys(&record, &levels, &keys);
            CHECK_EQ(pymq_index_put(index, &record, &keys), PYMQ_OK);
            records++;
            at += (size_t)step;
        }
        free(bytes);
    }
    free_paths(paths, count);
    return records;
}

static void test_golden_index_is_rebuilt_byte_for_byte(void) {
    const char *store = getenv("PYMQ_GOLDEN") != NULL ? getenv("PYMQ_GOLDEN") : GOLDEN_STORE;
    char directory[DIRECTORY_MAX];
    char golden[PYMQ_PATH_MAX];
    scratch_make(directory);
    snprintf(golden, sizeof golden, "%s/index", store);
    struct pymq_index *index = open_index(directory, GOLDEN_SLOTS, GOLDEN_ITEMS);
    CHECK_EQ(put_golden_log(index, store), 325);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    check_same_files(directory, golden);

    /* And what Apache wrote is not changed by opening and repairing it. */
    int64_t reindex_from;
    struct pymq_error error;
    index = open_index(directory, GOLDEN_SLOTS, GOLDEN_ITEMS);
    CHECK_EQ(pymq_index_repair(index, INT64_MAX, &reindex_from, &error), PYMQ_OK);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    check_same_files(directory, golden);
    scratch_remove(directory);
}

/* ---- put and query -------------------------------------------------------------------------------------- */

static void test_every_key_is_found_across_rolling_files_and_after_reopening(void) {
    enum { COUNT = 150 };
    char directory[DIRECTORY_MAX];
    char whole[DIRECTORY_MAX];
    struct message *messages = make_messages(COUNT, 11);
    struct log log = {.messages = messages, .count = COUNT};
    scratch_make(directory);
    scratch_make(whole);
    struct pymq_index *index = open_index(whole, SLOTS, ITEMS);
    put_all(index, messages, COUNT);
    CHECK(count_files(whole) > 5);
    check_all_keys(index, &log);
    CHECK_EQ(pymq_index_flush(index), PYMQ_OK);
    check_all_keys(index, &log); /* now most files are read without a mapping */
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    for (int i = 0; i < COUNT; i++) { /* the same with a stop after every message */
        index = open_index(directory, SLOTS, ITEMS);
        CHECK_EQ(put_message(index, &messages[i]), PYMQ_OK);
        CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    }
    check_same_files(directory, whole);
    index = open_index(directory, SLOTS, ITEMS);
    check_all_keys(index, &log);
    pymq_index_abandon(index);
    scratch_remove(directory);
    scratch_remove(whole);
    free(messages);
}

static void test_colliding_hashes_are_told_apart_by_the_verifier(void) {
    struct message messages[] = {
        {.offset = 0, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "Aa"},
        {.offset = 100, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "BB"},
        {.offset = 200, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "C"},
        {.offset = 300, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "Aa"},
    };
    char directory[DIRECTORY_MAX];
    struct log log = {.messages = messages, .count = 4};
    scratch_make(directory);
    CHECK_EQ(pymq_index_key_hash((const uint8_t *)"T", 1, (const uint8_t *)"Aa", 2),
             pymq_index_key_hash((const uint8_t *)"T", 1, (const uint8_t *)"BB", 2));
    struct pymq_index *index = open_index(directory, 1, ITEMS); /* one slot: one chain for everything */
    put_all(index, messages, 4);
    check_key(index, &log, "T", "Aa");
    CHECK_EQ(log.asked, 3); /* C has another hash and is never asked about */
    check_key(index, &log, "T", "BB");
    check_key(index, &log, "T", "C");
    pymq_index_abandon(index);
    scratch_remove(directory);
}

static void test_keys_words_unique_key_and_tags_are_separate_entries(void) {
    struct message messages[] = {
        {.offset = 0, .timestamp_ms = TIME_BASE_MS, .topic = "T", .unique_key = "same", .keys = " same  other ",
         .tags = "red"},
        {.offset = 100, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "red"},
        {.offset = 200, .timestamp_ms = TIME_BASE_MS, .topic = "T"},
        {.offset = 300, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "gone",
         .sys_flag = PYMQ_SYS_TRANSACTION_ROLLBACK},
        {.offset = 400, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "half",
         .sys_flag = PYMQ_SYS_TRANSACTION_PREPARED},
        {.offset = 50, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "late"}, /* below the end: was put already */
    };
    char directory[DIRECTORY_MAX];
    struct log log = {.messages = messages, .count = 5};
    struct pymq_index_marks marks;
    scratch_make(directory);
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    pymq_index_marks(index, &marks);
    CHECK_EQ(marks.end_offset, -1);
    CHECK_EQ(marks.open_begin_offset, INT64_MAX);
    put_all(index, messages, 6);
    check_key(index, &log, "T", "same"); /* twice indexed, once returned */
    CHECK_EQ(log.asked, 1);
    check_key(index, &log, "T", "other");
    log.asked = 0;
    check_key(index, &log, "T", "red"); /* the tag of message 0 is another entry */
    CHECK_EQ(log.asked, 1);
    check_key(index, &log, "T", "T#red");
    check_key(index, &log, "T", "half");
    check_key(index, &log, "T", "late");
    log.asked = 0;
    int64_t offset;
    CHECK_EQ(query_window(index, &log, "T", "gone", 0, INT64_MAX, &offset, 1), 0);
    CHECK_EQ(log.asked, 0);
    pymq_index_marks(index, &marks);
    CHECK_EQ(marks.end_offset, 400);
    CHECK_EQ(marks.open_begin_offset, 0);
    CHECK_EQ(marks.open_begin_timestamp_ms, TIME_BASE_MS);
    pymq_index_abandon(index);
    scratch_remove(directory);
}

static int verify_stops(void *context, int64_t offset) {
    (void)offset;
    return *(const int *)context;
}

static void test_windows_of_time_offset_and_count_bound_a_query(void) {
    enum { COUNT = 100 }; /* one key each, 10 s apart, 31 a file */
    struct message messages[COUNT] = {0};
    char directory[DIRECTORY_MAX];
    struct log log = {.messages = messages, .count = COUNT};
    int64_t offsets[COUNT];
    for (int i = 0; i < COUNT; i++) {
        messages[i].offset = i * 100;
        messages[i].timestamp_ms = TIME_BASE_MS + i * 10000;
        messages[i].topic = "T";
        snprintf(messages[i].keys, sizeof messages[i].keys, "k");
    }
    scratch_make(directory);
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    put_all(index, messages, COUNT);
    for (int round = 0; round < 2; round++) {
        for (int first = 0; first < COUNT; first += 7) {
            for (int last = first; last < COUNT; last += 13) {
                ssize_t found = query_window(index, &log, "T", "k", messages[first].timestamp_ms,
                                             messages[last].timestamp_ms, offsets, COUNT);
                int expected = 0;
                for (int i = COUNT - 1; i >= 0; i--) {
                    if (i >= first && i <= last) {
                        CHECK(expected < found);
                        CHECK_EQ(offsets[expected++], messages[i].offset);
                    }
                }
                CHECK_EQ(found, expected);
            }
        }
        CHECK_EQ(pymq_index_flush(index), PYMQ_OK); /* and again with settled files */
    }
    CHECK_EQ(query_window(index, &log, "T", "k", TIME_BASE_MS + 1, TIME_BASE_MS + 9999, offsets, COUNT), 0);
    CHECK_EQ(query_window(index, &log, "T", "k", TIME_BASE_MS + 10000000, INT64_MAX, offsets, COUNT), 0);
    CHECK_EQ(query_window(index, &log, "T", "k", 0, INT64_MAX, offsets, 3), 3);
    CHECK_EQ(offsets[2], 9700);
    CHECK_EQ(pymq_index_query(index, (const uint8_t *)"T", 1, (const uint8_t *)"k", 1, 0, INT64_MAX, 3000, 5000,
                              verify_in_log, &log, offsets, COUNT), 20);
    CHECK_EQ(offsets[0], 4900);
    CHECK_EQ(offsets[19], 3000);
    for (int stop = PYMQ_ECORRUPT; stop >= PYMQ_EMAPS; stop--)
        CHECK_EQ(pymq_index_query(index, (const uint8_t *)"T", 1, (const uint8_t *)"k", 1, 0, INT64_MAX, 0, INT64_MAX,
                                  verify_stops, &stop, offsets, COUNT), stop);
    pymq_index_abandon(index);
    scratch_remove(directory);
}

static void test_a_damaged_chain_ends_a_query_instead_of_turning_in_a_circle(void) {
    struct message messages[11] = {0};
    char directory[DIRECTORY_MAX];
    char *paths[FILES_MAX];
    struct log log = {.messages = messages, .count = 11};
    int64_t offsets[16];
    for (int i = 0; i < 11; i++) {
        messages[i] = (struct message){.offset = i * 100, .timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "k"};
    }
    static const uint32_t damage[] = {3, 5, 0x7fffffff, 0xffffffff, ITEMS, 11};
    static const int found_behind[] = {1, 3, 0, 0, 0, 0}; /* down to item 3, whose link is damaged */
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        uint8_t bytes[4];
        scratch_make(directory);
        struct pymq_index *index = open_index(directory, 1, ITEMS);
        put_all(index, messages, 10);
        CHECK_EQ(pymq_index_close(index), PYMQ_OK);
        CHECK_EQ(list_files(directory, paths), 1);
        int fd = open(paths[0], O_RDWR);
        CHECK(fd >= 0);
        pymq_store_be32(bytes, damage[i]);
        int64_t link_at = PYMQ_INDEX_HEADER_SIZE + PYMQ_INDEX_SLOT_SIZE + 3 * PYMQ_INDEX_ITEM_SIZE + 16;
        CHECK_EQ(pymq_io_pwrite_full(fd, bytes, 4, link_at), PYMQ_OK);
        index = open_index(directory, 1, ITEMS);
        CHECK_EQ(query_window(index, &log, "T", "k", 0, INT64_MAX, offsets, 16), 8); /* items 10..3 */
        pymq_index_abandon(index);
        CHECK_EQ(pymq_io_pwrite_full(fd, bytes, 4, PYMQ_INDEX_HEADER_SIZE), PYMQ_OK); /* and the slot itself */
        index = open_index(directory, 1, ITEMS);
        CHECK_EQ(query_window(index, &log, "T", "k", 0, INT64_MAX, offsets, 16), found_behind[i]);
        CHECK_EQ(put_message(index, &messages[10]), PYMQ_OK); /* a new item links only to one that exists */
        CHECK_EQ(query_window(index, &log, "T", "k", 0, INT64_MAX, offsets, 16), found_behind[i] + 1);
        CHECK_EQ(pymq_load_be32(index->writer_file->map + index_item_at(&index->layout, 11) + 16),
                 found_behind[i] > 0 ? damage[i] : 0);
        pymq_index_abandon(index);
        close(fd);
        free_paths(paths, 1);
        scratch_remove(directory);
    }
}

int main(void) {
    RUN(test_chains_are_those_of_the_documented_example);
    RUN(test_seconds_are_never_negative_and_never_beyond_an_int);
    RUN(test_golden_index_is_rebuilt_byte_for_byte);
    RUN(test_every_key_is_found_across_rolling_files_and_after_reopening);
    RUN(test_colliding_hashes_are_told_apart_by_the_verifier);
    RUN(test_keys_words_unique_key_and_tags_are_separate_entries);
    RUN(test_windows_of_time_offset_and_count_bound_a_query);
    RUN(test_a_damaged_chain_ends_a_query_instead_of_turning_in_a_circle);
    return check_summary();
}
