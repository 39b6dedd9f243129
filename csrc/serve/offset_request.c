/* See offset_request.h. A query is served when there is an offset to tell; what an absent one means depends on the
 * queue and is the control loop's to say. A commit is served when group, topic and the cell are there. */
#include "offset_request.h"

#include "answer.h"

#define NAME(text) (text), sizeof(text) - 1
#define RESET_REMARK "Offset has been previously reset"

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
static void answer(struct pymq_connection *connection, const struct pymq_command *command, const int64_t *offset,
                   struct pymq_slice remark) {
    uint8_t *target = (command->flag & PYMQ_COMMAND_ONEWAY) == 0 ? pymq_connection_reserve(connection, PYMQ_HEADER_ROOM)
                                                                 : NULL;
    if (target == NULL)
        return;
    struct pymq_header_writer writer;
    pymq_header_begin(&writer, target, PYMQ_HEADER_ROOM, command->serialize_type, PYMQ_RESPONSE_SUCCESS,
                      PYMQ_COMMAND_RESPONSE, command->opaque, remark);
    writer.empty_fields = true;
    if (offset != NULL)
        pymq_header_field_int64(&writer, NAME("offset"), *offset);
    ssize_t size = pymq_header_end(&writer, 0);
    pymq_connection_commit(connection, size > 0 ? (size_t)size : 0);
}

static int query(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                 const struct pymq_command *command, const struct offset_fields *fields) {
    struct pymq_offset_cell *cell =
        pymq_offset_cell(pymq_offset_find(&state->serve->tables, fields->topic.data, fields->topic.size,
                                          fields->group.data, fields->group.size),
                         fields->queue_id);
    int64_t offset = cell != NULL ? pymq_offset_value(cell) : PYMQ_OFFSET_NONE;
    if (offset < 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    answer(connection, command, &offset, (struct pymq_slice){NULL, 0});
    return PYMQ_SERVED;
}

static int update(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                  const struct pymq_command *command, const struct offset_fields *fields) {
    const struct pymq_tables *tables = &state->serve->tables;
    if (pymq_group_find(tables, fields->group.data, fields->group.size) == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    struct pymq_topic *topic = pymq_topic_find(tables, fields->topic.data, fields->topic.size);
    if (topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN;
    struct pymq_offset_cell *cell =
        pymq_offset_cell(pymq_offset_find(tables, fields->topic.data, fields->topic.size, fields->group.data,
                                          fields->group.size),
                         fields->queue_id);
    if (cell == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    struct pymq_slice remark = {NULL, 0};
    if (atomic_load_explicit(&cell->pending, memory_order_acquire) != PYMQ_OFFSET_NONE)
        remark = (struct pymq_slice){(const uint8_t *)RESET_REMARK, sizeof RESET_REMARK - 1};
    else
        pymq_offset_store(cell, fields->offset);
    pymq_count(&state->counters.commits, 1);
    answer(connection, command, NULL, remark);
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
    return command->code == PYMQ_CODE_QUERY_CONSUMER_OFFSET ? query(state, connection, command, &fields)
                                                            : update(state, connection, command, &fields);
}
