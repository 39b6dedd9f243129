/* libFuzzer: any bytes as queue units; the input's first bytes choose hashes and limits.
 *
 * The scan must equal a plain loop, and what decodes must encode to the same bytes.
 */
#include "pymq/cq_unit.h"
#include "pymq/scan.h"

#include <stdlib.h>

#define HASHES_MAX 4
#define UNITS_MAX 128

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static void scan(const uint8_t *units, size_t count, const int64_t *hashes, size_t hash_count, size_t matched_max) {
    uint32_t matched[UNITS_MAX];
    size_t scanned, found, expected = 0;
    found = pymq_cq_scan_tags(units, count, hashes, hash_count, matched, matched_max, &scanned);
    require(found <= matched_max && scanned <= count);
    require(found == matched_max || scanned == count);
    for (size_t i = 0; i < scanned; i++) {
        struct pymq_cq_unit unit;
        pymq_cq_decode_one(units + i * PYMQ_CQ_UNIT_SIZE, &unit);
        for (size_t k = 0; k < hash_count; k++) {
            if (hashes[k] == unit.tags_code) {
                require(expected < found && matched[expected] == i);
                expected++;
                break;
            }
        }
    }
    require(expected == found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pymq_cq_unit decoded[UNITS_MAX];
    int64_t offsets[UNITS_MAX], hashes[HASHES_MAX] = {0};
    struct pymq_queue_columns columns = {offsets, NULL, NULL};
    size_t hash_count, matched_max, count;
    ssize_t good;
    if (size < 2) {
        return 0;
    }
    hash_count = data[0] % (HASHES_MAX + 1);
    matched_max = data[1] % (UNITS_MAX + 1);
    data += 2;
    size -= 2;
    count = size / PYMQ_CQ_UNIT_SIZE < UNITS_MAX ? size / PYMQ_CQ_UNIT_SIZE : UNITS_MAX;
    for (size_t k = 0; k < hash_count && count > 0; k++) { /* hashes that occur */
        hashes[k] = (int64_t)pymq_load_be64(data + (k * 7 % count) * PYMQ_CQ_UNIT_SIZE + 12);
    }
    scan(data, count, hashes, hash_count, matched_max);
    require(pymq_scan_queue(data, size, &columns, UNITS_MAX) == count);
    good = pymq_cq_decode(data, size, decoded, UNITS_MAX, INT64_MAX);
    require(good == PYMQ_ECORRUPT || (size_t)good == count);
    for (ssize_t i = 0; i < good; i++) {
        uint8_t again[PYMQ_CQ_UNIT_SIZE];
        pymq_cq_encode(again, decoded[i].physical_offset, decoded[i].size, decoded[i].tags_code);
        require(memcmp(again, data + i * PYMQ_CQ_UNIT_SIZE, sizeof again) == 0 && offsets[i] >= 0);
    }
    return 0;
}
