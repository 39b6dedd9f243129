/* A disk that remembers what a power cut could leave behind.
 *
 * crash_disk_start replaces the table of system calls. Calls still reach the kernel on a real scratch directory, but
 * fsync and fdatasync only move bytes in the model from "may be on disk" to "is on disk":
 *
 *   contents   per file, at each barrier the content as it is when the barrier begins becomes durable. Since then every
 *              page may be on disk in any version it has had (writes through mappings are seen by reading the file:
 *              a shared mapping is the page cache), whole or sector by sector, in any order.
 *   sizes      as contents; truncation hides what it cut off from the moment its own size is on disk.
 *   names      created, removed and renamed names are durable after an fsync of their directory, and until then each
 *              may be there or not. A directory that is not there hides everything below it.
 *
 * An image is the whole model at one moment; crash_image_write makes one of its possible disks. All table calls are
 * serialized by one lock, so an image is a consistent cut; stores through mappings run on beside it, as they would
 * beside a power cut.
 *
 * Beside that the disk watches one rule: no byte is stored through a mapping into a page nobody allocated.
 */
#ifndef PYMQ_TESTING_CRASH_DISK_H
#define PYMQ_TESTING_CRASH_DISK_H

#include "pymq/base.h"
#include "random.h"

enum crash_moment { CRASH_BEFORE, CRASH_AFTER };

struct crash_event {
    const char *call; /* "fdatasync", "unlink" … */
    const char *path; /* relative to the root */
    enum crash_moment moment;
    bool barrier;    /* fsync or fdatasync */
    uint64_t number; /* events since the start, from 1 */
};

/* Called for every event that changes the model, with the disk's lock held: it may call crash_disk_image and read
 * atomics, nothing else of the disk or the store. */
typedef void (*crash_hook)(void *context, const struct crash_event *event);

/* Take over: everything now below `root` counts as durable. One disk at a time. */
void crash_disk_start(const char *root, crash_hook hook, void *context);

/* Give the table back to the kernel and forget the model. No store may be open. Images stay valid. */
void crash_disk_stop(void);

/* Note the present contents as one more version each page may be found in. Called by every barrier anyway. */
void crash_disk_sample(void);

/* Events so far. */
uint64_t crash_disk_event_count(void);

/* Pages changed although neither fallocate, zero_range nor pwrite had reached them: each is a SIGBUS on a full disk. */
uint64_t crash_disk_unallocated_writes(void);

struct crash_image;

/* The model as it is. From a hook pass `locked` true, from anywhere else false. */
struct crash_image *crash_disk_image(bool locked);
void crash_image_free(struct crash_image *image);

/* Which of the possible disks. The extremes are always among what a sweep tries. */
enum crash_style {
    CRASH_NOTHING,       /* only what is durable */
    CRASH_EVERYTHING,    /* all of it: what a process kill leaves */
    CRASH_NEWEST,        /* the newest dirty pages, none of the older ones */
    CRASH_OLDEST,        /* the oldest dirty pages, none of the newer ones */
    CRASH_DROP_FEW,      /* everything but one to three pages or names */
    CRASH_KEEP_FEW,      /* nothing but one to three pages or names */
    CRASH_DROP_SECTORS,  /* everything but a sector or two of some pages */
    CRASH_RANDOM_PAGES,  /* any page in any of its versions */
    CRASH_RANDOM_TORN,   /* as above, some pages sector by sector */
    CRASH_RANDOM_FILES,  /* whole files, old or new */
    CRASH_STYLES,
};

const char *crash_style_name(enum crash_style style);

/* Write one possible disk into `directory`, which must not exist. The same image, style and generator state give the
 * same disk. */
void crash_image_write(const struct crash_image *image, enum crash_style style, struct test_random *random,
                       const char *directory);

/* Dirty pages, open sizes and pending names: 0 means every style gives the same disk. */
size_t crash_image_choices(const struct crash_image *image);

#endif
