/* Sends, natively: the ordinary ones. Whatever is special about one, or has to be refused with a reason worth wording,
 * is handed over; what remains is encoded and collected. The checks stand in Apache's order where their order shows. */
#include "send.h"

#include "collect.h"
#include "order.h"
#include "parked.h"

#define PERMISSION_WRITE 2

/* xorshift: which queue a message without one gets is to be spread, not secret. */
uint32_t pymq_serve_random(void) {
    static _Thread_local uint32_t seed;
    if (seed == 0)
        seed = (uint32_t)(uintptr_t)&seed | 1;
    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    return seed;
}

/* Why this send is not served here, or PYMQ_SERVED. Fills in the topic and the number of the queue. */
static int find_topic(struct pymq_serve_reactor *state, struct pymq_send *send, struct pymq_topic **topic) {
    struct pymq_serve *serve = state->serve;
    if ((serve->config.broker_permission & PERMISSION_WRITE) == 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_PERMISSION;
    *topic = pymq_topic_find(&serve->tables, send->topic.data, send->topic.size);
    if (*topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN;
    if (((*topic)->flags & PYMQ_TOPIC_SEND_SPECIAL) != 0 || (*topic)->is_retry)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_SPECIAL;
    int32_t read_queues = (*topic)->read_queues, write_queues = (*topic)->write_queues;
    if (send->queue_id < 0 && write_queues > 0)
        send->queue_id = (int32_t)(pymq_serve_random() % (uint32_t)write_queues);
    if (send->queue_id < 0 || send->queue_id >= (read_queues > write_queues ? read_queues : write_queues))
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    if (!pymq_store_is_writable(serve->store))
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    return PYMQ_SERVED;
}

/* Where a message goes into the log: the topic it was sent to, or the one in which it waits. */
struct place {
    struct pymq_topic *topic;
    struct pymq_queue *queue;
    int32_t queue_id;
};

static int find_place(struct pymq_serve_reactor *state, struct pymq_topic *topic, int32_t queue_id,
                      const struct pymq_sent_properties *properties, struct place *place) {
    const struct pymq_tables *tables = &state->serve->tables;
    *place = (struct place){.topic = topic, .queue_id = queue_id};
    if (properties != NULL && properties->level > 0) {
        place->topic = pymq_topic_find(tables, (const uint8_t *)PYMQ_SCHEDULE_TOPIC, sizeof PYMQ_SCHEDULE_TOPIC - 1);
        place->queue_id = properties->level - 1;
    } else if (properties != NULL && properties->is_half) {
        place->topic = pymq_topic_find(tables, (const uint8_t *)PYMQ_HALF_TOPIC, sizeof PYMQ_HALF_TOPIC - 1);
        place->queue_id = 0;
    }
    if (place->topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN;
    if (pymq_topic_queue(state->serve->store, place->topic, place->queue_id, true, &place->queue) != PYMQ_OK)
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;
    return PYMQ_SERVED;
}

static void fill_record(const struct pymq_serve_reactor *state, const struct pymq_connection *connection,
                        const struct pymq_send *send, struct pymq_record *record) {
    *record = (struct pymq_record){
        .queue_id = send->queue_id,
        .flag = send->flag,
        .sys_flag = send->sys_flag,
        .born_timestamp_ms = send->born_timestamp_ms,
        .born_host = *pymq_connection_peer(connection),
        .store_host = state->serve->config.store_host,
        .reconsume_times = send->reconsume_times,
        .topic = send->topic,
    };
}

static struct pymq_collected *collect_next(struct pymq_collect *collect, const struct pymq_connection *connection,
                                           const struct pymq_command *command, const struct pymq_send *send,
                                           const struct place *place) {
    struct pymq_collected *next = &collect->sends[collect->send_count];
    *next = (struct pymq_collected){
        .asker = {pymq_connection_name(connection), command->opaque, command->serialize_type, PYMQ_ASKED_SEND},
        .topic = place->topic,
        .queue_id = place->queue_id,
        .sent_queue_id = send->queue_id,
        .first_item = collect->item_count,
        .is_oneway = (command->flag & PYMQ_COMMAND_ONEWAY) != 0,
    };
    return next;
}

/* ---- one message ------------------------------------------------------------------------------------------------ */

static int collect_message(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                           const struct pymq_command *command, const struct pymq_send *send,
                           struct pymq_topic *topic) {
    struct pymq_collect *collect = state->collect;
    struct pymq_sent_properties properties;
    struct place place;
    int status = pymq_send_properties(state->serve, send, pymq_reactor_wall_ms(state->reactor), collect->properties,
                                      sizeof collect->properties, &properties);
    if (status != PYMQ_OK)
        return PYMQ_HAND_OVER + (status == PYMQ_EUNSUPPORTED ? PYMQ_REASON_PROPERTY : PYMQ_REASON_FIELD);
    if ((send->sys_flag & PYMQ_SYS_TRANSACTION_MASK) != 0 && !properties.is_half)
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    int outcome = find_place(state, topic, send->queue_id, &properties, &place);
    if (outcome != PYMQ_SERVED)
        return outcome;
    size_t room = (size_t)send->body.size + place.topic->name_size + properties.size + PYMQ_COLLECT_RECORD_ROOM;
    if (!pymq_collect_make_room(state, 1, room))
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;

    struct pymq_record record;
    fill_record(state, connection, send, &record);
    record.topic = (struct pymq_slice){place.topic->name, place.topic->name_size};
    record.queue_id = place.queue_id;
    record.sys_flag &= ~PYMQ_SYS_TRANSACTION_MASK; /* a half message lies in its queue like any other */
    record.body = send->body;
    record.properties = (struct pymq_slice){collect->properties, properties.size};
    size_t size;
    if (pymq_collect_encode(collect, &record, place.queue, collect->item_count, collect->arena_used, &size) != PYMQ_OK)
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    struct pymq_collected *collected = collect_next(collect, connection, command, send, &place);
    collected->item_count = 1;
    collected->wait = properties.wait;
    /* Properties are a record's last part: the key is found in the arena by its distance from the end. */
    collected->key.data = collect->arena + collect->arena_used + size - properties.size + properties.key_at;
    collected->key.size = properties.key_size;
    collect->arena_used += size;
    collect->item_count++;
    collect->send_count++;
    return PYMQ_SERVED;
}

/* ---- a batch ---------------------------------------------------------------------------------------------------- */

/* How many messages there are; 0 when the body is damaged, holds more than are served here, or a message whose
 * properties nobody could read again or that is to wait. */
static uint32_t count_batch(const struct pymq_slice *body) {
    struct pymq_batch_item item;
    size_t position = 0;
    uint32_t count = 0;
    int more;
    while ((more = pymq_batch_next(body->data, body->size, &position, &item)) == 1) {
        if (++count > PYMQ_COLLECT_ITEMS_MAX ||
            !pymq_properties_are_well_formed(item.properties.data, item.properties.size) ||
            !pymq_batch_item_is_plain(item.properties))
            return 0;
    }
    return more == 0 ? count : 0;
}

/* A batch's messages keep their properties as they are, but for the last separator: a record never ends in a value. */
static struct pymq_slice close_properties(struct pymq_collect *collect, struct pymq_slice properties) {
    if (properties.size == 0 || properties.data[properties.size - 1] == PYMQ_PROPERTY_SEPARATOR ||
        properties.size >= PYMQ_PROPERTIES_SIZE_MAX)
        return properties;
    memcpy(collect->properties, properties.data, properties.size);
    collect->properties[properties.size] = PYMQ_PROPERTY_SEPARATOR;
    return (struct pymq_slice){collect->properties, properties.size + 1};
}

static int collect_batch(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                         const struct pymq_command *command, const struct pymq_send *send, struct pymq_topic *topic) {
    struct pymq_collect *collect = state->collect;
    struct pymq_slice key;
    struct place place;
    bool wait;
    if ((send->sys_flag & PYMQ_SYS_TRANSACTION_MASK) != 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    if (pymq_batch_properties(send->properties, &key, &wait) != PYMQ_OK)
        return PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY;
    uint32_t count = count_batch(&send->body);
    size_t room = (size_t)send->body.size + key.size + count * ((size_t)send->topic.size + PYMQ_COLLECT_RECORD_ROOM);
    if (count == 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    int outcome = find_place(state, topic, send->queue_id, NULL, &place);
    if (outcome != PYMQ_SERVED)
        return outcome;
    if (!pymq_collect_make_room(state, count, room))
        return PYMQ_HAND_OVER + PYMQ_REASON_STORE;

    struct pymq_record record;
    struct pymq_batch_item item;
    fill_record(state, connection, send, &record);
    size_t position = 0, arena_at = collect->arena_used, size;
    for (uint32_t i = 0; i < count; i++) {
        pymq_batch_next(send->body.data, send->body.size, &position, &item);
        record.flag = item.flag;
        record.body = item.body;
        record.properties = close_properties(collect, item.properties);
        if (pymq_collect_encode(collect, &record, place.queue, collect->item_count + i, arena_at, &size) != PYMQ_OK)
            return PYMQ_HAND_OVER + PYMQ_REASON_FIELD; /* nothing has been counted as collected yet */
        arena_at += size;
    }
    struct pymq_collected *collected = collect_next(collect, connection, command, send, &place);
    collected->item_count = count;
    collected->wait = wait;
    if (key.data != NULL) {
        memcpy(collect->arena + arena_at, key.data, key.size);
        collected->key = (struct pymq_slice){collect->arena + arena_at, key.size};
        arena_at += key.size;
    }
    collect->arena_used = arena_at;
    collect->item_count += count;
    collect->send_count++;
    return PYMQ_SERVED;
}

/* ---- the request ------------------------------------------------------------------------------------------------ */

/* Too many sends wait for the disk or a replica already, or the store is stuck: nothing is stored, nobody waits. */
static int refuse_busy(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                       const struct pymq_command *command) {
    struct pymq_asker asker = {pymq_connection_name(connection), command->opaque, command->serialize_type,
                               PYMQ_ASKED_SEND};
    uint8_t *target = (command->flag & PYMQ_COMMAND_ONEWAY) == 0
                          ? pymq_connection_reserve(connection, PYMQ_REFUSED_ROOM)
                          : NULL;
    if (target != NULL) {
        struct pymq_refusal refusal;
        int64_t waiting = atomic_load_explicit(&state->parked->count, memory_order_relaxed);
        if (waiting >= state->serve->config.parked_max)
            pymq_refusal_parked(&refusal, state->serve, waiting);
        else
            pymq_refusal_make(&refusal, state->serve, PYMQ_ETIMEDOUT);
        pymq_connection_commit(connection, pymq_answer_refused(&state->serve->config, &asker, &refusal, target,
                                                               PYMQ_REFUSED_ROOM));
    }
    return PYMQ_SERVED;
}

static int serve_send(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                      const struct pymq_command *command, struct pymq_send *send) {
    if (pymq_order_is_waiting(state->order, pymq_connection_name(connection), send->topic.data, send->topic.size,
                              pymq_reactor_now_ms(state->reactor)))
        return PYMQ_HAND_OVER + PYMQ_REASON_ORDER;
    struct pymq_topic *topic;
    int outcome = find_topic(state, send, &topic);
    if (outcome != PYMQ_SERVED)
        return outcome;
    if (send->body.size == 0 || send->body.size > (uint32_t)state->serve->config.message_size_max ||
        (send->sys_flag & ~(PYMQ_SEND_SYS_FLAGS | PYMQ_SYS_TRANSACTION_PREPARED)) != 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    if (atomic_load_explicit(&state->parked->count, memory_order_relaxed) >= state->serve->config.parked_max ||
        pymq_store_is_busy(state->serve->store))
        return refuse_busy(state, connection, command);
    return send->is_batch ? collect_batch(state, connection, command, send, topic)
                          : collect_message(state, connection, command, send, topic);
}

int pymq_send_hand_over(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                        const struct pymq_send *send, int reason) {
    if (send->topic.size > 0) { /* one without belongs to no topic and overtakes nothing */
        /* The control loop may be quick: what came before on this connection must be in the log when it begins. */
        pymq_collect_settle(state);
        pymq_order_enter(state->order, pymq_connection_name(connection), send->topic.data, send->topic.size);
    }
    return PYMQ_HAND_OVER + reason;
}

int pymq_send_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                      const struct pymq_command *command) {
    struct pymq_send send;
    int outcome = PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    if (pymq_send_parse(command, &send) == PYMQ_OK)
        outcome = serve_send(state, connection, command, &send);
    return outcome == PYMQ_SERVED ? outcome
                                  : pymq_send_hand_over(state, connection, &send, outcome - PYMQ_HAND_OVER);
}
