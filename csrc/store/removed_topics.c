/* See removed_topics.h. */
#include "removed_topics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "pymq/io.h"

#define HEAD "pymq removed topics 1\n"
#define FILE_SIZE_MAX (64 * 1024 * 1024) /* far above what a million names need */
#define LINE_EXTRA 64                    /* two numbers, two spaces, a line end */

void pymq_removed_topics_free(struct pymq_removed_topics *removed) {
    for (size_t i = 0; i < removed->count; i++)
        free(removed->topics[i].name);
    free(removed->topics);
    memset(removed, 0, sizeof *removed);
}

static int compare_names(const uint8_t *a, uint32_t a_size, const uint8_t *b, uint32_t b_size) {
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return order != 0 ? order : (a_size > b_size) - (a_size < b_size);
}

/* Where `topic` stands, or would. */
static size_t place_of(const struct pymq_removed_topics *removed, struct pymq_slice topic, bool *found) {
    size_t low = 0, high = removed->count;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct pymq_removed_topic *at = &removed->topics[middle];
        int order = compare_names(at->name, at->size, topic.data, topic.size);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int64_t pymq_removed_topics_from(const struct pymq_removed_topics *removed, struct pymq_slice topic) {
    bool found;
    size_t place = place_of(removed, topic, &found);
    return found ? removed->topics[place].offset : 0;
}

static int put(struct pymq_removed_topics *removed, struct pymq_slice topic, int64_t offset) {
    bool found;
    size_t place = place_of(removed, topic, &found);
    if (!found) {
        struct pymq_removed_topic *grown = realloc(removed->topics, (removed->count + 1) * sizeof *grown);
        if (grown == NULL)
            return PYMQ_ENOMEM;
        removed->topics = grown;
        uint8_t *name = malloc(topic.size);
        if (name == NULL)
            return PYMQ_ENOMEM;
        memcpy(name, topic.data, topic.size);
        memmove(&removed->topics[place + 1], &removed->topics[place], (removed->count - place) * sizeof *grown);
        removed->topics[place].offset = 0;
        removed->topics[place].size = topic.size;
        removed->topics[place].name = name;
        removed->count++;
    }
    removed->topics[place].offset = pymq_max64(removed->topics[place].offset, offset);
    removed->offset_max = pymq_max64(removed->offset_max, offset);
    return PYMQ_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------------- */

/* "<number>" and one space or line end behind it; -1 when there is none. */
static int64_t parse_number(const uint8_t **at, const uint8_t *end) {
    int64_t value = 0;
    const uint8_t *begin = *at;
    while (*at < end && **at >= '0' && **at <= '9' && value < INT64_MAX / 10 - 1)
        value = value * 10 + (*(*at)++ - '0');
    if (*at == begin || *at == end || *(*at)++ != ' ')
        return -1;
    return value;
}

static int parse(struct pymq_removed_topics *removed, const uint8_t *at, const uint8_t *end) {
    size_t head = strlen(HEAD);
    if ((size_t)(end - at) < head || memcmp(at, HEAD, head) != 0)
        return PYMQ_ECORRUPT;
    at += head;
    while (at < end) {
        int64_t offset = parse_number(&at, end);
        int64_t size = offset >= 0 ? parse_number(&at, end) : -1;
        if (size < 1 || size > PYMQ_TOPIC_SIZE_MAX || size >= end - at || at[size] != '\n')
            return PYMQ_ECORRUPT;
        int status = put(removed, (struct pymq_slice){at, (uint32_t)size}, offset);
        if (status != PYMQ_OK)
            return status;
        at += size + 1;
    }
    return PYMQ_OK;
}

int pymq_removed_topics_load(struct pymq_removed_topics *removed, const char *path, struct pymq_error *error) {
    memset(removed, 0, sizeof *removed);
    int fd = pymq_io->open(path, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? PYMQ_OK
                               : pymq_fail(error, PYMQ_EIO, errno, "%s: cannot be read: %s", path, strerror(errno));
    uint8_t *bytes = NULL;
    size_t capacity = 4096;
    ssize_t got = PYMQ_ENOMEM;
    do { /* until it fits: small files, and no other way to learn the size through the table of calls */
        capacity *= 4;
        uint8_t *grown = realloc(bytes, capacity);
        if (grown == NULL)
            break;
        bytes = grown;
        got = pymq_io_pread_full(fd, bytes, capacity, 0);
    } while (got == (ssize_t)capacity && capacity < FILE_SIZE_MAX);
    int code = errno;
    pymq_io->close(fd);
    int status = got < 0 ? (int)got : parse(removed, bytes, bytes + got);
    free(bytes);
    if (status == PYMQ_OK)
        return PYMQ_OK;
    pymq_removed_topics_free(removed);
    if (status == PYMQ_ECORRUPT)
        return pymq_fail(error, status, 0,
                         "%s: not a list of removed topics; move it away to open the store without it (topics removed "
                         "while their messages are still in the log may then come back)",
                         path);
    return pymq_fail(error, status, code, "%s: cannot be read: %s", path, strerror(code));
}

static uint8_t *format(const struct pymq_removed_topics *removed, size_t *size) {
    size_t capacity = strlen(HEAD);
    for (size_t i = 0; i < removed->count; i++)
        capacity += removed->topics[i].size + LINE_EXTRA;
    uint8_t *bytes = malloc(capacity + 1);
    if (bytes == NULL)
        return NULL;
    *size = strlen(HEAD);
    memcpy(bytes, HEAD, *size);
    for (size_t i = 0; i < removed->count; i++) {
        const struct pymq_removed_topic *topic = &removed->topics[i];
        *size += (size_t)snprintf((char *)bytes + *size, LINE_EXTRA, "%" PRId64 " %" PRIu32 " ", topic->offset,
                                  topic->size); /* two numbers: they always fit */
        memcpy(bytes + *size, topic->name, topic->size);
        *size += topic->size;
        bytes[(*size)++] = '\n';
    }
    return bytes;
}

static int replace_file(const char *path, const uint8_t *bytes, size_t size) {
    char temporary[PYMQ_PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (length < 0 || (size_t)length >= sizeof temporary)
        return PYMQ_EINVAL;
    int fd = pymq_io->open(temporary, O_RDWR | O_CREAT, 0644);
    if (fd < 0)
        return pymq_io_status(errno);
    int status = pymq_io->ftruncate(fd, 0) == 0 ? pymq_io_pwrite_full(fd, bytes, size, 0) : pymq_io_status(errno);
    if (status == PYMQ_OK && pymq_io->fsync(fd) != 0)
        status = PYMQ_EIO;
    int saved = errno;
    pymq_io->close(fd);
    errno = saved;
    if (status == PYMQ_OK && pymq_io->rename(temporary, path) != 0)
        status = PYMQ_EIO;
    return status == PYMQ_OK ? pymq_io_sync_parent(path) : status;
}

static int copy_live(const struct pymq_removed_topics *from, int64_t log_begin, struct pymq_removed_topics *to) {
    memset(to, 0, sizeof *to);
    for (size_t i = 0; i < from->count; i++) {
        const struct pymq_removed_topic *topic = &from->topics[i];
        int status = topic->offset > log_begin
                         ? put(to, (struct pymq_slice){topic->name, topic->size}, topic->offset)
                         : PYMQ_OK;
        if (status != PYMQ_OK)
            return status;
    }
    return PYMQ_OK;
}

static int save(const struct pymq_removed_topics *removed, const char *path) {
    size_t size = 0;
    uint8_t *bytes = format(removed, &size);
    int status = bytes != NULL ? replace_file(path, bytes, size) : PYMQ_ENOMEM;
    free(bytes);
    return status;
}

int pymq_removed_topics_clamp(struct pymq_removed_topics *removed, const char *path, int64_t log_end) {
    if (removed->offset_max <= log_end)
        return PYMQ_OK;
    for (size_t i = 0; i < removed->count; i++)
        removed->topics[i].offset = pymq_min64(removed->topics[i].offset, log_end);
    removed->offset_max = log_end;
    return save(removed, path);
}

int pymq_removed_topics_add(struct pymq_removed_topics *removed, const char *path, struct pymq_slice topic,
                            int64_t offset, int64_t log_begin) {
    struct pymq_removed_topics next;
    int status = copy_live(removed, log_begin, &next);
    if (status == PYMQ_OK)
        status = put(&next, topic, offset);
    if (status == PYMQ_OK)
        status = save(&next, path);
    if (status != PYMQ_OK) {
        pymq_removed_topics_free(&next);
        return status;
    }
    pymq_removed_topics_free(removed);
    *removed = next;
    return PYMQ_OK;
}
