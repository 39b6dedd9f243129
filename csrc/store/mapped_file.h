/* One file of a fixed size: its name, its blocks, its descriptor, and who still needs it.
 *
 * Reference counts: one for the queue that lists it, one for each mapped window, one for each holder of a pointer.
 * The descriptor of a log file is opened when the file is created and kept until its last byte is flushed: errors
 * of writeback are reported per descriptor, so a reopened one could report success for lost pages.
 */
#ifndef PYMQ_STORE_MAPPED_FILE_H
#define PYMQ_STORE_MAPPED_FILE_H

#include <stdatomic.h>

#include "window.h"

struct pymq_file {
    int64_t base; /* offset of its first byte in its queue; also its name */
    int64_t size;
    int fd;            /* -1 when closed */
    int64_t allocated; /* bytes known to have blocks; the writer's */
    _Atomic int32_t references;
    const char *directory;        /* the owning queue's; outlives the file */
    struct pymq_window **windows; /* slots by window index, guarded by the cache's lock; NULL until first mapped */
    uint32_t window_count;
};

#define PYMQ_FILE_NAME_SIZE 20 /* digits of a name */

/* "<directory>/<base as 20 digits>"; PYMQ_OK or PYMQ_EINVAL when it does not fit. */
int pymq_file_path(const char *directory, int64_t base, char *path, size_t path_size);

/* An object for an existing file, without opening it. NULL when out of memory. */
struct pymq_file *pymq_file_new(const char *directory, int64_t base, int64_t size);

/* Create the file: full size at once, blocks for the first `allocate` bytes. The directory is made if absent; file
 * and directory are synced when `sync_directory`. On failure nothing is left on disk. PYMQ_OK, PYMQ_ENOSPC,
 * PYMQ_EIO, PYMQ_ENOMEM, PYMQ_EFAILED when it was a sync that failed. */
int pymq_file_create(const char *directory, int64_t base, int64_t size, int64_t allocate, bool sync_directory,
                     struct pymq_file **file);

/* Open the descriptor if it is not. PYMQ_OK or PYMQ_EIO. */
int pymq_file_open(struct pymq_file *file);
void pymq_file_close(struct pymq_file *file);

/* A descriptor for a moment: the file's own, or a fresh one that pymq_file_lend_end closes. -1 on failure.
 * For the file's writer, or under the lock of its window cache; other readers open their own. */
int pymq_file_lend(struct pymq_file *file);
void pymq_file_lend_end(struct pymq_file *file, int fd);

/* Make sure bytes [0, end) have blocks, going `step` bytes ahead. The writer's. */
int pymq_file_allocate(struct pymq_file *file, int64_t end, int64_t step);

/* Whether somebody else has removed the file's name: an Apache broker that is refused the lock has by then already
 * recovered the directory, and takes the file made ahead for a leftover. */
bool pymq_file_is_unlinked(const struct pymq_file *file);

static inline void pymq_file_retain(struct pymq_file *file) {
    atomic_fetch_add_explicit(&file->references, 1, memory_order_relaxed);
}

void pymq_file_release(struct pymq_file *file);

#endif
