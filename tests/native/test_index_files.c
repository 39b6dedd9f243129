/* The files of the key index: names, sizes, expiry, full disks, failing syncs, readers beside the writer. */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>

#include "../../csrc/store/index_file.h"
#include "index_help.h"

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

/* Two items a file: without a bound every other put takes a descriptor that only a flush gives back. */
static void test_small_files_do_not_use_up_the_descriptors(void) {
    char directory[DIRECTORY_MAX];
    struct rlimit before, low;
    struct message *messages = make_messages(200, 6);
    struct log log = {.messages = messages, .count = 200};
    scratch_make(directory);
    struct pymq_index *index = open_index(directory, SLOTS, 3);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    int idle = open_descriptors();
    low.rlim_cur = (rlim_t)(idle + PYMQ_INDEX_UNSETTLED_MAX + 8);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
    put_all(index, messages, 200);
    CHECK(count_files(directory) > 4 * PYMQ_INDEX_UNSETTLED_MAX);
    CHECK(open_descriptors() <= idle + PYMQ_INDEX_UNSETTLED_MAX);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    check_all_keys(index, &log);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    index = open_index(directory, SLOTS, 3);
    check_all_keys(index, &log);
    CHECK_EQ(pymq_index_close(index), PYMQ_OK);
    scratch_remove(directory);
    free(messages);
}

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
    RUN(test_names_go_on_after_a_name_of_the_future);
    RUN(test_entries_that_are_no_index_files_are_left_alone_and_reported);
    RUN(test_other_sizes_are_refused_and_a_file_cut_short_at_birth_is_removed);
    RUN(test_expiry_removes_whole_files_below_the_offset_but_never_the_last);
    RUN(test_flush_settles_full_files_which_then_hold_no_descriptor);
    RUN(test_small_files_do_not_use_up_the_descriptors);
    RUN(test_a_full_disk_refuses_the_put_and_the_same_put_goes_on_later);
    RUN(test_a_full_disk_inside_a_file_changes_nothing_in_it);
    RUN(test_a_failed_sync_is_never_followed_by_a_successful_one);
    RUN(test_readers_and_flusher_beside_the_writer_see_every_published_message);
    return check_summary();
}
