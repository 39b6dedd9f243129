/* See shared_program.h. */
#include "shared_program.h"

#include <stdlib.h>

int pymq_shared_program_make(const uint8_t *bytes, size_t size, struct pymq_shared_program **result) {
    if (size > PYMQ_FILTER_SIZE_MAX)
        return PYMQ_ETOOBIG;
    struct pymq_shared_program *shared = malloc(sizeof *shared + size);
    if (shared == NULL)
        return PYMQ_ENOMEM;
    atomic_init(&shared->users, 1);
    if (size > 0)
        memcpy(shared->bytes, bytes, size);
    int status = pymq_filter_verify(shared->bytes, size, &shared->program);
    if (status != PYMQ_OK) {
        free(shared);
        return status;
    }
    *result = shared;
    return PYMQ_OK;
}

struct pymq_shared_program *pymq_shared_program_use(struct pymq_shared_program *shared) {
    if (shared != NULL)
        atomic_fetch_add_explicit(&shared->users, 1, memory_order_relaxed);
    return shared;
}

void pymq_shared_program_leave(struct pymq_shared_program *shared) {
    if (shared != NULL && atomic_fetch_sub_explicit(&shared->users, 1, memory_order_acq_rel) == 1)
        free(shared);
}
