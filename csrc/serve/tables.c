/* Topics and groups, and how tables are changed. See tables.h for who may touch what. */
#include "tables.h"

#include <stdlib.h>

#define RETRY_PREFIX "%RETRY%"

static void free_rows(struct pymq_row_map *map, void (*free_row)(struct pymq_row *row)) {
    for (size_t i = 0; map->buckets != NULL && i < map->bucket_count; i++) {
        while (map->buckets[i] != NULL) {
            struct pymq_row *row = map->buckets[i];
            map->buckets[i] = row->next;
            free_row(row);
        }
    }
    pymq_row_map_destroy(map);
}

static void free_topic(struct pymq_row *row) {
    struct pymq_topic *topic = (struct pymq_topic *)row;
    free(topic->queues);
    free(topic);
}

static void free_offset(struct pymq_row *row) { pymq_offset_row_free((struct pymq_offset_row *)row); }

static void free_subscription(struct pymq_row *row) { pymq_subscription_free((struct pymq_subscription *)row); }

static void free_plain(struct pymq_row *row) { free(row); }

int pymq_tables_init(struct pymq_tables *tables) {
    memset(tables, 0, sizeof *tables);
    pthread_mutex_init(&tables->control_lock, NULL);
    int status = pymq_row_map_init(&tables->topics);
    if (status == PYMQ_OK)
        status = pymq_row_map_init(&tables->groups);
    if (status == PYMQ_OK)
        status = pymq_row_map_init(&tables->subscriptions);
    if (status == PYMQ_OK)
        status = pymq_row_map_init(&tables->offsets);
    if (status == PYMQ_OK)
        status = pymq_row_map_init(&tables->traffic);
    if (status != PYMQ_OK)
        pymq_tables_destroy(tables);
    return status;
}

void pymq_tables_destroy(struct pymq_tables *tables) {
    free_rows(&tables->topics, free_topic);
    free_rows(&tables->groups, free_plain);
    free_rows(&tables->subscriptions, free_subscription);
    free_rows(&tables->offsets, free_offset);
    free_rows(&tables->traffic, free_plain);
    pthread_mutex_destroy(&tables->control_lock);
}

void pymq_tables_begin(struct pymq_tables *tables) {
    pthread_mutex_lock(&tables->control_lock);
    if (tables->transport != NULL) /* before it is attached nobody is served yet */
        pymq_transport_exclude(tables->transport);
}

void pymq_tables_end(struct pymq_tables *tables) {
    if (tables->transport != NULL)
        pymq_transport_include(tables->transport);
    pthread_mutex_unlock(&tables->control_lock);
}

/* ---- topics ------------------------------------------------------------------------------------------------- */

struct pymq_topic *pymq_topic_find(const struct pymq_tables *tables, const uint8_t *name, size_t size) {
    uint64_t hash = pymq_name_hash(name, size);
    for (struct pymq_row *row = pymq_row_map_chain(&tables->topics, hash); row != NULL; row = row->next) {
        struct pymq_topic *topic = (struct pymq_topic *)row;
        if (row->hash == hash && topic->name_size == size && memcmp(topic->name, name, size) == 0)
            return topic;
    }
    return NULL;
}

/* Room for every queue id the row allows. Queues that were resolved stay resolved. */
static int widen_queues(struct pymq_topic *topic, int32_t count) {
    if (count <= topic->queue_count)
        return PYMQ_OK;
    _Atomic(struct pymq_queue *) *wider = realloc(topic->queues, (size_t)count * sizeof *wider);
    if (wider == NULL)
        return PYMQ_ENOMEM;
    for (int32_t i = topic->queue_count; i < count; i++)
        atomic_init(&wider[i], NULL);
    topic->queues = wider;
    topic->queue_count = count;
    return PYMQ_OK;
}

static bool is_name(const uint8_t *name, size_t size) {
    return name != NULL && size >= 1 && size <= PYMQ_TABLE_NAME_MAX;
}

int pymq_topic_publish(struct pymq_tables *tables, const struct pymq_topic_row *source, struct pymq_topic **result) {
    int32_t queue_count = source->read_queues > source->write_queues ? source->read_queues : source->write_queues;
    if (!is_name(source->name, source->name_size) || source->read_queues < 0 || source->write_queues < 0 ||
        queue_count > PYMQ_TOPIC_QUEUES_MAX)
        return PYMQ_EINVAL;
    struct pymq_topic *topic = pymq_topic_find(tables, source->name, source->name_size);
    bool is_new = topic == NULL;
    if (is_new) {
        topic = calloc(1, sizeof *topic + source->name_size);
        if (topic == NULL)
            return PYMQ_ENOMEM;
        topic->row.hash = pymq_name_hash(source->name, source->name_size);
        topic->name_size = source->name_size;
        memcpy(topic->name, source->name, source->name_size);
        topic->is_retry = source->name_size >= sizeof RETRY_PREFIX - 1 &&
                          memcmp(source->name, RETRY_PREFIX, sizeof RETRY_PREFIX - 1) == 0;
        topic->incarnation = ++tables->incarnations;
    }
    int status = widen_queues(topic, queue_count);
    if (status == PYMQ_OK && is_new)
        status = pymq_row_map_insert(&tables->topics, &topic->row);
    if (status != PYMQ_OK) {
        if (is_new)
            free_topic(&topic->row);
        return status;
    }
    topic->permission = source->permission;
    topic->read_queues = source->read_queues;
    topic->write_queues = source->write_queues;
    topic->sys_flag = source->sys_flag;
    topic->flags = source->flags;
    *result = topic;
    return PYMQ_OK;
}

void pymq_topic_remove(struct pymq_tables *tables, struct pymq_topic *topic) {
    pymq_row_map_remove(&tables->topics, &topic->row);
    free_topic(&topic->row);
}

int pymq_topic_queue(struct pymq_store *store, struct pymq_topic *topic, int32_t queue_id, bool create,
                     struct pymq_queue **queue) {
    if (queue_id < 0 || queue_id >= topic->queue_count)
        return PYMQ_EINVAL;
    *queue = atomic_load_explicit(&topic->queues[queue_id], memory_order_acquire);
    if (*queue != NULL)
        return PYMQ_OK;
    int status = pymq_store_queue(store, topic->name, topic->name_size, queue_id, create, queue);
    if (status == PYMQ_OK) /* several reactors may do this at once: they found the same queue */
        atomic_store_explicit(&topic->queues[queue_id], *queue, memory_order_release);
    return status;
}

void pymq_topic_queue_forget(struct pymq_topic *topic, int32_t queue_id, struct pymq_queue *queue) {
    if (queue_id >= 0 && queue_id < topic->queue_count) /* unless another reactor has the new one already */
        atomic_compare_exchange_strong(&topic->queues[queue_id], &queue, NULL);
}

/* ---- groups ------------------------------------------------------------------------------------------------- */

struct pymq_group *pymq_group_find(const struct pymq_tables *tables, const uint8_t *name, size_t size) {
    uint64_t hash = pymq_name_hash(name, size);
    for (struct pymq_row *row = pymq_row_map_chain(&tables->groups, hash); row != NULL; row = row->next) {
        struct pymq_group *group = (struct pymq_group *)row;
        if (row->hash == hash && group->name_size == size && memcmp(group->name, name, size) == 0)
            return group;
    }
    return NULL;
}

int pymq_group_publish(struct pymq_tables *tables, const struct pymq_group_row *source, struct pymq_group **result) {
    if (!is_name(source->name, source->name_size))
        return PYMQ_EINVAL;
    struct pymq_group *group = pymq_group_find(tables, source->name, source->name_size);
    if (group == NULL) {
        group = calloc(1, sizeof *group + source->name_size);
        if (group == NULL)
            return PYMQ_ENOMEM;
        group->row.hash = pymq_name_hash(source->name, source->name_size);
        group->name_size = source->name_size;
        memcpy(group->name, source->name, source->name_size);
        int status = pymq_row_map_insert(&tables->groups, &group->row);
        if (status != PYMQ_OK) {
            free(group);
            return status;
        }
    }
    group->flags = source->flags;
    group->sys_flag = source->sys_flag;
    group->broker_id = source->broker_id;
    group->broker_id_when_slow = source->broker_id_when_slow;
    group->retry_queues = source->retry_queues;
    group->retry_max_times = source->retry_max_times;
    *result = group;
    return PYMQ_OK;
}

void pymq_group_remove(struct pymq_tables *tables, struct pymq_group *group) {
    pymq_row_map_remove(&tables->groups, &group->row);
    free(group);
}
