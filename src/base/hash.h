/* The hash of the library. C and HIP code include this file.
 *
 * The hash of an array is the sum of ta_hash_at(index, value) over its elements, mod 2^64. A sum
 * can be added up in any order and in parts, so the blocks of a kernel need not agree on one, and
 * host and GPU get the same number. Each term is a one-to-one function of index and value: arrays
 * that differ in one element never have the same hash, others do with a chance of 2^-64. */
#ifndef TA_HASH_H
#define TA_HASH_H

#include <stdint.h>
#include <string.h>

#include "inline.h"

/* The part of element `index` in the hash of its array. The mixing is that of splitmix64. */
TA_INLINE uint64_t ta_hash_at(uint32_t index, uint32_t value)
{
    uint64_t x = ((uint64_t)index << 32 | value) + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The hash of `count` numbers of 32 bits. */
TA_INLINE uint64_t ta_hash_words(const void *words, uint32_t count)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t word;
        memcpy(&word, (const char *)words + sizeof word * i, sizeof word);
        hash += ta_hash_at(i, word);
    }
    return hash;
}

/* The hash of `count` bytes. */
TA_INLINE uint64_t ta_hash_bytes(const void *bytes, uint32_t count)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < count; ++i)
        hash += ta_hash_at(i, ((const unsigned char *)bytes)[i]);
    return hash;
}

#endif
