/* Start a thread of the store: every signal blocked, so that Python's handlers never run on it. */
#ifndef PYMQ_STORE_THREAD_H
#define PYMQ_STORE_THREAD_H

#include <pthread.h>

/* 0, or the errno value of pthread_create. `name` shows in ps -T (15 characters). */
int pymq_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context);

#endif
