/* Memory for frames. What is large comes straight from the kernel and goes straight back.
 *
 * malloc learns from a freed large block that such blocks are common, keeps the next ones in its arena, and then a
 * burst of 16 MiB frames leaves a process tens of MiB larger for good. A peer must not be able to do that. The price
 * is a page fault per page of a large frame, a fraction of what reading it costs.
 */
#include "remoting_internal.h"

#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_SIZE (1 << 20)

void *pymq_buffer_make(size_t size) {
    if (size < LARGE_SIZE)
        return malloc(size);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

void pymq_buffer_free(void *memory, size_t size) {
    if (memory == NULL || size < LARGE_SIZE)
        free(memory);
    else
        munmap(memory, size);
}

/* `memory` of `size` bytes with its contents in `grown` bytes; NULL leaves it as it was. */
void *pymq_buffer_grow(void *memory, size_t size, size_t grown) {
    if (grown < LARGE_SIZE)
        return realloc(memory, grown);
    if (size >= LARGE_SIZE) {
        void *moved = mremap(memory, size, grown, MREMAP_MAYMOVE);
        return moved != MAP_FAILED ? moved : NULL;
    }
    void *larger = pymq_buffer_make(grown);
    if (larger == NULL)
        return NULL;
    if (memory != NULL)
        memcpy(larger, memory, size);
    free(memory);
    return larger;
}
