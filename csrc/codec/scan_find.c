/* Where a walk can go on behind damage, and where a file's written part ends; the contract stands in pymq/scan.h.
 *
 * A magic is looked for, 64 bytes at a time: its first two bytes side by side are rare outside of records. What stands
 * there must then be a whole record that says this very offset, which bytes of a body do not.
 */
#include "pymq/scan.h"

#define STEP 64
#define OWN_OFFSET_END (PYMQ_RECORD_PHYSICAL_OFFSET_AT + 8)

/* Whether a magic may begin at one of at[0, STEP); reads one byte beyond. */
static bool step_may_match(const uint8_t *at) {
    unsigned hits = 0;
    for (size_t i = 0; i < STEP; i++) {
        hits |= ((unsigned)(at[i] == 0xda) & (unsigned)(at[i + 1] == 0xa3)) |
                ((unsigned)(at[i] == 0xcb) & (unsigned)(at[i + 1] == 0xd4));
    }
    return hits != 0;
}

/* The first position at or behind `from` whose second word is a magic; `size` when there is none. */
static size_t next_magic(const uint8_t *source, size_t size, size_t from) {
    for (size_t at = from; at + 8 <= size; at++) {
        uint32_t magic;
        while (at + 4 + STEP + 1 <= size && !step_may_match(source + at + 4)) {
            at += STEP;
        }
        if (at + 8 > size) {
            break;
        }
        magic = pymq_load_be32(source + at + 4);
        if (magic == PYMQ_RECORD_MAGIC_V1 || magic == PYMQ_RECORD_MAGIC_V2 || magic == PYMQ_RECORD_MAGIC_BLANK) {
            return at;
        }
    }
    return size;
}

/* What begins at `source`, where a magic was seen. */
static enum pymq_find_kind kind_of(const uint8_t *source, size_t size, int64_t offset, int64_t limit,
                                   int64_t file_end) {
    struct pymq_record record;
    int32_t total_size = (int32_t)pymq_load_be32(source);
    if (pymq_load_be32(source + 4) == PYMQ_RECORD_MAGIC_BLANK) {
        return total_size >= PYMQ_BLANK_SIZE_MIN && total_size == file_end - offset ? PYMQ_FIND_BLANK
                                                                                     : PYMQ_FIND_NOTHING;
    }
    if (total_size < PYMQ_RECORD_SIZE_MIN || total_size > limit - offset) {
        return PYMQ_FIND_NOTHING;
    }
    if (size >= OWN_OFFSET_END &&
        (int64_t)pymq_load_be64(source + PYMQ_RECORD_PHYSICAL_OFFSET_AT) != offset) {
        return PYMQ_FIND_NOTHING;
    }
    if ((size_t)total_size > size) {
        return PYMQ_FIND_MORE;
    }
    return pymq_record_decode(source, size, PYMQ_CHECK_OFFSET, offset, &record) > 0 ? PYMQ_FIND_RECORD
                                                                                     : PYMQ_FIND_NOTHING;
}

void pymq_scan_find(const uint8_t *source, size_t size, int64_t base_offset, int64_t limit, int64_t file_end,
                    struct pymq_find *found) {
    size_t at = next_magic(source, size, 0);
    memset(found, 0, sizeof *found);
    for (; at < size; at = next_magic(source, size, at + 1)) {
        int64_t offset = (int64_t)((uint64_t)base_offset + at);
        found->kind = kind_of(source + at, size - at, offset, limit, file_end);
        if (found->kind != PYMQ_FIND_NOTHING) {
            found->position = at;
            found->size = (int32_t)pymq_load_be32(source + at);
            return;
        }
    }
    found->position = size < 8 ? 0 : size - 7; /* a magic needs the eight bytes it stands in */
}

size_t pymq_scan_written(const uint8_t *source, size_t size) {
    static const uint8_t zeros[4096];
    while (size >= sizeof zeros && memcmp(source + size - sizeof zeros, zeros, sizeof zeros) == 0) {
        size -= sizeof zeros;
    }
    while (size > 0 && source[size - 1] == 0) {
        size--;
    }
    return size;
}
