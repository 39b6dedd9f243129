/* CONSUMER_SEND_MSG_BACK, natively: what the message becomes, which level it waits under, what is left to Python. */
#include "serve_help.h"

#define SCHEDULE "SCHEDULE_TOPIC_XXXX"
#define RETRY "%RETRY%group"
#define PROPERTIES "a\x01" "b\x02" "WAIT\x01true\x02" "TIMER_DELAY_SEC\x01" "9\x02" "c\x01" "d\x02"

static struct pymq_connection *connection;

static void publish_retry_group(const char *group, int32_t queues, int32_t times_max) {
    struct pymq_group_row row = {.name = (const uint8_t *)group,
                                 .name_size = (uint32_t)strlen(group),
                                 .retry_queues = queues,
                                 .retry_max_times = times_max};
    CHECK_EQ(pymq_serve_publish_group(served.serve, &row), PYMQ_OK);
}

static void publish_system(const char *topic, int32_t queues) {
    struct pymq_topic_row row = {.name = (const uint8_t *)topic,
                                 .name_size = (uint32_t)strlen(topic),
                                 .permission = 6,
                                 .read_queues = queues,
                                 .write_queues = queues,
                                 .flags = PYMQ_TOPIC_SEND_SPECIAL};
    CHECK_EQ(pymq_serve_publish_topic(served.serve, &row), PYMQ_OK);
}

static void start_with(const char *name, struct pymq_store_config *store) {
    struct pymq_serve_config config = serve_config();
    CHECK_EQ(pymq_delay_levels_parse("1s 5s 10s 20s 30s", &store->delay_levels), PYMQ_OK);
    config.delay_level_max = store->delay_levels.count;
    config.hot_bytes = 0; /* always ask whether a record is in memory */
    serve_start(name, store, &config);
    publish("TopicA", 4);
    publish_system(SCHEDULE, 18);
    publish_system("RMQ_SYS_TRANS_HALF_TOPIC", 1);
    publish(RETRY, 1);
    publish_retry_group("group", 1, 16);
    connection = fake_connect(0);
}

static void start(const char *name) {
    struct pymq_store_config store = small_config();
    start_with(name, &store);
}

static struct pymq_put stored(const char *topic, const char *properties, int32_t reconsume_times) {
    struct pymq_put put = {
        .topic = text(topic),
        .body = text("body"),
        .properties = text(properties),
        .queue_id = 1,
        .flag = 5,
        .reconsume_times = reconsume_times,
        .born_timestamp_ms = 12345,
        .born_host = {.address = {192, 0, 2, 9}, .size = 4, .port = 77},
    };
    CHECK_EQ(pymq_serve_put(served.serve, &put, 1, false), PYMQ_OK);
    return put;
}

static struct request back_request(const char *offset, const char *level) {
    return (struct request){
        .code = 36,
        .opaque = 9,
        .fields = {{"offset", offset}, {"group", "group"}, {"delayLevel", level}, {"originMsgId", "id"},
                   {"originTopic", "TopicA"}, {"unitMode", "false"}, {"maxReconsumeTimes", "16"}},
    };
}

static int send_back(const struct pymq_put *put, const char *level) {
    char offset[24];
    snprintf(offset, sizeof offset, "%lld", (long long)put->physical_offset);
    struct request request = back_request(offset, level);
    int outcome = offer(connection, &request);
    settle();
    return outcome;
}

static void check_answer(int32_t code) {
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, code);
    CHECK_EQ(answer.command.opaque, 9);
    CHECK_EQ(answer.command.field_count, 0);
}

static void test_a_message_waits_under_its_level_for_the_retry_topic(void) {
    start("back");
    struct pymq_put put = stored("TopicA", PROPERTIES, 0);
    CHECK_EQ(send_back(&put, "0"), PYMQ_SERVED);
    check_answer(0);
    struct pymq_span span;
    struct pymq_record record;
    stored_record(SCHEDULE, 2, 0, &span, &record);
    char expected[512];
    snprintf(expected, sizeof expected,
             "a\x01" "b\x02" "c\x01" "d\x02WAIT\x01" "false\x02" "DELAY\x01" "3\x02REAL_TOPIC\x01%s\x02"
             "REAL_QID\x01" "0\x02RETRY_TOPIC\x01TopicA\x02ORIGIN_MESSAGE_ID\x01" "7F00000200002A9F%016llX\x02",
             RETRY, (unsigned long long)put.physical_offset);
    CHECK_BYTES(record.properties.data, record.properties.size, expected, strlen(expected));
    CHECK_EQ(record.reconsume_times, 1);
    CHECK_EQ(record.born_timestamp_ms, 12345);
    CHECK_EQ(record.born_host.port, 77);
    CHECK_EQ(record.flag, 5);
    struct pymq_reput delivery = {.source = record.physical_offset, .queue_id = -1, .reconsume_times = -1};
    delivery.remove = text("DELAY\x02");
    pymq_span_release(served.store, &span);

    /* Delivered, and back once more: it keeps where it came from, and waits longer. */
    CHECK_EQ(pymq_serve_reput(served.serve, &delivery, 1, false), 1);
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    struct pymq_put again = {.physical_offset = delivery.physical_offset};
    CHECK_EQ(send_back(&again, "0"), PYMQ_SERVED);
    check_answer(0);
    stored_record(SCHEDULE, 3, 0, &span, &record);
    snprintf(expected, sizeof expected,
             "a\x01" "b\x02" "c\x01" "d\x02RETRY_TOPIC\x01TopicA\x02"
             "ORIGIN_MESSAGE_ID\x01" "7F00000200002A9F%016llX\x02" "WAIT\x01" "false\x02"
             "DELAY\x01" "4\x02REAL_TOPIC\x01%s\x02REAL_QID\x01" "0\x02",
             (unsigned long long)put.physical_offset, RETRY);
    CHECK_BYTES(record.properties.data, record.properties.size, expected, strlen(expected));
    CHECK_EQ(record.reconsume_times, 2);
    pymq_span_release(served.store, &span);

    CHECK_EQ(send_back(&put, "1"), PYMQ_SERVED); /* as asked, */
    CHECK_EQ(send_back(&put, "99"), PYMQ_SERVED); /* or the highest there is */
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    CHECK_EQ(info_of(served.store, SCHEDULE, 0).max_offset, 1);
    CHECK_EQ(info_of(served.store, SCHEDULE, 4).max_offset, 1);
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    CHECK_EQ(stats.sent_back, 4);
    serve_end();
}

static void test_dead_letters_are_left_to_python(void) {
    start("dead");
    struct pymq_put put = stored("TopicA", PROPERTIES, 0), worn = stored("TopicA", PROPERTIES, 16);
    CHECK_EQ(send_back(&put, "-1"), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE);
    CHECK_EQ(send_back(&worn, "0"), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE);
    char offset[24];
    snprintf(offset, sizeof offset, "%lld", (long long)worn.physical_offset);
    struct request request = back_request(offset, "0");
    request.fields[6][1] = "17"; /* the request's own maximum counts */
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    publish_retry_group("group", 1, 20);
    request.fields[6][0] = "other"; /* and without one the group's */
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    serve_end();
}

static void test_what_is_not_there_is_left_to_python(void) {
    start("missing");
    struct pymq_put put = stored("TopicA", PROPERTIES, 0);
    char offset[24];
    snprintf(offset, sizeof offset, "%lld", (long long)put.physical_offset);
    struct {
        size_t field;
        const char *value;
        int reason;
    } wrong[] = {
        {0, "1", PYMQ_REASON_MESSAGE}, {0, "-1", PYMQ_REASON_MESSAGE}, {0, "1000000", PYMQ_REASON_MESSAGE},
        {0, "x", PYMQ_REASON_FIELD},   {1, "nobody", PYMQ_REASON_GROUP_UNKNOWN}, {1, "", PYMQ_REASON_FIELD},
        {2, "x", PYMQ_REASON_FIELD},   {6, "x", PYMQ_REASON_FIELD},    {1, "other", PYMQ_REASON_TOPIC_UNKNOWN},
        {1, "none", PYMQ_REASON_GROUP_UNKNOWN},
    };
    publish_retry_group("other", 1, 16); /* without its retry topic */
    publish_retry_group("none", 0, 16);  /* wants nothing back */
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct request request = back_request(offset, "0");
        request.fields[wrong[i].field][1] = wrong[i].value;
        int outcome = offer(connection, &request);
        if (outcome != PYMQ_HAND_OVER + wrong[i].reason)
            CHECK_FAIL("%s gave %d", wrong[i].value, outcome);
    }
    struct pymq_put blank = stored("TopicA", "ORIGIN_MESSAGE_ID\x01 \x02", 0);
    CHECK_EQ(send_back(&blank, "0"), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE);
    struct pymq_topic_row row = {.name = (const uint8_t *)RETRY, .name_size = sizeof RETRY - 1, .permission = 4,
                                 .read_queues = 1, .write_queues = 1};
    CHECK_EQ(pymq_serve_publish_topic(served.serve, &row), PYMQ_OK);
    CHECK_EQ(send_back(&put, "0"), PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN);
    serve_end();
}

static void test_messages_that_wait_are_not_shown_by_sending_them_back(void) {
    start("hidden");
    struct pymq_put half = stored("RMQ_SYS_TRANS_HALF_TOPIC", PROPERTIES, 0), delayed = stored(SCHEDULE, PROPERTIES, 0);
    struct pymq_put nowhere = stored("Unknown", PROPERTIES, 0);
    CHECK_EQ(send_back(&half, "0"), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE);
    CHECK_EQ(send_back(&delayed, "0"), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE);
    CHECK_EQ(send_back(&nowhere, "0"), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE);
    serve_end();
}

static void test_retry_queues_are_spread_over(void) {
    start("spread");
    publish(RETRY, 3);
    publish_retry_group("group", 8, 16);
    struct pymq_put put = stored("TopicA", "", 0);
    int seen[3] = {0};
    for (int i = 0; i < 60; i++) {
        CHECK_EQ(send_back(&put, "0"), PYMQ_SERVED);
        struct pymq_span span;
        struct pymq_record record;
        stored_record(SCHEDULE, 2, i, &span, &record);
        struct pymq_slice queue_id =
            pymq_properties_find(record.properties.data, record.properties.size, "REAL_QID", 8);
        CHECK_EQ(queue_id.size, 1);
        CHECK(queue_id.data[0] >= '0' && queue_id.data[0] <= '2'); /* not beyond the queues the topic has */
        seen[queue_id.data[0] - '0']++;
        pymq_span_release(served.store, &span);
    }
    CHECK(seen[0] > 0 && seen[1] > 0 && seen[2] > 0);
    serve_end();
}

static void test_a_store_that_refuses_says_so(void) {
    start("refuses");
    struct pymq_put put = stored("TopicA", PROPERTIES, 0);
    char offset[24];
    snprintf(offset, sizeof offset, "%lld", (long long)put.physical_offset);
    struct request request = back_request(offset, "0");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    pymq_store_set_writable(served.store, false);
    settle();
    check_answer(1);
    CHECK_EQ(send_back(&put, "0"), PYMQ_HAND_OVER + PYMQ_REASON_STORE);
    pymq_store_set_writable(served.store, true);
    serve_end();
}

static void test_answers_wait_for_the_disk_and_say_when_it_is_late(void) {
    struct pymq_store_config store = small_config();
    store.replica_gate = true;
    start_with("late", &store);
    struct pymq_put put = stored("TopicA", PROPERTIES, 0);
    pymq_store_set_replica(served.store, put.end_offset, true);
    CHECK_EQ(send_back(&put, "0"), PYMQ_SERVED);
    CHECK_EQ(send_back(&put, "0"), PYMQ_SERVED);
    struct answer answer;
    CHECK(!take_answer(connection, &answer));
    struct pymq_watermarks marks;
    pymq_store_watermarks(served.store, &marks);
    pymq_store_set_replica(served.store, marks.written - 1, true);
    served.service->event(served.service->context, &fake.reactor);
    check_answer(0);
    CHECK(!take_answer(connection, &answer));
    fake.reactor.now_ms += 6000;
    served.service->timer(served.service->context, &fake.reactor, fake.reactor.now_ms);
    CHECK(take_answer(connection, &answer));
    CHECK(answer.command.code == 10 || answer.command.code == 12);
    CHECK(answer.command.remark.size > 0);
    pymq_store_set_replica(served.store, INT64_MAX / 2, true);
    serve_end();
}

int main(void) {
    RUN(test_a_message_waits_under_its_level_for_the_retry_topic);
    RUN(test_dead_letters_are_left_to_python);
    RUN(test_what_is_not_there_is_left_to_python);
    RUN(test_messages_that_wait_are_not_shown_by_sending_them_back);
    RUN(test_retry_queues_are_spread_over);
    RUN(test_a_store_that_refuses_says_so);
    RUN(test_answers_wait_for_the_disk_and_say_when_it_is_late);
    return check_summary();
}
