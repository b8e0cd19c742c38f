/* Histogram of microseconds: exact below 256, then 128 steps per doubling (quantiles are accurate to 0.8 %). */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

enum { STEPS = 128, BUCKETS = 40 * STEPS };
typedef struct { int64_t counts[BUCKETS], total, max; } Histogram;

static void histogram_add(Histogram *h, int64_t us) {
    if (us < 0) us = 0;
    int doublings = us < 2 * STEPS ? 0 : 63 - __builtin_clzll(us) - 7;
    int64_t bucket = doublings * STEPS + (us >> doublings);
    h->counts[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    h->total++;
    if (us > h->max) h->max = us;
}

static double histogram_ms(const Histogram *h, double quantile) {
    int64_t seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += h->counts[i];
        if (!seen || seen < h->total * quantile) continue;
        int doublings = i < 2 * STEPS ? 0 : i / STEPS - 1;
        double middle = ((int64_t)(i - doublings * STEPS) << doublings) + ((1LL << doublings) - 1) / 2.0;
        return (middle < h->max ? middle : h->max) / 1000.0;
    }
    return 0;
}

#endif
