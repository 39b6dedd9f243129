/* Text and bytes of many rows at once: from positions and sizes (pymq/scan.h) into the buffers of Arrow's columns.
 *
 * A column of pieces is one int32 offset more than rows and the pieces' bytes back to back; a bit of `validity` is set
 * where a row has a value. As everywhere in the scan: stateless, no allocation, the caller owns every buffer, and the
 * positions are those a walk gave for the same source.
 */
#ifndef PYMQ_SCAN_TEXT_H
#define PYMQ_SCAN_TEXT_H

#include "pymq/base.h"
#include "pymq/properties.h"

enum pymq_text_state {
    PYMQ_TEXT_BAD_PROPERTIES = 1 << 0, /* a piece that is not a name, one separator and a value (which may be empty) */
    PYMQ_TEXT_BAD_UTF8 = 1 << 1,       /* topic or properties are no UTF-8 */
};

/* Whether `source` is UTF-8 as the standard has it: no overlong forms, no surrogates. */
bool pymq_is_utf8(const uint8_t *source, size_t size);

/* A set of enum pymq_text_state, 0 when there is nothing to say. */
uint8_t pymq_text_state(struct pymq_slice topic, struct pymq_slice properties);

/* Sum of the sizes that are not negative: the bytes pymq_scan_gather will write. */
int64_t pymq_scan_gather_size(const int32_t *sizes, size_t count);

/* Copy the pieces together. A negative size is a row without a value. `offsets` takes count + 1 numbers, `data` the
 * bytes of pymq_scan_gather_size (at most INT32_MAX), `validity` (count + 7) / 8 bytes or NULL. Returns how many rows
 * have no value. */
size_t pymq_scan_gather(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                        int32_t *offsets, uint8_t *data, uint8_t *validity);

/* Rows of a gathered column that are no UTF-8, in order. Returns how many; the first `rows_max` are filled. */
size_t pymq_scan_not_utf8(const uint8_t *data, const int32_t *offsets, size_t count, uint32_t *rows, size_t rows_max);

#define PYMQ_HOST_TEXT_SIZE_MAX 64 /* "[" an IPv6 address "]:" a port that may be any int */

/* The born or store hosts of records as text, "127.0.0.1:10911" or "[::1]:10911". `data` has room for
 * count * PYMQ_HOST_TEXT_SIZE_MAX. Returns bytes written. */
size_t pymq_scan_hosts(const uint8_t *source, const int64_t *record_positions, const int32_t *sys_flags, size_t count,
                       bool store_hosts, int32_t *offsets, uint8_t *data);

/* Where the value of the property `name` stands in each row's properties, the last one if repeated; size -1 where there
 * is none. */
void pymq_scan_property(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                        const char *name, size_t name_size, int64_t *value_positions, int32_t *value_sizes);

struct pymq_pair_columns {
    int64_t *name_position;
    int32_t *name_size;
    int64_t *value_position;
    int32_t *value_size;
};

/* Every pair of every row, of equal names the last. `row_offsets` takes count + 1 numbers: the pairs before each row.
 * Returns how many pairs there are; no more than `pair_max` are filled, which sizes / 4 + count always suffices for. */
size_t pymq_scan_property_pairs(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                                int32_t *row_offsets, const struct pymq_pair_columns *pairs, size_t pair_max);

#endif
