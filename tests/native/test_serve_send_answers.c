/* Answers to sends: as Apache RocketMQ wrote them, byte for byte; and the template beside the general writer. */
#include "../../csrc/serve/answer_template.h"
#include "serve_help.h"

static const char KEY[] = "FD0000000000000000000000000000022F4B5FFD2B274DAE2BBF0000";

static struct pymq_sent sent_with(const struct pymq_append_item *items, uint32_t count, uint8_t type, int32_t opaque) {
    return (struct pymq_sent){
        .asker = {.opaque = opaque, .serialize_type = type},
        .queue_offset = 30,
        .items = items,
        .item_count = count,
        .key = text(KEY),
    };
}

/* golden-frames/json/broker_000010_SEND_MESSAGE_json_0.resp.bin */
static void test_a_json_answer_is_apache_s(void) {
    static const char expected[] =
        "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"transactionId\":"
        "\"FD0000000000000000000000000000022F4B5FFD2B274DAE2BBF0000\",\"msgId\":\"7F00000200002A9F000000000001CE7F\","
        "\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\",\"queueOffset\":\"30\"},\"flag\":1,\"language\":"
        "\"JAVA\",\"opaque\":3,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}";
    struct pymq_serve_config config = serve_config();
    struct pymq_append_item item = {.physical_offset = 0x1CE7F};
    struct pymq_sent sent = sent_with(&item, 1, PYMQ_SERIALIZE_JSON, 3);
    uint8_t frame[4096];
    size_t size = pymq_answer_sent(&config, &sent, frame, pymq_answer_sent_room(&sent));
    CHECK_EQ(size, 315);
    CHECK_EQ(pymq_load_be32(frame), 311);
    CHECK_EQ(pymq_load_be32(frame + 4), 307);
    CHECK_BYTES(frame + 8, size - 8, expected, sizeof expected - 1);
}

/* golden-frames/rocketmq/broker_000010_SEND_MESSAGE_rocketmq_0.resp.bin, with the key of the other */
static void test_a_binary_answer_is_apache_s(void) {
    static const char expected[] =
        "\0\0\0\xdf" "\x01\0\0\xdb"
        "\0\0\0\x02\x01\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0\xc6"
        "\0\x05msgId\0\0\0 7F00000200002A9F0000000000012866\0\x07queueId\0\0\0\x01" "0"
        "\0\x0bqueueOffset\0\0\0\x02" "30\0\x0dtransactionId\0\0\0" "8"
        "FD0000000000000000000000000000022F4B5FFD2B274DAE2BBF0000"
        "\0\x08TRACE_ON\0\0\0\x04true\0\x0aMSG_REGION\0\0\0\x0d" "DefaultRegion";
    struct pymq_serve_config config = serve_config();
    struct pymq_append_item item = {.physical_offset = 0x12866};
    struct pymq_sent sent = sent_with(&item, 1, PYMQ_SERIALIZE_ROCKETMQ, 3);
    uint8_t frame[4096];
    size_t size = pymq_answer_sent(&config, &sent, frame, pymq_answer_sent_room(&sent));
    CHECK_BYTES(frame, size, expected, sizeof expected - 1);
}

static void test_a_batch_s_answer_names_every_message(void) {
    struct pymq_serve_config config = serve_config();
    struct pymq_append_item items[300];
    for (int i = 0; i < 300; i++)
        items[i] = (struct pymq_append_item){.physical_offset = i * 256};
    struct pymq_sent sent = sent_with(items, 300, PYMQ_SERIALIZE_JSON, 1);
    sent.key.data = NULL;
    size_t room = pymq_answer_sent_room(&sent);
    uint8_t *frame = malloc(room), *scratch_bytes = malloc(room);
    size_t size = pymq_answer_sent(&config, &sent, frame, room);
    struct pymq_command command;
    CHECK_EQ(pymq_command_decode(frame, size, scratch_bytes, room, &command), PYMQ_OK);
    const struct pymq_slice *ids = pymq_command_field(&command, "msgId", 5);
    CHECK_EQ(ids->size, 300 * 33 - 1);
    CHECK_BYTES(ids->data + 299 * 33, 32, "7F00000200002A9F0000000000012B00", 32);
    CHECK(pymq_command_field(&command, "transactionId", 13) == NULL);
    free(frame);
    free(scratch_bytes);
}

static void test_another_code_changes_nothing_else(void) {
    struct pymq_serve_config config = serve_config();
    struct pymq_append_item item = {.physical_offset = 5};
    for (uint8_t type = PYMQ_SERIALIZE_JSON; type <= PYMQ_SERIALIZE_ROCKETMQ; type++) {
        struct pymq_sent sent = sent_with(&item, 1, type, -7);
        uint8_t frame[4096], late[4096], scratch_bytes[4096];
        size_t size = pymq_answer_sent(&config, &sent, frame, pymq_answer_sent_room(&sent));
        size_t late_size = pymq_answer_recode(frame, size, 12, late);
        struct pymq_command command;
        CHECK_EQ(pymq_frame_size(late, late_size, PYMQ_FRAME_SIZE_MAX), late_size);
        CHECK_EQ(pymq_command_decode(late, late_size, scratch_bytes, sizeof scratch_bytes, &command), PYMQ_OK);
        CHECK_EQ(command.code, 12);
        CHECK_EQ(command.opaque, -7);
        CHECK_EQ(command.field_count, 6);
        CHECK_EQ(pymq_command_field(&command, "msgId", 5)->size, 32);
    }
}

/* ---- the template ----------------------------------------------------------------------------------------------- */

static void compare(const struct pymq_serve_config *config, const struct pymq_answer_template *template,
                    const struct pymq_sent *sent) {
    size_t room = template->size + sent->key.size;
    uint8_t general[8192];
    size_t size = pymq_answer_sent(config, sent, general, sizeof general);
    CHECK(size <= room);
    uint8_t *filled = malloc(room); /* exactly: a sanitizer sees one byte too many */
    CHECK_EQ(pymq_answer_template_write(template, sent, filled), size);
    CHECK_BYTES(filled, size, general, size);
    free(filled);
}

static void test_the_template_writes_what_the_general_writer_writes(void) {
    static const int64_t numbers[] = {0, 9, 10, 99, 100, 101, 12345, INT32_MAX, INT32_MAX + INT64_C(1), INT64_MAX};
    struct pymq_serve_config config = serve_config();
    struct pymq_answer_template template;
    pymq_answer_template_make(&template, &config);
    CHECK(template.is_usable);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        for (size_t j = 0; j < sizeof numbers / sizeof numbers[0]; j++) {
            struct pymq_append_item item = {.physical_offset = numbers[j]};
            struct pymq_sent sent = sent_with(&item, 1, PYMQ_SERIALIZE_JSON, (int32_t)numbers[j]);
            sent.queue_offset = numbers[i];
            sent.queue_id = (int32_t)(numbers[i] & INT32_MAX);
            sent.key.size = (uint32_t)i * 5;
            sent.asker.opaque = i % 2 == 0 ? INT32_MIN : (int32_t)(numbers[j] & INT32_MAX);
            CHECK(pymq_answer_template_fits(&template, &sent));
            compare(&config, &template, &sent);
        }
    }
}

static void test_a_key_that_needs_escapes_does_not_fit(void) {
    struct pymq_serve_config config = serve_config();
    struct pymq_answer_template template;
    pymq_answer_template_make(&template, &config);
    struct pymq_append_item item = {0};
    for (int place = 0; place < 19; place++) {
        for (int byte = 0; byte < 256; byte++) {
            uint8_t key[19];
            memset(key, 'k', sizeof key);
            key[place] = (uint8_t)byte;
            struct pymq_sent sent = sent_with(&item, 1, PYMQ_SERIALIZE_JSON, 1);
            sent.key = (struct pymq_slice){key, sizeof key};
            CHECK_EQ(pymq_answer_template_fits(&template, &sent), byte >= 0x20 && byte != '"' && byte != '\\');
        }
    }
    struct pymq_sent sent = sent_with(&item, 1, PYMQ_SERIALIZE_ROCKETMQ, 1);
    CHECK(!pymq_answer_template_fits(&template, &sent));
    sent = sent_with(&item, 1, PYMQ_SERIALIZE_JSON, 1);
    sent.key.data = NULL;
    CHECK(!pymq_answer_template_fits(&template, &sent));
}

static void test_odd_regions_give_right_answers_or_no_template(void) {
    static const char *const regions[] = {"", "1111111111", "2222222222222222222", "1333333333", "a \"quoted\" one",
                                          "K", "KKKKKKKKKKKKKKKK", "7A7A7A7A7A7A7A7A", "\xc3\xbc"};
    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
        struct pymq_serve_config config = serve_config();
        snprintf(config.region, sizeof config.region, "%s", regions[i]);
        struct pymq_answer_template template;
        pymq_answer_template_make(&template, &config);
        struct pymq_append_item item = {.physical_offset = 77};
        struct pymq_sent sent = sent_with(&item, 1, PYMQ_SERIALIZE_JSON, 5);
        if (pymq_answer_template_fits(&template, &sent))
            compare(&config, &template, &sent);
        else
            CHECK(!template.is_usable);
    }
}

int main(void) {
    RUN(test_a_json_answer_is_apache_s);
    RUN(test_a_binary_answer_is_apache_s);
    RUN(test_a_batch_s_answer_names_every_message);
    RUN(test_another_code_changes_nothing_else);
    RUN(test_the_template_writes_what_the_general_writer_writes);
    RUN(test_a_key_that_needs_escapes_does_not_fit);
    RUN(test_odd_regions_give_right_answers_or_no_template);
    return check_summary();
}
