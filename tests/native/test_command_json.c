/* The JSON header: what is accepted, with what meaning, and what is left to Python. */
#include "command_help.h"

#define HEAD "{\"code\":1,\"opaque\":2,"

static void test_a_header_as_a_java_client_writes_it(void) {
    struct decoded decoded;
    decode_json(&decoded, "{\"code\":310,\"extFields\":{\"a\":\"group\","
                          "\"i\":\"KEYS\\u0001k\\u0002TAGS\\u0001t\\u0002\"},"
                          "\"flag\":2,\"language\":\"GO\",\"opaque\":-7,\"remark\":\"r\","
                          "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}");
    CHECK_EQ(decoded.status, PYMQ_OK);
    CHECK_EQ(decoded.command.code, 310);
    CHECK_EQ(decoded.command.flag, PYMQ_COMMAND_ONEWAY);
    CHECK_EQ(decoded.command.language, 9);
    CHECK_EQ(decoded.command.opaque, -7);
    CHECK_EQ(decoded.command.version, 513);
    CHECK_EQ(decoded.command.field_count, 2);
    check_field(&decoded, "a", "group");
    check_field(&decoded, "i", "KEYS\1k\2TAGS\1t\2");
    check_slice(&decoded.command.remark, "r", 1);
    decoded_free(&decoded);
}

static void test_what_is_absent_has_java_s_defaults(void) {
    struct decoded decoded;
    decode_json(&decoded, "{\"opaque\":0,\"code\":2147483647}");
    CHECK_EQ(decoded.status, PYMQ_OK);
    CHECK_EQ(decoded.command.code, INT32_MAX);
    CHECK_EQ(decoded.command.flag, 0);
    CHECK_EQ(decoded.command.version, 0);
    CHECK_EQ(decoded.command.language, PYMQ_LANGUAGE_JAVA);
    CHECK_EQ(decoded.command.field_count, 0);
    CHECK(decoded.command.remark.data == NULL);
    CHECK_EQ(decoded.command.body.size, 0);
    decoded_free(&decoded);
}

static void test_space_may_stand_between_tokens(void) {
    struct decoded decoded;
    decode_json(&decoded, " \t\r\n{ \"code\" : 1 ,\n\"opaque\"\t:\r-2 , "
                          "\"extFields\" : { \"a\" : \"b\" , \"c\" : 5 } , "
                          "\"remark\" : null , \"x\" : [ 1 , { \"y\" : [ ] , \"z\" : { } } ] } \n");
    check_field(&decoded, "a", "b");
    check_field(&decoded, "c", "5");
    CHECK_EQ(decoded.command.opaque, -2);
    decoded_free(&decoded);
}

static void test_values_that_are_no_text_become_java_s_text(void) {
    struct decoded decoded;
    decode_json(&decoded, HEAD "\"extFields\":{\"a\":12,\"b\":-3,\"c\":true,\"d\":false,\"e\":null,\"f\":0,\"g\":\"\","
                               "\"h\":123456789012345678901234567890}}");
    check_field(&decoded, "a", "12");
    check_field(&decoded, "b", "-3");
    check_field(&decoded, "c", "true");
    check_field(&decoded, "d", "false");
    CHECK(field_of(&decoded, "e") == NULL);
    check_field(&decoded, "f", "0");
    check_field(&decoded, "g", "");
    check_field(&decoded, "h", "123456789012345678901234567890");
    decoded_free(&decoded);
}

static void test_the_last_of_equal_names_counts(void) {
    struct decoded decoded;
    decode_json(&decoded, "{\"code\":1,\"code\":9,\"opaque\":1,\"opaque\":8,\"remark\":\"a\",\"remark\":null,"
                          "\"extFields\":{\"gone\":\"1\"},"
                          "\"extFields\":{\"a\":\"1\",\"b\":null,\"a\":\"3\",\"b\":\"4\"}}");
    CHECK_EQ(decoded.command.code, 9);
    CHECK_EQ(decoded.command.opaque, 8);
    CHECK(decoded.command.remark.data == NULL);
    check_field(&decoded, "a", "3");
    check_field(&decoded, "b", "4");
    CHECK(field_of(&decoded, "gone") == NULL);
    decoded_free(&decoded);
    decode_json(&decoded, HEAD "\"extFields\":{\"a\":\"1\"},\"extFields\":null}");
    CHECK_EQ(decoded.status, PYMQ_OK);
    CHECK_EQ(decoded.command.field_count, 0);
    decoded_free(&decoded);
    /* A null behind a value would be passed over by who walks the fields. */
    CHECK_EQ(json_status(HEAD "\"extFields\":{\"a\":\"1\",\"a\":null}}"), PYMQ_EUNSUPPORTED);
}

static void test_every_escape_of_json(void) {
    struct decoded decoded;
    decode_json(&decoded, "{\"c\\u006fde\":1,\"opaque\":2,\"remark\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",\"extFields\":{"
                          "\"one\":\"\\u0041\\u007f\",\"two\":\"\\u00e9\\u07FF\",\"three\":\"x\\u0800\\uffffy\","
                          "\"four\":\"\\ud83d\\ude00\\uD800\\uDC00\\uDBFF\\uDFFF\",\"k\\n\":\"\\u0001\"}}");
    CHECK_EQ(decoded.status, PYMQ_OK);
    CHECK_EQ(decoded.command.code, 1);
    check_slice(&decoded.command.remark, "\"\\/\b\f\n\r\t", 8);
    check_field(&decoded, "one", "A\x7f");
    check_field(&decoded, "two", "\xc3\xa9\xdf\xbf");
    check_field(&decoded, "three", "x\xe0\xa0\x80\xef\xbf\xbfy");
    check_field(&decoded, "four", "\xf0\x9f\x98\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf");
    check_field(&decoded, "k\n", "\1");
    decoded_free(&decoded);
    decode_json(&decoded, HEAD "\"remark\":\"a\\u0000b\"}");
    check_slice(&decoded.command.remark, "a\0b", 3);
    decoded_free(&decoded);
}

static void test_bytes_beyond_ascii_and_raw_control_characters_stay(void) {
    struct decoded decoded;
    decode_json(&decoded, HEAD "\"extFields\":{\"\xe4\xbd\xa0\":"
                               "\"\xe5\xa5\xbd\\n\xf0\x9f\x98\x80 and sixteen more bytes\","
                               "\"raw\":\"\1\2\t\n\x1f\x7f\"}}");
    check_field(&decoded, "\xe4\xbd\xa0", "\xe5\xa5\xbd\n\xf0\x9f\x98\x80 and sixteen more bytes");
    check_field(&decoded, "raw", "\1\2\t\n\x1f\x7f");
    decoded_free(&decoded);
}

static void test_names_nobody_knows_are_passed_over(void) {
    struct decoded decoded;
    decode_json(&decoded, "{\"new\":{\"a\":[1,{\"b\":null}],\"c\":\"}\\\"\"},\"code\":5,\"x\":[],\"y\":{},\"z\":-1,"
                          "\"Code\":7,\"\":true,\"opaque\":6,\"customHeader\":{\"code\":1},"
                          "\"bodx\":1,\"suspendee\":2}");
    CHECK_EQ(decoded.status, PYMQ_OK);
    CHECK_EQ(decoded.command.code, 5);
    CHECK_EQ(decoded.command.opaque, 6);
    decoded_free(&decoded);
}

static void check_unsupported(const char *const *headers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (json_status(headers[i]) != PYMQ_EUNSUPPORTED) {
            CHECK_FAIL("accepted: %s", headers[i]);
        }
    }
}

static void test_what_is_not_certain_goes_to_python(void) {
    static const char *const headers[] = {
        "", " ", "{}", "{", "}", "[]", "null", "5", "\"x\"", "[1]}", "{{}}", "{\"code\":1}", "{\"opaque\":1}",
        "{\"code\":+1,\"opaque\":2}", "{\"code\":01,\"opaque\":2}", "{\"code\":1.0,\"opaque\":2}",
        "{\"code\":1e3,\"opaque\":2}", "{\"code\":\"1\",\"opaque\":2}", "{\"code\":true,\"opaque\":2}",
        "{\"code\":null,\"opaque\":2}", "{\"code\":2147483648,\"opaque\":2}", "{\"code\":-,\"opaque\":2}",
        "{\"code\":1,\"opaque\":-2147483649}", "{\"code\":1L,\"opaque\":2}", "{\"code\":1,\"opaque\":2,}",
        "{,\"code\":1,\"opaque\":2}", "{\"code\":1 \"opaque\":2}", "{\"code\":1,,\"opaque\":2}",
        "{\"code\":1;\"opaque\":2}", "{\"code\" 1,\"opaque\":2}", "{'code':1,\"opaque\":2}", "{code:1,\"opaque\":2}",
        "{\"code\":1,/**/\"opaque\":2}", "{\"code\":1,\"opaque\":2}}", "{\"code\":1,\"opaque\":2}{}",
        "{\"code\":1,\"opaque\":2} x}", "\f{\"code\":1,\"opaque\":2}", "\xef\xbb\xbf{\"code\":1,\"opaque\":2}",
        HEAD "\"language\":\"java\"}", HEAD "\"language\":\"KLINGON\"}", HEAD "\"language\":3}",
        HEAD "\"language\":null}", HEAD "\"remark\":5}", HEAD "\"body\":\"\"}", HEAD "\"suspended\":true}",
        HEAD "\"serializeTypeCurrentRPC\":1}", HEAD "\"x\":tru}", HEAD "\"x\":1.5}", HEAD "\"x\":\"\\q\"}",
        HEAD "\"x\":[1 2]}", HEAD "\"x\":{\"a\":1,}}", HEAD "\"x\":[}", HEAD "\"x\":[1}", HEAD "\"x\":{1}}",
    };
    check_unsupported(headers, sizeof headers / sizeof *headers);
}

static void test_uncertain_fields_go_to_python(void) {
    static const char *const values[] = {
        "+1", "01", "-0", "1.5", "1e3", ".5", "5.", "NaN", "1L", "truex", "nullx", "tru", "'s'", "{}", "[]",
        "{\"a\":1}",
        "\"\\q\"", "\"\\u00zz\"", "\"\\u12\"", "\"\\ud83d\"", "\"\\ud83dx\"", "\"\\ud83d\\u0041\"", "\"\\ude00\"",
        "\"\\ud83d\\\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xe4\xbd\"", "\"\xf5\x80\x80\x80\"",
        "\"", "\"\\",
        "\"x\\\"", "-", "--1", "\"a\\n\xff\"", "\"1\" \"b\":\"2\"", "\"1\",", "", ",",
    };
    char header[256];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        snprintf(header, sizeof header, HEAD "\"extFields\":{\"a\":%s}}", values[i]);
        const char *one = header;
        check_unsupported(&one, 1);
    }
    static const char *const others[] = {
        HEAD "\"extFields\":[]}", HEAD "\"extFields\":\"\"}", HEAD "\"extFields\":{a:1}}",
        HEAD "\"extFields\":{1:\"1\"}}",
        HEAD "\"extFields\":{\"$ref\":\"$\"}}", HEAD "\"extFields\":{\"a\":\"1\"}", HEAD "\"extFields\":{}",
        HEAD "\"extFields\":{\"a\"}}", HEAD "\"extFields\":{\"a\xff\":\"1\"}}", HEAD "\"extFields\":nul}",
    };
    check_unsupported(others, sizeof others / sizeof *others);
}

static void test_every_prefix_of_a_header_goes_to_python(void) {
    static const char header[] = "{\"code\":1,\"extFields\":{"
                                 "\"a\":\"\\u0001\\ud83d\\ude00 and a long text\",\"b\":null},"
                                 "\"flag\":0,\"language\":\"JAVA\",\"opaque\":2,\"x\":[{}],\"version\":513}";
    struct decoded decoded;
    for (size_t size = 0; size < sizeof header - 1; size++) {
        decode_json_bytes(&decoded, header, size);
        CHECK_EQ(decoded.status, PYMQ_EUNSUPPORTED);
        decoded_free(&decoded);
    }
    decode_json_bytes(&decoded, header, sizeof header - 1);
    CHECK_EQ(decoded.status, PYMQ_OK);
    decoded_free(&decoded);
}

static void test_unknown_values_are_followed_to_a_limit(void) {
    char header[256];
    for (int depth = 1; depth <= 40; depth++) {
        char opening[64] = "", closing[64] = "";
        memset(opening, '[', (size_t)depth);
        memset(closing, ']', (size_t)depth);
        snprintf(header, sizeof header, HEAD "\"x\":%s%s}", opening, closing);
        CHECK_EQ(json_status(header), depth <= 16 ? PYMQ_OK : PYMQ_EUNSUPPORTED);
    }
}

static void test_more_json_fields_than_there_is_room_for_go_to_python(void) {
    char header[2048];
    for (int count = PYMQ_COMMAND_FIELDS_MAX - 1; count <= PYMQ_COMMAND_FIELDS_MAX + 1; count++) {
        size_t at = (size_t)snprintf(header, sizeof header, HEAD "\"extFields\":{");
        for (int i = 0; i < count; i++) {
            at += (size_t)snprintf(header + at, sizeof header - at, "%s\"f%d\":\"%d\"", i == 0 ? "" : ",", i, i);
        }
        snprintf(header + at, sizeof header - at, "}}");
        CHECK_EQ(json_status(header), count <= PYMQ_COMMAND_FIELDS_MAX ? PYMQ_OK : PYMQ_EUNSUPPORTED);
    }
}

static void test_a_small_scratch_is_never_written_beyond(void) {
    static const char header[] = HEAD "\"extFields\":{\"a\":\"\\u0001 and some more text behind it\",\"b\":\"\\n\"}}";
    uint8_t frame[256];
    size_t size = make_frame(frame, PYMQ_SERIALIZE_JSON, header, sizeof header - 1, "the body");
    struct pymq_command command;
    for (size_t room = 0; room <= size; room++) {
        uint8_t *scratch = check_exact(frame, room); /* a sanitizer sees the byte behind it */
        int status = pymq_command_decode(frame, size, scratch, room, &command);
        CHECK(status == PYMQ_OK || status == PYMQ_EUNSUPPORTED);
        CHECK(room < size || status == PYMQ_OK);
        free(scratch);
    }
    check_slice(&command.body, "the body", 8);
}

int main(void) {
    RUN(test_a_header_as_a_java_client_writes_it);
    RUN(test_what_is_absent_has_java_s_defaults);
    RUN(test_space_may_stand_between_tokens);
    RUN(test_values_that_are_no_text_become_java_s_text);
    RUN(test_the_last_of_equal_names_counts);
    RUN(test_every_escape_of_json);
    RUN(test_bytes_beyond_ascii_and_raw_control_characters_stay);
    RUN(test_names_nobody_knows_are_passed_over);
    RUN(test_what_is_not_certain_goes_to_python);
    RUN(test_uncertain_fields_go_to_python);
    RUN(test_every_prefix_of_a_header_goes_to_python);
    RUN(test_unknown_values_are_followed_to_a_limit);
    RUN(test_more_json_fields_than_there_is_room_for_go_to_python);
    RUN(test_a_small_scratch_is_never_written_beyond);
    return check_summary();
}
