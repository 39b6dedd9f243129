/* The mechanism of retention: what the log holds, and letting go of its oldest file. When to do so is decided in
 * Python (pymq/store/retention.py). */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pymq/io.h"
#include "store_internal.h"

static int64_t modified_ms(const char *directory, int64_t base) {
    char path[PYMQ_PATH_MAX];
    struct stat found;
    if (pymq_file_path(directory, base, path, sizeof path) != PYMQ_OK || stat(path, &found) != 0)
        return 0;
    return (int64_t)found.st_mtim.tv_sec * 1000 + found.st_mtim.tv_nsec / 1000000;
}

/* The store time of the first record of the next file is the best bound on the last of this one that costs one read. */
static int64_t last_timestamp_ms(struct pymq_store *store, int64_t next_base) {
    struct pymq_window *window;
    const uint8_t *data;
    if (next_base >= atomic_load(&store->marks.visible) ||
        pymq_commit_log_pin(&store->log, next_base, PYMQ_RECORD_SIZE_MIN, &window, &data) != PYMQ_OK)
        return 0;
    int64_t timestamp_ms = pymq_record_store_timestamp_ms(data);
    pymq_window_unpin(window);
    return timestamp_ms;
}

static void describe(struct pymq_store *store, int64_t base, struct pymq_log_file_info *info) {
    info->base_offset = base;
    info->size = store->config.log_file_size;
    info->modified_ms = modified_ms(store->log.files.directory, base);
    info->last_store_timestamp_ms = last_timestamp_ms(store, base + info->size);
    info->active = base + info->size > atomic_load(&store->marks.written);
}

size_t pymq_store_log_files(struct pymq_store *store, struct pymq_log_file_info *files, size_t count_max) {
    int64_t begin = pymq_mapped_queue_begin(&store->log.files);
    int64_t end = pymq_mapped_queue_end(&store->log.files);
    if (begin < 0)
        return 0;
    size_t count = (size_t)((end - begin) / store->config.log_file_size);
    for (size_t i = 0; i < count && i < count_max; i++)
        describe(store, begin + (int64_t)i * store->config.log_file_size, &files[i]);
    return count;
}

/* All queues; the caller frees them. Returns how many, or PYMQ_ENOMEM. */
static ssize_t list_queues(struct pymq_store *store, struct pymq_queue ***queues) {
    size_t count = pymq_queue_table_list(&store->queues, NULL, 0);
    *queues = malloc((count + 1) * sizeof **queues);
    if (*queues == NULL)
        return PYMQ_ENOMEM;
    size_t now = pymq_queue_table_list(&store->queues, *queues, count);
    return (ssize_t)(now < count ? now : count);
}

static int correct_minimums(struct pymq_store *store, int64_t physical_min) {
    struct pymq_queue **queues;
    ssize_t count = list_queues(store, &queues);
    int status = count < 0 ? (int)count : PYMQ_OK;
    for (ssize_t i = 0; i < count && status == PYMQ_OK; i++)
        status = pymq_queue_correct_min(queues[i], physical_min);
    if (count >= 0)
        free(queues);
    return status;
}

int pymq_store_remove_oldest(struct pymq_store *store, struct pymq_log_file_info *removed) {
    struct pymq_mapped_queue *files = &store->log.files;
    int64_t begin = pymq_mapped_queue_begin(files);
    /* Never the last file, and never one that is not flushed or not dispatched yet: dropping it would drop messages
     * that nobody could have seen. */
    if (begin < 0 || pymq_mapped_queue_count(files) < 2 ||
        begin + files->file_size >
            pymq_min64(atomic_load(&store->marks.flushed), atomic_load(&store->marks.dispatched)))
        return PYMQ_ENOTFOUND;
    /* And not before the queues' units for it are durable: without its records they could not be built again, and a
     * queue whose messages have all expired would start at 0 after a crash. */
    if (atomic_load(&store->checkpoint_safe) < begin + files->file_size) {
        int status = pymq_checkpoint_round(store, false);
        if (status != PYMQ_OK)
            return status;
    }
    describe(store, begin, removed);
    /* The minimums first: a reader then finds its offset gone, not its record. */
    int status = correct_minimums(store, begin + files->file_size);
    return status == PYMQ_OK ? pymq_mapped_queue_remove_first(files) : status;
}

ssize_t pymq_store_clean_queues(struct pymq_store *store) {
    int64_t physical_min = pymq_commit_log_min(&store->log);
    struct pymq_queue **queues;
    ssize_t count = list_queues(store, &queues);
    if (count < 0)
        return count;
    ssize_t removed = 0, gone = 0;
    for (ssize_t i = 0; i < count && gone >= 0; i++) {
        gone = pymq_queue_correct_min(queues[i], physical_min);
        if (gone == PYMQ_OK)
            gone = pymq_queue_remove_expired(queues[i]);
        removed += gone > 0 ? gone : 0;
    }
    free(queues);
    if (gone >= 0 && store->index != NULL)
        gone = pymq_index_remove_expired(store->index, physical_min);
    else if (gone >= 0)
        gone = 0;
    return gone < 0 ? gone : removed + gone;
}
