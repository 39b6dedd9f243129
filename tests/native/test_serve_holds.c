/* Held pulls, one event at a time: what ends them, what they are answered then, and that none is forgotten. */
#include <poll.h>

#include "pull_help.h"

static const struct pull_wish HELD = {.opaque = 1, .count = 32, .version = 7, .sys_flag = PULL_SUSPEND,
                                      .suspend_ms = 15000};

static int64_t holds(void) {
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    return stats.holds;
}

/* Let the clock go on to `at_ms`, calling the timer when it wants to be. */
static void run_until(int64_t at_ms) {
    while (fake.reactor.due_ms <= at_ms) {
        fake.reactor.now_ms = pymq_max64(fake.reactor.now_ms, fake.reactor.due_ms);
        fake.reactor.due_ms = INT64_MAX;
        int64_t due_ms = served.service->timer(served.service->context, &fake.reactor, fake.reactor.now_ms);
        CHECK(due_ms > fake.reactor.now_ms);
        fake.reactor.due_ms = pymq_min64(fake.reactor.due_ms, due_ms);
    }
    fake.reactor.now_ms = at_ms;
}

static bool is_silent(struct pymq_connection *connection) {
    struct answer answer;
    return !take_answer(connection, &answer);
}

static void test_hold_is_answered_when_a_message_comes(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-arrival", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    CHECK(is_silent(connection));
    CHECK_EQ(holds(), 1);
    put_message(1, 0, NULL); /* another queue */
    dispatched();
    CHECK(is_silent(connection));
    put_message(0, 0, NULL);
    ring();
    expect_found(connection, 1, 0, 1, "1");
    CHECK_EQ(holds(), 0);
    CHECK_EQ(stats_now().holds_ended_arrival, 1);
    serve_end();
}

static void test_message_between_the_look_and_the_hold_is_not_missed(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-between", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    /* The first one is seen by the hold itself, not by an event: nobody watched when it came. */
    put_message(0, 0, "blue");
    dispatched();
    struct pull_wish wish = HELD;
    wish.offset = 1;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK_EQ(holds(), 1);
    put_message(0, 1, "red");
    ring();
    expect_found(connection, 1, 1, 1, "2");
    serve_end();
}

static void test_mismatch_keeps_the_hold_and_is_not_scanned_again(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-mismatch", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    for (int i = 0; i < 1000; i++) /* more than one pull would look at */
        put_message(0, i, "blue");
    dispatched();
    ring();
    CHECK(is_silent(connection));
    CHECK_EQ(holds(), 1);
    put_message(0, 1000, "red");
    ring();
    expect_found(connection, 1, 1000, 1, "1001"); /* at once, although Apache's pull would stop after 800 */
    serve_end();
}

static void test_hold_that_saw_only_others_messages_moves_its_client_on_when_time_is_up(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-moved", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    for (int i = 0; i < 7; i++)
        put_message(0, i, "blue");
    dispatched();
    ring();
    run_until(fake.reactor.now_ms + 16000);
    expect(connection, 1, 20, "NO_MATCHED_MESSAGE", "7", "0", "7");
    serve_end();
}

static void test_time_is_up_neither_early_nor_much_late(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-time", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    static const int64_t TIMES_MS[] = {0, 1, 63, 64, 65, 999, 15000, 30000, 32767, 32768, 33000, 100000};
    enum { COUNT = sizeof TIMES_MS / sizeof *TIMES_MS };
    int64_t begin_ms = fake.reactor.now_ms;
    for (int i = 0; i < COUNT; i++) {
        struct pull_wish wish = HELD;
        wish.opaque = i;
        wish.suspend_ms = TIMES_MS[i];
        CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    }
    CHECK_EQ(holds(), COUNT);
    for (int i = 0; i < COUNT; i++) {
        int64_t due_ms = begin_ms + TIMES_MS[i];
        if (i > 0 && TIMES_MS[i] > TIMES_MS[i - 1] + 128) {
            run_until(due_ms - 1);
            CHECK(is_silent(connection));
        }
        run_until(pymq_max64(fake.reactor.now_ms, due_ms + 128));
        struct answer answer;
        while (take_answer(connection, &answer))
            check_answer(&answer, answer.command.opaque, 19, "NO_MESSAGE_IN_QUEUE");
        CHECK(holds() <= COUNT - 1 - i);
    }
    CHECK_EQ(holds(), 0);
    CHECK_EQ(stats_now().holds_ended_time, COUNT);
    serve_end();
}

static void test_commit_rides_on_the_first_pass_only(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-commit", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
#define NAMES (const uint8_t *)"G", 1, (const uint8_t *)"T", 1, 0
    CHECK_EQ(pymq_serve_offset_commit(served.serve, NAMES, 0), PYMQ_OK);
    struct pull_wish wish = HELD;
    wish.sys_flag |= PULL_COMMIT;
    wish.commit = 5;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    int64_t offset;
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
    CHECK_EQ(offset, 5);
    CHECK_EQ(pymq_serve_offset_commit(served.serve, NAMES, 6), PYMQ_OK); /* by somebody else, meanwhile */
    put_message(0, 0, NULL);
    ring();
    CHECK_EQ(pymq_serve_offset_query(served.serve, NAMES, &offset), PYMQ_OK);
    CHECK_EQ(offset, 6);
    serve_end();
}

static void test_whatever_may_decide_a_hold_otherwise_ends_it(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-ends", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    /* Answered natively: the row is still as good. */
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    publish("T", 5);
    ring();
    expect(connection, 1, 19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0");
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    subscribe("T", "G", "red");
    ring();
    expect(connection, 1, 19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0");
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    CHECK_EQ(pymq_serve_end_holds(served.serve, (const uint8_t *)"other", 5, NULL, 0), 0);
    CHECK_EQ(pymq_serve_end_holds(served.serve, NULL, 0, NULL, 0), 1);
    ring();
    expect(connection, 1, 19, "NO_MESSAGE_IN_QUEUE", "0", "0", "0");
    put_message(0, 0, NULL);
    dispatched();
    struct pull_wish wish = HELD;
    wish.offset = 1;
    subscribe("T", "G", NULL);
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK_EQ(pymq_serve_offset_commit(served.serve, NAMES, 1), PYMQ_OK);
    CHECK_EQ(pymq_serve_offset_reset(served.serve, NAMES, 0), PYMQ_OK);
    ring();
    expect(connection, 1, 21, "OFFSET_RESET", "0", "0", "1");
    CHECK_EQ(pymq_serve_offset_commit(served.serve, NAMES, 1), PYMQ_OK);
    wish.offset = 0;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED); /* follows the reset */
    expect_found(connection, 1, 0, 1, "1");
    wish.offset = 1;

    /* Handed over: the answer is an error, to be worded. */
    size_t handed = fake.handed_over;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    struct pymq_group_row disabled = {.name = (const uint8_t *)"G", .name_size = 1, .flags = PYMQ_GROUP_DISABLED};
    CHECK_EQ(pymq_serve_publish_group(served.serve, &disabled), PYMQ_OK);
    ring();
    CHECK_EQ(fake.handed_over, ++handed);
    publish_group("G");
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    config.broker_permission = 2;
    pymq_serve_configure(served.serve, &config);
    ring();
    CHECK_EQ(fake.handed_over, ++handed);
    config.broker_permission = 6;
    pymq_serve_configure(served.serve, &config);
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    config.native = false;
    pymq_serve_configure(served.serve, &config);
    ring();
    CHECK_EQ(fake.handed_over, ++handed);
    config.native = true;
    pymq_serve_configure(served.serve, &config);
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    pymq_serve_remove_group(served.serve, (const uint8_t *)"G", 1, false);
    ring();
    CHECK_EQ(fake.handed_over, ++handed);
    publish_group("G");
    subscribe("T", "G", NULL);
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    pymq_serve_remove_topic(served.serve, (const uint8_t *)"T", 1, true);
    ring();
    CHECK_EQ(fake.handed_over, ++handed);
    CHECK(is_silent(connection));
    CHECK_EQ(holds(), 0);
    serve_end();
}

static void test_hold_outlives_its_subscription_and_keeps_its_filter(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-outlives", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    size_t handed = fake.handed_over;
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    pymq_serve_remove_subscription(served.serve, (const uint8_t *)"G", 1, (const uint8_t *)"T", 1);
    CHECK_EQ(holds(), 1);
    put_message(0, 0, "blue");
    ring();
    CHECK_EQ(holds(), 1);
    CHECK_EQ(fake.handed_over, handed);
    put_message(0, 1, "red");
    ring();
    CHECK_EQ(holds(), 0);
    CHECK_EQ(fake.handed_over, handed + 1); /* a group without members: the control loop says so */
    CHECK(is_silent(connection));
    serve_end();
}

static void test_newer_version_alone_does_not_end_a_hold(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-version", &config, "red");
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    subscribe_at(8, "T", "G", "red");
    CHECK_EQ(holds(), 1);
    CHECK(is_silent(connection));
    put_message(0, 0, "red");
    ring();
    expect_found(connection, 1, 0, 1, "1");
    serve_end();
}

static void test_pull_ahead_of_its_heartbeat_waits_for_it(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-heartbeat", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    size_t handed = fake.handed_over;
    put_message(0, 0, NULL);
    dispatched();
    struct pull_wish wish = HELD;
    wish.version = 8; /* the broker knows 7 */
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK(is_silent(connection));
    subscribe_at(8, "T", "G", NULL);
    ring();
    expect_found(connection, 1, 0, 1, "1");
    wish.offset = 1; /* and it may be held as if it had come now */
    wish.version = 9;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    subscribe_at(9, "T", "G", NULL);
    ring();
    CHECK_EQ(holds(), 1);
    CHECK(is_silent(connection));
    CHECK_EQ(pymq_serve_end_holds(served.serve, NULL, 0, NULL, 0), 1);
    ring();
    expect(connection, 1, 19, "OFFSET_OVERFLOW_ONE", "1", "0", "1");
    wish.version = 10; /* a heartbeat that does not come: the control loop words the error */
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK_EQ(fake.handed_over, handed);
    run_until(fake.reactor.now_ms + 1000);
    CHECK_EQ(fake.handed_over, handed + 1);
    CHECK_EQ(holds(), 0);
    CHECK(is_silent(connection));
    serve_end();
}

static void test_holds_of_a_closed_connection_are_dropped_and_only_those(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-closed", &config, NULL);
    struct pymq_connection *gone = fake_connect(0), *stays = fake_connect(1);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(pull(gone, &HELD), PYMQ_SERVED);
    CHECK_EQ(pull(stays, &HELD), PYMQ_SERVED);
    CHECK_EQ(holds(), 101);
    pymq_connection_id name = gone->name;
    gone->is_open = false;
    served.service->closed(served.service->context, &fake.reactor, name);
    CHECK_EQ(holds(), 1);
    put_message(0, 0, NULL);
    ring();
    expect_found(stays, 1, 0, 1, "1");
    CHECK(is_silent(gone));
    serve_end();
}

static void test_one_pull_too_many_is_told_so(void) {
    struct pymq_serve_config config = serve_config();
    config.holds_max = 3;
    pull_start("hold-full", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    CHECK(is_silent(connection));
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 209);
    CHECK_EQ(holds(), 3);
    serve_end();
}

static void test_short_polling_looks_by_the_clock_only(void) {
    struct pymq_serve_config config = serve_config();
    config.long_polling = false;
    pull_start("hold-short", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    put_message(0, 0, NULL);
    dispatched();
    struct pollfd wait = {.fd = fake.reactor.event_fd, .events = POLLIN};
    CHECK_EQ(poll(&wait, 1, 0), 0); /* nobody is told */
    run_until(fake.reactor.now_ms + 1100);
    expect_found(connection, 1, 0, 1, "1");
    serve_end();
}

/* Symptom: a pull held on a queue that was removed behind it waited out its time, while the new one got messages. */
static void test_hold_on_a_removed_queue_ends_at_the_next_look(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-removed", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    put_message(0, 0, NULL);
    dispatched();
    struct pull_wish wish = HELD;
    wish.offset = 1;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    CHECK_EQ(pymq_store_remove_topic(served.store, (const uint8_t *)"T", 1, 20000), PYMQ_OK);
    run_until(fake.reactor.now_ms + 5100);
    expect(connection, 1, 21, "NO_MESSAGE_IN_QUEUE", "0", "0", "0");
    CHECK_EQ(holds(), 0);
    serve_end();
}

/* Symptom: a pull that was read before the stop and served behind it was held, and closed without an answer. */
static void test_nothing_is_held_once_the_broker_stops(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-stop", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    struct pymq_get get = {.topic = text("T"), .queue_id = 0};
    const uint8_t frame[] = "on its way";
    CHECK_EQ(pymq_serve_hold(served.serve, connection->name, frame, sizeof frame, &get, NULL, 0, 500), PYMQ_OK);
    CHECK_EQ(pymq_serve_stop_holds(served.serve), 2);
    ring();
    expect(connection, 1, 1, "the broker is stopping", "0", "0", "0");
    CHECK_EQ(fake.handed_over, 1);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    expect(connection, 1, 1, "the broker is stopping", "0", "0", "0");
    CHECK_EQ(pymq_serve_hold(served.serve, connection->name, frame, sizeof frame, &get, NULL, 0, 500), PYMQ_ECLOSED);
    CHECK_EQ(holds(), 0);
    serve_end();
}

/* A hold of the control loop's comes back to it as it was given. */
static void test_the_control_loops_hold_is_handed_back(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-python", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    int32_t red = pymq_java_hash(0, (const uint8_t *)"red", 3);
    struct pymq_get get = {.topic = text("T"), .queue_id = 0, .offset = 0, .tag_hashes = &red, .tag_count = 1};
    const uint8_t frame[] = "whatever the control loop understands";
    CHECK_EQ(pymq_serve_hold(served.serve, connection->name, frame, sizeof frame, &get, (const uint8_t *)"G", 1, 500),
             PYMQ_OK);
    ring();
    CHECK_EQ(holds(), 1);
    put_message(0, 0, "blue");
    dispatched();
    ring();
    CHECK_EQ(fake.handed_over, 0);
    put_message(0, 1, "red");
    ring();
    CHECK_EQ(fake.handed_over, 1);
    get.offset = 2;
    CHECK_EQ(pymq_serve_hold(served.serve, connection->name, frame, sizeof frame, &get, (const uint8_t *)"G", 1, 500),
             PYMQ_OK);
    ring();
    run_until(fake.reactor.now_ms + 600);
    CHECK_EQ(fake.handed_over, 2);
    /* Ended before the reactor has even seen it: due at once. */
    CHECK_EQ(pymq_serve_hold(served.serve, connection->name, frame, sizeof frame, &get, (const uint8_t *)"G", 1, 500),
             PYMQ_OK);
    CHECK_EQ(pymq_serve_end_holds(served.serve, NULL, 0, (const uint8_t *)"G", 1), 1);
    ring();
    run_until(fake.reactor.now_ms + 128);
    CHECK_EQ(fake.handed_over, 3);
    CHECK_EQ(holds(), 0);
    CHECK_EQ(pymq_serve_hold(served.serve, UINT64_C(15) << 56 | 1, frame, sizeof frame, &get, NULL, 0, 500),
             PYMQ_EINVAL);
    serve_end();
}

/* Thousands of holds on some queues, taken away in every way at once. */
static void test_table_survives_every_order_of_coming_and_going(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-many", &config, NULL);
    uint64_t random = 1234567;
    struct pymq_connection *connections[8];
    for (unsigned i = 0; i < 8; i++)
        connections[i] = fake_connect(i);
    int64_t ends[4] = {0};
    for (int round = 0; round < 3000; round++) {
        struct pymq_connection *connection = connections[check_random(&random) % 8];
        struct pull_wish wish = HELD;
        wish.queue_id = (int32_t)(check_random(&random) % 4);
        wish.offset = ends[wish.queue_id];
        wish.suspend_ms = (int64_t)(check_random(&random) % 60000);
        CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
        uint64_t what = check_random(&random) % 40;
        if (what == 0) {
            int32_t queue_id = (int32_t)(check_random(&random) % 4);
            put_message(queue_id, 0, NULL);
            ends[queue_id]++;
            dispatched();
            served.service->event(served.service->context, &fake.reactor);
        } else if (what == 1) {
            pymq_connection_id name = connection->name;
            connection->is_open = false;
            served.service->closed(served.service->context, &fake.reactor, name);
            fake_connect((unsigned)(connection - fake.reactor.connections));
        } else if (what == 2) {
            run_until(fake.reactor.now_ms + (int64_t)(check_random(&random) % 5000));
        }
        for (unsigned i = 0; i < 8; i++)
            connections[i]->output_size = connections[i]->read_at = 0;
    }
    CHECK(holds() > 0);
    run_until(fake.reactor.now_ms + 70000);
    CHECK_EQ(holds(), 0);
    serve_end();
}

int main(void) {
    RUN(test_hold_is_answered_when_a_message_comes);
    RUN(test_message_between_the_look_and_the_hold_is_not_missed);
    RUN(test_mismatch_keeps_the_hold_and_is_not_scanned_again);
    RUN(test_hold_that_saw_only_others_messages_moves_its_client_on_when_time_is_up);
    RUN(test_time_is_up_neither_early_nor_much_late);
    RUN(test_commit_rides_on_the_first_pass_only);
    RUN(test_whatever_may_decide_a_hold_otherwise_ends_it);
    RUN(test_hold_outlives_its_subscription_and_keeps_its_filter);
    RUN(test_newer_version_alone_does_not_end_a_hold);
    RUN(test_pull_ahead_of_its_heartbeat_waits_for_it);
    RUN(test_holds_of_a_closed_connection_are_dropped_and_only_those);
    RUN(test_one_pull_too_many_is_told_so);
    RUN(test_short_polling_looks_by_the_clock_only);
    RUN(test_hold_on_a_removed_queue_ends_at_the_next_look);
    RUN(test_nothing_is_held_once_the_broker_stops);
    RUN(test_the_control_loops_hold_is_handed_back);
    RUN(test_table_survives_every_order_of_coming_and_going);
    return check_summary();
}
