/* A pull natively: from the checks of PullMessageProcessor to the answer of its result handler. What would end in an
 * error is handed over, to be worded by the control loop. */
#include "pull_internal.h"

#define PERMISSION_READ 4
#define SUSPEND_MS_MAX (24LL * 3600 * 1000) /* a hold's longest life, whatever the request says */
#define MASTER_ID 0
#define SQL92 "SQL92" /* the expression type */
/* A Java client bumps its subscription's version at every rebalance and may pull with it a moment before the heartbeat
 * that announces it. Refused, it would leave the queue alone for 3 s. */
#define SUBSCRIPTION_WAIT_MS 200

/* One pull on its way through this file. */
struct pull {
    struct pymq_serve_reactor *state;
    struct pymq_connection *connection;
    const struct pymq_command *command;
    const struct pymq_pull_run *run;
    struct pymq_pull_fields fields;
    struct pymq_topic *topic;
    struct pymq_group *group;
    struct pymq_subscription *subscription; /* NULL when the request brings its own expression and none is known */
    struct pymq_offset_cell *cell;          /* NULL when the group never committed here */
    struct pymq_queue *queue;
    struct pymq_filter filter;
    int32_t hashes[PYMQ_TAGS_MAX];
};

/* ---- checks, in Apache's order -------------------------------------------------------------------------------- */

static int check_tables(struct pull *pull) {
    struct pymq_serve *serve = pull->state->serve;
    const struct pymq_pull_fields *fields = &pull->fields;
    if ((serve->config.broker_permission & PERMISSION_READ) == 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_PERMISSION;
    pull->group = pymq_group_find(&serve->tables, fields->group.data, fields->group.size);
    if (pull->group == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    if ((pull->group->flags & (PYMQ_GROUP_DISABLED | PYMQ_GROUP_SPECIAL)) != 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_SPECIAL;
    pull->topic = pymq_topic_find(&serve->tables, fields->topic.data, fields->topic.size);
    if (pull->topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN;
    if ((pull->topic->flags & PYMQ_TOPIC_PULL_SPECIAL) != 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_SPECIAL;
    if ((pull->topic->permission & PERMISSION_READ) == 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_PERMISSION;
    if (fields->queue_id < 0 || fields->queue_id >= pull->topic->read_queues)
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    /* Apache makes a queue on the first look at it, too: until a message comes it is an object without files. */
    int status = pymq_topic_queue(serve->store, pull->topic, fields->queue_id, true, &pull->queue);
    if (status == PYMQ_OK && pymq_queue_is_removed(pull->queue)) { /* the topic was made again before it was gone */
        pymq_topic_queue_forget(pull->topic, fields->queue_id, pull->queue);
        status = pymq_topic_queue(serve->store, pull->topic, fields->queue_id, true, &pull->queue);
    }
    return status == PYMQ_OK ? PYMQ_SERVED : PYMQ_HAND_OVER + PYMQ_REASON_STORE;
}

/* Whether the expression that the pull brings along is the one its group subscribes with, and compiled: that of lite
 * pull consumers is. */
static bool is_expression_of(const struct pymq_pull_fields *fields, const struct pymq_subscription *subscription) {
    return subscription != NULL && subscription->program != NULL && !subscription->special &&
           subscription->expression_size > 0 && fields->expression_type.size == sizeof SQL92 - 1 &&
           memcmp(fields->expression_type.data, SQL92, sizeof SQL92 - 1) == 0 &&
           fields->subscription.size == subscription->expression_size &&
           memcmp(fields->subscription.data, subscription->expression, subscription->expression_size) == 0;
}

static int check_subscription(struct pull *pull) {
    const struct pymq_pull_fields *fields = &pull->fields;
    struct pymq_subscription *found =
        pymq_subscription_find(&pull->state->serve->tables, fields->topic.data, fields->topic.size, fields->group.data,
                               fields->group.size);
    pull->subscription = found;
    if ((fields->sys_flag & PYMQ_PULL_SUBSCRIPTION) != 0 && is_expression_of(fields, found)) {
        pull->filter = (struct pymq_filter){.program = found->program};
        return PYMQ_SERVED;
    }
    if ((fields->sys_flag & PYMQ_PULL_SUBSCRIPTION) != 0)
        return pymq_pull_expression(fields, &pull->filter, pull->hashes) == PYMQ_OK
                   ? PYMQ_SERVED
                   : PYMQ_HAND_OVER + PYMQ_REASON_FILTER;
    if (found == NULL || found->version < fields->sub_version)
        return PYMQ_HAND_OVER + PYMQ_REASON_SUBSCRIPTION;
    if (found->special)
        return PYMQ_HAND_OVER + PYMQ_REASON_FILTER;
    pull->filter = (struct pymq_filter){found->all, found->tag_count, found->tag_hashes, found->program};
    return PYMQ_SERVED;
}

static bool commits(const struct pull *pull) {
    return pull->run->may_suspend && (pull->fields.sys_flag & PYMQ_PULL_COMMIT_OFFSET) != 0;
}

static int check(struct pull *pull) {
    if (pymq_pull_fields(pull->command, &pull->fields) != PYMQ_OK || pull->fields.unusual ||
        (pull->command->flag & PYMQ_COMMAND_ONEWAY) != 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    int verdict = check_tables(pull);
    if (verdict == PYMQ_SERVED)
        verdict = check_subscription(pull);
    if (verdict != PYMQ_SERVED)
        return verdict;
    const struct pymq_pull_fields *fields = &pull->fields;
    pull->cell = pymq_offset_cell(pymq_offset_find(&pull->state->serve->tables, fields->topic.data, fields->topic.size,
                                                   fields->group.data, fields->group.size),
                                  fields->queue_id);
    return commits(pull) && pull->cell == NULL ? PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN : PYMQ_SERVED;
}

/* ---- the answer ----------------------------------------------------------------------------------------------- */

/* What is said, apart from the messages. */
struct answer {
    int32_t code;
    const char *remark; /* the name of the GetMessageStatus */
    int64_t next_offset, min_offset, max_offset;
    bool suggest_slave;
};

static const char *const STATUS_NAMES[] = {
    [PYMQ_GET_FOUND] = "FOUND",
    [PYMQ_GET_NO_MATCHED_MESSAGE] = "NO_MATCHED_MESSAGE",
    [PYMQ_GET_MESSAGE_WAS_REMOVING] = "MESSAGE_WAS_REMOVING",
    [PYMQ_GET_OFFSET_FOUND_NULL] = "OFFSET_FOUND_NULL",
    [PYMQ_GET_OFFSET_OVERFLOW_BADLY] = "OFFSET_OVERFLOW_BADLY",
    [PYMQ_GET_OFFSET_OVERFLOW_ONE] = "OFFSET_OVERFLOW_ONE",
    [PYMQ_GET_OFFSET_TOO_SMALL] = "OFFSET_TOO_SMALL",
    [PYMQ_GET_NO_MATCHED_LOGIC_QUEUE] = "NO_MATCHED_LOGIC_QUEUE",
    [PYMQ_GET_NO_MESSAGE_IN_QUEUE] = "NO_MESSAGE_IN_QUEUE",
};

/* composeResponseHeader. */
static int32_t code_of(enum pymq_get_status status, int64_t requested_offset) {
    switch (status) {
    case PYMQ_GET_FOUND:
        return PYMQ_RESPONSE_SUCCESS;
    case PYMQ_GET_NO_MATCHED_MESSAGE:
    case PYMQ_GET_MESSAGE_WAS_REMOVING:
        return PYMQ_RESPONSE_PULL_RETRY_IMMEDIATELY;
    case PYMQ_GET_NO_MATCHED_LOGIC_QUEUE:
    case PYMQ_GET_NO_MESSAGE_IN_QUEUE:
        return requested_offset != 0 ? PYMQ_RESPONSE_PULL_OFFSET_MOVED : PYMQ_RESPONSE_PULL_NOT_FOUND;
    case PYMQ_GET_OFFSET_FOUND_NULL:
    case PYMQ_GET_OFFSET_OVERFLOW_ONE:
        return PYMQ_RESPONSE_PULL_NOT_FOUND;
    default:
        return PYMQ_RESPONSE_PULL_OFFSET_MOVED;
    }
}

#define FIELD(writer, name, value) pymq_header_field_int64(writer, name, sizeof name - 1, value)

/* Apache's two header codecs write the same fields in two orders; so do we, that frames can be compared. */
static ssize_t write_head(const struct pull *pull, const struct answer *answer, uint8_t *target, size_t capacity,
                          uint64_t body_size) {
    struct pymq_header_writer writer;
    struct pymq_slice remark = {(const uint8_t *)answer->remark, (uint32_t)strlen(answer->remark)};
    int64_t suggested = MASTER_ID;
    if (pull->state->serve->config.slave_read_enable)
        suggested = answer->suggest_slave ? pull->group->broker_id_when_slow : pull->group->broker_id;
    pymq_header_begin(&writer, target, capacity, pull->command->serialize_type, answer->code, PYMQ_COMMAND_RESPONSE,
                      pull->command->opaque, remark);
    FIELD(&writer, "suggestWhichBrokerId", suggested);
    if (pull->command->serialize_type == PYMQ_SERIALIZE_JSON) {
        FIELD(&writer, "groupSysFlag", pull->group->sys_flag);
        FIELD(&writer, "nextBeginOffset", answer->next_offset);
        FIELD(&writer, "maxOffset", answer->max_offset);
        FIELD(&writer, "minOffset", answer->min_offset);
        FIELD(&writer, "topicSysFlag", pull->topic->sys_flag);
    } else {
        FIELD(&writer, "nextBeginOffset", answer->next_offset);
        FIELD(&writer, "minOffset", answer->min_offset);
        FIELD(&writer, "maxOffset", answer->max_offset);
        FIELD(&writer, "topicSysFlag", pull->topic->sys_flag);
        FIELD(&writer, "groupSysFlag", pull->group->sys_flag);
    }
    return pymq_header_end(&writer, (uint32_t)body_size);
}

static int send_empty(const struct pull *pull, const struct answer *answer) {
    uint8_t *target = pymq_connection_reserve(pull->connection, PYMQ_HEADER_ROOM);
    if (target == NULL)
        return PYMQ_SERVED; /* being closed */
    ssize_t size = write_head(pull, answer, target, PYMQ_HEADER_ROOM, 0);
    pymq_connection_commit(pull->connection, size > 0 ? (size_t)size : 0);
    return PYMQ_SERVED;
}

static int send_messages(const struct pull *pull, const struct answer *answer, const struct pymq_get *get,
                         struct pymq_span *spans) {
    struct pymq_serve_counters *counters = &pull->state->counters;
    uint8_t head[PYMQ_HEADER_ROOM];
    ssize_t size = write_head(pull, answer, head, sizeof head, get->bytes);
    pymq_count(&counters->pulled_messages, get->message_count);
    pymq_count(&counters->pulled_bytes, (int64_t)get->bytes);
    if (pull->subscription != NULL) {
        struct pymq_pull_traffic *traffic = pull->subscription->traffic;
        atomic_fetch_add_explicit(&traffic->messages, get->message_count, memory_order_relaxed);
        atomic_fetch_add_explicit(&traffic->bytes, (int64_t)get->bytes, memory_order_relaxed);
    }
    pymq_connection_send_spans(pull->connection, pull->state->serve->store, head, (size_t)size, spans,
                               get->span_count);
    return PYMQ_SERVED;
}

/* ---- a reset that the group has not followed yet -------------------------------------------------------------- */

/* True when the pull was answered with the place to go on from. Differs from Apache, which forgets the reset with the
 * first such answer: here it stands until the group pulls from there, so that a lost answer does not undo it. */
static bool answer_reset(const struct pull *pull) {
    if (pull->cell == NULL)
        return false;
    int64_t pending = pymq_offset_begin(pull->cell, pymq_connection_name(pull->connection),
                                        pymq_reactor_now_ms(pull->state->reactor), pull->fields.offset);
    if (pending == PYMQ_OFFSET_NONE)
        return false;
    struct pymq_queue_info info;
    pymq_queue_info(pull->queue, &info);
    struct answer answer = {PYMQ_RESPONSE_PULL_OFFSET_MOVED, "OFFSET_RESET", pending, info.min_offset, info.max_offset,
                            false};
    send_empty(pull, &answer);
    return true;
}

/* After these a client pulls again without a pause. When the broker stops it would do so on a connection that is about
 * to close, and wait for its time-out (30 s in 4.9); after an error it waits 3 s and comes back on a new one. */
static bool is_asked_again_at_once(const struct answer *answer) {
    return answer->code == PYMQ_RESPONSE_PULL_NOT_FOUND || answer->code == PYMQ_RESPONSE_PULL_RETRY_IMMEDIATELY;
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

static int suspend(const struct pull *pull, const struct answer *answer, const uint8_t *frame, size_t frame_size) {
    struct pymq_serve_reactor *state = pull->state;
    const struct pymq_serve_config *config = &state->serve->config;
    bool own = (pull->fields.sys_flag & PYMQ_PULL_SUBSCRIPTION) != 0;
    struct pymq_filter none = {.all = true};
    int status = PYMQ_ENOMEM;
    struct pymq_hold *hold = pymq_hold_new(&state->pull->table, frame, frame_size, own ? &pull->filter : &none);
    if (hold != NULL) {
        int64_t wait_ms = config->long_polling ? pymq_max64(0, pull->fields.suspend_ms) : config->short_polling_ms;
        hold->connection = pymq_connection_name(pull->connection);
        hold->topic_key = pymq_name_hash(pull->topic->name, pull->topic->name_size);
        hold->group_key = pymq_name_hash(pull->group->name, pull->group->name_size);
        hold->subscription = own ? NULL : pull->subscription;
        hold->offset = hold->scanned = pull->fields.offset;
        hold->due_ms = pymq_reactor_now_ms(state->reactor) + pymq_min64(wait_ms, SUSPEND_MS_MAX);
        hold->native = true;
        status = pymq_holds_add(state, hold, pull->queue);
    }
    if (status == PYMQ_OK)
        return PYMQ_SERVED;
    if (status == PYMQ_ECLOSED)
        return send_empty(pull, answer);
    struct answer full = *answer;
    full.code = PYMQ_RESPONSE_POLLING_FULL; /* its client waits for some seconds before it asks again */
    full.remark = "too many pulls are held";
    return send_empty(pull, &full);
}

/* Whether the pull is kept until its group's subscription is published, or some time has passed. */
static bool wait_for_subscription(const struct pull *pull, const uint8_t *frame, size_t frame_size) {
    struct pymq_serve_reactor *state = pull->state;
    struct pymq_filter none = {.all = true};
    struct pymq_hold *hold = pymq_hold_new(&state->pull->table, frame, frame_size, &none);
    if (hold == NULL)
        return false;
    hold->connection = pymq_connection_name(pull->connection);
    hold->topic_key = pymq_name_hash(pull->topic->name, pull->topic->name_size);
    hold->group_key = pymq_name_hash(pull->group->name, pull->group->name_size);
    hold->offset = hold->scanned = pull->fields.offset;
    hold->due_ms = pymq_reactor_now_ms(state->reactor) + SUBSCRIPTION_WAIT_MS;
    hold->native = hold->waits = true;
    return pymq_holds_add(state, hold, pull->queue) == PYMQ_OK;
}

int pymq_pull_run(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                  const struct pymq_command *command, const uint8_t *frame, size_t frame_size,
                  const struct pymq_pull_run *run) {
    struct pull pull;
    pull.state = state;
    pull.connection = connection;
    pull.command = command;
    pull.run = run;
    int verdict = check(&pull);
    if (verdict == PYMQ_HAND_OVER + PYMQ_REASON_SUBSCRIPTION && run->may_suspend && !run->waited &&
        wait_for_subscription(&pull, frame, frame_size))
        return PYMQ_SERVED;
    if (verdict != PYMQ_SERVED)
        return verdict;
    if (answer_reset(&pull))
        return PYMQ_SERVED;

    struct pymq_span spans[PYMQ_GET_COUNT_MAX];
    struct pymq_get_limits limits = pymq_get_limits(&state->serve->config);
    struct pymq_get get = {.offset = pymq_max64(pull.fields.offset, run->scanned),
                           .count_max = pull.fields.count_max,
                           .tag_hashes = pull.filter.all || pull.filter.program != NULL ? NULL : pull.filter.hashes,
                           .tag_count = pull.filter.count,
                           .program = pull.filter.program,
                           .no_wait = run->cold_rounds < PYMQ_COLD_ROUNDS_MAX};
    pymq_get_read(state->serve->store, &limits, pull.queue, &get, spans, PYMQ_GET_COUNT_MAX);
    if (get.status == PYMQ_GET_COLD)
        return pymq_cold_post(state, pymq_connection_name(connection), frame, frame_size, run, pull.queue, &get) ==
                       PYMQ_OK
                   ? PYMQ_SERVED
                   : PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    if (get.status == PYMQ_GET_ERROR)
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    if (get.status == PYMQ_GET_OFFSET_OVERFLOW_ONE && get.offset > pull.fields.offset)
        get.status = PYMQ_GET_NO_MATCHED_MESSAGE; /* there were messages, seen while it was held */
    if (commits(&pull) &&
        !pymq_offset_commit_native(state, pymq_connection_name(connection), pull.fields.topic.data,
                                   pull.fields.topic.size, pull.fields.group.data, pull.fields.group.size,
                                   pull.fields.queue_id, pull.fields.commit_offset)) {
        for (uint32_t i = 0; i < get.span_count; i++)
            pymq_span_release(state->serve->store, &spans[i]);
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    }
    if (pull.cell != NULL)
        pymq_offset_served(pull.cell, pymq_connection_name(connection), pymq_reactor_now_ms(state->reactor),
                           pull.fields.offset, get.next_offset);
    struct answer answer = {code_of(get.status, pull.fields.offset), STATUS_NAMES[get.status], get.next_offset,
                            get.min_offset, get.max_offset, get.suggest_slave};
    if (get.status == PYMQ_GET_FOUND)
        return send_messages(&pull, &answer, &get, spans);
    if (is_asked_again_at_once(&answer) && atomic_load_explicit(&state->serve->pull->stopping, memory_order_acquire)) {
        answer.code = PYMQ_RESPONSE_SYSTEM_ERROR;
        answer.remark = "the broker is stopping";
        return send_empty(&pull, &answer);
    }
    if (answer.code == PYMQ_RESPONSE_PULL_NOT_FOUND && run->may_suspend &&
        (pull.fields.sys_flag & PYMQ_PULL_SUSPEND) != 0)
        return suspend(&pull, &answer, frame, frame_size);
    return send_empty(&pull, &answer);
}

#define SCRATCH_INLINE 8192

void pymq_pull_rerun(struct pymq_serve_reactor *state, pymq_connection_id connection_id, const uint8_t *frame,
                     size_t frame_size, const struct pymq_pull_run *run) {
    struct pymq_connection *connection = pymq_reactor_find(state->reactor, connection_id);
    if (connection == NULL)
        return;
    uint8_t scratch[SCRATCH_INLINE];
    struct pymq_command command;
    int verdict = PYMQ_HAND_OVER;
    /* A kept frame was decoded once already; only one of unusual size does not fit here and takes the long way. */
    if (state->serve->config.native && frame_size <= sizeof scratch &&
        pymq_command_decode(frame, frame_size, scratch, sizeof scratch, &command) == PYMQ_OK)
        verdict = pymq_pull_run(state, connection, &command, frame, frame_size, run);
    if (verdict != PYMQ_SERVED)
        pymq_transport_hand_over(state->serve->transport, connection_id, frame, frame_size,
                                 !run->may_suspend           ? PYMQ_REASON_HOLD_ENDED
                                 : verdict == PYMQ_HAND_OVER ? PYMQ_REASON_STORE
                                                             : (uint8_t)(verdict - PYMQ_HAND_OVER));
}
