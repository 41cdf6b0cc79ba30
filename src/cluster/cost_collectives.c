/* What group.c's collectives send, message by message: the mirror of ta_group_broadcast(),
 * ta_group_all_gather() and ta_group_all_reduce() over an engine's exchange(). tests/test_cost.c
 * holds the two together. */
#include "cost.h"

#include <stdlib.h>

#include "base/shard_map.h"
#include "base/status.h"
#include "group/group.h"

void ta_cost_broadcast(ta_cost *cost, const char *phase, uint64_t bytes, int root)
{
    int ranks = cost->ranks;
    for (int distance = 1; distance < ranks; distance *= 2) {
        for (int member = 0; member < distance && member + distance < ranks; ++member)
            ta_cost_message(cost, (root + member) % ranks, (root + member + distance) % ranks,
                            bytes);
        ta_cost_round(cost, phase);
    }
}

/* The parts of one line that go out in a round from their owners on, up to the last member, or
 * wrapped around to the first. Returns whether some did wrap. */
static int add_parts(ta_cost *cost, const ta_cost_lines *lines, int line, const size_t *offsets,
                     int have, int wrapped)
{
    int members = lines->members, parts = have < members - have ? have : members - have, wraps = 0;
    for (int member = 0; member < members; ++member) {
        int end = member + parts < members ? member + parts : members;
        int to = (member + members - have) % members;
        size_t bytes =
            wrapped ? offsets[member + parts - end] - offsets[0] : offsets[end] - offsets[member];
        wraps |= member + parts > members;
        if (!wrapped || member + parts > members)
            ta_cost_message(cost, ta_cost_rank(lines, line, member), ta_cost_rank(lines, line, to),
                            bytes);
    }
    return wraps;
}

void ta_cost_all_gather_lines(ta_cost *cost, const char *phase, const ta_cost_lines *lines,
                              const size_t *offsets)
{
    for (int have = 1; have < lines->members; have *= 2)
        for (int wrapped = 0, wraps = 1; wrapped < 2 && wraps; ++wrapped) {
            for (int line = 0; line < lines->lines; ++line)
                wraps =
                    add_parts(cost, lines, line,
                              offsets + (size_t)line * (size_t)(lines->members + 1), have, wrapped);
            ta_cost_round(cost, phase);
        }
}

void ta_cost_all_gather(ta_cost *cost, const char *phase, const size_t *offsets)
{
    ta_cost_lines all = {1, cost->ranks, 0, 1};
    ta_cost_all_gather_lines(cost, phase, &all, offsets);
}

ta_status ta_cost_all_gather_divided(ta_cost *cost, const char *phase, int count, size_t bytes)
{
    size_t *offsets = calloc((size_t)cost->ranks + 1, sizeof *offsets);
    if (!offsets)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %d ranks", cost->ranks);
    for (int rank = 0; rank <= cost->ranks; ++rank)
        offsets[rank] = (size_t)ta_head_start(count, cost->ranks, rank) * bytes;
    ta_cost_all_gather(cost, phase, offsets);
    free(offsets);
    return TA_OK;
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
