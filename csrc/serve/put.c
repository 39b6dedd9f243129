/* Messages the control loop stores itself, into the same log and the same counters as native sends. */
#include <stdlib.h>

#include "serve_internal.h"

/* Often on the control loop, which everybody's heartbeats go through. */
#define APPEND_FLAGS PYMQ_APPEND_BOUNDED

struct encoded {
    struct pymq_append_item *items;
    uint8_t *records;
};

static size_t room_of(const struct pymq_put *put) {
    return (size_t)put->body.size + put->topic.size + put->properties.size + PYMQ_RECORD_SIZE_MIN + 2 * 12 + 1;
}

static int encode(struct pymq_serve *serve, struct pymq_put *puts, size_t count, struct encoded *encoded) {
    size_t room = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        room += room_of(&puts[i]);
    encoded->items = calloc(count, sizeof *encoded->items);
    encoded->records = malloc(room);
    if (encoded->items == NULL || encoded->records == NULL)
        return PYMQ_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct pymq_put *put = &puts[i];
        struct pymq_record record = {
            .queue_id = put->queue_id,
            .flag = put->flag,
            .sys_flag = put->sys_flag,
            .born_timestamp_ms = put->born_timestamp_ms,
            .born_host = put->born_host,
            .store_host = serve->config.store_host,
            .reconsume_times = put->reconsume_times,
            .prepared_transaction_offset = put->prepared_transaction_offset,
            .topic = put->topic,
            .body = put->body,
            .properties = put->properties,
        };
        if (!pymq_properties_are_well_formed(put->properties.data, put->properties.size))
            return PYMQ_EPROPERTIES;
        ssize_t size = pymq_record_encode(&record, encoded->records + at, room - at);
        if (size < 0)
            return (int)size;
        encoded->items[i].record = encoded->records + at;
        encoded->items[i].size = (uint32_t)size;
        at += (size_t)size;
        int status = pymq_store_queue(serve->store, put->topic.data, put->topic.size, put->queue_id, true,
                                      &encoded->items[i].queue);
        if (status != PYMQ_OK)
            return status;
    }
    return PYMQ_OK;
}

/* Counted where native sends are: in the topic's row, which may have gone in between. */
static void count_put(struct pymq_serve *serve, const struct pymq_put *put, const struct pymq_append_item *item) {
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_topic *topic = pymq_topic_find(&serve->tables, put->topic.data, put->topic.size);
    if (topic != NULL) {
        atomic_fetch_add_explicit(&topic->put_messages, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&topic->put_bytes, item->size, memory_order_relaxed);
    }
    pthread_mutex_unlock(&serve->tables.control_lock);
    pymq_store_count_put(serve->store, 1, item->size, 0);
    atomic_fetch_add_explicit(&serve->put_messages, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&serve->put_bytes, item->size, memory_order_relaxed);
}

int pymq_serve_put(struct pymq_serve *serve, struct pymq_put *puts, size_t count, bool together) {
    struct encoded encoded = {NULL, NULL};
    if (count == 0)
        return PYMQ_EINVAL;
    int status = encode(serve, puts, count, &encoded);
    if (status == PYMQ_OK) {
        struct pymq_append_result result;
        status = pymq_store_append(serve->store, encoded.items, count,
                                   APPEND_FLAGS | (together ? PYMQ_APPEND_TOGETHER : 0), &result);
        for (size_t i = 0; i < result.appended; i++) {
            const struct pymq_append_item *item = &encoded.items[i];
            puts[i].queue_offset = item->queue_offset;
            puts[i].physical_offset = item->physical_offset;
            puts[i].end_offset = item->physical_offset + item->size;
            puts[i].store_timestamp_ms = result.store_timestamp_ms;
            count_put(serve, &puts[i], item);
        }
    }
    free(encoded.items);
    free(encoded.records);
    return status;
}
