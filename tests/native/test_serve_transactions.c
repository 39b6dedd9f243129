/* END_TRANSACTION, natively: who may end a half message, once and by whom, and what becomes of it. */
#include <pthread.h>

#include "../../csrc/serve/transactions.h"
#include "serve_help.h"

#define KEY "0123456789ABCDEF0123456789ABCDEF"
#define HALF "RMQ_SYS_TRANS_HALF_TOPIC"
#define SENT "UNIQ_KEY\x01" KEY "\x02TRAN_MSG\x01true\x02PGROUP\x01group\x02"
#define BEHIND "__transactionId__\x01" KEY "\x02"
#define PLACE "REAL_TOPIC\x01TopicA\x02REAL_QID\x01" "2\x02"
#define ADDED "MSG_REGION\x01" "DefaultRegion\x02"

static struct pymq_connection *connection;

static void start_with(const char *name, const struct pymq_store_config *store) {
    struct pymq_serve_config config = serve_config();
    config.transactions = true;
    serve_start(name, store, &config);
    publish("TopicA", 4);
    publish(HALF, 1);
    connection = fake_connect(0);
}

static void start(const char *name) {
    struct pymq_store_config store = small_config();
    start_with(name, &store);
    pymq_serve_transactions_begin(served.serve, 0, 0);
}

/* A half message in the log, with more properties than usual. */
static struct pymq_put half_with(const char *more) {
    char properties[512];
    snprintf(properties, sizeof properties, SENT "%s" BEHIND PLACE ADDED, more);
    struct pymq_put put = {
        .topic = text(HALF),
        .body = text("body"),
        .properties = text(properties),
        .flag = 5,
        .sys_flag = PYMQ_SYS_COMPRESSED,
        .born_timestamp_ms = 12345,
        .born_host = {.address = {192, 0, 2, 9}, .size = 4, .port = 77},
    };
    CHECK_EQ(pymq_serve_put(served.serve, &put, 1, false), PYMQ_OK);
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    return put;
}

struct numbers {
    char queue_offset[24], physical_offset[24];
};

static struct request end_request(const struct pymq_put *half, struct numbers *numbers, const char *how, bool oneway) {
    snprintf(numbers->queue_offset, sizeof numbers->queue_offset, "%lld", (long long)half->queue_offset);
    snprintf(numbers->physical_offset, sizeof numbers->physical_offset, "%lld", (long long)half->physical_offset);
    return (struct request){
        .code = 37,
        .opaque = 9,
        .flag = oneway ? PYMQ_COMMAND_ONEWAY : 0,
        .fields = {{"producerGroup", "group"},
                   {"tranStateTableOffset", numbers->queue_offset},
                   {"commitLogOffset", numbers->physical_offset},
                   {"commitOrRollback", how},
                   {"fromTransactionCheck", "false"},
                   {"msgId", KEY},
                   {"transactionId", KEY}},
    };
}

static int end_half(const struct pymq_put *half, const char *how, bool oneway) {
    struct numbers numbers = {0};
    struct request request = end_request(half, &numbers, how, oneway);
    int outcome = offer(connection, &request);
    settle();
    return outcome;
}

static void check_ended(int64_t queue_offset, int32_t how) {
    struct pymq_transaction_end end;
    CHECK_EQ(pymq_serve_transactions_ended(served.serve, &end, 1), 1);
    CHECK_EQ(end.queue_offset, queue_offset);
    CHECK_EQ(end.how, how);
}

static void check_none_ended(void) {
    struct pymq_transaction_end end;
    CHECK_EQ(pymq_serve_transactions_ended(served.serve, &end, 1), 0);
}

static void test_a_commit_puts_the_message_where_it_was_sent_to(void) {
    start("commit");
    struct pymq_put half = half_with("");
    CHECK_EQ(end_half(&half, "8", false), PYMQ_SERVED);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK_EQ(answer.command.opaque, 9);
    CHECK_EQ(answer.command.field_count, 0);
    struct pymq_span span;
    struct pymq_record record;
    stored_record("TopicA", 2, 0, &span, &record);
    CHECK_BYTES(record.properties.data, record.properties.size, SENT BEHIND ADDED, strlen(SENT BEHIND ADDED));
    CHECK_EQ(record.sys_flag, PYMQ_SYS_COMPRESSED | PYMQ_SYS_TRANSACTION_COMMIT);
    CHECK_EQ(record.prepared_transaction_offset, half.physical_offset);
    CHECK_EQ(record.born_timestamp_ms, 12345);
    CHECK_EQ(record.born_host.port, 77);
    CHECK_EQ(record.flag, 5);
    pymq_span_release(served.store, &span);
    check_ended(0, PYMQ_SYS_TRANSACTION_COMMIT);
    check_none_ended();

    /* Once. */
    CHECK_EQ(end_half(&half, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION);
    CHECK_EQ(end_half(&half, "12", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION);
    CHECK(!pymq_serve_transaction_claim(served.serve, 0));
    CHECK_EQ(info_of(served.store, "TopicA", 2).max_offset, 1);
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    CHECK_EQ(stats.transactions, 1);
    serve_end();
}

static void test_a_rollback_puts_nothing(void) {
    start("rollback");
    struct pymq_put half = half_with(""), other = half_with("");
    CHECK_EQ(end_half(&half, "12", false), PYMQ_HAND_OVER + PYMQ_REASON_FIELD); /* its op message first */
    CHECK_EQ(end_half(&half, "12", true), PYMQ_SERVED);
    CHECK_EQ(end_half(&other, "8", true), PYMQ_SERVED);
    struct answer answer;
    CHECK(!take_answer(connection, &answer));
    check_ended(0, PYMQ_SYS_TRANSACTION_ROLLBACK);
    check_ended(1, PYMQ_SYS_TRANSACTION_COMMIT);
    CHECK_EQ(end_half(&half, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION);
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    CHECK_EQ(info_of(served.store, "TopicA", 2).max_offset, 1);
    serve_end();
}

static void test_what_is_unusual_about_a_half_is_handed_over(void) {
    start("unusual");
    const char *more[] = {"DELAY\x01" "1\x02", "TIMER_DELAY_SEC\x01" "1\x02", "TRAN_PREPARED_QUEUE_OFFSET\x01" "0\x02",
                          "CHECK_IMMUNITY_TIME_IN_SECONDS\x01" "5\x02", "PGROUP\x01other\x02", "REAL_QID\x01" "x\x02"};
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        /* The last of equal names counts, and PLACE stands behind. */
        struct pymq_put half = half_with(more[i]);
        int expected = i == 5 ? PYMQ_SERVED : PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
        CHECK_EQ(end_half(&half, "8", true), expected);
    }
    struct sent elsewhere = send_record(served.store, "TopicA", 0, text("body"), SENT PLACE, 0);
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    struct pymq_put put = {.queue_offset = elsewhere.queue_offset, .physical_offset = elsewhere.physical_offset};
    CHECK_EQ(end_half(&put, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE); /* no half */
    serve_end();
}

static void test_a_wrong_request_is_handed_over_and_claims_nothing(void) {
    start("wrong");
    struct pymq_put half = half_with("");
    struct {
        size_t field;
        const char *value;
        int reason;
    } wrong[] = {
        {0, "other", PYMQ_REASON_MESSAGE},  {1, "1", PYMQ_REASON_MESSAGE},
        {2, "1", PYMQ_REASON_MESSAGE},      {2, "-1", PYMQ_REASON_MESSAGE},
        {2, "1000000", PYMQ_REASON_MESSAGE}, {3, "0", PYMQ_REASON_FIELD},
        {3, "4", PYMQ_REASON_FIELD},        {3, "x", PYMQ_REASON_FIELD},
        {6, "other", PYMQ_REASON_MESSAGE},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct numbers numbers = {0};
        struct request request = end_request(&half, &numbers, "8", true);
        request.fields[wrong[i].field][1] = wrong[i].value;
        CHECK_EQ(offer(connection, &request), PYMQ_HAND_OVER + wrong[i].reason);
    }
    check_none_ended();
    struct numbers numbers = {0};
    struct request request = end_request(&half, &numbers, "8", true);
    request.fields[6][0] = "other"; /* clients before 4.3 do not say it */
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    serve_end();
}

static void test_halves_of_an_earlier_start_are_handed_over(void) {
    struct pymq_store_config store = small_config();
    start_with("earlier", &store);
    struct pymq_put old = half_with(""), young = half_with("");
    CHECK_EQ(end_half(&young, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION); /* not begun */
    pymq_serve_transactions_begin(served.serve, 0, young.physical_offset);
    CHECK_EQ(end_half(&old, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION);
    CHECK_EQ(end_half(&young, "8", true), PYMQ_SERVED);
    CHECK(pymq_serve_transaction_claim(served.serve, old.queue_offset));
    serve_end();
}

static void test_what_the_control_loop_claims_is_its_own(void) {
    start("claims");
    struct pymq_put first = half_with(""), second = half_with("");
    CHECK(pymq_serve_transaction_claim(served.serve, 0));
    CHECK(!pymq_serve_transaction_claim(served.serve, 0));
    CHECK_EQ(end_half(&first, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION);
    pymq_serve_transaction_release(served.serve, 0);
    CHECK_EQ(end_half(&first, "8", true), PYMQ_SERVED);
    pymq_serve_transactions_forget(served.serve, 2);
    CHECK_EQ(end_half(&second, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION); /* said to have ended */
    CHECK(!pymq_serve_transaction_claim(served.serve, 1));
    serve_end();
}

static void test_claims_are_remembered_while_the_floor_moves(void) {
    start("floor");
    for (int64_t offset = 0; offset < 300000; offset += 7)
        CHECK(pymq_serve_transaction_claim(served.serve, offset));
    for (int64_t floor = 1; floor < 300000; floor += 9973) {
        pymq_serve_transactions_forget(served.serve, floor);
        for (int64_t offset = 0; offset < 300000; offset += 1 + offset % 13) {
            bool expected = offset >= floor && offset % 7 != 0;
            bool claimed = pymq_serve_transaction_claim(served.serve, offset);
            CHECK_EQ(claimed, expected);
            if (claimed)
                pymq_serve_transaction_release(served.serve, offset);
        }
    }
    /* Too far away to be remembered: from then on nothing is ended natively. */
    struct pymq_put half = half_with("");
    CHECK(pymq_serve_transaction_claim(served.serve, (int64_t)PYMQ_TRANSACTION_SPAN_MAX + 400000));
    half.queue_offset = 0;
    CHECK_EQ(end_half(&half, "8", true), PYMQ_HAND_OVER + PYMQ_REASON_TRANSACTION);
    serve_end();
}

/* ---- claims from several threads ------------------------------------------------------------------------------- */

enum { CLAIMERS = 4, CLAIMED_OFFSETS = 20000 };

struct claimer {
    pthread_t thread;
    bool native;
    uint8_t mine[CLAIMED_OFFSETS];
};

static void *claim_all(void *context) {
    struct claimer *claimer = context;
    for (int64_t i = 0; i < CLAIMED_OFFSETS; i++) {
        int64_t offset = i * 7919 % CLAIMED_OFFSETS; /* all of them, in leaps */
        if (!claimer->native) {
            claimer->mine[offset] = pymq_serve_transaction_claim(served.serve, offset);
            continue;
        }
        claimer->mine[offset] = pymq_transaction_claim_native(served.serve, offset, 0);
        if (claimer->mine[offset] && offset % 11 == 0) { /* the store refuses: another may have it */
            pymq_transaction_unclaim_native(served.serve, offset);
            claimer->mine[offset] = 0;
        } else if (claimer->mine[offset]) {
            pymq_transaction_note(served.serve, offset, PYMQ_SYS_TRANSACTION_COMMIT);
        }
    }
    return NULL;
}

static void test_of_all_who_want_to_end_a_half_one_may(void) {
    start("claimers");
    struct claimer *claimers = calloc(CLAIMERS, sizeof *claimers);
    for (int i = 0; i < CLAIMERS; i++) {
        claimers[i].native = i < CLAIMERS - 1;
        CHECK_EQ(pthread_create(&claimers[i].thread, NULL, claim_all, &claimers[i]), 0);
    }
    int noted = 0;
    struct pymq_transaction_end ends[64];
    for (int i = 0; i < 200; i++)
        noted += (int)pymq_serve_transactions_ended(served.serve, ends, 64);
    for (int i = 0; i < CLAIMERS; i++)
        CHECK_EQ(pthread_join(claimers[i].thread, NULL), 0);
    int natives = 0;
    for (int offset = 0; offset < CLAIMED_OFFSETS; offset++) {
        int claims = 0;
        for (int i = 0; i < CLAIMERS; i++) {
            claims += claimers[i].mine[offset];
            natives += claimers[i].native && claimers[i].mine[offset];
        }
        CHECK(claims == 1 || (claims == 0 && offset % 11 == 0));
    }
    for (size_t got; (got = pymq_serve_transactions_ended(served.serve, ends, 64)) > 0;)
        noted += (int)got;
    CHECK_EQ(noted, natives);
    free(claimers);
    serve_end();
}

static void test_a_commit_the_store_refuses_may_be_tried_again(void) {
    start("refused");
    struct pymq_put half = half_with("");
    struct numbers numbers = {0};
    struct request request = end_request(&half, &numbers, "8", false);
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED); /* collected, and then the store says no */
    pymq_store_set_writable(served.store, false);
    settle();
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 14);
    CHECK_EQ(answer.command.field_count, 0);
    check_none_ended();
    CHECK_EQ(offer(connection, &request), PYMQ_HAND_OVER + PYMQ_REASON_STORE);
    pymq_store_set_writable(served.store, true);
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    check_ended(0, PYMQ_SYS_TRANSACTION_COMMIT);
    serve_end();
}

static void test_an_answer_waits_for_the_disk(void) {
    struct pymq_store_config store = small_config();
    store.replica_gate = true;
    start_with("waits", &store);
    pymq_serve_transactions_begin(served.serve, 0, 0);
    struct pymq_put half = {.topic = text(HALF),
                            .body = text("body"),
                            .properties = text(SENT BEHIND PLACE),
                            .born_host = {.size = 4}};
    pymq_store_set_replica(served.store, 0, true);
    CHECK_EQ(pymq_serve_put(served.serve, &half, 1, false), PYMQ_OK);
    CHECK_EQ(end_half(&half, "8", false), PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE); /* nobody may see it yet */
    pymq_store_set_replica(served.store, half.end_offset, true);
    CHECK_EQ(end_half(&half, "8", false), PYMQ_SERVED);
    struct answer answer;
    CHECK(!take_answer(connection, &answer));
    check_ended(0, PYMQ_SYS_TRANSACTION_COMMIT);
    pymq_store_set_replica(served.store, INT64_MAX / 2, true);
    served.service->event(served.service->context, &fake.reactor);
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK_EQ(answer.command.opaque, 9);
    serve_end();
}

int main(void) {
    RUN(test_a_commit_puts_the_message_where_it_was_sent_to);
    RUN(test_a_rollback_puts_nothing);
    RUN(test_what_is_unusual_about_a_half_is_handed_over);
    RUN(test_a_wrong_request_is_handed_over_and_claims_nothing);
    RUN(test_halves_of_an_earlier_start_are_handed_over);
    RUN(test_what_the_control_loop_claims_is_its_own);
    RUN(test_claims_are_remembered_while_the_floor_moves);
    RUN(test_of_all_who_want_to_end_a_half_one_may);
    RUN(test_a_commit_the_store_refuses_may_be_tried_again);
    RUN(test_an_answer_waits_for_the_disk);
    return check_summary();
}
