/* See admin.h. */
#include "admin.h"

#include "bytes.h"
#include "fail.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define ADMIN_FRAME_SIZE_MAX 8192
#define SETTLE_PAUSE_US 500
#define COUNT(array) (sizeof array / sizeof array[0])

static void wait_readable(struct connection *connection, const char *what, int64_t deadline_ns) {
    struct pollfd wait = {.fd = connection->fd, .events = POLLIN};
    int64_t left_ms = (deadline_ns - monotonic_ns()) / NS_PER_MS;
    if (left_ms <= 0)
        fail(EXIT_TIME_OUT, "%s did not answer %s in time", connection->address, what);
    if (poll(&wait, 1, left_ms > 1000 ? 1000 : (int)left_ms) < 0 && errno != EINTR)
        fail(EXIT_MACHINE, "waiting for %s: %s", connection->address, strerror(errno));
}

static void call(struct connection *connection, enum codec codec, const struct request *request, const char *what,
                 int64_t deadline_ns, struct answer *answer) {
    static uint32_t next_opaque = OPAQUE_END;
    size_t opaque_position, size;
    uint32_t opaque = next_opaque--; /* from the top: requests of a run count from the bottom */
    uint8_t *target = connection_reserve(connection, ADMIN_FRAME_SIZE_MAX);
    size = encode_request(target, ADMIN_FRAME_SIZE_MAX, codec, request, &opaque_position);
    if (size == 0)
        fail(EXIT_USAGE, "%s does not fit into %d bytes; shorten the topic or the group", what, ADMIN_FRAME_SIZE_MAX);
    patch_opaque(target, opaque_position, codec, opaque);
    connection_commit(connection, size);
    while (!connection_flush(connection))
        usleep(1000);
    for (;;) {
        const uint8_t *frame = connection_next(connection, &size);
        if (frame == NULL) {
            wait_readable(connection, what, deadline_ns);
            connection_fill(connection);
            continue;
        }
        if (!decode_answer(frame, size, answer))
            fail(EXIT_PEER, "%s answered %s with something unreadable", connection->address, what);
        if (!is_request(answer) && (uint32_t)answer->opaque == opaque)
            return;
    }
}

static void call_expecting_success(struct connection *connection, const struct options *options,
                                   const struct request *request, const char *what, int64_t deadline_ns,
                                   struct answer *answer) {
    call(connection, options->codec, request, what, deadline_ns, answer);
    if (answer->code != RESPONSE_SUCCESS)
        fail(EXIT_PEER, "%s refused %s for topic %s: code %d, %.*s", connection->address, what, options->topic,
             answer->code, (int)answer->remark.size, answer->remark.bytes);
}

void admin_create_topic(struct connection *connection, const struct options *options, int64_t deadline_ns) {
    char queues[12];
    struct answer answer;
    snprintf(queues, sizeof queues, "%u", options->queues);
    const struct field fields[] = {
        {"readQueueNums", queues}, {"perm", "6"},         {"writeQueueNums", queues}, {"topicFilterType", "SINGLE_TAG"},
        {"topic", options->topic}, {"attributes", ""},    {"force", "false"},         {"defaultTopic", "TBW102"},
        {"order", "false"},        {"topicSysFlag", "0"},
    };
    const struct request request = {REQUEST_UPDATE_AND_CREATE_TOPIC, fields, COUNT(fields), NULL, 0};
    call_expecting_success(connection, options, &request, "UPDATE_AND_CREATE_TOPIC", deadline_ns, &answer);
}

void admin_register_consumer(struct connection *connection, const struct options *options, unsigned member,
                             int64_t deadline_ns) {
    char body[2048];
    struct answer answer;
    int size = snprintf(
        body, sizeof body,
        "{\"clientID\":\"127.0.0.1@%u-%u\",\"consumerDataSet\":[{\"consumeFromWhere\":\"CONSUME_FROM_FIRST_OFFSET\","
        "\"consumeType\":\"CONSUME_PASSIVELY\",\"groupName\":\"%s\",\"messageModel\":\"CLUSTERING\","
        "\"subscriptionDataSet\":[{\"classFilterMode\":false,\"codeSet\":[],\"expressionType\":\"%s\","
        "\"subString\":\"%s\",\"subVersion\":%lld,\"tagsSet\":[],\"topic\":\"%s\"}],\"unitMode\":false}],"
        "\"heartbeatFingerprint\":0,\"producerDataSet\":[{\"groupName\":\"CLIENT_INNER_PRODUCER\"}],"
        "\"withoutSub\":false}",
        options->sender, member, options->group, options->sql != NULL ? "SQL92" : "TAG",
        options->sql != NULL ? options->sql : "*", (long long)wall_ms(), options->topic);
    if (size < 0 || (size_t)size >= sizeof body)
        fail(EXIT_USAGE, "topic or group is too long for a heartbeat");
    const struct request request = {REQUEST_HEART_BEAT, NULL, 0, (const uint8_t *)body, (size_t)size};
    call_expecting_success(connection, options, &request, "HEART_BEAT", deadline_ns, &answer);
}

int64_t admin_max_offset(struct connection *connection, const struct options *options, unsigned queue,
                         int64_t deadline_ns) {
    char digits[12];
    struct answer answer;
    snprintf(digits, sizeof digits, "%u", queue);
    const struct field fields[] = {
        {"queueId", digits}, {"committed", "true"}, {"bname", options->broker_name}, {"topic", options->topic}};
    const struct request request = {REQUEST_GET_MAX_OFFSET, fields, COUNT(fields), NULL, 0};
    call_expecting_success(connection, options, &request, "GET_MAX_OFFSET", deadline_ns, &answer);
    if (answer.offset == ANSWER_UNKNOWN)
        fail(EXIT_PEER, "%s answered GET_MAX_OFFSET without an offset", connection->address);
    return answer.offset;
}

int64_t admin_max_offset_sum(struct connection *connection, const struct options *options, int64_t deadline_ns) {
    int64_t sum = 0;
    for (unsigned queue = 0; queue < options->queues; queue++)
        sum += admin_max_offset(connection, options, queue, deadline_ns);
    return sum;
}

void admin_settle(struct connection *connection, const struct options *options, int64_t sum, int64_t deadline_ns) {
    for (;;) {
        int64_t reached = admin_max_offset_sum(connection, options, deadline_ns);
        if (reached >= sum)
            return;
        if (monotonic_ns() > deadline_ns)
            fail(EXIT_TIME_OUT, "dispatch did not catch up: the queues of %s show %lld of %lld messages",
                 options->topic, (long long)reached, (long long)sum);
        usleep(SETTLE_PAUSE_US);
    }
}
