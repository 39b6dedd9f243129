/* Consumer offsets: queries and commits natively, rows made by the control loop, resets that commits do not undo. */
#include <pthread.h>

#include "../../csrc/serve/tables.h"
#include "serve_help.h"

static void start(const char *name) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    serve_start(name, &store, &config);
    publish("TopicA", 4);
    publish_group("group");
}

static struct request query_request(const char *group, const char *topic, const char *queue_id) {
    return (struct request){
        .code = 14, .opaque = 3, .fields = {{"consumerGroup", group}, {"topic", topic}, {"queueId", queue_id}}};
}

static struct request commit_request(const char *group, const char *topic, const char *queue_id, const char *offset) {
    return (struct request){.code = 15,
                            .opaque = 4,
                            .fields = {{"consumerGroup", group}, {"topic", topic}, {"queueId", queue_id},
                                       {"commitOffset", offset}}};
}

static int64_t queried(const char *group, const char *topic, int32_t queue_id) {
    int64_t offset;
    int status = pymq_serve_offset_query(served.serve, (const uint8_t *)group, (uint32_t)strlen(group),
                                         (const uint8_t *)topic, (uint32_t)strlen(topic), queue_id, &offset);
    return status == PYMQ_OK ? offset : -1;
}

static void commit(const char *group, const char *topic, int32_t queue_id, int64_t offset) {
    CHECK_EQ(pymq_serve_offset_commit(served.serve, (const uint8_t *)group, (uint32_t)strlen(group),
                                      (const uint8_t *)topic, (uint32_t)strlen(topic), queue_id, offset),
             PYMQ_OK);
}

static void test_the_first_commit_is_handed_over_and_the_next_is_not(void) {
    start("first");
    struct pymq_connection *connection = fake_connect(0);
    struct request request = commit_request("group", "TopicA", "2", "17");
    struct request query = query_request("group", "TopicA", "2");
    CHECK_EQ(offer(connection, &request), PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN);
    CHECK_EQ(offer(connection, &query), PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN);
    commit("group", "TopicA", 2, 17);
    request = commit_request("group", "TopicA", "2", "18");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK_EQ(answer.command.opaque, 4);
    CHECK_EQ(answer.command.field_count, 0);
    CHECK(answer.command.remark.data == NULL);
    CHECK_EQ(offer(connection, &query), PYMQ_SERVED);
    CHECK(take_answer(connection, &answer));
    check_field(&answer, "offset", "18");
    CHECK_EQ(queried("group", "TopicA", 2), 18);
    CHECK_EQ(queried("group", "TopicA", 3), -1);
    serve_end();
}

static void test_an_answer_to_a_commit_has_an_empty_map_of_fields(void) {
    start("map");
    struct pymq_connection *connection = fake_connect(0);
    commit("group", "TopicA", 0, 1);
    struct request request = commit_request("group", "TopicA", "0", "2");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    static const char expected[] = "{\"code\":0,\"extFields\":{},\"flag\":1,\"language\":\"JAVA\",\"opaque\":4,"
                                   "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":513}";
    CHECK_BYTES(connection->output + 8, connection->output_size - 8, expected, sizeof expected - 1);
    serve_end();
}

static void test_a_oneway_commit_is_not_answered(void) {
    start("oneway");
    struct pymq_connection *connection = fake_connect(0);
    commit("group", "TopicA", 0, 1);
    struct request request = commit_request("group", "TopicA", "0", "2");
    request.flag = PYMQ_COMMAND_ONEWAY;
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    CHECK_EQ(connection->output_size, 0);
    CHECK_EQ(queried("group", "TopicA", 0), 2);
    serve_end();
}

static void test_whoever_is_unknown_is_handed_over(void) {
    start("unknown");
    struct pymq_connection *connection = fake_connect(0);
    commit("stranger", "TopicA", 0, 1);
    commit("group", "Elsewhere", 0, 1);
    struct request stranger = commit_request("stranger", "TopicA", "0", "2");
    struct request elsewhere = commit_request("group", "Elsewhere", "0", "2");
    struct request malformed = commit_request("group", "TopicA", "0", "x");
    struct request far = commit_request("group", "TopicA", "70000", "1");
    CHECK_EQ(offer(connection, &stranger), PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN);
    CHECK_EQ(offer(connection, &elsewhere), PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN);
    CHECK_EQ(offer(connection, &malformed), PYMQ_HAND_OVER + PYMQ_REASON_FIELD);
    CHECK_EQ(offer(connection, &far), PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN);
    serve_end();
}

static void subscribe(const char *group, const char *topic) {
    struct pymq_subscription_row row = {.group = (const uint8_t *)group,
                                        .group_size = (uint32_t)strlen(group),
                                        .topic = (const uint8_t *)topic,
                                        .topic_size = (uint32_t)strlen(topic),
                                        .all = true};
    CHECK_EQ(pymq_serve_publish_subscription(served.serve, &row), PYMQ_OK);
}

/* Every first query and commit of a new group once went through the control loop, queue by queue. */
static void test_a_subscription_makes_first_queries_and_commits_native(void) {
    start("subscribed");
    struct pymq_connection *connection = fake_connect(0);
    struct answer answer;
    subscribe("group", "TopicA");
    struct request query = query_request("group", "TopicA", "1");
    struct request commit_first = commit_request("group", "TopicA", "3", "9");
    CHECK_EQ(offer(connection, &query), PYMQ_SERVED); /* nothing was ever sent there */
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 22);
    CHECK_BYTES(answer.command.remark.data, 10, "Not found,", 10);
    send_text(served.store, "TopicA", 1, "first");
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    CHECK_EQ(offer(connection, &query), PYMQ_SERVED); /* begins at 0, in memory */
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    check_field(&answer, "offset", "0");
    query.fields[3][0] = "setZeroIfNotFound";
    query.fields[3][1] = "false";
    CHECK_EQ(offer(connection, &query), PYMQ_SERVED);
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 22);
    CHECK_EQ(offer(connection, &commit_first), PYMQ_SERVED);
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK_EQ(queried("group", "TopicA", 3), 9);
    CHECK_EQ(queried("group", "TopicA", 1), -1);
    struct pymq_offset_entry entries[8];
    CHECK_EQ(pymq_serve_offsets(served.serve, entries, 8), 1); /* places without an offset are not saved */
    subscribe("group", "Later"); /* and a topic that comes, or grows, behind its subscription */
    struct request later = commit_request("group", "Later", "5", "1");
    CHECK_EQ(offer(connection, &later), PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN);
    publish("Later", 2);
    CHECK_EQ(offer(connection, &later), PYMQ_SERVED); /* places come by the dozen */
    publish("Later", 40);
    later = commit_request("group", "Later", "39", "1");
    CHECK_EQ(offer(connection, &later), PYMQ_SERVED);
    struct request other = query_request("other", "TopicA", "1");
    CHECK_EQ(offer(connection, &other), PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN);
    serve_end();
}

static void test_a_negative_commit_is_kept_and_not_found(void) {
    start("negative");
    struct pymq_connection *connection = fake_connect(0);
    commit("group", "TopicA", 0, 5);
    struct request request = commit_request("group", "TopicA", "0", "-1");
    struct request query = query_request("group", "TopicA", "0");
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    CHECK_EQ(offer(connection, &query), PYMQ_SERVED);
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 22);
    struct pymq_offset_entry entry;
    CHECK_EQ(pymq_serve_offsets(served.serve, &entry, 1), 1);
    CHECK_EQ(entry.offset, -1);
    serve_end();
}

static void test_a_reset_stands_until_it_was_pulled_from(void) {
    start("reset");
    struct pymq_connection *connection = fake_connect(0);
    commit("group", "TopicA", 1, 100);
    CHECK_EQ(pymq_serve_offset_reset(served.serve, (const uint8_t *)"group", 5, (const uint8_t *)"TopicA", 6, 1, 40),
             PYMQ_OK);
    struct request late = commit_request("group", "TopicA", "1", "101"), query = query_request("group", "TopicA", "1");
    struct answer answer;
    CHECK_EQ(offer(connection, &late), PYMQ_SERVED);
    CHECK(take_answer(connection, &answer));
    CHECK_EQ(answer.command.code, 0);
    CHECK_BYTES(answer.command.remark.data, answer.command.remark.size, "Offset has been previously reset", 32);
    commit("group", "TopicA", 1, 102);
    CHECK_EQ(offer(connection, &query), PYMQ_SERVED);
    CHECK(take_answer(connection, &answer));
    check_field(&answer, "offset", "40");

    serve_end();
}

/* A cell whose group was reset to `target`. */
static struct pymq_offset_cell reset_cell(struct pymq_reset_guard *guard, int64_t offset, int64_t pulled,
                                          int64_t target) {
    struct pymq_offset_cell cell = {
        .offset = offset, .pending = PYMQ_OFFSET_NONE, .pulled = pulled, .guard = guard};
    pymq_guard_begin(guard, &cell, 0, target);
    cell.offset = cell.pending = target;
    cell.pulled = PYMQ_OFFSET_NONE;
    return cell;
}

enum { OLD = 7, NEW = 8, THIRD = 9, NOW = 1000 };

/* A pull that is served: from `begin` to `next`. */
static void read_on(struct pymq_offset_cell *cell, uint64_t connection, int64_t begin, int64_t next) {
    CHECK_EQ(pymq_offset_begin(cell, connection, NOW, begin), PYMQ_OFFSET_NONE);
    pymq_offset_served(cell, connection, NOW, begin, next);
}

/* A commit that was on its way when a reset was made never wins: not before the reset is followed, and not behind that
 * when it comes from somebody who has not begun where the group stands. */
static void test_an_older_commit_of_another_client_does_not_win_after_a_reset_was_followed(void) {
    struct pymq_reset_guard guard = {0};
    struct pymq_offset_cell cell = reset_cell(&guard, 50, 60, 40);
    CHECK_EQ(pymq_offset_begin(&cell, OLD, NOW, 39), 40);
    CHECK(!pymq_offset_store(&cell, OLD, NOW, 50));
    CHECK_EQ(pymq_offset_value(&cell), 40);
    CHECK_EQ(pymq_offset_ask(&cell, NEW), 40);
    read_on(&cell, NEW, 40, 70);
    CHECK(!pymq_offset_store(&cell, OLD, NOW, 50)); /* it was on its way all the time */
    read_on(&cell, OLD, 50, 80);                    /* reads on, which does no harm */
    CHECK(!pymq_offset_store(&cell, OLD, NOW, 51));
    CHECK(pymq_offset_store(&cell, NEW, NOW, 41));
    CHECK_EQ(pymq_offset_value(&cell), 41);
    CHECK_EQ(pymq_offset_ask(&cell, THIRD), 41); /* the queue moves on to it */
    read_on(&cell, THIRD, 41, 70);
    CHECK(pymq_offset_store(&cell, THIRD, NOW, 55));
    CHECK(!pymq_offset_store(&cell, OLD, NOW, 60));
    CHECK(pymq_offset_store(&cell, 0, NOW, 99)); /* the broker's own word */
    CHECK(!pymq_offset_store(&cell, OLD, NOW + PYMQ_RESET_GUARD_MS - 1, 60));
    CHECK(pymq_offset_store(&cell, OLD, NOW + PYMQ_RESET_GUARD_MS, 60)); /* nobody's commit travels for so long */
    CHECK_EQ(pymq_offset_value(&cell), 60);
}

/* Symptom: a lite pull client that followed a reset back undid it with its next periodic commit. */
static void test_a_follower_that_commits_what_it_had_consumed_before_does_not_undo_the_reset(void) {
    struct pymq_reset_guard guard = {0};
    struct pymq_offset_cell cell = reset_cell(&guard, 150, 182, 10);
    CHECK_EQ(pymq_offset_begin(&cell, NEW, NOW, 182), 10);
    CHECK_EQ(pymq_offset_begin(&cell, NEW, NOW, 10), PYMQ_OFFSET_NONE);
    CHECK(!pymq_offset_store(&cell, NEW, NOW, 42)); /* rides on the pull: nothing was served yet */
    pymq_offset_served(&cell, NEW, NOW, 10, 42);
    CHECK(!pymq_offset_store(&cell, NEW, NOW, 150));
    read_on(&cell, NEW, 42, 170);
    CHECK(!pymq_offset_store(&cell, NEW, NOW, 150)); /* served again, and not consumed */
    CHECK(!pymq_offset_store(&cell, NEW, NOW, 9));
    CHECK(pymq_offset_store(&cell, NEW, NOW, 30));
    CHECK(pymq_offset_store(&cell, NEW, NOW, 150)); /* now it is of now */
    CHECK(!pymq_offset_store(&cell, NEW, NOW, 171));
    CHECK_EQ(pymq_offset_value(&cell), 150);

    cell = reset_cell(&guard, 201, 201, 10); /* everything is read again before the first commit */
    CHECK_EQ(pymq_offset_begin(&cell, NEW, NOW, 201), 10);
    read_on(&cell, NEW, 10, 201);
    CHECK(pymq_offset_store(&cell, NEW, NOW, 201));

    cell = reset_cell(&guard, 150, 182, 10); /* who drops what it has says the reset's offset before it begins anew */
    CHECK_EQ(pymq_offset_begin(&cell, NEW, NOW, 182), 10);
    CHECK(!pymq_offset_store(&cell, NEW, NOW, 10));
    read_on(&cell, NEW, 10, 201);
    CHECK(pymq_offset_store(&cell, NEW, NOW, 160));
}

/* Symptom: a skip to the end was undone by a client that stood there with messages it had not consumed. */
static void test_a_skip_to_where_a_client_stands_keeps_out_what_it_had_read_before(void) {
    struct pymq_reset_guard guard = {0};
    struct pymq_offset_cell cell = reset_cell(&guard, 100, 201, 201);
    read_on(&cell, NEW, 201, 201);
    CHECK(!pymq_offset_store(&cell, NEW, NOW, 120));
    CHECK_EQ(pymq_offset_value(&cell), 201);
    CHECK(pymq_offset_store(&cell, NEW, NOW, 201));
    read_on(&cell, NEW, 201, 205);
    CHECK(pymq_offset_store(&cell, NEW, NOW, 204));

    cell = reset_cell(&guard, 100, 201, 202); /* behind the end: the answer leads back to it */
    read_on(&cell, NEW, 202, 201);
    read_on(&cell, NEW, 201, 203);
    CHECK(pymq_offset_store(&cell, NEW, NOW, 201));
    CHECK(pymq_offset_store(&cell, NEW, NOW, 203));
}

/* Symptom: the commits of a consumer that reconnected after it had followed a reset were discarded for two minutes. */
static void test_a_client_that_reconnects_after_it_followed_a_reset_commits(void) {
    struct pymq_reset_guard guard = {0};
    struct pymq_offset_cell cell = reset_cell(&guard, 150, PYMQ_OFFSET_NONE, 10);
    read_on(&cell, OLD, 10, 42);
    read_on(&cell, NEW, 42, 74); /* goes on where it was */
    CHECK(pymq_offset_store(&cell, NEW, NOW, 60));
    read_on(&cell, THIRD, 42, 74); /* its last answer was lost */
    CHECK(pymq_offset_store(&cell, THIRD, NOW, 70));
    CHECK_EQ(pymq_offset_value(&cell), 70);
}

/* Symptom: a new owner that asked where to begin just before the old one's last commit could not commit. */
static void test_a_new_owner_commits_although_the_group_moved_on_since_it_asked(void) {
    struct pymq_reset_guard guard = {0};
    struct pymq_offset_cell cell = reset_cell(&guard, 150, 182, 10);
    read_on(&cell, OLD, 10, 42);
    read_on(&cell, OLD, 42, 74);
    CHECK_EQ(pymq_offset_ask(&cell, NEW), 10);
    CHECK(pymq_offset_store(&cell, OLD, NOW, 30));
    read_on(&cell, NEW, 10, 42);
    CHECK(pymq_offset_store(&cell, NEW, NOW, 35));
    CHECK_EQ(pymq_offset_value(&cell), 35);
}

static void test_offsets_are_listed_and_removed_by_group_and_topic(void) {
    start("listed");
    commit("g1", "TopicA", 0, 1);
    commit("g1", "TopicB", 3, 2);
    commit("g2", "TopicA", 1, 3);
    struct pymq_offset_entry entries[8];
    CHECK_EQ(pymq_serve_offsets(served.serve, entries, 8), 3);
    int64_t sum = 0;
    for (int i = 0; i < 3; i++)
        sum += entries[i].offset * 100 + entries[i].queue_id;
    CHECK_EQ(sum, 604);
    pymq_serve_offset_remove(served.serve, (const uint8_t *)"g1", 2, NULL, 0);
    CHECK_EQ(pymq_serve_offsets(served.serve, entries, 8), 1);
    CHECK_EQ(queried("g1", "TopicB", 3), -1);
    CHECK_EQ(queried("g2", "TopicA", 1), 3);
    pymq_serve_offset_remove(served.serve, NULL, 0, NULL, 0); /* means nothing, not everything */
    pymq_serve_remove_topic(served.serve, (const uint8_t *)"TopicA", 6, true);
    CHECK_EQ(pymq_serve_offsets(served.serve, entries, 8), 0);
    serve_end();
}

/* Commits of a reactor beside a control loop that reads snapshots and commits itself. */
static void *commit_beside(void *context) {
    (void)context;
    struct pymq_offset_entry entries[64];
    for (int i = 0; i < 2000; i++) {
        commit("group", "TopicA", 1, i);
        pymq_serve_offsets(served.serve, entries, 64);
    }
    return NULL;
}

static void test_commits_and_snapshots_need_no_exclusion(void) {
    start("beside");
    struct pymq_connection *connection = fake_connect(0);
    commit("group", "TopicA", 0, 0);
    commit("group", "TopicA", 1, 0);
    pthread_t other;
    pthread_create(&other, NULL, commit_beside, NULL);
    for (int i = 1; i <= 2000; i++) {
        char offset[16];
        snprintf(offset, sizeof offset, "%d", i);
        struct request request = commit_request("group", "TopicA", "0", offset);
        request.flag = PYMQ_COMMAND_ONEWAY;
        CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    }
    pthread_join(other, NULL);
    CHECK_EQ(queried("group", "TopicA", 0), 2000);
    CHECK_EQ(queried("group", "TopicA", 1), 1999);
    serve_end();
}

int main(void) {
    RUN(test_the_first_commit_is_handed_over_and_the_next_is_not);
    RUN(test_an_answer_to_a_commit_has_an_empty_map_of_fields);
    RUN(test_a_oneway_commit_is_not_answered);
    RUN(test_whoever_is_unknown_is_handed_over);
    RUN(test_a_subscription_makes_first_queries_and_commits_native);
    RUN(test_a_negative_commit_is_kept_and_not_found);
    RUN(test_a_reset_stands_until_it_was_pulled_from);
    RUN(test_an_older_commit_of_another_client_does_not_win_after_a_reset_was_followed);
    RUN(test_a_follower_that_commits_what_it_had_consumed_before_does_not_undo_the_reset);
    RUN(test_a_skip_to_where_a_client_stands_keeps_out_what_it_had_read_before);
    RUN(test_a_client_that_reconnects_after_it_followed_a_reset_commits);
    RUN(test_a_new_owner_commits_although_the_group_moved_on_since_it_asked);
    RUN(test_offsets_are_listed_and_removed_by_group_and_topic);
    RUN(test_commits_and_snapshots_need_no_exclusion);
    return check_summary();
}
