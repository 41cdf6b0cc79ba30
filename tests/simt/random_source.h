/* The executor's random numbers: splitmix64. Good enough to permute lanes, and a seed is one
 * number. */
#ifndef SIMT_RANDOM_SOURCE_H
#define SIMT_RANDOM_SOURCE_H

#include <stdint.h>

namespace simt
{

struct random_source {
    uint64_t state;

    uint64_t next()
    {
        uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
    }
    unsigned below(unsigned count)
    {
        return static_cast<unsigned>((next() >> 32) * count >> 32);
    }
};

} // namespace simt

#endif
