/* Every recorded frame of Apache RocketMQ 5.5.0 is read outright, and written again byte for byte.
 *
 * Run from the root of the repository, as make and pytest do.
 */
#include <dirent.h>

#include "command_help.h"

#define FRAMES "tests/data/golden-frames/"

static uint8_t *read_file(const char *directory, const char *name, size_t *size) {
    char path[512];
    snprintf(path, sizeof path, "%s%s/%s", FRAMES, directory, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        CHECK_FAIL("cannot read %s", path);
    }
    uint8_t *content = malloc(1 << 20);
    CHECK(content != NULL);
    *size = fread(content, 1, 1 << 20, file);
    fclose(file);
    return content;
}

/* Write what was read; both kinds of header keep the order of their fields. */
static void check_written_again(const struct decoded *decoded, const uint8_t *frame, bool empty_fields) {
    static uint8_t target[1 << 16];
    const struct pymq_command *command = &decoded->command;
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, sizeof target, command->serialize_type, command->code, command->flag,
                      command->opaque, command->remark);
    writer.version = command->version;
    writer.language = command->language;
    writer.empty_fields = empty_fields;
    for (uint32_t i = 0; i < command->field_count; i++) {
        const struct pymq_field *field = &command->fields[i];
        pymq_header_field(&writer, (const char *)field->name.data, field->name.size, field->value.data,
                          field->value.size);
    }
    ssize_t size = pymq_header_end(&writer, command->body.size);
    CHECK_BYTES(target, size, frame, decoded->size - command->body.size);
}

static int check_directory(const char *directory) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", FRAMES, directory);
    DIR *entries = opendir(path);
    if (entries == NULL) {
        CHECK_FAIL("no %s; run this from the root of the repository", path);
    }
    int count = 0;
    const struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        size_t length = strlen(entry->d_name), size;
        if (length < 4 || strcmp(entry->d_name + length - 4, ".bin") != 0) {
            continue;
        }
        uint8_t *frame = read_file(directory, entry->d_name, &size);
        CHECK_EQ(pymq_frame_size(frame, size, PYMQ_FRAME_SIZE_MAX), size);
        struct decoded decoded;
        decode_frame(&decoded, frame, size);
        if (decoded.status != PYMQ_OK) {
            CHECK_FAIL("%s: status %d", entry->d_name, decoded.status);
        }
        bool is_request = strstr(entry->d_name, ".req.") != NULL;
        CHECK_EQ((decoded.command.flag & PYMQ_COMMAND_RESPONSE) == 0, is_request);
        bool empty_fields = memmem(frame, size, "\"extFields\":{}", 14) != NULL;
        check_written_again(&decoded, frame, empty_fields);
        decoded_free(&decoded);
        free(frame);
        count++;
    }
    closedir(entries);
    return count;
}

static void test_every_recorded_json_frame_is_read_and_written_again(void) { CHECK(check_directory("json") > 250); }

static void test_every_recorded_binary_frame_is_read_and_written_again(void) {
    CHECK(check_directory("rocketmq") > 250);
}

int main(void) {
    RUN(test_every_recorded_json_frame_is_read_and_written_again);
    RUN(test_every_recorded_binary_frame_is_read_and_written_again);
    return check_summary();
}
