/* Native sends: what is stored, what is answered, what is handed over, and in which order. */
#include <unistd.h>

#include "../../csrc/store/store_internal.h"
#include "serve_help.h"

static void start(const char *name) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    serve_start(name, &store, &config);
    publish("TopicA", 4);
}

static int reason_of(int outcome) {
    CHECK(outcome >= PYMQ_HAND_OVER);
    return outcome - PYMQ_HAND_OVER;
}

static void check_properties(const char *topic, int32_t queue_id, int64_t offset, const char *expected) {
    struct pymq_span span;
    struct pymq_record record;
    stored_record(topic, queue_id, offset, &span, &record);
    if (record.properties.size != strlen(expected) || memcmp(record.properties.data, expected, strlen(expected)) != 0)
        CHECK_FAIL("properties are %.*s, expected %s", (int)record.properties.size,
                   (const char *)record.properties.data, expected);
    pymq_span_release(served.store, &span);
}

#define ADDED "MSG_REGION\x01" "DefaultRegion\x02" "TRACE_ON\x01true\x02" "CLUSTER\x01" "DefaultCluster\x02"
#define UNIQUE "UNIQ_KEY\x01" "0123456789ABCDEF0123456789ABCDEF\x02"

/* ---- what is stored and answered -------------------------------------------------------------------------------- */

static void test_a_send_is_stored_with_all_its_parts(void) {
    start("parts");
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(9, "TopicA", "2", "KEYS\x01k1\x02" UNIQUE "TAGS\x01t\x02", "hello");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    CHECK_EQ(connection->output_size, 0); /* not before it is in the log */
    settle();
    struct pymq_span span;
    struct pymq_record record;
    stored_record("TopicA", 2, 0, &span, &record);
    CHECK_BYTES(record.body.data, record.body.size, "hello", 5);
    CHECK_EQ(record.flag, 7);
    CHECK_EQ(record.sys_flag, 0);
    CHECK_EQ(record.born_timestamp_ms, 1794794388118);
    CHECK_EQ(record.born_host.port, 40000);
    CHECK_EQ(record.born_host.address[0], 192);
    CHECK_EQ(record.store_host.port, 10911);
    CHECK_EQ(record.store_host.address[3], 2);
    pymq_span_release(served.store, &span);
    check_properties("TopicA", 2, 0, "KEYS\x01k1\x02" UNIQUE "TAGS\x01t\x02" ADDED);

    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK_EQ(answer.command.opaque, 9);
    CHECK_EQ(answer.command.flag, PYMQ_COMMAND_RESPONSE);
    check_field(&answer, "queueId", "2");
    check_field(&answer, "queueOffset", "0");
    check_field(&answer, "transactionId", "0123456789ABCDEF0123456789ABCDEF");
    check_field(&answer, "msgId", "7F00000200002A9F0000000000000000");
    CHECK(!take_answer(connection, &answer));
    serve_end();
}

static void test_a_message_without_properties_gets_the_brokers_own(void) {
    start("own");
    struct pymq_connection *connection = fake_connect(0);
    char body[129] = {0};
    memset(body, 'x', 128);
    struct request request = send_request(1, "TopicA", "0", "", body);
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    const struct pymq_slice *key = pymq_command_field(&answer.command, "transactionId", 13);
    CHECK(key != NULL);
    CHECK_EQ(key->size, PYMQ_UNIQUE_KEY_SIZE);
    char expected[256];
    snprintf(expected, sizeof expected, "UNIQ_KEY\x01%.*s\x02" ADDED, (int)key->size, (const char *)key->data);
    check_properties("TopicA", 0, 0, expected);
    serve_end();
}

static void test_what_is_the_brokers_to_say_is_replaced(void) {
    start("replaced");
    struct pymq_connection *connection = fake_connect(0);
    static const char properties[] = "CLUSTER\x01mine\x02" UNIQUE "POP_CK\x01x\x02" "broken\x02" "\x01none\x02"
                                     "u\x01v\x02" "TRACE_ON\x01no\x02" "MSG_REGION\x01moon";
    struct request request = send_request(1, "TopicA", "0", properties, "b");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    check_properties("TopicA", 0, 0, UNIQUE "u\x01v\x02" ADDED);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    check_field(&answer, "transactionId", "0123456789ABCDEF0123456789ABCDEF");
    serve_end();
}

static void test_a_missing_last_separator_is_added(void) {
    start("separator");
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(1, "TopicA", "0", UNIQUE "u\x01v", "b");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    check_properties("TopicA", 0, 0, UNIQUE "u\x01v\x02" ADDED);
    serve_end();
}

static void test_a_queue_below_zero_is_any_writable_queue(void) {
    start("any");
    struct pymq_connection *connection = fake_connect(0);
    int64_t found = 0;
    for (int i = 0; i < 64; i++) {
        struct request request = send_request(i, "TopicA", "-1", UNIQUE, "b");
        CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    }
    settle();
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    for (int32_t i = 0; i < 4; i++) {
        int64_t here = info_of(served.store, "TopicA", i).max_offset;
        CHECK(here > 0); /* 64 throws at 4 queues: none stays empty but once in 10^8 */
        found += here;
    }
    CHECK_EQ(found, 64);
    serve_end();
}

static void test_oneway_sends_are_stored_and_not_answered(void) {
    start("oneway");
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "b");
    request.flag = PYMQ_COMMAND_ONEWAY;
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    check_properties("TopicA", 0, 0, UNIQUE ADDED);
    CHECK_EQ(connection->output_size, 0);
    serve_end();
}

/* ---- order ------------------------------------------------------------------------------------------------------ */

static void test_many_sends_of_a_turn_keep_their_order_and_answers(void) {
    start("many");
    struct pymq_connection *connections[3] = {fake_connect(0), fake_connect(1), fake_connect(2)};
    char body[32];
    for (int i = 0; i < 3000; i++) { /* more than one append holds, in a log of many small files */
        snprintf(body, sizeof body, "message %d", i);
        struct request request = send_request(i, "TopicA", i % 2 == 0 ? "0" : "1", UNIQUE, body);
        CHECK_EQ(offer(connections[i % 3], &request), PYMQ_SERVED);
    }
    settle();
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    struct answer answer;
    for (int i = 0; i < 3000; i++) {
        snprintf(body, sizeof body, "message %d", i);
        check_stored("TopicA", i % 2, i / 2, body);
        CHECK(take_answer(connections[i % 3], &answer));
        CHECK_EQ(answer.command.opaque, i);
        CHECK_EQ(answer.command.code, 0);
        char offset[16];
        snprintf(offset, sizeof offset, "%d", i / 2);
        check_field(&answer, "queueOffset", offset);
    }
    serve_end();
}

static void test_a_send_behind_a_handed_over_one_waits_for_it(void) {
    start("order");
    struct pymq_connection *connection = fake_connect(0), *other = fake_connect(1);
    struct request first = send_request(1, "New", "0", UNIQUE, "first");
    struct request second = send_request(2, "New", "0", UNIQUE, "second");
    struct request elsewhere = send_request(3, "TopicA", "0", UNIQUE, "b");
    CHECK_EQ(reason_of(offer(connection, &first)), PYMQ_REASON_TOPIC_UNKNOWN);
    publish("New", 4);
    CHECK_EQ(reason_of(offer(connection, &second)), PYMQ_REASON_ORDER);
    CHECK_EQ(offer(connection, &elsewhere), PYMQ_SERVED);
    CHECK_EQ(offer(other, &second), PYMQ_SERVED);
    pymq_serve_send_settled(served.serve, connection->name, (const uint8_t *)"New", 3);
    CHECK_EQ(reason_of(offer(connection, &second)), PYMQ_REASON_ORDER); /* one of two is still out */
    pymq_serve_send_settled(served.serve, connection->name, (const uint8_t *)"New", 3);
    pymq_serve_send_settled(served.serve, connection->name, (const uint8_t *)"New", 3);
    CHECK_EQ(offer(connection, &second), PYMQ_SERVED);
    settle();
    serve_end();
}

static void test_what_was_collected_is_in_the_log_before_a_hand_over(void) {
    start("before");
    struct pymq_connection *connection = fake_connect(0);
    struct request plain = send_request(1, "TopicA", "0", UNIQUE, "plain");
    struct request special = send_request(2, "TopicA", "0", UNIQUE "DELAY\x01" "3\x02", "later");
    CHECK_EQ(offer(connection, &plain), PYMQ_SERVED);
    CHECK_EQ(reason_of(offer(connection, &special)), PYMQ_REASON_PROPERTY);
    turn_ends();
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    check_stored("TopicA", 0, 0, "plain"); /* without any settle */
    serve_end();
}

static void test_a_dropped_or_closed_send_holds_nobody_back(void) {
    start("dropped");
    struct pymq_connection *connection = fake_connect(0);
    struct request unknown = send_request(1, "New", "0", UNIQUE, "first");
    uint8_t frame[1024];
    size_t size = request_encode(&unknown, frame, sizeof frame);
    CHECK_EQ(reason_of(offer_frame(connection, frame, size)), PYMQ_REASON_TOPIC_UNKNOWN);
    publish("New", 4);
    served.service->dropped(served.service->context, connection->name, 310, frame, size);
    CHECK_EQ(offer_frame(connection, frame, size), PYMQ_SERVED);

    struct request special = send_request(2, "New", "0", "TRAN_MSG\x01true\x02", "half");
    CHECK_EQ(reason_of(offer(connection, &special)), PYMQ_REASON_PROPERTY);
    CHECK_EQ(reason_of(offer(connection, &unknown)), PYMQ_REASON_ORDER);
    served.service->closed(served.service->context, &fake.reactor, connection->name);
    CHECK_EQ(offer(connection, &unknown), PYMQ_SERVED);
    settle();
    serve_end();
}

/* Sends with a header that only Python reads once were overtaken by the native ones behind them. */
static void test_a_send_behind_an_unreadable_frame_waits_for_it(void) {
    start("unreadable");
    struct pymq_connection *connection = fake_connect(0), *other = fake_connect(1);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "before");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    served.service->unreadable(served.service->context, &fake.reactor, connection, (const uint8_t *)"?", 1);
    check_stored("TopicA", 0, 0, "before"); /* in the log before the control loop can begin */
    CHECK_EQ(reason_of(offer(connection, &request)), PYMQ_REASON_ORDER);
    CHECK_EQ(offer(other, &request), PYMQ_SERVED);
    pymq_serve_send_settled(served.serve, connection->name, NULL, 0);
    pymq_serve_send_settled(served.serve, connection->name, (const uint8_t *)"TopicA", 6);
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    served.service->unreadable(served.service->context, &fake.reactor, connection, (const uint8_t *)"?", 1);
    served.service->dropped(served.service->context, connection->name, -1, (const uint8_t *)"?", 1);
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    serve_end();
}

static void test_sends_of_the_python_plane_are_not_overtaken_when_it_is_left(void) {
    start("switch");
    struct pymq_serve_config config = serve_config();
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "b");
    config.native = false;
    pymq_serve_configure(served.serve, &config);
    CHECK_EQ(reason_of(offer(connection, &request)), PYMQ_REASON_PLANE);
    config.native = true;
    pymq_serve_configure(served.serve, &config);
    CHECK_EQ(reason_of(offer(connection, &request)), PYMQ_REASON_ORDER);
    pymq_serve_send_settled(served.serve, connection->name, (const uint8_t *)"TopicA", 6);
    pymq_serve_send_settled(served.serve, connection->name, (const uint8_t *)"TopicA", 6);
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    serve_end();
}

/* ---- what is handed over ---------------------------------------------------------------------------------------- */

static void expect_reason(struct request request, int reason) {
    static unsigned slot; /* a connection each: no order among them */
    struct pymq_connection *connection = fake_connect(slot++ % FAKE_CONNECTIONS);
    CHECK_EQ(reason_of(offer(connection, &request)), reason);
    settle();
    CHECK_EQ(connection->output_size, 0);
}

static void test_whatever_is_special_goes_to_the_control_loop(void) {
    start("special");
    struct pymq_topic_row row = {.name = (const uint8_t *)"Static", .name_size = 6, .read_queues = 1, .write_queues = 1,
                                 .permission = 6, .flags = PYMQ_TOPIC_SEND_SPECIAL};
    CHECK_EQ(pymq_serve_publish_topic(served.serve, &row), PYMQ_OK);
    publish("%RETRY%group", 1);
    publish("WriteOnly", 0);
    static const char *const special[] = {
        "DELAY\x01" "1\x02", "TIMER_DELAY_SEC\x01" "1\x02", "TIMER_DELIVER_MS\x01" "1\x02",
        "TIMER_DELAY_MS\x01" "1\x02", "TRAN_MSG\x01true\x02", "INNER_MULTI_DISPATCH\x01q\x02",
        "__LITE_TOPIC\x01l\x02", "_SYS_MSG_PRIORITY_\x01" "2\x02", "INNER_NUM\x01" "2\x02",
        "a\x01" "1\x02" "b\x01" "2\x02" "a\x01" "3\x02",
    };
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        expect_reason(send_request(1, "TopicA", "0", special[i], "b"), PYMQ_REASON_PROPERTY);
    expect_reason(send_request(1, "Static", "0", "", "b"), PYMQ_REASON_TOPIC_SPECIAL);
    expect_reason(send_request(1, "%RETRY%group", "0", "", "b"), PYMQ_REASON_TOPIC_SPECIAL);
    expect_reason(send_request(1, "TopicA", "4", "", "b"), PYMQ_REASON_FIELD);
    expect_reason(send_request(1, "TopicA", "x", "", "b"), PYMQ_REASON_FIELD);
    expect_reason(send_request(1, "WriteOnly", "-1", "", "b"), PYMQ_REASON_FIELD);
    expect_reason(send_request(1, "TopicA", "0", "", ""), PYMQ_REASON_FIELD); /* Apache takes an empty body for none */
    char *large = malloc(4098);
    memset(large, 'x', 4097);
    large[4097] = '\0';
    expect_reason(send_request(1, "TopicA", "0", "", large), PYMQ_REASON_FIELD);
    free(large);
    struct request prepared = send_request(1, "TopicA", "0", "", "b");
    prepared.fields[5][1] = "4"; /* sysFlag: a transaction's first half */
    expect_reason(prepared, PYMQ_REASON_FIELD);
    struct request no_group = send_request(1, "TopicA", "0", "", "b");
    no_group.fields[0][0] = "z";
    expect_reason(no_group, PYMQ_REASON_FIELD);
    struct request other_code = send_request(1, "TopicA", "0", "", "b");
    other_code.code = 41;
    expect_reason(other_code, PYMQ_REASON_CODE);
    CHECK_EQ(info_of(served.store, "TopicA", 0).max_offset, 0);
    serve_end();
}

static void test_properties_that_grow_too_long_are_handed_over(void) {
    start("long");
    char *properties = malloc(PYMQ_PROPERTIES_SIZE_MAX + 1);
    memset(properties, 'x', PYMQ_PROPERTIES_SIZE_MAX);
    properties[1] = 1;
    properties[PYMQ_PROPERTIES_SIZE_MAX - 1] = 2;
    properties[PYMQ_PROPERTIES_SIZE_MAX] = '\0';
    expect_reason(send_request(1, "TopicA", "0", properties, "b"), PYMQ_REASON_FIELD);
    free(properties);
    serve_end();
}

static void test_a_plane_or_permission_that_is_off_hands_over_everything(void) {
    start("plane");
    struct pymq_serve_config config = serve_config();
    config.native = false;
    pymq_serve_configure(served.serve, &config);
    expect_reason(send_request(1, "TopicA", "0", "", "b"), PYMQ_REASON_PLANE);
    config = serve_config();
    config.broker_permission = 4;
    pymq_serve_configure(served.serve, &config);
    expect_reason(send_request(1, "TopicA", "0", "", "b"), PYMQ_REASON_PERMISSION);
    pymq_store_set_writable(served.store, false);
    config = serve_config();
    pymq_serve_configure(served.serve, &config);
    expect_reason(send_request(1, "TopicA", "0", "", "b"), PYMQ_REASON_STORE);
    serve_end();
}

/* ---- refusals --------------------------------------------------------------------------------------------------- */

static void test_a_store_that_refuses_at_the_last_moment_is_answered(void) {
    start("refuses");
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 5; i++) {
        struct request request = send_request(i, "TopicA", "0", UNIQUE, "b");
        CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    }
    pymq_store_set_writable(served.store, false);
    settle();
    struct answer answer;
    for (int i = 0; i < 5; i++) {
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.opaque, i);
        CHECK_EQ(answer.command.code, 14);
        CHECK(answer.command.remark.size > 20);
        check_field(&answer, "TRACE_ON", "true");
    }
    CHECK(!take_answer(connection, &answer));
    serve_end();
}

/* With an empty transient pool one turn once waited 400 ms for each of its sends, the control loop with it. */
static void test_an_empty_pool_is_not_waited_for(void) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    store.transient_pool_enable = true;
    store.transient_pool_size = 2;
    store.transient_pool_wait_ms = 60000; /* longer than any test waits */
    store.commit_interval_ms = 3600000;
    store.commit_thorough_interval_ms = 3600000;
    store.commit_least_pages = 1 << 20; /* nothing is given back */
    serve_start("pool", &store, &config);
    publish("TopicA", 4);
    struct pymq_connection *connection = fake_connect(0);
    int32_t refused = 0, stored = 0;
    for (int i = 0; i < 100; i++) {
        struct request request = send_request(i, "TopicA", "0", UNIQUE, "some two hundred bytes of record");
        CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    }
    settle();
    struct answer answer;
    while (take_answer(connection, &answer)) {
        stored += answer.command.code == 0;
        refused += answer.command.code == 2;
    }
    CHECK_EQ(stored + refused, 100);
    CHECK(stored > 0 && refused > 0);
    serve_end();
}

static void test_a_stuck_store_is_not_waited_for(void) {
    start("stuck");
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "b");
    atomic_store(&served.store->log.lock_begin_ms, pymq_now_ms() - 2000); /* somebody holds the append lock */
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 2);
    CHECK_EQ(answer.command.field_count, 0);
    static const char words[] = "[REJECTREQUEST]system busy, start flow control for a while: the commit log has been "
                                "locked for 20"; /* 2000 ms and a few */
    CHECK(answer.command.remark.size > sizeof words);
    CHECK_BYTES(answer.command.remark.data, sizeof words - 1, words, sizeof words - 1);
    CHECK(memmem(answer.command.remark.data, answer.command.remark.size, "limit 1000ms", 12) != NULL);
    atomic_store(&served.store->log.lock_begin_ms, 0);
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    CHECK(take_answer(connection, &answer));
    check_field(&answer, "queueOffset", "0");
    serve_end();
}

static void test_a_closed_connection_loses_its_answers_only(void) {
    start("gone");
    struct pymq_connection *gone = fake_connect(0), *stays = fake_connect(1);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "b");
    CHECK_EQ(offer(gone, &request), PYMQ_SERVED);
    CHECK_EQ(offer(stays, &request), PYMQ_SERVED);
    gone->is_open = false;
    settle();
    struct answer answer;
    CHECK_EQ(gone->output_size, 0);
    CHECK(take_answer(stays, &answer));
    check_field(&answer, "queueOffset", "1");
    serve_end();
}

/* ---- topics that go --------------------------------------------------------------------------------------------- */

static void test_a_removed_topic_is_unknown_and_a_new_one_starts_anew(void) {
    start("removed");
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "old");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    pymq_serve_remove_topic(served.serve, (const uint8_t *)"TopicA", 6, true);
    CHECK_EQ(pymq_store_remove_topic(served.store, (const uint8_t *)"TopicA", 6, 5000), PYMQ_OK);
    struct pymq_connection *other = fake_connect(1);
    CHECK_EQ(reason_of(offer(other, &request)), PYMQ_REASON_TOPIC_UNKNOWN);
    publish("TopicA", 4);
    struct pymq_connection *third = fake_connect(2);
    request.body = (const uint8_t *)"new";
    CHECK_EQ(offer(third, &request), PYMQ_SERVED);
    settle();
    struct answer answer;
    CHECK(take_answer(third, &answer));
    CHECK_EQ(answer.command.code, 0);
    check_field(&answer, "queueOffset", "0");
    check_stored("TopicA", 0, 0, "new");
    serve_end();
}

/* Deleting a topic while a producer sends once left a row with a dead queue behind: every send answered 17 for ever. */
static void test_a_queue_removed_under_its_row_is_looked_up_again(void) {
    start("under");
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "old");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    CHECK_EQ(pymq_store_remove_topic(served.store, (const uint8_t *)"TopicA", 6, 5000), PYMQ_OK);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    request.body = (const uint8_t *)"new";
    for (int i = 0; i < 3; i++)
        CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    for (int i = 0; i < 3; i++) {
        char offset[16];
        snprintf(offset, sizeof offset, "%d", i);
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.code, 0);
        check_field(&answer, "queueOffset", offset);
        check_stored("TopicA", 0, i, "new");
    }
    serve_end();
}

int main(void) {
    RUN(test_a_send_is_stored_with_all_its_parts);
    RUN(test_a_message_without_properties_gets_the_brokers_own);
    RUN(test_what_is_the_brokers_to_say_is_replaced);
    RUN(test_a_missing_last_separator_is_added);
    RUN(test_a_queue_below_zero_is_any_writable_queue);
    RUN(test_oneway_sends_are_stored_and_not_answered);
    RUN(test_many_sends_of_a_turn_keep_their_order_and_answers);
    RUN(test_a_send_behind_a_handed_over_one_waits_for_it);
    RUN(test_what_was_collected_is_in_the_log_before_a_hand_over);
    RUN(test_a_dropped_or_closed_send_holds_nobody_back);
    RUN(test_a_send_behind_an_unreadable_frame_waits_for_it);
    RUN(test_sends_of_the_python_plane_are_not_overtaken_when_it_is_left);
    RUN(test_whatever_is_special_goes_to_the_control_loop);
    RUN(test_properties_that_grow_too_long_are_handed_over);
    RUN(test_a_plane_or_permission_that_is_off_hands_over_everything);
    RUN(test_a_store_that_refuses_at_the_last_moment_is_answered);
    RUN(test_an_empty_pool_is_not_waited_for);
    RUN(test_a_stuck_store_is_not_waited_for);
    RUN(test_a_closed_connection_loses_its_answers_only);
    RUN(test_a_removed_topic_is_unknown_and_a_new_one_starts_anew);
    RUN(test_a_queue_removed_under_its_row_is_looked_up_again);
    return check_summary();
}
