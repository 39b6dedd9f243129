/* Reading many records at once: neighbours joined, windows pinned once, nothing missed where windows and files end. */
#include "pymq/io.h"
#include "store_help.h"

#include <fcntl.h>

#define MESSAGES 200

/* Bodies of every size up to a window and beyond, so that records cross windows and end files. */
static size_t body_size(int n) { return (size_t)(n * 37 % 900 + (n % 23 == 0 ? 3100 : 0)); }

static void fill(struct pymq_store *store, int32_t queues) {
    char body[4096];
    for (int i = 0; i < MESSAGES; i++) {
        memset(body, 'a' + i % 26, sizeof body);
        struct pymq_slice slice = {(const uint8_t *)body, (uint32_t)body_size(i)};
        CHECK_EQ(send_record(store, "T", i % queues, slice, "", 0).status, PYMQ_OK);
    }
    CHECK_EQ(pymq_store_wait_dispatched(store, 20000), PYMQ_OK);
}

/* The joined bytes of `spans` hold exactly the records of `units`, in order. */
static void check_spans(const struct pymq_cq_unit *units, size_t count, const struct pymq_span *spans,
                        size_t spans_used) {
    size_t span = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        CHECK(span < spans_used);
        struct pymq_record record;
        CHECK_EQ(pymq_record_decode(spans[span].data + at, spans[span].size - at,
                                    PYMQ_CHECK_OFFSET | PYMQ_CHECK_BODY_CRC, units[i].physical_offset, &record),
                 units[i].size);
        at += (size_t)units[i].size;
        if (at == spans[span].size) {
            span++;
            at = 0;
        }
    }
    CHECK_EQ(span, spans_used);
    CHECK_EQ(at, 0);
}

static void read_all(struct pymq_store *store, int32_t queue_id, size_t span_max, size_t *spans_total) {
    static struct pymq_cq_unit units[MESSAGES];
    static struct pymq_span spans[MESSAGES];
    ssize_t count = pymq_queue_units(store, queue_of(store, "T", queue_id), 0, units, MESSAGES);
    CHECK(count > 0);
    for (size_t done = 0; done < (size_t)count;) {
        size_t used;
        int status;
        size_t got =
            pymq_store_records(store, units + done, (size_t)count - done, spans, span_max, &used, &status);
        CHECK_EQ(status, PYMQ_OK);
        CHECK(got > 0 && used <= span_max);
        check_spans(units + done, got, spans, used);
        CHECK(spans[used - 1].owner != NULL); /* whoever keeps the last one keeps them all */
        for (size_t i = 0; i < used; i++)
            pymq_span_release(store, &spans[i]);
        *spans_total += used;
        done += got;
    }
}

static void test_every_record_is_read_whatever_the_windows_and_the_room(void) {
    const char *path = scratch("records-all");
    struct pymq_store_config config = small_config();
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, 3);
    for (size_t span_max = 1; span_max <= MESSAGES; span_max = span_max * 3 + 1) {
        size_t spans_total = 0;
        for (int32_t queue_id = 0; queue_id < 3; queue_id++)
            read_all(store, queue_id, span_max, &spans_total);
        CHECK(spans_total >= MESSAGES / 2);
    }
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_neighbours_share_a_span(void) {
    const char *path = scratch("records-joined");
    struct pymq_store_config config = small_config();
    config.log_file_size = 4 * 1024 * 1024;
    config.log_window_size = 1024 * 1024;
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, 1);
    size_t spans_total = 0;
    read_all(store, 0, MESSAGES, &spans_total);
    CHECK_EQ(spans_total, 1);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

static void test_reading_stops_before_what_is_no_record(void) {
    const char *path = scratch("records-bad");
    struct pymq_store_config config = small_config();
    config.log_file_size = 4 * 1024 * 1024;
    config.log_window_size = 1024 * 1024;
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, 1);
    struct pymq_cq_unit units[4];
    struct pymq_span spans[4];
    size_t used;
    int status;
    CHECK_EQ(pymq_queue_units(store, queue_of(store, "T", 0), 0, units, 4), 4);
    struct pymq_cq_unit good = units[2];
    units[2].physical_offset += 1;
    CHECK_EQ(pymq_store_records(store, units, 4, spans, 4, &used, &status), 2);
    CHECK_EQ(status, PYMQ_ECORRUPT);
    CHECK_EQ(used, 1);
    check_spans(units, 2, spans, used);
    pymq_span_release(store, &spans[0]);
    units[2] = good;
    units[0].physical_offset = INT64_C(1) << 40; /* behind what is visible */
    CHECK_EQ(pymq_store_records(store, units, 4, spans, 4, &used, &status), 0);
    CHECK_EQ(status, PYMQ_ENOTFOUND);
    CHECK_EQ(used, 0);
    units[0] = good;
    units[0].size = -5;
    CHECK_EQ(pymq_store_records(store, units, 4, spans, 4, &used, &status), 0);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK); /* nothing stayed pinned: the sanitizer would see it */
    scratch_end(path);
}

static void test_what_the_kernel_dropped_is_not_resident_until_it_is_loaded(void) {
    const char *path = scratch("records-resident");
    struct pymq_store_config config = small_config();
    config.log_file_size = 4 * 1024 * 1024;
    config.log_window_size = 1024 * 1024;
    struct pymq_store *store = open_or_die(path, &config);
    fill(store, 1);
    CHECK(pymq_store_is_resident(store, 0, 40000));
    CHECK(pymq_queue_is_resident(store, queue_of(store, "T", 0), 0, MESSAGES));
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    char file[1024];
    snprintf(file, sizeof file, "%s/commitlog/%020d", path, 0);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(fsync(fd), 0);
    store = open_or_die(path, &config);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* may be refused, on tmpfs say: then it stays resident */
    bool dropped = !pymq_store_is_resident(store, 0, 40000);
    pymq_store_load(store, 0, 40000, 4096);
    CHECK(pymq_store_is_resident(store, 0, 40000));
    printf("residency: %s\n", dropped ? "dropped, then loaded" : "the kernel kept it");
    CHECK(pymq_store_is_resident(store, INT64_C(1) << 40, 10)); /* not there: nothing to wait for */
    pymq_store_load(store, INT64_C(1) << 40, 10, 10);
    close(fd);
    CHECK_EQ(pymq_store_close(store), PYMQ_OK);
    scratch_end(path);
}

int main(void) {
    RUN(test_every_record_is_read_whatever_the_windows_and_the_room);
    RUN(test_neighbours_share_a_span);
    RUN(test_reading_stops_before_what_is_no_record);
    RUN(test_what_the_kernel_dropped_is_not_resident_until_it_is_loaded);
    return check_summary();
}
