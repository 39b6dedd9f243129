/* Pulls, as the tests of native serving make them. */
#ifndef PYMQ_TESTS_PULL_HELP_H
#define PYMQ_TESTS_PULL_HELP_H

#include <poll.h>

#include "pymq/java_hash.h"
#include "serve_help.h"

enum { PULL_COMMIT = 1, PULL_SUSPEND = 2, PULL_EXPRESSION = 4 };

/* A pull with numbers as text kept in it. */
struct pull_text {
    char queue_id[16], offset[24], count[16], sys_flag[16], commit[24], suspend[24], version[24];
    struct request request;
};

struct pull_wish {
    const char *topic, *group;
    int32_t queue_id, opaque, count, sys_flag;
    int64_t offset, commit, suspend_ms, version;
    const char *expression; /* NULL: none */
    uint8_t type;
};

static inline const struct request *pull_request(struct pull_text *text_of, const struct pull_wish *wish) {
    memset(text_of, 0, sizeof *text_of);
    snprintf(text_of->queue_id, sizeof text_of->queue_id, "%d", wish->queue_id);
    snprintf(text_of->offset, sizeof text_of->offset, "%" PRId64, wish->offset);
    snprintf(text_of->count, sizeof text_of->count, "%d", wish->count);
    snprintf(text_of->sys_flag, sizeof text_of->sys_flag, "%d", wish->sys_flag);
    snprintf(text_of->commit, sizeof text_of->commit, "%" PRId64, wish->commit);
    snprintf(text_of->suspend, sizeof text_of->suspend, "%" PRId64, wish->suspend_ms);
    snprintf(text_of->version, sizeof text_of->version, "%" PRId64, wish->version);
    text_of->request = (struct request){
        .code = 11,
        .opaque = wish->opaque,
        .type = wish->type,
        .body = (const uint8_t *)"",
        .fields = {{"queueId", text_of->queue_id}, {"maxMsgBytes", "262144"}, {"maxMsgNums", text_of->count},
                   {"sysFlag", text_of->sys_flag}, {"suspendTimeoutMillis", text_of->suspend},
                   {"commitOffset", text_of->commit}, {"bname", "broker-a"},
                   {"topic", wish->topic != NULL ? wish->topic : "T"}, {"queueOffset", text_of->offset},
                   {"expressionType", "TAG"}, {"subVersion", text_of->version},
                   {"consumerGroup", wish->group != NULL ? wish->group : "G"}}};
    if (wish->expression != NULL) {
        text_of->request.fields[12][0] = "subscription";
        text_of->request.fields[12][1] = wish->expression;
    }
    return &text_of->request;
}

static inline int pull(struct pymq_connection *connection, const struct pull_wish *wish) {
    struct pull_text text_of;
    return offer(connection, pull_request(&text_of, wish));
}

static inline void subscribe_at(int64_t version, const char *topic, const char *group, const char *tag) {
    struct pymq_subscription_row row = {.group = (const uint8_t *)group,
                                        .topic = (const uint8_t *)topic,
                                        .group_size = (uint32_t)strlen(group),
                                        .topic_size = (uint32_t)strlen(topic),
                                        .version = version,
                                        .all = tag == NULL};
    if (tag != NULL)
        row.tag_hashes[row.tag_count++] = pymq_java_hash(0, (const uint8_t *)tag, strlen(tag));
    CHECK_EQ(pymq_serve_publish_subscription(served.serve, &row), PYMQ_OK);
}

static inline void subscribe_program(const char *topic, const char *group, const uint8_t *program, size_t size) {
    struct pymq_subscription_row row = {.group = (const uint8_t *)group,
                                        .topic = (const uint8_t *)topic,
                                        .group_size = (uint32_t)strlen(group),
                                        .topic_size = (uint32_t)strlen(topic),
                                        .version = 7,
                                        .program = program,
                                        .program_size = (uint32_t)size};
    CHECK_EQ(pymq_serve_publish_subscription(served.serve, &row), PYMQ_OK);
}

static inline void subscribe(const char *topic, const char *group, const char *tag) {
    subscribe_at(7, topic, group, tag);
}

/* Topic T with 4 queues, group G that wants everything or one tag. */
static inline void pull_start(const char *name, const struct pymq_serve_config *config, const char *tag) {
    struct pymq_store_config store_config = small_config();
    store_config.log_file_size = 16 * 1024 * 1024;
    store_config.log_window_size = 1024 * 1024;
    store_config.queue_file_size = 20 * 300000;
    store_config.queue_map_count_max = 1024;
    store_config.index_enable = false;
    serve_start(name, &store_config, config);
    publish("T", 4);
    publish_group("G");
    subscribe("T", "G", tag);
}

/* A message "message <n>", with a tag or none. */
static inline void put_message(int32_t queue_id, int n, const char *tag) {
    char body[64], properties[128] = "";
    snprintf(body, sizeof body, "message %d", n);
    if (tag != NULL)
        snprintf(properties, sizeof properties, "TAGS\001%s\002", tag);
    CHECK_EQ(send_record(served.store, "T", queue_id, text(body), properties, 0).status, PYMQ_OK);
}

static inline struct pymq_serve_stats stats_now(void) {
    struct pymq_serve_stats stats;
    pymq_serve_stats(served.serve, &stats);
    return stats;
}

/* What the reactor does when its eventfd rings; fails when it does not ring. */
static inline void ring(void) {
    struct pollfd wait = {.fd = fake.reactor.event_fd, .events = POLLIN};
    uint64_t value;
    CHECK_EQ(poll(&wait, 1, 20000), 1);
    CHECK_EQ(read(fake.reactor.event_fd, &value, sizeof value), (int64_t)sizeof value);
    served.service->event(served.service->context, &fake.reactor);
}

static inline void dispatched(void) { CHECK_EQ(pymq_store_wait_dispatched(served.store, 20000), PYMQ_OK); }

/* The queue offsets of the messages in a pull's body, each record checked. Returns how many. */
static inline size_t body_offsets(const struct pymq_command *command, int64_t *offsets, size_t count_max) {
    size_t count = 0;
    for (uint32_t at = 0; at < command->body.size;) {
        struct pymq_record record;
        ssize_t size = pymq_record_decode(command->body.data + at, command->body.size - at, PYMQ_CHECK_BODY_CRC, 0,
                                          &record);
        CHECK(size > 0);
        CHECK(count < count_max);
        offsets[count++] = record.queue_offset;
        at += (uint32_t)size;
    }
    return count;
}

static inline void check_answer(const struct answer *answer, int32_t opaque, int32_t code, const char *remark) {
    CHECK_EQ(answer->command.opaque, opaque);
    CHECK_BYTES(answer->command.remark.data, answer->command.remark.size, remark, strlen(remark));
    CHECK_EQ(answer->command.code, code);
    CHECK_EQ(answer->command.flag, 1);
}

/* The one answer there is. */
static inline void expect(struct pymq_connection *connection, int32_t opaque, int32_t code, const char *remark,
                          const char *next, const char *min, const char *max) {
    struct answer answer;
    CHECK(take_answer(connection, &answer));
    check_answer(&answer, opaque, code, remark);
    check_field(&answer, "nextBeginOffset", next);
    check_field(&answer, "minOffset", min);
    check_field(&answer, "maxOffset", max);
    CHECK_EQ(answer.command.body.size, 0);
    CHECK(!take_answer(connection, &answer));
}

/* The one answer there is, with the messages `first` … `first + count - 1`. */
static inline void expect_found(struct pymq_connection *connection, int32_t opaque, int64_t first, size_t count,
                                const char *next) {
    struct answer answer;
    int64_t offsets[PYMQ_GET_COUNT_MAX];
    CHECK(take_answer(connection, &answer));
    check_answer(&answer, opaque, 0, "FOUND");
    check_field(&answer, "nextBeginOffset", next);
    CHECK_EQ(body_offsets(&answer.command, offsets, PYMQ_GET_COUNT_MAX), count);
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(offsets[i], first + (int64_t)i);
    CHECK(!take_answer(connection, &answer));
}

#endif
