/*
 * Latencies in nanoseconds, counted in buckets that grow with the value: 128 per power of two, so
 * that a percentile read back is within 0.8 % of the exact one, in constant memory.
 */
#ifndef BENCH_HISTOGRAM_H
#define BENCH_HISTOGRAM_H
#include <stddef.h>
#include <stdint.h>

enum { HISTOGRAM_SHIFT = 7, HISTOGRAM_BUCKETS = 58 << 7 };

static size_t bucket_of(uint64_t ns) {
    if (ns < 1 << HISTOGRAM_SHIFT) return ns;
    int shift = 63 - __builtin_clzll(ns) - HISTOGRAM_SHIFT;
    return ((size_t)(shift + 1) << HISTOGRAM_SHIFT) + ((ns >> shift) & ((1 << HISTOGRAM_SHIFT) - 1));
}

static double percentile_us(const uint64_t *counts, double share) {
    uint64_t all = 0, seen = 0;
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) all += counts[i];
    uint64_t wanted = (uint64_t)(share * (double)all);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += counts[i];
        if (seen <= wanted) continue;
        if (i < 1 << HISTOGRAM_SHIFT) return (double)i / 1e3;
        size_t shift = (i >> HISTOGRAM_SHIFT) - 1;
        uint64_t low = ((1ull << HISTOGRAM_SHIFT) | (i & ((1 << HISTOGRAM_SHIFT) - 1))) << shift;
        return ((double)low + (double)(1ull << shift) / 2) / 1e3;
    }
    return 0;
}
#endif
