/* Writing a frame's prefix and header: answers, at the rate of the requests.
 *
 * Every piece asks for its room once and then writes without looking. Numbers are written two digits at a time; texts
 * are copied as they are up to the first byte that JSON wants escaped, of which answers hardly ever have one.
 */
#include "wire_internal.h"

#define NUMBER_SIZE_MAX 20 /* of an int64, sign included */
#define ESCAPE_SIZE_MAX 6  /* \u00xx */
#define HEADER_SIZE_MAX 0x00ffffffu

/* Room for `size` more bytes, or NULL; then nothing written afterwards counts, and `end` says so. */
static inline uint8_t *take_room(struct pymq_header_writer *writer, size_t size) {
    if (writer->size > writer->capacity || writer->capacity - writer->size < size) {
        writer->size = writer->capacity + 1;
        return NULL;
    }
    uint8_t *room = writer->target + writer->size;
    writer->size += size;
    return room;
}

static inline void put_bytes(struct pymq_header_writer *writer, const void *source, size_t size) {
    uint8_t *room = take_room(writer, size);
    if (room != NULL && size != 0) {
        memcpy(room, source, size);
    }
}

#define PUT_TEXT(writer, text) put_bytes(writer, text, sizeof(text) - 1)

/* `value` in decimal at `target`; returns the bytes written, at most NUMBER_SIZE_MAX. */
static inline size_t write_number(uint8_t *target, int64_t value) {
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    unsigned count = pymq_digit_count(magnitude);
    size_t sign = value < 0;
    *target = '-';
    pymq_write_digits(target + sign, magnitude, count);
    return sign + count;
}

static void put_number(struct pymq_header_writer *writer, int64_t value) {
    uint8_t digits[NUMBER_SIZE_MAX];
    put_bytes(writer, digits, write_number(digits, value));
}

/* How many bytes from `source` on JSON wants as they are. */
static inline size_t plain_run(const uint8_t *source, size_t size) {
    size_t at = 0;
#ifdef __SSE2__
    const __m128i quotes = _mm_set1_epi8('"'), backslashes = _mm_set1_epi8('\\'), controls = _mm_set1_epi8(0x1f);
    for (; size - at >= PYMQ_TEXT_STEP; at += PYMQ_TEXT_STEP) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(source + at));
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, quotes), _mm_cmpeq_epi8(bytes, backslashes));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(bytes, controls), bytes));
        int mask = _mm_movemask_epi8(found);
        if (mask != 0) {
            return at + (size_t)__builtin_ctz((unsigned)mask);
        }
    }
#endif
    while (at < size && source[at] > 0x1f && source[at] != '"' && source[at] != '\\') {
        at++;
    }
    return at;
}

static void put_escape(struct pymq_header_writer *writer, uint8_t byte) {
    static const char hex[] = "0123456789abcdef";
    static const char letters[256] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r', ['"'] = '"', ['\\'] = '\\',
    };
    uint8_t escape[ESCAPE_SIZE_MAX] = {'\\', (uint8_t)letters[byte]};
    if (letters[byte] != 0) {
        put_bytes(writer, escape, 2);
        return;
    }
    escape[1] = 'u';
    escape[2] = escape[3] = '0';
    escape[4] = (uint8_t)hex[byte >> 4];
    escape[5] = (uint8_t)hex[byte & 0xf];
    put_bytes(writer, escape, sizeof escape);
}

/* A text without its quotes, escaped. */
static void put_escaped(struct pymq_header_writer *writer, const uint8_t *source, size_t size) {
    while (size != 0) {
        size_t run = plain_run(source, size);
        put_bytes(writer, source, run);
        if (run == size) {
            return;
        }
        put_escape(writer, source[run]);
        source += run + 1;
        size -= run + 1;
    }
}

static void put_be32(struct pymq_header_writer *writer, uint32_t value) {
    uint8_t bytes[4];
    pymq_store_be32(bytes, value);
    put_bytes(writer, bytes, sizeof bytes);
}

/* What comes before the fields: in JSON the code, in the binary header everything else. */
static void put_head(struct pymq_header_writer *writer) {
    if (writer->serialize_type == PYMQ_SERIALIZE_JSON) {
        PUT_TEXT(writer, "{\"code\":");
        put_number(writer, writer->code);
        return;
    }
    uint8_t *room = take_room(writer, 13);
    if (room != NULL) {
        pymq_store_be16(room, (uint16_t)writer->code);
        room[2] = writer->language;
        pymq_store_be16(room + 3, (uint16_t)writer->version);
        pymq_store_be32(room + 5, (uint32_t)writer->opaque);
        pymq_store_be32(room + 9, (uint32_t)writer->flag);
    }
    put_be32(writer, writer->remark.size);
    put_bytes(writer, writer->remark.data, writer->remark.size);
    writer->mark = writer->size;
    put_be32(writer, 0); /* patched at the end */
}

void pymq_header_begin(struct pymq_header_writer *writer, uint8_t *target, size_t capacity, uint8_t serialize_type,
                       int32_t code, int32_t flag, int32_t opaque, struct pymq_slice remark) {
    writer->target = target;
    writer->capacity = capacity;
    writer->size = 0;
    writer->mark = 0;
    writer->fields = 0;
    writer->code = code;
    writer->version = PYMQ_REMOTING_VERSION;
    writer->opaque = opaque;
    writer->flag = flag;
    writer->serialize_type = serialize_type;
    writer->language = PYMQ_LANGUAGE_JAVA;
    writer->empty_fields = false;
    writer->remark = remark;
    take_room(writer, PYMQ_FRAME_PREFIX_SIZE);
}

/* The comma or the head, and the name up to where the value begins, with room for `value_room` bytes behind it. Returns
 * where the value may be written, or NULL; the caller corrects writer->size. */
static inline uint8_t *begin_field(struct pymq_header_writer *writer, const char *name, size_t name_size,
                                   size_t value_room) {
    if (writer->fields++ == 0) {
        put_head(writer);
        if (writer->serialize_type == PYMQ_SERIALIZE_JSON) {
            PUT_TEXT(writer, ",\"extFields\":{");
        }
    } else if (writer->serialize_type == PYMQ_SERIALIZE_JSON) {
        PUT_TEXT(writer, ",");
    }
    if (writer->serialize_type == PYMQ_SERIALIZE_JSON) {
        if (plain_run((const uint8_t *)name, name_size) != name_size) {
            PUT_TEXT(writer, "\"");
            put_escaped(writer, (const uint8_t *)name, name_size);
            PUT_TEXT(writer, "\":\"");
            return take_room(writer, value_room + 1);
        }
        uint8_t *room = take_room(writer, name_size + value_room + 5);
        if (room == NULL) {
            return NULL;
        }
        room[0] = '"';
        memcpy(room + 1, name, name_size);
        memcpy(room + 1 + name_size, "\":\"", 3);
        return room + 4 + name_size;
    }
    uint8_t *room = take_room(writer, name_size + value_room + 6);
    if (room == NULL) {
        return NULL;
    }
    pymq_store_be16(room, (uint16_t)name_size);
    memcpy(room + 2, name, name_size);
    return room + 6 + name_size;
}

void pymq_header_field(struct pymq_header_writer *writer, const char *name, size_t name_size, const uint8_t *value,
                       size_t value_size) {
    bool json = writer->serialize_type == PYMQ_SERIALIZE_JSON;
    size_t run = json ? plain_run(value, value_size) : value_size;
    uint8_t *room = begin_field(writer, name, name_size, run);
    if (room == NULL) {
        return;
    }
    if (run != 0) {
        memcpy(room, value, run);
    }
    if (!json) {
        pymq_store_be32(room - 4, (uint32_t)value_size);
    } else if (run == value_size) {
        room[run] = '"';
    } else {
        writer->size--; /* the closing quote comes behind the rest */
        put_escaped(writer, value + run, value_size - run);
        PUT_TEXT(writer, "\"");
    }
}

void pymq_header_field_int64(struct pymq_header_writer *writer, const char *name, size_t name_size, int64_t value) {
    uint64_t magnitude = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t size = pymq_digit_count(magnitude) + (value < 0);
    uint8_t *room = begin_field(writer, name, name_size, size);
    if (room == NULL) {
        return;
    }
    write_number(room, value);
    if (writer->serialize_type == PYMQ_SERIALIZE_JSON) {
        room[size] = '"';
    } else {
        pymq_store_be32(room - 4, (uint32_t)size);
    }
}

static void put_json_tail(struct pymq_header_writer *writer) {
    if (writer->fields != 0) {
        PUT_TEXT(writer, "}");
    } else if (writer->empty_fields) {
        PUT_TEXT(writer, ",\"extFields\":{}");
    }
    PUT_TEXT(writer, ",\"flag\":");
    put_number(writer, writer->flag);
    if (writer->language == PYMQ_LANGUAGE_JAVA) {
        PUT_TEXT(writer, ",\"language\":\"JAVA\",\"opaque\":");
    } else {
        if (writer->language < PYMQ_LANGUAGES) {
            const struct pymq_language_name *language = &pymq_language_names[writer->language];
            PUT_TEXT(writer, ",\"language\":\"");
            put_bytes(writer, language->name, language->size);
            PUT_TEXT(writer, "\"");
        }
        PUT_TEXT(writer, ",\"opaque\":");
    }
    put_number(writer, writer->opaque);
    if (writer->remark.data != NULL) {
        PUT_TEXT(writer, ",\"remark\":\"");
        put_escaped(writer, writer->remark.data, writer->remark.size);
        PUT_TEXT(writer, "\"");
    }
    PUT_TEXT(writer, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    put_number(writer, writer->version);
    PUT_TEXT(writer, "}");
}

ssize_t pymq_header_end(struct pymq_header_writer *writer, uint32_t body_size) {
    if (writer->fields == 0) {
        put_head(writer);
    }
    if (writer->serialize_type == PYMQ_SERIALIZE_JSON) {
        put_json_tail(writer);
    }
    size_t header_size = writer->size - PYMQ_FRAME_PREFIX_SIZE;
    if (writer->size > writer->capacity || header_size > HEADER_SIZE_MAX || body_size > INT32_MAX - 4 - header_size) {
        return PYMQ_ETRUNCATED;
    }
    if (writer->serialize_type != PYMQ_SERIALIZE_JSON) {
        pymq_store_be32(writer->target + writer->mark, (uint32_t)(writer->size - writer->mark - 4));
    }
    pymq_store_be32(writer->target, (uint32_t)(4 + header_size + body_size));
    pymq_store_be32(writer->target + 4, (uint32_t)writer->serialize_type << 24 | (uint32_t)header_size);
    return (ssize_t)writer->size;
}
