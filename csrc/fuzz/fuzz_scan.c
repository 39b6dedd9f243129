/* libFuzzer: any bytes as a log: walked into columns, summed up, texts gathered, searched for the next record. */
#include "pymq/scan_digest.h"
#include "pymq/scan_text.h"
#include "pymq/xxh3.h"

#include <stdlib.h>

#define ROWS 64
#define TABLE 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int64_t longs[10][ROWS];
    static int32_t ints[10][ROWS], offsets[ROWS + 1], pair_sizes[2][8192];
    static int64_t pair_positions[2][8192];
    static uint8_t bytes[2][ROWS], hosts[ROWS * PYMQ_HOST_TEXT_SIZE_MAX], validity[ROWS / 8], names[512];
    static struct pymq_group groups[TABLE];
    static struct pymq_topic topics[TABLE];
    struct pymq_log_columns columns = {
        .physical_offset = longs[0], .total_size = ints[0], .queue_id = ints[1], .queue_offset = longs[1],
        .sys_flag = ints[2], .store_timestamp_ms = longs[2], .tags_code = longs[3], .record_position = longs[4],
        .topic_position = longs[5], .topic_size = ints[3], .properties_position = longs[6], .properties_size = ints[4],
        .unique_key_position = longs[7], .unique_key_size = ints[5], .keys_position = longs[8], .keys_size = ints[6],
        .tags_position = longs[9], .tags_size = ints[7], .status = bytes[0], .text_state = bytes[1],
    };
    struct pymq_pair_columns pairs = {pair_positions[0], pair_sizes[0], pair_positions[1], pair_sizes[1]};
    struct pymq_group_table table = {groups, TABLE, 0};
    struct pymq_topic_table topic_table = {topics, TABLE, 0, names, sizeof names, 0};
    struct pymq_log_walk walk;
    struct pymq_find found;
    uint8_t *gathered;
    memset(groups, 0, sizeof groups);
    memset(topics, 0, sizeof topics);
    pymq_scan_log(data, size, 0, 0, NULL, &columns, ROWS, &walk);
    require(pymq_scan_fold(data, &columns, 0, walk.count, &topic_table, &table) <= walk.count);
    gathered = malloc((size_t)pymq_scan_gather_size(ints[4], walk.count) + 1);
    if (gathered == NULL) {
        return 0;
    }
    pymq_scan_gather(data, longs[6], ints[4], walk.count, offsets, gathered, validity);
    pymq_scan_not_utf8(gathered, offsets, walk.count, NULL, 0);
    free(gathered);
    pymq_scan_hosts(data, longs[4], ints[2], walk.count, true, offsets, hosts);
    pymq_scan_property_pairs(data, longs[6], ints[4], walk.count, offsets, &pairs, 8192);
    pymq_scan_find(data, size, 0, (int64_t)size, (int64_t)size, &found);
    require(found.position <= size);
    require(pymq_scan_written(data, size) <= size);
    require(pymq_xxh3_64(data, size) == pymq_xxh3_64(data, size));
    return 0;
}
