/* Removing a topic's queues while the store runs.
 *
 * The order makes a crash leave all of them or none: close the queues to appends and note the log's end; let dispatch
 * and the disk reach it; write the entry of removed_topics.h, which is the moment of removal; then take queues and
 * files away, at leisure, because from then on every open finishes the job. A queue object lives on, dead and empty,
 * until the store is closed: whoever has kept a pointer gets PYMQ_ENOTFOUND and looks the queue up again. */
#include <errno.h>
#include <stdlib.h>

#include "pymq/io.h"
#include "store_internal.h"

#define REMOVED_FILE "removedTopics"
#define QUEUES_ROOM 64 /* queues that may be made between counting and listing them */

struct removal {
    struct pymq_store *store;
    struct pymq_slice topic;
    struct pymq_queue **queues;
    size_t count;
    int64_t end; /* of the log, when the queues were closed */
};

static bool is_of(const struct pymq_queue *queue, struct pymq_slice topic) {
    return queue->topic_size == topic.size && memcmp(queue->topic, topic.data, topic.size) == 0;
}

/* Under the append lock, so that an append is wholly before or refused. */
static void set_closed(struct removal *removal, bool closed) {
    for (size_t i = 0; i < removal->count; i++)
        atomic_store(&removal->queues[i]->closed, closed);
}

/* Find and close them in one go: what a queue that is not among them holds was appended behind `end`. */
static int close_queues(struct removal *removal) {
    struct pymq_queue_table *table = &removal->store->queues;
    struct pymq_commit_log *log = &removal->store->log;
    for (;;) {
        size_t capacity = pymq_queue_table_list(table, NULL, 0) + QUEUES_ROOM;
        removal->queues = malloc(capacity * sizeof *removal->queues);
        if (removal->queues == NULL)
            return PYMQ_ENOMEM;
        pymq_append_lock_acquire(&log->lock);
        size_t count = pymq_queue_table_list(table, removal->queues, capacity);
        if (count <= capacity) {
            for (size_t i = 0; i < count; i++) {
                if (is_of(removal->queues[i], removal->topic))
                    removal->queues[removal->count++] = removal->queues[i];
            }
            set_closed(removal, true);
            removal->end = log->position;
        }
        pymq_append_lock_release(&log->lock);
        if (count <= capacity)
            return removal->count > 0 ? PYMQ_OK : PYMQ_ENOTFOUND;
        free(removal->queues);
    }
}

static void open_again(struct removal *removal) {
    pymq_append_lock_acquire(&removal->store->log.lock);
    set_closed(removal, false);
    pymq_append_lock_release(&removal->store->log.lock);
}

static bool is_settled(void *context) {
    struct removal *removal = context;
    return atomic_load(&removal->store->marks.dispatched) >= removal->end || atomic_load(&removal->store->closing);
}

/* Every record of the topic must be in its queue before that goes: one dispatched later would begin a new queue in the
 * middle. */
static int wait_dispatched(struct removal *removal, int32_t timeout_ms) {
    struct pymq_store *store = removal->store;
    int64_t deadline = pymq_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    int status = pymq_flush_all(store); /* with SYNC_FLUSH and with the pool only that makes it visible */
    while (status == PYMQ_OK && !is_settled(removal)) {
        int64_t left_ms = (deadline - pymq_monotonic_ns() + 999999) / 1000000;
        if (left_ms <= 0)
            return PYMQ_ETIMEDOUT;
        pymq_gate_wait(&store->marks.arrived, left_ms, is_settled, removal);
    }
    return status == PYMQ_OK && atomic_load(&store->closing) ? PYMQ_ECLOSED : status;
}

/* The files of one queue and its directories, as far as they are empty. Not synced: the entry in removedTopics
 * vouches. */
static int remove_files(struct pymq_queue *queue) {
    int status = pymq_mapped_queue_remove_all(&queue->files);
    if (status != PYMQ_OK)
        return status;
    char topic[PYMQ_PATH_MAX];
    memcpy(topic, queue->files.directory, strlen(queue->files.directory) + 1);
    *strrchr(topic, '/') = '\0';
    if (pymq_io->rmdir(queue->files.directory) != 0 && errno != ENOENT && errno != ENOTEMPTY)
        return PYMQ_EIO;
    if (pymq_io->rmdir(topic) != 0 && errno != ENOENT && errno != ENOTEMPTY)
        return PYMQ_EIO;
    return PYMQ_OK;
}

/* Empty to whoever still looks. Returns the units it had. */
static int64_t empty(struct pymq_queue *queue) {
    atomic_store(&queue->closed, true);
    atomic_store(&queue->dead, true);
    atomic_store_explicit(&queue->min_position, 0, memory_order_release);
    atomic_store_explicit(&queue->dirty, false, memory_order_release);
    return atomic_exchange(&queue->max_position, 0) / PYMQ_CQ_UNIT_SIZE;
}

static int take_away(struct removal *removal) {
    struct pymq_store *store = removal->store;
    int64_t units = 0;
    int status = PYMQ_OK;
    /* No flush of a queue that goes, no checkpoint that counts half of it. */
    pthread_mutex_lock(&store->checkpoint_lock);
    for (size_t i = 0; i < removal->count; i++)
        units += empty(removal->queues[i]);
    pthread_mutex_lock(&store->mark_lock);
    store->mark.unit_total -= units;
    store->units_removed += units;
    pthread_mutex_unlock(&store->mark_lock);
    /* The files first: while a queue is in the table nobody makes another one in the same directory. */
    for (size_t i = 0; i < removal->count; i++) {
        int removed = remove_files(removal->queues[i]);
        if (removed == PYMQ_OK)
            pymq_queue_table_remove(&store->queues, removal->queues[i]);
        else
            status = removed; /* it stays closed until the next open, which tries again */
    }
    pthread_mutex_unlock(&store->checkpoint_lock);
    pymq_gate_ring_slow(&store->marks.arrived); /* readers that wait for a message of it wait no longer */
    return status;
}

int pymq_store_remove_topic(struct pymq_store *store, const uint8_t *topic, size_t topic_size, int32_t timeout_ms) {
    struct removal removal = {.store = store, .topic = {topic, (uint32_t)topic_size}};
    char path[PYMQ_PATH_MAX];
    int status = pymq_store_path(store, REMOVED_FILE, path, sizeof path);
    pthread_mutex_lock(&store->removal_lock);
    if (status == PYMQ_OK)
        status = close_queues(&removal);
    if (status == PYMQ_OK) {
        status = wait_dispatched(&removal, timeout_ms);
        if (status == PYMQ_OK)
            status = pymq_removed_topics_add(&store->removed, path, removal.topic, removal.end,
                                             pymq_commit_log_min(&store->log));
        if (status != PYMQ_OK)
            open_again(&removal);
        else
            status = take_away(&removal);
        if (status == PYMQ_OK)
            status = pymq_checkpoint_round(store, false);
    }
    pthread_mutex_unlock(&store->removal_lock);
    free(removal.queues);
    return status;
}

bool pymq_queue_is_removed(const struct pymq_queue *queue) {
    return atomic_load_explicit(&((struct pymq_queue *)queue)->closed, memory_order_acquire);
}

int pymq_removal_load(struct pymq_store *store, struct pymq_error *error) {
    char path[PYMQ_PATH_MAX];
    int status = pymq_store_path(store, REMOVED_FILE, path, sizeof path);
    return status == PYMQ_OK ? pymq_removed_topics_load(&store->removed, path, error) : status;
}

int pymq_removal_clamp(struct pymq_store *store, int64_t log_end, struct pymq_error *error) {
    char path[PYMQ_PATH_MAX];
    int status = pymq_store_path(store, REMOVED_FILE, path, sizeof path);
    if (status == PYMQ_OK)
        status = pymq_removed_topics_clamp(&store->removed, path, log_end);
    return status == PYMQ_OK ? PYMQ_OK
                             : pymq_fail(error, status, errno, "%s: cannot be replaced: %s", path, strerror(errno));
}

int pymq_removal_finish(struct pymq_store *store, struct pymq_queue *queue, bool *gone) {
    struct pymq_slice topic = {queue->topic, queue->topic_size};
    *gone = queue->max_physical > 0 && queue->max_physical <= pymq_removed_topics_from(&store->removed, topic);
    if (!*gone)
        return PYMQ_OK;
    empty(queue);
    int status = remove_files(queue);
    if (status == PYMQ_OK)
        pymq_queue_table_remove(&store->queues, queue);
    return status;
}
