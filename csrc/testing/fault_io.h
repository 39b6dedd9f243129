/* A table of system calls that fails on demand: the n-th call of a kind, with an errno, for a while or for good.
 *
 * It wraps another table (the kernel's, or pymq_io_unsynced). Every call is counted by kind, failed ones too, so a
 * test can first count what a workload does and then fail each of those calls in turn. Rules may be added and removed
 * while a store is open. fsync and fdatasync can be slowed down, which is how group commit is measured on a fast disk.
 */
#ifndef PYMQ_TESTING_FAULT_IO_H
#define PYMQ_TESTING_FAULT_IO_H

#include "pymq/base.h"
#include "pymq/io.h"

#define FAULT_RULES_MAX 16
#define FAULT_FOREVER UINT64_MAX

enum fault_call {
    FAULT_OPEN,
    FAULT_FTRUNCATE,
    FAULT_FALLOCATE,
    FAULT_ZERO_RANGE,
    FAULT_PUNCH_HOLE,
    FAULT_PREAD,
    FAULT_PWRITE,
    FAULT_SYNC, /* fsync and fdatasync of files */
    FAULT_SYNC_DIRECTORY,
    FAULT_UNLINK,
    FAULT_RENAME,
    FAULT_MKDIR,
    FAULT_RMDIR,
    FAULT_MMAP,
    FAULT_MADVISE,
    FAULT_MLOCK,
    FAULT_CALLS,
};

struct fault_rule {
    enum fault_call call;
    uint64_t first;        /* the first matching call that fails, counted from 1 since the rule was added */
    uint64_t count;        /* how many fail from there on; FAULT_FOREVER */
    int sys_errno;         /* with 0, pread and pwrite are cut short to one byte less (at least 1) instead of failing */
    const char *path_part; /* only calls on paths that contain this text; NULL for all. Must outlive the rule */
};

/* Take over, passing to `base` (NULL: the kernel). Counters and rules start empty. No store may be open. */
void fault_io_start(const struct pymq_io *base);

/* Give the table back to the kernel. No store may be open. */
void fault_io_stop(void);

/* Returns a number for fault_io_hits; at most FAULT_RULES_MAX rules until the next fault_io_clear. */
int fault_io_add(const struct fault_rule *rule);

/* Remove all rules; counters stay. */
void fault_io_clear(void);

/* How often the rule made a call fail (or short). */
uint64_t fault_io_hits(int rule);

/* How many calls the rule has looked at; one whose `first` is FAULT_FOREVER only counts. */
uint64_t fault_io_matched(int rule);

/* Calls of this kind so far. */
uint64_t fault_io_count(enum fault_call call);

/* Descriptors opened through the table and not closed, mappings made and not unmapped: 0 when nothing leaks. */
int64_t fault_io_open_descriptors(void);
int64_t fault_io_open_mappings(void);

/* Every fsync and fdatasync of a file takes at least this long from now on; 0 ends it. */
void fault_io_delay_sync(uint32_t delay_us);

/* The last path a rule hit, "" before the first. */
void fault_io_last_path(char *path, size_t capacity);

const char *fault_call_name(enum fault_call call);

#endif
