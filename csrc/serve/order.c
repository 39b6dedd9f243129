/* See order.h. An entry counts the sends of one (connection, topic) that are with the control loop. Topics are told
 * apart by their hash alone: two that shared one would at worst wait for each other. */
#include "order.h"

#include <stdlib.h>

struct entry {
    struct pymq_row row; /* hash of connection and topic */
    pymq_connection_id connection;
    uint64_t topic_hash;
    size_t sends;
    int64_t expires_ms; /* of ANY_TOPIC */
};

#define ANY_TOPIC 0 /* in place of a topic's hash */

int pymq_order_init(struct pymq_order *order) {
    atomic_init(&order->count, 0);
    pthread_mutex_init(&order->lock, NULL);
    return pymq_row_map_init(&order->entries);
}

static void remove_locked(struct pymq_order *order, struct entry *entry) {
    pymq_row_map_remove(&order->entries, &entry->row);
    free(entry);
    atomic_store_explicit(&order->count, order->entries.count, memory_order_release);
}

void pymq_order_destroy(struct pymq_order *order) {
    while (order->entries.buckets != NULL && order->entries.count > 0)
        remove_locked(order, (struct entry *)pymq_row_map_next(&order->entries, NULL));
    pymq_row_map_destroy(&order->entries);
    pthread_mutex_destroy(&order->lock);
}

static uint64_t hash_of(pymq_connection_id connection, uint64_t topic_hash) {
    return (topic_hash ^ connection) * 0x9e3779b97f4a7c15u >> 7;
}

static struct entry *find_locked(struct pymq_order *order, pymq_connection_id connection, uint64_t topic_hash) {
    uint64_t hash = hash_of(connection, topic_hash);
    struct pymq_row *row = pymq_row_map_chain(&order->entries, hash);
    for (; row != NULL; row = row->next) {
        struct entry *entry = (struct entry *)row;
        if (entry->connection == connection && entry->topic_hash == topic_hash)
            return entry;
    }
    return NULL;
}

static bool is_any_waiting_locked(struct pymq_order *order, pymq_connection_id connection, int64_t now_ms) {
    struct entry *any = find_locked(order, connection, ANY_TOPIC);
    if (any != NULL && any->expires_ms <= now_ms) {
        remove_locked(order, any);
        any = NULL;
    }
    return any != NULL;
}

bool pymq_order_is_waiting(struct pymq_order *order, pymq_connection_id connection, const uint8_t *topic, size_t size,
                           int64_t now_ms) {
    /* The control loop leaves after its append: with acquire, our append comes behind it. */
    if (atomic_load_explicit(&order->count, memory_order_acquire) == 0)
        return false;
    pthread_mutex_lock(&order->lock);
    bool waiting = is_any_waiting_locked(order, connection, now_ms) ||
                   find_locked(order, connection, pymq_name_hash(topic, size)) != NULL;
    pthread_mutex_unlock(&order->lock);
    return waiting;
}

static struct entry *enter_locked(struct pymq_order *order, pymq_connection_id connection, uint64_t topic_hash) {
    struct entry *entry = find_locked(order, connection, topic_hash);
    if (entry == NULL && (entry = calloc(1, sizeof *entry)) != NULL) {
        entry->connection = connection;
        entry->topic_hash = topic_hash;
        entry->row.hash = hash_of(connection, topic_hash);
        if (pymq_row_map_insert(&order->entries, &entry->row) != PYMQ_OK) {
            free(entry);
            entry = NULL;
        }
    }
    if (entry != NULL)
        entry->sends++;
    atomic_store_explicit(&order->count, order->entries.count, memory_order_release);
    return entry;
}

void pymq_order_enter(struct pymq_order *order, pymq_connection_id connection, const uint8_t *topic, size_t size) {
    pthread_mutex_lock(&order->lock);
    enter_locked(order, connection, pymq_name_hash(topic, size));
    pthread_mutex_unlock(&order->lock);
}

void pymq_order_enter_any(struct pymq_order *order, pymq_connection_id connection, int64_t expires_ms) {
    pthread_mutex_lock(&order->lock);
    struct entry *any = enter_locked(order, connection, ANY_TOPIC);
    if (any != NULL)
        any->expires_ms = expires_ms;
    pthread_mutex_unlock(&order->lock);
}

static void leave(struct pymq_order *order, pymq_connection_id connection, uint64_t topic_hash) {
    pthread_mutex_lock(&order->lock);
    struct entry *entry = find_locked(order, connection, topic_hash);
    if (entry != NULL && --entry->sends == 0)
        remove_locked(order, entry);
    pthread_mutex_unlock(&order->lock);
}

void pymq_order_leave(struct pymq_order *order, pymq_connection_id connection, const uint8_t *topic, size_t size) {
    leave(order, connection, pymq_name_hash(topic, size));
}

void pymq_order_leave_any(struct pymq_order *order, pymq_connection_id connection) {
    leave(order, connection, ANY_TOPIC);
}

void pymq_order_forget(struct pymq_order *order, pymq_connection_id connection) {
    if (atomic_load_explicit(&order->count, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&order->lock);
    struct entry *entry = (struct entry *)pymq_row_map_next(&order->entries, NULL);
    while (entry != NULL) {
        struct entry *next = (struct entry *)pymq_row_map_next(&order->entries, &entry->row);
        if (entry->connection == connection)
            remove_locked(order, entry);
        entry = next;
    }
    pthread_mutex_unlock(&order->lock);
}
