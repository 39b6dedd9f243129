/* The properties string, read as Apache RocketMQ's decoder reads it.
 *
 * Pieces are what lies between 0x02 bytes. A piece counts when its first 0x01 has at least one byte before it and one
 * after it; anything else is passed over in silence, as there. A later 0x01 belongs to the value. Working on bytes
 * is exact although Java splits the decoded string: neither separator is ever part of a multi-byte sequence, and
 * Java's decoder never swallows one while replacing malformed bytes.
 */
#include "pymq/properties.h"

int pymq_properties_next(const uint8_t *source, size_t size, size_t *position, struct pymq_property *property) {
    size_t at = *position;
    while (at < size) {
        const uint8_t *piece = source + at;
        const uint8_t *end = memchr(piece, PYMQ_PROPERTY_SEPARATOR, size - at);
        const uint8_t *separator;
        size_t piece_size = end != NULL ? (size_t)(end - piece) : size - at;
        at += piece_size + 1; /* one past `size` when the final separator is missing: still the end */
        separator = piece_size != 0 ? memchr(piece, PYMQ_NAME_VALUE_SEPARATOR, piece_size) : NULL;
        if (separator != NULL && separator != piece && separator != piece + piece_size - 1) {
            property->name.data = piece;
            property->name.size = (uint32_t)(separator - piece);
            property->value.data = separator + 1;
            property->value.size = (uint32_t)(piece + piece_size - separator - 1);
            *position = at;
            return 1;
        }
    }
    *position = at;
    return 0;
}

struct pymq_slice pymq_properties_find(const uint8_t *source, size_t size, const char *name, size_t name_size) {
    struct pymq_slice found = {NULL, 0};
    struct pymq_property property;
    size_t position = 0;
    while (pymq_properties_next(source, size, &position, &property)) {
        if (property.name.size == name_size && memcmp(property.name.data, name, name_size) == 0) {
            found = property.value;
        }
    }
    return found;
}

/* What can be said of a string that some Apache client or broker wrote?
 *
 * Little. A broker re-serialises the properties of a single send from its map, but those of a batch go into the log
 * as the client sent them, and no client forbids 0x01, 0x02, NUL or malformed UTF-8 inside a user's name or value.
 * Such a user makes pieces without a separator, with two, with an empty name or value; brokers store empty values
 * themselves; releases differ in whether the last 0x02 is written. All of these must pass: recovery cuts the log at
 * the first record that does not, so a false refusal here loses every later message.
 *
 * One thing holds for every writer: it writes a pair as name 0x01 value, so a string that is not empty has a 0x01.
 * A string that was never written (zeros) has none. The stronger checks against torn records are the lengths, the
 * physical offset, the body's CRC, and PYMQ_CHECK_HOLES. */
bool pymq_properties_are_well_formed(const uint8_t *source, size_t size) {
    return size == 0 || memchr(source, PYMQ_NAME_VALUE_SEPARATOR, size) != NULL;
}

static bool holds_separator(struct pymq_slice slice) {
    return slice.size != 0 && (memchr(slice.data, PYMQ_NAME_VALUE_SEPARATOR, slice.size) != NULL ||
                               memchr(slice.data, PYMQ_PROPERTY_SEPARATOR, slice.size) != NULL);
}

int pymq_properties_append(uint8_t *target, size_t capacity, size_t *size, struct pymq_slice name,
                           struct pymq_slice value) {
    uint64_t grown = (uint64_t)*size + name.size + value.size + 2;
    uint8_t *at;
    if (holds_separator(name) || holds_separator(value)) {
        return PYMQ_EINVAL;
    }
    if (grown > capacity) {
        return PYMQ_EPROPERTIES;
    }
    at = target + *size;
    if (name.size != 0) {
        memcpy(at, name.data, name.size);
    }
    at += name.size;
    *at++ = PYMQ_NAME_VALUE_SEPARATOR;
    if (value.size != 0) {
        memcpy(at, value.data, value.size);
    }
    at += value.size;
    *at = PYMQ_PROPERTY_SEPARATOR;
    *size = (size_t)grown;
    return PYMQ_OK;
}
