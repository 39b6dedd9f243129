/* The transient store pool: fixed buffers, locked in memory, that take appends before the page cache does.
 *
 * A log file borrows a buffer when it is created and returns it when everything in it has been committed (written
 * to the file). The pool never grows: when it is empty, puts that need a new file are refused.
 */
#ifndef PYMQ_STORE_STORE_POOL_H
#define PYMQ_STORE_STORE_POOL_H

#include <pthread.h>

#include "pymq/base.h"

struct pymq_store_pool {
    pthread_mutex_t lock;
    int64_t buffer_size;
    int32_t size;      /* buffers made */
    int32_t available; /* guarded by lock */
    uint8_t **free_buffers;
    uint8_t **all_buffers;
    bool lock_refused; /* mlock said no: the buffers are pageable, and the store runs on */
};

int pymq_store_pool_init(struct pymq_store_pool *pool, int32_t size, int64_t buffer_size, struct pymq_error *error);
void pymq_store_pool_destroy(struct pymq_store_pool *pool);

/* A buffer, or NULL when none is free. Its bytes are whatever its last borrower left: zeroed by the borrower. */
uint8_t *pymq_store_pool_borrow(struct pymq_store_pool *pool);
void pymq_store_pool_give_back(struct pymq_store_pool *pool, uint8_t *buffer);
int32_t pymq_store_pool_available(struct pymq_store_pool *pool);

#endif
