/* Pulls and holds filtered by a program: what is sent, what a hold waits for, and who keeps the program alive. */
#include "filter_help.h"
#include "pull_help.h"

enum { SQL_COUNT = 5 };

static void put_priced(int32_t queue_id, const char *price) {
    char properties[128] = "";
    if (price != NULL)
        snprintf(properties, sizeof properties, "price\001%s\002", price);
    CHECK_EQ(send_record(served.store, "T", queue_id, text("body"), properties, 0).status, PYMQ_OK);
}

static void subscribe_above(int32_t price) {
    struct written program = program_greater("price", price);
    subscribe_program("T", "G", program.bytes, program.size);
}

static void start(const char *name) {
    struct pymq_serve_config config = serve_config();
    pull_start(name, &config, NULL);
    subscribe_above(5);
}

static void test_only_records_that_satisfy_it_are_sent(void) {
    start("filter-pull");
    struct pymq_connection *connection = fake_connect(0);
    static const char *const PRICES[SQL_COUNT] = {"4", "much", NULL, "6", "7"};
    for (int i = 0; i < SQL_COUNT; i++)
        put_priced(0, PRICES[i]);
    dispatched();
    CHECK_EQ(pull(connection, &(struct pull_wish){.opaque = 1, .count = 32, .version = 7}), PYMQ_SERVED);
    expect_found(connection, 1, 3, 2, "5");
    CHECK_EQ(pull(connection, &(struct pull_wish){.opaque = 2, .count = 32, .version = 7, .offset = 4}), PYMQ_SERVED);
    expect_found(connection, 2, 4, 1, "5");
    subscribe_above(7);
    CHECK_EQ(pull(connection, &(struct pull_wish){.opaque = 3, .count = 32, .version = 7}), PYMQ_SERVED);
    expect(connection, 3, 20, "NO_MATCHED_MESSAGE", "5", "0", "5");
    serve_end();
}

static void test_what_is_no_program_is_refused_and_the_row_stays(void) {
    start("filter-refused");
    struct pymq_connection *connection = fake_connect(0);
    put_priced(0, "6");
    put_priced(0, "5");
    dispatched();
    struct pymq_subscription_row row = {.group = (const uint8_t *)"G", .topic = (const uint8_t *)"T", .group_size = 1,
                                        .topic_size = 1, .version = 8, .program = (const uint8_t *)"SQ\001\000\xff",
                                        .program_size = 5};
    CHECK_EQ(pymq_serve_publish_subscription(served.serve, &row), PYMQ_ECORRUPT);
    CHECK_EQ(pull(connection, &(struct pull_wish){.opaque = 1, .count = 32, .version = 7}), PYMQ_SERVED);
    expect_found(connection, 1, 0, 1, "2");
    row.group = (const uint8_t *)"F"; /* nor is a new row left behind */
    CHECK_EQ(pymq_serve_publish_subscription(served.serve, &row), PYMQ_ECORRUPT);
    publish_group("F");
    CHECK_EQ(pull(connection, &(struct pull_wish){.opaque = 2, .group = "F", .count = 32, .sys_flag = 0}),
             PYMQ_SERVED); /* kept for its subscription for a moment */
    serve_end();
}

/* What arrives is looked at in the reactor's next event. */
static void arrive(void) {
    dispatched();
    served.service->event(served.service->context, &fake.reactor);
}

static void test_a_hold_waits_for_a_record_that_satisfies_it(void) {
    start("filter-hold");
    struct pymq_connection *connection = fake_connect(0);
    struct pull_wish wish = {.opaque = 1, .count = 32, .version = 7, .sys_flag = PULL_SUSPEND, .suspend_ms = 15000};
    struct answer answer;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    put_priced(0, "5");
    put_priced(0, NULL);
    arrive();
    CHECK(!take_answer(connection, &answer));
    put_priced(0, "6");
    arrive();
    expect_found(connection, 1, 2, 1, "3");
    serve_end();
}

static void test_a_hold_outlives_its_subscription_with_the_program(void) {
    start("filter-detached");
    struct pymq_connection *connection = fake_connect(0);
    struct pull_wish wish = {.opaque = 1, .count = 32, .version = 7, .sys_flag = PULL_SUSPEND, .suspend_ms = 15000};
    struct answer answer;
    CHECK_EQ(pull(connection, &wish), PYMQ_SERVED);
    pymq_serve_remove_subscription(served.serve, (const uint8_t *)"G", 1, (const uint8_t *)"T", 1);
    put_priced(0, "5");
    arrive();
    CHECK(!take_answer(connection, &answer));
    serve_end(); /* with the hold in the table: whoever leaks the program is told of by the sanitizer */
}

static void test_the_control_loop_filters_by_the_same_program(void) {
    start("filter-get");
    struct written source = program_greater("price", 5);
    struct pymq_shared_program *program;
    struct pymq_span spans[SQL_COUNT];
    CHECK_EQ(pymq_shared_program_make(source.bytes, source.size, &program), PYMQ_OK);
    CHECK_EQ(pymq_shared_program_make(source.bytes, source.size - 1, &program), PYMQ_ECORRUPT);
    put_priced(1, "1");
    put_priced(1, "9");
    dispatched();
    struct pymq_get get = {.topic = {(const uint8_t *)"T", 1}, .queue_id = 1, .count_max = 32, .program = program};
    pymq_serve_get(served.serve, &get, spans, SQL_COUNT);
    CHECK_EQ(get.status, PYMQ_GET_FOUND);
    CHECK_EQ(get.message_count, 1);
    CHECK_EQ(get.next_offset, 2);
    for (uint32_t i = 0; i < get.span_count; i++)
        pymq_span_release(served.store, &spans[i]);
    pymq_shared_program_leave(program);
    serve_end();
}

int main(void) {
    RUN(test_only_records_that_satisfy_it_are_sent);
    RUN(test_what_is_no_program_is_refused_and_the_row_stays);
    RUN(test_a_hold_waits_for_a_record_that_satisfies_it);
    RUN(test_a_hold_outlives_its_subscription_with_the_program);
    RUN(test_the_control_loop_filters_by_the_same_program);
    return check_summary();
}
