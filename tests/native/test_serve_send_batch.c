/* Batches and large messages, natively: in one piece, in their place, with room for each. */
#include "../../csrc/serve/collect.h"
#include "serve_help.h"

#define UNIQUE "UNIQ_KEY\x01" "0123456789ABCDEF0123456789ABCDEF\x02"

static void start(const char *name, int64_t log_file_size, int32_t message_size_max) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    store.log_file_size = log_file_size;
    store.log_window_size = log_file_size < 65536 ? 4096 : 1 << 20;
    store.message_size_max = config.message_size_max = message_size_max;
    serve_start(name, &store, &config);
    publish("TopicA", 4);
}

struct body {
    uint8_t *bytes;
    size_t size, capacity;
};

static void body_add(struct body *body, const char *message, const char *properties) {
    struct pymq_batch_item item = {.flag = 3, .body = text(message), .properties = text(properties)};
    if (body->capacity - body->size < 4096) {
        body->capacity += 1 << 20;
        body->bytes = realloc(body->bytes, body->capacity);
    }
    CHECK_EQ(pymq_batch_append(body->bytes, body->capacity, &body->size, &item), PYMQ_OK);
}

static struct request batch_request(int32_t opaque, const struct body *body) {
    struct request request = send_request(opaque, "TopicA", "0", UNIQUE, "");
    request.code = 320;
    request.fields[11][1] = "true";
    request.body = body->bytes;
    request.body_size = body->size;
    return request;
}

static void test_batches_and_singles_keep_their_places(void) {
    start("places", 8209, 4096);
    struct pymq_connection *connection = fake_connect(0);
    int64_t expected = 0;
    for (int round = 0; round < 40; round++) { /* far more than one log file holds */
        struct body body = {0};
        char message[32];
        struct request single = send_request(2 * round, "TopicA", "0", UNIQUE, "single");
        CHECK_EQ(offer(connection, &single), PYMQ_SERVED);
        for (int i = 0; i < 7; i++) {
            snprintf(message, sizeof message, "part %d of %d", i, round);
            body_add(&body, message, i % 2 == 0 ? "a\x01" "b\x02" : "");
        }
        struct request batch = batch_request(2 * round + 1, &body);
        CHECK_EQ(offer(connection, &batch), PYMQ_SERVED);
        free(body.bytes);
    }
    settle();
    for (int round = 0; round < 40; round++) {
        struct answer answer;
        char offset[16], message[32];
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.opaque, 2 * round);
        snprintf(offset, sizeof offset, "%d", (int)expected);
        check_field(&answer, "queueOffset", offset);
        check_stored("TopicA", 0, expected++, "single");
        CHECK(take_answer(connection, &answer));
        CHECK_EQ(answer.command.opaque, 2 * round + 1);
        CHECK_EQ(answer.command.code, 0);
        snprintf(offset, sizeof offset, "%d", (int)expected);
        check_field(&answer, "queueOffset", offset);
        for (int i = 0; i < 7; i++) {
            snprintf(message, sizeof message, "part %d of %d", i, round);
            check_stored("TopicA", 0, expected++, message);
        }
    }
    struct pymq_span span;
    struct pymq_record record;
    stored_record("TopicA", 0, 1, &span, &record);
    CHECK_EQ(record.flag, 3); /* the message's own, not the request's */
    CHECK_BYTES(record.properties.data, record.properties.size, "a\x01" "b\x02", 4);
    pymq_span_release(served.store, &span);
    serve_end();
}

static void test_a_batch_that_fits_no_log_file_is_refused_alone(void) {
    start("fits", 8209, 8000);
    struct pymq_connection *connection = fake_connect(0);
    struct body body = {0};
    for (int i = 0; i < 100; i++) /* 2,200 bytes of batch become 9,900 of records */
        body_add(&body, "x", "");
    struct request single = send_request(1, "TopicA", "0", UNIQUE, "before"), batch = batch_request(2, &body);
    CHECK_EQ(offer(connection, &single), PYMQ_SERVED);
    CHECK_EQ(offer(connection, &batch), PYMQ_SERVED);
    single = send_request(3, "TopicA", "0", UNIQUE, "after");
    CHECK_EQ(offer(connection, &single), PYMQ_SERVED);
    settle();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.opaque, 2);
    CHECK_EQ(answer.command.code, 13);
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    check_field(&answer, "queueOffset", "1");
    free(body.bytes);
    serve_end();
}

static void expect_field_reason(const uint8_t *bytes, size_t size) {
    static unsigned slot;
    struct body body = {.bytes = (uint8_t *)(uintptr_t)bytes, .size = size};
    struct request request = batch_request(1, &body);
    CHECK_EQ(offer(fake_connect(slot++ % FAKE_CONNECTIONS), &request), PYMQ_HAND_OVER + PYMQ_REASON_FIELD);
}

static void test_damaged_and_endless_batches_are_handed_over(void) {
    start("damaged", 1 << 20, 1 << 19);
    struct body body = {0};
    body_add(&body, "one", "a\x01" "b\x02");
    body_add(&body, "two", "");
    for (size_t cut = 1; cut < body.size; cut += 3) {
        if (cut != body.size - 25) /* where the first message ends, one whole message is left */
            expect_field_reason(body.bytes, cut);
    }
    uint8_t noise[64];
    memset(noise, 0xff, sizeof noise);
    expect_field_reason(noise, sizeof noise);
    struct body unreadable = {0};
    body_add(&unreadable, "one", "no separator");
    expect_field_reason(unreadable.bytes, unreadable.size);
    struct body endless = {0};
    for (int i = 0; i <= PYMQ_COLLECT_ITEMS_MAX; i++)
        body_add(&endless, "x", "");
    expect_field_reason(endless.bytes, endless.size);
    static const char *const waiting[] = {
        "DELAY\x01" "3\x02",
        "a\x01" "b\x02TIMER_DELAY_MS\x01" "9\x02",
        "TRAN_MSG\x01true\x02",
    };
    for (size_t i = 0; i < sizeof waiting / sizeof waiting[0]; i++) {
        struct body later = {0};
        body_add(&later, "plain", "a\x01" "b\x02");
        body_add(&later, "later", waiting[i]);
        expect_field_reason(later.bytes, later.size);
        free(later.bytes);
    }
    settle();
    CHECK_EQ(info_of(served.store, "TopicA", 0).max_offset, 0);
    free(body.bytes);
    free(unreadable.bytes);
    free(endless.bytes);
    serve_end();
}

static void test_batches_that_fill_the_collection_are_appended_on_the_way(void) {
    start("fill", 1 << 22, 1 << 20);
    struct pymq_connection *connection = fake_connect(0);
    struct body body = {0};
    for (int i = 0; i < 1500; i++) /* two of them are more than one append takes */
        body_add(&body, "x", "");
    for (int i = 0; i < 5; i++) {
        struct request request = batch_request(i, &body);
        CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    }
    settle();
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 20000), PYMQ_OK);
    CHECK_EQ(info_of(served.store, "TopicA", 0).max_offset, 7500);
    free(body.bytes);
    serve_end();
}

static void test_a_message_larger_than_the_arena_is_stored(void) {
    enum { LARGE = 3 * 1024 * 1024 };
    start("large", 1 << 24, 4 << 20);
    struct pymq_connection *connection = fake_connect(0);
    char *large = malloc(LARGE + 1);
    for (int i = 0; i < LARGE; i++)
        large[i] = (char)('a' + i % 23);
    large[LARGE] = '\0';
    struct request small = send_request(1, "TopicA", "0", UNIQUE, "small");
    struct request big = send_request(2, "TopicA", "0", UNIQUE, large);
    CHECK_EQ(offer(connection, &small), PYMQ_SERVED);
    CHECK_EQ(offer(connection, &big), PYMQ_SERVED);
    CHECK_EQ(offer(connection, &small), PYMQ_SERVED);
    settle();
    struct pymq_span span;
    struct pymq_record record;
    stored_record("TopicA", 0, 1, &span, &record);
    CHECK_BYTES(record.body.data, record.body.size, large, LARGE);
    pymq_span_release(served.store, &span);
    check_stored("TopicA", 0, 2, "small");
    free(large);
    serve_end();
}

int main(void) {
    RUN(test_batches_and_singles_keep_their_places);
    RUN(test_a_batch_that_fits_no_log_file_is_refused_alone);
    RUN(test_damaged_and_endless_batches_are_handed_over);
    RUN(test_batches_that_fill_the_collection_are_appended_on_the_way);
    RUN(test_a_message_larger_than_the_arena_is_stored);
    return check_summary();
}
