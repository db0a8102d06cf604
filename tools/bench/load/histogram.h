/* histogram.h - durations in nanoseconds.
 * Any quantile is known to one part in 32, in fixed memory, and adding one allocates nothing. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include "common.h"

#define BUCKETS 2048

struct histogram {
	uint64_t n, bucket[BUCKETS];
};

static inline void histogram_add(struct histogram *h, uint64_t v)
{
	int e = v < 32 ? 0 : 63 - __builtin_clzll(v);
	uint64_t i = v < 32 ? v : (uint64_t)(e - 4) * 32 + ((v >> (e - 5)) & 31);
	h->n++;
	h->bucket[i < BUCKETS ? i : BUCKETS - 1]++;
}

static inline void histogram_merge(struct histogram *h, const struct histogram *more)
{
	h->n += more->n;
	for (int i = 0; i < BUCKETS; i++)
		h->bucket[i] += more->bucket[i];
}

/* a quantile in microseconds: the middle of its bucket; 0 of nothing */
static inline double histogram_us(const struct histogram *h, double q)
{
	uint64_t want = (uint64_t)(q * (double)h->n), c = 0;
	for (int i = 0; i < BUCKETS && h->n; i++)
		if ((c += h->bucket[i]) > want) {
			int e = i / 32 + 4;
			if (i < 32)
				return i / 1e3;
			return ((double)((32ull + (uint64_t)i % 32) << (e - 5)) + (double)(1ull << (e - 5)) / 2) / 1e3;
		}
	return 0;
}

static inline void histogram_print(const struct histogram *h)
{
	printf("\"latency\":{\"n\":%llu,\"p50_us\":%.2f,\"p99_us\":%.2f}", (unsigned long long)h->n,
	       histogram_us(h, .5), histogram_us(h, .99));
}
#endif
