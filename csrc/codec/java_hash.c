/* Java's String.hashCode: h = 31 * h + unit over UTF-16 code units, read from UTF-8.
 *
 * Java decodes malformed UTF-8 by replacing each malformed piece with one U+FFFD. The pieces are: a byte that cannot
 * start a sequence (80..c1, f5..ff) alone; a lead byte alone when the second byte is not in its range (e0: a0..bf,
 * f0: 90..bf, f4: 80..8f, else 80..bf); otherwise the longest prefix of the sequence that is there. A surrogate in
 * three well-formed bytes (ed a0..bf xx) is one piece of three bytes, where most other decoders see three.
 */
#include "pymq/java_hash.h"

#define JAVA_REPLACEMENT 0xfffdu
#define ASCII_MASK_8 0x8080808080808080ull
#define POWER_31_7 1742810335u /* mod 2^32 */
#define POWER_31_8 2487512833u

static inline bool is_continuation(uint8_t byte) { return (byte & 0xc0) == 0x80; }

/* Whether `second` may follow `lead` in a sequence of three or four bytes, by Java's rules. */
static inline bool second_fits(uint8_t lead, uint8_t second) {
    switch (lead) {
    case 0xe0: return second >= 0xa0 && second <= 0xbf;
    case 0xf0: return second >= 0x90 && second <= 0xbf;
    case 0xf4: return second >= 0x80 && second <= 0x8f;
    default: return is_continuation(second);
    }
}

/* One code point or replacement from source[0, size), size >= 1. Returns bytes consumed. */
static size_t next_code_point(const uint8_t *source, size_t size, uint32_t *code_point) {
    uint8_t lead = source[0];
    *code_point = JAVA_REPLACEMENT;
    if (lead < 0x80) {
        *code_point = lead;
        return 1;
    }
    if (lead < 0xc2 || lead > 0xf4 || size < 2 || !second_fits(lead, source[1])) {
        return 1;
    }
    if (lead < 0xe0) {
        *code_point = (uint32_t)(lead & 0x1f) << 6 | (source[1] & 0x3fu);
        return 2;
    }
    if (size < 3 || !is_continuation(source[2])) {
        return 2;
    }
    if (lead < 0xf0) {
        uint32_t unit = (uint32_t)(lead & 0x0f) << 12 | (source[1] & 0x3fu) << 6 | (source[2] & 0x3fu);
        if (unit < 0xd800 || unit > 0xdfff) {
            *code_point = unit;
        }
        return 3;
    }
    if (size < 4 || !is_continuation(source[3])) {
        return 3;
    }
    *code_point = (uint32_t)(lead & 0x07) << 18 | (source[1] & 0x3fu) << 12 | (source[2] & 0x3fu) << 6 |
                  (source[3] & 0x3fu);
    return 4;
}

int32_t pymq_java_hash(int32_t hash, const uint8_t *source, size_t size) {
    uint32_t h = (uint32_t)hash; /* unsigned: wraps as Java's int does, without undefined behaviour */
    size_t at = 0;
    while (at < size) {
        uint32_t code_point;
        while (size - at >= 8) {
            uint64_t word;
            memcpy(&word, source + at, sizeof word);
            if (word & ASCII_MASK_8) {
                break;
            }
            /* Eight ASCII bytes at once: Horner's rule with the powers of 31 multiplied out, mod 2^32. */
            h = h * POWER_31_8 + source[at] * POWER_31_7 + source[at + 1] * 887503681u + source[at + 2] * 28629151u +
                source[at + 3] * 923521u + source[at + 4] * 29791u + source[at + 5] * 961u + source[at + 6] * 31u +
                source[at + 7];
            at += 8;
        }
        if (at == size) {
            break;
        }
        if (source[at] < 0x80) {
            h = h * 31 + source[at++];
            continue;
        }
        at += next_code_point(source + at, size - at, &code_point);
        if (code_point >= 0x10000) {
            uint32_t offset = code_point - 0x10000;
            h = h * 31 + (0xd800 + (offset >> 10));
            h = h * 31 + (0xdc00 + (offset & 0x3ff));
        } else {
            h = h * 31 + code_point;
        }
    }
    return (int32_t)h;
}

int32_t pymq_index_key_hash(const uint8_t *topic, size_t topic_size, const uint8_t *key, size_t key_size) {
    static const uint8_t separator[1] = {'#'};
    int32_t hash = pymq_java_hash(0, topic, topic_size);
    hash = pymq_java_hash(hash, separator, sizeof separator);
    hash = pymq_java_hash(hash, key, key_size);
    if (hash == INT32_MIN) {
        return 0; /* Math.abs leaves it negative, and Apache then takes 0 */
    }
    return hash < 0 ? -hash : hash;
}
