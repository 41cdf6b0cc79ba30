/* What group.c's collectives send, message by message: the mirror of ta_group_broadcast(),
 * ta_group_all_gather() and ta_group_all_reduce() over an engine's exchange(). tests/test_cost.c
 * holds the two together. */
#include "cost.h"
#include "group.h"

void ta_cost_broadcast(ta_cost *cost, const char *phase, uint64_t bytes, int root)
{
    int ranks = cost->ranks;
    for (int distance = 1; distance < ranks; distance *= 2) {
        for (int place = 0; place < distance && place + distance < ranks; ++place)
            ta_cost_message(cost, (root + place) % ranks, (root + place + distance) % ranks, bytes);
        ta_cost_round(cost, phase);
    }
}

/* The second message of a round is the run of parts that wraps around to rank 0. */
void ta_cost_all_gather(ta_cost *cost, const char *phase, const size_t *offsets)
{
    int ranks = cost->ranks;
    for (int have = 1; have < ranks; have *= 2) {
        int parts = have < ranks - have ? have : ranks - have, wraps = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            int end = rank + parts < ranks ? rank + parts : ranks;
            wraps |= rank + parts > ranks;
            ta_cost_message(cost, rank, (rank + ranks - have) % ranks,
                            offsets[end] - offsets[rank]);
        }
        ta_cost_round(cost, phase);
        for (int rank = 0; rank < ranks; ++rank)
            if (rank + parts > ranks)
                ta_cost_message(cost, rank, (rank + ranks - have) % ranks,
                                offsets[rank + parts - ranks]);
        if (wraps)
            ta_cost_round(cost, phase);
    }
}

static int rank_at(int position, int extras)
{
    return position < extras ? 2 * position + 1 : position + extras;
}

static void add_fold(ta_cost *cost, const char *phase, uint64_t bytes, int extras, int back)
{
    for (int i = 0; i < extras; ++i)
        ta_cost_message(cost, 2 * i + back, 2 * i + !back, bytes);
    if (extras)
        ta_cost_round(cost, phase);
}

void ta_cost_all_reduce(ta_cost *cost, const char *phase, uint64_t bytes)
{
    int positions = 1;
    while (positions * 2 <= cost->ranks)
        positions *= 2;
    int extras = cost->ranks - positions;
    for (uint64_t done = 0; done < bytes; done += TA_REDUCE_PIECE_BYTES) {
        uint64_t piece =
            bytes - done < TA_REDUCE_PIECE_BYTES ? bytes - done : TA_REDUCE_PIECE_BYTES;
        add_fold(cost, phase, piece, extras, 0);
        for (int distance = 1; distance < positions; distance *= 2) {
            for (int position = 0; position < positions; ++position)
                ta_cost_message(cost, rank_at(position, extras),
                                rank_at(position ^ distance, extras), piece);
            ta_cost_work(cost, 1, 3.0 * (double)piece);
            ta_cost_round(cost, phase);
        }
        add_fold(cost, phase, piece, extras, 1);
    }
}
