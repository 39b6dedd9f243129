/* What the program can do. Each prints its result and returns, or fails. */
#ifndef PYMQ_LOAD_MODES_H
#define PYMQ_LOAD_MODES_H

#include "options.h"

#include <signal.h>

/* Set by SIGTERM and SIGINT: end the load now, wait for what is under way, report. */
extern volatile sig_atomic_t stop_requested;

void run_send(const struct options *options);
void run_pull(const struct options *options);
void run_deliver(const struct options *options);
void run_follow(const struct options *options);
void run_await(const struct options *options);
void run_sync_probe(const struct options *options);

#endif
