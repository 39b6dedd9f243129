/* libFuzzer: any bytes as a record, a batch and a log.
 *
 * Besides staying inside the input (the sanitizers' part), what decodes must encode to the same bytes, and a batch or
 * a walk must account for every byte it stepped over.
 */
#include "pymq/scan.h"

#include <stdlib.h>

#define ROWS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static void decode_and_encode(const uint8_t *data, size_t size) {
    struct pymq_record record;
    struct pymq_record_keys keys;
    struct pymq_delay_levels levels;
    ssize_t decoded = pymq_record_decode(data, size, PYMQ_CHECK_STRUCTURE, 0, &record);
    ssize_t checked;
    uint8_t *again;
    if (decoded <= 0) {
        return;
    }
    require((size_t)decoded <= size && decoded == record.total_size);
    require(record.properties.data + record.properties.size == data + decoded);
    checked = pymq_record_decode(data, size, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET | PYMQ_CHECK_HOLES,
                                 record.physical_offset, &record);
    require(checked == decoded || checked == PYMQ_ECORRUPT);
    require(pymq_delay_levels_parse("1s 5s 2h", &levels) == PYMQ_OK);
    pymq_record_keys(&record, &levels, &keys);
    again = malloc((size_t)decoded);
    require(again != NULL);
    require(pymq_record_encode(&record, again, (size_t)decoded) == decoded);
    pymq_store_be32(again + 8, (uint32_t)record.body_crc); /* the only field that encode computes anew */
    require(memcmp(again, data, (size_t)decoded) == 0);
    free(again);
}

static void step_through_batch(const uint8_t *data, size_t size) {
    struct pymq_batch_item item;
    size_t position = 0;
    int status;
    while ((status = pymq_batch_next(data, size, &position, &item)) == 1) {
        require(item.properties.data + item.properties.size == data + position);
    }
    require(status == PYMQ_ECORRUPT || position == size);
}

static void walk(const uint8_t *data, size_t size) {
    static int64_t offsets[ROWS_MAX], tags[ROWS_MAX];
    static uint8_t matches[ROWS_MAX];
    struct pymq_log_columns columns;
    struct pymq_log_walk found;
    memset(&columns, 0, sizeof columns);
    columns.physical_offset = offsets;
    columns.tags_code = tags;
    columns.body_crc_matches = matches;
    pymq_scan_log(data, size, 0, PYMQ_CHECK_HOLES, NULL, &columns, ROWS_MAX, &found);
    require(found.position <= size && found.count <= ROWS_MAX);
    require(found.end != PYMQ_WALK_DONE || found.position == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    decode_and_encode(data, size);
    step_through_batch(data, size);
    walk(data, size);
    return 0;
}
