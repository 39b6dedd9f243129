/* libFuzzer: any bytes as an index file; the input's first two bytes are the number of slots. */
#include "pymq/scan.h"

#include <stdlib.h>

#define ROWS_MAX 128

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int32_t slots[ROWS_MAX], hashes[ROWS_MAX], seconds[ROWS_MAX], previous[ROWS_MAX];
    int64_t offsets[ROWS_MAX];
    struct pymq_index_columns columns = {hashes, offsets, seconds, previous};
    struct pymq_index_header header;
    int32_t slot_count;
    ssize_t slots_read, items_read;
    if (size < 2) {
        return 0;
    }
    slot_count = (int16_t)pymq_load_be16(data); /* negative ones too */
    data += 2;
    size -= 2;
    slots_read = pymq_scan_index_slots(data, size, slot_count, slots, ROWS_MAX);
    require(slots_read <= ROWS_MAX && (slot_count >= 0 || slots_read == PYMQ_EINVAL));
    items_read = pymq_scan_index_items(data, size, slot_count, 1, &columns, ROWS_MAX);
    require(items_read <= ROWS_MAX);
    if (pymq_scan_index_header(data, size, &header) != PYMQ_OK) {
        require(size < PYMQ_INDEX_HEADER_SIZE && items_read < 0 && slots_read < 0);
    } else if (items_read >= 0) {
        require(slots_read >= 0);
        require(items_read == 0 || items_read == ROWS_MAX || items_read == header.item_count - 1);
        /* From each later number on, the same items. */
        for (int32_t first = 2; first <= items_read; first++) {
            int32_t hash;
            struct pymq_index_columns one = {&hash, NULL, NULL, NULL};
            require(pymq_scan_index_items(data, size, slot_count, first, &one, 1) == 1 && hash == hashes[first - 1]);
        }
    }
    return 0;
}
