/* A disk that stands still while the log wants its next file: a turn of a reactor ends all the same, and so does a call
 * of the control loop. Everybody's heartbeats waited for it once. */
#include <time.h>

#include "../../csrc/testing/fault_io.h"
#include "serve_help.h"

#define SYNC_DELAY_US 15000000
#define TURN_MS_MAX 6000 /* more than a turn may wait, far less than the disk takes */
#define SENDS_MAX 200
#define SLOW_SYNC_DELAY_US 3000000 /* longer than a turn waits for a file */
#define REFUSED_TURNS 6
#define FILES 2

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One send in one turn; its answer's code. */
static int32_t send_once(struct pymq_connection *connection) {
    static const char body[] = "a body that is long enough to fill small log files with few messages";
    struct request request = send_request(1, "TopicA", "0", "", body);
    struct answer answer;
    CHECK_EQ(offer(connection, &request), PYMQ_SERVED);
    settle();
    CHECK(take_answer(connection, &answer));
    connection->read_at = connection->output_size = 0; /* thousands of refusals would not find room */
    return answer.command.code;
}

static void test_a_turn_does_not_wait_for_a_disk_that_stands_still(void) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    fault_io_start(NULL);
    serve_start("slow", &store, &config);
    publish("TopicA", 1);
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(send_once(connection), 0);
    int64_t stored = 1, busy = 0;
    fault_io_delay_sync(SYNC_DELAY_US);
    for (int i = 0; i < SENDS_MAX && busy < 2; i++) {
        int64_t begin_ms = now_ms();
        int32_t code = send_once(connection);
        CHECK(now_ms() - begin_ms < TURN_MS_MAX);
        CHECK(code == 0 || code == 2); /* stored, or SYSTEM_BUSY */
        stored += code == 0;
        busy += code == 2;
    }
    CHECK_EQ(busy, 2);
    struct pymq_reput reput = {.source = 0, .topic = text("TopicA"), .reconsume_times = -1};
    int64_t begin_ms = now_ms();
    pymq_serve_reput(served.serve, &reput, 1, false);
    CHECK(now_ms() - begin_ms < TURN_MS_MAX);
    CHECK(reput.status == PYMQ_EPOOL || reput.status == PYMQ_OK);
    stored += reput.status == PYMQ_OK;

    fault_io_delay_sync(0);
    begin_ms = now_ms();
    while (send_once(connection) != 0) {
        CHECK(now_ms() - begin_ms < 60000);
        usleep(1000);
    }
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 20000), PYMQ_OK);
    CHECK_EQ(info_of(served.store, "TopicA", 0).max_offset, stored + 1); /* what was refused is not there */
    serve_end();
    fault_io_stop();
}

/* The log's files so far. */
static int64_t log_files(void) {
    struct pymq_store_stats stats;
    pymq_store_stats(served.store, &stats);
    return stats.log_files_created;
}

/* With 3 s for an fsync and small files a heartbeat took 12 s once: every turn, and every file, waited 2 s anew. */
static void test_turns_do_not_each_wait_anew_for_a_slow_disk(void) {
    struct pymq_store_config store = small_config();
    struct pymq_serve_config config = serve_config();
    fault_io_start(NULL);
    serve_start("anew", &store, &config);
    publish("TopicA", 1);
    struct pymq_connection *connection = fake_connect(0);
    CHECK_EQ(send_once(connection), 0);
    fault_io_delay_sync(SLOW_SYNC_DELAY_US);
    int64_t first_ms = 0, begin_ms;
    for (int32_t code = 0, i = 0; i < SENDS_MAX && code == 0; i++) {
        begin_ms = now_ms();
        code = send_once(connection);
        first_ms = code == 0 ? 0 : now_ms() - begin_ms;
    }
    CHECK(first_ms >= PYMQ_APPEND_WAIT_MS_MAX); /* it was worth waiting, once */
    begin_ms = now_ms();
    for (int i = 0; i < REFUSED_TURNS; i++)
        CHECK_EQ(send_once(connection), 2);
    CHECK(now_ms() - begin_ms < first_ms / 2); /* all of them together */

    int64_t waits = 0, files = log_files(), end_ms = now_ms() + 60000;
    while (log_files() < files + FILES) {
        CHECK((begin_ms = now_ms()) < end_ms);
        int32_t code = send_once(connection);
        CHECK(code == 0 || code == 2);
        waits += now_ms() - begin_ms >= PYMQ_APPEND_WAIT_MS_MAX;
        usleep(code == 0 ? 0 : 1000);
    }
    CHECK_EQ(waits, 0); /* nor for the files behind, while the disk is as slow */

    /* A disk that is fast again makes one file in time; from then on a turn may wait again, and none is refused. */
    fault_io_delay_sync(0);
    files = log_files();
    for (end_ms = now_ms() + 60000; log_files() < files + 2;) {
        CHECK(now_ms() < end_ms);
        usleep(send_once(connection) == 0 ? 0 : 1000);
    }
    for (files = log_files(); log_files() < files + FILES;)
        CHECK_EQ(send_once(connection), 0);
    serve_end();
    fault_io_stop();
}

int main(void) {
    RUN(test_a_turn_does_not_wait_for_a_disk_that_stands_still);
    RUN(test_turns_do_not_each_wait_anew_for_a_slow_disk);
    return check_summary();
}
