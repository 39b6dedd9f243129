/* Text and bytes of many rows into Arrow's buffers; the contract stands in pymq/scan_text.h. */
#include "pymq/scan_text.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "pymq/record.h"

#define ASCII_MASK 0x8080808080808080ull

/* ---- UTF-8 ------------------------------------------------------------------------------------------- */

/* Bytes at the beginning of `source` that are ASCII, counted in steps: fewer than 32 may be left unseen at the end. */
static size_t ascii_prefix(const uint8_t *source, size_t size) {
    size_t at = 0;
    for (; size - at >= 32; at += 32) {
        uint64_t words[4];
        memcpy(words, source + at, sizeof words);
        if (((words[0] | words[1] | words[2] | words[3]) & ASCII_MASK) != 0) {
            break;
        }
    }
    for (; size - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, source + at, sizeof word);
        if ((word & ASCII_MASK) != 0) {
            break;
        }
    }
    while (at < size && source[at] < 0x80) {
        at++;
    }
    return at;
}

/* Bytes of the sequence that begins at source[0] (which is no ASCII), or 0 when it is none. */
static size_t sequence_size(const uint8_t *source, size_t size) {
    uint8_t lead = source[0], low = 0x80, high = 0xbf;
    size_t wanted = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead < 0xc2 || lead > 0xf4 || size < wanted) {
        return 0;
    }
    low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : low; /* shorter forms of the same */
    high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : high; /* surrogates; beyond U+10FFFF */
    if (source[1] < low || source[1] > high) {
        return 0;
    }
    for (size_t i = 2; i < wanted; i++) {
        if ((source[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return wanted;
}

bool pymq_is_utf8(const uint8_t *source, size_t size) {
    size_t at = 0;
    while ((at += ascii_prefix(source + at, size - at)) < size) {
        size_t step = sequence_size(source + at, size - at);
        if (step == 0) {
            return false;
        }
        at += step;
    }
    return true;
}

size_t pymq_scan_not_utf8(const uint8_t *data, const int32_t *offsets, size_t count, uint32_t *rows, size_t rows_max) {
    size_t found = 0;
    if (count == 0 || ascii_prefix(data, (size_t)offsets[count]) == (size_t)offsets[count]) {
        return 0;
    }
    for (size_t row = 0; row < count; row++) {
        if (!pymq_is_utf8(data + offsets[row], (size_t)(offsets[row + 1] - offsets[row]))) {
            if (found < rows_max) {
                rows[found] = (uint32_t)row;
            }
            found++;
        }
    }
    return found;
}

/* Whether every piece between 0x02 bytes is a name, one 0x01 and a value. Names are never empty; values may be, as
 * brokers write such themselves; the last 0x02 may be missing. */
static bool pieces_are_pairs(const uint8_t *source, size_t size) {
    size_t at = 0;
    while (at < size) {
        const uint8_t *piece = source + at;
        const uint8_t *end = memchr(piece, PYMQ_PROPERTY_SEPARATOR, size - at);
        size_t piece_size = end != NULL ? (size_t)(end - piece) : size - at;
        const uint8_t *separator = memchr(piece, PYMQ_NAME_VALUE_SEPARATOR, piece_size);
        if (separator == NULL || separator == piece) {
            return false;
        }
        separator++;
        if (memchr(separator, PYMQ_NAME_VALUE_SEPARATOR, (size_t)(piece + piece_size - separator)) != NULL) {
            return false;
        }
        at += piece_size + 1;
    }
    return true;
}

uint8_t pymq_text_state(struct pymq_slice topic, struct pymq_slice properties) {
    unsigned state = 0;
    if (!pymq_is_utf8(topic.data, topic.size) || !pymq_is_utf8(properties.data, properties.size)) {
        state |= PYMQ_TEXT_BAD_UTF8;
    }
    if (!pieces_are_pairs(properties.data, properties.size)) {
        state |= PYMQ_TEXT_BAD_PROPERTIES;
    }
    return (uint8_t)state;
}

/* ---- pieces ------------------------------------------------------------------------------------------ */

int64_t pymq_scan_gather_size(const int32_t *sizes, size_t count) {
    int64_t sum = 0;
    for (size_t row = 0; row < count; row++) {
        sum += sizes[row] > 0 ? sizes[row] : 0;
    }
    return sum;
}

size_t pymq_scan_gather(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                        int32_t *offsets, uint8_t *data, uint8_t *validity) {
    size_t absent = 0;
    int32_t at = 0;
    if (validity != NULL) {
        memset(validity, 0, (count + 7) / 8);
    }
    for (size_t row = 0; row < count; row++) {
        offsets[row] = at;
        if (sizes[row] < 0) {
            absent++;
            continue;
        }
        if (sizes[row] > 0) {
            memcpy(data + at, source + positions[row], (size_t)sizes[row]);
        }
        at += sizes[row];
        if (validity != NULL) {
            validity[row / 8] = (uint8_t)(validity[row / 8] | 1u << row % 8);
        }
    }
    offsets[count] = at;
    return absent;
}

/* ---- hosts ------------------------------------------------------------------------------------------- */

static size_t put_number(uint8_t *target, uint32_t number) {
    uint8_t digits[10];
    size_t count = 0;
    do {
        digits[count++] = (uint8_t)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    for (size_t i = 0; i < count; i++) {
        target[i] = digits[count - 1 - i];
    }
    return count;
}

/* Address and port, as they lie in a record, as text. */
static size_t put_host(const uint8_t *host, size_t address_size, uint8_t *target) {
    size_t at = 0;
    int32_t port = (int32_t)pymq_load_be32(host + address_size);
    if (address_size == 4) {
        for (size_t i = 0; i < 4; i++) {
            at += put_number(target + at, host[i]);
            target[at++] = i < 3 ? '.' : ':';
        }
    } else {
        char text[INET6_ADDRSTRLEN];
        size_t size = inet_ntop(AF_INET6, host, text, sizeof text) != NULL ? strlen(text) : 0;
        target[at++] = '[';
        memcpy(target + at, text, size);
        at += size;
        target[at++] = ']';
        target[at++] = ':';
    }
    if (port < 0) {
        target[at++] = '-';
        return at + put_number(target + at, 0u - (uint32_t)port);
    }
    return at + put_number(target + at, (uint32_t)port);
}

size_t pymq_scan_hosts(const uint8_t *source, const int64_t *record_positions, const int32_t *sys_flags, size_t count,
                       bool store_hosts, int32_t *offsets, uint8_t *data) {
    const uint8_t *last = NULL; /* hosts repeat: the text of the row before is copied when the bytes are the same */
    size_t last_size = 0, at = 0, last_at = 0;
    for (size_t row = 0; row < count; row++) {
        size_t born_size = (sys_flags[row] & PYMQ_SYS_BORN_HOST_V6) != 0 ? 16 : 4;
        size_t store_size = (sys_flags[row] & PYMQ_SYS_STORE_HOST_V6) != 0 ? 16 : 4;
        const uint8_t *host = source + record_positions[row] + PYMQ_RECORD_BORN_HOST_AT;
        size_t size = store_hosts ? store_size : born_size;
        if (store_hosts) {
            host += born_size + 4 + 8; /* port, store timestamp */
        }
        offsets[row] = (int32_t)at;
        if (last != NULL && size == last_size && memcmp(host, last, size + 4) == 0) {
            size_t text_size = (size_t)offsets[row] - last_at;
            memcpy(data + at, data + last_at, text_size);
            last_at = at;
            at += text_size;
            continue;
        }
        last = host;
        last_size = size;
        last_at = at;
        at += put_host(host, size, data + at);
    }
    offsets[count] = (int32_t)at;
    return at;
}

/* ---- properties -------------------------------------------------------------------------------------- */

void pymq_scan_property(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                        const char *name, size_t name_size, int64_t *value_positions, int32_t *value_sizes) {
    for (size_t row = 0; row < count; row++) {
        struct pymq_slice found = {NULL, 0};
        if (sizes[row] > 0) {
            found = pymq_properties_find(source + positions[row], (size_t)sizes[row], name, name_size);
        }
        value_positions[row] = found.data != NULL ? found.data - source : 0;
        value_sizes[row] = found.data != NULL ? (int32_t)found.size : -1;
    }
}

/* Whether a pair of the same name follows in the same properties. */
static bool comes_again(const uint8_t *properties, size_t size, size_t position, struct pymq_slice name) {
    struct pymq_property later;
    while (pymq_properties_next(properties, size, &position, &later)) {
        if (later.name.size == name.size && memcmp(later.name.data, name.data, name.size) == 0) {
            return true;
        }
    }
    return false;
}

size_t pymq_scan_property_pairs(const uint8_t *source, const int64_t *positions, const int32_t *sizes, size_t count,
                                int32_t *row_offsets, const struct pymq_pair_columns *pairs, size_t pair_max) {
    size_t found = 0;
    for (size_t row = 0; row < count; row++) {
        const uint8_t *properties = source + positions[row];
        size_t size = sizes[row] > 0 ? (size_t)sizes[row] : 0, position = 0;
        struct pymq_property pair;
        row_offsets[row] = (int32_t)found;
        while (pymq_properties_next(properties, size, &position, &pair)) {
            if (comes_again(properties, size, position, pair.name)) {
                continue;
            }
            if (found < pair_max) {
                pairs->name_position[found] = pair.name.data - source;
                pairs->name_size[found] = (int32_t)pair.name.size;
                pairs->value_position[found] = pair.value.data - source;
                pairs->value_size[found] = (int32_t)pair.value.size;
            }
            found++;
        }
    }
    row_offsets[count] = (int32_t)found;
    return found;
}
