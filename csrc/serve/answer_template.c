/* See answer_template.h. */
#include "answer_template.h"

#define NUMBER_SIZE_MAX 20
#define OFFSET_DIGITS 16 /* the last part of a message id: the physical offset, in hexadecimal */

/* Marks: as long as values can be, so that a frame with them is the largest. */
#define MARK_QUEUE_ID INT32_C(1111111111)
#define MARK_QUEUE_OFFSET INT64_C(2222222222222222222)
#define MARK_OPAQUE INT32_C(1333333333)
#define MARK_PHYSICAL INT64_C(0x7A7A7A7A7A7A7A7A)
#define MARK_KEY "KKKKKKKKKKKKKKKK"

static const char DECIMALS[] = "00010203040506070809101112131415161718192021222324"
                               "25262728293031323334353637383940414243444546474849"
                               "50515253545556575859606162636465666768697071727374"
                               "75767778798081828384858687888990919293949596979899";
static const char HEX[] = "0123456789ABCDEF";

/* Two digits at a time, from the end. Returns the bytes written. */
static inline size_t put_decimal(uint8_t *target, int64_t value) {
    uint8_t digits[NUMBER_SIZE_MAX];
    uint8_t *at = digits + sizeof digits;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    while (left >= 100) {
        at -= 2;
        memcpy(at, DECIMALS + 2 * (left % 100), 2);
        left /= 100;
    }
    if (left >= 10) {
        at -= 2;
        memcpy(at, DECIMALS + 2 * left, 2);
    } else {
        *--at = (uint8_t)('0' + left);
    }
    if (value < 0)
        *--at = '-';
    size_t size = (size_t)(digits + sizeof digits - at);
    memcpy(target, at, size);
    return size;
}

static inline size_t put_hexadecimal(uint8_t *target, uint64_t value) {
    for (int i = OFFSET_DIGITS - 1; i >= 0; i--) {
        target[i] = (uint8_t)HEX[value & 15];
        value >>= 4;
    }
    return OFFSET_DIGITS;
}

/* Whether JSON wants every byte as it is: none below 0x20, no quote, no backslash. Eight at a time: subtracting from
 * a byte borrows into its top bit exactly when it was smaller, as long as that bit was clear. */
static bool is_plain(const uint8_t *source, size_t size) {
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = UINT64_C(0x8080808080808080);
    uint64_t found = 0;
    for (; size >= 8; source += 8, size -= 8) {
        uint64_t word, quotes, backslashes;
        memcpy(&word, source, 8);
        quotes = word ^ ones * '"';
        backslashes = word ^ ones * '\\';
        found |= ((word - ones * 0x20) & ~word) | ((quotes - ones) & ~quotes) | ((backslashes - ones) & ~backslashes);
    }
    if ((found & tops) != 0)
        return false;
    for (; size > 0; source++, size--) {
        if (*source < 0x20 || *source == '"' || *source == '\\')
            return false;
    }
    return true;
}

bool pymq_answer_template_fits(const struct pymq_answer_template *template, const struct pymq_sent *sent) {
    return template->is_usable && sent->asker.serialize_type == PYMQ_SERIALIZE_JSON && sent->item_count == 1 &&
           sent->key.data != NULL && is_plain(sent->key.data, sent->key.size);
}

static inline uint8_t *put_piece(const struct pymq_answer_template *template, int piece, uint8_t *target) {
    memcpy(target, template->text + template->begins[piece], template->sizes[piece]);
    return target + template->sizes[piece];
}

size_t pymq_answer_template_write(const struct pymq_answer_template *template, const struct pymq_sent *sent,
                                  uint8_t *target) {
    uint8_t *at = put_piece(template, PYMQ_HOLE_QUEUE_ID, target);
    at += put_decimal(at, sent->queue_id);
    at = put_piece(template, PYMQ_HOLE_KEY, at);
    memcpy(at, sent->key.data, sent->key.size);
    at = put_piece(template, PYMQ_HOLE_MESSAGE_ID, at + sent->key.size);
    at += put_hexadecimal(at, (uint64_t)sent->items->physical_offset);
    at = put_piece(template, PYMQ_HOLE_QUEUE_OFFSET, at);
    at += put_decimal(at, sent->queue_offset);
    at = put_piece(template, PYMQ_HOLE_OPAQUE, at);
    at += put_decimal(at, sent->asker.opaque);
    at = put_piece(template, PYMQ_HOLES, at);
    size_t size = (size_t)(at - target);
    pymq_store_be32(target, (uint32_t)(size - 4));
    pymq_store_be32(target + 4, (uint32_t)(size - PYMQ_FRAME_PREFIX_SIZE)); /* the type's byte is JSON's 0 */
    return size;
}

/* ---- making it -------------------------------------------------------------------------------------------------- */

/* Cut the frame at its marks, one after the other. */
static bool cut(struct pymq_answer_template *template, size_t size) {
    uint8_t marks[PYMQ_HOLES][NUMBER_SIZE_MAX];
    size_t mark_sizes[PYMQ_HOLES] = {
        [PYMQ_HOLE_QUEUE_ID] = put_decimal(marks[PYMQ_HOLE_QUEUE_ID], MARK_QUEUE_ID),
        [PYMQ_HOLE_KEY] = sizeof MARK_KEY - 1,
        [PYMQ_HOLE_MESSAGE_ID] = put_hexadecimal(marks[PYMQ_HOLE_MESSAGE_ID], (uint64_t)MARK_PHYSICAL),
        [PYMQ_HOLE_QUEUE_OFFSET] = put_decimal(marks[PYMQ_HOLE_QUEUE_OFFSET], MARK_QUEUE_OFFSET),
        [PYMQ_HOLE_OPAQUE] = put_decimal(marks[PYMQ_HOLE_OPAQUE], MARK_OPAQUE),
    };
    memcpy(marks[PYMQ_HOLE_KEY], MARK_KEY, sizeof MARK_KEY - 1);
    size_t at = 0;
    for (int hole = 0; hole < PYMQ_HOLES; hole++) {
        const uint8_t *found = memmem(template->text + at, size - at, marks[hole], mark_sizes[hole]);
        if (found == NULL)
            return false;
        template->begins[hole] = (uint16_t)at;
        template->sizes[hole] = (uint16_t)((size_t)(found - template->text) - at);
        at = (size_t)(found - template->text) + mark_sizes[hole];
    }
    template->begins[PYMQ_HOLES] = (uint16_t)at;
    template->sizes[PYMQ_HOLES] = (uint16_t)(size - at);
    return true;
}

static struct pymq_sent sent_of(const struct pymq_append_item *item, int32_t queue_id, int64_t queue_offset,
                                int32_t opaque, const char *key) {
    return (struct pymq_sent){
        .asker = {.opaque = opaque, .serialize_type = PYMQ_SERIALIZE_JSON},
        .queue_id = queue_id,
        .queue_offset = queue_offset,
        .items = item,
        .item_count = 1,
        .key = {(const uint8_t *)key, (uint32_t)strlen(key)},
    };
}

void pymq_answer_template_make(struct pymq_answer_template *template, const struct pymq_serve_config *config) {
    uint8_t general[2 * PYMQ_TEMPLATE_SIZE_MAX], filled[2 * PYMQ_TEMPLATE_SIZE_MAX];
    struct pymq_append_item item = {.physical_offset = MARK_PHYSICAL};
    struct pymq_sent marked = sent_of(&item, MARK_QUEUE_ID, MARK_QUEUE_OFFSET, MARK_OPAQUE, MARK_KEY);
    template->is_usable = false;
    size_t size = pymq_answer_sent(config, &marked, general, sizeof general);
    if (size == 0 || size > sizeof template->text)
        return;
    memcpy(template->text, general, size);
    if (!cut(template, size))
        return;
    template->size = (uint32_t)(size + 3 * NUMBER_SIZE_MAX);
    /* Whether the cuts were the right ones is seen by filling the holes with something else. */
    struct pymq_append_item probe = {.physical_offset = 0x123456789};
    struct pymq_sent other = sent_of(&probe, 7, 98765, -42, "0123456789ABCDEF0123456789ABCDEF");
    size_t filled_size = pymq_answer_template_write(template, &other, filled);
    size = pymq_answer_sent(config, &other, general, sizeof general);
    template->is_usable = size == filled_size && memcmp(general, filled, size) == 0;
}
