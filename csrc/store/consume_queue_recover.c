/* Where a consume queue ends after a stop.
 *
 * After a clean stop the units are a valid prefix followed by zeros, and a binary search over a handful of preads
 * finds its end: opening ten thousand queues must not read ten thousand files. After a crash only the units below
 * the checkpoint are known to be whole; behind them pages and sectors may be there or not in any mixture, so the
 * cut found by the same search is proved against the log, and if it does not stand, found again one by one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "commit_log.h"
#include "pymq/io.h"
#include "queue.h"

#define BLOCK_UNITS (PYMQ_PAGE_SIZE / PYMQ_CQ_UNIT_SIZE)
#define LINEAR_UNITS 4096 /* units read at a time by the one-by-one search */

/* What a search over one file needs. */
struct search {
    struct pymq_queue *queue;
    int fd;
    int64_t base;         /* of the file */
    int64_t physical_end; /* units at or beyond are not ours */
};

static int read_unit(const struct search *search, int64_t index, struct pymq_cq_unit *unit) {
    uint8_t bytes[PYMQ_CQ_UNIT_SIZE];
    ssize_t got = pymq_io_pread_full(search->fd, bytes, sizeof bytes, index * PYMQ_CQ_UNIT_SIZE);
    if (got != PYMQ_CQ_UNIT_SIZE)
        return PYMQ_EIO;
    pymq_cq_decode_one(bytes, unit);
    return PYMQ_OK;
}

static bool is_kept(const struct pymq_cq_unit *unit, int64_t physical_end) {
    if (unit->size == PYMQ_CQ_BLANK_RECORD_SIZE)
        return unit->physical_offset == 0;
    return unit->size > 0 && unit->physical_offset >= 0 && unit->physical_offset < physical_end &&
           unit->physical_offset <= physical_end - unit->size;
}

/* How many of the `count` units of a block are kept, given that they are a prefix of it. */
static int64_t kept_in_block(const uint8_t *block, int64_t count, int64_t physical_end) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct pymq_cq_unit unit;
        pymq_cq_decode_one(block + middle * PYMQ_CQ_UNIT_SIZE, &unit);
        if (is_kept(&unit, physical_end))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The number of kept units, given that they are a prefix of the file's. Blocks of a page: the first one settles it for
 * most queues, the others are found by doubling, then halving. */
static int find_end(const struct search *search, int64_t count, int64_t *end) {
    uint8_t block[BLOCK_UNITS * PYMQ_CQ_UNIT_SIZE];
    int64_t blocks = (count + BLOCK_UNITS - 1) / BLOCK_UNITS;
    int64_t low = 0, high = blocks; /* the end lies in a block of [low, high) or right behind it */
    int64_t look = 0;
    bool doubling = true;
    *end = 0;
    while (low < high) {
        int64_t first = look * BLOCK_UNITS, units = pymq_min64(BLOCK_UNITS, count - first);
        ssize_t size = (ssize_t)units * PYMQ_CQ_UNIT_SIZE;
        if (pymq_io_pread_full(search->fd, block, (size_t)size, first * PYMQ_CQ_UNIT_SIZE) != size)
            return PYMQ_EIO;
        int64_t kept = kept_in_block(block, units, search->physical_end);
        if (kept > 0)
            *end = pymq_max64(*end, first + kept);
        if (kept == units) {
            low = look + 1;
        } else {
            high = kept > 0 ? low : look; /* found, or further in front */
            doubling = false;
        }
        look = doubling ? pymq_min64(2 * look + 1, blocks - 1) : low + (high - low) / 2;
    }
    return PYMQ_OK;
}

/* The same one by one: kept and strictly ascending. */
static int find_end_slowly(const struct search *search, int64_t count, int64_t *end) {
    uint8_t *bytes = malloc(LINEAR_UNITS * PYMQ_CQ_UNIT_SIZE);
    if (bytes == NULL)
        return PYMQ_ENOMEM;
    int64_t index = 0, previous = -1;
    bool ended = false;
    while (index < count && !ended) {
        int64_t step = pymq_min64(LINEAR_UNITS, count - index);
        ssize_t got =
            pymq_io_pread_full(search->fd, bytes, (size_t)step * PYMQ_CQ_UNIT_SIZE, index * PYMQ_CQ_UNIT_SIZE);
        if (got != step * PYMQ_CQ_UNIT_SIZE) {
            free(bytes);
            return PYMQ_EIO;
        }
        for (int64_t i = 0; i < step; i++) {
            struct pymq_cq_unit unit;
            pymq_cq_decode_one(bytes + i * PYMQ_CQ_UNIT_SIZE, &unit);
            bool filler = unit.size == PYMQ_CQ_BLANK_RECORD_SIZE;
            ended = !is_kept(&unit, search->physical_end) || (!filler && unit.physical_offset <= previous);
            if (ended)
                break;
            previous = filler ? previous : unit.physical_offset;
            index++;
        }
    }
    free(bytes);
    *end = index;
    return PYMQ_OK;
}

/* Whether the record a unit points to says it is this queue's number `queue_offset`. What lies below the log's
 * minimum cannot be asked any more and is believed. */
static bool record_agrees(struct pymq_queue *queue, struct pymq_commit_log *log, const struct pymq_cq_unit *unit,
                          int64_t queue_offset) {
    uint8_t head[PYMQ_RECORD_SYS_FLAG_AT];
    if (unit->size == PYMQ_CQ_BLANK_RECORD_SIZE || unit->physical_offset < pymq_mapped_queue_begin(&log->files))
        return true;
    if (pymq_mapped_queue_read(&log->files, unit->physical_offset, head, sizeof head) != (ssize_t)sizeof head)
        return false;
    return pymq_load_be32(head) == (uint32_t)unit->size && pymq_load_be32(head + 12) == (uint32_t)queue->queue_id &&
           pymq_load_be64(head + PYMQ_RECORD_QUEUE_OFFSET_AT) == (uint64_t)queue_offset &&
           pymq_load_be64(head + PYMQ_RECORD_PHYSICAL_OFFSET_AT) == (uint64_t)unit->physical_offset;
}

/* The end of the kept units in one file whose first unit is kept; `*last` gets the last kept one. */
static int search_file(const struct search *search, struct pymq_commit_log *log, int64_t count, int64_t *end,
                       struct pymq_cq_unit *last) {
    int status = find_end(search, count, end);
    if (status == PYMQ_OK)
        status = read_unit(search, *end - 1, last);
    int64_t first_offset = search->base / PYMQ_CQ_UNIT_SIZE;
    if (status != PYMQ_OK || log == NULL || record_agrees(search->queue, log, last, first_offset + *end - 1))
        return status;
    status = find_end_slowly(search, count, end);
    while (status == PYMQ_OK && *end > 0) {
        status = read_unit(search, *end - 1, last);
        if (status == PYMQ_OK && record_agrees(search->queue, log, last, first_offset + *end - 1))
            break;
        --*end;
    }
    return status;
}

/* Positions from what the search found: `end` bytes, `last` the unit before (size 0 when there is none). */
static void set_positions(struct pymq_queue *queue, int64_t end, const struct pymq_cq_unit *last) {
    int64_t begin = pymq_max64(pymq_mapped_queue_begin(&queue->files), 0);
    bool real = last->size > 0 && last->size != PYMQ_CQ_BLANK_RECORD_SIZE;
    queue->max_physical = real ? last->physical_offset + last->size : -1;
    queue->next_offset = end / PYMQ_CQ_UNIT_SIZE;
    atomic_store(&queue->max_position, end);
    atomic_store(&queue->min_position, pymq_min64(begin, end));
    atomic_store(&queue->flushed_position, end);
    atomic_store(&queue->dirty, false);
}

/* The newest file whose first unit is kept, searched; *end is in bytes of the queue. */
static int find_queue_end(struct pymq_queue *queue, struct pymq_commit_log *log, int64_t physical_end, int64_t *end,
                          struct pymq_cq_unit *last) {
    struct pymq_mapped_queue *files = &queue->files;
    memset(last, 0, sizeof *last);
    queue->first_physical = -1;
    *end = pymq_max64(pymq_mapped_queue_begin(files), 0);
    for (int64_t base = pymq_mapped_queue_end(files) - files->file_size; base >= *end; base -= files->file_size) {
        struct pymq_file *file = pymq_mapped_queue_find(files, base);
        if (file == NULL)
            break;
        int fd = pymq_file_lend(file);
        struct search search = {queue, fd, base, physical_end};
        struct pymq_cq_unit first;
        int64_t units = 0;
        int status = fd >= 0 ? read_unit(&search, 0, &first) : PYMQ_EIO;
        if (status == PYMQ_OK && base == pymq_mapped_queue_begin(files))
            queue->first_physical =
                first.size > 0 && first.size != PYMQ_CQ_BLANK_RECORD_SIZE ? first.physical_offset : -1;
        if (status == PYMQ_OK && is_kept(&first, physical_end))
            status = search_file(&search, log, files->file_size / PYMQ_CQ_UNIT_SIZE, &units, last);
        pymq_file_lend_end(file, fd);
        pymq_file_release(file);
        if (status != PYMQ_OK)
            return status;
        if (units > 0) {
            *end = base + units * PYMQ_CQ_UNIT_SIZE;
            return PYMQ_OK;
        }
    }
    return PYMQ_OK;
}

int pymq_queue_recover(struct pymq_queue *queue) {
    int64_t end;
    struct pymq_cq_unit last;
    int status = find_queue_end(queue, NULL, INT64_MAX, &end, &last);
    if (status == PYMQ_OK)
        set_positions(queue, end, &last);
    return status;
}

int pymq_queue_truncate(struct pymq_queue *queue, struct pymq_commit_log *log, int64_t physical_end) {
    int64_t end;
    struct pymq_cq_unit last;
    int status = find_queue_end(queue, log, physical_end, &end, &last);
    int64_t begin = pymq_mapped_queue_begin(&queue->files);
    if (status != PYMQ_OK || begin < 0)
        return status;
    if (end > begin) {
        status = pymq_mapped_queue_truncate(&queue->files, end);
        queue->cut_unsynced = true;
    } else {
        queue->lost_position = begin;
        end = 0;
        while (status == PYMQ_OK)
            status = pymq_mapped_queue_remove_last(&queue->files);
        status = status == PYMQ_ENOTFOUND ? PYMQ_OK : status;
    }
    if (status == PYMQ_OK)
        set_positions(queue, end, &last);
    atomic_store(&queue->dirty, queue->cut_unsynced);
    return status;
}

int pymq_queue_restore(struct pymq_queue *queue) {
    int64_t position = queue->lost_position;
    if (position <= 0 || pymq_mapped_queue_count(&queue->files) > 0)
        return PYMQ_OK;
    struct pymq_file *file;
    int status = pymq_file_create(queue->files.directory, position, queue->files.file_size, 0, true, &file);
    if (status != PYMQ_OK)
        return status;
    pymq_file_close(file);
    status = pymq_mapped_queue_add(&queue->files, file);
    if (status != PYMQ_OK) {
        pymq_file_release(file);
        return status;
    }
    struct pymq_cq_unit none = {0, 0, 0};
    set_positions(queue, position, &none);
    return PYMQ_OK;
}
