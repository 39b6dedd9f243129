/* Frames for the tests of csrc/wire, in memory whose neighbours belong to nobody. */
#ifndef PYMQ_TESTS_COMMAND_HELP_H
#define PYMQ_TESTS_COMMAND_HELP_H

#include "check.h"
#include "pymq/command.h"

struct decoded {
    uint8_t *frame, *scratch;
    size_t size;
    int status;
    struct pymq_command command;
};

/* Decode a frame; scratch is exactly as large as the contract says suffices. */
static inline void decode_frame(struct decoded *decoded, const uint8_t *frame, size_t size) {
    decoded->frame = check_exact(frame, size);
    decoded->scratch = check_exact(frame, size);
    decoded->size = size;
    memset(&decoded->command, 0x5a, sizeof decoded->command);
    decoded->status = pymq_command_decode(decoded->frame, size, decoded->scratch, size, &decoded->command);
}

static inline void decoded_free(struct decoded *decoded) {
    free(decoded->frame);
    free(decoded->scratch);
}

/* A frame with this header; returns its size. */
static inline size_t make_frame(uint8_t *target, uint8_t serialize_type, const void *header, size_t header_size,
                                const char *body) {
    size_t body_size = strlen(body);
    pymq_store_be32(target, (uint32_t)(4 + header_size + body_size));
    pymq_store_be32(target + 4, (uint32_t)serialize_type << 24 | (uint32_t)header_size);
    memcpy(target + 8, header, header_size);
    memcpy(target + 8 + header_size, body, body_size);
    return 8 + header_size + body_size;
}

/* Decode a JSON header of `size` bytes, without a body: its last byte is the last one that may be read. */
static inline void decode_json_bytes(struct decoded *decoded, const void *header, size_t size) {
    uint8_t *frame = malloc(size + 8);
    CHECK(frame != NULL);
    decode_frame(decoded, frame, make_frame(frame, PYMQ_SERIALIZE_JSON, header, size, ""));
    free(frame);
}

static inline void decode_json(struct decoded *decoded, const char *header) {
    decode_json_bytes(decoded, header, strlen(header));
}

static inline int json_status(const char *header) {
    struct decoded decoded;
    decode_json(&decoded, header);
    int status = decoded.status;
    decoded_free(&decoded);
    return status;
}

static inline void check_slice(const struct pymq_slice *slice, const char *expected, size_t size) {
    CHECK(slice != NULL && slice->data != NULL);
    CHECK_BYTES(slice->data, slice->size, expected, size);
}

static inline const struct pymq_slice *field_of(const struct decoded *decoded, const char *name) {
    return pymq_command_field(&decoded->command, name, strlen(name));
}

/* The field `name` is `expected`. */
static inline void check_field(const struct decoded *decoded, const char *name, const char *expected) {
    CHECK_EQ(decoded->status, PYMQ_OK);
    check_slice(field_of(decoded, name), expected, strlen(expected));
}

#endif
