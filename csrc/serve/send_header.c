/* The header of a send, in both spellings: one pass over the fields, one slot each.
 *
 *   slot   V2   V1                      slot   V2   V1
 *   group  a    producerGroup           flag   h    flag
 *   topic  b    topic                   props  i    properties
 *   deflt  c    defaultTopic            times  j    reconsumeTimes
 *   dnums  d    defaultTopicQueueNums   unit   k    unitMode
 *   queue  e    queueId                 maxt   l    maxReconsumeTimes
 *   sysf   f    sysFlag                 batch  m    batch
 *   born   g    bornTimestamp
 */
#include <strings.h>

#include "send.h"

enum slot {
    GROUP,
    TOPIC,
    DEFAULT_TOPIC,
    DEFAULT_NUMS,
    QUEUE_ID,
    SYS_FLAG,
    BORN,
    FLAG,
    PROPERTIES,
    TIMES,
    UNIT,
    MAX_TIMES,
    BATCH,
    SLOTS,
};

_Static_assert(SLOTS == 'm' - 'a' + 1, "a slot for each letter");

static const struct {
    const char *name;
    size_t size;
} LONG_NAMES[SLOTS] = {
    [GROUP] = {"producerGroup", 13},
    [TOPIC] = {"topic", 5},
    [DEFAULT_TOPIC] = {"defaultTopic", 12},
    [DEFAULT_NUMS] = {"defaultTopicQueueNums", 21},
    [QUEUE_ID] = {"queueId", 7},
    [SYS_FLAG] = {"sysFlag", 7},
    [BORN] = {"bornTimestamp", 13},
    [FLAG] = {"flag", 4},
    [PROPERTIES] = {"properties", 10},
    [TIMES] = {"reconsumeTimes", 14},
    [UNIT] = {"unitMode", 8},
    [MAX_TIMES] = {"maxReconsumeTimes", 17},
    [BATCH] = {"batch", 5},
};

static int slot_of(const struct pymq_slice *name, bool is_long) {
    if (!is_long)
        return name->size == 1 && name->data[0] >= 'a' && name->data[0] <= 'm' ? name->data[0] - 'a' : SLOTS;
    for (int slot = 0; slot < SLOTS; slot++) {
        if (name->size == LONG_NAMES[slot].size && memcmp(name->data, LONG_NAMES[slot].name, name->size) == 0)
            return slot;
    }
    return SLOTS;
}

/* Java's Boolean.parseBoolean. */
static bool is_true(const struct pymq_slice *slice) {
    return slice->size == 4 && strncasecmp((const char *)slice->data, "true", 4) == 0;
}

/* Most numbers of a send have one digit. */
static inline int read_int32(const struct pymq_slice *slice, int32_t *value) {
    if (slice->size == 1 && (uint8_t)(slice->data[0] - '0') <= 9) {
        *value = slice->data[0] - '0';
        return PYMQ_OK;
    }
    return pymq_slice_int32(slice, value);
}

int pymq_send_parse(const struct pymq_command *command, struct pymq_send *send) {
    struct pymq_slice fields[SLOTS + 1] = {{NULL, 0}};
    bool is_long = command->code == PYMQ_CODE_SEND_MESSAGE;
    for (uint32_t i = 0; i < command->field_count; i++)
        fields[slot_of(&command->fields[i].name, is_long)] = command->fields[i].value;

    int32_t ignored;
    send->topic = fields[TOPIC];
    send->properties = fields[PROPERTIES];
    send->body = command->body;
    send->is_batch = fields[BATCH].data != NULL && is_true(&fields[BATCH]);
    send->reconsume_times = 0;
    bool is_whole = fields[GROUP].data != NULL && fields[TOPIC].data != NULL && fields[DEFAULT_TOPIC].data != NULL &&
                    read_int32(&fields[DEFAULT_NUMS], &ignored) == PYMQ_OK &&
                    read_int32(&fields[QUEUE_ID], &send->queue_id) == PYMQ_OK &&
                    read_int32(&fields[SYS_FLAG], &send->sys_flag) == PYMQ_OK &&
                    pymq_slice_int64(&fields[BORN], &send->born_timestamp_ms) == PYMQ_OK &&
                    read_int32(&fields[FLAG], &send->flag) == PYMQ_OK;
    if (fields[TIMES].data != NULL)
        is_whole = is_whole && read_int32(&fields[TIMES], &send->reconsume_times) == PYMQ_OK;
    if (fields[MAX_TIMES].data != NULL)
        is_whole = is_whole && read_int32(&fields[MAX_TIMES], &ignored) == PYMQ_OK;
    return is_whole ? PYMQ_OK : PYMQ_EINVAL;
}
