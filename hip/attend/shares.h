/* Equal shares: how the tokens of all sequences, KV heads and row groups go to the blocks
 * that a device holds at a time, whatever the lengths are. Pure arithmetic, in C and in kernels;
 * the lengths are in device memory, so every block finds its own share from them (piece.h).
 * tests/test_shares.c runs it with a model of how a device schedules blocks.
 *
 * An item is one (sequence, KV head, row group). Its tokens are counted in tiles of 16, and
 * beginning a piece of it costs about as much as 4 tiles, so an item of t tiles weighs t + 4. All
 * items lie in a row, and the row is cut into as many parts of equal weight as there are blocks:
 *
 *     items     |4 a a a a a a a|4 b b|4 c|4 d d d d d d d d d|      4: where an item begins
 *     blocks    |   0   |   1   |   2   |   3   |   4   |   5   |
 *
 * Here block 1 ends item a, which block 0 began, and block 2 has all of b and c. So a block has at
 * most one piece that another began and one that another ends: two partial records. Cuts are moved
 * to whole units of 4 tiles, one for each wave of a block. All pieces of an item are merged in the
 * order of the blocks, so results have the same bits in every run.
 *
 * Two cases are better cut otherwise. Where there are fewer items than blocks, each may get an
 * equal number of pieces. Where there are many short items, a piece more costs more than the best
 * balance gains: then each is a block of its own, and the device balances them as blocks end. */
#ifndef TA_HIP_SHARES_H
#define TA_HIP_SHARES_H

#include <stdint.h>

#include "base/inline.h"

#define TA_SHARE_TILE 16 /* tokens */
#define TA_SHARE_UNIT 4  /* tiles; also what it costs to begin a piece */

/* Sequences of at most so many tokens are never cut: then nothing is to be merged. */
#define TA_SHARE_TOKENS_WHOLE 128

/* What the items of some sequences weigh. Of no sequence: ta_share_sum_none(). */
typedef struct ta_share_sum {
    int64_t weight;
    int32_t heaviest, lightest; /* item */
} ta_share_sum;

/* How all items are cut. `pieces` of each item, a block for each; or 0: parts of equal weight. */
typedef struct ta_shares {
    int64_t weight, items;
    int32_t blocks;
    int32_t pieces;
} ta_shares;

/* Some tiles of an item: [first, end). */
typedef struct ta_piece {
    int64_t item;
    int32_t first, end;
} ta_piece;

/* Tiles of the tokens [first, end) that a sequence's queries see. They begin at multiples of 16, so
 * the first may be seen in part only. */
TA_INLINE int32_t ta_share_begin(int32_t first)
{
    return first & ~(TA_SHARE_TILE - 1);
}

TA_INLINE int32_t ta_share_tiles(int32_t first, int32_t end)
{
    if (first >= end)
        return 0;
    return (end - 1) / TA_SHARE_TILE - first / TA_SHARE_TILE + 1;
}

TA_INLINE int64_t ta_share_weight(int32_t tiles)
{
    return (int64_t)tiles + TA_SHARE_UNIT;
}

TA_INLINE ta_share_sum ta_share_sum_none(void)
{
    ta_share_sum none = {0, 0, INT32_MAX};
    return none;
}

/* Of one sequence with so many items. */
TA_INLINE ta_share_sum ta_share_sum_of(int32_t tiles, int64_t items)
{
    int32_t weight = (int32_t)ta_share_weight(tiles);
    ta_share_sum sum = {items * weight, weight, weight};
    return items ? sum : ta_share_sum_none();
}

TA_INLINE ta_share_sum ta_share_sum_add(ta_share_sum a, ta_share_sum b)
{
    a.weight += b.weight;
    a.heaviest = a.heaviest > b.heaviest ? a.heaviest : b.heaviest;
    a.lightest = a.lightest < b.lightest ? a.lightest : b.lightest;
    return a;
}

/* A part of equal weight takes up to this much longer than its weight: the piece that another block
 * began costs a unit more, and cuts are moved by up to half a unit. */
#define TA_SHARE_EXCESS (TA_SHARE_UNIT + TA_SHARE_UNIT / 2)

/* How long the blocks take if each item is one: at least so many rounds of the lightest, and the
 * heaviest; and where they differ, some of the blocks end late. */
TA_INLINE int64_t ta_share_whole_time(ta_share_sum sum, int64_t items, int32_t blocks)
{
    int64_t time = (items + blocks - 1) / blocks * sum.lightest;
    int64_t uneven = sum.weight / blocks + (sum.heaviest - sum.lightest) / 4;
    if (time < sum.heaviest)
        time = sum.heaviest;
    return time > uneven ? time : uneven;
}

/* Divide `items` items among `blocks` blocks that run at a time. */
TA_INLINE ta_shares ta_shares_of(ta_share_sum sum, int64_t items, int32_t blocks)
{
    ta_shares none = {0, items, 1, 1};
    if (sum.weight == 0)
        return none;
    if (blocks > sum.weight / TA_SHARE_UNIT) /* every part has a unit */
        blocks = (int32_t)(sum.weight / TA_SHARE_UNIT);
    ta_shares s = {sum.weight, items, blocks, 0};
    int64_t parts_time = (sum.weight + blocks - 1) / blocks + TA_SHARE_EXCESS;
    if (items <= blocks) {
        int32_t each = (int32_t)(blocks / items);
        int64_t units = (sum.heaviest - 1) / TA_SHARE_UNIT; /* its tiles, rounded up */
        if (((units + each - 1) / each + 1) * TA_SHARE_UNIT <= parts_time)
            s.pieces = each;
    } else if (50 * parts_time > 51 * ta_share_whole_time(sum, items, blocks)) {
        s.pieces = 1;
    }
    return s;
}

/* Where in the row of all items the part of a block begins. The products stay far below 2^63: a
 * weight is below 2^51 for 2^16 sequences of 2^31 tokens with 2^8 items each. */
TA_INLINE int64_t ta_share_first(const ta_shares *s, int64_t block)
{
    return s->weight * block / s->blocks;
}

/* The block whose part has place `at` of the row: the last that begins no later. */
TA_INLINE int64_t ta_share_block(const ta_shares *s, int64_t at)
{
    return ((at + 1) * s->blocks - 1) / s->weight;
}

/* How many tiles of an item that begins at `start` go to the parts before place `at` of the row. */
TA_INLINE int32_t ta_share_cut(int64_t start, int32_t tiles, int64_t at)
{
    if (at >= start + ta_share_weight(tiles))
        return tiles;
    int64_t before = at - start - TA_SHARE_UNIT + TA_SHARE_UNIT / 2;
    if (before < TA_SHARE_UNIT)
        return 0;
    before -= before % TA_SHARE_UNIT;
    return before < tiles ? (int32_t)before : tiles;
}

/* The tiles of an item that fall to the part [from, to) of the row: none if only its beginning
 * does. The part that has its first tile begins it; an item of no tile, the part in which its
 * beginning is. */
TA_INLINE ta_piece ta_share_piece(int64_t item, int64_t start, int32_t tiles, int64_t from,
                                  int64_t to)
{
    ta_piece piece = {item, ta_share_cut(start, tiles, from), ta_share_cut(start, tiles, to)};
    return piece;
}

/* Has the part that begins at `from` anything to do for an item of this piece? */
TA_INLINE int ta_share_has(ta_piece piece, int64_t start, int32_t tiles, int64_t from)
{
    return piece.first < piece.end || (tiles == 0 && start >= from);
}

/* The block that has the last tile of an item that begins at `start`: the one behind whose part all
 * of its tiles are cut. */
TA_INLINE int64_t ta_share_last_block(const ta_shares *s, int64_t start, int32_t tiles)
{
    int64_t units = (tiles + TA_SHARE_UNIT - 1) / TA_SHARE_UNIT;
    int64_t all = start + units * TA_SHARE_UNIT + TA_SHARE_UNIT / 2;
    int64_t next = start + ta_share_weight(tiles);
    return ta_share_block(s, (all < next ? all : next) - 1);
}

/* Which tiles piece number `number` of each has when all items are cut alike. */
TA_INLINE int32_t ta_share_even_tiles(int32_t tiles, int32_t pieces)
{
    int32_t units = tiles / TA_SHARE_UNIT + (tiles % TA_SHARE_UNIT != 0);
    return (units / pieces + (units % pieces != 0)) * TA_SHARE_UNIT;
}

TA_INLINE ta_piece ta_share_even(int64_t item, int32_t tiles, int32_t pieces, int32_t number)
{
    int64_t each = ta_share_even_tiles(tiles, pieces), first = each * number, end = first + each;
    ta_piece piece = {item, (int32_t)(first < tiles ? first : tiles),
                      (int32_t)(end < tiles ? end : tiles)};
    return piece;
}

#endif
