/* Element types in double arithmetic, written apart from the library's conversions so that they can
 * judge them. The oracle and the cases read and write K, V, Q and outputs through these. */
#ifndef TESTS_NUMBER_H
#define TESTS_NUMBER_H

#include <stdint.h>

#include <treeattn/treeattn.h>

/* One more than the largest ta_dtype that anything can have; tests that go over those types go from
 * TA_F32 up to here. From here on up to NUMBER_NARROW_END are those of 8 bits, for K and V alone.
 * All functions end the program for a type without a row in number.c. */
#define NUMBER_DTYPE_END 4
#define NUMBER_NARROW_END 8

const char *number_name(ta_dtype dtype);
size_t number_bytes(ta_dtype dtype);

/* Element `index` of an array, exactly. */
double number_decode(ta_dtype dtype, const void *data, int64_t index);

/* Store `value` rounded to nearest, ties to even; beyond the largest number infinity, or of 8 bits
 * the largest number. */
void number_encode(ta_dtype dtype, void *data, int64_t index, double value);

/* The bits that `value` is stored as. */
uint32_t number_bits(ta_dtype dtype, double value);

/* The largest error of rounding a number of this magnitude. */
double number_half_ulp(ta_dtype dtype, double magnitude);

/* A NaN with a bit pattern of its own. A test that finds these bits in a result knows that nobody
 * wrote there, and a sum that includes one is NaN. */
void number_poison(ta_dtype dtype, void *data, int64_t count);
int number_is_poison(ta_dtype dtype, const void *data, int64_t index);

#endif
