/* What the tests of native serving share: a broker of store, tables and a transport that is not there. */
#ifndef PYMQ_TESTS_SERVE_HELP_H
#define PYMQ_TESTS_SERVE_HELP_H

#include "fake_transport.h"
#include "store_help.h"

static struct {
    struct pymq_store *store;
    struct pymq_serve *serve;
    const struct pymq_service *service;
    const char *path;
} served;

static inline struct pymq_serve_config serve_config(void) {
    struct pymq_serve_config config;
    pymq_serve_config_default(&config);
    config.message_size_max = 4096;
    config.store_host = (struct pymq_host){.address = {127, 0, 0, 2}, .size = 4, .port = 10911};
    return config;
}

static inline void serve_start(const char *name, const struct pymq_store_config *store_config,
                               const struct pymq_serve_config *config) {
    struct pymq_error error = {0};
    fake_start();
    served.path = scratch(name);
    served.store = open_or_die(served.path, store_config);
    if (pymq_serve_open(config, served.store, &served.serve, &error) != PYMQ_OK)
        CHECK_FAIL("serve: %s", error.text);
    served.service = pymq_serve_service(served.serve);
    pymq_serve_attach(served.serve, &fake);
    served.service->timer(served.service->context, &fake.reactor, fake.reactor.now_ms);
}

static inline void serve_end(void) {
    pymq_serve_close(served.serve);
    CHECK_EQ(pymq_store_close(served.store), PYMQ_OK);
    fake_stop();
    scratch_end(served.path);
}

static inline void publish(const char *topic, int32_t queues) {
    struct pymq_topic_row row = {.name = (const uint8_t *)topic,
                                 .name_size = (uint32_t)strlen(topic),
                                 .permission = 6,
                                 .read_queues = queues,
                                 .write_queues = queues};
    CHECK_EQ(pymq_serve_publish_topic(served.serve, &row), PYMQ_OK);
}

static inline void publish_group(const char *group) {
    struct pymq_group_row row = {.name = (const uint8_t *)group, .name_size = (uint32_t)strlen(group)};
    CHECK_EQ(pymq_serve_publish_group(served.serve, &row), PYMQ_OK);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

struct request {
    int32_t code, opaque, flag;
    uint8_t type;
    const char *fields[32][2]; /* name, value; ends at a NULL name */
    const uint8_t *body;
    size_t body_size;
};

static inline size_t request_encode(const struct request *request, uint8_t *target, size_t capacity) {
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, capacity, request->type, request->code, request->flag, request->opaque,
                      (struct pymq_slice){NULL, 0});
    for (size_t i = 0; request->fields[i][0] != NULL; i++) {
        const char *name = request->fields[i][0], *value = request->fields[i][1];
        pymq_header_field(&writer, name, strlen(name), (const uint8_t *)value, strlen(value));
    }
    ssize_t size = pymq_header_end(&writer, (uint32_t)request->body_size);
    CHECK(size > 0);
    CHECK((size_t)size + request->body_size <= capacity);
    if (request->body_size != 0)
        memcpy(target + size, request->body, request->body_size);
    return (size_t)size + request->body_size;
}

/* What the service said to a whole frame, given as a reactor would. */
static inline int offer_frame(struct pymq_connection *connection, const uint8_t *frame, size_t size) {
    struct pymq_command *command = malloc(sizeof *command);
    uint8_t *exact = check_exact(frame, size), *scratch_bytes = malloc(size);
    CHECK_EQ(pymq_command_decode(exact, size, scratch_bytes, size, command), PYMQ_OK);
    int outcome = served.service->request(served.service->context, &fake.reactor, connection, command, exact, size);
    free(command); /* frames are valid only during the call: a sanitizer sees whoever keeps them */
    free(exact);
    free(scratch_bytes);
    return outcome;
}

static inline int offer(struct pymq_connection *connection, const struct request *request) {
    size_t capacity = request->body_size + 70000;
    uint8_t *frame = malloc(capacity);
    int outcome = offer_frame(connection, frame, request_encode(request, frame, capacity));
    free(frame);
    return outcome;
}

/* As every turn with requests ends: only then is dispatch woken. */
static inline void turn_ends(void) { served.service->written(served.service->context, &fake.reactor); }

static inline void settle(void) {
    served.service->settle(served.service->context, &fake.reactor);
    turn_ends();
}

/* A send with the one-letter names. */
static inline struct request send_request(int32_t opaque, const char *topic, const char *queue_id,
                                          const char *properties, const char *body) {
    return (struct request){
        .code = 310,
        .opaque = opaque,
        .fields = {{"a", "group"}, {"b", topic}, {"c", "TBW102"}, {"d", "4"}, {"e", queue_id}, {"f", "0"},
                   {"g", "1794794388118"}, {"h", "7"}, {"i", properties}, {"j", "0"}, {"k", "false"}, {"m", "false"}},
        .body = (const uint8_t *)body,
        .body_size = strlen(body),
    };
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

struct answer {
    struct pymq_command command;
    uint8_t scratch[16384];
};

static inline bool take_answer(struct pymq_connection *connection, struct answer *answer) {
    return fake_answer(connection, &answer->command, answer->scratch, sizeof answer->scratch);
}

static inline void check_field(const struct answer *answer, const char *name, const char *expected) {
    const struct pymq_slice *found = pymq_command_field(&answer->command, name, strlen(name));
    if (found == NULL)
        CHECK_FAIL("no field %s", name);
    if (found->size != strlen(expected) || memcmp(found->data, expected, found->size) != 0)
        CHECK_FAIL("%s is %.*s, expected %s", name, (int)found->size, (const char *)found->data, expected);
}

/* The record at a queue offset, decoded; `span` is the caller's to release. */
static inline void stored_record(const char *topic, int32_t queue_id, int64_t offset, struct pymq_span *span,
                                 struct pymq_record *record) {
    struct pymq_cq_unit unit;
    turn_ends();
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    CHECK_EQ(pymq_queue_units(served.store, queue_of(served.store, topic, queue_id), offset, &unit, 1), 1);
    CHECK_EQ(pymq_store_record(served.store, unit.physical_offset, (uint32_t)unit.size, span), PYMQ_OK);
    CHECK_EQ(pymq_record_decode(span->data, span->size, PYMQ_CHECK_BODY_CRC | PYMQ_CHECK_OFFSET, unit.physical_offset,
                                record),
             unit.size);
}

static inline void check_stored(const char *topic, int32_t queue_id, int64_t offset, const char *body) {
    turn_ends();
    CHECK_EQ(pymq_store_wait_dispatched(served.store, 5000), PYMQ_OK);
    check_text(served.store, topic, queue_id, offset, body);
}

#endif
