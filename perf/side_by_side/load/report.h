/* The result of a run as one JSON object on stdout. */
#ifndef PYMQ_LOAD_REPORT_H
#define PYMQ_LOAD_REPORT_H

#include "histogram.h"
#include "options.h"
#include "process_cpu.h"

#include <stdint.h>

/* Members are written in the order of the calls; report_begin and report_end frame them. */
void report_begin(void);
void report_text(const char *name, const char *value);
void report_integer(const char *name, int64_t value);
void report_number(const char *name, double value);
/* {"count":…,"mean":…,"p50":…,"p90":…,"p99":…,"p999":…,"max":…} in microseconds. */
void report_histogram(const char *name, const struct histogram *histogram);
void report_object_begin(const char *name);
void report_object_end(void);
void report_end(void);

/* What every run of a mode against a broker says about itself. */
void report_options(const char *mode, const struct options *options);

/* The window of a run: wall clock and CPU, read at its two ends. */
struct window {
    int64_t begin_ns;
    int64_t load_end_ns; /* the last answer */
    int64_t end_ns;      /* and the queues show it */
    struct cpu_time broker_begin, broker_end;
    struct cpu_time own_begin, own_end;
};

void window_begin(struct window *window, const struct options *options);
void window_end(struct window *window, const struct options *options);

/* Seconds, messages a second, and CPU a million messages, of the broker (if watched) and of the generator. */
void report_window(const struct window *window, const struct options *options, uint64_t messages);

#endif
