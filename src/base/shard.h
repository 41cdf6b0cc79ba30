/* Shard maps: which positions one rank holds. C and HIP code include this file; shard.c has the
 * public functions, which check their arguments and call these.
 *
 * Local order follows global order, so the keys that a mask lets a query see are always one range
 * of local positions: from ta_shard_held(first visible) to ta_shard_held(last visible + 1).
 *
 * A weighted map is block-cyclic with turns of several blocks; a rank's own turn is all that it
 * needs to know of the weights.
 *
 * A slice of a shard is some of its tokens in a row, with local positions of its own from 0 on:
 * what a ring passes on in one message. Everything here speaks of the slice where there is one. */
#ifndef TA_SHARD_H
#define TA_SHARD_H

#include <stdint.h>

#include "inline.h"

/* One rank's view of a shard map, with every default filled in. */
typedef struct ta_shard {
    int32_t cyclic; /* 0: contiguous */
    int32_t ranks;
    int32_t rank;
    int32_t block; /* contiguous: 0 if only bounds define it */
    /* Only the rank's tokens from `slice_first` on, `slice_tokens` of them at most; 0: all. */
    int32_t slice_first, slice_tokens;
    /* Block-cyclic: the ranks take turns, and all turns are a round. Of each round the rank holds
     * `turn_tokens` from `turn_first` on. A turn beyond the longest sequence is cut to 2^31, which
     * is more than any local position. */
    uint32_t turn_tokens;
    int64_t turn_first, round;
} ta_shard;

/* Give a block-cyclic shard its turn: `blocks` of them from block `first` on, in a round of
 * `round`. */
TA_INLINE void ta_shard_set_turn(ta_shard *shard, int32_t first, int32_t blocks, int32_t round)
{
    int64_t tokens = (int64_t)blocks * shard->block;
    shard->turn_tokens = tokens > INT32_MAX ? (uint32_t)1 << 31 : (uint32_t)tokens;
    shard->turn_first = (int64_t)first * shard->block;
    shard->round = (int64_t)round * shard->block;
}

/* How many tokens with a position below `end` the rank holds in all. */
TA_INLINE int32_t ta_shard_held_whole(const ta_shard *shard, const int32_t *bounds, int32_t end)
{
    if (end <= 0)
        return 0;
    if (shard->cyclic) {
        /* Divisions of 32 bits: those of 64 take many registers of a GPU. `end` is below 2^31. */
        uint32_t round = shard->round > INT32_MAX ? (uint32_t)1 << 31 : (uint32_t)shard->round;
        int64_t part = (int64_t)((uint32_t)end % round) - shard->turn_first;
        if (part < 0)
            part = 0;
        else if (part > shard->turn_tokens)
            part = shard->turn_tokens;
        return (int32_t)((uint32_t)end / round * shard->turn_tokens + (uint32_t)part);
    }
    int64_t first = bounds ? bounds[shard->rank] : (int64_t)shard->rank * shard->block;
    int64_t last = (int64_t)first + shard->block;
    if (bounds)
        last = bounds[shard->rank + 1];
    else if (shard->rank == shard->ranks - 1)
        last = end;
    if (last > end)
        last = end;
    return last > first ? (int32_t)(last - first) : 0;
}

/* How many tokens with a position below `end` the rank holds. `bounds` may be NULL. */
TA_INLINE int32_t ta_shard_held(const ta_shard *shard, const int32_t *bounds, int32_t end)
{
    int32_t held = ta_shard_held_whole(shard, bounds, end) - shard->slice_first;
    if (held < 0)
        held = 0;
    return shard->slice_tokens && held > shard->slice_tokens ? shard->slice_tokens : held;
}

/* The position of the rank's token at `local`. */
TA_INLINE int64_t ta_shard_global(const ta_shard *shard, const int32_t *bounds, int32_t local)
{
    local += shard->slice_first;
    if (shard->cyclic && shard->turn_tokens == 0) /* it holds nothing */
        return shard->turn_first;
    if (shard->cyclic)
        return (int64_t)((uint32_t)local / shard->turn_tokens) * shard->round + shard->turn_first +
               (int64_t)((uint32_t)local % shard->turn_tokens);
    return (bounds ? bounds[shard->rank] : (int64_t)shard->rank * shard->block) + local;
}

/* The local position of a position below 2^31 - 1, or -1 if another rank holds it. */
TA_INLINE int32_t ta_shard_find(const ta_shard *shard, const int32_t *bounds, int32_t position)
{
    int32_t local = ta_shard_held(shard, bounds, position);
    return ta_shard_held(shard, bounds, position + 1) > local ? local : -1;
}

/* The local positions [first, end) that a query sees. */
typedef struct ta_visible {
    int32_t first, end;
} ta_visible;

/* What a query at position `x` sees of a sequence of `length` tokens. `window` 0 is none. */
TA_INLINE ta_visible ta_shard_visible(const ta_shard *shard, const int32_t *bounds, int32_t length,
                                      int32_t x, int32_t causal, int32_t window)
{
    int32_t end = causal && x < length ? x + 1 : length;
    int32_t first = window > 0 && x >= window ? x - window + 1 : 0;
    ta_visible v;
    v.first = ta_shard_held(shard, bounds, first);
    v.end = ta_shard_held(shard, bounds, end);
    if (v.first > v.end)
        v.first = v.end;
    return v;
}

/* What the last `query_tokens` tokens of a sequence see together: one range, as they are
 * neighbours. */
TA_INLINE ta_visible ta_shard_seen(const ta_shard *shard, const int32_t *bounds, int32_t length,
                                   int32_t query_tokens, int32_t causal, int32_t window)
{
    ta_visible v = ta_shard_visible(shard, bounds, length, length - query_tokens, causal, window);
    if (query_tokens < 1) { /* nobody is there to see anything */
        v.first = v.end = 0;
        return v;
    }
    v.end = ta_shard_visible(shard, bounds, length, length - 1, causal, window).end;
    return v;
}

#endif
