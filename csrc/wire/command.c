/* Frames and what is common to both kinds of headers. The contract is in pymq/command.h. */
#include "wire_internal.h"

#define HEADER_SIZE_MASK 0x00ffffffu

ssize_t pymq_frame_size(const uint8_t *source, size_t size, uint32_t size_max) {
    if (size < 4) {
        return 0;
    }
    uint32_t counted = pymq_load_be32(source);
    if (counted > size_max || counted > INT32_MAX) {
        return PYMQ_ETOOBIG; /* a negative one is above INT32_MAX here */
    }
    if (counted < 4) {
        return PYMQ_ECORRUPT;
    }
    return (ssize_t)counted + 4;
}

int pymq_command_decode(const uint8_t *frame, size_t size, uint8_t *scratch, size_t scratch_size,
                        struct pymq_command *command) {
    if (size < PYMQ_FRAME_PREFIX_SIZE) {
        return PYMQ_ECORRUPT;
    }
    uint32_t mark = pymq_load_be32(frame + 4);
    size_t header_size = mark & HEADER_SIZE_MASK, body_at = PYMQ_FRAME_PREFIX_SIZE + header_size;
    if (body_at > size) {
        return PYMQ_ECORRUPT;
    }
    command->serialize_type = (uint8_t)(mark >> 24);
    command->body.data = frame + body_at;
    command->body.size = (uint32_t)(size - body_at);
    switch (command->serialize_type) {
    case PYMQ_SERIALIZE_JSON:
        return pymq_json_header_decode(frame, size, header_size, scratch, scratch_size, command);
    case PYMQ_SERIALIZE_ROCKETMQ:
        return pymq_binary_header_decode(frame, header_size, command);
    default:
        return PYMQ_ECORRUPT;
    }
}

const struct pymq_slice *pymq_command_field(const struct pymq_command *command, const char *name, size_t name_size) {
    for (uint32_t i = command->field_count; i-- > 0;) {
        const struct pymq_field *field = &command->fields[i];
        if (pymq_bytes_equal(&field->name, name, name_size)) {
            return field->value.data != NULL ? &field->value : NULL;
        }
    }
    return NULL;
}

/* Digits with a sign, as Java's parsers take them, within [-limit - 1, limit]. */
static int parse_integer(const struct pymq_slice *slice, uint64_t limit, int64_t *value) {
    if (slice == NULL || slice->data == NULL) {
        return PYMQ_ENOTFOUND;
    }
    const uint8_t *at = slice->data, *end = at + slice->size;
    bool negative = false;
    if (at < end && (*at == '-' || *at == '+')) {
        negative = *at == '-';
        at++;
    }
    if (at == end) {
        return PYMQ_EINVAL;
    }
    uint64_t sum = 0, most = limit + (negative ? 1 : 0);
    for (; at < end; at++) {
        unsigned digit = (unsigned)*at - '0';
        if (digit > 9 || sum > (most - digit) / 10) {
            return PYMQ_EINVAL;
        }
        sum = sum * 10 + digit;
    }
    *value = (int64_t)(negative ? 0 - sum : sum);
    return PYMQ_OK;
}

int pymq_slice_int64(const struct pymq_slice *slice, int64_t *value) { return parse_integer(slice, INT64_MAX, value); }

int pymq_slice_int32(const struct pymq_slice *slice, int32_t *value) {
    int64_t wide;
    int status = parse_integer(slice, INT32_MAX, &wide);
    if (status == PYMQ_OK) {
        *value = (int32_t)wide;
    }
    return status;
}
