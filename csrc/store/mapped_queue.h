/* A directory of equal-sized files named by their first byte's offset: the commit log, and each consume queue.
 *
 * The list changes at its ends only: files are added behind, removed in front (retention) or behind (truncation).
 * Lock order: mapped queue -> window cache.
 */
#ifndef PYMQ_STORE_MAPPED_QUEUE_H
#define PYMQ_STORE_MAPPED_QUEUE_H

#include <pthread.h>

#include "mapped_file.h"

struct pymq_mapped_queue {
    pthread_mutex_t lock;
    char *directory;
    int64_t file_size;
    bool sparse; /* derived files: blocks come in steps with the units, and go when units do */
    struct pymq_window_cache *cache;
    struct pymq_file **files; /* by base, ascending; guarded by lock */
    uint32_t count, capacity;
    uint32_t first; /* index of the oldest in `files`: removal in front is O(1) */
};

int pymq_mapped_queue_init(struct pymq_mapped_queue *queue, const char *directory, int64_t file_size,
                           struct pymq_window_cache *cache);
void pymq_mapped_queue_destroy(struct pymq_mapped_queue *queue);

/* What a gap between two files means. */
enum pymq_gap {
    PYMQ_GAP_REFUSED, /* a file is missing: an error */
    PYMQ_GAP_DROPS,   /* after a crash, in derived files: names that were never synced came back in part; what follows
                         the gap is younger than any checkpoint and is removed, to be built again */
};

/* List the directory. Names that are not 20 digits are ignored. Empty files and a short last file behind whole ones
 * are what a crash leaves: an empty last one is removed, the others are brought to their size. Anything else that
 * does not fit `file_size` (size, name not a multiple, a gap) is PYMQ_EMISMATCH naming the file, the size found and
 * the setting. */
int pymq_mapped_queue_load(struct pymq_mapped_queue *queue, const char *setting, enum pymq_gap gap,
                           struct pymq_error *error);

/* Add `file` behind the others; takes over its reference. */
int pymq_mapped_queue_add(struct pymq_mapped_queue *queue, struct pymq_file *file);

/* A retained file, or NULL: the one that holds `offset`, the last. */
struct pymq_file *pymq_mapped_queue_find(struct pymq_mapped_queue *queue, int64_t offset);
struct pymq_file *pymq_mapped_queue_last(struct pymq_mapped_queue *queue);
uint32_t pymq_mapped_queue_count(struct pymq_mapped_queue *queue);

/* Pin the window that holds `offset`. PYMQ_ENOTFOUND when no file does. */
int pymq_mapped_queue_pin(struct pymq_mapped_queue *queue, int64_t offset, enum pymq_window_urgency urgency,
                          struct pymq_window **window);

/* Start of the first file, or -1; end of the last file, or 0. */
int64_t pymq_mapped_queue_begin(struct pymq_mapped_queue *queue);
int64_t pymq_mapped_queue_end(struct pymq_mapped_queue *queue);

/* Unlink the first (or last) file, sync the directory and drop it from the list; its memory goes when its last holder
 * lets go. One sync per file, because a crash that kept any two of three removals would leave a gap. PYMQ_ENOTFOUND
 * when there is none, PYMQ_EIO when it cannot be unlinked. */
int pymq_mapped_queue_remove_first(struct pymq_mapped_queue *queue);
int pymq_mapped_queue_remove_last(struct pymq_mapped_queue *queue);

/* Unlink every file, newest first, and forget them all, without any sync: for files whose removal is vouched for
 * elsewhere. Windows that readers hold go with their last holder. PYMQ_EIO when one cannot be unlinked. */
int pymq_mapped_queue_remove_all(struct pymq_mapped_queue *queue);

/* Everything from `offset` on reads as zeros afterwards and later files are gone; synced, directory included (a sparse
 * queue's last file is not: see clear_from). The first file always stays, because its name is the only record of where
 * the queue has got to. Nobody else may use the queue meanwhile (recovery). */
int pymq_mapped_queue_truncate(struct pymq_mapped_queue *queue, int64_t offset);

/* Copy bytes [offset, offset + size) by pread, across files; returns bytes copied, fewer at the end, or PYMQ_EIO. */
ssize_t pymq_mapped_queue_read(struct pymq_mapped_queue *queue, int64_t offset, void *target, size_t size);

#endif
