/* Mapped windows of files, a bounded number of them.
 *
 * A file is never mapped whole: it is cut into windows of `window_size` bytes, each mapped with `overlap` bytes of
 * its successor, so that anything no longer than the overlap that *starts* in a window is contiguous in it. Windows
 * nobody holds stay mapped, least recently used first out, until the cache's bound asks for room. Memory goes back
 * to the kernel (munmap) only at reference count zero, whatever happens to the file's name meanwhile.
 */
#ifndef PYMQ_STORE_WINDOW_H
#define PYMQ_STORE_WINDOW_H

#include <pthread.h>

#include "pymq/base.h"

struct pymq_file;
struct pymq_window_cache;

struct pymq_window {
    uint8_t *data;
    size_t size;            /* bytes mapped, overlap included */
    int64_t position;       /* of data[0] in its file */
    struct pymq_file *file; /* holds one reference to it */
    struct pymq_window_cache *cache;
    uint32_t index;
    int32_t pins;                      /* guarded by the cache's lock */
    bool orphan;                       /* its file was removed: unmap at the last unpin */
    struct pymq_window *newer, *older; /* in the LRU list while pins == 0 */
};

struct pymq_window_cache {
    pthread_mutex_t lock;
    int64_t window_size; /* a multiple of the page size */
    int64_t overlap;     /* a multiple of the page size */
    int64_t bytes_max;
    int64_t count_max;
    int protection;                  /* PROT_READ | PROT_WRITE for files being written */
    int advice;                      /* of madvise, -1 for none */
    int64_t bytes, count, evictions; /* guarded by lock; read relaxed by statistics */
    struct pymq_window *newest, *oldest;
};

void pymq_window_cache_init(struct pymq_window_cache *cache, int64_t window_size, int64_t overlap, int64_t bytes_max,
                            int64_t count_max);

/* No window may be pinned any more. */
void pymq_window_cache_destroy(struct pymq_window_cache *cache);

enum pymq_window_urgency {
    PYMQ_WINDOW_BOUNDED = 0,  /* refuse with PYMQ_EMAPS when the bound is reached and everything is pinned */
    PYMQ_WINDOW_REQUIRED = 1, /* the writer's own window: may exceed the bound */
};

/* Pin the window in which `position` lies; the caller keeps `file` alive during the call.
 * PYMQ_OK, PYMQ_EMAPS, PYMQ_ENOMEM, PYMQ_EIO. */
int pymq_window_pin(struct pymq_window_cache *cache, struct pymq_file *file, int64_t position,
                    enum pymq_window_urgency urgency, struct pymq_window **window);

void pymq_window_unpin(struct pymq_window *window);

/* The file's name is gone: unmap what nobody holds, let the rest go at its last unpin. */
void pymq_window_forget(struct pymq_window_cache *cache, struct pymq_file *file);

/* Close the file's descriptor; under the cache's lock, because mapping a window borrows it. */
void pymq_window_close_file(struct pymq_window_cache *cache, struct pymq_file *file);

/* Bytes of the window from `position` on. */
static inline int64_t pymq_window_room(const struct pymq_window *window, int64_t position) {
    return window->position + (int64_t)window->size - position;
}

static inline uint8_t *pymq_window_at(const struct pymq_window *window, int64_t position) {
    return window->data + (position - window->position);
}

#endif
