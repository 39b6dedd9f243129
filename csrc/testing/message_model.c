/* Making the model's messages and sending them. The judging half is message_verify.c. */
#include "message_model.h"

#include "message_content.h"
#include "random.h"
#include "scratch.h"

#define APPEND_MAX 64 /* items of one append call */

#define LONG_TOPIC                                                                                                     \
    "a-topic-with-a-name-of-more-than-one-hundred-and-twenty-seven-bytes-so-that-its-records-need-the-second-magic"    \
    "-code-and-two-bytes-for-the-topic-length"

static const char *const topics[MODEL_TOPICS] = {"TopicA", "TopicB", LONG_TOPIC};

const char *model_topic(uint8_t topic) { return topics[topic]; }

void message_model_open(struct message_model *model, uint32_t capacity, const struct pymq_store_config *config) {
    memset(model, 0, sizeof *model);
    model->messages = calloc(capacity, sizeof *model->messages);
    CHECK(model->messages != NULL, "out of memory");
    model->capacity = capacity;
    model->log_file_size = config->log_file_size;
    model->index_enable = config->index_enable;
    model->record_crc = config->append_record_crc;
    model->other_reads_step = 1;
}

void message_model_close(struct message_model *model) {
    free(model->messages);
    memset(model, 0, sizeof *model);
}

struct model_promise message_model_promise(struct message_model *model) {
    struct model_promise promise = {.count = atomic_load(&model->promised_count)};
    promise.removed_below = atomic_load(&model->removed_below);
    return promise;
}

uint32_t message_model_add(struct message_model *model, uint8_t topic, uint8_t queue_id, uint32_t body_size) {
    uint32_t id = atomic_fetch_add(&model->count, 1);
    CHECK(id < model->capacity, "more than %u messages", model->capacity);
    CHECK(body_size >= MODEL_BODY_SIZE_MIN && topic < MODEL_TOPICS && queue_id < MODEL_QUEUES, "message out of range");
    model->messages[id] = (struct model_message){
        .body_size = body_size, .topic = topic, .queue_id = queue_id, .queue_offset = -1, .physical_offset = -1};
    return id;
}

void model_body(const struct model_message *message, uint32_t id, uint8_t *body) {
    struct test_random random = {.state = id};
    pymq_store_be64(body, id);
    pymq_store_be32(body + 8, message->body_size);
    body[12] = message->topic;
    body[13] = message->queue_id;
    test_random_fill(&random, body + 14, message->body_size - 14);
}

static void add_property(uint8_t *target, size_t *size, const char *name, const char *value) {
    struct pymq_slice name_slice = {(const uint8_t *)name, (uint32_t)strlen(name)};
    struct pymq_slice value_slice = {(const uint8_t *)value, (uint32_t)strlen(value)};
    CHECK(pymq_properties_append(target, MODEL_PROPERTIES_MAX, size, name_slice, value_slice) == PYMQ_OK, "properties");
}

size_t model_properties(uint32_t id, uint8_t target[MODEL_PROPERTIES_MAX]) {
    char text[MODEL_KEY_MAX * 2];
    char own[MODEL_KEY_MAX], group[MODEL_KEY_MAX];
    size_t size = 0;
    model_unique_key(id, text);
    add_property(target, &size, "UNIQ_KEY", text);
    model_own_key(id, own);
    model_group_key(id, group);
    snprintf(text, sizeof text, "%s %s", own, group);
    add_property(target, &size, "KEYS", text);
    model_tag(id, text);
    add_property(target, &size, "TAGS", text);
    return size;
}

size_t message_model_encode(const struct message_model *model, uint32_t id, uint8_t *target, size_t capacity) {
    const struct model_message *message = &model->messages[id];
    uint8_t properties[MODEL_PROPERTIES_MAX];
    uint8_t *body = malloc(message->body_size);
    CHECK(body != NULL, "out of memory");
    model_body(message, id, body);
    struct pymq_record record = {
        .magic = PYMQ_RECORD_MAGIC_V1,
        .queue_id = message->queue_id,
        .flag = (int32_t)id,
        .born_timestamp_ms = 1700000000000 + (int64_t)id,
        .born_host = {.address = {127, 0, 0, 1}, .size = 4, .port = 1},
        .store_host = {.address = {127, 0, 0, 1}, .size = 4, .port = 10911},
        .body = {body, message->body_size},
        .topic = {(const uint8_t *)topics[message->topic], (uint32_t)strlen(topics[message->topic])},
    };
    if (id % 7 == 3)
        record.born_host = (struct pymq_host){.address = {0x20, 1, 0xd, 0xb8, [15] = 9}, .size = 16, .port = 2};
    record.properties.data = properties;
    record.properties.size = (uint32_t)model_properties(id, properties);
    ssize_t size = pymq_record_encode(&record, target, capacity);
    CHECK(size > 0, "encode of message %u: %s", id, pymq_status_name((int)size));
    free(body);
    return (size_t)size;
}

int message_model_append(struct message_model *model, struct pymq_store *store, const uint32_t *ids, size_t count,
                         unsigned flags, struct pymq_append_result *result) {
    struct pymq_append_item items[APPEND_MAX];
    size_t capacity = 0, used = 0;
    CHECK(count <= APPEND_MAX, "more than %d messages at once", APPEND_MAX);
    for (size_t i = 0; i < count; i++)
        capacity += model->messages[ids[i]].body_size + MODEL_RECORD_SLACK;
    uint8_t *buffer = malloc(capacity);
    CHECK(buffer != NULL, "out of memory");
    memset(result, 0, sizeof *result);
    int status = PYMQ_OK;
    for (size_t i = 0; i < count && status == PYMQ_OK; i++) {
        const struct model_message *message = &model->messages[ids[i]];
        const char *topic = topics[message->topic];
        memset(&items[i], 0, sizeof items[i]);
        items[i].record = buffer + used;
        items[i].size = (uint32_t)message_model_encode(model, ids[i], buffer + used, capacity - used);
        used += items[i].size;
        status = pymq_store_queue(store, (const uint8_t *)topic, strlen(topic), message->queue_id, true,
                                  &items[i].queue);
    }
    if (status == PYMQ_OK)
        status = pymq_store_append(store, items, count, flags, result);
    for (size_t i = 0; i < result->appended; i++) {
        struct model_message *message = &model->messages[ids[i]];
        message->size = items[i].size;
        message->queue_offset = items[i].queue_offset;
        message->physical_offset = items[i].physical_offset;
    }
    free(buffer);
    return status;
}

int message_model_send(struct message_model *model, struct pymq_store *store, uint8_t topic, uint8_t queue_id,
                       uint32_t body_size, bool wait) {
    struct pymq_append_result result;
    uint32_t id = message_model_add(model, topic, queue_id, body_size);
    int status = message_model_append(model, store, &id, 1, 0, &result);
    if (status != PYMQ_OK || !wait)
        return status;
    status = pymq_store_wait_acknowledged(store, result.end_offset, -1);
    if (status == PYMQ_OK)
        message_model_promise_all(model);
    return status;
}

void message_model_promise_all(struct message_model *model) {
    atomic_store(&model->promised_count, atomic_load(&model->count));
}

void message_model_rewind(struct message_model *model, uint32_t count) {
    atomic_store(&model->count, count);
    if (atomic_load(&model->promised_count) > count)
        atomic_store(&model->promised_count, count);
    for (uint32_t id = 0; id < count; id++)
        model->messages[id].dead = false;
}

void message_model_lose_unseen(struct message_model *model, int64_t min) {
    uint32_t count = atomic_load(&model->count);
    for (uint32_t id = 0; id < count; id++) {
        struct model_message *message = &model->messages[id];
        message->lost = message->lost || (!message->seen && message->physical_offset >= min);
    }
}

void message_model_bury_unseen(struct message_model *model, int64_t min) {
    uint32_t count = atomic_load(&model->count);
    for (uint32_t id = 0; id < count; id++) {
        struct model_message *message = &model->messages[id];
        message->dead = !message->seen && message->physical_offset >= min;
    }
}
