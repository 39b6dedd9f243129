/* Repair of the index after an unclean stop.
 *
 * What is known: every item that points below the cut was durable, with its header, when the checkpoint was written.
 * What is not: anything written later. Pages and sectors of it may have reached the disk or not, in any order, so
 * later items may be whole, torn or missing, and slots and header may speak of items that never arrived.
 *
 * Items are in log order. So the kept ones are a prefix, found by reading them; slots, chain links and header follow
 * from that prefix and are computed again, and everything behind it becomes zero: stale bytes must not come back to
 * life. Every step may be cut short by another crash, because a repair with the same cut ends in the same bytes.
 * Everything here goes through pread and pwrite, so that a full disk is a status and not a signal.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SEEK_DATA */
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "index_file.h"
#include "pymq/io.h"

#define REPAIR_CHUNK_ITEMS 4096
#define REPAIR_CHUNK_SIZE (REPAIR_CHUNK_ITEMS * PYMQ_INDEX_ITEM_SIZE)

/* One file under repair. */
struct repair {
    const struct index_layout *layout;
    int fd;
    int64_t cut_offset;
    struct pymq_index_header header; /* as found, then as it will be */
    struct index_item first;
    struct index_item last; /* of the kept ones */
    uint8_t *chunk;
    uint8_t *slots; /* big-endian, as in the file */
};

static bool is_zero(const uint8_t *source, size_t size) {
    return size == 0 || (source[0] == 0 && memcmp(source, source + 1, size - 1) == 0);
}

/* Whether the bytes are an item a writer could have left after one that points at `offset_before`. */
static bool item_is_plausible(const uint8_t *bytes, const struct index_item *item, int64_t offset_before) {
    return !is_zero(bytes, PYMQ_INDEX_ITEM_SIZE) && item->hash >= 0 && item->seconds >= 0 && item->previous >= 0 &&
           item->offset >= 0 && item->offset >= offset_before;
}

static int read_item(const struct repair *repair, int32_t number, uint8_t bytes[PYMQ_INDEX_ITEM_SIZE],
                     struct index_item *item) {
    ssize_t got = pymq_io_pread_full(repair->fd, bytes, PYMQ_INDEX_ITEM_SIZE, index_item_at(repair->layout, number));
    if (got != PYMQ_INDEX_ITEM_SIZE)
        return got < 0 ? (int)got : PYMQ_ETRUNCATED;
    index_item_decode(bytes, item);
    return PYMQ_OK;
}

/* Keep the items of one chunk until the first that ends the prefix; links that differ are corrected in the chunk.
 * Returns how many were kept and tells whether the chunk must be written back. */
static int32_t keep_items(struct repair *repair, int32_t number_first, int32_t count, bool *changed) {
    *changed = false;
    for (int32_t i = 0; i < count; i++) {
        uint8_t *bytes = repair->chunk + (size_t)i * PYMQ_INDEX_ITEM_SIZE;
        struct index_item item;
        index_item_decode(bytes, &item);
        if (!item_is_plausible(bytes, &item, repair->last.offset) || item.offset >= repair->cut_offset)
            return i;
        uint8_t *slot = repair->slots + (index_slot_at(repair->layout, item.hash) - PYMQ_INDEX_HEADER_SIZE);
        int32_t previous = (int32_t)pymq_load_be32(slot);
        if (previous == 0)
            repair->header.slot_used++;
        if (item.previous != previous) {
            pymq_store_be32(bytes + 16, (uint32_t)previous);
            *changed = true;
        }
        pymq_store_be32(slot, (uint32_t)(number_first + i));
        repair->last = item;
    }
    return count;
}

/* Read the items from the first on; afterwards header.item_count, header.slot_used, last and slots are those kept. */
static int scan_items(struct repair *repair) {
    int32_t number = PYMQ_INDEX_ITEM_FIRST;
    repair->header.slot_used = 0;
    repair->last = (struct index_item){.offset = 0};
    while (number < repair->layout->item_limit) {
        int32_t count = (int32_t)pymq_min64(REPAIR_CHUNK_ITEMS, repair->layout->item_limit - number);
        size_t size = (size_t)count * PYMQ_INDEX_ITEM_SIZE;
        ssize_t got = pymq_io_pread_full(repair->fd, repair->chunk, size, index_item_at(repair->layout, number));
        if (got != (ssize_t)size)
            return got < 0 ? (int)got : PYMQ_ETRUNCATED;
        bool changed;
        int32_t kept = keep_items(repair, number, count, &changed);
        if (changed) {
            int status = pymq_io_pwrite_full(repair->fd, repair->chunk, (size_t)kept * PYMQ_INDEX_ITEM_SIZE,
                                             index_item_at(repair->layout, number));
            if (status != PYMQ_OK)
                return status;
        }
        number += kept;
        if (kept < count)
            break;
    }
    repair->header.item_count = number;
    return PYMQ_OK;
}

/* Zeros from `begin` to `end`, touching only what is not zero yet: the file is sparse and shall stay so. */
static int zero_range(const struct repair *repair, int64_t begin, int64_t end) {
    while (begin < end) {
        off_t data = lseek(repair->fd, begin, SEEK_DATA); /* skips holes; where that is not known, all is read */
        if (data < 0 && errno == ENXIO)
            return PYMQ_OK;
        if (data > begin)
            begin = data;
        if (begin >= end)
            break;
        size_t size = (size_t)pymq_min64(REPAIR_CHUNK_SIZE, end - begin);
        ssize_t got = pymq_io_pread_full(repair->fd, repair->chunk, size, begin);
        if (got != (ssize_t)size)
            return got < 0 ? (int)got : PYMQ_ETRUNCATED;
        if (!is_zero(repair->chunk, size)) {
            int status = pymq_io_zero(repair->fd, begin, (int64_t)size);
            if (status != PYMQ_OK)
                return status;
        }
        begin += (int64_t)size;
    }
    return PYMQ_OK;
}

/* The end time of the kept items: exact when the header speaks of the last of them, else the end of its second. */
static int64_t end_timestamp(const struct repair *repair) {
    const struct pymq_index_header *header = &repair->header;
    if (header->end_offset == repair->last.offset)
        return header->end_timestamp_ms;
    if (repair->last.offset == repair->first.offset)
        return header->begin_timestamp_ms; /* the same record; and a first item's seconds count from another begin */
    return header->begin_timestamp_ms + (int64_t)repair->last.seconds * 1000 + 999;
}

/* Compute the file again from the items below the cut, and sync it. There is at least one. */
static int rebuild_file(struct repair *repair) {
    const struct index_layout *layout = repair->layout;
    size_t slots_size = (size_t)layout->slot_count * PYMQ_INDEX_SLOT_SIZE;
    uint8_t header[PYMQ_INDEX_HEADER_SIZE];
    int status = scan_items(repair);
    if (status != PYMQ_OK)
        return status;
    repair->header.end_timestamp_ms = end_timestamp(repair);
    repair->header.end_offset = repair->last.offset;
    pymq_index_header_encode(&repair->header, header);
    status = zero_range(repair, layout->items_at, index_item_at(layout, PYMQ_INDEX_ITEM_FIRST));
    if (status == PYMQ_OK)
        status = zero_range(repair, index_item_at(layout, repair->header.item_count), layout->file_size);
    if (status == PYMQ_OK)
        status = pymq_io_pwrite_full(repair->fd, repair->slots, slots_size, PYMQ_INDEX_HEADER_SIZE);
    if (status == PYMQ_OK)
        status = pymq_io_pwrite_full(repair->fd, header, sizeof header, 0);
    if (status == PYMQ_OK && pymq_io->fdatasync(repair->fd) != 0)
        status = PYMQ_EFAILED;
    return status;
}

static int rebuild_file_buffered(struct repair *repair) {
    repair->chunk = malloc(REPAIR_CHUNK_SIZE);
    repair->slots = calloc((size_t)repair->layout->slot_count, PYMQ_INDEX_SLOT_SIZE);
    int status = PYMQ_ENOMEM;
    errno = ENOMEM;
    if (repair->chunk != NULL && repair->slots != NULL)
        status = rebuild_file(repair);
    free(repair->chunk);
    free(repair->slots);
    return status;
}

/* Whether the file is full and wholly below the cut: then it was durable and there is nothing behind its items. */
static int is_untouched(const struct repair *repair, bool *untouched) {
    const struct pymq_index_header *header = &repair->header;
    *untouched = false;
    if (header->item_count != repair->layout->item_limit || header->end_offset >= repair->cut_offset)
        return PYMQ_OK;
    uint8_t bytes[PYMQ_INDEX_ITEM_SIZE];
    struct index_item last;
    int status = read_item(repair, header->item_count - 1, bytes, &last);
    *untouched = status == PYMQ_OK && last.offset == header->end_offset;
    return status;
}

enum verdict { VERDICT_KEEP, VERDICT_REMOVE, VERDICT_REINDEX };

/* Judge the file by its header and first item, and rebuild it if it holds the cut. */
static int repair_file(struct repair *repair, int64_t offset_before, enum verdict *verdict) {
    uint8_t header[PYMQ_INDEX_HEADER_SIZE];
    uint8_t first[PYMQ_INDEX_ITEM_SIZE];
    ssize_t got = pymq_io_pread_full(repair->fd, header, sizeof header, 0);
    if (got != (ssize_t)sizeof header)
        return got < 0 ? (int)got : PYMQ_ETRUNCATED;
    pymq_index_header_decode(header, &repair->header);
    int status = read_item(repair, PYMQ_INDEX_ITEM_FIRST, first, &repair->first);
    if (status != PYMQ_OK)
        return status;
    bool trusted = repair->header.begin_offset == repair->first.offset &&
                   repair->header.item_count > PYMQ_INDEX_ITEM_FIRST &&
                   repair->header.item_count <= repair->layout->item_limit;
    if (!item_is_plausible(first, &repair->first, trusted ? 0 : offset_before) ||
        repair->first.offset >= repair->cut_offset) {
        *verdict = VERDICT_REMOVE;
        return PYMQ_OK;
    }
    if (!trusted) {
        *verdict = VERDICT_REINDEX;
        return PYMQ_OK;
    }
    *verdict = VERDICT_KEEP;
    bool untouched;
    status = is_untouched(repair, &untouched);
    if (status == PYMQ_OK && !untouched)
        status = rebuild_file_buffered(repair);
    return status;
}

/* Make the memory side say what the rebuilt file says. */
static int adopt_file(struct pymq_index *index, struct index_file *file, const struct pymq_index_header *header) {
    pymq_index_file_adopt(file, &index->layout, header);
    file->synced_item_count = atomic_load_explicit(&file->item_count, memory_order_relaxed);
    file->settled = index_file_is_full(file, &index->layout);
    return file->settled ? PYMQ_OK : pymq_index_file_attach(file, &index->layout, index->directory);
}

/* Repair the last file. `*done` when it stays: everything before it is below the cut. */
static int repair_last(struct pymq_index *index, int64_t *cut_offset, bool *done) {
    struct index_file *file = index->files[index->file_count - 1];
    int64_t offset_before = 0;
    if (index->file_count > 1)
        offset_before = atomic_load_explicit(&index->files[index->file_count - 2]->end_offset, memory_order_relaxed);
    char path[PYMQ_PATH_MAX];
    int status = pymq_index_file_path(index->directory, file->name, path);
    if (status != PYMQ_OK)
        return status;
    pymq_index_file_detach(file, &index->layout); /* one way in at a time: no stale page of a mapping in between */
    struct repair repair = {.layout = &index->layout, .cut_offset = *cut_offset};
    repair.fd = pymq_io->open(path, O_RDWR, 0);
    if (repair.fd < 0)
        return pymq_io_status(errno);
    enum verdict verdict = VERDICT_KEEP;
    status = repair_file(&repair, offset_before, &verdict);
    int saved = errno;
    pymq_io->close(repair.fd);
    errno = saved;
    if (status != PYMQ_OK)
        return status;
    if (verdict == VERDICT_KEEP) {
        *done = true;
        return adopt_file(index, file, &repair.header);
    }
    if (verdict == VERDICT_REINDEX)
        *cut_offset = repair.first.offset; /* and a file before it gives up what it has of that record */
    return pymq_index_list_remove(index, file);
}

int pymq_index_repair(struct pymq_index *index, int64_t cut_offset, int64_t *reindex_from, struct pymq_error *error) {
    int32_t file_count = index->file_count;
    int status = PYMQ_OK;
    bool done = false;
    index->resume_offset = -1;
    *reindex_from = cut_offset;
    while (status == PYMQ_OK && !done && index->file_count > 0) {
        char name[PYMQ_INDEX_NAME_SIZE + 1];
        memcpy(name, index->files[index->file_count - 1]->name, sizeof name);
        status = repair_last(index, &cut_offset, &done);
        if (status != PYMQ_OK)
            pymq_fail(error, status, errno, "index file %s/%s cannot be repaired: %s", index->directory, name,
                      status == PYMQ_ETRUNCATED ? "it became shorter" : strerror(errno));
    }
    index->writer_file = index->file_count > 0 ? index->files[index->file_count - 1] : NULL;
    if (status != PYMQ_OK)
        return status;
    *reindex_from = cut_offset;
    if (index->file_count != file_count) {
        if (pymq_io_sync_directory(index->directory) != PYMQ_OK)
            return pymq_fail(error, PYMQ_EFAILED, errno, "index directory %s: %s", index->directory, strerror(errno));
        index->directory_dirty = false;
    }
    return PYMQ_OK;
}
