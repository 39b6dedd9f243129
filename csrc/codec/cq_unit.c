/* Batches of consume-queue units: decode with checks, and the scan for tag hashes.
 *
 * The scan compares the tags code as it lies in the file, so the wanted hashes are swapped once instead of every
 * unit. Eight units are compared per branch: matches are rare where a scan is worth doing.
 */
#include "pymq/cq_unit.h"

#define TAGS_AT 12
#define SCAN_STEP 8
#define FILTER_THRESHOLD 2 /* up to this many hashes are compared one by one in the fast loop */

_Static_assert(TAGS_AT + 8 == PYMQ_CQ_UNIT_SIZE, "a unit is offset 8, size 4, tags 8");

ssize_t pymq_cq_decode(const uint8_t *source, size_t source_size, struct pymq_cq_unit *target, size_t count_max,
                       int64_t commit_offset_max) {
    size_t count = source_size / PYMQ_CQ_UNIT_SIZE;
    if (count > count_max) {
        count = count_max;
    }
    for (size_t i = 0; i < count; i++) {
        pymq_cq_decode_one(source + i * PYMQ_CQ_UNIT_SIZE, &target[i]);
        if (target[i].size <= 0 || target[i].physical_offset < 0 || target[i].physical_offset >= commit_offset_max) {
            return PYMQ_ECORRUPT;
        }
    }
    return (ssize_t)count;
}

static inline uint64_t raw_tags(const uint8_t *source, size_t unit) {
    uint64_t value;
    memcpy(&value, source + unit * PYMQ_CQ_UNIT_SIZE + TAGS_AT, sizeof value);
    return value;
}

static bool is_wanted(uint64_t raw, const int64_t *hashes, size_t hash_count) {
    int64_t value = (int64_t)__builtin_bswap64(raw);
    for (size_t i = 0; i < hash_count; i++) {
        if (hashes[i] == value) {
            return true;
        }
    }
    return false;
}

/* One bit of 64 per hash: says "no" for most units without looking at the hashes. The swapped value's top byte is the
 * hash's lowest, so its low six bits are bits 56..61. */
static inline uint64_t filter_bit(uint64_t raw) { return 1ull << ((raw >> 56) & 63); }

struct scan_filter {
    uint64_t wanted[FILTER_THRESHOLD];
    uint64_t bits;
    size_t hash_count;
};

/* Whether any of the SCAN_STEP units at `unit` may match. Exact up to FILTER_THRESHOLD hashes, else by filter. */
static inline bool step_may_match(const uint8_t *source, size_t unit, const struct scan_filter *filter) {
    unsigned hits = 0;
    if (filter->hash_count == 1) {
        for (size_t k = 0; k < SCAN_STEP; k++) {
            hits |= raw_tags(source, unit + k) == filter->wanted[0];
        }
    } else if (filter->hash_count == FILTER_THRESHOLD) {
        for (size_t k = 0; k < SCAN_STEP; k++) {
            uint64_t raw = raw_tags(source, unit + k);
            hits |= (unsigned)(raw == filter->wanted[0]) | (unsigned)(raw == filter->wanted[1]);
        }
    } else {
        for (size_t k = 0; k < SCAN_STEP; k++) {
            hits |= (filter_bit(raw_tags(source, unit + k)) & filter->bits) != 0;
        }
    }
    return hits != 0;
}

size_t pymq_cq_scan_tags(const uint8_t *source, size_t count, const int64_t *hashes, size_t hash_count,
                         uint32_t *matched, size_t matched_max, size_t *scanned) {
    struct scan_filter filter = {{0, 0}, 0, hash_count};
    size_t found = 0, unit = 0;
    if (matched_max == 0) {
        *scanned = 0;
        return 0;
    }
    if (hash_count == 0) {
        *scanned = count;
        return 0;
    }
    for (size_t i = 0; i < hash_count; i++) {
        uint64_t raw = __builtin_bswap64((uint64_t)hashes[i]);
        filter.bits |= filter_bit(raw);
        if (i < FILTER_THRESHOLD) {
            filter.wanted[i] = raw;
        }
    }
    while (unit < count) {
        size_t step_end;
        if (count - unit >= SCAN_STEP) {
            if (!step_may_match(source, unit, &filter)) {
                unit += SCAN_STEP;
                continue;
            }
            step_end = unit + SCAN_STEP;
        } else {
            step_end = count;
        }
        for (; unit < step_end; unit++) {
            uint64_t raw = raw_tags(source, unit);
            if ((filter_bit(raw) & filter.bits) != 0 && is_wanted(raw, hashes, hash_count)) {
                matched[found++] = (uint32_t)unit;
                if (found == matched_max) {
                    *scanned = unit + 1;
                    return found;
                }
            }
        }
    }
    *scanned = count;
    return found;
}
