/* The key index: what is put is found, in Apache's bytes, also when files roll, expire or cannot grow. */
#include <errno.h>
#include <fcntl.h>

#include "../../csrc/store/index_file.h"
#include "index_help.h"
#include "pymq/java_hash.h"

#define GOLDEN_STORE "tests/data/golden-store/store"
#define GOLDEN_SLOTS 100
#define GOLDEN_ITEMS 200

static struct pymq_io faulty; /* the kernel with one call replaced */
static int calls_left;

static int fallocate_fails(int fd, off_t offset, off_t size) {
    return calls_left-- > 0 ? pymq_io_kernel.fallocate(fd, offset, size) : ENOSPC;
}

static int fdatasync_fails(int fd) {
    if (calls_left-- > 0)
        return pymq_io_kernel.fdatasync(fd);
    errno = EIO;
    return -1;
}

static int fsync_fails(int fd) {
    if (calls_left-- > 0)
        return pymq_io_kernel.fsync(fd);
    errno = EIO;
    return -1;
}

static void break_fallocate_after(int count) {
    faulty = pymq_io_kernel;
    faulty.fallocate = fallocate_fails;
    calls_left = count;
    pymq_io_use(&faulty);
}

static int open_descriptors(void) { return count_files("/proc/self/fd"); }

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

/* ---- files ---------------------------------------------------------------------------------------------- */

static void test_names_go_on_after_a_name_of_the_future(void) {
    char directory[DIRECTORY_MAX];
    char path[DIRECTORY_MAX + 32];
    char *paths[FILES_MAX];
    char name[PYMQ_INDEX_NAME_SIZE + 1];
    struct message *messages = make_messages(40, 3);
    scratch_make(directory);
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    put_all(index, messages, 5);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    CHECK_EQ(list_files(directory, paths), 1);
    CHECK(pymq_index_name_is_valid(strrchr(paths[0], '/') + 1));
    snprintf(path, sizeof path, "%s/20991231235959999", directory); /* the clock was wrong once */
    CHECK_EQ(rename(paths[0], path), 0);
    free_paths(paths, 1);
    index = open_index(directory, SLOTS, ITEMS);
    put_all(index, messages, 40);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    int count = list_files(directory, paths);
    CHECK(count >= 3);
    CHECK_EQ(strcmp(strrchr(paths[0], '/'), "/20991231235959999"), 0);
    CHECK_EQ(strcmp(strrchr(paths[1], '/'), "/21000101000000000"), 0);
    CHECK_EQ(strcmp(strrchr(paths[2], '/'), "/21000101000000001"), 0);
    free_paths(paths, count);
    CHECK_EQ(pymq_index_name_next("99991231235959999", name), PYMQ_EIO);
    CHECK_EQ(errno, EOVERFLOW);
    scratch_remove(directory);
    free(messages);
}

static void test_entries_that_are_no_index_files_are_left_alone_and_reported(void) {
    char directory[DIRECTORY_MAX];
    char path[DIRECTORY_MAX + 32];
    struct pymq_index *index = NULL;
    struct pymq_error error;
    struct message *messages = make_messages(5, 4);
    scratch_make(directory);
    snprintf(path, sizeof path, "%s/notes.txt", directory);
    write_file(path, (const uint8_t *)"x", 1);
    snprintf(path, sizeof path, "%s/20300101000000000", directory);
    CHECK_EQ(mkdir(path, 0755), 0);
    CHECK_EQ(pymq_index_open(directory, SLOTS, ITEMS, &index, &error), PYMQ_OK);
    CHECK_EQ(error.status, PYMQ_OK);
    CHECK(strstr(error.text, "2 entries are no index files") != NULL);
    put_all(index, messages, 5);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    CHECK_EQ(count_files(directory), 3);
    scratch_remove(directory);
    free(messages);
}

static void test_other_sizes_are_refused_and_a_file_cut_short_at_birth_is_removed(void) {
    static const uint8_t zeros[100];
    char directory[DIRECTORY_MAX];
    char path[DIRECTORY_MAX + 32];
    struct pymq_index *index = NULL;
    struct pymq_error error;
    struct message *messages = make_messages(20, 5);
    struct log log = {.messages = messages, .count = 20};
    scratch_make(directory);
    CHECK_EQ(pymq_index_open(directory, 0, ITEMS, &index, &error), PYMQ_EINVAL);
    CHECK_EQ(pymq_index_open(directory, SLOTS, 1, &index, &error), PYMQ_EINVAL);
    index = open_index(directory, SLOTS, ITEMS);
    put_all(index, messages, 20);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    CHECK_EQ(pymq_index_open(directory, SLOTS, ITEMS + 1, &index, &error), PYMQ_EMISMATCH);
    CHECK(index == NULL);
    CHECK_EQ(pymq_index_open(directory, SLOTS - 1, ITEMS, &index, &error), PYMQ_EMISMATCH);
    CHECK(strstr(error.text, "maxHashSlotNum=19") != NULL);
    int count = count_files(directory);
    for (size_t size = 0; size <= sizeof zeros; size += 50) {
        snprintf(path, sizeof path, "%s/20990101000000000", directory);
        write_file(path, zeros, size);
        index = open_index(directory, SLOTS, ITEMS);
        check_all_keys(index, &log);
        CHECK_EQ(count_files(directory), count);
        CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    }
    scratch_remove(directory);
    free(messages);
}

static void test_expiry_removes_whole_files_below_the_offset_but_never_the_last(void) {
    enum { COUNT = 120 };
    char directory[DIRECTORY_MAX];
    struct message *messages = make_messages(COUNT, 6);
    struct log log = {.messages = messages, .count = COUNT};
    struct pymq_index_marks marks;
    scratch_make(directory);
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    put_all(index, messages, COUNT);
    int count = count_files(directory);
    int64_t first_end = atomic_load(&index->files[0]->end_offset);
    CHECK_EQ(pymq_index_remove_expired(index, first_end), 0);
    CHECK_EQ(pymq_index_flush(index), PYMQ_OK);
    CHECK_EQ(pymq_index_remove_expired(index, first_end + 1), 1);
    CHECK_EQ(count_files(directory), count - 1);
    int64_t offsets[1];
    CHECK_EQ(query_window(index, &log, messages[0].topic, messages[0].unique_key, 0, INT64_MAX, offsets, 1), 0);
    CHECK_EQ(pymq_index_remove_expired(index, INT64_MAX), count - 2);
    CHECK_EQ(count_files(directory), 1);
    check_key(index, &log, messages[COUNT - 1].topic, messages[COUNT - 1].unique_key);
    pymq_index_marks(index, &marks);
    CHECK_EQ(marks.file_count, 1);
    CHECK_EQ(pymq_index_destroy_files(index), PYMQ_OK);
    CHECK_EQ(count_files(directory), 0);
    put_all(index, messages, COUNT); /* from the beginning again */
    check_all_keys(index, &log);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    scratch_remove(directory);
    free(messages);
}

static void test_flush_settles_full_files_which_then_hold_no_descriptor(void) {
    enum { COUNT = 120 };
    char directory[DIRECTORY_MAX];
    struct message *messages = make_messages(COUNT, 7);
    struct pymq_index_marks marks;
    scratch_make(directory);
    int before = open_descriptors();
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    put_all(index, messages, COUNT);
    int count = count_files(directory);
    CHECK_EQ(open_descriptors(), before + count);
    pymq_index_marks(index, &marks);
    CHECK_EQ(marks.full_end_timestamp_ms, 0);
    CHECK_EQ(marks.open_begin_offset, 0);
    CHECK_EQ(pymq_index_flush(index), PYMQ_OK);
    CHECK_EQ(open_descriptors(), before + 1);
    pymq_index_marks(index, &marks);
    CHECK_EQ(marks.file_count, count);
    CHECK_EQ(marks.full_end_timestamp_ms, atomic_load(&index->files[count - 2]->end_timestamp_ms));
    CHECK_EQ(marks.open_begin_offset, atomic_load(&index->files[count - 1]->begin_offset));
    CHECK_EQ(marks.end_offset, messages[COUNT - 1].offset);
    for (int i = 0; i < count - 1; i++)
        CHECK(index->files[i]->map == NULL);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    CHECK_EQ(open_descriptors(), before);
    scratch_remove(directory);
    free(messages);
}

/* ---- faults --------------------------------------------------------------------------------------------- */

static void test_a_full_disk_refuses_the_put_and_the_same_put_goes_on_later(void) {
    enum { COUNT = 60 };
    char whole[DIRECTORY_MAX];
    struct message *messages = make_messages(COUNT, 8);
    struct log log = {.messages = messages, .count = COUNT};
    scratch_make(whole);
    struct pymq_index *index = open_index(whole, SLOTS, ITEMS);
    put_all(index, messages, COUNT);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    int refusals = 0;
    for (int n = 0; n < 8; n++) {
        char directory[DIRECTORY_MAX];
        scratch_make(directory);
        index = open_index(directory, SLOTS, ITEMS);
        break_fallocate_after(n);
        for (int i = 0; i < COUNT; i++) {
            int files = count_files(directory);
            int status = put_message(index, &messages[i]);
            if (status != PYMQ_OK) {
                refusals++;
                CHECK_EQ(status, PYMQ_ENOSPC);
                CHECK_EQ(count_files(directory), files); /* no half-made file stays */
                CHECK_EQ(put_message(index, &messages[i]), PYMQ_ENOSPC);
                pymq_io_use(NULL);
                i--;
            }
        }
        pymq_io_use(NULL);
        check_all_keys(index, &log);
        CHECK_EQ(pymq_index_close(index), PYMQ_OK);
        check_same_files(directory, whole);
        scratch_remove(directory);
    }
    CHECK(refusals >= 4);
    scratch_remove(whole);
    free(messages);
}

static void test_a_full_disk_inside_a_file_changes_nothing_in_it(void) {
    enum { LARGE = 200000 }; /* items: 4 MB, so that the steps of allocation show */
    char directory[DIRECTORY_MAX];
    scratch_make(directory);
    struct message message = {.timestamp_ms = TIME_BASE_MS, .topic = "T", .keys = "k"};
    struct pymq_index *index = open_index(directory, 1000, LARGE);
    CHECK_EQ(put_message(index, &message), PYMQ_OK);
    break_fallocate_after(1);
    int status = PYMQ_OK;
    while (status == PYMQ_OK) {
        message.offset += 100;
        status = put_message(index, &message);
    }
    CHECK_EQ(status, PYMQ_ENOSPC);
    /* Two steps of items, the first beside header and slots. */
    int64_t last = (2 * PYMQ_INDEX_ALLOCATION_STEP / PYMQ_INDEX_ITEM_SIZE - 2) * 100;
    CHECK_EQ(message.offset, last + 100);
    CHECK_EQ(atomic_load(&index->writer_file->end_offset), last);
    CHECK_EQ(index->writer_file->map[index->writer_file->allocated_end], 0);
    pymq_io_use(NULL);
    CHECK_EQ(put_message(index, &message), PYMQ_OK);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    index = open_index(directory, 1000, LARGE); /* a reopened file allocates again before it stores */
    break_fallocate_after(0);
    message.offset += 100;
    CHECK_EQ(put_message(index, &message), PYMQ_ENOSPC);
    calls_left = 1;
    CHECK_EQ(put_message(index, &message), PYMQ_ENOSPC);
    calls_left = 2;
    CHECK_EQ(put_message(index, &message), PYMQ_OK);
    pymq_io_use(NULL);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    scratch_remove(directory);
}

static void test_a_failed_sync_is_never_followed_by_a_successful_one(void) {
    struct message *messages = make_messages(60, 9);
    for (int directory_sync = 0; directory_sync < 2; directory_sync++) {
        char directory[DIRECTORY_MAX];
        struct pymq_index_marks marks;
        scratch_make(directory);
        struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
        put_all(index, messages, 60);
        faulty = pymq_io_kernel;
        if (directory_sync)
            faulty.fsync = fsync_fails;
        else
            faulty.fdatasync = fdatasync_fails;
        calls_left = directory_sync ? 0 : 1;
        pymq_io_use(&faulty);
        CHECK_EQ(pymq_index_flush(index), PYMQ_EFAILED);
        pymq_io_use(NULL);
        CHECK_EQ(pymq_index_flush(index), PYMQ_EFAILED);
        pymq_index_marks(index, &marks); /* what was synced before the failure counts, nothing after it */
        CHECK_EQ(marks.open_begin_offset, atomic_load(&index->files[1 - directory_sync]->begin_offset));
        CHECK_EQ(pymq_index_close(index), PYMQ_EFAILED);
        scratch_remove(directory);
    }
    free(messages);
}

/* ---- threads -------------------------------------------------------------------------------------------- */

struct shared {
    struct pymq_index *index;
    const struct message *messages;
    int count;
    _Atomic int published;
    _Atomic int expired; /* messages below may be gone */
};

static int verify_one(void *context, int64_t offset) { return offset == *(const int64_t *)context; }

static void *read_while_writing(void *argument) {
    struct shared *shared = argument;
    uint64_t seed = 99;
    int published = 0;
    while (published < shared->count) {
        published = atomic_load(&shared->published);
        if (published == 0)
            continue;
        int newest = check_random(&seed) % 2 == 0;
        const struct message *message =
            &shared->messages[newest ? published - 1 : (int)(check_random(&seed) % (uint64_t)published)];
        int64_t offset = -1;
        ssize_t found = pymq_index_query(shared->index, (const uint8_t *)message->topic, strlen(message->topic),
                                         (const uint8_t *)message->unique_key, strlen(message->unique_key), 0,
                                         INT64_MAX, 0, INT64_MAX, verify_one, (void *)&message->offset, &offset, 1);
        if (found != 1)
            CHECK(found == 0 && message < shared->messages + atomic_load(&shared->expired));
        else
            CHECK_EQ(offset, message->offset);
    }
    return NULL;
}

static void *flush_while_writing(void *argument) {
    struct shared *shared = argument;
    struct pymq_index_marks marks;
    int64_t end_offset = -1;
    int published = 0;
    while (published < shared->count) {
        published = atomic_load(&shared->published);
        CHECK_EQ(pymq_index_flush(shared->index), PYMQ_OK);
        pymq_index_marks(shared->index, &marks);
        CHECK(marks.end_offset >= end_offset);
        end_offset = marks.end_offset;
        int expired = published - 400;
        if (expired > 0) {
            atomic_store(&shared->expired, expired);
            CHECK(pymq_index_remove_expired(shared->index, shared->messages[expired - 1].offset) >= 0);
        }
    }
    return NULL;
}

static void test_readers_and_flusher_beside_the_writer_see_every_published_message(void) {
    enum { COUNT = 3000 };
    char directory[DIRECTORY_MAX];
    struct message *messages = make_messages(COUNT, 10);
    pthread_t readers[2];
    pthread_t flusher;
    scratch_make(directory);
    struct shared shared = {.index = open_index(directory, SLOTS, 64), .messages = messages, .count = COUNT};
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&readers[i], NULL, read_while_writing, &shared), 0);
    CHECK_EQ(pthread_create(&flusher, NULL, flush_while_writing, &shared), 0);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(put_message(shared.index, &messages[i]), PYMQ_OK);
        atomic_store(&shared.published, i + 1);
    }
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(readers[i], NULL), 0);
    CHECK_EQ(pthread_join(flusher, NULL), 0);
    CHECK_EQ(pymq_index_close(shared.index), PYMQ_OK);
    scratch_remove(directory);
    free(messages);
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
    RUN(test_names_go_on_after_a_name_of_the_future);
    RUN(test_entries_that_are_no_index_files_are_left_alone_and_reported);
    RUN(test_other_sizes_are_refused_and_a_file_cut_short_at_birth_is_removed);
    RUN(test_expiry_removes_whole_files_below_the_offset_but_never_the_last);
    RUN(test_flush_settles_full_files_which_then_hold_no_descriptor);
    RUN(test_a_full_disk_refuses_the_put_and_the_same_put_goes_on_later);
    RUN(test_a_full_disk_inside_a_file_changes_nothing_in_it);
    RUN(test_a_failed_sync_is_never_followed_by_a_successful_one);
    RUN(test_readers_and_flusher_beside_the_writer_see_every_published_message);
    return check_summary();
}
