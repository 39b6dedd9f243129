/* See thread.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_setname_np */
#endif
#include "thread.h"

#include <signal.h>

#define STACK_SIZE (256 * 1024) /* nothing here recurses; the default 8 MiB would only blur memory figures */

int pymq_thread_start(pthread_t *thread, const char *name, void *(*run)(void *), void *context) {
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    int code = pthread_create(thread, &attributes, run, context);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
    if (code == 0)
        pthread_setname_np(*thread, name);
    return code;
}
