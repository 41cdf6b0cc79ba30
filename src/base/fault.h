/* The fault record: what one rank tells the others of itself in a step. 32 bytes stand behind the
 * records of every message, so that no rank waits for one that was given bad arguments, all of them
 * hear of it, and ranks that are not in the same step find out. C and HIP code include this file,
 * and nothing else in the library says how records merge.
 *
 * A record with status TA_OK says which step a rank is in: `what`, `hash` and `tag` must be the
 * same on all ranks. One with another status is a fault, of one of two sorts:
 *
 *     a rank's own      `rank` has `status`, its ta_last_error() says why; `other` is -1; the rest
 *                       has the first words of that, if the host wrote the record, or is 0
 *     a difference      status is TA_ERR_MISMATCH, ranks `rank` < `other` are not in the same step,
 *                       and `what` says in what they differ: bits of ta_difference
 *
 * TA_FAULT_ASKS is neither: the rank brings nothing to this exchange, it asks whether all ranks are
 * about to send messages of other sizes (decode/sizes.h). If all ask the same, that comes out;
 * if not, a difference.
 *
 * ta_fault_share() puts into a record what all ranks must share, one part after the other: the hash
 * has all of each, `what` a few bits, so that a difference can be named.
 *
 * Where a wait for another rank ended in vain (device/peers.h), the one that waited makes a record
 * for it: status TA_ERR_TIMEOUT, and `rank` and `other` are the rank that did not come; or status
 * TA_ERR_ABORTED, and they are the rank that aborted the group. Such a rank is lost.
 *
 * A rank's own fault counts more than a difference, which may only be the consequence. So the fault
 * of the lowest rank that has one comes out, however records are merged. Of several differences it
 * depends on the order which two ranks are named; not, whether any are. */
#ifndef TA_FAULT_H
#define TA_FAULT_H

#include <stdint.h>

#include <treeattn/treeattn.h>

#include "inline.h"

typedef struct ta_fault {
    int32_t status; /* TA_OK: none; or TA_FAULT_ASKS */
    int32_t rank;   /* whose record it is; the lowest of those that were merged */
    int32_t other;  /* -1, or the other one of two ranks that differ */
    int32_t what;   /* some bits of each part of the hash; of a difference, see above */
    uint64_t hash;  /* of what all ranks are given */
    uint64_t tag;   /* the caller's */
} ta_fault;

/* A status beside those of the public header, which are not above 0. */
#define TA_FAULT_ASKS 1

/* Bytes of a record, and the floats whose place it takes behind others. */
#define TA_FAULT_BYTES 32
#define TA_FAULT_FLOATS 8

#ifdef __cplusplus
static_assert(sizeof(ta_fault) == TA_FAULT_BYTES, "a fault record is 32 bytes on every wire");
#else
_Static_assert(sizeof(ta_fault) == TA_FAULT_BYTES, "a fault record is 32 bytes on every wire");
#endif

/* The parts of a step that all ranks must share, in the order of their importance, and how many
 * bits of `what` each of them has: X(NAME, bits, as errors speak of it). */
#define TA_COMMON_LIST(X)                                                                          \
    X(PLAN, 4, "the plan")                                                                         \
    X(BATCH, 4, "call.batch")                                                                      \
    X(TOKENS, 4, "call.tokens")                                                                    \
    X(OPTIONS, 3, "call.window, softcap, the numbers of lists or input.dtype")                     \
    X(STARTS, 3, "call.starts")                                                                    \
    X(LENGTHS, 5, "kv.lengths")                                                                    \
    X(BOUNDS, 3, "kv.bounds")                                                                      \
    X(LISTS, 3, "call.selected or the prefixes")                                                   \
    X(QUERY, 3, "the query, the sinks or the slopes")

typedef enum ta_common {
#define TA_COMMON_NUMBER(name, bits, text) TA_COMMON_##name,
    TA_COMMON_LIST(TA_COMMON_NUMBER)
#undef TA_COMMON_NUMBER
        TA_COMMON_PARTS
} ta_common;

/* In what two steps differ. Beside a bit for each part: the hash does, and maybe no part's few bits
 * show in which; and the tag does. */
typedef enum ta_difference {
#define TA_COMMON_BIT(name, bits, text) TA_DIFFERS_##name = 1 << TA_COMMON_##name,
    TA_COMMON_LIST(TA_COMMON_BIT)
#undef TA_COMMON_BIT
        TA_DIFFERS_HASH = 1 << TA_COMMON_PARTS,
    TA_DIFFERS_TAG = 2 << TA_COMMON_PARTS
} ta_difference;

/* The bits [*first, *first + *count) of `what` that a part has. */
TA_INLINE void ta_common_bits(int part, int *first, int *count)
{
    int at = 0;
    *first = 0;
    *count = 0;
#define TA_COMMON_PLACE(name, bits, text)                                                          \
    if (part == TA_COMMON_##name) {                                                                \
        *first = at;                                                                               \
        *count = bits;                                                                             \
    }                                                                                              \
    at += bits;
    TA_COMMON_LIST(TA_COMMON_PLACE)
#undef TA_COMMON_PLACE
}

/* Every bit of x changes about half of the result's bits, and no two x have the same result. */
TA_INLINE uint64_t ta_fault_mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

/* A rank's record with nothing to compare in it. */
TA_INLINE ta_fault ta_fault_of(int32_t status, int32_t rank)
{
    ta_fault fault;
    fault.status = status;
    fault.rank = rank;
    fault.other = -1;
    fault.what = 0;
    fault.hash = 0;
    fault.tag = 0;
    return fault;
}

/* Add a part, once: a number, or the hash of an array (hash.h). Records that differ in one part
 * alone never have the same hash. `what` gets the part's lowest bits, so numbers that are close,
 * as those of plans are, always differ in it. */
TA_INLINE void ta_fault_share(ta_fault *fault, int part, uint64_t value)
{
    int first, count;
    ta_common_bits(part, &first, &count);
    fault->hash += ta_fault_mix(value + UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(part + 1));
    fault->what = (int32_t)((uint32_t)fault->what | ((uint32_t)value & ((UINT32_C(1) << count) - 1))
                                                        << first);
}

/* What the hashes of the two tables of prefixes add to that of the lists. */
TA_INLINE uint64_t ta_prefix_hash(uint64_t starts, uint64_t lengths)
{
    return ta_fault_mix(starts) + ta_fault_mix(~lengths);
}

/* The parts in which two steps differ, of the bits in which `what` does. */
TA_INLINE int32_t ta_common_differs(uint32_t what)
{
    int32_t differs = 0;
    for (int part = 0; part < TA_COMMON_PARTS; part++) {
        int first, count;
        ta_common_bits(part, &first, &count);
        if (what >> first & ((UINT32_C(1) << count) - 1))
            differs |= 1 << part;
    }
    return differs;
}

/* What a rank that asks gives of itself: the call's own arguments, up to TA_COMMON_OPTIONS. The
 * rest is no difference to one that does not ask. */
#define TA_DIFFERS_ASKED ((1 << (TA_COMMON_OPTIONS + 1)) - 1)

TA_INLINE int32_t ta_asked_differs(int32_t differs)
{
    return (differs & TA_DIFFERS_ASKED) | TA_DIFFERS_HASH;
}

/* Two ranks that are in different steps. */
TA_INLINE ta_fault ta_fault_difference(int32_t rank, int32_t other, int32_t differs)
{
    ta_fault fault = ta_fault_of(TA_ERR_MISMATCH, rank < other ? rank : other);
    fault.other = rank < other ? other : rank;
    fault.what = differs;
    return fault;
}

/* A rank that is lost, by TA_ERR_TIMEOUT or TA_ERR_ABORTED. */
TA_INLINE ta_fault ta_fault_lost(int32_t status, int32_t rank)
{
    ta_fault fault = ta_fault_of(status, rank);
    fault.other = rank;
    return fault;
}

/* A rank that was waited for and did not come. */
TA_INLINE ta_fault ta_fault_missing(int32_t rank)
{
    return ta_fault_lost(TA_ERR_TIMEOUT, rank);
}

/* Of two ranks that differ one is the lower. */
TA_INLINE int ta_fault_is_lost(ta_fault fault)
{
    return fault.status < TA_OK && fault.other == fault.rank;
}

/* The same in a word, which is 0 of any other fault. */
TA_INLINE int32_t ta_fault_lost_word(ta_fault fault)
{
    if (!ta_fault_is_lost(fault))
        return 0;
    return fault.status == TA_ERR_ABORTED ? -1 - fault.rank : 1 + fault.rank;
}

TA_INLINE ta_fault ta_fault_of_lost_word(int32_t word)
{
    return word < 0 ? ta_fault_lost(TA_ERR_ABORTED, -1 - word) : ta_fault_missing(word - 1);
}

/* Which of two faults counts: a rank's own before a difference; then the lower rank's, then that
 * with the lower other rank; then any, but the same from both sides. */
TA_INLINE int ta_fault_counts_more(ta_fault a, ta_fault b)
{
    if ((a.other < 0) != (b.other < 0))
        return a.other < 0;
    if (a.rank != b.rank)
        return a.rank < b.rank;
    if (a.other != b.other)
        return a.other < b.other;
    return a.status != b.status ? a.status > b.status : a.what > b.what;
}

/* What two records say together. Merging a record again changes nothing. */
TA_INLINE ta_fault ta_fault_merge(ta_fault a, ta_fault b)
{
    if (a.status < TA_OK || b.status < TA_OK) {
        if (a.status >= TA_OK)
            return b;
        return b.status < TA_OK && ta_fault_counts_more(b, a) ? b : a;
    }
    int32_t differs = ta_common_differs((uint32_t)a.what ^ (uint32_t)b.what) |
                      (a.hash != b.hash ? TA_DIFFERS_HASH : 0);
    if (a.status != b.status)
        differs = ta_asked_differs(differs);
    differs |= (a.tag != b.tag ? TA_DIFFERS_TAG : 0);
    if (differs)
        return ta_fault_difference(a.rank, b.rank, differs);
    return b.rank < a.rank ? b : a;
}

/* ---- As integers, for groups that find the maximum of each over all ranks ----
 *
 * The first is 0, or a rank's own fault: the lower the rank, the larger. Then for each of `what`,
 * `hash` and `tag` two: the value above the rank, and the value's complement above the rank. The
 * values are the same on all ranks if the two maxima are complements of each other; otherwise they
 * are of two ranks that differ. There is room for 44 bits of a value, so hash and tag are mixed
 * first; below the 32 bits of `what` is one for a rank that asks. */
#define TA_FAULT_INTEGERS 7
#define TA_FAULT_RANK_BITS 20 /* the most ranks are 2^20 */

/* This rank's own record, before any was merged into it. */
TA_INLINE void ta_fault_to_integers(ta_fault fault, int64_t *integers)
{
    const uint64_t low = (UINT64_C(1) << TA_FAULT_RANK_BITS) - 1;
    uint64_t values[3];
    values[0] = (uint64_t)(uint32_t)fault.what << 32 |
                (fault.status == TA_FAULT_ASKS ? UINT64_C(1) << 31 : 0);
    values[1] = ta_fault_mix(fault.hash);
    values[2] = ta_fault_mix(fault.tag);
    integers[0] = 0;
    if (fault.status < TA_OK)
        integers[0] = (int64_t)(INT32_MAX - fault.rank) << 32 | -fault.status;
    for (int i = 0; i < 3; i++) {
        integers[1 + 2 * i] = (int64_t)((values[i] & ~low) | (uint64_t)fault.rank);
        integers[2 + 2 * i] = (int64_t)((~values[i] & ~low) | (uint64_t)fault.rank);
    }
}

/* The record of all ranks, of their maxima and of what this rank gave. */
TA_INLINE ta_fault ta_fault_from_integers(const int64_t *largest, ta_fault own)
{
    const uint64_t low = (UINT64_C(1) << TA_FAULT_RANK_BITS) - 1;
    if (largest[0])
        return ta_fault_of(-(int32_t)(largest[0] & INT32_MAX),
                           INT32_MAX - (int32_t)(largest[0] >> 32));
    for (int i = 0; i < 3; i++) {
        uint64_t most = (uint64_t)largest[1 + 2 * i], least = (uint64_t)largest[2 + 2 * i];
        uint64_t bits = (most ^ ~least) & ~low;
        int32_t differs = i == 0   ? ta_common_differs((uint32_t)(bits >> 32))
                          : i == 1 ? TA_DIFFERS_HASH
                                   : TA_DIFFERS_TAG;
        if (i == 0 && (bits >> 31 & 1))
            differs = ta_asked_differs(differs);
        if (bits)
            return ta_fault_difference((int32_t)(most & low), (int32_t)(least & low), differs);
    }
    return own;
}

#endif
