/* What the store does with the files it finds.
 *
 * After a clean stop the end of the log is known; after anything else it is where the records stop being valid. Either
 * way the walk starts no earlier than it must: at the offset up to which log, queues and index are known to agree,
 * and goes on to the first byte that is no whole record. What lies behind is zeroed and synced before the first
 * append, later files go, and queues and index are brought to exactly the records that stay.
 *
 * The walk reads with pread (recovery_walk.c), never through a mapping: a damaged file is an error, not a SIGBUS.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

#include "pymq/io.h"
#include "recovery_walk.h"
#include "store_internal.h"

#define NORMAL_WALK_FILES 3           /* RECOV-2: after a clean stop that left no better mark */
#define CHECKPOINT_TIME_SLACK_MS 3000 /* Apache's own allowance on its checkpoint times */

/* What recovery knows and finds out. */
struct recovery {
    struct pymq_store *store;
    struct pymq_error *error;
    struct pymq_queue **queues;
    size_t queue_count;
    int64_t log_begin;
    int64_t walk_from; /* records from here on are read and dispatched */
    struct pymq_walk_result walk;
};

static int list_queues(struct recovery *recovery) {
    struct pymq_queue_table *table = &recovery->store->queues;
    free(recovery->queues);
    recovery->queue_count = pymq_queue_table_list(table, NULL, 0);
    recovery->queues = malloc((recovery->queue_count + 1) * sizeof *recovery->queues);
    if (recovery->queues == NULL)
        return pymq_fail(recovery->error, PYMQ_ENOMEM, errno, "recovery: out of memory");
    pymq_queue_table_list(table, recovery->queues, recovery->queue_count);
    return PYMQ_OK;
}

static int queue_failure(struct recovery *recovery, struct pymq_queue *queue, int status) {
    return pymq_fail(recovery->error, status, errno, "%s: queue cannot be recovered: %s", queue->files.directory,
                     errno != 0 ? strerror(errno) : pymq_status_name(status));
}

/* ---- where to start ------------------------------------------------------------------------------------------- */

/* The store time of the first record of the file at `base`, or 0 when it has none. */
static int64_t first_timestamp(struct pymq_store *store, int64_t base) {
    uint8_t head[PYMQ_RECORD_SIZE_MIN];
    if (pymq_mapped_queue_read(&store->log.files, base, head, sizeof head) != (ssize_t)sizeof head)
        return 0;
    uint32_t magic = pymq_load_be32(head + 4);
    bool is_record = magic == PYMQ_RECORD_MAGIC_V1 || magic == PYMQ_RECORD_MAGIC_V2;
    return is_record && (int64_t)pymq_load_be64(head + PYMQ_RECORD_PHYSICAL_OFFSET_AT) == base
               ? pymq_record_store_timestamp_ms(head)
               : 0;
}

/* Apache's rule, for a store it left behind: the newest file that began before the checkpoint. */
static int64_t start_by_apache_checkpoint(struct recovery *recovery) {
    struct pymq_store *store = recovery->store;
    const struct pymq_checkpoint *checkpoint = &store->checkpoint;
    int64_t size = store->config.log_file_size;
    int64_t end = pymq_mapped_queue_end(&store->log.files);
    int64_t logics = checkpoint->logics_physical_offset;
    if (logics > recovery->log_begin && logics < end)
        return logics / size * size;
    int64_t time_ms =
        pymq_min64(checkpoint->physic_msg_timestamp, checkpoint->logics_msg_timestamp) - CHECKPOINT_TIME_SLACK_MS;
    for (int64_t base = end - size; base > recovery->log_begin; base -= size) {
        int64_t first_ms = first_timestamp(store, base);
        if (first_ms > 0 && first_ms <= time_ms)
            return base;
    }
    return recovery->log_begin;
}

static int64_t start_after_crash(struct recovery *recovery) {
    struct pymq_store *store = recovery->store;
    const struct pymq_checkpoint *checkpoint = &store->checkpoint;
    int64_t end = pymq_mapped_queue_end(&store->log.files);
    if (checkpoint->extended && checkpoint->safe_offset <= end)
        return pymq_max64(checkpoint->safe_offset, recovery->log_begin);
    return start_by_apache_checkpoint(recovery);
}

/* After a clean stop every unit points to a whole record, so the end of the furthest one is a place to start. Queues
 * that claim more than the log holds are not believed. */
static int64_t start_after_clean_stop(struct recovery *recovery) {
    struct pymq_store *store = recovery->store;
    int64_t size = store->config.log_file_size, end = pymq_mapped_queue_end(&store->log.files);
    int64_t furthest = -1;
    for (size_t i = 0; i < recovery->queue_count; i++)
        furthest = pymq_max64(furthest, recovery->queues[i]->max_physical);
    const struct pymq_checkpoint *checkpoint = &store->checkpoint;
    if (checkpoint->extended && checkpoint->clean_end >= furthest && checkpoint->clean_end <= end &&
        pymq_walk_ends_at(store, checkpoint->last_record, checkpoint->clean_end))
        return pymq_max64(checkpoint->clean_end, recovery->log_begin);
    if (checkpoint->extended && checkpoint->clean_end < 0) /* stopped cleanly, but dispatch had not caught up */
        return pymq_max64(recovery->log_begin, pymq_min64(checkpoint->safe_offset, end));
    for (size_t i = 0; furthest >= recovery->log_begin && i < recovery->queue_count; i++) {
        struct pymq_queue *queue = recovery->queues[i];
        struct pymq_cq_unit unit;
        int64_t last = atomic_load(&queue->max_position) / PYMQ_CQ_UNIT_SIZE - 1;
        if (queue->max_physical == furthest && pymq_queue_unit(queue, last, &unit) == PYMQ_OK &&
            pymq_walk_ends_at(store, unit.physical_offset, furthest))
            return furthest;
    }
    if (furthest < recovery->log_begin) /* no queue points into the log: all of it has to be dispatched */
        return recovery->log_begin;
    return pymq_max64(recovery->log_begin, end - NORMAL_WALK_FILES * size);
}

/* ---- bringing queues and index to a cut ------------------------------------------------------------------------- */

static int truncate_queues(struct recovery *recovery, int64_t physical_end, bool all) {
    for (size_t i = 0; i < recovery->queue_count; i++) {
        struct pymq_queue *queue = recovery->queues[i];
        if (!all && queue->max_physical <= physical_end)
            continue;
        int status = pymq_queue_truncate(queue, &recovery->store->log, physical_end);
        if (status != PYMQ_OK)
            return queue_failure(recovery, queue, status);
    }
    return PYMQ_OK;
}

/* The one boundary below `offset` that is certain without reading: a file's first byte. */
static int64_t file_begin(const struct recovery *recovery, int64_t offset) {
    int64_t size = recovery->store->config.log_file_size;
    return pymq_max64(recovery->log_begin, offset / size * size);
}

/* An index that knows records beyond the end would take new ones at their place for old ones. What repair had to
 * drop below it is put again by a second walk, in which queues find everything there already. */
static int truncate_index(struct recovery *recovery, int64_t end) {
    struct pymq_store *store = recovery->store;
    struct pymq_index_marks marks;
    int64_t reindex_from = end;
    if (store->index == NULL)
        return PYMQ_OK;
    pymq_index_marks(store->index, &marks);
    if (marks.end_offset < end)
        return PYMQ_OK;
    int status = pymq_index_repair(store->index, end, &reindex_from, recovery->error);
    if (status != PYMQ_OK || reindex_from >= end)
        return status;
    struct pymq_walk_result again;
    store->queues_from = end; /* for the index only: queues are as they should be */
    return pymq_walk(store, file_begin(recovery, reindex_from), INT64_MAX, &again, recovery->error);
}

static int64_t count_units(const struct recovery *recovery) {
    int64_t total = 0;
    for (size_t i = 0; i < recovery->queue_count; i++)
        total += atomic_load(&recovery->queues[i]->max_position) / PYMQ_CQ_UNIT_SIZE;
    return total;
}

/* Removals that a crash cut short are finished before anything is counted. */
static int finish_removals(struct recovery *recovery) {
    size_t stay = 0;
    for (size_t i = 0; i < recovery->queue_count; i++) {
        bool gone = false;
        int status = pymq_removal_finish(recovery->store, recovery->queues[i], &gone);
        if (status != PYMQ_OK)
            return queue_failure(recovery, recovery->queues[i], status);
        if (!gone)
            recovery->queues[stay++] = recovery->queues[i];
    }
    recovery->queue_count = stay;
    return PYMQ_OK;
}

/* Whether queues and index hold what the checkpoint says they held. If somebody has removed some of it, the log gives
 * everything back: walk all of it, and let queues that are whole find their units there already. */
static void check_derived(struct recovery *recovery) {
    struct pymq_store *store = recovery->store;
    const struct pymq_checkpoint *checkpoint = &store->checkpoint;
    if (!checkpoint->extended)
        return;
    if (checkpoint->unit_total >= 0 && count_units(recovery) != checkpoint->unit_total)
        store->queues_from = recovery->walk_from = recovery->log_begin;
    struct pymq_index_marks marks;
    if (store->index == NULL || checkpoint->index_end < -1)
        return;
    pymq_index_marks(store->index, &marks);
    if (marks.end_offset < checkpoint->index_end)
        recovery->walk_from = recovery->log_begin;
}

/* A log that ends before what the checkpoint knew to be durable is damaged, not torn: cutting it there would drop
 * acknowledged messages. That is the operator's decision. */
static int refuse_damage(struct recovery *recovery, int64_t end) {
    struct pymq_store *store = recovery->store;
    int64_t size = store->config.log_file_size;
    const char *what = pymq_walk_only_crc_differs(store, end) ? " (the CRC over the record, " PYMQ_RECORD_CRC_NAME
                                                                ", is missing or does not match)"
                                                              : "";
    return pymq_fail(recovery->error, PYMQ_ECORRUPT, 0,
                     "%s/%020" PRId64 ": no valid record at offset %" PRId64 "%s, but the log was durable up to "
                     "%" PRId64 ": the file is damaged or missing; restore it from a copy, or open with "
                     "truncate_damaged to drop what follows",
                     store->log.files.directory, end / size * size, end, what, store->checkpoint.flushed_offset);
}

/* Before anything is changed: do whole records reach as far as the log was durable? */
static int check_damage(struct recovery *recovery, int64_t from) {
    struct pymq_store *store = recovery->store;
    int64_t durable = store->checkpoint.flushed_offset, end = from;
    if (!store->checkpoint.extended || from >= durable || store->config.truncate_damaged)
        return PYMQ_OK;
    int status = pymq_walk_probe(store, from, durable, &end, recovery->error);
    if (status != PYMQ_OK)
        return status;
    return end >= durable ? PYMQ_OK : refuse_damage(recovery, end);
}

static int prepare_after_crash(struct recovery *recovery) {
    struct pymq_store *store = recovery->store;
    int64_t cut = start_after_crash(recovery);
    int status = check_damage(recovery, cut);
    if (status != PYMQ_OK)
        return status;
    store->touched = true;
    recovery->walk_from = cut;
    store->queues_from = cut;
    status = truncate_queues(recovery, cut, true);
    if (status == PYMQ_OK && store->index != NULL) {
        int64_t reindex_from = cut;
        status = pymq_index_repair(store->index, cut, &reindex_from, recovery->error);
        if (reindex_from < cut)
            recovery->walk_from = file_begin(recovery, reindex_from);
    }
    if (status == PYMQ_OK)
        status = finish_removals(recovery);
    if (status == PYMQ_OK)
        check_derived(recovery);
    return status;
}

static int prepare_after_clean_stop(struct recovery *recovery) {
    for (size_t i = 0; i < recovery->queue_count; i++) {
        int status = pymq_queue_recover(recovery->queues[i]);
        if (status != PYMQ_OK)
            return queue_failure(recovery, recovery->queues[i], status);
    }
    recovery->walk_from = start_after_clean_stop(recovery);
    recovery->store->queues_from = recovery->walk_from;
    int status = check_damage(recovery, recovery->walk_from);
    if (status != PYMQ_OK)
        return status;
    recovery->store->touched = true;
    status = finish_removals(recovery);
    if (status == PYMQ_OK)
        check_derived(recovery);
    return status;
}

/* No log at all. If anything says that there was one, it lies elsewhere or its disk is not there: Apache would remove
 * queues and index now; we say so instead. */
static int check_log_absence(struct recovery *recovery) {
    struct pymq_store *store = recovery->store;
    const struct pymq_checkpoint *checkpoint = &store->checkpoint;
    bool had_log = checkpoint->physic_msg_timestamp > 0 || (checkpoint->extended && checkpoint->flushed_offset > 0);
    for (size_t i = 0; i < recovery->queue_count && !had_log; i++)
        had_log = pymq_mapped_queue_count(&recovery->queues[i]->files) > 0;
    if (!had_log || store->config.truncate_damaged)
        return PYMQ_OK;
    return pymq_fail(recovery->error, PYMQ_ECORRUPT, 0,
                     "%s: no log file, but queues or the checkpoint point into one; is it kept elsewhere "
                     "(storePathCommitLog), or its disk not mounted? bring it back, or open with truncate_damaged to "
                     "start empty",
                     store->log.files.directory);
}

static int forget_queues(struct recovery *recovery) {
    int status = check_log_absence(recovery);
    if (status != PYMQ_OK)
        return status;
    recovery->store->touched = true;
    for (size_t i = 0; i < recovery->queue_count; i++) {
        struct pymq_queue *queue = recovery->queues[i];
        while (status == PYMQ_OK)
            status = pymq_mapped_queue_remove_last(&queue->files);
        if (status != PYMQ_ENOTFOUND)
            return queue_failure(recovery, queue, status);
        status = PYMQ_OK;
        queue->max_physical = -1;
    }
    return recovery->store->index != NULL ? pymq_index_destroy_files(recovery->store->index) : PYMQ_OK;
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

/* What was only in the page cache becomes durable before anybody can see it. */
static int sync_log(struct recovery *recovery, int64_t from, int64_t end) {
    struct pymq_mapped_queue *files = &recovery->store->log.files;
    int64_t size = files->file_size;
    for (int64_t base = from / size * size; base < end; base += size) {
        char path[PYMQ_PATH_MAX];
        if (pymq_file_path(files->directory, base, path, sizeof path) != PYMQ_OK)
            return PYMQ_EINVAL;
        int fd = pymq_io->open(path, O_RDWR, 0);
        int code = fd >= 0 && pymq_io->fdatasync(fd) == 0 ? 0 : errno;
        if (fd >= 0)
            pymq_io->close(fd);
        if (code != 0 && code != ENOENT)
            return pymq_fail(recovery->error, PYMQ_EIO, code, "%s: cannot be synced: %s", path, strerror(code));
    }
    return pymq_io_sync_directory(files->directory);
}

static int finish(struct recovery *recovery, bool clean) {
    struct pymq_store *store = recovery->store;
    int64_t end = recovery->walk.end;
    int status = pymq_mapped_queue_truncate(&store->log.files, end);
    if (status == PYMQ_OK && !clean)
        status = sync_log(recovery, recovery->walk_from, end);
    if (status != PYMQ_OK)
        return pymq_fail(recovery->error, status, errno, "%s: cannot be cut at %" PRId64 ": %s",
                         store->log.files.directory, end, strerror(errno));
    status = list_queues(recovery); /* the walk may have made some */
    if (status == PYMQ_OK)
        status = truncate_queues(recovery, end, false);
    for (size_t i = 0; i < recovery->queue_count && status == PYMQ_OK; i++) {
        struct pymq_queue *queue = recovery->queues[i];
        status = pymq_queue_restore(queue);
        queue->next_offset = atomic_load(&queue->max_position) / PYMQ_CQ_UNIT_SIZE;
        bool first_is_live = queue->first_physical >= recovery->log_begin;
        if (status == PYMQ_OK && !first_is_live) /* otherwise the minimum is where the files begin */
            status = pymq_queue_correct_min(queue, recovery->log_begin);
        if (status != PYMQ_OK)
            return queue_failure(recovery, queue, status);
    }
    if (status == PYMQ_OK)
        status = truncate_index(recovery, end);
    if (status == PYMQ_OK)
        status = pymq_removal_clamp(store, end, recovery->error);
    if (status != PYMQ_OK)
        return status;
    pymq_marks_reset(&store->marks, end);
    atomic_store(&store->checkpoint_safe, clean ? end : recovery->walk_from);
    atomic_store(&store->flushed_timestamp_ms, recovery->walk.last_timestamp_ms);
    store->unit_pending = 0;
    store->working = (struct pymq_dispatch_mark){.last_record = recovery->walk.last_record,
                                                 .timestamp_ms = recovery->walk.last_timestamp_ms,
                                                 .unit_total = count_units(recovery)};
    pymq_dispatch_publish(store, end);
    status = pymq_commit_log_resume(&store->log, end, recovery->walk.last_timestamp_ms, recovery->walk.last_record);
    if (status != PYMQ_OK)
        return pymq_fail(recovery->error, status, errno, "%s: the file at %" PRId64 " cannot be opened: %s",
                         store->log.files.directory, end, strerror(errno));
    return PYMQ_OK;
}

static int recover_log(struct recovery *recovery, bool clean) {
    struct pymq_store *store = recovery->store;
    int status = list_queues(recovery);
    if (status != PYMQ_OK)
        return status;
    recovery->log_begin = pymq_mapped_queue_begin(&store->log.files);
    if (recovery->log_begin < 0) {
        recovery->log_begin = 0;
        recovery->walk.last_record = -1;
        status = forget_queues(recovery);
        return status == PYMQ_OK ? finish(recovery, true) : status;
    }
    status = clean ? prepare_after_clean_stop(recovery) : prepare_after_crash(recovery);
    if (status != PYMQ_OK)
        return status;
    if (!store->checkpoint.extended)
        store->skip = PYMQ_SKIP_FILLED; /* in a log that pymq did not leave behind anything goes */
    else
        store->skip = recovery->log_begin > 0 ? PYMQ_SKIP_AT_START : PYMQ_SKIP_DAMAGED;
    store->stats.recovered_from = recovery->walk_from;
    int64_t unflushed_from = clean ? INT64_MAX : store->checkpoint.extended ? store->checkpoint.flushed_offset : 0;
    status = pymq_walk(store, recovery->walk_from, unflushed_from, &recovery->walk, recovery->error);
    if (status == PYMQ_OK && store->checkpoint.extended && recovery->walk.end < store->checkpoint.flushed_offset &&
        !store->config.truncate_damaged)
        status = refuse_damage(recovery, recovery->walk.end); /* a record that is not its queue's next, say */
    return status == PYMQ_OK ? finish(recovery, clean) : status;
}

int pymq_recover(struct pymq_store *store, struct pymq_error *error) {
    bool clean = !store->crashed;
    int64_t begin_ns = pymq_monotonic_ns();
    struct recovery recovery = {.store = store, .error = error};
    errno = 0;
    store->recovering = true;
    int status = recover_log(&recovery, clean);
    store->recovering = false;
    store->skip = PYMQ_SKIP_DAMAGED;
    store->queues_from = 0;
    free(recovery.queues);
    store->stats.recovered_clean = clean;
    store->stats.recovered_to = recovery.walk.end;
    store->stats.recovered_records = recovery.walk.records;
    store->stats.recover_us = (pymq_monotonic_ns() - begin_ns) / 1000;
    return status;
}
