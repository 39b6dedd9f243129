/* See report.h. */
#include "report.h"

#include "bytes.h"

#include <stdbool.h>
#include <stdio.h>

static bool first_member;

static void begin_member(const char *name) {
    printf("%s\"%s\": ", first_member ? "" : ", ", name);
    first_member = false;
}

void report_begin(void) {
    fputs("{", stdout);
    first_member = true;
}

void report_text(const char *name, const char *value) {
    begin_member(name);
    putchar('"');
    for (const unsigned char *at = (const unsigned char *)value; *at != 0; at++) {
        if (*at == '"' || *at == '\\')
            printf("\\%c", *at);
        else if (*at < 0x20)
            printf("\\u%04x", *at);
        else
            putchar(*at);
    }
    putchar('"');
}

void report_integer(const char *name, int64_t value) {
    begin_member(name);
    printf("%lld", (long long)value);
}

void report_number(const char *name, double value) {
    begin_member(name);
    printf("%.6g", value);
}

void report_object_begin(const char *name) {
    begin_member(name);
    putchar('{');
    first_member = true;
}

void report_object_end(void) {
    putchar('}');
    first_member = false;
}

void report_end(void) {
    puts("}");
    fflush(stdout);
}

void report_histogram(const char *name, const struct histogram *histogram) {
    report_object_begin(name);
    report_integer("count", (int64_t)histogram->count);
    report_number("mean", histogram_mean(histogram) / NS_PER_US);
    report_number("p50", (double)histogram_quantile(histogram, 500000) / NS_PER_US);
    report_number("p90", (double)histogram_quantile(histogram, 900000) / NS_PER_US);
    report_number("p99", (double)histogram_quantile(histogram, 990000) / NS_PER_US);
    report_number("p999", (double)histogram_quantile(histogram, 999000) / NS_PER_US);
    report_number("max", (double)histogram->largest / NS_PER_US);
    report_object_end();
}

void report_options(const char *mode, const struct options *options) {
    report_text("mode", mode);
    report_text("topic", options->topic);
    report_text("codec", codec_name(options->codec));
    report_text("properties", properties_name(options->properties));
    report_integer("body_size", (int64_t)options->body_size);
    report_integer("connections", options->connections);
    report_integer("window", options->window);
    report_integer("queues", options->queues);
    report_integer("batch", options->batch);
    report_number("rate", options->rate);
    report_integer("sender", options->sender);
}

void window_begin(struct window *window, const struct options *options) {
    *window = (struct window){0};
    if (options->watch_pid != 0)
        window->broker_begin = cpu_time_of(options->watch_pid);
    window->own_begin = cpu_time_own();
    window->begin_ns = monotonic_ns();
}

void window_end(struct window *window, const struct options *options) {
    window->end_ns = monotonic_ns();
    window->own_end = cpu_time_own();
    if (options->watch_pid != 0)
        window->broker_end = cpu_time_of(options->watch_pid);
}

static void report_cpu(const char *name, struct cpu_time begin, struct cpu_time end, uint64_t messages) {
    struct cpu_time spent = cpu_time_between(begin, end);
    double total_s = spent.user_s + spent.system_s;
    report_object_begin(name);
    report_number("user_s", spent.user_s);
    report_number("system_s", spent.system_s);
    report_number("total_s", total_s);
    report_number("s_per_million", messages == 0 ? 0 : total_s * 1e6 / (double)messages);
    report_object_end();
}

void report_window(const struct window *window, const struct options *options, uint64_t messages) {
    double load_s = (double)(window->load_end_ns - window->begin_ns) / NS_PER_S;
    double total_s = (double)(window->end_ns - window->begin_ns) / NS_PER_S;
    report_number("load_s", load_s);
    report_number("settled_s", total_s);
    report_number("messages_per_s", total_s > 0 ? (double)messages / total_s : 0);
    report_number("acknowledged_per_s", load_s > 0 ? (double)messages / load_s : 0);
    if (options->watch_pid != 0)
        report_cpu("broker_cpu", window->broker_begin, window->broker_end, messages);
    report_cpu("generator_cpu", window->own_begin, window->own_end, messages);
}
