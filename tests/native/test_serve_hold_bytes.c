/* What held and posted pulls keep of their requests, and how much of it there may be. */
#include <poll.h>

#include "pull_help.h"

#define BODY_SIZE (1024 * 1024)

static const struct pull_wish HELD = {.opaque = 1, .count = 32, .version = 7, .sys_flag = PULL_SUSPEND,
                                      .suspend_ms = 15000};

/* Pull as `wish` says, with a body of that size. */
static int pull_with_body(struct pymq_connection *connection, const struct pull_wish *wish, size_t body_size) {
    struct pull_text text_of;
    struct request request = *pull_request(&text_of, wish);
    uint8_t *body = calloc(1, body_size + 1);
    request.body = body;
    request.body_size = body_size;
    int verdict = offer(connection, &request);
    free(body);
    return verdict;
}

/* Symptom: 50 pulls with bodies of 4 MiB kept 200 MiB for as long as they asked to be held, up to a day. */
static void test_held_pull_does_not_keep_its_body(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-body", &config, NULL);
    struct pymq_connection *connection = fake_connect(0), *other = fake_connect(1);
    CHECK_EQ(pull_with_body(connection, &HELD, 0), PYMQ_SERVED);
    int64_t bare = stats_now().holds_bytes;
    CHECK(bare > 100);
    CHECK(bare < 1000);
    CHECK_EQ(pull_with_body(other, &HELD, BODY_SIZE), PYMQ_SERVED);
    CHECK_EQ(stats_now().holds, 2);
    CHECK_EQ(stats_now().holds_bytes, 2 * bare);
    put_message(0, 0, NULL);
    ring();
    expect_found(connection, 1, 0, 1, "1");
    expect_found(other, 1, 0, 1, "1");
    CHECK_EQ(stats_now().holds_bytes, 0);
    serve_end();
}

static void test_control_loops_hold_comes_back_whole_without_its_body(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-body-python", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    struct pull_text text_of;
    struct request request = *pull_request(&text_of, &HELD);
    static uint8_t frame[BODY_SIZE + 4096], body[BODY_SIZE];
    size_t bare = request_encode(&request, frame, sizeof frame);
    request.body = body;
    request.body_size = sizeof body;
    size_t size = request_encode(&request, frame, sizeof frame);
    struct pymq_get get = {.topic = text("T"), .queue_id = 0};
    CHECK_EQ(pymq_serve_hold(served.serve, connection->name, frame, size, &get, NULL, 0, 500), PYMQ_OK);
    CHECK_EQ(stats_now().holds_bytes, (int64_t)bare);
    ring();
    CHECK_EQ(stats_now().holds_bytes, (int64_t)bare);
    put_message(0, 0, NULL);
    ring();
    CHECK_EQ(fake.handed_over, 1);
    CHECK_EQ(fake.handed_size, bare);
    CHECK_EQ(fake.handed_says, bare - 4);
    CHECK_EQ(stats_now().holds_bytes, 0);
    serve_end();
}

/* Symptom: headers of 256 KiB, a hundred thousand of them, were within every limit. */
static void test_one_byte_too_many_is_told_so(void) {
    struct pymq_serve_config config = serve_config();
    pull_start("hold-bytes-full", &config, NULL);
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    config.holds_bytes_max = 3 * stats_now().holds_bytes;
    pymq_serve_configure(served.serve, &config);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    CHECK_EQ(connection->output_size, connection->read_at);
    CHECK_EQ(pull(connection, &HELD), PYMQ_SERVED);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 209);
    struct pymq_get get = {.topic = text("T"), .queue_id = 0};
    CHECK_EQ(pymq_serve_hold(served.serve, connection->name, (const uint8_t *)"any", 3, &get, NULL, 0, 500),
             PYMQ_ETOOBIG);
    CHECK_EQ(stats_now().holds, 3);
    CHECK_EQ(stats_now().holds_bytes, config.holds_bytes_max);
    pymq_connection_id name = connection->name;
    connection->is_open = false;
    served.service->closed(served.service->context, &fake.reactor, name);
    CHECK_EQ(stats_now().holds_bytes, 0);
    serve_end();
}

int main(void) {
    RUN(test_held_pull_does_not_keep_its_body);
    RUN(test_control_loops_hold_comes_back_whole_without_its_body);
    RUN(test_one_byte_too_many_is_told_so);
    return check_summary();
}
