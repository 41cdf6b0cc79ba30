/* How many splits the tokens of a sequence are cut into, so that one long sequence with few heads
 * still fills a GPU. Pure arithmetic on numbers that the host knows: calls of the same plan with as
 * many sequences and tokens have the same splits on the same kind of device, so their results have
 * the same bits in every run.
 * splits.c counts with this on the host, the kernels find their tokens with it.
 *
 * Worked example. 8 KV heads, batch 1, up to 131,072 tokens, on 132 units that hold 4 blocks each:
 * one split is 8 blocks, the device holds 528. The time is rounds / splits, where a round is as
 * many blocks as the device holds: 66 splits are one full round, 1/66 of the time of one block
 * reading it all. 60 splits are one round too, at 1/60, within a tenth of the best; fewer splits
 * are less to merge, so 60 it is. A sequence that has all 131,072 tokens is cut into pieces of
 * 2,240 (a sixtieth, rounded up to 64), of which it has 59; one of 1,000 tokens into 8 of 128. With
 * 700 blocks to a split there are 2 rounds for 1 split (time 2.00), 3 for 2 (1.50), 4 for 3 (1.33,
 * about the best there is): 3 splits. */
#ifndef TA_HIP_SPLITS_H
#define TA_HIP_SPLITS_H

#include <stdint.h>

#include "base/inline.h"

/* Merging costs more than it gains beyond this many. */
#define TA_SPLITS_MAX 256

/* A split is at least this long, because each block first finds its tokens and query; and a
 * multiple of the other, so that its tiles are whole. */
#define TA_SPLIT_TOKENS_MIN 128
#define TA_SPLIT_TOKENS_UNIT 64

/* The most memory for the records of all splits, unless it takes more for two. */
#define TA_SPLIT_RECORDS_BYTES (64ll << 20)

typedef struct ta_split_question {
    int64_t blocks;       /* of one split: sequences · KV heads · row groups */
    int64_t slots;        /* blocks that the device holds at a time */
    int64_t max_tokens;   /* of one sequence */
    int64_t record_bytes; /* of all records of one split, in the largest call */
    int64_t most;         /* splits that there is room for; 0: as many as record_bytes affords */
} ta_split_question;

TA_INLINE int64_t ta_round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

TA_INLINE int64_t ta_ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

static inline int64_t ta_splits_most(const ta_split_question *question)
{
    int64_t most = ta_ceil_div(question->max_tokens, TA_SPLIT_TOKENS_MIN);
    int64_t affordable = TA_SPLIT_RECORDS_BYTES / question->record_bytes;
    if (question->most > 0)
        affordable = question->most;
    if (most > affordable)
        most = affordable;
    if (most > TA_SPLITS_MAX)
        most = TA_SPLITS_MAX;
    return most < 1 ? 1 : most;
}

/* The smallest number of splits whose time is within a tenth of the best. */
static inline int32_t ta_splits_choose(const ta_split_question *question)
{
    int64_t most = ta_splits_most(question);
    double best = 0.0;
    for (int64_t splits = 1; splits <= most; splits++) {
        double time = (double)ta_ceil_div(question->blocks * splits, question->slots) / splits;
        if (splits == 1 || time < best)
            best = time;
    }
    int64_t splits = 1;
    while ((double)ta_ceil_div(question->blocks * splits, question->slots) / splits > 1.1 * best)
        splits++;
    return (int32_t)splits;
}

/* Tokens of each split of a sequence of which `tokens` are visible; the last one may have fewer,
 * and there may be fewer splits than `splits`, never more. */
TA_INLINE int32_t ta_split_tokens(int32_t tokens, int32_t splits)
{
    int64_t even = ta_round_up(ta_ceil_div(tokens, splits), TA_SPLIT_TOKENS_UNIT);
    if (even > INT32_MAX)
        return INT32_MAX;
    return (int32_t)(even < TA_SPLIT_TOKENS_MIN ? TA_SPLIT_TOKENS_MIN : even);
}

#endif
