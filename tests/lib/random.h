/* Random numbers for the tests: small, seeded, the same on every machine. Every random choice of a
 * test comes from one `random_source`, so a seed names a case completely. */
#ifndef TESTS_RANDOM_H
#define TESTS_RANDOM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct random_source {
    uint64_t state;
} random_source;

static inline random_source random_from(uint64_t seed)
{
    random_source source = {seed * 0x9e3779b97f4a7c15u + 0x1234567u};
    return source;
}

/* A counter passed through a mixing function: each bit of the result depends on each bit of it. */
static inline uint64_t random_bits(random_source *source)
{
    uint64_t x = source->state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* An integer from `low` to `high`, both included. */
static inline int random_int(random_source *source, int low, int high)
{
    uint64_t span = (uint64_t)((int64_t)high - low) + 1;
    return (int)(low + (int64_t)(random_bits(source) % span));
}

static inline bool random_one_in(random_source *source, int n)
{
    return random_int(source, 1, n) == 1;
}

/* In [0, 1). */
static inline double random_unit(random_source *source)
{
    return (double)(random_bits(source) >> 11) * 0x1p-53;
}

/* Mean 0, deviation 1. The sum of four uniform numbers is close enough to the bell curve and within
 * 3.5, so that no case depends on a freak. */
static inline double random_normal(random_source *source)
{
    uint64_t bits = random_bits(source);
    double sum = -2;
    for (int part = 0; part < 4; ++part, bits >>= 16)
        sum += (double)(bits & 0xffffu) * 0x1p-16 + 0x1p-17;
    return sum * 1.7320508075688772;
}

#define RANDOM_PICK(source, array)                                                                 \
    ((array)[random_int((source), 0, (int)(sizeof(array) / sizeof *(array)) - 1)])

#endif
