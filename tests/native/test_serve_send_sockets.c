/* Native sends over real sockets and several reactors, beside a control loop that publishes, puts and removes. What
 * must hold whoever is faster: order within a connection, one answer each, nothing acknowledged that is not there. */
#include <pthread.h>

#include "pymq/serve.h"
#include "store_help.h"
#include "transport_help.h"

enum { CLIENTS = 4, WINDOW = 32 };

static struct {
    struct pymq_store *store;
    struct pymq_serve *serve;
    struct server server;
    const char *path;
} broker;

static void start(const char *name, enum pymq_flush_mode flush_mode) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config;
    struct pymq_transport_config transport = help_config();
    struct pymq_error error;
    store.log_file_size = 1 << 20;
    store.queue_file_size = 20 * 1000;
    store.index_enable = false;
    store.log_window_size = 1 << 18;
    store.flush_mode = flush_mode;
    transport.reactors = 2;
    transport.lane_wait_ms[PYMQ_LANE_SEND] = 0; /* a slow machine is not what is tested */
    pymq_serve_config_default(&config);
    config.message_size_max = 4096;
    config.send_timeout_ms = WAIT_MS;
    broker.path = scratch(name);
    broker.store = open_or_die(broker.path, &store);
    if (pymq_serve_open(&config, broker.store, &broker.serve, &error) != PYMQ_OK)
        CHECK_FAIL("%s", error.text);
    memset(&broker.server, 0, sizeof broker.server);
    server_open_plain(&broker.server, &transport, pymq_serve_service(broker.serve));
    pymq_serve_attach(broker.serve, broker.server.transport);
    for (int32_t code = 0; code < 1000; code++)
        pymq_transport_set_lane(broker.server.transport, code, PYMQ_LANE_SEND);
}

static void stop(void) {
    server_close(&broker.server);
    pymq_serve_close(broker.serve);
    CHECK_EQ(pymq_store_close(broker.store), PYMQ_OK);
    scratch_end(broker.path);
}

static void publish(const char *topic) {
    struct pymq_topic_row row = {.name = (const uint8_t *)topic,
                                 .name_size = (uint32_t)strlen(topic),
                                 .permission = 6,
                                 .read_queues = CLIENTS,
                                 .write_queues = CLIENTS};
    CHECK_EQ(pymq_serve_publish_topic(broker.serve, &row), PYMQ_OK);
}

/* ---- producers -------------------------------------------------------------------------------------------------- */

struct producer {
    pthread_t thread;
    const char *topic;
    int32_t queue_id, count;
    bool hangs_up;      /* leaves without reading answers */
    int32_t sent, acknowledged;
};

static void send_one(int fd, const struct producer *producer, int32_t number) {
    char queue_id[8], body[32];
    snprintf(queue_id, sizeof queue_id, "%d", producer->queue_id);
    int body_size = snprintf(body, sizeof body, "%d", number);
    const char *fields[][2] = {{"a", "g"}, {"b", producer->topic}, {"c", "TBW102"}, {"d", "4"}, {"e", queue_id},
                               {"f", "0"}, {"g", "1"}, {"h", "0"}};
    uint8_t frame[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    uint8_t type = (number & 1) != 0 ? PYMQ_SERIALIZE_ROCKETMQ : PYMQ_SERIALIZE_JSON;
    pymq_header_begin(&writer, frame, sizeof frame, type, 310, 0, number, (struct pymq_slice){NULL, 0});
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        pymq_header_field(&writer, fields[i][0], 1, (const uint8_t *)fields[i][1], strlen(fields[i][1]));
    ssize_t size = pymq_header_end(&writer, (uint32_t)body_size);
    CHECK(size > 0);
    memcpy(frame + size, body, (size_t)body_size);
    client_write(fd, frame, (size_t)(size + body_size));
}

static void *produce(void *context) {
    struct producer *producer = context;
    int fd = client_connect(broker.server.port);
    uint8_t seen[4096] = {0};
    CHECK(producer->count <= (int32_t)sizeof seen);
    for (int32_t answered = 0; answered < producer->count;) {
        if (producer->sent < producer->count && producer->sent - answered < WINDOW) {
            send_one(fd, producer, producer->sent++);
            continue;
        }
        if (producer->hangs_up) {
            answered = producer->sent;
            continue;
        }
        struct answer answer;
        CHECK(client_answer(fd, &answer));
        CHECK(answer.command.opaque >= 0 && answer.command.opaque < producer->sent);
        CHECK_EQ(seen[answer.command.opaque]++, 0); /* one answer each */
        CHECK(answer.command.code == 0 || answer.command.code == 17);
        producer->acknowledged += answer.command.code == 0;
        answer_free(&answer);
        answered++;
    }
    close(fd);
    return NULL;
}

static void producers_start(struct producer *producers, const char *topic, int32_t count) {
    for (int32_t i = 0; i < CLIENTS; i++) {
        producers[i].topic = topic;
        producers[i].queue_id = i;
        producers[i].count = count;
        CHECK_EQ(pthread_create(&producers[i].thread, NULL, produce, &producers[i]), 0);
    }
}

static _Atomic bool producers_done;

static void *producers_join(void *context) {
    struct producer *producers = context;
    for (int32_t i = 0; i < CLIENTS; i++)
        pthread_join(producers[i].thread, NULL);
    atomic_store(&producers_done, true);
    return NULL;
}

/* Join them from a thread of its own, so that the caller can be the control loop meanwhile. */
static pthread_t producers_watch(struct producer *producers) {
    pthread_t watcher;
    atomic_store(&producers_done, false);
    CHECK_EQ(pthread_create(&watcher, NULL, producers_join, producers), 0);
    return watcher;
}

static void check_order(const char *topic, int32_t queue_id, int32_t count) {
    CHECK_EQ(pymq_store_wait_dispatched(broker.store, WAIT_MS), PYMQ_OK);
    CHECK_EQ(info_of(broker.store, topic, queue_id).max_offset, count);
    for (int32_t i = 0; i < count; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "%d", i);
        check_text(broker.store, topic, queue_id, i, expected);
    }
}

/* ---- the control loop ------------------------------------------------------------------------------------------- */

static void answer_handed(const struct pymq_handed *handed, const struct pymq_command *command, int32_t code) {
    struct pymq_header_writer writer;
    uint8_t frame[PYMQ_HEADER_ROOM];
    pymq_header_begin(&writer, frame, sizeof frame, command->serialize_type, code, PYMQ_COMMAND_RESPONSE,
                      command->opaque, (struct pymq_slice){NULL, 0});
    ssize_t size = pymq_header_end(&writer, 0);
    pymq_transport_send(broker.server.transport, handed->connection, frame, (size_t)size);
}

/* One handed-over send: stored and answered when the topic is there, refused when not. */
static void serve_handed(const struct pymq_handed *handed, bool is_there) {
    uint8_t scratch_bytes[PYMQ_HEADER_ROOM];
    struct pymq_command command;
    int32_t queue_id;
    CHECK_EQ(pymq_command_decode(handed->frame, handed->size, scratch_bytes, sizeof scratch_bytes, &command), PYMQ_OK);
    const struct pymq_slice *topic = pymq_command_field(&command, "b", 1);
    CHECK_EQ(pymq_slice_int32(pymq_command_field(&command, "e", 1), &queue_id), PYMQ_OK);
    if (is_there) {
        struct pymq_put put = {.topic = *topic,
                               .body = command.body,
                               .properties = text("a\x01" "b\x02"),
                               .queue_id = queue_id,
                               .born_host = handed->peer};
        CHECK_EQ(pymq_serve_put(broker.serve, &put, 1, false), PYMQ_OK);
    }
    pymq_serve_send_settled(broker.serve, handed->connection, topic->data, topic->size);
    answer_handed(handed, &command, is_there ? 0 : 17);
}

static size_t serve_lane(bool is_there, size_t count_max) {
    size_t count = 0;
    struct pymq_handed *handed = pymq_transport_take(broker.server.transport, PYMQ_LANE_SEND, count_max);
    while (handed != NULL) {
        struct pymq_handed *next = handed->next;
        serve_handed(handed, is_there);
        pymq_handed_free(broker.server.transport, handed);
        handed = next;
        count++;
    }
    handed = pymq_transport_take(broker.server.transport, PYMQ_LANE_EVENT, 64); /* opened, closed: of no concern */
    while (handed != NULL) {
        struct pymq_handed *next = handed->next;
        pymq_handed_free(broker.server.transport, handed);
        handed = next;
    }
    return count;
}

/* Sends that the reactors served, or that they handed over. */
static int64_t sends_counted(bool is_native) {
    struct pymq_code_count rows[64];
    size_t count = pymq_transport_code_counts(broker.server.transport, rows, 64);
    int64_t sends = 0;
    for (size_t i = 0; i < count && i < 64; i++)
        sends += rows[i].code == 310 && (rows[i].reason == -1) == is_native ? rows[i].count : 0;
    return sends;
}

static int64_t served_natively(void) {
    return sends_counted(true);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

static void test_pipelined_sends_keep_their_order_while_tables_change(void) {
    start("load", PYMQ_ASYNC_FLUSH);
    publish("Load");
    struct producer producers[CLIENTS] = {0};
    producers_start(producers, "Load", 2000);
    pthread_t watcher = producers_watch(producers);
    struct pymq_serve_config config;
    pymq_serve_config_default(&config);
    config.message_size_max = 4096;
    for (int i = 0; !atomic_load(&producers_done); i++) {
        char name[32];
        struct pymq_serve_stats stats;
        struct pymq_traffic traffic[8];
        snprintf(name, sizeof name, "Other-%d", i % 50);
        publish(name);
        publish("Load");
        CHECK_EQ(pymq_serve_offset_commit(broker.serve, (const uint8_t *)"g", 1, (const uint8_t *)name,
                                          (uint32_t)strlen(name), i % 4, i),
                 PYMQ_OK);
        pymq_serve_remove_topic(broker.serve, (const uint8_t *)name, (uint32_t)strlen(name), i % 2 == 0);
        config.trace_on = i % 2 == 0;
        pymq_serve_configure(broker.serve, &config);
        pymq_serve_stats(broker.serve, &stats);
        pymq_serve_traffic(broker.serve, traffic, 8);
        help_pause_ms(1);
    }
    pthread_join(watcher, NULL);
    CHECK_EQ(served_natively(), 2000 * CLIENTS);
    for (int32_t i = 0; i < CLIENTS; i++) {
        CHECK_EQ(producers[i].acknowledged, 2000);
        check_order("Load", i, 2000);
    }
    stop();
}

static void test_the_first_sends_of_a_topic_are_not_overtaken_by_the_native_ones(void) {
    start("first", PYMQ_ASYNC_FLUSH);
    struct producer producers[CLIENTS] = {0};
    producers_start(producers, "New", 2000);
    pthread_t watcher = producers_watch(producers);
    bool is_there = false;
    size_t handed = 0;
    while (!atomic_load(&producers_done)) {
        if (!is_there) {
            HELP_UNTIL(sends_counted(false) >= CLIENTS); /* they pile up behind the creation */
            publish("New");
            is_there = true;
        }
        handed += serve_lane(true, 7);
    }
    pthread_join(watcher, NULL);
    CHECK(handed >= CLIENTS);
    CHECK_EQ(served_natively() + (int64_t)handed, 2000 * CLIENTS);
    for (int32_t i = 0; i < CLIENTS; i++)
        check_order("New", i, 2000);
    stop();
}

static void test_sync_flush_answers_who_stays_and_forgets_who_left(void) {
    start("sync", PYMQ_SYNC_FLUSH);
    publish("Sync");
    struct producer producers[CLIENTS] = {0};
    producers[1].hangs_up = producers[2].hangs_up = true;
    producers_start(producers, "Sync", 300);
    producers_join(producers);
    CHECK_EQ(producers[0].acknowledged, 300);
    CHECK_EQ(producers[3].acknowledged, 300);
    struct pymq_serve_stats stats;
    HELP_UNTIL((pymq_serve_stats(broker.serve, &stats), stats.parked == 0));
    CHECK_EQ(stats.parked_late, 0);
    check_order("Sync", 0, 300);
    check_order("Sync", 3, 300);
    stop();
}

static void test_a_topic_can_go_and_come_under_load(void) {
    start("gone", PYMQ_ASYNC_FLUSH);
    publish("Gone");
    struct producer producers[CLIENTS] = {0};
    producers_start(producers, "Gone", 3000);
    pthread_t watcher = producers_watch(producers);
    for (int i = 0; !atomic_load(&producers_done); i++) {
        serve_lane(false, 1000);
        if (i % 8 == 3) {
            pymq_serve_remove_topic(broker.serve, (const uint8_t *)"Gone", 4, true);
            int status = pymq_store_remove_topic(broker.store, (const uint8_t *)"Gone", 4, WAIT_MS);
            CHECK(status == PYMQ_OK || status == PYMQ_ENOTFOUND);
        }
        if (i % 8 == 5)
            publish("Gone");
        help_pause_ms(1);
    }
    pthread_join(watcher, NULL);
    int32_t acknowledged = 0;
    for (int32_t i = 0; i < CLIENTS; i++)
        acknowledged += producers[i].acknowledged;
    CHECK(acknowledged > 0);
    stop();
}

int main(void) {
    RUN(test_pipelined_sends_keep_their_order_while_tables_change);
    RUN(test_the_first_sends_of_a_topic_are_not_overtaken_by_the_native_ones);
    RUN(test_sync_flush_answers_who_stays_and_forgets_who_left);
    RUN(test_a_topic_can_go_and_come_under_load);
    return check_summary();
}
