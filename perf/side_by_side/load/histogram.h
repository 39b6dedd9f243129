/* A histogram of durations in nanoseconds with logarithmic buckets, after the idea of HdrHistogram.
 *
 * Values below 128 have a bucket each; above, every power of two is cut into 128 equal buckets, so a bucket is never
 * wider than 1/128 of its values (0.8 %). Count, sum, smallest and largest value are exact. Adding costs a few
 * instructions and no memory, so every message is counted and none is sampled. */
#ifndef PYMQ_LOAD_HISTOGRAM_H
#define PYMQ_LOAD_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 7
#define HISTOGRAM_SUB_COUNT (1 << HISTOGRAM_SUB_BITS)
#define HISTOGRAM_BUCKET_COUNT ((64 - HISTOGRAM_SUB_BITS + 1) * HISTOGRAM_SUB_COUNT)

struct histogram {
    uint64_t count;
    uint64_t sum;
    uint64_t smallest;
    uint64_t largest;
    uint64_t buckets[HISTOGRAM_BUCKET_COUNT];
};

void histogram_clear(struct histogram *histogram);

/* Negative durations (a clock read twice out of order) count as zero. */
void histogram_add(struct histogram *histogram, int64_t value);

/* Add all of `source` to `target`. */
void histogram_merge(struct histogram *target, const struct histogram *source);

/* The value that at least `per_million` millionths of all values do not exceed: the upper edge of the bucket of that
 * rank, never above the largest value seen. 0 when empty. */
uint64_t histogram_quantile(const struct histogram *histogram, uint32_t per_million);

/* 0 when empty. */
double histogram_mean(const struct histogram *histogram);

#endif
