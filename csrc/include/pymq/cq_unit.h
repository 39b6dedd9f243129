/* The 20-byte unit of a consume queue: physical offset 8, record size 4, tags code 8, all big-endian. */
#ifndef PYMQ_CQ_UNIT_H
#define PYMQ_CQ_UNIT_H

#include "pymq/base.h"

#define PYMQ_CQ_UNIT_SIZE 20
#define PYMQ_CQ_BLANK_RECORD_SIZE INT32_MAX /* size field of the filler before a queue's first real unit */

struct pymq_cq_unit {
    int64_t physical_offset;
    int32_t size;
    int64_t tags_code;
};

static inline void pymq_cq_encode(uint8_t *target, int64_t physical_offset, int32_t size, int64_t tags_code) {
    pymq_store_be64(target, (uint64_t)physical_offset);
    pymq_store_be32(target + 8, (uint32_t)size);
    pymq_store_be64(target + 12, (uint64_t)tags_code);
}

static inline void pymq_cq_decode_one(const uint8_t *source, struct pymq_cq_unit *unit) {
    unit->physical_offset = (int64_t)pymq_load_be64(source);
    unit->size = (int32_t)pymq_load_be32(source + 8);
    unit->tags_code = (int64_t)pymq_load_be64(source + 12);
}

/* Decode up to `count_max` units starting at `source`.
 * Returns units decoded (>= 0), or PYMQ_ECORRUPT if a unit has a non-positive size or points outside
 * [0, commit_offset_max). Touches no globals, allocates nothing, may run without the GIL. */
ssize_t pymq_cq_decode(const uint8_t *source, size_t source_size, struct pymq_cq_unit *target, size_t count_max,
                       int64_t commit_offset_max);

/* Indexes (unit numbers relative to `source`) of the units whose tags code is one of `hashes`, in order, up to
 * `matched_max`. `*scanned` is the number of units looked at: all of them, or up to and including the one that
 * filled `matched`. Returns the number of matches. */
size_t pymq_cq_scan_tags(const uint8_t *source, size_t count, const int64_t *hashes, size_t hash_count,
                         uint32_t *matched, size_t matched_max, size_t *scanned);

#endif
