/* CONSUMER_SEND_MSG_BACK, natively: an ordinary message that comes back not too often, to a group whose retry topic is
 * there. It is put under the delay level that fits; pymq/broker/processors/send_back.py has the rest, dead letters
 * first of all. */
#include <stdio.h>

#include "again.h"

#define NAME(text) (text), sizeof(text) - 1
#define PERMISSION_WRITE 2
#define FIRST_LEVEL 3               /* of the first time; one more each time */
#define VERSION_WITH_MAXIMUM 121    /* MQVersion V3_4_9: from here on a request's own maximum counts */
#define RETRY_PREFIX "%RETRY%"
#define TOPIC_SIZE_MAX 255          /* of the message's own; longer ones are Python's */
/* WAIT, DELAY, REAL_TOPIC, REAL_QID, RETRY_TOPIC and ORIGIN_MESSAGE_ID with their values. */
#define SET_ROOM (2 * TOPIC_SIZE_MAX + sizeof RETRY_PREFIX + PYMQ_MESSAGE_ID_SIZE_MAX + 160)

/* What a delay level and a time of delivery would say against each other. */
static const char TIMERS[] = "TIMER_DELIVER_MS\x02TIMER_DELAY_SEC\x02TIMER_DELAY_MS\x02";

struct back {
    int64_t offset;
    struct pymq_slice group;
    int32_t level;
    int32_t times_max; /* INT32_MIN: the group's */
};

static bool read_back(const struct pymq_command *command, struct back *back) {
    const struct pymq_slice *group = pymq_command_field(command, NAME("group"));
    const struct pymq_slice *times_max = pymq_command_field(command, NAME("maxReconsumeTimes"));
    if (group == NULL || group->size == 0 || group->size > TOPIC_SIZE_MAX - (sizeof RETRY_PREFIX - 1) ||
        pymq_slice_int64(pymq_command_field(command, NAME("offset")), &back->offset) != PYMQ_OK ||
        pymq_slice_int32(pymq_command_field(command, NAME("delayLevel")), &back->level) != PYMQ_OK)
        return false;
    back->group = *group;
    back->times_max = INT32_MIN;
    return times_max == NULL || pymq_slice_int32(times_max, &back->times_max) == PYMQ_OK;
}

/* The retry topic's row, NULL where it is not there or not to be written to. */
static struct pymq_topic *find_retry_topic(const struct pymq_tables *tables, const struct pymq_slice *group) {
    uint8_t name[TOPIC_SIZE_MAX];
    memcpy(name, RETRY_PREFIX, sizeof RETRY_PREFIX - 1);
    memcpy(name + sizeof RETRY_PREFIX - 1, group->data, group->size);
    struct pymq_topic *topic = pymq_topic_find(tables, name, sizeof RETRY_PREFIX - 1 + group->size);
    return topic != NULL && (topic->permission & PERMISSION_WRITE) != 0 ? topic : NULL;
}

static bool is_blank(const struct pymq_slice *text) {
    for (uint32_t i = 0; i < text->size; i++) {
        if (text->data[i] > ' ')
            return false;
    }
    return true;
}

/* What the message says of itself from now on. 0 when it is an unusual one. */
static size_t put_set(char *target, const struct pymq_record *record, const struct pymq_topic *retry_topic,
                      int32_t queue_id, int32_t level) {
    const struct pymq_slice *properties = &record->properties;
    int size = snprintf(target, SET_ROOM,
                        "WAIT\x01"
                        "false\x02"
                        "DELAY\x01%d\x02REAL_TOPIC\x01%.*s\x02REAL_QID\x01%d\x02",
                        (int)level, (int)retry_topic->name_size, (const char *)retry_topic->name, (int)queue_id);
    if (pymq_properties_find(properties->data, properties->size, NAME("RETRY_TOPIC")).data == NULL)
        size += snprintf(target + size, SET_ROOM - (size_t)size, "RETRY_TOPIC\x01%.*s\x02", (int)record->topic.size,
                         (const char *)record->topic.data);
    struct pymq_slice origin = pymq_properties_find(properties->data, properties->size, NAME("ORIGIN_MESSAGE_ID"));
    if (origin.data == NULL) {
        size += snprintf(target + size, SET_ROOM - (size_t)size, "ORIGIN_MESSAGE_ID\x01");
        size += (int)pymq_message_id((uint8_t *)target + size, &record->store_host, record->physical_offset);
        target[size++] = PYMQ_PROPERTY_SEPARATOR;
    } else if (is_blank(&origin)) {
        return 0;
    }
    return (size_t)size;
}

static int send_back(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                     const struct pymq_command *command, const struct back *back, const struct pymq_group *group,
                     const struct pymq_topic *retry_topic, const struct pymq_record *record) {
    const struct pymq_serve *serve = state->serve;
    /* A half message, or one that waits for its time, must not be shown to anybody by being sent back. */
    const struct pymq_topic *topic = pymq_topic_find(&serve->tables, record->topic.data, record->topic.size);
    if (topic == NULL || (topic->flags & PYMQ_TOPIC_SEND_SPECIAL) != 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
    int32_t times_max = back->times_max != INT32_MIN && command->version >= VERSION_WITH_MAXIMUM
                            ? back->times_max
                            : group->retry_max_times;
    if (back->level < 0 || record->reconsume_times < 0 || record->reconsume_times >= times_max ||
        record->reconsume_times > INT32_MAX - FIRST_LEVEL || record->topic.size > TOPIC_SIZE_MAX)
        return PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
    int32_t level = back->level != 0 ? back->level : FIRST_LEVEL + record->reconsume_times;
    if (level > serve->config.delay_level_max)
        level = serve->config.delay_level_max;
    int32_t queues = group->retry_queues < retry_topic->read_queues ? group->retry_queues : retry_topic->read_queues;
    int32_t queue_id = queues > 1 ? (int32_t)(pymq_serve_random() % (uint32_t)queues) : 0;
    char set[SET_ROOM];
    size_t set_size = put_set(set, record, retry_topic, queue_id, level);
    struct pymq_again again = {
        .topic = pymq_topic_find(&serve->tables, (const uint8_t *)NAME(PYMQ_SCHEDULE_TOPIC)),
        .asked = PYMQ_ASKED_BACK,
    };
    if (set_size == 0 || again.topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_MESSAGE;
    again.reput = (struct pymq_reput){
        .topic = {again.topic->name, again.topic->name_size},
        .queue_id = level - 1,
        .remove = {(const uint8_t *)TIMERS, sizeof TIMERS - 1},
        .set = {(const uint8_t *)set, (uint32_t)set_size},
        .reconsume_times = record->reconsume_times + 1,
    };
    return pymq_again_collect(state, connection, command, &again, record);
}

int pymq_send_back_request(struct pymq_serve_reactor *state, struct pymq_connection *connection,
                           const struct pymq_command *command) {
    struct pymq_serve *serve = state->serve;
    struct back back;
    if (!read_back(command, &back))
        return PYMQ_HAND_OVER + PYMQ_REASON_FIELD;
    if (serve->config.delay_level_max <= 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_PROPERTY;
    int outcome = pymq_again_check(state);
    if (outcome != PYMQ_SERVED)
        return outcome;
    const struct pymq_group *group = pymq_group_find(&serve->tables, back.group.data, back.group.size);
    if (group == NULL || group->retry_queues <= 0)
        return PYMQ_HAND_OVER + PYMQ_REASON_GROUP_UNKNOWN;
    const struct pymq_topic *retry_topic = find_retry_topic(&serve->tables, &back.group);
    if (retry_topic == NULL)
        return PYMQ_HAND_OVER + PYMQ_REASON_TOPIC_UNKNOWN;
    struct pymq_span span;
    struct pymq_record record;
    outcome = pymq_again_read(state, back.offset, &span, &record);
    if (outcome != PYMQ_SERVED)
        return outcome;
    outcome = send_back(state, connection, command, &back, group, retry_topic, &record);
    pymq_span_release(serve->store, &span);
    return outcome;
}
