/* The model behind crash_disk.h: inodes with page versions, durable names, pending changes of names.
 * Shared by crash_disk.c (keeps it up to date), crash_model.c (its operations) and crash_image.c (makes disks of it).
 * Nothing here locks; the disk's lock guards the live model, an image has one owner.
 */
#ifndef PYMQ_TESTING_CRASH_MODEL_H
#define PYMQ_TESTING_CRASH_MODEL_H

#include "pymq/base.h"

#include <stdatomic.h>

#define CRASH_PAGE_SIZE 4096
#define CRASH_SECTOR_SIZE 512
#define CRASH_VERSIONS_MAX 6 /* of a page or a size between two barriers; beyond that the middle ones are forgotten */
#define CRASH_NAME_MAX 512   /* of a path below the root */

struct crash_blob {
    atomic_int references;
    uint8_t bytes[CRASH_PAGE_SIZE];
};

struct crash_version {
    uint64_t time;
    struct crash_blob *blob; /* NULL: zeros */
};

struct crash_page {
    uint32_t count; /* versions[0] is durable, versions[count - 1] the latest seen */
    struct crash_version versions[CRASH_VERSIONS_MAX];
    bool allocated;
};

struct crash_size {
    uint64_t time;
    int64_t size;
};

struct crash_inode {
    uint64_t id;
    bool is_directory;
    bool gone;   /* no name, durable, pending or live, leads here any more: contents forgotten */
    int read_fd; /* the disk's own descriptor; -1 for directories and in images */
    uint32_t open_count;
    struct crash_page *pages;
    size_t page_count;
    struct crash_size sizes[CRASH_VERSIONS_MAX]; /* as versions: [0] durable */
    uint32_t size_count;
    struct crash_size shrinks[CRASH_VERSIONS_MAX]; /* truncations since the barrier */
    uint32_t shrink_count;
};

struct crash_name {
    char path[CRASH_NAME_MAX];
    uint64_t inode;
};

enum crash_change_kind { CRASH_LINK, CRASH_UNLINK, CRASH_RENAME };

struct crash_change {
    enum crash_change_kind kind;
    uint64_t time;
    uint64_t inode;
    char path[CRASH_NAME_MAX];
    char target[CRASH_NAME_MAX]; /* of a rename */
};

struct crash_names {
    struct crash_name *list;
    size_t count, capacity;
};

struct crash_model {
    struct crash_inode **inodes; /* by id */
    size_t inode_count, inode_capacity;
    struct crash_names live, durable;
    struct crash_change *changes; /* pending, in order */
    size_t change_count, change_capacity;
};

struct crash_image {
    struct crash_model model; /* `live` is empty: an image knows only what may be on disk */
};

struct crash_inode *crash_model_add_inode(struct crash_model *model, bool is_directory);

/* The inode of `path`, or NULL. */
struct crash_inode *crash_names_find(const struct crash_model *model, const struct crash_names *names,
                                     const char *path);
void crash_names_set(struct crash_names *names, const char *path, uint64_t inode);
void crash_names_remove(struct crash_names *names, const char *path);

/* Apply one change to a set of names: links and unlinks of what is not there are fine, a crash may have dropped it. */
void crash_names_apply(struct crash_names *names, const struct crash_change *change);

void crash_model_change(struct crash_model *model, enum crash_change_kind kind, uint64_t time, uint64_t inode,
                        const char *path, const char *target);

/* An fsync of `directory` ("" is the root): its pending changes are durable. */
void crash_model_sync_directory(struct crash_model *model, const char *directory);

/* Read the file as it is now; changed pages and sizes become versions of `time`. Returns how many pages changed that
 * nobody had allocated. */
size_t crash_inode_sample(struct crash_inode *inode, uint64_t time);

/* Truncated to `size` at `time`: what lies behind is gone once that size is. Call after the kernel did it. */
void crash_inode_shrunk(struct crash_inode *inode, uint64_t time, int64_t size);

void crash_inode_allocated(struct crash_inode *inode, int64_t offset, int64_t size);

/* A hole was punched: the pages it covers, to the end of the file at most, are nobody's again. */
void crash_inode_punched(struct crash_inode *inode, int64_t offset, int64_t size);

/* A barrier: the latest version of everything is durable. Call after a sample. */
void crash_inode_synced(struct crash_inode *inode);

/* Forget contents (keeps the slot, so that ids stay indexes). */
void crash_inode_forget(struct crash_inode *inode);

/* Whether a page version seen at `version_time` can be on disk together with the size seen at `size_time`. */
bool crash_inode_agrees(const struct crash_inode *inode, size_t page_index, uint64_t version_time, uint64_t size_time);

void crash_model_copy(struct crash_model *target, const struct crash_model *source);
void crash_model_free(struct crash_model *model);

#endif
