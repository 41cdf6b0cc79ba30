/* Selected positions: the tokens of a block whose row sees only those of a list. The list is turned
 * into marks in shared memory, one bit for each of the next TA_PICK_TOKENS local positions; what is
 * marked is counted, and goes by in tiles as if it were a range. So the order of a list makes no
 * difference, memory is read in ascending order, and what is not selected, here and seen is not
 * touched. tile.h asks where a token is, the attend kernels for the next tokens. */
#ifndef TA_HIP_PICKS_H
#define TA_HIP_PICKS_H

#include "block_piece.h"

struct ta_picks { /* TA_PICK_BYTES */
    uint32_t marks[TA_PICK_WORDS];
    int32_t before[TA_PICK_WORDS]; /* marks of the words before */
};

static_assert(sizeof(ta_picks) == TA_PICK_BYTES, "shape.h cuts as much");

TA_DEVICE ta_picks &ta_picks_of(const ta_attend_params &p, char *shared)
{
    return *reinterpret_cast<ta_picks *>(shared + p.shape.picks_at);
}

/* The local position, from picked_from on, of a picked token; there are more than `number`. */
TA_DEVICE int32_t ta_find_pick(const ta_picks &picks, int32_t number)
{
    int32_t at = 0, end = TA_PICK_WORDS;
    while (end - at > 1) { /* the last word before which there are not more */
        int32_t middle = at + (end - at) / 2;
        if (picks.before[middle] <= number)
            at = middle;
        else
            end = middle;
    }
    uint32_t word = picks.marks[at];
    for (int32_t skip = number - picks.before[at]; skip > 0; skip--)
        word &= word - 1;
    return at * 32 + ta_count_bits((word & (0u - word)) - 1);
}

/* Mark what the list has of local positions [from, to). -1 and what others hold is left out. */
TA_DEVICE void ta_mark_list(const ta_attend_params &p, const ta_block &b, int32_t from, int32_t to,
                            ta_picks &picks)
{
    int64_t low = ta_shard_global(&b.shard, b.bounds, from);
    int64_t high = ta_shard_global(&b.shard, b.bounds, to - 1);
#pragma unroll 1
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.problem.selected_count;
         i += static_cast<int32_t>(blockDim.x)) {
        int32_t position = b.list[i];
        if (position < low || position > high)
            continue;
        int32_t local = ta_shard_find(&b.shard, b.bounds, position), at = local - from;
        if (local >= from && local < to)
            atomicOr(&picks.marks[at / 32], 1u << at % 32);
    }
}

/* Pick the next tokens: afterwards [b.first, b.end) are their numbers. Every thread calls it;
 * returns whether there are any. Between two calls there is at least one barrier. */
TA_DEVICE bool ta_pick_tokens(const ta_attend_params &p, ta_block &b, char *shared)
{
    ta_picks &picks = ta_picks_of(p, shared);
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    for (;;) {
        int32_t from = b.rest.first, to = min(b.rest.end - from, TA_PICK_TOKENS) + from;
        if (from >= to)
            return false;
        if (thread < TA_PICK_WORDS)
            picks.marks[thread] = 0;
        ta_syncthreads();
        ta_mark_list(p, b, from, to, picks);
        ta_syncthreads();
        if (thread < TA_PICK_WORDS) {
            int32_t before = 0;
#pragma unroll 1
            for (int32_t i = 0; i < thread; i++)
                before += ta_count_bits(picks.marks[i]);
            picks.before[thread] = before;
        }
        if (thread == TA_PICK_WORDS - 1) {
            b.first = 0;
            b.end = picks.before[thread] + ta_count_bits(picks.marks[thread]);
            b.picked_from = from;
            b.rest.first = to;
        }
        ta_syncthreads();
        if (b.end > 0)
            return true;
        ta_syncthreads(); /* all have read it */
    }
}

/* The tokens to attend to next; returns whether there are any. A block without a list has one
 * range. */
TA_DEVICE bool ta_next_tokens(const ta_attend_params &p, bool again, ta_block &b, char *shared)
{
    return p.shape.picks_at ? ta_pick_tokens(p, b, shared) : !again;
}

#endif
