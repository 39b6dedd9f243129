/* Tables as the control loop changes them: each function excludes the reactors, changes one row, and lets them go on.
 * When it returns, no reactor acts on the older row any more. */
#include "serve_internal.h"

/* Places for the offsets that a group will ask for and commit, one for every queue of the topic: without them each of
 * its first requests would take the way through the control loop. Without memory they do. */
static void make_offsets(struct pymq_tables *tables, const struct pymq_topic *topic,
                         const struct pymq_subscription *subscription) {
    struct pymq_offset_row *offsets;
    if (topic != NULL && topic->queue_count > 0)
        pymq_offset_make(tables, topic->name, topic->name_size, subscription->names + subscription->topic_size,
                         subscription->group_size, topic->queue_count - 1, &offsets);
}

/* The topic is new or has grown: for whoever subscribes to it. */
static void make_offsets_of_topic(struct pymq_tables *tables, const struct pymq_topic *topic) {
    for (struct pymq_row *row = NULL; (row = pymq_row_map_next(&tables->subscriptions, row)) != NULL;) {
        struct pymq_subscription *subscription = (struct pymq_subscription *)row;
        if (subscription->topic_size == topic->name_size &&
            memcmp(subscription->names, topic->name, topic->name_size) == 0)
            make_offsets(tables, topic, subscription);
    }
}

int pymq_serve_publish_topic(struct pymq_serve *serve, const struct pymq_topic_row *row) {
    pymq_tables_begin(&serve->tables);
    struct pymq_topic *topic = pymq_topic_find(&serve->tables, row->name, row->name_size);
    int32_t queue_count = topic != NULL ? topic->queue_count : 0;
    int status = pymq_topic_publish(&serve->tables, row, &topic);
    if (status == PYMQ_OK && topic->queue_count > queue_count)
        make_offsets_of_topic(&serve->tables, topic);
    if (status == PYMQ_OK)
        pymq_pull_topic_changed(serve, topic);
    pymq_tables_end(&serve->tables);
    return status;
}

void pymq_serve_remove_topic(struct pymq_serve *serve, const uint8_t *name, uint32_t size, bool offsets_too) {
    if (size == 0)
        return;
    pymq_tables_begin(&serve->tables);
    struct pymq_topic *topic = pymq_topic_find(&serve->tables, name, size);
    if (topic != NULL) {
        pymq_pull_topic_removed(serve, topic);
        pymq_topic_remove(&serve->tables, topic);
    }
    pymq_traffic_forget(&serve->tables, name, size, NULL, 0);
    if (offsets_too)
        pymq_offset_rows_remove(&serve->tables, name, size, NULL, 0);
    pymq_tables_end(&serve->tables);
}

int pymq_serve_publish_group(struct pymq_serve *serve, const struct pymq_group_row *row) {
    pymq_tables_begin(&serve->tables);
    struct pymq_group *group;
    int status = pymq_group_publish(&serve->tables, row, &group);
    if (status == PYMQ_OK)
        pymq_pull_group_changed(serve, group);
    pymq_tables_end(&serve->tables);
    return status;
}

void pymq_serve_remove_group(struct pymq_serve *serve, const uint8_t *name, uint32_t size, bool offsets_too) {
    if (size == 0)
        return;
    pymq_tables_begin(&serve->tables);
    struct pymq_group *group = pymq_group_find(&serve->tables, name, size);
    if (group != NULL) {
        pymq_pull_group_removed(serve, group);
        pymq_group_remove(&serve->tables, group);
    }
    pymq_traffic_forget(&serve->tables, NULL, 0, name, size);
    if (offsets_too)
        pymq_offset_rows_remove(&serve->tables, NULL, 0, name, size);
    pymq_tables_end(&serve->tables);
}

static bool is_other_program(const struct pymq_shared_program *known, const struct pymq_subscription_row *row) {
    if (known == NULL || row->program == NULL)
        return (known == NULL) != (row->program == NULL);
    return known->program.size != row->program_size || memcmp(known->bytes, row->program, row->program_size) != 0;
}

/* Whether `row` asks for other messages than `known`, not only with a newer version. */
static bool is_other_filter(const struct pymq_subscription *known, const struct pymq_subscription_row *row) {
    return known == NULL || known->all != row->all || known->special != row->special ||
           known->tag_count != row->tag_count || is_other_program(known->program, row) ||
           memcmp(known->tag_hashes, row->tag_hashes, row->tag_count * sizeof row->tag_hashes[0]) != 0;
}

int pymq_serve_publish_subscription(struct pymq_serve *serve, const struct pymq_subscription_row *row) {
    pymq_tables_begin(&serve->tables);
    struct pymq_subscription *subscription =
        pymq_subscription_find(&serve->tables, row->topic, row->topic_size, row->group, row->group_size);
    bool filter_changed = row->tag_count > PYMQ_TAGS_MAX || is_other_filter(subscription, row);
    int status = pymq_subscription_publish(&serve->tables, row, &subscription);
    if (status == PYMQ_OK)
        make_offsets(&serve->tables, pymq_topic_find(&serve->tables, row->topic, row->topic_size), subscription);
    if (status == PYMQ_OK)
        pymq_pull_subscription_changed(serve, subscription, filter_changed);
    pymq_tables_end(&serve->tables);
    return status;
}

void pymq_serve_remove_subscription(struct pymq_serve *serve, const uint8_t *group, uint32_t group_size,
                                    const uint8_t *topic, uint32_t topic_size) {
    pymq_tables_begin(&serve->tables);
    struct pymq_subscription *found = pymq_subscription_find(&serve->tables, topic, topic_size, group, group_size);
    if (found != NULL) {
        pymq_pull_subscription_removed(serve, found);
        pymq_subscription_remove(&serve->tables, found);
    }
    pymq_tables_end(&serve->tables);
}

/* ---- what went through ------------------------------------------------------------------------------------------ */

size_t pymq_serve_traffic(struct pymq_serve *serve, struct pymq_traffic *rows, size_t count_max) {
    size_t count = 0;
    pthread_mutex_lock(&serve->tables.control_lock);
    struct pymq_row *row = NULL;
    while ((row = pymq_row_map_next(&serve->tables.topics, row)) != NULL) {
        struct pymq_topic *topic = (struct pymq_topic *)row;
        if (count < count_max)
            rows[count] = (struct pymq_traffic){
                .topic = {topic->name, topic->name_size},
                .messages = atomic_load_explicit(&topic->put_messages, memory_order_relaxed),
                .bytes = atomic_load_explicit(&topic->put_bytes, memory_order_relaxed),
            };
        count++;
    }
    row = NULL;
    while ((row = pymq_row_map_next(&serve->tables.traffic, row)) != NULL) {
        struct pymq_pull_traffic *traffic = (struct pymq_pull_traffic *)row;
        if (count < count_max)
            rows[count] = (struct pymq_traffic){
                .topic = {traffic->names, traffic->topic_size},
                .group = {traffic->names + traffic->topic_size, traffic->group_size},
                .messages = atomic_load_explicit(&traffic->messages, memory_order_relaxed),
                .bytes = atomic_load_explicit(&traffic->bytes, memory_order_relaxed),
            };
        count++;
    }
    pthread_mutex_unlock(&serve->tables.control_lock);
    return count;
}
