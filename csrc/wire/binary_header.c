/* The ROCKETMQ header.
 *
 *   code      2     signed
 *   language  1     LanguageCode
 *   version   2     signed
 *   opaque    4
 *   flag      4
 *   remark    4+n   a length of 0 is null
 *   fields    4+n   of: name 2+n, value 4+n, …
 *
 * Lengths that lead outside, names of no length and bytes that are no UTF-8 are left to the Python codec, which refuses
 * or mends them as Apache does.
 */
#include "wire_internal.h"

#define REMARK_AT 13          /* its length */
#define BINARY_HEADER_MIN 21  /* with neither remark nor fields */
#define NAME_SIZE_MAX 0x7fffu /* a negative short is no length */

/* One field at `*at`, which is moved behind it. */
static bool read_field(const uint8_t **at, const uint8_t *end, struct pymq_field *field) {
    const uint8_t *source = *at;
    if (end - source < 2) {
        return false;
    }
    uint32_t name_size = pymq_load_be16(source);
    source += 2;
    /* The name and the length behind it; a name of no length would be null. */
    if (name_size == 0 || name_size > NAME_SIZE_MAX || (size_t)(end - source) < (size_t)name_size + 4) {
        return false;
    }
    field->name.data = source;
    field->name.size = name_size;
    source += name_size;
    uint32_t value_size = pymq_load_be32(source);
    source += 4;
    if (value_size > (size_t)(end - source)) {
        return false;
    }
    field->value.data = value_size != 0 ? source : NULL;
    field->value.size = value_size;
    *at = source + value_size;
    return true;
}

static bool text_is_valid(const struct pymq_command *command) {
    if (command->remark.data != NULL && !pymq_utf8_is_valid(command->remark.data, command->remark.size)) {
        return false;
    }
    for (uint32_t i = 0; i < command->field_count; i++) {
        const struct pymq_field *field = &command->fields[i];
        if (!pymq_utf8_is_valid(field->name.data, field->name.size) ||
            (field->value.data != NULL && !pymq_utf8_is_valid(field->value.data, field->value.size))) {
            return false;
        }
    }
    return true;
}

int pymq_binary_header_decode(const uint8_t *frame, size_t header_size, struct pymq_command *command) {
    const uint8_t *header = frame + PYMQ_FRAME_PREFIX_SIZE, *end = header + header_size;
    if (header_size < BINARY_HEADER_MIN) {
        return PYMQ_EUNSUPPORTED;
    }
    command->code = (int16_t)pymq_load_be16(header);
    command->language = header[2] < PYMQ_LANGUAGES ? header[2] : PYMQ_LANGUAGE_UNKNOWN;
    command->version = (int16_t)pymq_load_be16(header + 3);
    command->opaque = (int32_t)pymq_load_be32(header + 5);
    command->flag = (int32_t)pymq_load_be32(header + 9);
    uint32_t remark_size = pymq_load_be32(header + REMARK_AT);
    if (remark_size > header_size - BINARY_HEADER_MIN) {
        return PYMQ_EUNSUPPORTED;
    }
    const uint8_t *at = header + REMARK_AT + 4;
    command->remark.data = remark_size != 0 ? at : NULL;
    command->remark.size = remark_size;
    at += remark_size;
    uint32_t fields_size = pymq_load_be32(at);
    at += 4;
    if (fields_size != (size_t)(end - at)) {
        return PYMQ_EUNSUPPORTED;
    }
    /* Over all fields at once, lengths included: one of 128 and more only costs the second look, string by string. */
    bool ascii = pymq_is_ascii(at, fields_size) && remark_size == 0;
    uint32_t count = 0;
    while (at < end) {
        if (count == PYMQ_COMMAND_FIELDS_MAX || !read_field(&at, end, &command->fields[count])) {
            return PYMQ_EUNSUPPORTED;
        }
        if (command->fields[count].value.data == NULL && pymq_null_hides(command->fields, count)) {
            return PYMQ_EUNSUPPORTED;
        }
        count++;
    }
    command->field_count = count;
    return ascii || text_is_valid(command) ? PYMQ_OK : PYMQ_EUNSUPPORTED;
}
