/* See store_pool.h. Buffers are anonymous mappings, so that an unlocked pool costs nothing until it is used. */
#include "store_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pymq/io.h"

int pymq_store_pool_init(struct pymq_store_pool *pool, int32_t size, int64_t buffer_size, struct pymq_error *error) {
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->lock, NULL);
    pool->buffer_size = pymq_round_up(buffer_size, PYMQ_PAGE_SIZE);
    pool->free_buffers = calloc((size_t)size, sizeof *pool->free_buffers);
    pool->all_buffers = calloc((size_t)size, sizeof *pool->all_buffers);
    if (pool->free_buffers == NULL || pool->all_buffers == NULL) {
        pymq_store_pool_destroy(pool);
        return pymq_fail(error, PYMQ_ENOMEM, errno, "transient store pool: out of memory");
    }
    for (int32_t i = 0; i < size; i++) {
        void *buffer =
            mmap(NULL, (size_t)pool->buffer_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (buffer == MAP_FAILED) {
            int saved = errno;
            pymq_store_pool_destroy(pool);
            return pymq_fail(error, PYMQ_ENOMEM, saved,
                             "transient store pool: buffer %d of %d (%" PRId64
                             " bytes) refused: %s; lower transientStorePoolSize or mappedFileSizeCommitLog",
                             i + 1, size, buffer_size, strerror(saved));
        }
        pool->all_buffers[pool->size++] = buffer;
        pool->free_buffers[pool->available++] = buffer;
        if (!pool->lock_refused && pymq_io->mlock(buffer, (size_t)pool->buffer_size) != 0)
            pool->lock_refused = true; /* no privilege or RLIMIT_MEMLOCK: said once, at open */
    }
    return PYMQ_OK;
}

void pymq_store_pool_destroy(struct pymq_store_pool *pool) {
    for (int32_t i = 0; i < pool->size; i++)
        munmap(pool->all_buffers[i], (size_t)pool->buffer_size); /* unlocks too */
    free(pool->free_buffers);
    free(pool->all_buffers);
    pthread_mutex_destroy(&pool->lock);
    memset(pool, 0, sizeof *pool);
}

uint8_t *pymq_store_pool_borrow(struct pymq_store_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    uint8_t *buffer = pool->available > 0 ? pool->free_buffers[--pool->available] : NULL;
    pthread_mutex_unlock(&pool->lock);
    return buffer;
}

void pymq_store_pool_give_back(struct pymq_store_pool *pool, uint8_t *buffer) {
    pthread_mutex_lock(&pool->lock);
    pool->free_buffers[pool->available++] = buffer;
    pthread_mutex_unlock(&pool->lock);
}

int32_t pymq_store_pool_available(struct pymq_store_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    int32_t available = pool->available;
    pthread_mutex_unlock(&pool->lock);
    return available;
}
