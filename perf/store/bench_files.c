/* Reading a directory's files as recovery does, and sending them out of the page cache first. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench_support.h"
#include "pymq/io.h"

#define READ_SIZE (8 * 1024 * 1024) /* as recovery_walk.c */

/* Names of the files of `directory`, sorted: a log is read in order. Returns how many, or -1. */
static int list_files(const char *directory, struct dirent ***entries) {
    return scandir(directory, entries, NULL, alphasort);
}

static int open_file(const char *directory, const char *name) {
    char path[PYMQ_PATH_MAX];
    if (name[0] == '.' || snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return -1;
    return open(path, O_RDONLY);
}

int bench_read_files(const char *directory, int64_t bytes_max, struct bench_cost *cost) {
    struct dirent **entries;
    struct bench_clock clock;
    uint8_t *buffer = malloc(READ_SIZE);
    int count = list_files(directory, &entries);
    int64_t bytes = 0;
    if (buffer == NULL || count < 0) {
        free(buffer);
        return bench_fail(PYMQ_EIO, "%s: %s", directory, strerror(errno));
    }
    memset(buffer, 0, READ_SIZE); /* its own page faults are no part of reading */
    bench_begin(&clock);
    for (int i = 0; i < count; i++) {
        int fd = open_file(directory, entries[i]->d_name);
        if (fd >= 0)
            posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        for (int64_t at = 0; fd >= 0 && bytes < bytes_max;) {
            ssize_t got = pread(fd, buffer, (size_t)pymq_min64(READ_SIZE, bytes_max - bytes), at);
            if (got <= 0)
                break;
            at += got;
            bytes += got;
        }
        if (fd >= 0)
            close(fd);
        free(entries[i]);
    }
    bench_end(&clock, count, bytes, cost);
    free(entries);
    free(buffer);
    return PYMQ_OK;
}

int bench_evict(const char *directory) {
    struct dirent **entries;
    int count = list_files(directory, &entries);
    if (count < 0)
        return bench_fail(PYMQ_EIO, "%s: %s", directory, strerror(errno));
    for (int i = 0; i < count; i++) {
        int fd = open_file(directory, entries[i]->d_name);
        if (fd >= 0) {
            fdatasync(fd);
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
        free(entries[i]);
    }
    free(entries);
    return PYMQ_OK;
}
