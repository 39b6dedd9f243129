/* What the store's C tests share: scratch directories, a small configuration, sending and reading in one line. */
#ifndef PYMQ_TESTS_STORE_HELP_H
#define PYMQ_TESTS_STORE_HELP_H

#include <ftw.h>
#include <unistd.h>

#include "check.h"
#include "pymq/store.h"

static inline int scratch_remove(const char *path, const struct stat *found, int kind, struct FTW *walk) {
    (void)found, (void)kind, (void)walk;
    return remove(path);
}

/* An empty directory of this name and process, removed first if it is there. */
static inline const char *scratch(const char *name) {
    static char path[512];
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/pymq-test-%ld-%s", base != NULL ? base : "/tmp", (long)getpid(), name);
    nftw(path, scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
    return path;
}

static inline void scratch_end(const char *path) { nftw(path, scratch_remove, 16, FTW_DEPTH | FTW_PHYS); }

/* Small and odd, so that every roll and wrap happens at once. */
static inline struct pymq_store_config small_config(void) {
    struct pymq_store_config config;
    pymq_store_config_default(&config);
    config.log_file_size = 8209;
    config.queue_file_size = 20 * 7;
    config.index_slot_count = 11;
    config.index_item_count = 23;
    config.message_size_max = 4096;
    config.log_window_size = 4096;
    config.queue_map_count_max = 8;
    config.prefault_size = 4096;
    config.commit_interval_ms = 5;
    return config;
}

static inline struct pymq_store *open_or_die(const char *path, const struct pymq_store_config *config) {
    struct pymq_store *store;
    struct pymq_error error;
    int status = pymq_store_open(path, config, &store, &error);
    if (status != PYMQ_OK)
        CHECK_FAIL("open: %s: %s", pymq_status_name(status), error.text);
    return store;
}

static inline struct pymq_slice text(const char *value) {
    return (struct pymq_slice){(const uint8_t *)value, (uint32_t)strlen(value)};
}

static inline struct pymq_queue *queue_of(struct pymq_store *store, const char *topic, int32_t queue_id) {
    struct pymq_queue *queue;
    CHECK_EQ(pymq_store_queue(store, (const uint8_t *)topic, strlen(topic), queue_id, true, &queue), PYMQ_OK);
    return queue;
}

struct sent {
    int status;
    int64_t queue_offset, physical_offset, end_offset, timestamp_ms;
};

/* One message; `properties` in the file's own form, or "". */
static inline struct sent send_record(struct pymq_store *store, const char *topic, int32_t queue_id,
                                      struct pymq_slice body, const char *properties, int32_t sys_flag) {
    struct pymq_record record = {.queue_id = queue_id,
                                 .sys_flag = sys_flag,
                                 .born_timestamp_ms = 1,
                                 .born_host = {.address = {127, 0, 0, 1}, .size = 4, .port = 1},
                                 .store_host = {.address = {127, 0, 0, 1}, .size = 4, .port = 2},
                                 .body = body,
                                 .topic = text(topic),
                                 .properties = text(properties)};
    ssize_t size = pymq_record_size(&record);
    CHECK(size > 0);
    uint8_t *bytes = malloc((size_t)size);
    CHECK_EQ(pymq_record_encode(&record, bytes, (size_t)size), size);
    struct pymq_append_item item = {.queue = queue_of(store, topic, queue_id), .record = bytes, .size = (uint32_t)size};
    struct pymq_append_result result;
    struct sent sent = {.status = pymq_store_append(store, &item, 1, 0, &result)};
    sent.queue_offset = item.queue_offset;
    sent.physical_offset = item.physical_offset;
    sent.end_offset = result.end_offset;
    sent.timestamp_ms = result.store_timestamp_ms;
    free(bytes);
    return sent;
}

static inline struct sent send_text(struct pymq_store *store, const char *topic, int32_t queue_id, const char *body) {
    struct sent sent = send_record(store, topic, queue_id, text(body), "", 0);
    CHECK_EQ(sent.status, PYMQ_OK);
    return sent;
}

static inline struct pymq_queue_info info_of(struct pymq_store *store, const char *topic, int32_t queue_id) {
    struct pymq_queue_info info;
    pymq_queue_info(queue_of(store, topic, queue_id), &info);
    return info;
}

/* Read the message at a queue offset, check everything that can be checked, and copy its body. Returns its size. */
static inline size_t read_body(struct pymq_store *store, const char *topic, int32_t queue_id, int64_t offset,
                               void *body, size_t body_max) {
    struct pymq_cq_unit unit;
    struct pymq_span span;
    struct pymq_record record;
    CHECK_EQ(pymq_queue_units(store, queue_of(store, topic, queue_id), offset, &unit, 1), 1);
    CHECK_EQ(pymq_store_record(store, unit.physical_offset, (uint32_t)unit.size, &span), PYMQ_OK);
    CHECK_EQ(pymq_record_decode(span.data, span.size, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET, unit.physical_offset,
                                &record),
             unit.size);
    CHECK_EQ(record.queue_id, queue_id);
    CHECK_EQ(record.queue_offset, offset);
    CHECK_BYTES(record.topic.data, record.topic.size, topic, strlen(topic));
    CHECK(record.body.size <= body_max);
    size_t size = record.body.size;
    memcpy(body, record.body.data, size);
    pymq_span_release(store, &span);
    return size;
}

static inline void check_text(struct pymq_store *store, const char *topic, int32_t queue_id, int64_t offset,
                              const char *expected) {
    char body[8192];
    size_t size = read_body(store, topic, queue_id, offset, body, sizeof body);
    CHECK_BYTES(body, size, expected, strlen(expected));
}

#endif
