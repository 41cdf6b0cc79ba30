/* Numbers of the benchmark: the deterministic values that fill K, V and the query, and element
 * types in memory. The check must not share code with what it checks, so these conversions are
 * the benchmark's own. */
#ifndef BENCH_ELEMENTS_H
#define BENCH_ELEMENTS_H

#include <stddef.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

/* Names of all types as words of a flag, NULL behind the last, and the type of word `word`. */
extern const char *const element_words[];
/* The same with those that only K and V may have behind them. */
extern const char *const element_kv_words[];
ta_dtype element_dtype(int64_t word);

/* All functions end the program for a type that has no word. */
size_t element_bytes(ta_dtype dtype);
const char *element_name(ta_dtype dtype);

/* What storing a float as this type adds to its error: relative to it, at most half the distance of
 * 1 to the next number, and at least, half the distance of the smallest numbers if results can be
 * that small. */
double element_roundoff(ta_dtype dtype);
double element_floor(ta_dtype dtype);

/* Fill elements [first, first + count) of an array with values that depend on the seed and the
 * element's index alone: uniform in [-range, range], on a grid that the type holds exactly.
 * `range` is a power of two from 2^-13 to 16. `data` is the address of element `first`. */
void element_fill(ta_dtype dtype, void *data, int64_t first, int64_t count, uint64_t seed,
                  float range);

/* Prepare element_read(). Call once before threads use it. */
void element_init(void);

/* The first `count` elements of an array. */
void element_read(ta_dtype dtype, const void *data, int64_t count, double *values);

#endif
