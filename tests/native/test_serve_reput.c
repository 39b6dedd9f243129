/* Messages put again, log to log: what is kept, what is changed, what each failure says, and what is due. */
#include <pthread.h>

#include "../../csrc/serve/reput.h"
#include "serve_help.h"

#define SCHEDULE "SCHEDULE_TOPIC_XXXX"

static void start(const char *name, int64_t log_file_size, int32_t message_size_max) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    store.log_file_size = log_file_size;
    store.log_window_size = log_file_size < 65536 ? 4096 : 1 << 20;
    store.message_size_max = config.message_size_max = message_size_max;
    CHECK_EQ(pymq_delay_levels_parse("1s 5s 10s", &store.delay_levels), PYMQ_OK);
    serve_start(name, &store, &config);
}

static void visible(void) { CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK); }

static struct pymq_reput reput_of(int64_t source, const char *topic, int32_t queue_id) {
    return (struct pymq_reput){.source = source, .topic = text(topic), .queue_id = queue_id, .reconsume_times = -1};
}

static struct sent put(const char *topic, int32_t queue_id, const char *body, const char *properties) {
    struct sent sent = send_record(served.store, topic, queue_id, text(body), properties, 0);
    CHECK_EQ(sent.status, PYMQ_OK);
    return sent;
}

static void check_properties(const char *source, const char *remove, const char *set, const char *expected) {
    uint8_t target[256];
    uint32_t size = 0;
    CHECK_EQ(pymq_reput_properties(text(source), text(remove), text(set), target, sizeof target, &size), PYMQ_OK);
    CHECK_BYTES(target, size, expected, strlen(expected));
}

static void test_properties_are_edited_by_exact_names(void) {
    check_properties("", "", "", "");
    check_properties("a\x01" "1\x02" "ab\x01" "2", "", "", "a\x01" "1\x02" "ab\x01" "2\x02");
    check_properties("a\x01" "1\x02" "ab\x01" "2\x02" "b\x01" "3\x02", "a\x02", "", "ab\x01" "2\x02" "b\x01" "3\x02");
    check_properties("a\x01" "1\x02" "ab\x01" "2\x02", "A\x02" "abc\x02", "", "a\x01" "1\x02" "ab\x01" "2\x02");
    check_properties("a\x01" "1\x02" "b\x01" "2\x02", "", "a\x01" "x\x02" "c\x01" "y\x02",
                     "b\x01" "2\x02" "a\x01" "x\x02" "c\x01" "y\x02");
    check_properties("a\x01" "1\x02" "a\x01" "2\x02" "b\x01" "3\x02", "a\x02", "", "b\x01" "3\x02");
    check_properties("a\x01" "1\x02" "junk\x02" "b\x01" "with\x01" "one\x02", "junk\x02", "",
                     "a\x01" "1\x02" "b\x01" "with\x01" "one\x02");
    check_properties("__CRC32#\x01" "0123456789\x02" "a\x01" "1\x02", "", "", "a\x01" "1\x02");
    uint8_t target[8];
    uint32_t size;
    CHECK_EQ(pymq_reput_properties(text("abc\x01" "1234\x02"), text(""), text(""), target, sizeof target, &size),
             PYMQ_EPROPERTIES);
    CHECK_EQ(pymq_reput_properties(text("a\x01" "1\x02"), text(""), text("b\x01" "123\x02"), target, sizeof target,
                                   &size),
             PYMQ_EPROPERTIES);
    CHECK_EQ(pymq_reput_properties(text(""), text(""), text("b\x01" "1"), target, sizeof target, &size), PYMQ_EINVAL);
    CHECK_EQ(pymq_reput_properties(text(""), text(""), text("b\x02"), target, sizeof target, &size), PYMQ_EINVAL);
}

static void test_a_message_is_kept_but_for_what_is_asked(void) {
    start("kept", 8209, 4096);
    publish("There", 4);
    const struct pymq_host born = {.address = {0x20, 1, 0xd, 0xb8, [15] = 7}, .size = 16, .port = 4711};
    struct pymq_put original = {
        .topic = text("Here"),
        .body = text("the body"),
        .properties = text("REAL_TOPIC\x01" "There\x02" "REAL_QID\x01" "3\x02" "DELAY\x01" "2\x02" "mine\x01" "1\x02"),
        .flag = 5,
        .sys_flag = PYMQ_SYS_COMPRESSED | PYMQ_SYS_TRANSACTION_COMMIT,
        .reconsume_times = 3,
        .born_timestamp_ms = 12345,
        .born_host = born,
        .prepared_transaction_offset = 9,
    };
    CHECK_EQ(pymq_serve_put(served.serve, &original, 1, false), PYMQ_OK);
    visible();
    struct pymq_reput reput = reput_of(original.physical_offset, "", -1);
    reput.remove = text("DELAY\x02");
    reput.set = text("extra\x01" "yes\x02");
    reput.sys_flag_clear = PYMQ_SYS_TRANSACTION_MASK;
    reput.sys_flag_set = PYMQ_SYS_MULTI_TAGS;
    CHECK_EQ(pymq_serve_reput(served.serve, &reput, 1, false), 1);
    CHECK_EQ(reput.queue_offset, 0);
    CHECK_EQ(reput.physical_offset, original.end_offset);

    struct pymq_span span;
    struct pymq_record record;
    stored_record("There", 3, 0, &span, &record);
    CHECK_EQ(record.physical_offset, reput.physical_offset);
    CHECK_EQ(reput.end_offset, reput.physical_offset + record.total_size);
    CHECK_EQ(record.store_timestamp_ms, reput.store_timestamp_ms);
    const char *expected = "REAL_TOPIC\x01" "There\x02" "REAL_QID\x01" "3\x02" "mine\x01" "1\x02" "extra\x01" "yes\x02";
    CHECK_BYTES(record.properties.data, record.properties.size, expected, strlen(expected));
    CHECK_BYTES(record.body.data, record.body.size, "the body", 8);
    CHECK_EQ(record.sys_flag, PYMQ_SYS_COMPRESSED | PYMQ_SYS_MULTI_TAGS | PYMQ_SYS_BORN_HOST_V6);
    CHECK_EQ(record.flag, 5);
    CHECK_EQ(record.reconsume_times, 3);
    CHECK_EQ(record.born_timestamp_ms, 12345);
    CHECK_BYTES(record.born_host.address, record.born_host.size, born.address, 16);
    CHECK_EQ(record.born_host.port, 4711);
    CHECK_EQ(record.store_host.address[3], 2); /* ours, not the sender's */
    CHECK_EQ(record.prepared_transaction_offset, 0);
    pymq_span_release(served.store, &span);

    struct pymq_reput again = reput_of(reput.physical_offset, "Elsewhere", 1);
    again.reconsume_times = 4;
    again.prepared_transaction_offset = 77;
    CHECK_EQ(pymq_serve_reput(served.serve, &again, 1, false), 1);
    stored_record("Elsewhere", 1, 0, &span, &record);
    CHECK_EQ(record.reconsume_times, 4);
    CHECK_EQ(record.prepared_transaction_offset, 77);
    pymq_span_release(served.store, &span);

    struct pymq_traffic rows[4];
    CHECK_EQ(pymq_serve_traffic(served.serve, rows, 4), 1);
    CHECK_EQ(rows[0].messages, 1); /* There; Elsewhere is no topic */
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    CHECK_EQ(stats.sent_messages, 3);
    serve_end();
}

static void test_a_long_topic_makes_another_kind_of_record(void) {
    start("long", 8209, 4096);
    char topic[201];
    memset(topic, 't', 200);
    topic[200] = '\0';
    struct sent sent = put("Short", 0, "body", "a\x01" "b\x02");
    visible();
    struct pymq_reput reput = reput_of(sent.physical_offset, topic, 0);
    CHECK_EQ(pymq_serve_reput(served.serve, &reput, 1, false), 1);
    struct pymq_span span;
    struct pymq_record record;
    stored_record(topic, 0, 0, &span, &record);
    CHECK_EQ(record.magic, PYMQ_RECORD_MAGIC_V2);
    struct pymq_reput back = reput_of(record.physical_offset, "Short", 0);
    pymq_span_release(served.store, &span);
    CHECK_EQ(pymq_serve_reput(served.serve, &back, 1, false), 1);
    stored_record("Short", 0, 1, &span, &record);
    CHECK_EQ(record.magic, PYMQ_RECORD_MAGIC_V1);
    pymq_span_release(served.store, &span);
    serve_end();
}

static void test_one_that_fails_keeps_no_other_out(void) {
    start("failing", 1 << 20, 8192);
    char *large = malloc(PYMQ_PROPERTIES_SIZE_MAX + 1);
    memset(large, 'v', PYMQ_PROPERTIES_SIZE_MAX);
    memcpy(large, "n\x01", 2);
    large[PYMQ_PROPERTIES_SIZE_MAX - 1] = PYMQ_PROPERTY_SEPARATOR;
    large[PYMQ_PROPERTIES_SIZE_MAX] = '\0';
    struct sent plain = put("Here", 0, "plain", "a\x01" "b\x02");
    struct sent homeless = put("Here", 0, "homeless", "REAL_TOPIC\x01" "There\x02" "REAL_QID\x01" "x\x02");
    struct sent full = put("Here", 0, "full", large);
    visible();
    struct pymq_reput items[] = {
        reput_of(plain.physical_offset, "There", 0),
        reput_of(plain.physical_offset + 1, "There", 0),       /* nothing begins there */
        reput_of(full.end_offset, "There", 0),                 /* nor there yet */
        reput_of(-1, "There", 0),
        reput_of(plain.physical_offset, "", 0),                /* it has no topic of its own */
        reput_of(homeless.physical_offset, "", -1),            /* nor this one a queue */
        reput_of(plain.physical_offset, "a/b", 0),
        reput_of(full.physical_offset, "There", 0),
        reput_of(full.physical_offset, "There", 0),            /* set: too long */
        reput_of(plain.physical_offset, "There", 0),           /* set: malformed */
        reput_of(homeless.physical_offset, "There", 0),
    };
    items[8].set = text("x\x01" "y\x02");
    items[9].set = text("x");
    size_t count = sizeof items / sizeof items[0];
    CHECK_EQ(pymq_serve_reput(served.serve, items, count, false), 1);
    const int expected[] = {PYMQ_OK,     PYMQ_ENOTFOUND, PYMQ_ENOTFOUND, PYMQ_ENOTFOUND,   PYMQ_ETOPIC, PYMQ_EINVAL,
                            PYMQ_ETOPIC, PYMQ_OK,        PYMQ_EPROPERTIES, PYMQ_EINVAL,    PYMQ_OK};
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(items[i].status, expected[i]);
    CHECK_EQ(items[0].queue_offset, 0);
    CHECK_EQ(items[7].queue_offset, 1);
    CHECK_EQ(items[10].queue_offset, 2);
    check_stored("There", 0, 2, "homeless");

    /* The same in order: nothing behind the first failure. */
    CHECK_EQ(pymq_serve_reput(served.serve, items, count, true), 1);
    CHECK_EQ(items[1].status, PYMQ_ENOTFOUND);
    CHECK_EQ(items[10].status, PYMQ_ECLOSED);
    visible();
    CHECK_EQ(info_of(served.store, "There", 0).max_offset, 4);
    free(large);
    serve_end();
}

/* With CRCs over records the store itself refuses properties that leave no room for one: only when it is appended. */
static void test_what_the_store_refuses_keeps_no_other_out(void) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    store.log_file_size = 1 << 20;
    store.log_window_size = 1 << 20;
    store.append_record_crc = true;
    serve_start("refused", &store, &config);
    char *large = malloc(PYMQ_PROPERTIES_SIZE_MAX);
    memset(large, 'v', PYMQ_PROPERTIES_SIZE_MAX);
    memcpy(large, "n\x01", 2);
    struct sent plain = put("Here", 0, "plain", "a\x01" "b\x02");
    visible();
    struct pymq_reput items[5];
    for (int i = 0; i < 5; i++)
        items[i] = reput_of(plain.physical_offset, "There", i);
    large[PYMQ_PROPERTIES_SIZE_MAX - 6] = PYMQ_PROPERTY_SEPARATOR;
    items[2].set = (struct pymq_slice){(const uint8_t *)large, PYMQ_PROPERTIES_SIZE_MAX - 5};
    CHECK_EQ(pymq_serve_reput(served.serve, items, 5, false), 2);
    for (int i = 0; i < 5; i++)
        CHECK_EQ(items[i].status, i == 2 ? PYMQ_EPROPERTIES : PYMQ_OK);
    struct pymq_span span;
    struct pymq_record record;
    visible();
    CHECK_EQ(pymq_store_record(served.store, items[4].physical_offset, 0, &span), PYMQ_OK);
    CHECK(pymq_record_decode(span.data, span.size, PYMQ_CHECK_RECORD_CRC_REQUIRED, 0, &record) > 0);
    CHECK_EQ(items[4].end_offset, items[4].physical_offset + (int64_t)span.size);
    pymq_span_release(served.store, &span);
    struct pymq_reput again = reput_of(items[4].physical_offset, "There", 4); /* its CRC is not copied */
    CHECK_EQ(pymq_serve_reput(served.serve, &again, 1, false), 1);
    stored_record("There", 4, 1, &span, &record);
    CHECK_EQ(record.properties.size, 4 + PYMQ_RECORD_CRC_SIZE);
    pymq_span_release(served.store, &span);

    CHECK_EQ(pymq_serve_reput(served.serve, items, 5, true), 2);
    CHECK_EQ(items[2].status, PYMQ_EPROPERTIES);
    visible();
    CHECK_EQ(info_of(served.store, "There", 1).max_offset, 2);
    CHECK_EQ(info_of(served.store, "There", 3).max_offset, 1);
    free(large);
    serve_end();
}

static void test_a_store_that_takes_nothing_says_so_to_all(void) {
    start("readonly", 8209, 4096);
    struct sent sent = put("Here", 0, "body", "");
    visible();
    struct pymq_reput items[3];
    for (int i = 0; i < 3; i++)
        items[i] = reput_of(sent.physical_offset, "There", i);
    pymq_store_set_writable(served.store, false);
    CHECK_EQ(pymq_serve_reput(served.serve, items, 3, false), 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(items[i].status, PYMQ_EREADONLY);
    pymq_store_set_writable(served.store, true);
    CHECK_EQ(pymq_serve_reput(served.serve, items, 3, false), 3);
    serve_end();
}

static void test_large_batches_and_messages_take_several_appends(void) {
    start("large", 16 << 20, 4 << 20);
    size_t size = 3 << 20, count = 1500;
    char *large = malloc(size + 1);
    memset(large, 'L', size);
    large[size] = '\0';
    struct sent small = put("Here", 0, "small", "");
    struct sent big = put("Here", 0, large, "");
    visible();
    struct pymq_reput *items = calloc(count, sizeof *items);
    for (size_t i = 0; i < count; i++)
        items[i] = reput_of(i % 750 == 7 ? big.physical_offset : small.physical_offset, "There", 0);
    CHECK_EQ(pymq_serve_reput(served.serve, items, count, false), count);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(items[i].queue_offset, i); /* the order of the items is that of the log */
        CHECK(i == 0 || items[i].physical_offset >= items[i - 1].end_offset);
    }
    check_stored("There", 0, 6, "small");
    check_stored("There", 0, 1499, "small");
    struct pymq_span span;
    struct pymq_record record;
    stored_record("There", 0, 757, &span, &record);
    CHECK_BYTES(record.body.data, record.body.size, large, size);
    pymq_span_release(served.store, &span);
    free(items);
    free(large);
    serve_end();
}

static void test_a_damaged_body_is_not_made_whole(void) {
    start("damaged", 8209, 4096);
    struct sent sent = put("Here", 0, "fragile", "");
    visible();
    const long body_at = 88; /* in a record with IPv4 hosts */
    char path[600];
    snprintf(path, sizeof path, "%s/commitlog/%020d", served.path, 0);
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL);
    CHECK_EQ(fseek(file, sent.physical_offset + body_at, SEEK_SET), 0);
    CHECK_EQ(fputc('F', file), 'F');
    CHECK_EQ(fclose(file), 0);
    struct pymq_reput reput = reput_of(sent.physical_offset, "There", 0);
    CHECK_EQ(pymq_serve_reput(served.serve, &reput, 1, false), 0);
    CHECK_EQ(reput.status, PYMQ_ECORRUPT);
    serve_end();
}

static void test_what_retention_removed_is_not_found(void) {
    start("retention", 8209, 4096);
    struct sent first = put("Here", 0, "first", "");
    for (int i = 0; i < 200; i++)
        put("Here", 0, "a message that fills the log until there are several files", "");
    visible();
    CHECK_EQ(pymq_store_flush(served.store), PYMQ_OK);
    struct pymq_log_file_info removed;
    CHECK_EQ(pymq_store_remove_oldest(served.store, &removed), PYMQ_OK);
    struct pymq_reput reput = reput_of(first.physical_offset, "There", 0);
    CHECK_EQ(pymq_serve_reput(served.serve, &reput, 1, false), 0);
    CHECK_EQ(reput.status, PYMQ_ENOTFOUND);
    serve_end();
}

/* ---- a topic that goes ------------------------------------------------------------------------------------------ */

struct remover {
    pthread_t thread;
    int status;
};

static void *remove_topic(void *context) {
    struct remover *remover = context;
    remover->status = pymq_store_remove_topic(served.store, (const uint8_t *)"There", 5, 20000);
    return NULL;
}

static void test_a_topic_that_is_being_removed_is_said_to_be(void) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    store.replica_gate = true;
    serve_start("removed", &store, &config);
    struct sent sent = put("Here", 0, "body", "");
    send_text(served.store, "There", 0, "already there");
    pymq_store_set_replica(served.store, sent.end_offset, true); /* what was sent to There is not seen: removal waits */
    while (pymq_queue_is_removed(queue_of(served.store, "Here", 0)))
        usleep(100);
    struct pymq_queue *queue = queue_of(served.store, "There", 0);
    struct remover remover = {0};
    CHECK_EQ(pthread_create(&remover.thread, NULL, remove_topic, &remover), 0);
    while (!pymq_queue_is_removed(queue))
        usleep(100);
    struct pymq_reput items[] = {reput_of(sent.physical_offset, "There", 0), reput_of(sent.physical_offset, "Else", 0)};
    CHECK_EQ(pymq_serve_reput(served.serve, items, 2, false), 0);
    CHECK_EQ(items[0].status, PYMQ_EREMOVED);
    CHECK_EQ(items[1].status, PYMQ_OK);
    pymq_store_set_replica(served.store, INT64_MAX / 2, true);
    CHECK_EQ(pthread_join(remover.thread, NULL), 0);
    CHECK_EQ(remover.status, PYMQ_OK);
    CHECK_EQ(pymq_serve_reput(served.serve, items, 1, false), 1); /* gone, and made anew */
    CHECK_EQ(items[0].queue_offset, 0);
    serve_end();
}

/* ---- beside others ---------------------------------------------------------------------------------------------- */

enum { THREADS = 3, ROUNDS = 60, PER_ROUND = 20 };

struct worker {
    pthread_t thread;
    int index;
    int64_t source;
};

static void *reput_many(void *context) {
    struct worker *worker = context;
    for (int round = 0; round < ROUNDS; round++) {
        struct pymq_reput items[PER_ROUND];
        for (int i = 0; i < PER_ROUND; i++)
            items[i] = reput_of(worker->source, i % 2 == 0 ? "Even" : "Odd", worker->index);
        if (pymq_serve_reput(served.serve, items, PER_ROUND, false) != PER_ROUND)
            CHECK_FAIL("a message was not put again: %s", pymq_status_name(items[0].status));
    }
    return NULL;
}

static void test_several_threads_put_again_beside_senders_and_settings(void) {
    start("threads", 65536, 4096);
    struct worker workers[THREADS];
    struct sent sent = put("Here", 0, "body", "");
    visible();
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.index = i, .source = sent.physical_offset};
        CHECK_EQ(pthread_create(&workers[i].thread, NULL, reput_many, &workers[i]), 0);
    }
    struct pymq_serve_config config = serve_config();
    for (int i = 0; i < 200; i++) {
        put("Here", 0, "beside", "");
        pymq_serve_configure(served.serve, &config);
        if (i == 100)
            publish("Even", 4);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(workers[i].thread, NULL), 0);
    visible();
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(info_of(served.store, "Even", i).max_offset, ROUNDS * PER_ROUND / 2);
    serve_end();
}

/* ---- what is due ------------------------------------------------------------------------------------------------ */

static int64_t delay(const char *body, const char *topic, const char *queue_id, int level) {
    char properties[256];
    snprintf(properties, sizeof properties, "DELAY\x01%d\x02REAL_TOPIC\x01%s\x02REAL_QID\x01%s\x02own\x01x\x02", level,
             topic, queue_id);
    return put(SCHEDULE, level - 1, body, properties).timestamp_ms;
}

static struct pymq_due due_at(int64_t offset, int64_t now_ms, size_t count_max) {
    return (struct pymq_due){.topic = text(SCHEDULE),
                             .queue_id = 0,
                             .offset = offset,
                             .now_ms = now_ms,
                             .count_max = count_max,
                             .remove = text("DELAY\x02")};
}

static void test_what_is_due_goes_where_it_was_meant_to(void) {
    start("due", 8209, 4096);
    struct pymq_due due = due_at(0, 0, 100);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.status, PYMQ_OK); /* nothing was ever delayed */
    CHECK_EQ(due.next_due_ms, -1);
    int64_t first_ms = delay("one", "Target", "2", 1), last_ms = first_ms;
    for (int i = 0; i < 9; i++)
        last_ms = delay("more", "Target", "1", 1);
    visible();

    due = due_at(0, first_ms + 999, 100);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.delivered, 0); /* never early */
    CHECK_EQ(due.next_offset, 0);
    CHECK_EQ(due.next_due_ms, first_ms + 1000);
    CHECK_EQ(due.last_end_offset, 0);

    due = due_at(0, last_ms + 1007, 4);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.delivered, 4);
    CHECK_EQ(due.next_offset, 4);
    CHECK(due.next_due_ms >= first_ms + 1000 && due.next_due_ms <= last_ms + 1000);
    CHECK(due.lateness_ms_max == last_ms + 7 - first_ms);
    CHECK(due.last_end_offset > 0);

    due = due_at(4, last_ms + 1000, 100);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.delivered, 6);
    CHECK_EQ(due.next_offset, 10);
    CHECK_EQ(due.next_due_ms, -1);
    check_stored("Target", 2, 0, "one");
    check_stored("Target", 1, 8, "more");
    struct pymq_span span;
    struct pymq_record record;
    stored_record("Target", 2, 0, &span, &record);
    const char *expected = "REAL_TOPIC\x01" "Target\x02" "REAL_QID\x01" "2\x02" "own\x01" "x\x02";
    CHECK_BYTES(record.properties.data, record.properties.size, expected, strlen(expected));
    pymq_span_release(served.store, &span);

    due = due_at(500, last_ms + 1000, 100); /* beyond the end */
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.next_offset, 10);
    CHECK_EQ(due.delivered, 0);
    due = due_at(-7, last_ms + 1000, 1); /* before the beginning */
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.next_offset, 1);
    serve_end();
}

static void test_a_time_no_level_can_have_given_is_now(void) {
    start("corrected", 8209, 4096);
    int64_t sent_ms = delay("lost in time", "Target", "0", 1);
    visible();
    struct pymq_due due = due_at(0, sent_ms - 3600 * 1000, 10);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.delivered, 0);
    due = due_at(0, sent_ms - 3600 * 1000, 10);
    due.correct_max_ms = 1000;
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.delivered, 1);
    CHECK_EQ(due.lateness_ms_max, 0);
    due = due_at(0, sent_ms, 10);
    due.correct_max_ms = 1000;
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.delivered, 0);
    CHECK_EQ(due.next_due_ms, sent_ms + 1000);
    serve_end();
}

static void test_one_that_cannot_be_delivered_is_pointed_at(void) {
    start("stuck", 1 << 20, 4096);
    int64_t sent_ms = 0;
    for (int i = 0; i < 700; i++) /* more than one round looks at */
        sent_ms = delay("good", "Target", "0", 1);
    delay("bad", "Target", "no number", 1);
    sent_ms = delay("behind", "Target", "0", 1);
    visible();
    struct pymq_due due = due_at(0, sent_ms + 1000, 10000);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.status, PYMQ_EINVAL);
    CHECK_EQ(due.delivered, 700);
    CHECK_EQ(due.next_offset, 700);
    visible();
    CHECK_EQ(info_of(served.store, "Target", 0).max_offset, 700); /* and none twice, none behind it */
    due = due_at(701, sent_ms + 1000, 10000);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.status, PYMQ_OK);
    check_stored("Target", 0, 700, "behind");
    pymq_store_set_writable(served.store, false);
    due = due_at(5, sent_ms + 1000, 10000);
    pymq_serve_deliver_due(served.serve, &due);
    CHECK_EQ(due.status, PYMQ_EREADONLY);
    CHECK_EQ(due.next_offset, 5);
    pymq_store_set_writable(served.store, true);
    serve_end();
}

int main(void) {
    RUN(test_properties_are_edited_by_exact_names);
    RUN(test_a_message_is_kept_but_for_what_is_asked);
    RUN(test_a_long_topic_makes_another_kind_of_record);
    RUN(test_one_that_fails_keeps_no_other_out);
    RUN(test_what_the_store_refuses_keeps_no_other_out);
    RUN(test_a_store_that_takes_nothing_says_so_to_all);
    RUN(test_large_batches_and_messages_take_several_appends);
    RUN(test_a_damaged_body_is_not_made_whole);
    RUN(test_what_retention_removed_is_not_found);
    RUN(test_a_topic_that_is_being_removed_is_said_to_be);
    RUN(test_several_threads_put_again_beside_senders_and_settings);
    RUN(test_what_is_due_goes_where_it_was_meant_to);
    RUN(test_a_time_no_level_can_have_given_is_now);
    RUN(test_one_that_cannot_be_delivered_is_pointed_at);
    return check_summary();
}
