/* See window.h. One mutex per cache guards slots, pins and the list; it is held across mmap and munmap on purpose:
 * both take microseconds, happen once per window, and a second thread would only wait for the same pages. */
#include "window.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "mapped_file.h"
#include "pymq/io.h"

void pymq_window_cache_init(struct pymq_window_cache *cache, int64_t window_size, int64_t overlap, int64_t bytes_max,
                            int64_t count_max) {
    memset(cache, 0, sizeof *cache);
    pthread_mutex_init(&cache->lock, NULL);
    cache->window_size = pymq_round_up(window_size, PYMQ_PAGE_SIZE);
    cache->overlap = pymq_round_up(overlap, PYMQ_PAGE_SIZE);
    cache->bytes_max = bytes_max;
    cache->count_max = count_max;
    cache->protection = PROT_READ | PROT_WRITE;
    cache->advice = -1;
}

static void list_remove(struct pymq_window_cache *cache, struct pymq_window *window) {
    if (window->newer != NULL)
        window->newer->older = window->older;
    else
        cache->newest = window->older;
    if (window->older != NULL)
        window->older->newer = window->newer;
    else
        cache->oldest = window->newer;
    window->newer = window->older = NULL;
}

static void list_push(struct pymq_window_cache *cache, struct pymq_window *window) {
    window->newer = NULL;
    window->older = cache->newest;
    if (cache->newest != NULL)
        cache->newest->newer = window;
    else
        cache->oldest = window;
    cache->newest = window;
}

/* Unmap a window that is not in the list. Its slot is emptied here; the file reference goes last. */
static void window_destroy(struct pymq_window_cache *cache, struct pymq_window *window) {
    struct pymq_file *file = window->file;
    if (file->windows != NULL && file->windows[window->index] == window)
        file->windows[window->index] = NULL;
    pymq_io->munmap(window->data, window->size);
    cache->bytes -= (int64_t)window->size;
    cache->count--;
    free(window);
    pymq_file_release(file);
}

void pymq_window_cache_destroy(struct pymq_window_cache *cache) {
    pthread_mutex_lock(&cache->lock);
    while (cache->oldest != NULL) {
        struct pymq_window *window = cache->oldest;
        list_remove(cache, window);
        window_destroy(cache, window);
    }
    pthread_mutex_unlock(&cache->lock);
    pthread_mutex_destroy(&cache->lock);
}

static bool make_room(struct pymq_window_cache *cache, int64_t bytes) {
    while (cache->bytes + bytes > cache->bytes_max || cache->count + 1 > cache->count_max) {
        struct pymq_window *victim = cache->oldest;
        if (victim == NULL)
            return false;
        list_remove(cache, victim);
        window_destroy(cache, victim);
        cache->evictions++;
    }
    return true;
}

static int window_map(struct pymq_window_cache *cache, struct pymq_file *file, uint32_t index,
                      enum pymq_window_urgency urgency, struct pymq_window **result) {
    int64_t position = (int64_t)index * cache->window_size;
    int64_t size = pymq_min64(cache->window_size + cache->overlap, file->size - position);
    if (!make_room(cache, size) && urgency == PYMQ_WINDOW_BOUNDED)
        return PYMQ_EMAPS;
    if (file->windows == NULL) {
        file->window_count = (uint32_t)((file->size + cache->window_size - 1) / cache->window_size);
        file->windows = calloc(file->window_count, sizeof *file->windows);
        if (file->windows == NULL)
            return PYMQ_ENOMEM;
    }
    struct pymq_window *window = calloc(1, sizeof *window);
    if (window == NULL)
        return PYMQ_ENOMEM;
    int fd = pymq_file_lend(file);
    if (fd < 0) {
        free(window);
        return PYMQ_EIO;
    }
    void *data = pymq_io->mmap((size_t)size, cache->protection, fd, position);
    int saved = errno;
    pymq_file_lend_end(file, fd);
    if (data == MAP_FAILED) {
        free(window);
        errno = saved;
        return saved == ENOMEM ? PYMQ_EMAPS : PYMQ_EIO;
    }
    if (cache->advice >= 0)
        pymq_io->madvise(data, (size_t)size, cache->advice); /* advice: a refusal costs speed only */
    window->data = data;
    window->size = (size_t)size;
    window->position = position;
    window->file = file;
    window->cache = cache;
    window->index = index;
    pymq_file_retain(file);
    file->windows[index] = window;
    cache->bytes += size;
    cache->count++;
    *result = window;
    return PYMQ_OK;
}

int pymq_window_pin(struct pymq_window_cache *cache, struct pymq_file *file, int64_t position,
                    enum pymq_window_urgency urgency, struct pymq_window **result) {
    if (position < 0 || position >= file->size)
        return PYMQ_EINVAL;
    uint32_t index = (uint32_t)(position / cache->window_size);
    pthread_mutex_lock(&cache->lock);
    struct pymq_window *window = file->windows != NULL ? file->windows[index] : NULL;
    int status = PYMQ_OK;
    if (window == NULL)
        status = window_map(cache, file, index, urgency, &window);
    else if (window->pins == 0)
        list_remove(cache, window);
    if (status == PYMQ_OK) {
        window->pins++;
        *result = window;
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

void pymq_window_unpin(struct pymq_window *window) {
    struct pymq_window_cache *cache = window->cache;
    pthread_mutex_lock(&cache->lock);
    if (--window->pins == 0) {
        if (window->orphan)
            window_destroy(cache, window);
        else
            list_push(cache, window);
    }
    pthread_mutex_unlock(&cache->lock);
}

void pymq_window_forget(struct pymq_window_cache *cache, struct pymq_file *file) {
    pthread_mutex_lock(&cache->lock);
    for (uint32_t i = 0; file->windows != NULL && i < file->window_count; i++) {
        struct pymq_window *window = file->windows[i];
        if (window == NULL)
            continue;
        if (window->pins == 0) {
            list_remove(cache, window);
            window_destroy(cache, window); /* the caller holds a reference, so the file stays */
        } else {
            window->orphan = true;
        }
    }
    pthread_mutex_unlock(&cache->lock);
}

void pymq_window_close_file(struct pymq_window_cache *cache, struct pymq_file *file) {
    pthread_mutex_lock(&cache->lock);
    pymq_file_close(file);
    pthread_mutex_unlock(&cache->lock);
}
