/* Sends whose answers wait for the disk or a replica. A replica gate stands for both: the test moves it. */
#include "serve_help.h"

#define UNIQUE "UNIQ_KEY\x01" "0123456789ABCDEF0123456789ABCDEF\x02"

static void start(const char *name, bool sync_flush) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    store.log_file_size = 65536;
    store.flush_mode = sync_flush ? PYMQ_SYNC_FLUSH : PYMQ_ASYNC_FLUSH;
    store.replica_gate = !sync_flush;
    config.send_timeout_ms = 500;
    config.parked_max = 100;
    serve_start(name, &store, &config);
    publish("TopicA", 4);
    if (!sync_flush)
        pymq_store_set_replica(served.store, 0, true);
}

static void send_one(struct pymq_connection *connection, int32_t opaque, const char *properties) {
    struct request request = send_request(opaque, "TopicA", "0", properties, "body");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
}

static int64_t parked(void) {
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    return stats.parked;
}

static int64_t written(void) {
    struct pymq_watermarks marks;
    pymq_store_watermarks(served.store, &marks);
    return marks.written;
}

/* What the reactor does when its eventfd has rung. */
static void event(void) { served.service->event(served.service->context, &fake.reactor); }
static void timer(void) {
    int64_t due_ms = served.service->timer(served.service->context, &fake.reactor, fake.reactor.now_ms);
    CHECK(due_ms > fake.reactor.now_ms);
}

static void test_an_answer_waits_for_its_own_message_only(void) {
    start("own", false);
    struct pymq_connection *connection = fake_connect(0);
    send_one(connection, 1, UNIQUE);
    settle();
    int64_t first_end = written();
    send_one(connection, 2, UNIQUE);
    settle();
    CHECK_EQ(parked(), 2);
    CHECK_EQ(connection->output_size, 0);
    uint64_t rung = 0;
    pymq_store_set_replica(served.store, first_end, true);
    CHECK_EQ(read(fake.reactor.event_fd, &rung, sizeof rung), sizeof rung); /* the store rings the reactor */
    event();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.opaque, 1);
    CHECK_EQ(answer.command.code, 0);
    check_field(&answer, "queueOffset", "0");
    CHECK(!take_answer(connection, &answer));
    pymq_store_set_replica(served.store, written(), true);
    event();
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.opaque, 2);
    CHECK_EQ(parked(), 0);
    serve_end();
}

static void test_a_send_that_need_not_wait_overtakes_no_answer_that_is_parked(void) {
    start("overtake", false);
    struct pymq_connection *connection = fake_connect(0);
    send_one(connection, 1, UNIQUE);
    settle();
    CHECK_EQ(parked(), 1);
    pymq_store_set_replica(served.store, written() + 4096, true); /* both are replicated; the ring is not heard yet */
    send_one(connection, 2, UNIQUE);
    settle();
    struct answer answer;
    for (int32_t opaque = 1; opaque <= 2; opaque++) {
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.opaque, opaque);
        CHECK_EQ(answer.command.code, 0);
    }
    CHECK_EQ(parked(), 0);
    serve_end();
}

static void test_the_control_loops_answer_overtakes_none_that_is_parked(void) {
    start("loop-overtake", false);
    struct pymq_connection *connection = fake_connect(0);
    send_one(connection, 1, UNIQUE);
    settle();
    pymq_store_set_replica(served.store, written(), true);
    struct request request = {.code = 0, .opaque = 2, .flag = PYMQ_COMMAND_RESPONSE};
    uint8_t frame[256];
    size_t size = request_encode(&request, frame, sizeof frame);
    CHECK_EQ(pymq_serve_park(served.serve, connection->name, written(), frame, size, NULL, 0, NULL, 0), PYMQ_OK);
    event();
    struct answer answer;
    for (int32_t opaque = 1; opaque <= 2; opaque++) {
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.opaque, opaque);
    }
    serve_end();
}

static void test_who_does_not_wait_is_answered_at_once(void) {
    start("wait", false);
    struct pymq_connection *connection = fake_connect(0);
    send_one(connection, 1, UNIQUE "WAIT\x01" "false\x02");
    settle();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK_EQ(parked(), 0);
    serve_end();
}

static void test_a_late_answer_says_which_gate_was_late(void) {
    start("late", false);
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pymq_store_flush(served.store), PYMQ_OK);
    send_one(connection, 1, UNIQUE);
    settle();
    CHECK_EQ(fake.reactor.due_ms, 1500); /* the reactor was asked for a timer */
    fake.reactor.now_ms = 1499;
    timer();
    CHECK_EQ(parked(), 1);
    CHECK_EQ(pymq_store_flush(served.store), PYMQ_OK);
    fake.reactor.now_ms = 1500;
    timer();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.opaque, 1);
    CHECK_EQ(answer.command.code, 12); /* on disk: the replica is late. Stored all the same */
    check_field(&answer, "msgId", "7F00000200002A9F0000000000000000");
    check_field(&answer, "queueOffset", "0");
    CHECK_EQ(parked(), 0);
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    CHECK_EQ(stats.parked_late, 1);
    pymq_store_set_replica(served.store, written(), true);
    event();
    CHECK(!take_answer(connection, &answer)); /* answered once */
    serve_end();
}

static void test_a_late_binary_answer_is_the_same_with_another_code(void) {
    start("binary", false);
    struct pymq_connection *connection = fake_connect(0);
    struct request request = send_request(1, "TopicA", "0", UNIQUE, "body");
    request.type = PYMQ_SERIALIZE_ROCKETMQ;
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    fake.reactor.now_ms = 1500;
    timer();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK(answer.command.code == 10 || answer.command.code == 12);
    CHECK_EQ(answer.command.serialize_type, PYMQ_SERIALIZE_ROCKETMQ);
    check_field(&answer, "transactionId", "0123456789ABCDEF0123456789ABCDEF");
    serve_end();
}

static void test_closed_connections_in_between_lose_only_their_own(void) {
    start("between", false);
    struct pymq_connection *connections[3] = {fake_connect(0), fake_connect(1), fake_connect(2)};
    for (int i = 0; i < 30; i++)
        send_one(connections[i % 3], i, UNIQUE);
    settle();
    CHECK_EQ(parked(), 30);
    connections[1]->is_open = false;
    served.service->closed(served.service->context, &fake.reactor, connections[1]->name);
    struct pymq_connection *reused = fake_connect(1); /* the same slot, another generation */
    pymq_store_set_replica(served.store, written(), true);
    event();
    struct answer answer;
    for (int i = 0; i < 30; i++) {
        if (i % 3 == 1)
            continue;
        CHECK(take_answer(connections[i % 3], &answer));
        CHECK_EQ(answer.command.opaque, i);
    }
    CHECK_EQ(reused->output_size, 0);
    CHECK_EQ(parked(), 0);
    serve_end();
}

static void test_beyond_the_limit_nothing_is_stored_and_busy_is_said(void) {
    start("limit", false);
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 100; i++)
        send_one(connection, i, UNIQUE);
    settle();
    CHECK_EQ(parked(), 100);
    int64_t end = written();
    send_one(connection, 100, UNIQUE);
    settle();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.opaque, 100);
    CHECK_EQ(answer.command.code, 2);
    CHECK_EQ(written(), end);
    pymq_store_set_replica(served.store, end, true);
    event();
    for (int i = 0; i < 100; i++) {
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.opaque, i);
    }
    serve_end();
}

static void test_the_control_loops_answers_wait_in_the_same_list(void) {
    start("loop", false);
    struct pymq_connection *connection = fake_connect(0);
    send_one(connection, 1, UNIQUE);
    settle();
    int64_t end = written();
    uint8_t frames[3][256];
    size_t sizes[3];
    for (int i = 0; i < 3; i++) {
        struct request request = {.code = i == 0 ? 0 : i == 1 ? 10 : 1, .opaque = 2, .flag = PYMQ_COMMAND_RESPONSE};
        sizes[i] = request_encode(&request, frames[i], sizeof frames[i]);
    }
    CHECK_EQ(pymq_serve_park(served.serve, connection->name, end, frames[0], sizes[0], frames[1], sizes[1], frames[2],
                             sizes[2]),
             PYMQ_OK);
    uint64_t rung = 0;
    CHECK_EQ(read(fake.reactor.event_fd, &rung, sizeof rung), sizeof rung);
    event();
    CHECK_EQ(parked(), 2);
    send_one(connection, 3, UNIQUE);
    settle();
    pymq_store_set_replica(served.store, written(), true);
    event();
    struct answer answer;
    for (int i = 1; i <= 3; i++) { /* by their place in the log */
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.opaque, i);
        CHECK_EQ(answer.command.code, 0);
    }
    CHECK_EQ(pymq_serve_park(served.serve, connection->name, end, frames[0], sizes[0], NULL, 0, NULL, 0), PYMQ_OK);
    CHECK(take_answer(connection, &answer)); /* acknowledged already: at once */

    send_one(connection, 4, UNIQUE);
    settle();
    CHECK_EQ(pymq_serve_park(served.serve, connection->name, written(), frames[0], sizes[0], frames[1], sizes[1],
                             frames[2], sizes[2]),
             PYMQ_OK);
    event();
    fake.reactor.now_ms = INT64_MAX / 2;
    served.service->timer(served.service->context, &fake.reactor, fake.reactor.now_ms);
    CHECK(take_answer(connection, &answer));
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.opaque, 2);
    CHECK_EQ(answer.command.code, 10); /* the frame given for a late answer */
    CHECK_EQ(pymq_serve_park(served.serve, 0, end, frames[0], sizes[0], NULL, 0, NULL, 0), PYMQ_EINVAL);
    serve_end();
}

/* A reactor that the store did not take as a listener once answered only when the time was over. */
static void test_a_reactor_that_is_not_rung_looks_for_itself(void) {
    fake_start();
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    struct pymq_error error;
    store.replica_gate = true;
    served.path = scratch("unrung");
    served.store = open_or_die(served.path, &store);
    int busy[256], count = 0;
    for (; count < 256; count++) { /* until nobody else may listen */
        busy[count] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (pymq_store_listen(served.store, busy[count], PYMQ_EVENT_ARRIVAL) != PYMQ_OK)
            break;
    }
    CHECK(count < 256);
    CHECK_EQ(pymq_serve_open(&config, served.store, &served.serve, &error), PYMQ_OK);
    served.service = pymq_serve_service(served.serve);
    pymq_serve_attach(served.serve, &fake);
    served.service->timer(served.service->context, &fake.reactor, fake.reactor.now_ms);
    publish("TopicA", 4);
    pymq_store_set_replica(served.store, 0, true);
    struct pymq_connection *connection = fake_connect(0);
    send_one(connection, 1, UNIQUE);
    settle();
    CHECK(fake.reactor.due_ms <= fake.reactor.now_ms + 10);
    pymq_store_set_replica(served.store, written(), true);
    fake.reactor.now_ms = fake.reactor.due_ms;
    served.service->timer(served.service->context, &fake.reactor, fake.reactor.now_ms);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    for (int i = 0; i < count; i++) {
        pymq_store_unlisten(served.store, busy[i]);
        close(busy[i]);
    }
    close(busy[count]);
    serve_end();
}

static void test_a_batch_waits_as_a_whole(void) {
    start("batch", false);
    struct pymq_connection *connection = fake_connect(0);
    uint8_t body[2048];
    size_t size = 0;
    for (int i = 0; i < 20; i++) {
        struct pymq_batch_item item = {.body = text("part"), .properties = text("a\x01" "b\x02")};
        CHECK_EQ(pymq_batch_append(body, sizeof body, &size, &item), PYMQ_OK);
    }
    struct request request = send_request(1, "TopicA", "1", UNIQUE, "");
    request.code = 320;
    request.fields[11][1] = "true";
    request.body = body;
    request.body_size = size;
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    CHECK_EQ(parked(), 1);
    pymq_store_set_replica(served.store, written() - 1, true);
    event();
    CHECK_EQ(parked(), 1);
    pymq_store_set_replica(served.store, written(), true);
    event();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    const struct pymq_slice *ids = pymq_command_field(&answer.command, "msgId", 5);
    CHECK_EQ(ids->size, 20 * 33 - 1);
    check_field(&answer, "transactionId", "0123456789ABCDEF0123456789ABCDEF");
    serve_end();
}

static void test_sync_flush_answers_when_the_disk_has_it(void) {
    start("sync", true);
    struct pymq_connection *connection = fake_connect(0);
    for (int i = 0; i < 50; i++) {
        send_one(connection, i, UNIQUE);
        settle();
    }
    CHECK_EQ(pymq_store_wait_acknowledged(served.store, written(), 20000), PYMQ_OK);
    event();
    /* One that the disk has already when it is settled is answered before those that still wait. */
    struct answer answer;
    bool seen[50] = {false};
    for (int i = 0; i < 50; i++) {
        CHECK(take_answer(connection, &answer));
        CHECK(answer.command.opaque >= 0 && answer.command.opaque < 50 && !seen[answer.command.opaque]);
        seen[answer.command.opaque] = true;
        CHECK_EQ(answer.command.code, 0);
    }
    serve_end();
}

static void test_a_store_that_closes_fails_what_still_waits(void) {
    start("closes", false);
    struct pymq_connection *connection = fake_connect(0);
    send_one(connection, 1, UNIQUE);
    settle();
    CHECK_EQ(pymq_store_shut(served.store), PYMQ_OK);
    event();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 14);
    CHECK_EQ(parked(), 0);
    serve_end();
}

int main(void) {
    RUN(test_an_answer_waits_for_its_own_message_only);
    RUN(test_a_send_that_need_not_wait_overtakes_no_answer_that_is_parked);
    RUN(test_the_control_loops_answer_overtakes_none_that_is_parked);
    RUN(test_who_does_not_wait_is_answered_at_once);
    RUN(test_a_late_answer_says_which_gate_was_late);
    RUN(test_a_late_binary_answer_is_the_same_with_another_code);
    RUN(test_closed_connections_in_between_lose_only_their_own);
    RUN(test_beyond_the_limit_nothing_is_stored_and_busy_is_said);
    RUN(test_the_control_loops_answers_wait_in_the_same_list);
    RUN(test_a_reactor_that_is_not_rung_looks_for_itself);
    RUN(test_a_batch_waits_as_a_whole);
    RUN(test_sync_flush_answers_when_the_disk_has_it);
    RUN(test_a_store_that_closes_fails_what_still_waits);
    return check_summary();
}
