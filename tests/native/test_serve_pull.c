/* Native pulls: the results of DefaultMessageStore.getMessage, the bytes of Apache's answers, and what is handed
 * over. */
#include "pull_help.h"

static const struct pull_wish PLAIN = {.queue_id = 0, .opaque = 481, .count = 32, .version = 7};

static int reason(int outcome) {
    CHECK(outcome >= PYMQ_HAND_OVER);
    return outcome - PYMQ_HAND_OVER;
}

static void test_answer_has_the_bytes_of_the_recorded_one(void) {
    struct pymq_serve_config config = serve_config();
    config.slave_read_enable = true;
    pull_start("pull-bytes", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 3; i++)
        put_message(0, i, NULL);
    dispatched();
    struct pull_wish wish = PLAIN;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    static const char HEADER[] =
        "{\"code\":0,\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"groupSysFlag\":\"0\",\"nextBeginOffset\":\"3\","
        "\"maxOffset\":\"3\",\"minOffset\":\"0\",\"topicSysFlag\":\"0\"},\"flag\":1,\"language\":\"JAVA\","
        "\"opaque\":481,\"remark\":\"FOUND\",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}";
    CHECK_EQ(pymq_load_be32(connection->output + 4), sizeof HEADER - 1);
    CHECK_BYTES(connection->output + 8, sizeof HEADER - 1, HEADER, sizeof HEADER - 1);
    expect_found(connection, 481, 0, 3, "3");

    wish.type = PYMQ_SERIALIZE_ROCKETMQ;
    size_t begin = connection->output_size;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    static const char *const ORDER[] = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset",
                                        "maxOffset",            "topicSysFlag",    "groupSysFlag"};
    const uint8_t *at = connection->output + begin;
    for (size_t i = 0; i < 6; i++) { /* the other codec's order */
        const uint8_t *found = memmem(at, connection->output_size - (size_t)(at - connection->output), ORDER[i],
                                      strlen(ORDER[i]));
        CHECK(found != NULL);
        at = found;
    }
    expect_found(connection, 481, 0, 3, "3");
    serve_end();
}

static void test_offsets_outside_the_queue_are_answered_as_apache_does(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-outside", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    struct pull_wish wish = PLAIN;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0");
    wish.offset = 9;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 21, "NO_MESSAGE_IN_QUEUE", "0", "0", "0");
    for (int i = 0; i < 5; i++)
        put_message(0, i, NULL);
    dispatched();
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 21, "OFFSET_OVERFLOW_BADLY", "5", "0", "5");
    wish.offset = 5;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 19, "OFFSET_OVERFLOW_ONE", "5", "0", "5");
    wish.offset = -1;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 21, "OFFSET_TOO_SMALL", "0", "0", "5");
    serve_end();
}

static void test_batch_is_full_by_count_by_bytes_and_by_where_it_lies(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-full", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 50; i++)
        put_message(0, i, NULL);
    dispatched();
    struct pull_wish wish = PLAIN;
    wish.count = 1000; /* more than maxTransferCountOnMessageInMemory */
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 0, 32, "32");
    wish.count = 7;
    wish.offset = 10;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 10, 7, "17");
    for (int count = -3; count <= 1; count++) { /* the first message always goes */
        wish.count = count;
        CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
        expect_found(connection, 481, 10, 1, "11");
    }
    wish.count = 32;
    wish.offset = 0;
    struct pymq_cq_unit unit;
    CHECK_EQ(pymq_queue_units(served.store, queue_of(served.store, "T", 0), 0, &unit, 1), 1);
    config.transfer_bytes_memory = unit.size * 3; /* bodies of one length up to number 9 */
    pymq_serve_configure(served.serve, &config);
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 0, 3, "3");
    config.memory_bytes_max = 0; /* everything counts as on disk */
    config.transfer_count_disk = 8;
    pymq_serve_configure(served.serve, &config);
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 0, 8, "8");
    serve_end();
}

static void test_far_behind_is_sent_to_the_slave_only_when_reading_there_is_allowed(void) {
    struct pymq_serve_config config = serve_config();
    config.memory_bytes_max = 0;
    config.slave_read_enable = true;
    pull_start("pull-slave", &config, NULL);
    struct pymq_group_row row = {.name = (const uint8_t *)"G", .name_size = 1, .sys_flag = 3, .broker_id = 0,
                                 .broker_id_when_slow = 1};
    CHECK_EQ(pymq_serve_publish_group(served.serve, &row), PYMQ_OK);
    struct pymq_connection *connection = fake_connect(0);
    put_message(0, 0, NULL);
    dispatched();
    struct answer answer;
    for (int allowed = 1; allowed >= 0; allowed--) {
        config.slave_read_enable = allowed;
        pymq_serve_configure(served.serve, &config);
        CHECK_EQ(pull(connection, &PLAIN), PYMQ_SERVED);
        CHECK(take_answer(connection, &answer));
        check_field(&answer, "suggestWhichBrokerId", allowed ? "1" : "0");
        check_field(&answer, "groupSysFlag", "3");
    }
    serve_end();
}

static void test_tags_are_filtered_by_hash_and_nothing_else_is_sent(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-tags", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    static const char *const TAGS[] = {"blue", NULL, "red", "red", "blue"};
    for (int i = 0; i < 5; i++)
        put_message(0, i, TAGS[i]);
    for (int i = 0; i < 3; i++)
        put_message(1, i, NULL);
    dispatched();
    struct pull_wish wish = PLAIN;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 2, 2, "5");
    wish.offset = 4;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 20, "NO_MATCHED_MESSAGE", "5", "0", "5");
    wish.offset = 0;
    wish.queue_id = 1; /* no tag at all: code 0 */
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 20, "NO_MATCHED_MESSAGE", "3", "0", "3");
    wish.queue_id = 0;
    wish.sys_flag = PULL_EXPRESSION;
    wish.expression = "green|| blue ";
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    struct answer answer;
    int64_t offsets[8];
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(body_offsets(&answer.command, offsets, 8), 2);
    CHECK(offsets[0] == 0 && offsets[1] == 4);
    wish.expression = "*";
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 0, 5, "5");
    wish.expression = "||"; /* an error to Java's split: to be worded */
    CHECK_EQ(reason(pull(connection, &wish)), PYMQ_REASON_FILTER);
    serve_end();
}

static void test_one_pull_looks_at_800_units_at_most(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-800", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 900; i++)
        put_message(0, i, i == 850 ? "red" : "blue");
    dispatched();
    struct pull_wish wish = PLAIN;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 20, "NO_MATCHED_MESSAGE", "800", "0", "900");
    wish.offset = 800;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 850, 1, "900");
    serve_end();
}

/* Symptom: one pull that asked for a hundred million messages and matched none kept its reactor for half a second. */
static void test_pull_that_asks_for_very_many_walks_a_bounded_way(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-many", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 17000; i++)
        put_message(0, i, "blue");
    dispatched();
    struct pull_wish wish = PLAIN;
    wish.count = 100000000;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 20, "NO_MATCHED_MESSAGE", "16384", "0", "17000");
    wish.offset = 16384;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect(connection, 481, 20, "NO_MATCHED_MESSAGE", "17000", "0", "17000");
    serve_end();
}

/* Symptom: a topic made again while its removal was under way gave its consumers an empty queue for ever. */
static void test_pull_finds_the_queue_that_took_a_removed_ones_place(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-removed", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    put_message(0, 0, NULL);
    dispatched();
    CHECK_EQ(pull(connection, &PLAIN), PYMQ_SERVED); /* the row remembers the queue */
    expect_found(connection, 481, 0, 1, "1");
    CHECK_EQ(pymq_store_remove_topic(served.store, (const uint8_t *)"T", 1, 20000), PYMQ_OK);
    CHECK_EQ(pull(connection, &PLAIN), PYMQ_SERVED);
    expect(connection, 481, 19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0");
    put_message(0, 1, NULL);
    dispatched();
    CHECK_EQ(pull(connection, &PLAIN), PYMQ_SERVED);
    expect_found(connection, 481, 0, 1, "1");
    serve_end();
}

static void test_offset_riding_on_a_pull_is_committed_once(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-commit", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    put_message(0, 0, NULL);
    dispatched();
    struct pull_wish wish = PLAIN;
    wish.sys_flag = PULL_COMMIT;
    wish.commit = 41;
    int64_t offset = -7;
#define NAMES (const uint8_t *)"G", 1, (const uint8_t *)"T", 1, 0
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_ENOTFOUND);
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED); /* the place for it came with the subscription */
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
    CHECK_EQ(offset, 41);
    wish.sys_flag = 0;
    wish.commit = 42; /* no flag: no commit */
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
    CHECK_EQ(offset, 41);
    serve_end();
}

static void test_reset_is_told_until_the_group_has_pulled_from_it(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-reset", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 10; i++)
        put_message(0, i, NULL);
    dispatched();
    CHECK_EQ(pymq_serve_offset_commit(served.serve, NAMES, 9), PYMQ_OK);
    CHECK_EQ(pymq_serve_offset_reset(served.serve, NAMES, 4), PYMQ_OK);
    struct pull_wish wish = PLAIN;
    wish.offset = 9;
    wish.sys_flag = PULL_COMMIT;
    wish.commit = 9;
    int64_t offset;
    for (int i = 0; i < 2; i++) { /* an answer may get lost */
        CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
        expect(connection, 481, 21, "OFFSET_RESET", "4", "0", "10");
        CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
        CHECK_EQ(offset, 4);
    }
    wish.offset = wish.commit = 4;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 4, 6, "10");
    wish.offset = wish.commit = 10;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
    CHECK_EQ(offset, 10);
    serve_end();
}

/* Symptom: a pull from where a reset went, with an older commit riding on it, followed the reset and undid it. */
static void test_older_offset_riding_on_the_pull_that_follows_a_reset_is_not_committed(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-reset-riding", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 10; i++)
        put_message(0, i, NULL);
    dispatched();
    CHECK_EQ(pymq_serve_offset_commit(served.serve, NAMES, 8), PYMQ_OK);
    CHECK_EQ(pymq_serve_offset_reset(served.serve, NAMES, 4), PYMQ_OK);
    struct pull_wish wish = PLAIN;
    wish.offset = 4;
    wish.sys_flag = PULL_COMMIT;
    wish.commit = 8;
    int64_t offset;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    expect_found(connection, 481, 4, 6, "10");
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
    CHECK_EQ(offset, 4);
    wish.offset = 10;
    wish.commit = 6;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
    CHECK_EQ(offset, 6);
    serve_end();
}

static void test_whatever_needs_words_is_handed_over_with_its_reason(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("pull-reasons", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    struct pull_wish wish = PLAIN;
    wish.topic = "unknown";
    CHECK_EQ(reason(pull(connection, &wish)), PYMQ_REASON_TOPIC_UNKNOWN);
    wish = PLAIN;
    wish.group = "unknown";
    CHECK_EQ(reason(pull(connection, &wish)), PYMQ_REASON_GROUP_UNKNOWN);
    wish = PLAIN;
    wish.queue_id = 4;
    CHECK_EQ(reason(pull(connection, &wish)), PYMQ_REASON_FIELD);
    wish.queue_id = -1;
    CHECK_EQ(reason(pull(connection, &wish)), PYMQ_REASON_FIELD);
    struct pull_text text_of;
    pull_request(&text_of, &PLAIN);
    text_of.request.fields[8][1] = "12x"; /* queueOffset */
    CHECK_EQ(reason(offer(connection, &text_of.request)), PYMQ_REASON_FIELD);
    pull_request(&text_of, &PLAIN);
    text_of.request.fields[11][0] = "unknownField"; /* no consumerGroup */
    CHECK_EQ(reason(offer(connection, &text_of.request)), PYMQ_REASON_FIELD);
    pull_request(&text_of, &PLAIN);
    text_of.request.fields[12][0] = "liteTopic";
    text_of.request.fields[12][1] = "x";
    CHECK_EQ(reason(offer(connection, &text_of.request)), PYMQ_REASON_FIELD);
    struct pymq_group_row disabled = {.name = (const uint8_t *)"G", .name_size = 1, .flags = PYMQ_GROUP_DISABLED};
    CHECK_EQ(pymq_serve_publish_group(served.serve, &disabled), PYMQ_OK);
    CHECK_EQ(reason(pull(connection, &PLAIN)), PYMQ_REASON_GROUP_SPECIAL);
    publish_group("G");
    struct pymq_topic_row closed = {.name = (const uint8_t *)"T", .name_size = 1, .permission = 2, .read_queues = 4,
                                    .write_queues = 4};
    CHECK_EQ(pymq_serve_publish_topic(served.serve, &closed), PYMQ_OK);
    CHECK_EQ(reason(pull(connection, &PLAIN)), PYMQ_REASON_PERMISSION);
    publish("T", 4);
    config.broker_permission = 2;
    pymq_serve_configure(served.serve, &config);
    CHECK_EQ(reason(pull(connection, &PLAIN)), PYMQ_REASON_PERMISSION);
    struct answer answer;
    CHECK(!take_answer(connection, &answer));
    serve_end();
}

int main(void) {
    RUN(test_answer_has_the_bytes_of_the_recorded_one);
    RUN(test_offsets_outside_the_queue_are_answered_as_apache_does);
    RUN(test_batch_is_full_by_count_by_bytes_and_by_where_it_lies);
    RUN(test_far_behind_is_sent_to_the_slave_only_when_reading_there_is_allowed);
    RUN(test_tags_are_filtered_by_hash_and_nothing_else_is_sent);
    RUN(test_one_pull_looks_at_800_units_at_most);
    RUN(test_pull_that_asks_for_very_many_walks_a_bounded_way);
    RUN(test_pull_finds_the_queue_that_took_a_removed_ones_place);
    RUN(test_offset_riding_on_a_pull_is_committed_once);
    RUN(test_reset_is_told_until_the_group_has_pulled_from_it);
    RUN(test_older_offset_riding_on_the_pull_that_follows_a_reset_is_not_committed);
    RUN(test_whatever_needs_words_is_handed_over_with_its_reason);
    return check_summary();
}
