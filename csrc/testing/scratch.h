/* What test programs need of the machine around them: scratch directories, settings from the environment, a table
 * of system calls that does not wait for the disk, and a way to end a failed test that says where. */
#ifndef PYMQ_TESTING_SCRATCH_H
#define PYMQ_TESTING_SCRATCH_H

#include "pymq/base.h"
#include "pymq/io.h"

#include <stdio.h>
#include <stdlib.h>

/* The kernel's table with fsync and fdatasync that return at once: for stores whose durability is not the question. */
extern const struct pymq_io pymq_io_unsynced;

/* Make a fresh directory below $TMPDIR (/tmp without one); the path is written to `path`. Exits when it cannot. */
void scratch_make(char *path, size_t capacity, const char *name);

/* The same in memory where the machine has /dev/shm: for thousands of small trees that nobody needs to keep. */
void scratch_make_in_memory(char *path, size_t capacity, const char *name);

/* Remove a tree. A missing one is fine; anything else that stays is fatal. */
void scratch_remove(const char *path);

/* Copy a tree of directories and regular files; `target` must not exist. */
void scratch_copy(const char *source, const char *target);

/* Join directory and name into `path`, which must hold them. */
void scratch_join(char *path, size_t capacity, const char *directory, const char *name);

/* An integer from the environment, `otherwise` when unset or empty. Exits on text that is no number. */
int64_t environment_integer(const char *name, int64_t otherwise);

/* PYMQ_SEED, or one from the clock; printed either way, so that a failure can be repeated. */
uint64_t environment_seed(const char *program);

int64_t monotonic_us(void);

/* Report and end the program with status 1. */
__attribute__((format(printf, 3, 4), noreturn)) void check_failed(const char *file, int line, const char *format, ...);

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            check_failed(__FILE__, __LINE__, __VA_ARGS__);                                                             \
    } while (0)

#endif
