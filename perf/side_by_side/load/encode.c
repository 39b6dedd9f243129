/* See encode.h. */
#include "encode.h"

#include "bytes.h"

#include <stdbool.h>
#include <stdio.h>

/* A bounded target. Once something did not fit, nothing more is written and `overflow` stays set. */
struct writer {
    uint8_t *bytes;
    size_t size;
    size_t capacity;
    bool overflow;
};

static void write_bytes(struct writer *writer, const void *source, size_t size) {
    if (size == 0)
        return; /* an absent body is a null pointer, which memcpy may not be given */
    if (writer->overflow || size > writer->capacity - writer->size) {
        writer->overflow = true;
        return;
    }
    memcpy(writer->bytes + writer->size, source, size);
    writer->size += size;
}

static void write_text(struct writer *writer, const char *text) { write_bytes(writer, text, strlen(text)); }

static void write_number(struct writer *writer, long long value) {
    char digits[24];
    int size = snprintf(digits, sizeof digits, "%lld", value);
    write_bytes(writer, digits, (size_t)size);
}

static void write_be16(struct writer *writer, uint16_t value) {
    uint8_t word[2];
    put_be16(word, value);
    write_bytes(writer, word, sizeof word);
}

static void write_be32(struct writer *writer, uint32_t value) {
    uint8_t word[4];
    put_be32(word, value);
    write_bytes(writer, word, sizeof word);
}

static void write_json_string(struct writer *writer, const char *text) {
    write_text(writer, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at != 0; at++) {
        char escaped[8];
        if (*at == '"' || *at == '\\') {
            snprintf(escaped, sizeof escaped, "\\%c", *at);
            write_text(writer, escaped);
        } else if (*at < 0x20) {
            snprintf(escaped, sizeof escaped, "\\u%04X", *at);
            write_text(writer, escaped);
        } else {
            write_bytes(writer, at, 1);
        }
    }
    write_text(writer, "\"");
}

static size_t write_json_header(struct writer *writer, const struct request *request) {
    write_text(writer, "{\"code\":");
    write_number(writer, request->code);
    write_text(writer, ",\"extFields\":{");
    for (size_t i = 0; i < request->field_count; i++) {
        write_text(writer, i == 0 ? "" : ",");
        write_json_string(writer, request->fields[i].key);
        write_text(writer, ":");
        write_json_string(writer, request->fields[i].value);
    }
    write_text(writer, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
    size_t opaque_position = writer->size;
    write_number(writer, OPAQUE_FIRST);
    write_text(writer, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":");
    write_number(writer, CLIENT_VERSION);
    write_text(writer, "}");
    return opaque_position;
}

static size_t write_rocketmq_header(struct writer *writer, const struct request *request) {
    write_be16(writer, (uint16_t)request->code);
    write_bytes(writer, "\0", 1); /* LanguageCode.JAVA */
    write_be16(writer, CLIENT_VERSION);
    size_t opaque_position = writer->size;
    write_be32(writer, OPAQUE_FIRST);
    write_be32(writer, 0); /* flag: a request that wants an answer */
    write_be32(writer, 0); /* no remark */
    size_t fields_size = 0;
    for (size_t i = 0; i < request->field_count; i++)
        fields_size += 2 + strlen(request->fields[i].key) + 4 + strlen(request->fields[i].value);
    write_be32(writer, (uint32_t)fields_size);
    for (size_t i = 0; i < request->field_count; i++) {
        write_be16(writer, (uint16_t)strlen(request->fields[i].key));
        write_text(writer, request->fields[i].key);
        write_be32(writer, (uint32_t)strlen(request->fields[i].value));
        write_text(writer, request->fields[i].value);
    }
    return opaque_position;
}

size_t encode_request(uint8_t *target, size_t capacity, enum codec codec, const struct request *request,
                      size_t *opaque_position) {
    if (capacity < FRAME_PREFIX_SIZE)
        return 0;
    struct writer writer = {.bytes = target, .size = FRAME_PREFIX_SIZE, .capacity = capacity};
    *opaque_position =
        codec == CODEC_JSON ? write_json_header(&writer, request) : write_rocketmq_header(&writer, request);
    size_t header_size = writer.size - FRAME_PREFIX_SIZE;
    write_bytes(&writer, request->body, request->body_size);
    if (writer.overflow)
        return 0;
    put_be32(target, (uint32_t)(writer.size - 4));
    put_be32(target + 4, (uint32_t)codec << 24 | (uint32_t)header_size);
    return writer.size;
}

void patch_opaque(uint8_t *frame, size_t opaque_position, enum codec codec, uint32_t opaque) {
    if (codec == CODEC_JSON)
        put_digits(frame + opaque_position, opaque, OPAQUE_DIGITS);
    else
        put_be32(frame + opaque_position, opaque);
}
