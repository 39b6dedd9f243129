/* See decode.h. */
#include "decode.h"

#include "bytes.h"
#include "encode.h"

/* What a header gives away about where things stand, for the shapes. Positions are those of values. */
struct places {
    size_t code;
    size_t flag;
    size_t opaque;
};

struct reader {
    const char *at;
    const char *end;
    bool failed;
};

static bool text_is(struct text text, const char *expected) {
    return text.size == strlen(expected) && memcmp(text.bytes, expected, text.size) == 0;
}

static bool parse_integer(struct text text, int64_t *value) {
    size_t at = 0;
    bool negative = text.size > 0 && text.bytes[0] == '-';
    int64_t sum = 0;
    if (negative)
        at++;
    if (at == text.size || text.size - at > 18)
        return false;
    for (; at < text.size; at++) {
        if (text.bytes[at] < '0' || text.bytes[at] > '9')
            return false;
        sum = sum * 10 + (text.bytes[at] - '0');
    }
    *value = negative ? -sum : sum;
    return true;
}

/* Keep a field of extFields when it is one we know. */
static void take_field(struct answer *answer, struct text key, struct text value) {
    static const struct {
        const char *key;
        size_t member;
    } numbers[] = {
        {"queueId", offsetof(struct answer, queue_id)},
        {"queueOffset", offsetof(struct answer, queue_offset)},
        {"nextBeginOffset", offsetof(struct answer, next_begin_offset)},
        {"minOffset", offsetof(struct answer, min_offset)},
        {"maxOffset", offsetof(struct answer, max_offset)},
        {"offset", offsetof(struct answer, offset)},
    };
    if (text_is(key, "msgId")) {
        answer->msg_id = value;
        return;
    }
    if (text_is(key, "transactionId")) {
        answer->transaction_id = value;
        return;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int64_t number;
        if (text_is(key, numbers[i].key) && parse_integer(value, &number)) {
            memcpy((char *)answer + numbers[i].member, &number, sizeof number);
            return;
        }
    }
}

/* --- JSON ----------------------------------------------------------------------------------------------------- */

static void skip_space(struct reader *reader) {
    while (reader->at < reader->end &&
           (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\r' || *reader->at == '\t'))
        reader->at++;
}

static bool take_char(struct reader *reader, char expected) {
    skip_space(reader);
    if (reader->at < reader->end && *reader->at == expected) {
        reader->at++;
        return true;
    }
    return false;
}

static void expect_char(struct reader *reader, char expected) {
    if (!take_char(reader, expected))
        reader->failed = true;
}

/* The inside of a string, escapes as they stand: no field we read has any. */
static struct text take_string(struct reader *reader) {
    struct text text = {.bytes = reader->at, .size = 0};
    expect_char(reader, '"');
    if (reader->failed)
        return text;
    text.bytes = reader->at;
    while (reader->at < reader->end && *reader->at != '"')
        reader->at += *reader->at == '\\' ? 2 : 1;
    if (reader->at >= reader->end) {
        reader->failed = true;
        return text;
    }
    text.size = (size_t)(reader->at - text.bytes);
    reader->at++;
    return text;
}

/* A string, number, true, false or null. */
static struct text take_scalar(struct reader *reader) {
    skip_space(reader);
    if (reader->at < reader->end && *reader->at == '"')
        return take_string(reader);
    struct text text = {.bytes = reader->at, .size = 0};
    while (reader->at < reader->end && strchr(",}] \n\r\t", *reader->at) == NULL)
        reader->at++;
    text.size = (size_t)(reader->at - text.bytes);
    if (text.size == 0)
        reader->failed = true;
    return text;
}

static void take_ext_fields(struct reader *reader, struct answer *answer) {
    if (!take_char(reader, '{')) {
        take_scalar(reader); /* null */
        return;
    }
    while (!reader->failed && !take_char(reader, '}')) {
        struct text key = take_string(reader);
        expect_char(reader, ':');
        struct text value = take_scalar(reader);
        if (!reader->failed)
            take_field(answer, key, value);
        take_char(reader, ',');
    }
}

static void take_integer(struct reader *reader, const struct text *value, int32_t *target) {
    int64_t number;
    if (!parse_integer(*value, &number) || number < INT32_MIN || number > INT32_MAX)
        reader->failed = true;
    else
        *target = (int32_t)number;
}

static bool decode_json(const char *header, size_t size, struct answer *answer, struct places *places) {
    struct reader reader = {.at = header, .end = header + size};
    bool has_opaque = false;
    expect_char(&reader, '{');
    while (!reader.failed && !take_char(&reader, '}')) {
        struct text key = take_string(&reader);
        expect_char(&reader, ':');
        if (reader.failed)
            return false;
        if (text_is(key, "extFields")) {
            take_ext_fields(&reader, answer);
        } else {
            struct text value = take_scalar(&reader);
            size_t position = (size_t)(value.bytes - header);
            if (text_is(key, "code")) {
                take_integer(&reader, &value, &answer->code);
                places->code = position;
            } else if (text_is(key, "flag")) {
                take_integer(&reader, &value, &answer->flag);
                places->flag = position;
            } else if (text_is(key, "opaque")) {
                take_integer(&reader, &value, &answer->opaque);
                places->opaque = position;
                has_opaque = true;
            } else if (text_is(key, "remark")) {
                answer->remark = value;
            }
        }
        take_char(&reader, ',');
    }
    return !reader.failed && has_opaque;
}

/* --- ROCKETMQ ------------------------------------------------------------------------------------------------- */

static bool take_sized(struct reader *reader, unsigned width, struct text *text) {
    if ((size_t)(reader->end - reader->at) < width)
        return false;
    const uint8_t *word = (const uint8_t *)reader->at;
    size_t size = width == 2 ? get_be16(word) : get_be32(word);
    reader->at += width;
    if ((size_t)(reader->end - reader->at) < size)
        return false;
    *text = (struct text){.bytes = reader->at, .size = size};
    reader->at += size;
    return true;
}

#define ROCKETMQ_HEADER_SIZE_MIN 21
#define ROCKETMQ_REMARK_POSITION 13

static void read_rocketmq_words(const uint8_t *header, struct answer *answer) {
    answer->code = (int16_t)get_be16(header);
    answer->opaque = (int32_t)get_be32(header + 5);
    answer->flag = (int32_t)get_be32(header + 9);
}

/* The fixed beginning alone; it needs no shape. */
static bool decode_rocketmq_start(const uint8_t *frame, size_t size, size_t header_size, struct answer *answer) {
    if (header_size > size - FRAME_PREFIX_SIZE || header_size < ROCKETMQ_HEADER_SIZE_MIN)
        return false;
    read_rocketmq_words(frame + FRAME_PREFIX_SIZE, answer);
    answer->body = frame + FRAME_PREFIX_SIZE + header_size;
    answer->body_size = size - FRAME_PREFIX_SIZE - header_size;
    return true;
}

static bool decode_rocketmq(const char *header, size_t size, struct answer *answer) {
    struct text fields, key, value;
    if (size < ROCKETMQ_HEADER_SIZE_MIN)
        return false;
    struct reader reader = {.at = header + ROCKETMQ_REMARK_POSITION, .end = header + size};
    read_rocketmq_words((const uint8_t *)header, answer);
    if (!take_sized(&reader, 4, &answer->remark) || !take_sized(&reader, 4, &fields))
        return false;
    reader = (struct reader){.at = fields.bytes, .end = fields.bytes + fields.size};
    while (reader.at < reader.end) {
        if (!take_sized(&reader, 2, &key) || !take_sized(&reader, 4, &value))
            return false;
        take_field(answer, key, value);
    }
    return true;
}

/* --- both ----------------------------------------------------------------------------------------------------- */

int64_t frame_size(const uint8_t *source, size_t size) {
    if (size < 4)
        return 0;
    uint32_t length = get_be32(source);
    if (length < 4 || length > FRAME_SIZE_MAX)
        return -1;
    return size >= (size_t)length + 4 ? (int64_t)length + 4 : 0;
}

static bool decode(const uint8_t *frame, size_t size, struct answer *answer, struct places *places) {
    uint32_t word = get_be32(frame + 4);
    size_t header_size = word & 0xFFFFFF;
    if (header_size > size - FRAME_PREFIX_SIZE)
        return false;
    *answer = (struct answer){
        .queue_id = ANSWER_UNKNOWN,
        .queue_offset = ANSWER_UNKNOWN,
        .next_begin_offset = ANSWER_UNKNOWN,
        .min_offset = ANSWER_UNKNOWN,
        .max_offset = ANSWER_UNKNOWN,
        .offset = ANSWER_UNKNOWN,
        .body = frame + FRAME_PREFIX_SIZE + header_size,
        .body_size = size - FRAME_PREFIX_SIZE - header_size,
    };
    const char *header = (const char *)frame + FRAME_PREFIX_SIZE;
    switch (word >> 24) {
    case CODEC_JSON: return decode_json(header, header_size, answer, places);
    case CODEC_ROCKETMQ: return decode_rocketmq(header, header_size, answer);
    default: return false;
    }
}

bool decode_answer(const uint8_t *frame, size_t size, struct answer *answer) {
    struct places places;
    return decode(frame, size, answer, &places);
}

/* Whether `"name":` stands right before the value at `position`. */
static bool key_stands_before(const char *header, size_t position, const char *quoted, size_t quoted_size) {
    return position >= quoted_size && memcmp(header + position - quoted_size, quoted, quoted_size) == 0;
}

/* A small non-negative integer that ends at , or }; -1 otherwise. */
static int32_t read_small(const char *at, const char *end) {
    int32_t value = 0;
    int digits = 0;
    for (; at < end && *at >= '0' && *at <= '9' && digits < 9; at++, digits++)
        value = value * 10 + (*at - '0');
    return digits > 0 && at < end && (*at == ',' || *at == '}') ? value : -1;
}

#define CODE_KEY "\"code\":"
#define FLAG_KEY "\"flag\":"
#define OPAQUE_KEY "\"opaque\":"

static bool fits_shape(const uint8_t *frame, size_t size, const struct shape *shape, struct answer *answer) {
    const char *header = (const char *)frame + FRAME_PREFIX_SIZE;
    size_t header_size = shape->header_word & 0xFFFFFF;
    const char *end = header + header_size;
    if (header_size > size - FRAME_PREFIX_SIZE ||
        !key_stands_before(header, shape->code_position, CODE_KEY, sizeof CODE_KEY - 1) ||
        !key_stands_before(header, shape->flag_position, FLAG_KEY, sizeof FLAG_KEY - 1) ||
        !key_stands_before(header, shape->opaque_position, OPAQUE_KEY, sizeof OPAQUE_KEY - 1))
        return false;
    answer->code = read_small(header + shape->code_position, end);
    answer->flag = read_small(header + shape->flag_position, end);
    answer->opaque = read_small(header + shape->opaque_position, end);
    answer->body = frame + FRAME_PREFIX_SIZE + header_size;
    answer->body_size = size - FRAME_PREFIX_SIZE - header_size;
    return answer->code >= 0 && answer->flag >= 0 && answer->opaque >= 0;
}

bool decode_answer_shaped(const uint8_t *frame, size_t size, struct shapes *shapes, struct answer *answer) {
    uint32_t word = get_be32(frame + 4);
    struct places places = {0};
    if (word >> 24 == CODEC_ROCKETMQ)
        return decode_rocketmq_start(frame, size, word & 0xFFFFFF, answer);
    if (word >> 24 != CODEC_JSON)
        return false;
    struct shape *shape = &shapes->of[word % SHAPE_COUNT];
    if (shape->header_word == word && word != 0 && fits_shape(frame, size, shape, answer))
        return true;
    if (!decode(frame, size, answer, &places))
        return false;
    if ((word & 0xFFFFFF) <= UINT16_MAX)
        *shape = (struct shape){word, (uint16_t)places.code, (uint16_t)places.flag, (uint16_t)places.opaque};
    return true;
}

size_t answer_size(void) { return sizeof(struct answer); }
