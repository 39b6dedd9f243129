/* What the index tests share: messages kept in memory (the verifier's log), scratch directories, file comparison. */
#ifndef PYMQ_TESTS_INDEX_HELP_H
#define PYMQ_TESTS_INDEX_HELP_H

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "pymq/index.h"
#include "pymq/io.h"

#define SLOTS 20
#define ITEMS 32 /* 31 items a file */
#define DIRECTORY_MAX 256
#define FILES_MAX 512
#define TIME_BASE_MS 1700000000123ll

struct message {
    int64_t offset;
    int64_t timestamp_ms;
    int32_t sys_flag;
    const char *topic;
    char unique_key[24]; /* "" for none */
    char keys[40];
    char tags[16];
};

static inline void scratch_make(char directory[DIRECTORY_MAX]) {
    const char *base = getenv("TMPDIR");
    snprintf(directory, DIRECTORY_MAX, "%s/pymq-index-XXXXXX", base != NULL && *base != '\0' ? base : "/tmp");
    CHECK(mkdtemp(directory) != NULL);
}

static inline int by_name(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Paths of the entries of a directory, sorted; the caller frees each. */
static inline int list_files(const char *directory, char *paths[FILES_MAX]) {
    DIR *stream = opendir(directory);
    CHECK(stream != NULL);
    int count = 0;
    for (struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
        if (entry->d_name[0] == '.')
            continue;
        CHECK(count < FILES_MAX);
        size_t size = strlen(directory) + strlen(entry->d_name) + 2;
        paths[count] = malloc(size);
        CHECK(paths[count] != NULL);
        snprintf(paths[count++], size, "%s/%s", directory, entry->d_name);
    }
    closedir(stream);
    qsort(paths, (size_t)count, sizeof *paths, by_name);
    return count;
}

static inline void free_paths(char *paths[FILES_MAX], int count) {
    for (int i = 0; i < count; i++)
        free(paths[i]);
}

static inline int count_files(const char *directory) {
    char *paths[FILES_MAX];
    int count = list_files(directory, paths);
    free_paths(paths, count);
    return count;
}

static inline void scratch_remove(const char *directory) {
    char *paths[FILES_MAX];
    int count = list_files(directory, paths);
    for (int i = 0; i < count; i++)
        CHECK_EQ(remove(paths[i]), 0);
    free_paths(paths, count);
    CHECK_EQ(rmdir(directory), 0);
}

static inline void write_file(const char *path, const uint8_t *source, size_t size) {
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(source, 1, size, file), size);
    CHECK_EQ(fclose(file), 0);
}

static inline void copy_files(const char *from, const char *to) {
    char *paths[FILES_MAX];
    int count = list_files(from, paths);
    for (int i = 0; i < count; i++) {
        char target[PYMQ_PATH_MAX];
        size_t size;
        uint8_t *bytes = check_read_file(paths[i], &size);
        snprintf(target, sizeof target, "%s%s", to, strrchr(paths[i], '/'));
        write_file(target, bytes, size);
        free(bytes);
    }
    free_paths(paths, count);
}

/* The n-th file of one directory equals the n-th of the other; names are creation times and do not count. */
static inline void check_same_files(const char *left, const char *right) {
    char *left_paths[FILES_MAX];
    char *right_paths[FILES_MAX];
    int count = list_files(left, left_paths);
    CHECK_EQ(list_files(right, right_paths), count);
    for (int i = 0; i < count; i++) {
        size_t left_size;
        size_t right_size;
        uint8_t *left_bytes = check_read_file(left_paths[i], &left_size);
        uint8_t *right_bytes = check_read_file(right_paths[i], &right_size);
        CHECK_BYTES(left_bytes, left_size, right_bytes, right_size);
        free(left_bytes);
        free(right_bytes);
    }
    free_paths(left_paths, count);
    free_paths(right_paths, count);
}

static inline struct pymq_index *open_index(const char *directory, int32_t slots, int32_t items) {
    struct pymq_index *index = NULL;
    struct pymq_error error;
    int status = pymq_index_open(directory, slots, items, &index, &error);
    if (status != PYMQ_OK)
        CHECK_FAIL("%s: %s", pymq_status_name(status), error.text);
    return index;
}

static inline struct pymq_slice slice_of(const char *text) {
    struct pymq_slice slice = {.data = (const uint8_t *)text, .size = (uint32_t)strlen(text)};
    return slice;
}

static inline int put_message(struct pymq_index *index, const struct message *message) {
    struct pymq_record record = {
        .physical_offset = message->offset,
        .store_timestamp_ms = message->timestamp_ms,
        .sys_flag = message->sys_flag,
        .topic = slice_of(message->topic),
    };
    struct pymq_record_keys keys = {.tags = slice_of(message->tags), .keys = slice_of(message->keys)};
    if (message->unique_key[0] != '\0')
        keys.unique_key = slice_of(message->unique_key);
    return pymq_index_put(index, &record, &keys);
}

static inline void put_all(struct pymq_index *index, const struct message *messages, int count) {
    for (int i = 0; i < count; i++)
        CHECK_EQ(put_message(index, &messages[i]), PYMQ_OK);
}

/* `count` messages, about two and a half keys each, so that records spread over file ends. */
static inline struct message *make_messages(int count, uint64_t seed) {
    struct message *messages = calloc((size_t)count, sizeof *messages);
    CHECK(messages != NULL);
    int64_t offset = 0;
    int64_t timestamp_ms = TIME_BASE_MS;
    for (int i = 0; i < count; i++) {
        struct message *message = &messages[i];
        message->offset = offset;
        message->timestamp_ms = timestamp_ms;
        message->topic = i % 3 == 0 ? "TopicB" : "TopicA";
        snprintf(message->unique_key, sizeof message->unique_key, "U%08d", i);
        if (check_random(&seed) % 2 == 0)
            snprintf(message->keys, sizeof message->keys, "order%d common", i);
        if (check_random(&seed) % 4 == 0)
            snprintf(message->tags, sizeof message->tags, "tag%d", i % 3);
        offset += 91 + (int64_t)(check_random(&seed) % 400);
        timestamp_ms += (int64_t)(check_random(&seed) % 1500);
    }
    return messages;
}

/* The verifier's log. */
struct log {
    const struct message *messages;
    int count;
    const char *topic;
    const char *key;
    int asked;
};

static inline bool has_word(const char *words, const char *word) {
    size_t size = strlen(word);
    for (const char *at = strstr(words, word); at != NULL; at = strstr(at + 1, word)) {
        if ((at == words || at[-1] == ' ') && (at[size] == '\0' || at[size] == ' '))
            return true;
    }
    return false;
}

static inline bool message_has_key(const struct message *message, const char *topic, const char *key) {
    if (strcmp(message->topic, topic) != 0)
        return false;
    if (strncmp(key, "T#", 2) == 0)
        return strcmp(message->tags, key + 2) == 0;
    return strcmp(message->unique_key, key) == 0 || has_word(message->keys, key);
}

static inline int verify_in_log(void *context, int64_t offset) {
    struct log *log = context;
    log->asked++;
    int low = 0;
    int high = log->count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (log->messages[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return log->count > 0 && log->messages[low].offset == offset &&
           message_has_key(&log->messages[low], log->topic, log->key);
}

static inline ssize_t query_window(struct pymq_index *index, struct log *log, const char *topic, const char *key,
                                   int64_t begin_ms, int64_t end_ms, int64_t *offsets, size_t count_max) {
    log->topic = topic;
    log->key = key;
    return pymq_index_query(index, (const uint8_t *)topic, strlen(topic), (const uint8_t *)key, strlen(key), begin_ms,
                            end_ms, 0, INT64_MAX, verify_in_log, log, offsets, count_max);
}

/* Everything the messages say about `key`, newest first, and nothing else. */
static inline void check_key(struct pymq_index *index, struct log *log, const char *topic, const char *key) {
    int64_t offsets[1024];
    ssize_t found = query_window(index, log, topic, key, 0, INT64_MAX, offsets, 1024);
    ssize_t expected = 0;
    for (int i = log->count; i > 0; i--) {
        if (message_has_key(&log->messages[i - 1], topic, key)) {
            CHECK(expected < found);
            CHECK_EQ(offsets[expected++], log->messages[i - 1].offset);
        }
    }
    CHECK_EQ(found, expected);
}

static inline void check_all_keys(struct pymq_index *index, struct log *log) {
    for (int i = 0; i < log->count; i++)
        check_key(index, log, log->messages[i].topic, log->messages[i].unique_key);
    check_key(index, log, "TopicA", "common");
    check_key(index, log, "TopicB", "common");
    check_key(index, log, "TopicA", "T#tag1");
    check_key(index, log, "TopicA", "absent");
}

#endif
