/* The building blocks of exchanges in rounds, and the exchanges between all ranks that are made of
 * them: recursive doubling, the binomial tree, the scatter of heads. See rounds.h for what each
 * block leaves where, docs/walkthrough.md for a picture of the first two. levels.c puts blocks
 * together for nodes; exchange.c lists the kinds and runs them. */
#include "rounds.h"

#include "base/shard_map.h"
#include "kinds.h"

/* Positions are the members that take part after folding; a power of two of them, in order. */
typedef struct layout {
    int positions, extras, rounds;
} layout;

static layout make_layout(int members)
{
    layout l = {1, 0, 0};
    while (l.positions * 2 <= members) {
        l.positions *= 2;
        l.rounds += 1;
    }
    l.extras = members - l.positions;
    return l;
}

/* Among the first 2 · extras members, the even one of each pair folds into the odd one. */
static int is_paired(const layout *l, int member)
{
    return member < 2 * l->extras;
}

static int folds(const layout *l, int member)
{
    return is_paired(l, member) && member % 2 == 0;
}

static int position_of(const layout *l, int member)
{
    return is_paired(l, member) ? member / 2 : member - l->extras;
}

static int member_at(const layout *l, int position)
{
    return position < l->extras ? 2 * position + 1 : position + l->extras;
}

/* The first member whose part a position holds; position = positions gives the end. */
static int first_member_at(const layout *l, int position)
{
    return position < l->extras ? 2 * position : position + l->extras;
}

ta_heads ta_parts(int heads, int parts, int first, int end)
{
    return (ta_heads){ta_head_start(heads, parts, first), ta_head_start(heads, parts, end)};
}

static ta_heads parts_at(const layout *l, int heads, int first, int end)
{
    return ta_parts(heads, l->positions + l->extras, first_member_at(l, first),
                    first_member_at(l, end));
}

int ta_folded_count(int members)
{
    layout l = make_layout(members);
    return l.rounds + (l.extras ? 2 : 0);
}

/* The part of a pair in the round in which one folds into the other, or gets back what it is due.
 * `up` goes to the odd one, `down` to the even one. */
static void fold_round(int member, int back, ta_heads up, ta_heads down, ta_round *round)
{
    int sends = back == (member % 2);
    if (sends) {
        round->to = member ^ 1;
        round->given = back ? down : up;
    } else {
        round->from = member ^ 1;
        round->kept = back ? down : up;
    }
}

static void swap_round(int partner, ta_heads given, ta_heads kept, ta_round *round)
{
    round->to = round->from = partner;
    round->given = given;
    round->kept = kept;
}

void ta_doubling_block(int members, int member, int index, ta_heads range, ta_round *round)
{
    layout l = make_layout(members);
    int fold = l.extras ? 1 : 0, last = l.rounds + fold;
    if (fold && (index == 0 || index == last)) {
        round->replaces = index == last;
        if (is_paired(&l, member))
            fold_round(member, index == last, range, range, round);
    } else if (!folds(&l, member)) {
        int partner = member_at(&l, position_of(&l, member) ^ (1 << (index - fold)));
        swap_round(partner, range, range, round);
    }
}

/* The far partners first, each giving the other the parts that belong to its side. */
void ta_halving_block(int members, int member, int index, int heads, ta_round *round)
{
    layout l = make_layout(members);
    int fold = l.extras ? 1 : 0, last = l.rounds + fold, position = position_of(&l, member);
    if (fold && (index == 0 || index == last)) {
        round->replaces = index == last;
        int even = member & ~1;
        if (is_paired(&l, member))
            fold_round(member, index == last, (ta_heads){0, heads},
                       ta_parts(heads, members, even, even + 1), round);
    } else if (!folds(&l, member)) {
        int half = l.positions >> (index - fold + 1), first = position & ~(2 * half - 1);
        ta_heads low = parts_at(&l, heads, first, first + half);
        ta_heads high = parts_at(&l, heads, first + half, first + 2 * half);
        int upper = position & half;
        swap_round(member_at(&l, position ^ half), upper ? low : high, upper ? high : low, round);
    }
}

int ta_pairwise_count(int members)
{
    return members - 1;
}

void ta_pairwise_block(int members, int member, int index, int heads, ta_round *round)
{
    int distance = index + 1;
    round->to = (member + distance) % members;
    round->from = (member + members - distance) % members;
    round->given = ta_parts(heads, members, round->to, round->to + 1);
    round->kept = ta_parts(heads, members, member, member + 1);
}

/* Halving backwards: the near partners first, and each has twice as many parts after a round. */
void ta_gather_block(int members, int member, int index, int heads, ta_round *round)
{
    layout l = make_layout(members);
    int fold = l.extras ? 1 : 0, last = l.rounds + fold, position = position_of(&l, member);
    round->replaces = 1;
    if (fold && (index == 0 || index == last)) {
        int even = member & ~1;
        if (is_paired(&l, member))
            fold_round(member, index == last, ta_parts(heads, members, even, even + 1),
                       (ta_heads){0, heads}, round);
    } else if (!folds(&l, member)) {
        int count = 1 << (index - fold), own = position & ~(count - 1), theirs = own ^ count;
        swap_round(member_at(&l, position ^ count), parts_at(&l, heads, own, own + count),
                   parts_at(&l, heads, theirs, theirs + count), round);
    }
}

int ta_binomial_count(int members)
{
    layout l = make_layout(members);
    return l.rounds + (l.extras ? 1 : 0);
}

void ta_binomial_block(int members, int member, int index, int root, ta_heads range,
                       ta_round *round)
{
    int place = (member + members - root) % members, distance = 1 << index;
    if (place & (distance - 1))
        return; /* it has given its partial away */
    if (place & distance) {
        round->to = (member + members - distance) % members;
        round->given = range;
    } else if (place + distance < members) {
        round->from = (member + distance) % members;
        round->kept = range;
    }
}

int ta_collect_count(int members)
{
    return members - 1;
}

void ta_collect_block(int members, int member, int index, int root, int heads, ta_round *round)
{
    int giver = (root + 1 + index) % members;
    ta_heads part = ta_parts(heads, members, giver, giver + 1);
    round->replaces = 1;
    if (member == giver) {
        round->to = root;
        round->given = part;
    } else if (member == root) {
        round->from = giver;
        round->kept = part;
    }
}

static ta_heads all_heads(const ta_exchange_shape *shape)
{
    return (ta_heads){0, shape->heads};
}

/* ---- Recursive doubling; with output scattered by heads, halving ---- */

/* Output on one rank is the binomial tree's. */
int ta_doubling_supports(const ta_exchange_shape *shape)
{
    return shape->placement != TA_PLACE_ROOT;
}

static int doubling_rounds(const ta_exchange_shape *shape)
{
    return ta_folded_count(shape->ranks);
}

static void doubling_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    if (shape->placement == TA_PLACE_HEADS) {
        round->phase = "halving";
        ta_halving_block(shape->ranks, rank, index, shape->heads, round);
    } else {
        round->phase = "doubling";
        ta_doubling_block(shape->ranks, rank, index, all_heads(shape), round);
    }
}

const ta_round_ops ta_doubling_rounds = {doubling_rounds, doubling_round};

/* ---- Binomial tree to a root, and back unless the root alone wants the result ---- */

static int binomial_rounds(const ta_exchange_shape *shape)
{
    int up = ta_binomial_count(shape->ranks);
    return shape->placement == TA_PLACE_ROOT ? up : 2 * up;
}

/* The way back: each place that has the result gives it to the subtree that it got it from; of
 * heads that are scattered only those that the subtree's ranks want. */
static void binomial_back(const ta_exchange_shape *shape, int rank, int level, ta_round *round)
{
    int distance = 1 << level, place = rank & (2 * distance - 1);
    int first = place ? rank : rank + distance, end = first + distance;
    if ((place && place != distance) || first >= shape->ranks)
        return;
    end = end < shape->ranks ? end : shape->ranks;
    ta_heads range = shape->placement == TA_PLACE_HEADS
                         ? ta_parts(shape->heads, shape->ranks, first, end)
                         : all_heads(shape);
    round->replaces = 1;
    if (place) {
        round->from = rank - distance;
        round->kept = range;
    } else {
        round->to = rank + distance;
        round->given = range;
    }
}

static void binomial_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    int up = ta_binomial_count(shape->ranks);
    round->phase = index < up ? "up the tree" : "down the tree";
    if (index < up)
        ta_binomial_block(shape->ranks, rank, index,
                          shape->placement == TA_PLACE_ROOT ? shape->root : 0, all_heads(shape),
                          round);
    else
        binomial_back(shape, rank, 2 * up - 1 - index, round);
}

const ta_round_ops ta_binomial_rounds = {binomial_rounds, binomial_round};

/* ---- Every rank gives every other its heads; then they are gathered where they are wanted ---- */

static int scatter_rounds(const ta_exchange_shape *shape)
{
    int first = ta_pairwise_count(shape->ranks);
    switch (shape->placement) {
    case TA_PLACE_HEADS:
        return first;
    case TA_PLACE_ROOT:
        return first + ta_collect_count(shape->ranks);
    default:
        return first + ta_folded_count(shape->ranks);
    }
}

static void scatter_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    int first = ta_pairwise_count(shape->ranks);
    round->phase = index < first ? "all to all" : "gather";
    if (index < first)
        ta_pairwise_block(shape->ranks, rank, index, shape->heads, round);
    else if (shape->placement == TA_PLACE_ROOT)
        ta_collect_block(shape->ranks, rank, index - first, shape->root, shape->heads, round);
    else
        ta_gather_block(shape->ranks, rank, index - first, shape->heads, round);
}

const ta_round_ops ta_scatter_rounds = {scatter_rounds, scatter_round};
