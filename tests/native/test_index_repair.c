/* Repair of the key index after an unclean stop: exactly the items below the cut stay, whatever lay behind them. */
#include <errno.h>
#include <fcntl.h>

#include "../../csrc/store/index_file.h"
#include "index_help.h"

#define COUNT 60
#define FILE_SIZE (PYMQ_INDEX_HEADER_SIZE + SLOTS * PYMQ_INDEX_SLOT_SIZE + ITEMS * PYMQ_INDEX_ITEM_SIZE)
#define END_TIMESTAMP_AT 8

static struct message *messages;
static char whole[DIRECTORY_MAX]; /* the index of all messages, never interrupted */
static struct pymq_io unsynced;   /* the kernel without its syncs: hundreds of small stores, no power cut here */

static void build(const char *directory, int count) {
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    put_all(index, messages, count);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
}

static void repair(const char *directory, int64_t cut_offset, int64_t reindex_from_expected) {
    struct pymq_error error;
    int64_t reindex_from = -1;
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    int status = pymq_index_repair(index, cut_offset, &reindex_from, &error);
    if (status != PYMQ_OK)
        CHECK_FAIL("%s: %s", pymq_status_name(status), error.text);
    CHECK_EQ(reindex_from, reindex_from_expected);
    pymq_index_abandon(index); /* without a flush: what repair wrote is all there is */
}

/* Open, put the messages from `cut_offset` on again, and compare with the index that was never interrupted. */
static void check_goes_on(const char *directory, int64_t cut_offset) {
    struct log log = {.messages = messages, .count = COUNT};
    struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
    for (int i = 0; i < COUNT; i++) {
        if (messages[i].offset >= cut_offset)
            CHECK_EQ(put_message(index, &messages[i]), PYMQ_OK);
    }
    check_all_keys(index, &log);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    check_same_files(directory, whole);
}

/* The end time may be known to the second only; put the exact one there, after checking that it is not below. */
static void settle_end_timestamp(const char *directory, int64_t exact_ms) {
    char *paths[FILES_MAX];
    int count = list_files(directory, paths);
    if (count > 0) {
        size_t size;
        uint8_t *bytes = check_read_file(paths[count - 1], &size);
        int64_t end_ms = (int64_t)pymq_load_be64(bytes + END_TIMESTAMP_AT);
        CHECK(end_ms >= exact_ms && end_ms <= exact_ms + 999);
        pymq_store_be64(bytes + END_TIMESTAMP_AT, (uint64_t)exact_ms);
        write_file(paths[count - 1], bytes, size);
        free(bytes);
    }
    free_paths(paths, count);
}

/* What `directory` should be when only messages[0, count) are kept. */
static void check_is_prefix(const char *directory, int count) {
    char expected[DIRECTORY_MAX];
    char compared[DIRECTORY_MAX];
    scratch_make(expected);
    scratch_make(compared);
    build(expected, count);
    copy_files(directory, compared);
    if (count > 0)
        settle_end_timestamp(compared, messages[count - 1].timestamp_ms);
    check_same_files(compared, expected);
    scratch_remove(expected);
    scratch_remove(compared);
}

static void test_repair_at_every_cut_keeps_exactly_the_items_below_it(void) {
    for (int cut = 0; cut <= COUNT; cut++) {
        char directory[DIRECTORY_MAX];
        int64_t cut_offset = cut < COUNT ? messages[cut].offset : messages[COUNT - 1].offset + 1;
        scratch_make(directory);
        copy_files(whole, directory);
        repair(directory, cut_offset, cut_offset);
        check_is_prefix(directory, cut);
        repair(directory, cut_offset, cut_offset); /* twice is once */
        check_is_prefix(directory, cut);
        check_goes_on(directory, cut_offset);
        scratch_remove(directory);
    }
}

static void test_repair_beyond_the_end_changes_no_byte(void) {
    char directory[DIRECTORY_MAX];
    scratch_make(directory);
    copy_files(whole, directory);
    repair(directory, INT64_MAX, INT64_MAX);
    check_same_files(directory, whole);
    scratch_remove(directory);
    scratch_make(directory);
    repair(directory, 1000, 1000); /* nor does one of nothing */
    CHECK_EQ(count_files(directory), 0);
    scratch_remove(directory);
}

/* Where the items of messages[cut..] begin in the last file of an index of messages[0, cut). */
static int64_t kept_end(const char *prefix, int *file_number) {
    char *paths[FILES_MAX];
    size_t size;
    int count = list_files(prefix, paths);
    *file_number = count - 1;
    if (count == 0)
        return 0;
    uint8_t *bytes = check_read_file(paths[count - 1], &size);
    struct pymq_index_header header;
    pymq_index_header_decode(bytes, &header);
    free(bytes);
    free_paths(paths, count);
    return FILE_SIZE - (int64_t)(ITEMS - header.item_count) * PYMQ_INDEX_ITEM_SIZE;
}

/* Overwrite slots, chain links, end values and counts of one file, and items from `end` on, with noise. */
static void damage(const char *path, int64_t end, uint64_t *seed) {
    size_t size;
    uint8_t *bytes = check_read_file(path, &size);
    int64_t items_at = PYMQ_INDEX_HEADER_SIZE + SLOTS * PYMQ_INDEX_SLOT_SIZE;
    check_random_bytes(seed, bytes + END_TIMESTAMP_AT, 8);
    check_random_bytes(seed, bytes + 24, 12);
    pymq_store_be32(bytes + 36, (uint32_t)(2 + check_random(seed) % (ITEMS - 2)));
    check_random_bytes(seed, bytes + PYMQ_INDEX_HEADER_SIZE, SLOTS * PYMQ_INDEX_SLOT_SIZE);
    for (int64_t at = items_at + PYMQ_INDEX_ITEM_SIZE; at < end; at += PYMQ_INDEX_ITEM_SIZE)
        pymq_store_be32(bytes + at + 16, (uint32_t)(check_random(seed) % ITEMS));
    check_random_bytes(seed, bytes + items_at, PYMQ_INDEX_ITEM_SIZE); /* the place of item 0 */
    for (int64_t at = end; at < (int64_t)size; at += PYMQ_INDEX_ITEM_SIZE) {
        switch (check_random(seed) % 4) {
        case 0: break; /* as it was */
        case 1: memset(bytes + at, 0, PYMQ_INDEX_ITEM_SIZE); break;
        case 2: /* a plausible item of a record beyond the cut */
            check_random_bytes(seed, bytes + at, PYMQ_INDEX_ITEM_SIZE);
            bytes[at] &= 0x7f;
            pymq_store_be64(bytes + at + 4, (uint64_t)messages[COUNT - 1].offset);
            break;
        default: check_random_bytes(seed, bytes + at, PYMQ_INDEX_ITEM_SIZE); bytes[at + 4] |= 0x80; break;
        }
    }
    write_file(path, bytes, size);
    free(bytes);
}

static void test_noise_behind_the_cut_and_in_everything_computed_does_not_matter(void) {
    uint64_t seed = 2024;
    for (int round = 0; round < 2 * COUNT; round++) {
        int cut = round % COUNT;
        char directory[DIRECTORY_MAX];
        char prefix[DIRECTORY_MAX];
        char *paths[FILES_MAX];
        int file_number;
        scratch_make(directory);
        scratch_make(prefix);
        build(prefix, cut);
        copy_files(whole, directory);
        int64_t end = kept_end(prefix, &file_number);
        int count = list_files(directory, paths);
        for (int i = 0; i < count; i++) {
            /* A file wholly below the cut is durable, and untouched when a full one is the last below it. */
            if (i > file_number)
                damage(paths[i], FILE_SIZE - (ITEMS - 1) * PYMQ_INDEX_ITEM_SIZE, &seed);
            else if (i == file_number && end < FILE_SIZE)
                damage(paths[i], end, &seed);
        }
        free_paths(paths, count);
        repair(directory, messages[cut].offset, messages[cut].offset);
        CHECK_EQ(count_files(directory), count_files(prefix));
        check_goes_on(directory, messages[cut].offset);
        scratch_remove(directory);
        scratch_remove(prefix);
    }
}

static void test_any_sectors_written_since_the_checkpoint_do_not_matter(void) {
    uint64_t seed = 77;
    for (int round = 0; round < 120; round++) {
        const size_t sector_size = round % 2 == 0 ? 512 : 64; /* the small one tears more of so small a file */
        int cut = 1 + (int)(check_random(&seed) % (COUNT - 1));
        char directory[DIRECTORY_MAX];
        char durable[DIRECTORY_MAX];
        char *paths[FILES_MAX];
        char *durable_paths[FILES_MAX];
        scratch_make(directory);
        scratch_make(durable);
        build(durable, cut);
        copy_files(whole, directory);
        int count = list_files(directory, paths);
        int durable_count = list_files(durable, durable_paths);
        for (int i = 0; i < count; i++) {
            size_t size;
            uint8_t *bytes = check_read_file(paths[i], &size);
            uint8_t *before = i < durable_count ? check_read_file(durable_paths[i], &size) : calloc(1, size);
            CHECK(before != NULL);
            for (size_t at = 0; at < size; at += sector_size) {
                size_t step = size - at < sector_size ? size - at : sector_size;
                if (check_random(&seed) % 2 == 0)
                    memcpy(bytes + at, before + at, step);
            }
            write_file(paths[i], bytes, size);
            free(bytes);
            free(before);
        }
        free_paths(paths, count);
        free_paths(durable_paths, durable_count);
        repair(directory, messages[cut].offset, messages[cut].offset);
        check_is_prefix(directory, cut);
        check_goes_on(directory, messages[cut].offset);
        scratch_remove(directory);
        scratch_remove(durable);
    }
}

static void test_a_file_without_a_readable_begin_is_dropped_and_asked_for_again(void) {
    char *paths[FILES_MAX];
    uint64_t seed = 5;
    int count = list_files(whole, paths);
    for (int noise = 0; noise < 2; noise++) {
        char directory[DIRECTORY_MAX];
        char target[PYMQ_PATH_MAX];
        size_t size;
        scratch_make(directory);
        copy_files(whole, directory);
        uint8_t *bytes = check_read_file(paths[count - 1], &size);
        int64_t first = (int64_t)pymq_load_be64(bytes + 16);
        if (noise)
            check_random_bytes(&seed, bytes, PYMQ_INDEX_HEADER_SIZE);
        else
            memset(bytes, 0, PYMQ_INDEX_HEADER_SIZE);
        snprintf(target, sizeof target, "%s%s", directory, strrchr(paths[count - 1], '/'));
        write_file(target, bytes, size);
        free(bytes);
        repair(directory, INT64_MAX, first);
        CHECK_EQ(count_files(directory), count - 1);
        check_goes_on(directory, first);
        scratch_remove(directory);
    }
    free_paths(paths, count);
}

static int calls_left;

static ssize_t pwrite_fails(int fd, const void *source, size_t size, off_t offset) {
    if (calls_left-- > 0)
        return pymq_io_kernel.pwrite(fd, source, size, offset);
    errno = ENOSPC;
    return -1;
}

static int sync_nothing(int fd) {
    (void)fd;
    return 0;
}

static int fdatasync_fails(int fd) {
    (void)fd;
    errno = EIO;
    return -1;
}

static void test_a_repair_that_fails_says_so_and_may_be_done_again(void) {
    struct pymq_io faulty = pymq_io_kernel;
    int64_t cut_offset = messages[COUNT / 2].offset;
    for (int n = 0; n < 3; n++) {
        char directory[DIRECTORY_MAX];
        struct pymq_error error;
        int64_t reindex_from;
        scratch_make(directory);
        copy_files(whole, directory);
        struct pymq_index *index = open_index(directory, SLOTS, ITEMS);
        faulty.pwrite = pwrite_fails;
        faulty.fdatasync = fdatasync_fails;
        calls_left = n;
        pymq_io_use(&faulty);
        int status = pymq_index_repair(index, cut_offset, &reindex_from, &error);
        pymq_io_use(&unsynced);
        CHECK_EQ(status, n < 2 ? PYMQ_ENOSPC : PYMQ_EFAILED);
        CHECK_EQ(error.status, status);
        CHECK(strstr(error.text, "cannot be repaired") != NULL);
        pymq_index_abandon(index);
        repair(directory, cut_offset, cut_offset);
        check_is_prefix(directory, COUNT / 2);
        check_goes_on(directory, cut_offset);
        scratch_remove(directory);
    }
}

static void test_a_sparse_file_stays_sparse(void) {
    enum { LARGE = 2000000 }; /* items: 40 MB */
    char directory[DIRECTORY_MAX];
    char *paths[FILES_MAX];
    struct stat before;
    struct stat after;
    struct pymq_error error;
    int64_t reindex_from;
    scratch_make(directory);
    struct pymq_index *index = open_index(directory, 1000, LARGE);
    put_all(index, messages, COUNT);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    CHECK_EQ(list_files(directory, paths), 1);
    CHECK_EQ(stat(paths[0], &before), 0);
    index = open_index(directory, 1000, LARGE);
    CHECK_EQ(pymq_index_repair(index, messages[10].offset, &reindex_from, &error), PYMQ_OK);
    pymq_index_abandon(index);
    CHECK_EQ(stat(paths[0], &after), 0);
    CHECK_EQ(after.st_size, before.st_size);
    CHECK(after.st_blocks <= before.st_blocks + 16); /* in 512 bytes; a file system's own bookkeeping may grow */
    free_paths(paths, 1);
    scratch_remove(directory);
}

int main(void) {
    messages = make_messages(COUNT, 21);
    unsynced = pymq_io_kernel;
    unsynced.fdatasync = sync_nothing;
    unsynced.fsync = sync_nothing;
    pymq_io_use(&unsynced);
    scratch_make(whole);
    build(whole, COUNT);
    RUN(test_repair_at_every_cut_keeps_exactly_the_items_below_it);
    RUN(test_repair_beyond_the_end_changes_no_byte);
    RUN(test_noise_behind_the_cut_and_in_everything_computed_does_not_matter);
    RUN(test_any_sectors_written_since_the_checkpoint_do_not_matter);
    RUN(test_a_file_without_a_readable_begin_is_dropped_and_asked_for_again);
    RUN(test_a_repair_that_fails_says_so_and_may_be_done_again);
    RUN(test_a_sparse_file_stays_sparse);
    scratch_remove(whole);
    free(messages);
    return check_summary();
}
