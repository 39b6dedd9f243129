/* See recovery_walk.h. One buffer, refilled at file boundaries and when the next record is cut by its end. */
#include "recovery_walk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>

#include "pymq/io.h"
#include "store_internal.h"

#define WALK_BUFFER_SIZE (8 * 1024 * 1024)
#define PROGRESS_INTERVAL_NS 100000000

struct walk {
    struct pymq_store *store;
    int64_t offset; /* of the next record */
    int64_t unflushed_from;
    int64_t probe_until; /* read only, no further than this; -1 when it is the real walk */
    int fd;              /* of the file that holds it, -1 */
    int64_t base;        /* of that file */
    uint8_t *buffer;
    size_t capacity;
    int64_t buffered_at; /* log offset of buffer[0] */
    size_t buffered;
    int64_t total_end; /* for progress */
    int64_t reported_ns;
};

static void report(struct walk *walk, int64_t from, bool last) {
    struct pymq_store_config *config = &walk->store->config;
    int64_t now_ns = pymq_monotonic_ns();
    if (config->progress == NULL || (!last && now_ns - walk->reported_ns < PROGRESS_INTERVAL_NS))
        return;
    walk->reported_ns = now_ns;
    config->progress(config->progress_context, "commitlog", walk->offset - from,
                     last ? walk->offset - from : walk->total_end - from);
}

/* Have the file of `offset` open. PYMQ_ENOTFOUND when there is none. */
static int enter_file(struct walk *walk) {
    struct pymq_mapped_queue *files = &walk->store->log.files;
    int64_t base = walk->offset / files->file_size * files->file_size;
    if (walk->fd >= 0 && walk->base == base)
        return PYMQ_OK;
    if (walk->fd >= 0)
        pymq_io->close(walk->fd);
    walk->fd = -1;
    if (base >= pymq_mapped_queue_end(files))
        return PYMQ_ENOTFOUND;
    char path[PYMQ_PATH_MAX];
    if (pymq_file_path(files->directory, base, path, sizeof path) != PYMQ_OK)
        return PYMQ_EINVAL;
    walk->fd = pymq_io->open(path, O_RDONLY, 0);
    if (walk->fd < 0)
        return PYMQ_EIO;
    posix_fadvise(walk->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    walk->base = base;
    walk->buffered = 0;
    return PYMQ_OK;
}

/* Refill so that the buffer starts at `offset`. */
static int refill(struct walk *walk) {
    int64_t in_file = walk->base + walk->store->config.log_file_size - walk->offset;
    ssize_t got = pymq_io_pread_full(walk->fd, walk->buffer, (size_t)pymq_min64((int64_t)walk->capacity, in_file),
                                     walk->offset - walk->base);
    if (got < 0)
        return PYMQ_EIO;
    walk->buffered_at = walk->offset;
    walk->buffered = (size_t)got;
    return PYMQ_OK;
}

/* A record longer than the buffer: written when maxMessageSize was larger. Make room for it, if it can be one. */
static bool grow_for(struct walk *walk, int64_t file_end) {
    if (walk->buffered < PYMQ_BLANK_SIZE_MIN)
        return false;
    int64_t total = pymq_load_be32(walk->buffer);
    uint32_t magic = pymq_load_be32(walk->buffer + 4);
    bool may_be = magic == PYMQ_RECORD_MAGIC_V1 || magic == PYMQ_RECORD_MAGIC_V2;
    if (!may_be || total <= (int64_t)walk->capacity || walk->offset + total > file_end)
        return false;
    uint8_t *grown = realloc(walk->buffer, (size_t)total);
    if (grown == NULL)
        return false;
    walk->buffer = grown;
    walk->capacity = (size_t)total;
    return true;
}

/* What a record must satisfy to be one. */
static unsigned checks_at(const struct walk *walk, int64_t offset) {
    const struct pymq_store *store = walk->store;
    unsigned checks = PYMQ_CHECK_OFFSET | (offset >= walk->unflushed_from ? PYMQ_CHECK_HOLES : 0);
    if (!store->config.check_crc_on_recover)
        return checks;
    checks |= PYMQ_CHECK_BODY_CRC;
    if (store->record_crc_from >= 0 && offset >= store->record_crc_from)
        checks |= PYMQ_CHECK_RECORD_CRC_REQUIRED;
    else if (store->config.require_record_crc)
        checks |= PYMQ_CHECK_RECORD_CRC;
    return checks;
}

/* Whether forceVerifyPropCRC forbids a record that is whole as far as anybody can tell. Differs: Apache cuts its log at
 * the first record without a CRC, and with it everything that was written before the setting was turned on. */
static bool lacks_crc(const struct walk *walk, const struct pymq_record *record) {
    const struct pymq_store_config *config = &walk->store->config;
    const uint8_t *source = walk->buffer + (walk->offset - walk->buffered_at);
    return config->require_record_crc && config->check_crc_on_recover &&
           pymq_record_crc_state(source, record) == PYMQ_RECORD_CRC_ABSENT;
}

/* The next record: its size, 0 at a blank tail (the offset then stands at the next file), or why there is none. */
static ssize_t next_record(struct walk *walk, struct pymq_record *record) {
    int64_t file_end = walk->base + walk->store->config.log_file_size;
    unsigned checks = checks_at(walk, walk->offset);
    for (int attempt = 0;; attempt++) {
        size_t at = (size_t)(walk->offset - walk->buffered_at);
        size_t left = at <= walk->buffered ? walk->buffered - at : 0;
        ssize_t taken =
            left > 0 ? pymq_record_decode(walk->buffer + at, left, checks, walk->offset, record) : PYMQ_ETRUNCATED;
        if (taken == 0) /* a blank that does not reach exactly to the file's end was written by nobody */
            return walk->offset + record->total_size == file_end ? 0 : PYMQ_ECORRUPT;
        /* A record that would cross its file is torn or stale; one cut by the buffer wants a refill, once, and one
         * longer than the buffer a longer one. */
        if (taken != PYMQ_ETRUNCATED || (attempt > 0 && !grow_for(walk, file_end)))
            return taken;
        if (walk->buffered > 0 && at == 0 && walk->offset + (int64_t)walk->buffered >= file_end)
            return PYMQ_ECORRUPT;
        if (refill(walk) != PYMQ_OK)
            return PYMQ_EIO;
    }
}

/* Until the records end. */
static int walk_records(struct walk *walk, int64_t from, struct pymq_walk_result *result) {
    for (;;) {
        struct pymq_record record;
        int status = enter_file(walk);
        if (status == PYMQ_ENOTFOUND)
            return PYMQ_OK; /* the last file ends with its blank tail */
        if (status != PYMQ_OK)
            return status;
        ssize_t taken = next_record(walk, &record);
        if (taken == PYMQ_EIO)
            return PYMQ_EIO;
        if (taken < 0)
            return PYMQ_OK; /* here the log ends */
        if (taken == 0) {
            walk->offset = walk->base + walk->store->config.log_file_size;
            continue;
        }
        if (lacks_crc(walk, &record)) {
            if (walk->store->config.truncate_damaged)
                return PYMQ_OK;
            return PYMQ_EMISMATCH;
        }
        if (walk->probe_until >= 0) {
            walk->offset += taken;
            if (walk->offset >= walk->probe_until)
                return PYMQ_OK;
            continue;
        }
        status = pymq_dispatch_record(walk->store, &record);
        if (status == PYMQ_ECORRUPT)
            return PYMQ_OK; /* whole by itself, but not the next of its queue: here the log ends */
        if (status != PYMQ_OK)
            return status;
        result->last_record = walk->offset;
        result->last_timestamp_ms = record.store_timestamp_ms;
        result->records++;
        walk->offset += taken;
        report(walk, from, false);
    }
}

/* The store time to go on from, when the walk itself met no record: that of the last one the checkpoint knows. Without
 * our block the checkpoint has no CRC, and its times are believed only as far as they lie in the past. */
static void look_back(struct pymq_store *store, struct pymq_walk_result *result) {
    const struct pymq_checkpoint *checkpoint = &store->checkpoint;
    uint8_t head[PYMQ_RECORD_SIZE_MIN];
    if (result->records > 0)
        return;
    if (!checkpoint->extended) {
        result->last_timestamp_ms = pymq_max64(0, pymq_min64(checkpoint->physic_msg_timestamp, pymq_now_ms()));
        return;
    }
    result->last_timestamp_ms = pymq_max64(0, checkpoint->physic_msg_timestamp);
    if (checkpoint->last_record < 0 || checkpoint->last_record >= result->end ||
        pymq_mapped_queue_read(&store->log.files, checkpoint->last_record, head, sizeof head) != (ssize_t)sizeof head)
        return;
    result->last_record = checkpoint->last_record;
    result->last_timestamp_ms = pymq_max64(result->last_timestamp_ms, pymq_record_store_timestamp_ms(head));
}

static int walk_init(struct walk *walk, struct pymq_store *store, int64_t from, struct pymq_error *error) {
    int64_t longest = (int64_t)store->config.message_size_max + PYMQ_RECORD_OVERHEAD_MAX;
    *walk = (struct walk){.store = store, .offset = from, .unflushed_from = INT64_MAX, .probe_until = -1, .fd = -1};
    walk->capacity = (size_t)pymq_min64(store->config.log_file_size, pymq_max64(WALK_BUFFER_SIZE, longest));
    walk->total_end = pymq_mapped_queue_end(&store->log.files);
    walk->buffer = malloc(walk->capacity);
    if (walk->buffer == NULL)
        return pymq_fail(error, PYMQ_ENOMEM, errno, "recovery: no memory for a buffer of %zu bytes", walk->capacity);
    return PYMQ_OK;
}

static int walk_run(struct walk *walk, int64_t from, struct pymq_walk_result *result, struct pymq_error *error) {
    errno = 0;
    int status = walk_records(walk, from, result);
    int saved = errno;
    if (walk->fd >= 0)
        pymq_io->close(walk->fd);
    free(walk->buffer);
    if (status == PYMQ_OK)
        return PYMQ_OK;
    if (status == PYMQ_EMISMATCH)
        return pymq_fail(error, status, 0,
                         "%s: the record at offset %" PRId64 " carries no " PYMQ_RECORD_CRC_NAME
                         ", which forceVerifyPropCRC demands: open without that setting, or with truncate_damaged to "
                         "drop this record and what follows",
                         walk->store->log.files.directory, walk->offset);
    return pymq_fail(error, status, saved, "%s: recovery stopped at offset %" PRId64 ": %s (%s)",
                     walk->store->log.files.directory, walk->offset, pymq_status_name(status), strerror(saved));
}

int pymq_walk_probe(struct pymq_store *store, int64_t from, int64_t until, int64_t *end, struct pymq_error *error) {
    struct walk walk;
    struct pymq_walk_result nothing = {.last_record = -1};
    int status = walk_init(&walk, store, from, error);
    if (status != PYMQ_OK)
        return status;
    walk.probe_until = until;
    status = walk_run(&walk, from, &nothing, error);
    *end = walk.offset;
    return status;
}

int pymq_walk(struct pymq_store *store, int64_t from, int64_t unflushed_from, struct pymq_walk_result *result,
              struct pymq_error *error) {
    struct walk walk;
    memset(result, 0, sizeof *result);
    result->last_record = -1;
    int status = walk_init(&walk, store, from, error);
    if (status != PYMQ_OK)
        return status;
    walk.unflushed_from = unflushed_from;
    status = walk_run(&walk, from, result, error);
    if (status != PYMQ_OK)
        return status;
    result->end = walk.offset;
    look_back(store, result);
    report(&walk, from, true);
    return PYMQ_OK;
}

/* The size of the record at `offset` when its lengths, its own offset and its body agree, whatever its CRC says. */
static int64_t whole_record(struct pymq_store *store, int64_t offset) {
    int64_t file_left = store->config.log_file_size - offset % store->config.log_file_size;
    uint8_t head[8];
    if (pymq_mapped_queue_read(&store->log.files, offset, head, sizeof head) != (ssize_t)sizeof head)
        return -1;
    int64_t total = pymq_load_be32(head);
    uint8_t *bytes = total >= PYMQ_RECORD_SIZE_MIN && total <= file_left ? malloc((size_t)total) : NULL;
    if (bytes == NULL)
        return -1;
    struct pymq_record record;
    bool whole =
        pymq_mapped_queue_read(&store->log.files, offset, bytes, (size_t)total) == total &&
        pymq_record_decode(bytes, (size_t)total, PYMQ_CHECK_OFFSET | PYMQ_CHECK_BODY_CRC, offset, &record) == total;
    free(bytes);
    return whole ? total : -1;
}

bool pymq_walk_ends_at(struct pymq_store *store, int64_t offset, int64_t end) {
    int64_t file_size = store->config.log_file_size;
    uint8_t head[8];
    if (offset < 0 || end <= offset || end - offset > file_size)
        return end == 0 && offset < 0;
    int64_t total = whole_record(store, offset);
    if (total < 0 || offset + total == end)
        return total >= 0;
    /* A blank tail may lie between. */
    return end % file_size == 0 &&
           pymq_mapped_queue_read(&store->log.files, offset + total, head, sizeof head) == (ssize_t)sizeof head &&
           pymq_load_be32(head + 4) == PYMQ_RECORD_MAGIC_BLANK && offset + total + (int64_t)pymq_load_be32(head) == end;
}

bool pymq_walk_only_crc_differs(struct pymq_store *store, int64_t offset) { return whole_record(store, offset) >= 0; }
