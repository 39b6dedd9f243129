/* Writing headers: the bytes, the escapes, the room; and that what is written is read back. */
#include "command_help.h"

#define NAME(text) text, sizeof(text) - 1
#define VALUE(text) (const uint8_t *)text, sizeof(text) - 1

static const struct pymq_slice no_remark;

static void check_json(const uint8_t *frame, ssize_t size, const char *header, uint32_t body_size) {
    size_t header_size = strlen(header);
    CHECK_EQ(size, header_size + 8);
    CHECK_EQ(pymq_load_be32(frame), 4 + header_size + body_size);
    CHECK_EQ(pymq_load_be32(frame + 4), header_size);
    CHECK_BYTES(frame + 8, size - 8, header, header_size);
}

static void test_an_answer_as_apache_writes_it(void) {
    uint8_t target[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, sizeof target, PYMQ_SERIALIZE_JSON, 0, PYMQ_COMMAND_RESPONSE, 481, no_remark);
    pymq_header_field_int64(&writer, NAME("nextBeginOffset"), 32);
    pymq_header_field(&writer, NAME("topic"), VALUE("GoldenA"));
    check_json(target, pymq_header_end(&writer, 100),
               "{\"code\":0,\"extFields\":{\"nextBeginOffset\":\"32\",\"topic\":\"GoldenA\"},\"flag\":1,"
               "\"language\":\"JAVA\",\"opaque\":481,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
               100);
    struct pymq_slice remark = {VALUE("FOUND")};
    pymq_header_begin(&writer, target, sizeof target, PYMQ_SERIALIZE_JSON, 3, 0, -1, no_remark);
    writer.remark = remark; /* both may still be changed here */
    writer.code = -20;
    check_json(target, pymq_header_end(&writer, 0),
               "{\"code\":-20,\"flag\":0,\"language\":\"JAVA\",\"opaque\":-1,\"remark\":\"FOUND\","
               "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
               0);
}

static void test_an_empty_map_is_written_on_request_only(void) {
    uint8_t target[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    struct pymq_slice remark = {VALUE("")};
    pymq_header_begin(&writer, target, sizeof target, PYMQ_SERIALIZE_JSON, 22, 1, 5, remark);
    writer.empty_fields = true;
    writer.language = PYMQ_LANGUAGE_PYTHON;
    check_json(target, pymq_header_end(&writer, 0),
               "{\"code\":22,\"extFields\":{},\"flag\":1,\"language\":\"PYTHON\",\"opaque\":5,\"remark\":\"\","
               "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
               0);
    pymq_header_begin(&writer, target, sizeof target, PYMQ_SERIALIZE_JSON, 22, 1, 5, no_remark);
    writer.language = PYMQ_LANGUAGE_UNKNOWN;
    check_json(target, pymq_header_end(&writer, 0),
               "{\"code\":22,\"flag\":1,\"opaque\":5,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}", 0);
}

static void test_text_is_escaped_as_apache_escapes_it(void) {
    uint8_t target[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    struct pymq_slice remark = {VALUE("line\nnext \"quoted\" and \\ and a text that is longer than sixteen \x1f")};
    pymq_header_begin(&writer, target, sizeof target, PYMQ_SERIALIZE_JSON, 1, 1, 1, remark);
    pymq_header_field(&writer, NAME("a\"b"), VALUE("\1\2\b\t\n\v\f\r\x1f </>' \x7f \xc3\xa9 \xf0\x9f\x98\x80"));
    pymq_header_field(&writer, NAME("z"), (const uint8_t *)"\0", 1);
    check_json(target, pymq_header_end(&writer, 0),
               "{\"code\":1,\"extFields\":{\"a\\\"b\":\"\\u0001\\u0002\\b\\t\\n\\u000b\\f\\r\\u001f </>' \x7f \xc3\xa9 "
               "\xf0\x9f\x98\x80\",\"z\":\"\\u0000\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":1,\"remark\":"
               "\"line\\nnext \\\"quoted\\\" and \\\\ and a text that is longer than sixteen \\u001f\","
               "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}",
               0);
}

static void test_every_size_of_number_is_written(void) {
    uint8_t target[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    struct decoded decoded;
    for (int type = PYMQ_SERIALIZE_JSON; type <= PYMQ_SERIALIZE_ROCKETMQ; type++) {
        for (uint64_t base = 1, i = 0; i < 20; i++, base *= 10) {
            const uint64_t around[] = {base - 1, base, base + 1, 0 - base, INT64_MAX, (uint64_t)INT64_MIN};
            for (size_t k = 0; k < sizeof around / sizeof *around; k++) {
                int64_t value = (int64_t)around[k], read = 0;
                pymq_header_begin(&writer, target, sizeof target, (uint8_t)type, 7, 1, (int32_t)value, no_remark);
                pymq_header_field_int64(&writer, NAME("n"), value);
                ssize_t size = pymq_header_end(&writer, 0);
                CHECK(size > 0);
                decode_frame(&decoded, target, (size_t)size);
                CHECK_EQ(decoded.status, PYMQ_OK);
                CHECK_EQ(pymq_slice_int64(field_of(&decoded, "n"), &read), PYMQ_OK);
                CHECK_EQ(read, value);
                CHECK_EQ(decoded.command.opaque, (int32_t)value);
                decoded_free(&decoded);
            }
        }
    }
}

static ssize_t write_everything(uint8_t *target, size_t capacity, uint8_t type) {
    struct pymq_header_writer writer;
    struct pymq_slice remark = {VALUE("a remark with \"quotes\"")};
    pymq_header_begin(&writer, target, capacity, type, 17, 1, 123456, remark);
    pymq_header_field(&writer, NAME("plain"), VALUE("value"));
    pymq_header_field(&writer, NAME("quote\"d"), VALUE("some\1thing\2 longer than a step of the writer\n"));
    pymq_header_field_int64(&writer, NAME("number"), -1234567890123);
    pymq_header_field(&writer, NAME("empty"), NULL, 0);
    return pymq_header_end(&writer, 3);
}

static void test_a_header_that_does_not_fit_says_so_and_writes_nothing_outside(void) {
    for (uint8_t type = PYMQ_SERIALIZE_JSON; type <= PYMQ_SERIALIZE_ROCKETMQ; type++) {
        uint8_t large[PYMQ_HEADER_ROOM];
        ssize_t size = write_everything(large, sizeof large, type);
        CHECK(size > 0);
        for (size_t capacity = 0; capacity <= (size_t)size; capacity++) {
            uint8_t *exact = check_exact(large, capacity);
            memset(exact, 0, capacity);
            ssize_t written = write_everything(exact, capacity, type);
            CHECK_EQ(written, capacity < (size_t)size ? PYMQ_ETRUNCATED : size);
            if (written == size) {
                CHECK_BYTES(exact, written, large, size);
            }
            free(exact);
        }
    }
}

static void test_what_is_written_is_read_back(void) {
    for (uint8_t type = PYMQ_SERIALIZE_JSON; type <= PYMQ_SERIALIZE_ROCKETMQ; type++) {
        uint8_t target[PYMQ_HEADER_ROOM + 3];
        struct decoded decoded;
        ssize_t size = write_everything(target, PYMQ_HEADER_ROOM, type);
        memcpy(target + size, "bod", 3);
        CHECK_EQ(pymq_frame_size(target, 4, PYMQ_FRAME_SIZE_MAX), size + 3);
        decode_frame(&decoded, target, (size_t)size + 3);
        CHECK_EQ(decoded.status, PYMQ_OK);
        CHECK_EQ(decoded.command.code, 17);
        CHECK_EQ(decoded.command.flag, 1);
        CHECK_EQ(decoded.command.opaque, 123456);
        CHECK_EQ(decoded.command.version, PYMQ_REMOTING_VERSION);
        CHECK_EQ(decoded.command.serialize_type, type);
        check_field(&decoded, "plain", "value");
        check_field(&decoded, "quote\"d", "some\1thing\2 longer than a step of the writer\n");
        check_field(&decoded, "number", "-1234567890123");
        check_slice(&decoded.command.remark, NAME("a remark with \"quotes\""));
        check_slice(&decoded.command.body, "bod", 3);
        CHECK((field_of(&decoded, "empty") == NULL) == (type == PYMQ_SERIALIZE_ROCKETMQ)); /* null there */
        decoded_free(&decoded);
    }
}

static void test_a_body_no_frame_can_hold_is_refused(void) {
    uint8_t target[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, sizeof target, PYMQ_SERIALIZE_ROCKETMQ, 0, 1, 1, no_remark);
    CHECK_EQ(pymq_header_end(&writer, INT32_MAX - 4 - 21), 29);
    pymq_header_begin(&writer, target, sizeof target, PYMQ_SERIALIZE_ROCKETMQ, 0, 1, 1, no_remark);
    CHECK_EQ(pymq_header_end(&writer, INT32_MAX - 4 - 20), PYMQ_ETRUNCATED);
}

int main(void) {
    RUN(test_an_answer_as_apache_writes_it);
    RUN(test_an_empty_map_is_written_on_request_only);
    RUN(test_text_is_escaped_as_apache_escapes_it);
    RUN(test_every_size_of_number_is_written);
    RUN(test_a_header_that_does_not_fit_says_so_and_writes_nothing_outside);
    RUN(test_what_is_written_is_read_back);
    RUN(test_a_body_no_frame_can_hold_is_refused);
    return check_summary();
}
