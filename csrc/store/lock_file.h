/* Who has the store open: the record lock Apache's broker takes on byte 0 of `lock`, and a registry beside it,
 * because POSIX record locks do not exclude a second opener inside one process. */
#ifndef PYMQ_STORE_LOCK_FILE_H
#define PYMQ_STORE_LOCK_FILE_H

#include "pymq/base.h"

struct pymq_lock_file;

/* PYMQ_OK, PYMQ_ELOCKED naming the holder's process id where the kernel knows it, PYMQ_EIO. */
int pymq_lock_file_take(const char *path, struct pymq_lock_file **lock, struct pymq_error *error);
void pymq_lock_file_release(struct pymq_lock_file *lock);

#endif
