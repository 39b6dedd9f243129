/* What the files of csrc/wire share: text scanning, and the parsers behind pymq_command_decode. */
#ifndef PYMQ_WIRE_INTERNAL_H
#define PYMQ_WIRE_INTERNAL_H

#include "pymq/command.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define PYMQ_TEXT_STEP 16 /* bytes looked at in one step where the processor can */
#define PYMQ_LANGUAGES 14

struct pymq_language_name {
    uint8_t size;
    char name[8];
};

/* Names of LanguageCode by number. */
extern const struct pymq_language_name pymq_language_names[PYMQ_LANGUAGES];

/* The header at `frame` + PYMQ_FRAME_PREFIX_SIZE; fills all of `command` but serialize_type and body. */
int pymq_json_header_decode(const uint8_t *frame, size_t frame_size, size_t header_size, uint8_t *scratch,
                            size_t scratch_size, struct pymq_command *command);
int pymq_binary_header_decode(const uint8_t *frame, size_t header_size, struct pymq_command *command);

/* Size of the UTF-8 sequence at `source` (1..4), 0 when it is none: overlong, half of a surrogate pair, cut short. */
size_t pymq_utf8_step(const uint8_t *source, const uint8_t *end);
bool pymq_utf8_is_valid(const uint8_t *source, size_t size);

/* Whether no byte of it is above 0x7f. */
static inline bool pymq_is_ascii(const uint8_t *source, size_t size) {
    size_t at = 0;
#ifdef __SSE2__
    for (; size - at >= PYMQ_TEXT_STEP; at += PYMQ_TEXT_STEP) {
        if (_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)(source + at))) != 0) {
            return false;
        }
    }
#endif
    uint8_t bits = 0;
    for (; at < size; at++) {
        bits |= source[at];
    }
    return bits < 0x80;
}

static inline bool pymq_bytes_equal(const struct pymq_slice *slice, const char *text, size_t size) {
    return slice->size == size && memcmp(slice->data, text, size) == 0;
}

/* Whether field `count`, which is null, stands behind another of its name. Whoever walks the fields and lets the last
 * one count would pass over the null and take the value it hides; so such a header goes to Python. */
static inline bool pymq_null_hides(const struct pymq_field *fields, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (fields[i].name.size == fields[count].name.size &&
            memcmp(fields[i].name.data, fields[count].name.data, fields[count].name.size) == 0) {
            return true;
        }
    }
    return false;
}

/* The number of decimal digits of `value`, at least 1. */
static inline unsigned pymq_digit_count(uint64_t value) {
    unsigned count = 1;
    while (value >= 10000) {
        value /= 10000;
        count += 4;
    }
    return count + (value >= 1000 ? 3 : value >= 100 ? 2 : value >= 10 ? 1 : 0);
}

extern const char pymq_digit_pairs[201];

/* Write `count` = pymq_digit_count(value) digits. */
static inline void pymq_write_digits(uint8_t *target, uint64_t value, unsigned count) {
    uint8_t *at = target + count;
    while (value >= 100) {
        at -= 2;
        memcpy(at, &pymq_digit_pairs[value % 100 * 2], 2);
        value /= 100;
    }
    if (value >= 10) {
        memcpy(at - 2, &pymq_digit_pairs[value * 2], 2);
    } else {
        at[-1] = (uint8_t)('0' + value);
    }
}

#endif
