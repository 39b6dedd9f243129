/* Settings of stores that tests fill, tear and reopen by the thousand: tiny files, short intervals. */
#ifndef PYMQ_TESTING_SMALL_STORE_H
#define PYMQ_TESTING_SMALL_STORE_H

#include "pymq/store.h"
#include "scratch.h"

static inline void small_store_config(struct pymq_store_config *config, enum pymq_flush_mode flush_mode) {
    pymq_store_config_default(config);
    config->log_file_size = 16384;
    config->queue_file_size = PYMQ_CQ_UNIT_SIZE * 10;
    config->index_slot_count = 10;
    config->index_item_count = 50;
    config->message_size_max = 16384;
    config->flush_mode = flush_mode;
    config->sync_flush_timeout_ms = 30000; /* a busy machine is no fault */
    config->flush_interval_ms = 5;
    config->flush_least_pages = 1;
    config->flush_thorough_interval_ms = 20;
    config->commit_interval_ms = 5;
    config->commit_least_pages = 1;
    config->commit_thorough_interval_ms = 10;
    config->queue_flush_interval_ms = 5;
    config->queue_flush_least_pages = 0;
    config->queue_flush_thorough_interval_ms = 20;
    config->transient_pool_size = 3;
    config->prefault_size = 4096;
    config->log_window_size = config->log_file_size;
    config->checkpoint_bytes_max = config->log_file_size * 2;
    config->check_crc_on_recover = true;
}

/* Open or end the test. */
static inline struct pymq_store *small_store_open(const char *path, const struct pymq_store_config *config) {
    struct pymq_store *store = NULL;
    struct pymq_error error = {0};
    int status = pymq_store_open(path, config, &store, &error);
    CHECK(status == PYMQ_OK, "open %s: %s: %s", path, pymq_status_name(status), error.text);
    return store;
}

#endif
