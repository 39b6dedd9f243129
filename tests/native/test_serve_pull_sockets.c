/* Pulls through real reactors and sockets: held chains against concurrent appends, the race between an append and a
 * hold, records that are on disk only, and a shutdown that leaves nobody waiting. */
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>

#include "filter_help.h"
#include "pymq/java_hash.h"
#include "pymq/serve.h"
#include "store_help.h"
#include "transport_help.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CHAIN_MESSAGES 400
#define RACE_MESSAGES 4000
#else
#define CHAIN_MESSAGES 4000
#define RACE_MESSAGES 100000
#endif
#define QUEUES 8

static struct {
    struct pymq_store *store;
    struct pymq_serve *serve;
    struct pymq_transport *transport;
    int32_t port;
    char path[512];
} broker;

static void publish_all(void) {
    struct pymq_topic_row topic = {.name = (const uint8_t *)"T", .name_size = 1, .permission = 6,
                                   .read_queues = QUEUES, .write_queues = QUEUES};
    struct pymq_group_row group = {.name = (const uint8_t *)"G", .name_size = 1};
    struct pymq_subscription_row subscription = {.group = (const uint8_t *)"G", .topic = (const uint8_t *)"T",
                                                 .group_size = 1, .topic_size = 1, .version = 7, .all = true};
    CHECK_EQ(pymq_serve_publish_topic(broker.serve, &topic), PYMQ_OK);
    CHECK_EQ(pymq_serve_publish_group(broker.serve, &group), PYMQ_OK);
    CHECK_EQ(pymq_serve_publish_subscription(broker.serve, &subscription), PYMQ_OK);
}

static struct pymq_store_config roomy_config(void) {
    struct pymq_store_config config = small_config();
    config.log_file_size = 64 * 1024 * 1024;
    config.log_window_size = 4 * 1024 * 1024;
    config.queue_file_size = 20 * 300000;
    config.queue_map_count_max = 1024;
    config.index_enable = false;
    return config;
}

static void broker_open(int32_t reactors, int64_t hot_bytes) {
    struct pymq_error error;
    struct pymq_serve_config config;
    struct pymq_store_config store_config = roomy_config();
    struct pymq_transport_config transport_config = help_config();
    pymq_serve_config_default(&config);
    config.hot_bytes = hot_bytes;
    transport_config.reactors = reactors;
    broker.store = open_or_die(broker.path, &store_config);
    CHECK_EQ(pymq_serve_open(&config, broker.store, &broker.serve, &error), PYMQ_OK);
    CHECK_EQ(pymq_transport_open(&transport_config, pymq_serve_service(broker.serve), &broker.transport, &error),
             PYMQ_OK);
    pymq_serve_attach(broker.serve, broker.transport);
    publish_all();
    CHECK_EQ(pymq_transport_listen(broker.transport, "127.0.0.1", 0, &broker.port, &error), PYMQ_OK);
}

static void broker_close(void) {
    pymq_transport_close(broker.transport, 1000);
    pymq_serve_close(broker.serve);
    CHECK_EQ(pymq_store_close(broker.store), PYMQ_OK);
}

static void broker_start(const char *name, int32_t reactors, int64_t hot_bytes) {
    snprintf(broker.path, sizeof broker.path, "%s", scratch(name));
    broker_open(reactors, hot_bytes);
}

static void broker_end(void) {
    broker_close();
    scratch_end(broker.path);
}

static void ask(int fd, int32_t queue_id, int64_t offset, int32_t opaque, int64_t suspend_ms) {
    uint8_t frame[PYMQ_HEADER_ROOM];
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, frame, sizeof frame, PYMQ_SERIALIZE_JSON, 11, 0, opaque, (struct pymq_slice){NULL, 0});
#define NUMBER(name, value) pymq_header_field_int64(&writer, name, sizeof name - 1, value)
    pymq_header_field(&writer, "consumerGroup", 13, (const uint8_t *)"G", 1);
    pymq_header_field(&writer, "topic", 5, (const uint8_t *)"T", 1);
    NUMBER("queueId", queue_id);
    NUMBER("queueOffset", offset);
    NUMBER("maxMsgNums", 32);
    NUMBER("sysFlag", suspend_ms > 0 ? 2 : 0);
    NUMBER("commitOffset", 0);
    NUMBER("suspendTimeoutMillis", suspend_ms);
    NUMBER("subVersion", 7);
    ssize_t size = pymq_header_end(&writer, 0);
    CHECK(size > 0);
    client_write(fd, frame, (size_t)size);
}

static int64_t next_offset(const struct answer *answer) {
    int64_t next = -1;
    const struct pymq_slice *field = pymq_command_field(&answer->command, "nextBeginOffset", 15);
    CHECK(field != NULL);
    CHECK_EQ(pymq_slice_int64(field, &next), PYMQ_OK);
    return next;
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A message whose body is the time it was sent. */
static void send_now(int32_t queue_id) {
    char body[160];
    snprintf(body, sizeof body, "%020" PRId64 "%0100d", now_us(), 0);
    CHECK_EQ(send_record(broker.store, "T", queue_id, text(body), "", 0).status, PYMQ_OK);
}

/* ---- chains of held pulls ------------------------------------------------------------------------------------- */

struct chain {
    int32_t queue_id;
    int64_t messages;
    int64_t received, pulls, latency_us_total, latency_us_max;
    _Atomic int64_t *seen; /* how many it has, for the race */
    uint64_t random;
};

/* Pull from 0 to `messages`, holding at the end each time: every message once, in order. */
static void *run_chain(void *context) {
    struct chain *chain = context;
    int fd = client_connect(broker.port);
    while (chain->received < chain->messages) {
        struct answer answer;
        if (chain->seen != NULL) {
            atomic_store(chain->seen, chain->received);
            for (volatile uint64_t pause = check_random(&chain->random) % 20000; pause > 0; pause--)
                ; /* so that hold and append meet in every order */
        }
        ask(fd, chain->queue_id, chain->received, (int32_t)++chain->pulls, 15000);
        if (!client_answer(fd, &answer))
            CHECK_FAIL("no answer to pull %" PRId64 " of queue %d from %" PRId64, chain->pulls, chain->queue_id,
                       chain->received);
        int64_t at_us = now_us();
        CHECK_EQ(answer.command.opaque, chain->pulls);
        CHECK_EQ(answer.command.code, 0);
        for (uint32_t at = 0; at < answer.command.body.size;) {
            struct pymq_record record;
            ssize_t size = pymq_record_decode(answer.command.body.data + at, answer.command.body.size - at,
                                              PYMQ_CHECK_BODY_CRC, 0, &record);
            CHECK(size > 0);
            CHECK_EQ(record.queue_offset, chain->received);
            char sent_us[21] = "";
            memcpy(sent_us, record.body.data, sizeof sent_us - 1);
            int64_t late_us = at_us - strtoll(sent_us, NULL, 10);
            chain->latency_us_total += late_us;
            chain->latency_us_max = pymq_max64(chain->latency_us_max, late_us);
            chain->received++;
            at += (uint32_t)size;
        }
        CHECK_EQ(next_offset(&answer), chain->received);
        answer_free(&answer);
    }
    close(fd);
    return NULL;
}

static void *run_sender(void *context) {
    const int32_t *first_queue = context;
    uint64_t random = 77 + (uint64_t)*first_queue;
    for (int i = 0; i < CHAIN_MESSAGES; i++) {
        for (int32_t queue_id = *first_queue; queue_id < QUEUES; queue_id += 2)
            send_now(queue_id);
        if (check_random(&random) % 8 == 0)
            help_pause_ms(1);
    }
    return NULL;
}

static void test_every_message_reaches_every_chain_once(void) {
    broker_start("sockets-chains", 2, 64 * 1024 * 1024);
    enum { CHAINS = QUEUES * 2 }; /* two of each queue, as two groups would have */
    struct chain chains[CHAINS];
    pthread_t threads[CHAINS], senders[2];
    int32_t first_queues[2] = {0, 1};
    for (int i = 0; i < CHAINS; i++) {
        chains[i] = (struct chain){.queue_id = i % QUEUES, .messages = CHAIN_MESSAGES};
        pthread_create(&threads[i], NULL, run_chain, &chains[i]);
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&senders[i], NULL, run_sender, &first_queues[i]);
    int64_t pulls = 0, total_us = 0, max_us = 0;
    for (int i = 0; i < 2; i++)
        pthread_join(senders[i], NULL);
    for (int i = 0; i < CHAINS; i++) {
        pthread_join(threads[i], NULL);
        pulls += chains[i].pulls;
        total_us += chains[i].latency_us_total;
        max_us = pymq_max64(max_us, chains[i].latency_us_max);
    }
    struct pymq_serve_stats stats;
    pymq_serve_stats(broker.serve, &stats);
    CHECK_EQ(stats.pulled_messages, (int64_t)CHAINS * CHAIN_MESSAGES);
    CHECK_EQ(stats.holds, 0);
    printf("%d chains of %d messages: %" PRId64 " pulls, %" PRId64 " ended holds, send to receipt %.0f us on average, "
           "%" PRId64 " us at most\n",
           CHAINS, CHAIN_MESSAGES, pulls, stats.holds_ended_arrival, (double)total_us / (CHAINS * CHAIN_MESSAGES),
           max_us);
    broker_end();
}

/* ---- one append against one hold ------------------------------------------------------------------------------ */

static void *run_racer(void *context) {
    _Atomic int64_t *seen = context;
    for (int64_t sent = 0; sent < RACE_MESSAGES; sent++) {
        while (atomic_load(seen) < sent)
            ; /* the consumer is about to pull for this one */
        send_now(0);
    }
    return NULL;
}

static void test_no_append_slips_past_a_pull_on_its_way_to_be_held(void) {
    broker_start("sockets-race", 1, 64 * 1024 * 1024);
    _Atomic int64_t seen = -1;
    struct chain chain = {.queue_id = 0, .messages = RACE_MESSAGES, .seen = &seen, .random = 99};
    pthread_t racer, consumer;
    int64_t begin_us = now_us();
    pthread_create(&racer, NULL, run_racer, &seen);
    pthread_create(&consumer, NULL, run_chain, &chain);
    pthread_join(racer, NULL);
    pthread_join(consumer, NULL);
    struct pymq_serve_stats stats;
    pymq_serve_stats(broker.serve, &stats);
    CHECK_EQ(stats.holds_ended_time, 0); /* a lost wake-up would have been found by its time only */
    printf("%d races of append and hold: %" PRId64 " held, none lost, %.1f us each\n", RACE_MESSAGES,
           stats.holds_ended_arrival, (double)(now_us() - begin_us) / RACE_MESSAGES);
    broker_end();
}

static int by_size(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* One message a millisecond to one held pull: how long from the append to the receipt. Printed, not asserted. */
static void test_held_pull_is_woken_by_each_of_a_thousand_messages(void) {
    enum { MESSAGES = 1000 };
    static int64_t late_us[MESSAGES];
    broker_start("sockets-latency", 1, 64 * 1024 * 1024);
    int fd = client_connect(broker.port);
    struct pymq_serve_stats stats;
    for (int i = 0; i < MESSAGES; i++) {
        struct answer answer;
        ask(fd, 0, i, i, 15000);
        HELP_UNTIL((pymq_serve_stats(broker.serve, &stats), stats.holds == 1));
        int64_t sent_us = now_us();
        send_now(0);
        CHECK(client_answer(fd, &answer));
        late_us[i] = now_us() - sent_us;
        CHECK_EQ(next_offset(&answer), i + 1);
        answer_free(&answer);
    }
    qsort(late_us, MESSAGES, sizeof *late_us, by_size);
    printf("append to receipt by a held pull: p50 %" PRId64 " us, p99 %" PRId64 " us, at most %" PRId64 " us\n",
           late_us[MESSAGES / 2], late_us[MESSAGES * 99 / 100], late_us[MESSAGES - 1]);
    close(fd);
    broker_end();
}

/* ---- on disk only --------------------------------------------------------------------------------------------- */

static int drop_file(const char *path, const struct stat *found, int kind, struct FTW *walk) {
    (void)found, (void)walk;
    int fd = kind == FTW_F ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        fdatasync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    return 0;
}

static void read_cold_log(const char *name, const struct written *program) {
    enum { MESSAGES = 20000 };
    broker_start(name, 1, 0);
    for (int i = 0; i < MESSAGES; i++)
        send_now(0);
    CHECK_EQ(pymq_store_wait_dispatched(broker.store, WAIT_MS), PYMQ_OK);
    broker_close();
    nftw(broker.path, drop_file, 16, FTW_PHYS);
    broker_open(1, 0);
    if (program != NULL) {
        struct pymq_subscription_row row = {.group = (const uint8_t *)"G", .topic = (const uint8_t *)"T",
                                            .group_size = 1, .topic_size = 1, .version = 7,
                                            .program = program->bytes, .program_size = (uint32_t)program->size};
        CHECK_EQ(pymq_serve_publish_subscription(broker.serve, &row), PYMQ_OK);
    }
    bool cold = !pymq_store_is_resident(broker.store, 0, 1024 * 1024);
    int fd = client_connect(broker.port);
    int64_t received = 0;
    while (received < MESSAGES) {
        struct answer answer;
        ask(fd, 0, received, 1, 0);
        CHECK(client_answer(fd, &answer));
        CHECK_EQ(answer.command.code, 0);
        CHECK(next_offset(&answer) > received);
        received = next_offset(&answer);
        answer_free(&answer);
    }
    CHECK_EQ(received, MESSAGES);
    struct pymq_serve_stats stats;
    pymq_serve_stats(broker.serve, &stats);
    CHECK_EQ(stats.pulled_messages, MESSAGES);
    CHECK_EQ(stats.cold_reads > 0, cold);
    printf("cold log: %s, %" PRId64 " of %d pulls went to the disk's threads\n", cold ? "yes" : "the kernel kept it",
           stats.cold_reads, MESSAGES / 32);
    close(fd);
    broker_end();
}

static void test_records_that_are_on_disk_only_are_read_by_other_threads(void) { read_cold_log("sockets-cold", NULL); }

static void test_filtered_records_that_are_on_disk_only_are_looked_at_by_other_threads(void) {
    struct written program = program_of("nowhere");
    write_bytes(&program, "\x08\x00\x01\x20\x50", 5); /* nowhere IS NULL: all of them */
    read_cold_log("sockets-cold-filter", &program);
}

/* ---- the end -------------------------------------------------------------------------------------------------- */

static void test_shutdown_answers_every_held_pull(void) {
    broker_start("sockets-end", 2, 64 * 1024 * 1024);
    enum { CLIENTS = 20 };
    int fds[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_connect(broker.port);
        ask(fds[i], i % QUEUES, 0, i, 15000);
    }
    struct pymq_serve_stats stats;
    HELP_UNTIL((pymq_serve_stats(broker.serve, &stats), stats.holds == CLIENTS));
    pymq_transport_drain(broker.transport);
    CHECK_EQ(pymq_serve_end_holds(broker.serve, NULL, 0, NULL, 0), CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        struct answer answer;
        CHECK(client_answer(fds[i], &answer));
        CHECK_EQ(answer.command.opaque, i);
        CHECK_EQ(answer.command.code, 19);
        answer_free(&answer);
        close(fds[i]);
    }
    broker_end();
}

/* Tables change all the time while pulls are held and answered: nothing may be touched that is gone. */
static void *run_changer(void *context) {
    _Atomic bool *stop = context;
    while (!atomic_load(stop)) {
        publish_all();
        pymq_serve_end_holds(broker.serve, (const uint8_t *)"T", 1, NULL, 0);
        pymq_serve_remove_subscription(broker.serve, (const uint8_t *)"G", 1, (const uint8_t *)"T", 1);
        publish_all();
        help_pause_ms(1);
    }
    return NULL;
}

static void test_tables_may_change_under_held_pulls(void) {
    broker_start("sockets-change", 2, 64 * 1024 * 1024);
    _Atomic bool stop = false;
    pthread_t changer;
    pthread_create(&changer, NULL, run_changer, &stop);
    int fds[4];
    int64_t offsets[4] = {0}, answered = 0, handed = 0;
    for (int i = 0; i < 4; i++)
        fds[i] = client_connect(broker.port);
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 4; i++)
            ask(fds[i], i, offsets[i], round, 200);
        if (round % 3 == 0)
            send_now(round % 4);
        for (int i = 0; i < 4; i++) {
            struct answer answer;
            struct pollfd wait = {.fd = fds[i], .events = POLLIN};
            while (poll(&wait, 1, 1) == 0) { /* handed over: the control loop says something */
                struct pymq_handed *list = pymq_transport_take(broker.transport, PYMQ_LANE_ADMIN, 64);
                while (list != NULL) {
                    struct pymq_handed *next = list->next;
                    uint8_t bytes[PYMQ_HEADER_ROOM], scratch_bytes[4096];
                    struct pymq_command command;
                    int status = pymq_command_decode(list->frame, list->size, scratch_bytes, sizeof scratch_bytes,
                                                     &command);
                    CHECK_EQ(status, PYMQ_OK);
                    struct pymq_header_writer writer;
                    pymq_header_begin(&writer, bytes, sizeof bytes, 0, 24, 1, command.opaque,
                                      (struct pymq_slice){NULL, 0});
                    ssize_t size = pymq_header_end(&writer, 0);
                    pymq_transport_send(broker.transport, list->connection, bytes, (size_t)size);
                    pymq_handed_free(broker.transport, list);
                    handed++;
                    list = next;
                }
            }
            CHECK(client_answer(fds[i], &answer));
            CHECK_EQ(answer.command.opaque, round);
            if (answer.command.code == 0)
                offsets[i] = next_offset(&answer);
            answered++;
            answer_free(&answer);
        }
    }
    atomic_store(&stop, true);
    pthread_join(changer, NULL);
    printf("%" PRId64 " pulls answered under changing tables, %" PRId64 " by the control loop\n", answered, handed);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    broker_end();
}

int main(void) {
    RUN(test_every_message_reaches_every_chain_once);
    RUN(test_no_append_slips_past_a_pull_on_its_way_to_be_held);
    RUN(test_held_pull_is_woken_by_each_of_a_thousand_messages);
    RUN(test_records_that_are_on_disk_only_are_read_by_other_threads);
    RUN(test_filtered_records_that_are_on_disk_only_are_looked_at_by_other_threads);
    RUN(test_shutdown_answers_every_held_pull);
    RUN(test_tables_may_change_under_held_pulls);
    return check_summary();
}
