/* libFuzzer: any bytes as a frame. Whatever is accepted lies inside the frame or the scratch, is UTF-8, and is written
 * again to something that reads the same. Seeds are the recorded frames of tests/data/golden-frames. */
#include "pymq/command.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        abort();
    }
}

static bool inside(const struct pymq_slice *slice, const uint8_t *begin, size_t size) {
    return slice->data >= begin && slice->data + slice->size <= begin + size;
}

static bool same(const struct pymq_slice *one, const struct pymq_slice *other) {
    if (one->data == NULL || other->data == NULL) {
        return one->size == 0 && other->size == 0;
    }
    return one->size == other->size && memcmp(one->data, other->data, one->size) == 0;
}

/* The header of `command` in `type`, in memory of the caller, who frees it. */
static uint8_t *write_again(const struct pymq_command *command, uint8_t type, size_t room, ssize_t *size) {
    uint8_t *target = malloc(room);
    struct pymq_header_writer writer;
    require(target != NULL);
    pymq_header_begin(&writer, target, room, type, command->code, command->flag, command->opaque, command->remark);
    writer.version = command->version;
    writer.language = command->language;
    for (uint32_t i = 0; i < command->field_count; i++) {
        const struct pymq_field *field = &command->fields[i];
        if (field->value.data != NULL) {
            pymq_header_field(&writer, (const char *)field->name.data, field->name.size, field->value.data,
                              field->value.size);
        }
    }
    *size = pymq_header_end(&writer, 0);
    return target;
}

static void check_again(const struct pymq_command *command, uint8_t type, size_t room) {
    ssize_t size;
    uint8_t *frame = write_again(command, type, room, &size), *scratch = malloc(room);
    struct pymq_command *again = malloc(sizeof *again);
    require(again != NULL && scratch != NULL && size > 0);
    require(pymq_command_decode(frame, (size_t)size, scratch, (size_t)size, again) == PYMQ_OK);
    require(again->opaque == command->opaque && again->flag == command->flag);
    require(type != PYMQ_SERIALIZE_JSON || (again->code == command->code && again->version == command->version));
    require(same(&again->remark, &command->remark));
    for (uint32_t i = 0; i < again->field_count; i++) {
        const struct pymq_field *field = &again->fields[i];
        const char *name = (const char *)field->name.data;
        const struct pymq_slice *one = pymq_command_field(command, name, field->name.size);
        const struct pymq_slice *other = pymq_command_field(again, name, field->name.size);
        require(one != NULL && other != NULL && same(one, other));
    }
    free(again);
    free(scratch);
    free(frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pymq_command *command = malloc(sizeof *command);
    uint8_t *scratch = malloc(size != 0 ? size : 1); /* exactly what the contract says suffices */
    require(command != NULL && scratch != NULL);
    if (pymq_command_decode(data, size, scratch, size, command) == PYMQ_OK) {
        bool only_json = false, only_binary = false; /* what the other header cannot say */
        require(inside(&command->body, data, size));
        for (uint32_t i = 0; i < command->field_count; i++) {
            const struct pymq_field *field = &command->fields[i];
            bool is_empty = field->value.data != NULL && field->value.size == 0; /* null in the binary header */
            only_json = only_json || is_empty || field->name.size == 0 || field->name.size > INT16_MAX;
            only_binary = only_binary || (field->name.size == 4 && memcmp(field->name.data, "$ref", 4) == 0);
            require(inside(&field->name, data, size) || inside(&field->name, scratch, size));
            require(field->value.data == NULL || inside(&field->value, data, size) ||
                    inside(&field->value, scratch, size));
        }
        if (!only_binary) {
            check_again(command, PYMQ_SERIALIZE_JSON, size * 6 + PYMQ_HEADER_ROOM);
        }
        if (!only_json) {
            check_again(command, PYMQ_SERIALIZE_ROCKETMQ, size * 6 + PYMQ_HEADER_ROOM);
        }
    }
    free(scratch);
    free(command);
    return 0;
}
