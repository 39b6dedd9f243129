/* The serving's tables: rows found, replaced in place, removed; many of them; and the keys made for messages. */
#include "../../csrc/serve/order.h"
#include "../../csrc/serve/tables.h"
#include "../../csrc/serve/unique_key.h"
#include "serve_help.h"

static struct pymq_tables tables;

static struct pymq_topic *publish_row(const char *name, int32_t read_queues, int32_t write_queues) {
    struct pymq_topic_row row = {.name = (const uint8_t *)name,
                                 .name_size = (uint32_t)strlen(name),
                                 .permission = 6,
                                 .read_queues = read_queues,
                                 .write_queues = write_queues};
    struct pymq_topic *topic = NULL;
    pymq_tables_begin(&tables);
    CHECK_EQ(pymq_topic_publish(&tables, &row, &topic), PYMQ_OK);
    pymq_tables_end(&tables);
    return topic;
}

static struct pymq_topic *find_row(const char *name) {
    return pymq_topic_find(&tables, (const uint8_t *)name, strlen(name));
}

static void test_a_topic_is_replaced_in_place_and_keeps_its_incarnation(void) {
    CHECK_EQ(pymq_tables_init(&tables), PYMQ_OK);
    struct pymq_topic *topic = publish_row("TopicA", 4, 4);
    uint64_t incarnation = topic->incarnation;
    atomic_store(&topic->queues[3], (struct pymq_queue *)&tables); /* anything but NULL */
    CHECK(publish_row("TopicA", 16, 8) == topic);
    CHECK(find_row("TopicA") == topic);
    CHECK_EQ(topic->incarnation, incarnation);
    CHECK_EQ(topic->queue_count, 16);
    CHECK(atomic_load(&topic->queues[3]) == (struct pymq_queue *)&tables);
    CHECK(atomic_load(&topic->queues[15]) == NULL);
    publish_row("TopicA", 2, 2);
    CHECK_EQ(topic->queue_count, 16); /* a queue a reader has found stays where it is */
    CHECK_EQ(topic->read_queues, 2);
    pymq_topic_remove(&tables, topic);
    CHECK(find_row("TopicA") == NULL);
    CHECK(publish_row("TopicA", 4, 4)->incarnation != incarnation);
    pymq_tables_destroy(&tables);
}

static void test_a_hundred_thousand_topics_are_found_and_removed(void) {
    enum { COUNT = 100000 };
    char name[32];
    CHECK_EQ(pymq_tables_init(&tables), PYMQ_OK);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "Topic-%d", i);
        publish_row(name, 1, 1);
    }
    for (int i = 0; i < COUNT; i += 2) {
        snprintf(name, sizeof name, "Topic-%d", i);
        pymq_topic_remove(&tables, find_row(name));
    }
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "Topic-%d", i);
        CHECK_EQ(find_row(name) != NULL, i % 2);
    }
    size_t walked = 0;
    for (struct pymq_row *row = NULL; (row = pymq_row_map_next(&tables.topics, row)) != NULL;)
        walked++;
    CHECK_EQ(walked, COUNT / 2);
    CHECK_EQ(tables.topics.count, COUNT / 2);
    pymq_tables_destroy(&tables);
}

static void test_rows_that_cannot_be_are_refused(void) {
    CHECK_EQ(pymq_tables_init(&tables), PYMQ_OK);
    struct pymq_topic *topic;
    struct pymq_topic_row row = {.name = (const uint8_t *)"x", .name_size = 0};
    CHECK_EQ(pymq_topic_publish(&tables, &row, &topic), PYMQ_EINVAL);
    row.name_size = 1;
    row.read_queues = -1;
    CHECK_EQ(pymq_topic_publish(&tables, &row, &topic), PYMQ_EINVAL);
    row.read_queues = PYMQ_TOPIC_QUEUES_MAX + 1;
    CHECK_EQ(pymq_topic_publish(&tables, &row, &topic), PYMQ_EINVAL);
    struct pymq_subscription *subscription;
    struct pymq_subscription_row wants = {.group = row.name, .topic = row.name, .group_size = 1, .topic_size = 1,
                                          .tag_count = PYMQ_TAGS_MAX + 1};
    CHECK_EQ(pymq_subscription_publish(&tables, &wants, &subscription), PYMQ_EINVAL);
    struct pymq_offset_row *offsets;
    CHECK_EQ(pymq_offset_make(&tables, row.name, 1, row.name, 1, PYMQ_TOPIC_QUEUES_MAX, &offsets), PYMQ_EINVAL);
    pymq_tables_destroy(&tables);
}

static void test_subscriptions_are_told_apart_by_both_names(void) {
    CHECK_EQ(pymq_tables_init(&tables), PYMQ_OK);
    struct pymq_subscription *first, *second, *again;
    struct pymq_subscription_row row = {.topic = (const uint8_t *)"ab", .topic_size = 2, .group = (const uint8_t *)"c",
                                        .group_size = 1, .version = 1, .tag_count = 2, .tag_hashes = {7, 8}};
    CHECK_EQ(pymq_subscription_publish(&tables, &row, &first), PYMQ_OK);
    row.topic_size = 1; /* "a" + "bc" is not "ab" + "c" */
    row.group = (const uint8_t *)"bc";
    row.group_size = 2;
    CHECK_EQ(pymq_subscription_publish(&tables, &row, &second), PYMQ_OK);
    CHECK(first != second);
    row.version = 2;
    row.tag_count = 1;
    CHECK_EQ(pymq_subscription_publish(&tables, &row, &again), PYMQ_OK);
    CHECK(again == second);
    CHECK_EQ(second->version, 2);
    CHECK_EQ(second->tag_count, 1);
    CHECK_EQ(first->version, 1);
    CHECK_EQ(first->tag_hashes[1], 8);
    atomic_store(&second->traffic->messages, 5);
    struct pymq_pull_traffic *traffic = second->traffic;
    pymq_subscription_remove(&tables, second);
    CHECK(pymq_subscription_find(&tables, (const uint8_t *)"a", 1, (const uint8_t *)"bc", 2) == NULL);
    CHECK_EQ(pymq_subscription_publish(&tables, &row, &again), PYMQ_OK);
    CHECK(again->traffic == traffic); /* what was counted outlives a consumer that goes and comes */
    CHECK_EQ(atomic_load(&traffic->messages), 5);
    pymq_traffic_forget(&tables, NULL, 0, (const uint8_t *)"bc", 2);
    CHECK_EQ(atomic_load(&traffic->messages), 0);
    pymq_tables_destroy(&tables);
}

static void test_order_counts_each_send_of_a_connection_and_topic(void) {
    struct pymq_order order;
    CHECK_EQ(pymq_order_init(&order), PYMQ_OK);
    const uint8_t *a = (const uint8_t *)"a", *b = (const uint8_t *)"b";
    CHECK(!pymq_order_is_waiting(&order, 1, a, 1, 0));
    for (uint64_t connection = 1; connection <= 1000; connection++)
        pymq_order_enter(&order, connection, a, 1);
    pymq_order_enter(&order, 7, a, 1);
    CHECK(pymq_order_is_waiting(&order, 7, a, 1, 0));
    CHECK(!pymq_order_is_waiting(&order, 7, b, 1, 0));
    pymq_order_leave(&order, 7, a, 1);
    CHECK(pymq_order_is_waiting(&order, 7, a, 1, 0));
    pymq_order_leave(&order, 7, a, 1);
    CHECK(!pymq_order_is_waiting(&order, 7, a, 1, 0));
    pymq_order_leave(&order, 7, a, 1); /* one too many is nothing */
    pymq_order_enter(&order, 8, b, 1);
    pymq_order_forget(&order, 8);
    CHECK(!pymq_order_is_waiting(&order, 8, a, 1, 0));
    CHECK(!pymq_order_is_waiting(&order, 8, b, 1, 0));
    CHECK_EQ(atomic_load(&order.count), 998);
    pymq_order_enter_any(&order, 2000, 50); /* perhaps a send: everything of the connection waits, but not for ever */
    pymq_order_enter_any(&order, 2000, 50);
    CHECK(pymq_order_is_waiting(&order, 2000, b, 1, 49));
    pymq_order_leave_any(&order, 2000);
    CHECK(pymq_order_is_waiting(&order, 2000, b, 1, 49));
    CHECK(!pymq_order_is_waiting(&order, 2000, b, 1, 50));
    CHECK_EQ(atomic_load(&order.count), 998);
    pymq_order_enter_any(&order, 2000, 90);
    pymq_order_leave_any(&order, 2000);
    CHECK(!pymq_order_is_waiting(&order, 2000, a, 1, 60));
    pymq_order_destroy(&order);
}

static int64_t hex(const uint8_t *text, size_t size) {
    char copy[17] = {0};
    memcpy(copy, text, size);
    return (int64_t)strtoull(copy, NULL, 16);
}

static void test_keys_count_on_and_tell_the_time_of_the_month(void) {
    uint8_t first[PYMQ_UNIQUE_KEY_SIZE], second[PYMQ_UNIQUE_KEY_SIZE];
    setenv("TZ", "UTC", 1);
    pymq_unique_key_at(first, 1794794388118);  /* 2026-11-15 23:59:48.118 UTC */
    pymq_unique_key_at(second, 1794794388118);
    CHECK_BYTES(second, 28, first, 28);
    CHECK_EQ(hex(second + 28, 4), (hex(first + 28, 4) + 1) & 0xffff);
    CHECK_EQ(hex(first + 20, 8), 1794794388118 - 1793491200000); /* since 2026-11-01 */
    pymq_unique_key_at(second, 1796083200000);                   /* 2026-12-01: a new month begins at 0 */
    CHECK_EQ(hex(second + 20, 8), 0);
    for (size_t i = 0; i < sizeof first; i++)
        CHECK((first[i] >= '0' && first[i] <= '9') || (first[i] >= 'A' && first[i] <= 'F'));
}

int main(void) {
    RUN(test_a_topic_is_replaced_in_place_and_keeps_its_incarnation);
    RUN(test_a_hundred_thousand_topics_are_found_and_removed);
    RUN(test_rows_that_cannot_be_are_refused);
    RUN(test_subscriptions_are_told_apart_by_both_names);
    RUN(test_order_counts_each_send_of_a_connection_and_topic);
    RUN(test_keys_count_on_and_tell_the_time_of_the_month);
    return check_summary();
}
