/* Messages that are stored elsewhere than they were sent to, natively: delayed ones under their level, half messages in
 * the half topic. What the answer says is about where they were sent to. */
#include "serve_help.h"

#define KEY "0123456789ABCDEF0123456789ABCDEF"
#define UNIQUE "UNIQ_KEY\x01" KEY "\x02"
#define ADDED "MSG_REGION\x01" "DefaultRegion\x02TRACE_ON\x01true\x02" "CLUSTER\x01" "DefaultCluster\x02"
#define SCHEDULE "SCHEDULE_TOPIC_XXXX"
#define HALF "RMQ_SYS_TRANS_HALF_TOPIC"
#define HALF_FLAGS "TRAN_MSG\x01true\x02PGROUP\x01group\x02"

static struct pymq_connection *connection;

static void start(const char *name, const char *levels) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    CHECK_EQ(pymq_delay_levels_parse(levels, &store.delay_levels), PYMQ_OK);
    config.delay_level_max = store.delay_levels.count;
    config.transactions = true;
    serve_start(name, &store, &config);
    publish("TopicA", 4);
    publish(SCHEDULE, 18);
    publish(HALF, 1);
    connection = fake_connect(0);
}

static void check_record(const char *topic, int32_t queue_id, int64_t offset, const char *properties, int32_t flags) {
    struct pymq_span span;
    struct pymq_record record;
    stored_record(topic, queue_id, offset, &span, &record);
    CHECK_BYTES(record.properties.data, record.properties.size, properties, strlen(properties));
    CHECK_EQ(record.queue_id, queue_id);
    CHECK_EQ(record.sys_flag, flags);
    CHECK_BYTES(record.topic.data, record.topic.size, topic, strlen(topic));
    pymq_span_release(served.store, &span);
}

static void send(const char *queue_id, const char *properties) {
    struct request request = send_request(1, "TopicA", queue_id, properties, "body");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
}

static void check_answer(const char *queue_id, const char *queue_offset, const char *key) {
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    check_field(&answer, "queueId", queue_id);
    check_field(&answer, "queueOffset", queue_offset);
    if (key != NULL)
        check_field(&answer, "transactionId", key);
}

static void test_a_delayed_message_waits_under_its_level(void) {
    start("delayed", "1s 5s 10s");
    send("3", "a\x01" "b\x02" "DELAY\x01" "2\x02" UNIQUE "c\x01" "d");
    check_answer("3", "0", KEY);
    check_record(SCHEDULE, 1, 0,
                 "a\x01" "b\x02" "DELAY\x01" "2\x02" UNIQUE "c\x01" "d\x02"
                 "REAL_TOPIC\x01" "TopicA\x02" "REAL_QID\x01" "3\x02" ADDED,
                 0);
    send("0", "DELAY\x01" "2\x02" UNIQUE);
    check_answer("0", "1", KEY);
    send("0", "DELAY\x01" "3\x02" UNIQUE);
    check_answer("0", "0", KEY);
    struct pymq_queue *queue; /* nothing was made where it was sent to */
    CHECK_EQ(pymq_store_queue(served.store, (const uint8_t *)"TopicA", 6, 3, false, &queue), PYMQ_ENOTFOUND);
    struct pymq_traffic rows[8];
    size_t count = pymq_serve_traffic(served.serve, rows, 8);
    CHECK(count <= 8);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(rows[i].messages, rows[i].topic.size == strlen(SCHEDULE) ? 3 : 0);
    serve_end();
}

static void test_level_zero_is_no_delay(void) {
    start("zero", "1s 5s 10s");
    send("1", "DELAY\x01" "0\x02" UNIQUE "REAL_QID\x01" "7\x02");
    check_answer("1", "0", KEY);
    check_record("TopicA", 1, 0, "DELAY\x01" "0\x02" UNIQUE "REAL_QID\x01" "7\x02" ADDED, 0);
    serve_end();
}

static void test_what_is_unusual_about_a_delay_is_handed_over(void) {
    start("unusual", "1s 5s 10s");
    const char *properties[] = {
        "DELAY\x01" "4\x02",
        "DELAY\x01" "-1\x02",
        "DELAY\x01" "+1\x02",
        "DELAY\x01" "01\x02",
        "DELAY\x01" "1 \x02",
        "DELAY\x01" "100\x02",
        "DELAY\x01" "x\x02",
        "DELAY\x01" "1\x02" "DELAY\x01" "2\x02",
        "DELAY\x01" "1\x02" "REAL_TOPIC\x01" "Mine\x02",
        "REAL_QID\x01" "1\x02" "DELAY\x01" "1\x02",
        "DELAY\x01" "1\x02" "TIMER_DELAY_SEC\x01" "1\x02",
        "DELAY\x01" "1\x02" "_SYS_MSG_PRIORITY_\x01" "1\x02",
        "DELAY\x01" "1\x02" HALF_FLAGS,
        "DELAY\x01" "0\x02" HALF_FLAGS,
        "TRAN_MSG\x01true\x02", /* no producer group */
        "TRAN_MSG\x01" "false\x02PGROUP\x01group\x02",
        HALF_FLAGS "__transactionId__\x01x\x02",
        HALF_FLAGS "TRAN_PREPARED_QUEUE_OFFSET\x01" "1\x02",
        HALF_FLAGS "TRANSACTION_CHECK_TIMES\x01" "1\x02",
        HALF_FLAGS "REAL_QID\x01" "1\x02",
    };
    for (size_t i = 0; i < sizeof properties / sizeof properties[0]; i++) {
        struct request request = send_request(1, "TopicA", "0", properties[i], "body");
        int outcome = offer(connection, &request);
        if (outcome != PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY)
            CHECK_FAIL("%s gave %d", properties[i], outcome);
        pymq_serve_send_settled(served.serve, pymq_connection_name(connection), (const uint8_t *)"TopicA", 6);
    }
    struct request batch = send_request(1, "TopicA", "0", "DELAY\x01" "1\x02", "body");
    batch.fields[11][1] = "true";
    CHECK_EQ(offer(connection, &batch), PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY);
    serve_end();
}

static void test_without_levels_or_transactions_both_are_handed_over(void) {
    start("off", "1s 5s 10s");
    struct pymq_serve_config config = serve_config();
    pymq_serve_configure(served.serve, &config);
    struct request delayed = send_request(1, "TopicA", "0", "DELAY\x01" "1\x02", "body");
    CHECK_EQ(offer(connection, &delayed), PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY);
    struct pymq_connection *other = fake_connect(0);
    struct request half = send_request(1, "TopicA", "0", HALF_FLAGS, "body");
    CHECK_EQ(offer(other, &half), PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY);
    serve_end();
}

static void test_a_half_message_waits_in_the_half_topic(void) {
    start("half", "1s 5s 10s");
    struct request request = send_request(1, "TopicA", "2", UNIQUE HALF_FLAGS "a\x01" "b\x02", "body");
    request.fields[5][1] = "5"; /* compressed, prepared */
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    check_answer("2", "0", KEY);
    check_record(HALF, 0, 0,
                 UNIQUE HALF_FLAGS "a\x01" "b\x02" "__transactionId__\x01" KEY "\x02"
                 "REAL_TOPIC\x01" "TopicA\x02" "REAL_QID\x01" "2\x02" ADDED,
                 PYMQ_SYS_COMPRESSED);
    send("1", HALF_FLAGS); /* without a key it is given one, and that is the transaction's */
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    const struct pymq_slice *key = pymq_command_field(&answer.command, "transactionId", 13);
    CHECK_EQ(key->size, 32);
    char expected[512];
    snprintf(expected, sizeof expected,
             HALF_FLAGS "UNIQ_KEY\x01%.32s\x02__transactionId__\x01%.32s\x02"
                        "REAL_TOPIC\x01TopicA\x02REAL_QID\x01" "1\x02" ADDED,
             (const char *)key->data, (const char *)key->data);
    check_record(HALF, 0, 1, expected, 0);
    serve_end();
}

static void test_flags_of_a_transaction_without_its_property_are_handed_over(void) {
    start("flags", "1s 5s 10s");
    struct request request = send_request(1, "TopicA", "2", UNIQUE, "body");
    request.fields[5][1] = "4";
    CHECK_EQ(offer(connection, &request), PYMQ_HAND_OVER + PYMQ_REASON_FIELD);
    struct pymq_connection *other = fake_connect(0);
    request = send_request(1, "TopicA", "2", UNIQUE HALF_FLAGS, "body");
    request.fields[5][1] = "8"; /* says committed */
    CHECK_EQ(offer(other, &request), PYMQ_HAND_OVER + PYMQ_REASON_FIELD);
    serve_end();
}

static void test_long_properties_of_waiting_messages_are_handed_over(void) {
    start("long", "1s 5s 10s");
    char properties[PYMQ_PROPERTIES_SIZE_MAX + 1];
    const int sizes[] = {31900, 32400, 32760}; /* both fit; a half does not; neither does */
    for (int i = 0; i < 3; i++) {
        for (int half = 0; half < 2; half++) {
            const char *head = half ? UNIQUE HALF_FLAGS "long\x01" : UNIQUE "DELAY\x01" "1\x02long\x01";
            memset(properties, 'v', (size_t)sizes[i]);
            memcpy(properties, head, strlen(head));
            properties[sizes[i] - 1] = '\x02';
            properties[sizes[i]] = '\0';
            struct pymq_connection *other = fake_connect(0);
            struct request request = send_request(1, "TopicA", "0", properties, "body");
            bool fits = i == 0 || (i == 1 && !half);
            CHECK_EQ(offer(other, &request), fits ? PYMQ_SERVED : PYMQ_HAND_OVER + PYMQ_REASON_FIELD);
            settle();
        }
    }
    serve_end();
}

/* Thousands of short names took a reactor half a second each, and everybody's heartbeats with it. */
static void test_many_properties_do_not_stop_a_reactor(void) {
    start("many", "1s 5s 10s");
    char properties[PYMQ_PROPERTIES_SIZE_MAX + 1];
    for (int count = 40; count <= 3500; count += 3460) {
        size_t size = 0;
        for (int i = 0; i < count; i++)
            size += (size_t)snprintf(properties + size, sizeof properties - size, "%c%c%c\x01v\x02", 'a' + i % 26,
                                     'a' + i / 26 % 26, 'a' + i / 676);
        struct pymq_connection *other = fake_connect(0);
        struct request request = send_request(1, "TopicA", "0", properties, "body");
        CHECK_EQ(offer(other, &request), count == 40 ? PYMQ_SERVED : PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY);
        request.fields[11][1] = "true"; /* a batch's own */
        CHECK(count == 40 || offer(fake_connect(1), &request) == PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY);
        settle();
    }
    serve_end();
}

int main(void) {
    RUN(test_a_delayed_message_waits_under_its_level);
    RUN(test_level_zero_is_no_delay);
    RUN(test_what_is_unusual_about_a_delay_is_handed_over);
    RUN(test_without_levels_or_transactions_both_are_handed_over);
    RUN(test_a_half_message_waits_in_the_half_topic);
    RUN(test_flags_of_a_transaction_without_its_property_are_handed_over);
    RUN(test_many_properties_do_not_stop_a_reactor);
    RUN(test_long_properties_of_waiting_messages_are_handed_over);
    return check_summary();
}
