/* What a native pull costs without its sockets: catch-up reading, 32 records of about 356 bytes at a time. Prints
 * figures; asserts only that every message was read. */
#include <time.h>

#include "filter_help.h"
#include "pull_help.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MESSAGES 4000
#define ROUNDS 1
#else
#define MESSAGES 100000
#define ROUNDS 5
#endif
#define BATCH 32
#define LOOKED 800 /* units of one pull at most: maxFilterMessageSize */

/* Of this thread's CPU: others may be busy. */
static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void fill(int32_t queues) {
    char body[129] = "", properties[256];
    memset(body, 'b', 128);
    snprintf(properties, sizeof properties,
             "UNIQ_KEY\001AC11000100002A9F0000000000000001\002MSG_REGION\001DefaultRegion\002TRACE_ON\001true\002"
             "CLUSTER\001DefaultCluster\002colour\001red\002price\00117\002");
    for (int i = 0; i < MESSAGES; i++)
        CHECK_EQ(send_record(served.store, "T", i % queues, text(body), properties, 0).status, PYMQ_OK);
    dispatched();
}

/* Pull every queue to its end, as frames through the service; the best round counts. */
static void measure(const char *what, int32_t queues, const char *tag, const struct written *program, bool matches) {
    struct pymq_store_config store_config;
    pymq_store_config_default(&store_config);
    store_config.log_file_size = 64 * 1024 * 1024;
    store_config.index_enable = false;
    struct pymq_serve_config config = serve_config();
    serve_start("pull-bench", &store_config, &config);
    publish("T", queues);
    publish_group("G");
    subscribe("T", "G", tag);
    if (program != NULL)
        subscribe_program("T", "G", program->bytes, program->size);
    struct pymq_connection *connection = fake_connect(0);
    fill(queues);
    struct pymq_command *command = malloc(sizeof *command);
    static uint8_t frames[MESSAGES / BATCH + 1][512], scratch_bytes[2048];
    static size_t sizes[MESSAGES / BATCH + 1];
    int64_t best_ns = INT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t read = 0, spent_ns = 0;
        for (int32_t queue_id = 0; queue_id < queues; queue_id++) {
            size_t count = 0;
            for (int64_t offset = 0; offset < MESSAGES / queues; offset += BATCH) { /* the client's work, beforehand */
                struct pull_wish wish = {.queue_id = queue_id, .count = BATCH, .version = 7, .offset = offset};
                struct pull_text text_of;
                sizes[count] = request_encode(pull_request(&text_of, &wish), frames[count], sizeof frames[count]);
                count++;
            }
            int64_t begin_ns = now_ns();
            for (size_t i = 0; i < count; i++) {
                CHECK_EQ(pymq_command_decode(frames[i], sizes[i], scratch_bytes, sizeof scratch_bytes, command),
                         PYMQ_OK);
                CHECK_EQ(served.service->request(served.service->context, &fake.reactor, connection, command, frames[i],
                                                 sizes[i]),
                         PYMQ_SERVED);
                connection->output_size = connection->read_at = 0;
                read += pymq_min64(BATCH, MESSAGES / queues - (int64_t)i * BATCH);
            }
            spent_ns += now_ns() - begin_ns;
        }
        best_ns = pymq_min64(best_ns, spent_ns);
        CHECK_EQ(read, MESSAGES / queues * queues);
    }
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    CHECK_EQ(stats.pulled_messages, matches ? (int64_t)ROUNDS * (MESSAGES / queues * queues) : 0);
    /* A pull that finds nothing looks at LOOKED records before it says so. */
    printf("%s: %.0f ns of CPU a record looked at, %.0f a pull\n", what,
           (double)best_ns / MESSAGES * BATCH / (matches ? BATCH : LOOKED), (double)best_ns / MESSAGES * BATCH);
    free(command);
    serve_end();
}

static void test_catch_up_of_one_queue(void) { measure("one queue, copied to memory", 1, NULL, NULL, true); }
static void test_catch_up_of_eight_queues(void) {
    measure("eight queues in turn, copied to memory", 8, NULL, NULL, true);
}
static void test_filter_that_lets_nothing_through(void) {
    measure("filtered by tag, none matches", 1, "red", NULL, false);
}

static void test_sql_filter_that_lets_all_through(void) {
    struct written program = program_greater("price", 5);
    measure("filtered by price > 5, all match", 1, NULL, &program, true);
}

static void test_sql_filter_that_lets_nothing_through(void) {
    struct written program = program_equal("colour", "green");
    measure("filtered by colour = 'green', none matches", 1, NULL, &program, false);
}

int main(void) {
    RUN(test_catch_up_of_one_queue);
    RUN(test_catch_up_of_eight_queues);
    RUN(test_filter_that_lets_nothing_through);
    RUN(test_sql_filter_that_lets_all_through);
    RUN(test_sql_filter_that_lets_nothing_through);
    return check_summary();
}
