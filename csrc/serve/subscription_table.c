/* What groups subscribe to, and what was pulled for them. Rows are keyed by (topic, group). */
#include <stdlib.h>

#include "tables.h"

/* Whether `names` (topic, then group) are these two. */
static bool is_pair(const uint8_t *names, uint32_t names_topic_size, uint32_t names_group_size, const uint8_t *topic,
                    size_t topic_size, const uint8_t *group, size_t group_size) {
    return names_topic_size == topic_size && names_group_size == group_size &&
           memcmp(names, topic, topic_size) == 0 && memcmp(names + topic_size, group, group_size) == 0;
}

struct pymq_subscription *pymq_subscription_find(const struct pymq_tables *tables, const uint8_t *topic,
                                                 size_t topic_size, const uint8_t *group, size_t group_size) {
    uint64_t hash = pymq_pair_hash(topic, topic_size, group, group_size);
    for (struct pymq_row *row = pymq_row_map_chain(&tables->subscriptions, hash); row != NULL; row = row->next) {
        struct pymq_subscription *found = (struct pymq_subscription *)row;
        if (row->hash == hash &&
            is_pair(found->names, found->topic_size, found->group_size, topic, topic_size, group, group_size))
            return found;
    }
    return NULL;
}

static struct pymq_pull_traffic *traffic_find(const struct pymq_tables *tables, const uint8_t *topic,
                                              size_t topic_size, const uint8_t *group, size_t group_size) {
    uint64_t hash = pymq_pair_hash(topic, topic_size, group, group_size);
    for (struct pymq_row *row = pymq_row_map_chain(&tables->traffic, hash); row != NULL; row = row->next) {
        struct pymq_pull_traffic *found = (struct pymq_pull_traffic *)row;
        if (row->hash == hash &&
            is_pair(found->names, found->topic_size, found->group_size, topic, topic_size, group, group_size))
            return found;
    }
    return NULL;
}

static struct pymq_pull_traffic *traffic_make(struct pymq_tables *tables, const struct pymq_subscription_row *source) {
    struct pymq_pull_traffic *traffic =
        traffic_find(tables, source->topic, source->topic_size, source->group, source->group_size);
    if (traffic != NULL)
        return traffic;
    traffic = calloc(1, sizeof *traffic + source->topic_size + source->group_size);
    if (traffic == NULL)
        return NULL;
    traffic->row.hash = pymq_pair_hash(source->topic, source->topic_size, source->group, source->group_size);
    traffic->topic_size = source->topic_size;
    traffic->group_size = source->group_size;
    memcpy(traffic->names, source->topic, source->topic_size);
    memcpy(traffic->names + source->topic_size, source->group, source->group_size);
    if (pymq_row_map_insert(&tables->traffic, &traffic->row) != PYMQ_OK) {
        free(traffic);
        return NULL;
    }
    return traffic;
}

static struct pymq_subscription *subscription_make(struct pymq_tables *tables,
                                                   const struct pymq_subscription_row *source) {
    struct pymq_pull_traffic *traffic = traffic_make(tables, source);
    struct pymq_subscription *row = calloc(1, sizeof *row + source->topic_size + source->group_size);
    if (traffic == NULL || row == NULL) {
        free(row);
        return NULL;
    }
    row->row.hash = traffic->row.hash;
    row->traffic = traffic;
    row->topic_size = source->topic_size;
    row->group_size = source->group_size;
    memcpy(row->names, traffic->names, (size_t)source->topic_size + source->group_size);
    if (pymq_row_map_insert(&tables->subscriptions, &row->row) != PYMQ_OK) {
        free(row);
        return NULL;
    }
    return row;
}

/* Another program and its text in a row; on failure the row keeps what it has. */
static int replace_program(struct pymq_subscription *row, const struct pymq_subscription_row *source) {
    struct pymq_shared_program *program = NULL;
    uint8_t *expression = NULL;
    if (source->program != NULL) {
        int status = pymq_shared_program_make(source->program, source->program_size, &program);
        if (status != PYMQ_OK)
            return status;
    }
    if (program != NULL && source->expression_size > 0) {
        expression = malloc(source->expression_size);
        if (expression == NULL) {
            pymq_shared_program_leave(program);
            return PYMQ_ENOMEM;
        }
        memcpy(expression, source->expression, source->expression_size);
    }
    pymq_shared_program_leave(row->program);
    free(row->expression);
    row->program = program;
    row->expression = expression;
    row->expression_size = expression != NULL ? source->expression_size : 0;
    return PYMQ_OK;
}

int pymq_subscription_publish(struct pymq_tables *tables, const struct pymq_subscription_row *source,
                              struct pymq_subscription **result) {
    if (source->topic_size == 0 || source->topic_size > PYMQ_TABLE_NAME_MAX || source->group_size == 0 ||
        source->group_size > PYMQ_TABLE_NAME_MAX || source->tag_count > PYMQ_TAGS_MAX)
        return PYMQ_EINVAL;
    struct pymq_subscription *row =
        pymq_subscription_find(tables, source->topic, source->topic_size, source->group, source->group_size);
    bool fresh = row == NULL;
    if (fresh)
        row = subscription_make(tables, source);
    if (row == NULL)
        return PYMQ_ENOMEM;
    int status = replace_program(row, source);
    if (status != PYMQ_OK) {
        if (fresh)
            pymq_subscription_remove(tables, row);
        return status;
    }
    row->version = source->version;
    row->all = source->all;
    row->special = source->special;
    row->tag_count = source->tag_count;
    memcpy(row->tag_hashes, source->tag_hashes, source->tag_count * sizeof row->tag_hashes[0]);
    *result = row;
    return PYMQ_OK;
}

void pymq_subscription_free(struct pymq_subscription *subscription) {
    pymq_shared_program_leave(subscription->program);
    free(subscription->expression);
    free(subscription);
}

void pymq_subscription_remove(struct pymq_tables *tables, struct pymq_subscription *subscription) {
    pymq_row_map_remove(&tables->subscriptions, &subscription->row);
    pymq_subscription_free(subscription);
}

void pymq_traffic_forget(struct pymq_tables *tables, const uint8_t *topic, size_t topic_size, const uint8_t *group,
                         size_t group_size) {
    struct pymq_row *row = NULL;
    while ((row = pymq_row_map_next(&tables->traffic, row)) != NULL) {
        struct pymq_pull_traffic *traffic = (struct pymq_pull_traffic *)row;
        bool of_topic =
            topic_size == 0 || (traffic->topic_size == topic_size && memcmp(traffic->names, topic, topic_size) == 0);
        bool of_group =
            group_size == 0 || (traffic->group_size == group_size &&
                                memcmp(traffic->names + traffic->topic_size, group, group_size) == 0);
        if (of_topic && of_group) {
            atomic_store_explicit(&traffic->messages, 0, memory_order_relaxed);
            atomic_store_explicit(&traffic->bytes, 0, memory_order_relaxed);
        }
    }
}
