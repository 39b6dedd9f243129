/* Frames, numbers in fields, and the binary header. JSON is in test_command_json.c. */
#include "command_help.h"

static const struct pymq_slice none;

static ssize_t size_of(uint32_t counted, uint32_t size_max) {
    uint8_t bytes[4];
    pymq_store_be32(bytes, counted);
    return pymq_frame_size(bytes, sizeof bytes, size_max);
}

static void test_a_frame_tells_its_size_in_four_bytes(void) {
    uint8_t bytes[4] = {0, 0, 1, 0};
    for (size_t have = 0; have < 4; have++) {
        CHECK_EQ(pymq_frame_size(bytes, have, PYMQ_FRAME_SIZE_MAX), 0);
    }
    CHECK_EQ(pymq_frame_size(bytes, 4, PYMQ_FRAME_SIZE_MAX), 260);
    CHECK_EQ(size_of(4, PYMQ_FRAME_SIZE_MAX), 8);
}

static void test_a_size_outside_its_bounds_is_refused(void) {
    CHECK_EQ(size_of(0, PYMQ_FRAME_SIZE_MAX), PYMQ_ECORRUPT);
    CHECK_EQ(size_of(3, PYMQ_FRAME_SIZE_MAX), PYMQ_ECORRUPT);
    CHECK_EQ(size_of(PYMQ_FRAME_SIZE_MAX - 1, PYMQ_FRAME_SIZE_MAX), PYMQ_FRAME_SIZE_MAX + 3);
    CHECK_EQ(size_of(PYMQ_FRAME_SIZE_MAX, PYMQ_FRAME_SIZE_MAX), PYMQ_FRAME_SIZE_MAX + 4);
    CHECK_EQ(size_of(PYMQ_FRAME_SIZE_MAX + 1, PYMQ_FRAME_SIZE_MAX), PYMQ_ETOOBIG);
    CHECK_EQ(size_of(0xffffffff, PYMQ_FRAME_SIZE_MAX), PYMQ_ETOOBIG);
    CHECK_EQ(size_of(0x80000000, UINT32_MAX), PYMQ_ETOOBIG); /* negative to Java */
}

static int status_of(const uint8_t *frame, size_t size) {
    struct decoded decoded;
    decode_frame(&decoded, frame, size);
    decoded_free(&decoded);
    return decoded.status;
}

static void test_a_header_outside_its_frame_breaks_the_stream(void) {
    uint8_t frame[64];
    static const char header[] = "{\"code\":1,\"opaque\":2}";
    size_t size = make_frame(frame, PYMQ_SERIALIZE_JSON, header, sizeof header - 1, "");
    CHECK_EQ(status_of(frame, size), PYMQ_OK);
    CHECK_EQ(status_of(frame, 7), PYMQ_ECORRUPT);
    pymq_store_be32(frame + 4, (uint32_t)sizeof header);
    CHECK_EQ(status_of(frame, size), PYMQ_ECORRUPT);
    pymq_store_be32(frame + 4, 0x00ffffff);
    CHECK_EQ(status_of(frame, size), PYMQ_ECORRUPT);
    pymq_store_be32(frame + 4, 0);
    CHECK_EQ(status_of(frame, size), PYMQ_EUNSUPPORTED);
    for (uint32_t type = 2; type < 256; type++) {
        pymq_store_be32(frame + 4, type << 24 | (uint32_t)(sizeof header - 1));
        CHECK_EQ(status_of(frame, size), PYMQ_ECORRUPT);
    }
}

static int read_int64(const char *text, int64_t *value) {
    uint8_t *exact = check_exact(text, strlen(text));
    struct pymq_slice slice = {exact, (uint32_t)strlen(text)};
    int status = pymq_slice_int64(&slice, value);
    free(exact);
    return status;
}

static int read_int32(const char *text, int32_t *value) {
    struct pymq_slice slice = {(const uint8_t *)text, (uint32_t)strlen(text)};
    return pymq_slice_int32(&slice, value);
}

static void test_numbers_are_read_as_java_reads_them(void) {
    int64_t wide = 0;
    int32_t narrow = 0;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0}, {"-0", 0}, {"+5", 5}, {"007", 7}, {"-12", -12}, {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN}, {"00000000000000000000000000000001", 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK_EQ(read_int64(good[i].text, &wide), PYMQ_OK);
        CHECK_EQ(wide, good[i].value);
    }
    static const char *const bad[] = {"", "-", "+", " 1", "1 ", "1.0", "1e3", "0x1", "--1", "+-1", "1_0",
                                      "9223372036854775808", "-9223372036854775809", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wide = 77;
        CHECK_EQ(read_int64(bad[i], &wide), PYMQ_EINVAL);
        CHECK_EQ(wide, 77);
    }
    CHECK_EQ(read_int32("2147483647", &narrow), PYMQ_OK);
    CHECK_EQ(narrow, INT32_MAX);
    CHECK_EQ(read_int32("-2147483648", &narrow), PYMQ_OK);
    CHECK_EQ(narrow, INT32_MIN);
    CHECK_EQ(read_int32("2147483648", &narrow), PYMQ_EINVAL);
    CHECK_EQ(read_int32("-2147483649", &narrow), PYMQ_EINVAL);
    CHECK_EQ(pymq_slice_int64(NULL, &wide), PYMQ_ENOTFOUND);
    CHECK_EQ(pymq_slice_int32(&none, &narrow), PYMQ_ENOTFOUND);
}

/* A binary header by hand; returns its size. */
static size_t binary_header(uint8_t *target, const char *remark, const void *fields, size_t fields_size) {
    size_t remark_size = strlen(remark);
    static const uint8_t fixed[13] = {0x01, 0x36, 9, 0x02, 0x01, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 2};
    memcpy(target, fixed, sizeof fixed);
    pymq_store_be32(target + 13, (uint32_t)remark_size);
    memcpy(target + 17, remark, remark_size);
    pymq_store_be32(target + 17 + remark_size, (uint32_t)fields_size);
    memcpy(target + 21 + remark_size, fields, fields_size);
    return 21 + remark_size + fields_size;
}

static void decode_binary(struct decoded *decoded, const char *remark, const void *fields, size_t fields_size) {
    uint8_t header[512], frame[520];
    size_t size = binary_header(header, remark, fields, fields_size);
    decode_frame(decoded, frame, make_frame(frame, PYMQ_SERIALIZE_ROCKETMQ, header, size, ""));
}

#define BYTES(text) text, sizeof(text) - 1

static void test_a_binary_header_is_read_whole(void) {
    struct decoded decoded;
    decode_binary(&decoded, "a remark", BYTES("\0\1a\0\0\0\2xy\0\1b\0\0\0\0\0\2cc\0\0\0\1\n"));
    CHECK_EQ(decoded.status, PYMQ_OK);
    CHECK_EQ(decoded.command.code, 310);
    CHECK_EQ(decoded.command.language, 9);
    CHECK_EQ(decoded.command.version, 513);
    CHECK_EQ(decoded.command.opaque, -2);
    CHECK_EQ(decoded.command.flag, PYMQ_COMMAND_ONEWAY);
    CHECK_EQ(decoded.command.serialize_type, PYMQ_SERIALIZE_ROCKETMQ);
    CHECK_EQ(decoded.command.field_count, 3);
    CHECK_EQ(decoded.command.body.size, 0);
    check_slice(&decoded.command.remark, BYTES("a remark"));
    check_field(&decoded, "a", "xy");
    check_field(&decoded, "cc", "\n");
    CHECK(field_of(&decoded, "b") == NULL); /* a length of 0 is null */
    CHECK(field_of(&decoded, "c") == NULL);
    decoded_free(&decoded);
    decode_binary(&decoded, "", BYTES(""));
    CHECK_EQ(decoded.status, PYMQ_OK);
    CHECK_EQ(decoded.command.field_count, 0);
    CHECK(decoded.command.remark.data == NULL);
    decoded_free(&decoded);
}

static void test_the_last_of_equal_binary_names_counts(void) {
    struct decoded decoded;
    decode_binary(&decoded, "", BYTES("\0\1a\0\0\0\1x\0\1a\0\0\0\1y"));
    check_field(&decoded, "a", "y");
    decoded_free(&decoded);
    /* A null behind a value would be passed over by who walks the fields. */
    decode_binary(&decoded, "", BYTES("\0\1a\0\0\0\1x\0\1a\0\0\0\0"));
    CHECK_EQ(decoded.status, PYMQ_EUNSUPPORTED);
    decoded_free(&decoded);
    decode_binary(&decoded, "", BYTES("\0\1a\0\0\0\0\0\1a\0\0\0\1x"));
    check_field(&decoded, "a", "x");
    decoded_free(&decoded);
}

static int binary_status(const char *remark, const void *fields, size_t fields_size) {
    struct decoded decoded;
    decode_binary(&decoded, remark, fields, fields_size);
    decoded_free(&decoded);
    return decoded.status;
}

static void test_binary_lengths_that_lead_outside_go_to_python(void) {
    static const char good[] = "\0\1a\0\0\0\2xy\0\1b\0\0\0\1z";
    for (size_t size = 0; size < sizeof good; size++) {
        bool whole = size == 0 || size == 9 || size == 17;
        CHECK_EQ(binary_status("", good, size < 17 ? size : 17), whole ? PYMQ_OK : PYMQ_EUNSUPPORTED);
    }
    CHECK_EQ(binary_status("", BYTES("\0\0\0\0\0\1x")), PYMQ_EUNSUPPORTED); /* a null name */
    CHECK_EQ(binary_status("", BYTES("\200\1a\0\0\0\1x")), PYMQ_EUNSUPPORTED);
    CHECK_EQ(binary_status("", BYTES("\0\1a\377\377\377\377x")), PYMQ_EUNSUPPORTED);
    CHECK_EQ(binary_status("", BYTES("\0\1a\0\0\0\3xy")), PYMQ_EUNSUPPORTED);

    uint8_t header[64], frame[80];
    size_t size = binary_header(header, "rm", BYTES("\0\1a\0\0\0\1x"));
    for (size_t cut = 0; cut < size; cut++) {
        CHECK_EQ(status_of(frame, make_frame(frame, PYMQ_SERIALIZE_ROCKETMQ, header, cut, "")), PYMQ_EUNSUPPORTED);
    }
    header[size] = 0; /* one byte behind the fields: to Apache the beginning of the body */
    CHECK_EQ(status_of(frame, make_frame(frame, PYMQ_SERIALIZE_ROCKETMQ, header, size + 1, "")), PYMQ_EUNSUPPORTED);
    pymq_store_be32(header + 13, 0xffffffff); /* the remark's length */
    CHECK_EQ(status_of(frame, make_frame(frame, PYMQ_SERIALIZE_ROCKETMQ, header, size, "")), PYMQ_EUNSUPPORTED);
}

static void test_binary_text_is_utf8_or_goes_to_python(void) {
    CHECK_EQ(binary_status("\xc3\xa9", BYTES("\0\1a\0\0\0\4\xf0\x9f\x98\x80")), PYMQ_OK);
    CHECK_EQ(binary_status("\xff", BYTES("")), PYMQ_EUNSUPPORTED);
    CHECK_EQ(binary_status("", BYTES("\0\1\xff\0\0\0\1x")), PYMQ_EUNSUPPORTED);
    CHECK_EQ(binary_status("", BYTES("\0\1a\0\0\0\1\xe9")), PYMQ_EUNSUPPORTED);
    CHECK_EQ(binary_status("", BYTES("\0\1a\0\0\0\3\xed\xa0\x80")), PYMQ_EUNSUPPORTED); /* half of a pair */
    CHECK_EQ(binary_status("", BYTES("\0\1a\0\0\0\2\xc0\x80")), PYMQ_EUNSUPPORTED);     /* overlong */
}

static void test_more_fields_than_there_is_room_for_go_to_python(void) {
    uint8_t fields[(PYMQ_COMMAND_FIELDS_MAX + 1) * 7], header[700], frame[720];
    for (int count = PYMQ_COMMAND_FIELDS_MAX - 1; count <= PYMQ_COMMAND_FIELDS_MAX + 1; count++) {
        for (int i = 0; i < count; i++) {
            memcpy(fields + i * 7, "\0\1n\0\0\0\0", 7);
            fields[i * 7 + 2] = (uint8_t)('!' + i);
        }
        size_t size = binary_header(header, "", fields, (size_t)count * 7);
        int status = status_of(frame, make_frame(frame, PYMQ_SERIALIZE_ROCKETMQ, header, size, "body"));
        CHECK_EQ(status, count <= PYMQ_COMMAND_FIELDS_MAX ? PYMQ_OK : PYMQ_EUNSUPPORTED);
    }
}

static void test_a_language_nobody_knows_is_unknown(void) {
    uint8_t header[32], frame[40];
    struct decoded decoded;
    size_t size = binary_header(header, "", BYTES(""));
    for (unsigned language = 0; language < 256; language++) {
        header[2] = (uint8_t)language;
        decode_frame(&decoded, frame, make_frame(frame, PYMQ_SERIALIZE_ROCKETMQ, header, size, ""));
        CHECK_EQ(decoded.status, PYMQ_OK);
        CHECK_EQ(decoded.command.language, language < 14 ? language : PYMQ_LANGUAGE_UNKNOWN);
        decoded_free(&decoded);
    }
}

int main(void) {
    RUN(test_a_frame_tells_its_size_in_four_bytes);
    RUN(test_a_size_outside_its_bounds_is_refused);
    RUN(test_a_header_outside_its_frame_breaks_the_stream);
    RUN(test_numbers_are_read_as_java_reads_them);
    RUN(test_a_binary_header_is_read_whole);
    RUN(test_the_last_of_equal_binary_names_counts);
    RUN(test_binary_lengths_that_lead_outside_go_to_python);
    RUN(test_binary_text_is_utf8_or_goes_to_python);
    RUN(test_more_fields_than_there_is_room_for_go_to_python);
    RUN(test_a_language_nobody_knows_is_unknown);
    return check_summary();
}
