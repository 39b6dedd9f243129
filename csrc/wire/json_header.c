/* The JSON header, read in one pass without building anything.
 *
 * Accepted: an object with any order of names, space between tokens, all escapes of JSON (\uXXXX with surrogate pairs),
 * raw control characters, whole numbers, true, false and null as field values, names nobody knows with values of any
 * kind. The last of equal names counts. Each of these was seen to mean the same to Apache's reader.
 *
 * Not accepted, because Apache's reader has its own ideas there: +5, 05, 1.5, 1e3, -0 as a text, single quotes,
 * comments, commas too many or too few, nested values where text is expected, half of a surrogate pair, bytes that are
 * no UTF-8, languages nobody knows, "body" and "suspended", a null behind a value of the same name, a missing code or
 * opaque.
 *
 * The header is known to end with '}' before parsing begins. That brace stops every loop over single bytes, so most
 * steps need no check for the end; whoever consumes a '}' looks whether it was the last byte.
 */
#include "wire_internal.h"

#define DEPTH_MAX 16 /* of a value nobody knows */

enum seen { SEEN_CODE = 1, SEEN_OPAQUE = 2 };

struct reader {
    const uint8_t *at;
    const uint8_t *end;   /* of the header */
    const uint8_t *limit; /* of the frame: bytes up to here may be loaded */
    uint8_t *scratch;
    uint8_t *scratch_end;
};

static const int8_t hex_values[256] = {
    ['0'] = 1, ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9, ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
}; /* one more than the digit, so that 0 is no digit */

static inline void skip_space(struct reader *reader) {
    while (*reader->at <= ' ' && (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\r' ||
                                  *reader->at == '\t')) {
        reader->at++;
    }
}

/* The first byte at or behind `at` that ends or interrupts a string: quote, backslash, not ASCII; `end` when none. */
static inline const uint8_t *find_special(const uint8_t *at, const uint8_t *end, const uint8_t *limit) {
#ifdef __SSE2__
    const __m128i quotes = _mm_set1_epi8('"'), backslashes = _mm_set1_epi8('\\');
    while (limit - at >= PYMQ_TEXT_STEP) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, quotes), _mm_cmpeq_epi8(bytes, backslashes));
        int mask = _mm_movemask_epi8(_mm_or_si128(ends, bytes));
        if (mask != 0) {
            at += __builtin_ctz((unsigned)mask);
            return at < end ? at : end;
        }
        at += PYMQ_TEXT_STEP;
        if (at >= end) {
            return end;
        }
    }
#else
    (void)limit;
#endif
    while (at < end && *at != '"' && *at != '\\' && *at < 0x80) {
        at++;
    }
    return at;
}

/* Four hexadecimal digits at `at`, or -1. */
static inline int32_t read_hex(const uint8_t *at, const uint8_t *end) {
    if (end - at < 4) {
        return -1;
    }
    int a = hex_values[at[0]], b = hex_values[at[1]], c = hex_values[at[2]], d = hex_values[at[3]];
    if (a == 0 || b == 0 || c == 0 || d == 0) {
        return -1;
    }
    return (a - 1) << 12 | (b - 1) << 8 | (c - 1) << 4 | (d - 1);
}

static size_t write_utf8(uint8_t *target, uint32_t point) {
    if (point < 0x80) {
        target[0] = (uint8_t)point;
        return 1;
    }
    if (point < 0x800) {
        target[0] = (uint8_t)(0xc0 | point >> 6);
        target[1] = (uint8_t)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        target[0] = (uint8_t)(0xe0 | point >> 12);
        target[1] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
        target[2] = (uint8_t)(0x80 | (point & 0x3f));
        return 3;
    }
    target[0] = (uint8_t)(0xf0 | point >> 18);
    target[1] = (uint8_t)(0x80 | (point >> 12 & 0x3f));
    target[2] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    target[3] = (uint8_t)(0x80 | (point & 0x3f));
    return 4;
}

/* \uXXXX, or two of them for a character beyond U+FFFF; `*at` stands at the first digit. */
static bool read_unicode(const uint8_t **at, const uint8_t *end, uint32_t *point) {
    int32_t unit = read_hex(*at, end);
    if (unit < 0) {
        return false;
    }
    *at += 4;
    if (unit < 0xd800 || unit > 0xdfff) {
        *point = (uint32_t)unit;
        return true;
    }
    if (unit > 0xdbff || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u') {
        return false; /* half of a pair */
    }
    int32_t low = read_hex(*at + 2, end);
    if (low < 0xdc00 || low > 0xdfff) {
        return false;
    }
    *at += 6;
    *point = 0x10000u + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return true;
}

static const uint8_t escapes[256] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t',
};

/* The escape at `*at` (a backslash), written to `target`. */
static inline bool unescape(const uint8_t **at, const uint8_t *end, uint8_t **target) {
    const uint8_t *source = *at + 1;
    if (source == end) {
        return false;
    }
    if (*source != 'u') {
        **target = escapes[*source];
        *target += 1;
        *at = source + 1;
        return escapes[*source] != 0;
    }
    source++;
    uint32_t point;
    if (!read_unicode(&source, end, &point)) {
        return false;
    }
    *target += write_utf8(*target, point); /* never longer than the escape was */
    *at = source;
    return true;
}

/* Copy what lies between two special bytes: in one step where both sides have room for it. */
static inline uint8_t *copy_plain(uint8_t *target, const uint8_t *target_end, const uint8_t *from, const uint8_t *to,
                                  const uint8_t *limit) {
    size_t size = (size_t)(to - from);
#ifdef __SSE2__
    if (size <= PYMQ_TEXT_STEP && limit - from >= PYMQ_TEXT_STEP && target_end - target >= PYMQ_TEXT_STEP) {
        _mm_storeu_si128((__m128i *)(void *)target, _mm_loadu_si128((const __m128i *)(const void *)from));
        return target + size;
    }
#else
    (void)target_end;
    (void)limit;
#endif
    memcpy(target, from, size);
    return target + size;
}

/* The rest of a string that begins at `begin` and has its first backslash at reader->at. */
static bool read_escaped(struct reader *reader, const uint8_t *begin, struct pymq_slice *slice) {
    const uint8_t *at = reader->at, *run = begin;
    uint8_t *target = reader->scratch;
    /* What is written is never more than what is read; only a scratch smaller than the frame can lack room. */
    if (reader->scratch_end - target < reader->end - begin) {
        return false;
    }
    for (;;) {
        if (at == reader->end) {
            return false;
        }
        if (*at >= 0x80) {
            size_t step = pymq_utf8_step(at, reader->end);
            if (step == 0) {
                return false;
            }
            at = find_special(at + step, reader->end, reader->limit);
            continue;
        }
        target = copy_plain(target, reader->scratch_end, run, at, reader->limit);
        if (*at == '"') {
            break;
        }
        if (!unescape(&at, reader->end, &target)) {
            return false;
        }
        run = at;
        at = find_special(at, reader->end, reader->limit);
    }
    slice->data = reader->scratch;
    slice->size = (uint32_t)(target - reader->scratch);
    reader->scratch = target;
    reader->at = at + 1;
    return true;
}

/* A string; reader->at stands behind its opening quote and then behind its closing one. */
static inline bool read_string(struct reader *reader, struct pymq_slice *slice) {
    const uint8_t *begin = reader->at, *at = begin;
    for (;;) {
        at = find_special(at, reader->end, reader->limit);
        if (at == reader->end) {
            return false;
        }
        if (*at == '"') {
            slice->data = begin;
            slice->size = (uint32_t)(at - begin);
            reader->at = at + 1;
            return true;
        }
        if (*at == '\\') {
            reader->at = at;
            return read_escaped(reader, begin, slice);
        }
        size_t step = pymq_utf8_step(at, reader->end);
        if (step == 0) {
            return false;
        }
        at += step;
    }
}

/* true, false or null, whose first letter is there. */
static inline bool read_word(struct reader *reader, const char *word, size_t size, struct pymq_slice *slice) {
    if ((size_t)(reader->end - reader->at) <= size || memcmp(reader->at, word, size) != 0) {
        return false;
    }
    slice->data = reader->at;
    slice->size = (uint32_t)size;
    reader->at += size;
    return true;
}

/* A whole number as JSON has them, as its text; what may follow it the caller finds out. */
static bool read_number(struct reader *reader, struct pymq_slice *slice) {
    const uint8_t *begin = reader->at, *at = begin + (*begin == '-');
    const uint8_t *digits = at;
    while (*at >= '0' && *at <= '9') {
        at++;
    }
    if (at == digits || (*digits == '0' && at - digits > 1)) {
        return false;
    }
    slice->data = begin;
    slice->size = (uint32_t)(at - begin);
    reader->at = at;
    return true;
}

static bool read_int32(struct reader *reader, int32_t *value) {
    struct pymq_slice text;
    return read_number(reader, &text) && pymq_slice_int32(&text, value) == PYMQ_OK;
}

/* The value of a field, as the text Java makes of it. */
static inline bool read_field_value(struct reader *reader, struct pymq_slice *value) {
    switch (*reader->at) {
    case '"':
        reader->at++;
        return read_string(reader, value);
    case 't':
        return read_word(reader, "true", 4, value);
    case 'f':
        return read_word(reader, "false", 5, value);
    case 'n':
        if (!read_word(reader, "null", 4, value)) {
            return false;
        }
        value->data = NULL;
        value->size = 0;
        return true;
    default:
        return read_number(reader, value) && !pymq_bytes_equal(value, "-0", 2);
    }
}

/* Behind an item: 1 when a comma was passed, 0 when the closing brace was, -1 for anything else. */
static inline int next_item(struct reader *reader) {
    skip_space(reader);
    if (*reader->at == ',') {
        reader->at++;
        skip_space(reader);
        return 1;
    }
    if (*reader->at == '}') {
        reader->at++;
        return 0;
    }
    return -1;
}

/* `"name" :` and space; reader->at stands at the opening quote and then at the value. */
static inline bool read_name(struct reader *reader, struct pymq_slice *name) {
    if (*reader->at != '"') {
        return false;
    }
    reader->at++;
    if (!read_string(reader, name)) {
        return false;
    }
    skip_space(reader);
    if (*reader->at != ':') {
        return false;
    }
    reader->at++;
    skip_space(reader);
    return true;
}

/* extFields: an object of texts, or null; replaces what an earlier one said. */
static bool read_fields(struct reader *reader, struct pymq_command *command) {
    uint32_t count = 0;
    command->field_count = 0;
    if (*reader->at == 'n') {
        struct pymq_slice nothing;
        return read_word(reader, "null", 4, &nothing);
    }
    if (*reader->at != '{') {
        return false;
    }
    reader->at++;
    skip_space(reader);
    int more = *reader->at != '}';
    if (!more) {
        reader->at++;
    }
    while (more > 0) {
        if (count == PYMQ_COMMAND_FIELDS_MAX) {
            return false;
        }
        struct pymq_field *field = &command->fields[count];
        if (!read_name(reader, &field->name) || !read_field_value(reader, &field->value)) {
            return false;
        }
        if (pymq_bytes_equal(&field->name, "$ref", 4)) {
            return false; /* fastjson takes it for a pointer into the header */
        }
        if (field->value.data == NULL && pymq_null_hides(command->fields, count)) {
            return false;
        }
        count++;
        more = next_item(reader);
    }
    command->field_count = count;
    return more == 0 && reader->at < reader->end;
}

static bool read_language(struct reader *reader, struct pymq_command *command) {
    struct pymq_slice name;
    if (*reader->at != '"') {
        return false;
    }
    reader->at++;
    if (!read_string(reader, &name)) {
        return false;
    }
    for (unsigned code = 0; code < PYMQ_LANGUAGES; code++) {
        if (pymq_bytes_equal(&name, pymq_language_names[code].name, pymq_language_names[code].size)) {
            command->language = (uint8_t)code;
            return true;
        }
    }
    return false;
}

static bool read_remark(struct reader *reader, struct pymq_command *command) {
    if (*reader->at == 'n') {
        return read_field_value(reader, &command->remark);
    }
    if (*reader->at != '"') {
        return false;
    }
    reader->at++;
    return read_string(reader, &command->remark);
}

/* A value nobody knows, of any kind. */
static bool skip_value(struct reader *reader, unsigned depth) {
    struct pymq_slice ignored;
    if (*reader->at != '{' && *reader->at != '[') {
        return read_field_value(reader, &ignored);
    }
    bool is_object = *reader->at == '{';
    uint8_t closing = is_object ? '}' : ']';
    if (depth == DEPTH_MAX) {
        return false;
    }
    reader->at++;
    skip_space(reader);
    if (*reader->at != closing) {
        for (;;) {
            if ((is_object && !read_name(reader, &ignored)) || !skip_value(reader, depth + 1)) {
                return false;
            }
            skip_space(reader);
            if (*reader->at == closing) {
                break;
            }
            if (*reader->at != ',') {
                return false;
            }
            reader->at++;
            skip_space(reader);
        }
    }
    reader->at++;
    return reader->at < reader->end;
}

/* The value of `name`, into its place. */
static bool read_member(struct reader *reader, const struct pymq_slice *name, struct pymq_command *command,
                        unsigned *seen) {
    struct pymq_slice ignored;
    switch (name->size) {
    case 4:
        if (memcmp(name->data, "code", 4) == 0) {
            *seen |= SEEN_CODE;
            return read_int32(reader, &command->code);
        }
        if (memcmp(name->data, "flag", 4) == 0) {
            return read_int32(reader, &command->flag);
        }
        return memcmp(name->data, "body", 4) != 0 && skip_value(reader, 0);
    case 6:
        if (memcmp(name->data, "opaque", 6) == 0) {
            *seen |= SEEN_OPAQUE;
            return read_int32(reader, &command->opaque);
        }
        return memcmp(name->data, "remark", 6) == 0 ? read_remark(reader, command) : skip_value(reader, 0);
    case 7:
        return memcmp(name->data, "version", 7) == 0 ? read_int32(reader, &command->version) : skip_value(reader, 0);
    case 8:
        return memcmp(name->data, "language", 8) == 0 ? read_language(reader, command) : skip_value(reader, 0);
    case 9:
        if (memcmp(name->data, "extFields", 9) == 0) {
            return read_fields(reader, command);
        }
        return memcmp(name->data, "suspended", 9) != 0 && skip_value(reader, 0);
    case 23:
        if (memcmp(name->data, "serializeTypeCurrentRPC", 23) == 0) {
            /* The mark of the frame decides; but it is an enumeration to Apache, whose reader refuses other kinds. */
            if (*reader->at != '"') {
                return false;
            }
            reader->at++;
            return read_string(reader, &ignored);
        }
        return skip_value(reader, 0);
    default:
        return skip_value(reader, 0);
    }
}

int pymq_json_header_decode(const uint8_t *frame, size_t frame_size, size_t header_size, uint8_t *scratch,
                            size_t scratch_size, struct pymq_command *command) {
    const uint8_t *header = frame + PYMQ_FRAME_PREFIX_SIZE;
    struct reader reader = {header, header + header_size, frame + frame_size, scratch, scratch + scratch_size};
    while (reader.end > header && (reader.end[-1] == ' ' || reader.end[-1] == '\n' || reader.end[-1] == '\r' ||
                                   reader.end[-1] == '\t')) {
        reader.end--;
    }
    if (reader.end - header < 2 || reader.end[-1] != '}') {
        return PYMQ_EUNSUPPORTED;
    }
    command->version = 0;
    command->flag = 0;
    command->language = PYMQ_LANGUAGE_JAVA;
    command->remark.data = NULL;
    command->remark.size = 0;
    command->field_count = 0;
    skip_space(&reader);
    if (*reader.at != '{') {
        return PYMQ_EUNSUPPORTED;
    }
    reader.at++;
    skip_space(&reader);
    unsigned seen = 0;
    int more;
    do {
        struct pymq_slice name;
        if (!read_name(&reader, &name) || !read_member(&reader, &name, command, &seen)) {
            return PYMQ_EUNSUPPORTED;
        }
        more = next_item(&reader);
    } while (more > 0);
    bool whole = more == 0 && reader.at == reader.end && seen == (SEEN_CODE | SEEN_OPAQUE);
    return whole ? PYMQ_OK : PYMQ_EUNSUPPORTED;
}
