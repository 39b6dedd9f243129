/* The table of consume queues: found by (topic, queue id), made on first use, loaded from the directory tree. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pymq/io.h"
#include "queue.h"

/* Windows of queue files: small, because ten thousand queues may each have one. A unit may straddle two windows, so
 * each is mapped with one page of its successor. */
#define QUEUE_WINDOW_SIZE (64 * 1024)
#define TOPIC_NAME_MAX 255 /* a topic is a directory name */

int pymq_queue_table_init(struct pymq_queue_table *table, const char *directory, int64_t file_size, int32_t maps_max) {
    memset(table, 0, sizeof *table);
    table->buckets = calloc(PYMQ_QUEUE_BUCKETS, sizeof *table->buckets);
    table->directory = strdup(directory);
    if (table->buckets == NULL || table->directory == NULL) {
        free(table->buckets);
        free(table->directory);
        table->buckets = NULL;
        return PYMQ_ENOMEM;
    }
    table->file_size = file_size;
    pthread_rwlock_init(&table->lock, NULL);
    pymq_window_cache_init(&table->cache, QUEUE_WINDOW_SIZE, PYMQ_PAGE_SIZE, INT64_MAX / 2, maps_max);
    /* A fault for one unit must not make the kernel read (and zero) megabytes of a sparse file around it. */
    table->cache.advice = MADV_RANDOM;
    return PYMQ_OK;
}

static void queue_free(struct pymq_queue *queue) {
    pymq_mapped_queue_destroy(&queue->files);
    free(queue->topic);
    free(queue);
}

void pymq_queue_table_destroy(struct pymq_queue_table *table) {
    if (table->buckets == NULL)
        return;
    for (size_t i = 0; i < PYMQ_QUEUE_BUCKETS; i++) {
        while (table->buckets[i] != NULL) {
            struct pymq_queue *queue = table->buckets[i];
            table->buckets[i] = queue->next_in_bucket;
            queue_free(queue);
        }
    }
    while (table->removed != NULL) {
        struct pymq_queue *queue = table->removed;
        table->removed = queue->next_in_bucket;
        queue_free(queue);
    }
    pymq_window_cache_destroy(&table->cache);
    pthread_rwlock_destroy(&table->lock);
    free(table->buckets);
    free(table->directory);
    memset(table, 0, sizeof *table);
}

/* FNV-1a, eight bytes a step: topics are short and the table is ours alone. */
static uint64_t hash_of(const uint8_t *topic, size_t size, int32_t queue_id) {
    uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)(uint32_t)queue_id;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, topic, 8);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
        topic += 8;
        size -= 8;
    }
    uint64_t word = 0;
    memcpy(&word, topic, size);
    hash = (hash ^ word ^ (uint64_t)size << 56) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static struct pymq_queue *find_locked(struct pymq_queue_table *table, uint64_t hash, const uint8_t *topic, size_t size,
                                      int32_t queue_id) {
    struct pymq_queue *queue = table->buckets[hash % PYMQ_QUEUE_BUCKETS];
    while (queue != NULL && !(queue->hash == hash && queue->queue_id == queue_id && queue->topic_size == size &&
                              memcmp(queue->topic, topic, size) == 0))
        queue = queue->next_in_bucket;
    return queue;
}

/* A topic becomes a directory, so besides what the format allows it must be a file name of this system. */
static bool topic_is_a_name(const uint8_t *topic, size_t size) {
    return size <= TOPIC_NAME_MAX && pymq_topic_is_storable(topic, size);
}

static int create_locked(struct pymq_queue_table *table, uint64_t hash, const uint8_t *topic, size_t size,
                         int32_t queue_id, struct pymq_queue **result) {
    char directory[PYMQ_PATH_MAX];
    int length = snprintf(directory, sizeof directory, "%s/%.*s/%" PRId32, table->directory, (int)size,
                          (const char *)topic, queue_id);
    if (length < 0 || (size_t)length >= sizeof directory - PYMQ_FILE_NAME_SIZE - 2)
        return PYMQ_ETOPIC;
    struct pymq_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return PYMQ_ENOMEM;
    queue->topic = malloc(size);
    if (queue->topic == NULL ||
        pymq_mapped_queue_init(&queue->files, directory, table->file_size, &table->cache) != PYMQ_OK) {
        free(queue->topic);
        free(queue);
        return PYMQ_ENOMEM;
    }
    queue->files.sparse = true;
    memcpy(queue->topic, topic, size);
    queue->topic_size = (uint32_t)size;
    queue->queue_id = queue_id;
    queue->hash = hash;
    queue->max_physical = -1;
    queue->next_in_bucket = table->buckets[hash % PYMQ_QUEUE_BUCKETS];
    table->buckets[hash % PYMQ_QUEUE_BUCKETS] = queue;
    table->count++;
    *result = queue;
    return PYMQ_OK;
}

int pymq_queue_table_get(struct pymq_queue_table *table, const uint8_t *topic, size_t topic_size, int32_t queue_id,
                         bool create, struct pymq_queue **queue) {
    if (!topic_is_a_name(topic, topic_size))
        return PYMQ_ETOPIC;
    if (queue_id < 0)
        return PYMQ_EINVAL;
    uint64_t hash = hash_of(topic, topic_size, queue_id);
    pthread_rwlock_rdlock(&table->lock);
    *queue = find_locked(table, hash, topic, topic_size, queue_id);
    pthread_rwlock_unlock(&table->lock);
    if (*queue != NULL)
        return PYMQ_OK;
    if (!create)
        return PYMQ_ENOTFOUND;
    pthread_rwlock_wrlock(&table->lock);
    int status = PYMQ_OK;
    *queue = find_locked(table, hash, topic, topic_size, queue_id);
    if (*queue == NULL)
        status = table->count < PYMQ_QUEUE_COUNT_MAX ? create_locked(table, hash, topic, topic_size, queue_id, queue)
                                                     : PYMQ_ENOMEM;
    pthread_rwlock_unlock(&table->lock);
    return status;
}

void pymq_queue_table_remove(struct pymq_queue_table *table, struct pymq_queue *queue) {
    pthread_rwlock_wrlock(&table->lock);
    struct pymq_queue **link = &table->buckets[queue->hash % PYMQ_QUEUE_BUCKETS];
    while (*link != queue)
        link = &(*link)->next_in_bucket;
    *link = queue->next_in_bucket;
    queue->next_in_bucket = table->removed;
    table->removed = queue;
    table->count--;
    pthread_rwlock_unlock(&table->lock);
}

size_t pymq_queue_table_list(struct pymq_queue_table *table, struct pymq_queue **queues, size_t count_max) {
    pthread_rwlock_rdlock(&table->lock);
    size_t found = 0;
    for (size_t i = 0; i < PYMQ_QUEUE_BUCKETS && found < count_max; i++) {
        for (struct pymq_queue *queue = table->buckets[i]; queue != NULL && found < count_max;
             queue = queue->next_in_bucket)
            queues[found++] = queue;
    }
    size_t count = table->count;
    pthread_rwlock_unlock(&table->lock);
    return count;
}

static bool parse_queue_id(const char *name, int32_t *queue_id) {
    int64_t value = 0;
    if (*name == '\0' || (name[0] == '0' && name[1] != '\0'))
        return false;
    for (; *name != '\0'; name++) {
        if (*name < '0' || *name > '9' || value > INT32_MAX)
            return false;
        value = value * 10 + (*name - '0');
    }
    *queue_id = (int32_t)value;
    return value <= INT32_MAX;
}

static int load_topic(struct pymq_queue_table *table, const char *topic, enum pymq_gap gap, struct pymq_error *error) {
    char path[PYMQ_PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", table->directory, topic);
    if (length < 0 || (size_t)length >= sizeof path)
        return pymq_fail(error, PYMQ_ETOPIC, 0, "%s: path too long", table->directory);
    DIR *stream = opendir(path);
    if (stream == NULL)
        return errno == ENOTDIR ? PYMQ_OK
                                : pymq_fail(error, PYMQ_EIO, errno, "%s: cannot be listed: %s", path, strerror(errno));
    int status = PYMQ_OK;
    struct dirent *entry;
    while (status == PYMQ_OK && (entry = readdir(stream)) != NULL) {
        int32_t queue_id;
        struct pymq_queue *queue;
        if (!parse_queue_id(entry->d_name, &queue_id))
            continue;
        status = pymq_queue_table_get(table, (const uint8_t *)topic, strlen(topic), queue_id, true, &queue);
        if (status == PYMQ_OK)
            status = pymq_mapped_queue_load(&queue->files, "mappedFileSizeConsumeQueue", gap, error);
        else
            pymq_fail(error, status, 0, "%s/%s: queue cannot be opened: %s", path, entry->d_name,
                      pymq_status_name(status));
    }
    closedir(stream);
    return status;
}

int pymq_queue_table_load(struct pymq_queue_table *table, enum pymq_gap gap, struct pymq_error *error) {
    DIR *stream = opendir(table->directory);
    if (stream == NULL)
        return errno == ENOENT
                   ? PYMQ_OK
                   : pymq_fail(error, PYMQ_EIO, errno, "%s: cannot be listed: %s", table->directory, strerror(errno));
    int status = PYMQ_OK;
    struct dirent *entry;
    while (status == PYMQ_OK && (entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = load_topic(table, entry->d_name, gap, error);
    }
    closedir(stream);
    return status;
}
