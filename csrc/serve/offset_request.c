/* See offset_request.h. Both are served when topic and cell are there, which a subscription has made; a commit also
 * wants its group. */
#include "offset_request.h"

#include <strings.h>

#include "answer.h"

#define NAME(text) (text), sizeof(text) - 1
#define RESET_REMARK "Offset has been previously reset"
#define NOT_ZERO_REMARK "Not found, do not set to zero, maybe this group boot first"
#define NOT_FOUND_REMARK "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"

struct offset_fields {
    struct pymq_slice group, topic;
    int32_t queue_id;
    int64_t offset; /* of a commit */
};

static bool read_fields(const struct pymq_command *command, struct offset_fields *fields) {
    const struct pymq_slice *group = pymq_command_field(command, NAME("consumerGroup"));
    const struct pymq_slice *topic = pymq_command_field(command, NAME("topic"));
    const struct pymq_slice *queue_id = pymq_command_field(command, NAME("queueId"));
    if (group == NULL || topic == NULL || queue_id == NULL || pymq_slice_int32(queue_id, &fields->queue_id) != PYMQ_OK)
        return false;
    fields->group = *group;
    fields->topic = *topic;
    if (command->code == PYMQ_CODE_QUERY_CONSUMER_OFFSET)
        return true;
    const struct pymq_slice *offset = pymq_command_field(command, NAME("commitOffset"));
    return offset != NULL && pymq_slice_int64(offset, &fields->offset) == PYMQ_OK;
}

/* One answer with at most one field. */
static void answer(struct pymq_connection *connection, const struct pymq_command *command, int32_t code,
                   const int64_t *offset, struct pymq_slice remark) {
    uint8_t *target = (command->flag & PYMQ_COMMAND_ONEWAY) == 0 ? pymq_connection_reserve(connection, PYMQ_HEADER_ROOM)
                                                                 : NULL;
    if (target == NULL)
        return;
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, PYMQ_HEADER_ROOM, command->serialize_type, code,
                      PYMQ_COMMAND_RESPONSE, command->opaque, remark);
    writer.empty_fields = true;
    if (offset != NULL)
        pymq_header_field_int64(&writer, NAME("offset"), *offset);
    ssize_t size = pymq_header_end(&writer, 0);
    pymq_connection_commit(connection, size > 0 ? (size_t)size : 0);
}

static void answer_not_found(struct pymq_connection *connection, const struct pymq_command *command,
                             const char *remark) {
    answer(connection, command, PYMQ_RESPONSE_QUERY_NOT_FOUND, NULL,
           (struct pymq_slice){(const uint8_t *)remark, (uint32_t)strlen(remark)});
}

/* Whether a queue still begins at 0 and its first message is in memory. */
static bool begins_in_memory(struct pymq_store *store, struct pymq_topic *topic, int32_t queue_id) {
    struct pymq_queue *queue;
    struct pymq_queue_info info;
    struct pymq_cq_unit unit;
    if (pymq_topic_queue(store, topic, queue_id, false, &queue) != PYMQ_OK)
        return false;
    pymq_queue_info(queue, &info);
    return info.min_offset <= 0 && pymq_queue_units(store, queue, 0, &unit, 1) == 1 &&
           pymq_store_is_resident(store, unit.physical_offset, (uint32_t)unit.size);
}

/* A group that never committed begins at 0 where that costs no read from disk, so that nothing is skipped that was sent
 * to a new queue before its consumers saw it; elsewhere it is told to choose for itself. */
static void answer_without_offset(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                                  const struct pymq_command *command, struct pymq_topic *topic, int32_t queue_id) {
    static const int64_t zero = 0;
    const struct pymq_slice *set_zero = pymq_command_field(command, NAME("setZeroIfNotFound"));
    if (set_zero != NULL && !(set_zero->size == 4 && strncasecmp((const char *)set_zero->data, "true", 4) == 0))
        answer_not_found(connection, command, NOT_ZERO_REMARK);
    else if (begins_in_memory(state->serve->store, topic, queue_id))
        answer(connection, command, PYMQ_RESPONSE_SUCCESS, &zero, (struct pymq_slice){NULL, 0});
    else
        answer_not_found(connection, command, NOT_FOUND_REMARK);
}

static int query(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                 const struct pymq_command *command, const struct offset_fields *fields, struct pymq_topic *topic) {
    struct pymq_offset_cell *cell =
        pymq_offset_cell(pymq_offset_find(&state->serve->tables, fields->topic.data, fields->topic.size,
                                          fields->group.data, fields->group.size),
                         fields->queue_id);
    int64_t offset = cell != NULL ? pymq_offset_ask(cell, pymq_connection_name(connection)) : PYMQ_OFFSET_NONE;
    if (offset >= 0)
        answer(connection, command, PYMQ_RESPONSE_SUCCESS, &offset, (struct pymq_slice){NULL, 0});
    else if (cell == NULL || topic == NULL || state->serve->config.begin_as_asked)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    else
        answer_without_offset(state, connection, command, topic, fields->queue_id);
    return PYMQ_SERVED;
}

static int update(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                  const struct pymq_command *command, const struct offset_fields *fields, struct pymq_topic *topic) {
    const struct pymq_tables *tables = &state->serve->tables;
    if (pymq_group_find(tables, fields->group.data, fields->group.size) == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    if (topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN;
    struct pymq_offset_cell *cell =
        pymq_offset_cell(pymq_offset_find(tables, fields->topic.data, fields->topic.size, fields->group.data,
                                          fields->group.size),
                         fields->queue_id);
    if (cell == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    struct pymq_slice remark = {NULL, 0};
    if (!pymq_offset_store(cell, pymq_connection_name(connection), pymq_reactor_now_ms(state->reactor),
                           fields->offset))
        remark = (struct pymq_slice){(const uint8_t *)RESET_REMARK, sizeof RESET_REMARK - 1};
    pymq_count(&state->counters.commits, 1);
    answer(connection, command, PYMQ_RESPONSE_SUCCESS, NULL, remark);
    return PYMQ_SERVED;
}

int pymq_offset_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                        const struct pymq_command *command) {
    struct offset_fields fields;
    if (!read_fields(command, &fields))
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    /* A static topic's queue ids and offsets are translated first. */
    struct pymq_topic *topic = pymq_topic_find(&state->serve->tables, fields.topic.data, fields.topic.size);
    if (topic != NULL && (topic->flags & PYMQ_TOPIC_PULL_SPECIAL) != 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_SPECIAL;
    return command->code == PYMQ_CODE_QUERY_CONSUMER_OFFSET ? query(state, connection, command, &fields, topic)
                                                            : update(state, connection, command, &fields, topic);
}
