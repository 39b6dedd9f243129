/* See histogram.h. */
#include "histogram.h"

#include <string.h>

static unsigned bucket_of(uint64_t value) {
    if (value < HISTOGRAM_SUB_COUNT)
        return (unsigned)value;
    unsigned shift = 63U - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    /* The leading one is dropped: what remains after the shift lies in [SUB_COUNT, 2 * SUB_COUNT). */
    return (shift + 1) * HISTOGRAM_SUB_COUNT + (unsigned)((value >> shift) - HISTOGRAM_SUB_COUNT);
}

static uint64_t bucket_upper_edge(unsigned bucket) {
    if (bucket < 2 * HISTOGRAM_SUB_COUNT)
        return bucket;
    unsigned shift = bucket / HISTOGRAM_SUB_COUNT - 1;
    uint64_t first = (uint64_t)(bucket % HISTOGRAM_SUB_COUNT + HISTOGRAM_SUB_COUNT) << shift;
    return first + (1ULL << shift) - 1;
}

void histogram_clear(struct histogram *histogram) {
    memset(histogram, 0, sizeof *histogram);
    histogram->smallest = UINT64_MAX;
}

void histogram_add(struct histogram *histogram, int64_t value) {
    uint64_t counted = value < 0 ? 0 : (uint64_t)value;
    histogram->count++;
    histogram->sum += counted;
    if (counted < histogram->smallest)
        histogram->smallest = counted;
    if (counted > histogram->largest)
        histogram->largest = counted;
    histogram->buckets[bucket_of(counted)]++;
}

void histogram_merge(struct histogram *target, const struct histogram *source) {
    target->count += source->count;
    target->sum += source->sum;
    if (source->smallest < target->smallest)
        target->smallest = source->smallest;
    if (source->largest > target->largest)
        target->largest = source->largest;
    for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++)
        target->buckets[i] += source->buckets[i];
}

uint64_t histogram_quantile(const struct histogram *histogram, uint32_t per_million) {
    if (histogram->count == 0)
        return 0;
    /* Rank by rounding up: the 99th percentile of 100 values is the 99th, of 101 the 100th. */
    uint64_t rank = (histogram->count * per_million + 999999) / 1000000;
    uint64_t seen = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKET_COUNT; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank && seen > 0) {
            uint64_t edge = bucket_upper_edge(i);
            return edge < histogram->largest ? edge : histogram->largest;
        }
    }
    return histogram->largest;
}

double histogram_mean(const struct histogram *histogram) {
    return histogram->count == 0 ? 0.0 : (double)histogram->sum / (double)histogram->count;
}
