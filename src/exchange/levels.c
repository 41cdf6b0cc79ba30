/* The exchanges by levels: two-level, and multi-level on clusters of more. Inside each unit of the
 * lowest level, a node say, the heads are scattered over its ranks. The ranks with the same heads,
 * one in each unit, are a lane; what is below them is behind them, and each lane does the same
 * with its part of the heads on the next level, inside racks say. Between the units of the last
 * level each part is merged in a tree of its own, so that every adapter works at once and a unit's
 * heads leave it only once; then they are gathered, level by level.
 *
 * Two-level takes the lowest level alone. It has fewer rounds; multi-level sends less over the
 * links between racks. The planner compares both.
 *
 * Units may differ: on each level there are as many lanes as the smallest unit has members. The
 * members beyond them first fold into a lane, and get the result from it in the end. nodes.c sorts
 * the ranks, exchange.c lists and runs it. */
#include "kinds.h"

/* Several units with several ranks in one of them: otherwise it is one of the flat exchanges. */
int ta_two_level_supports(const ta_exchange_shape *shape)
{
    return shape->nodes && shape->nodes->count > 1 && shape->nodes->most > 1;
}

/* Above them larger units, several of them, one of which has several of these. */
int ta_multi_level_supports(const ta_exchange_shape *shape)
{
    if (!ta_two_level_supports(shape) || !shape->nodes->above)
        return 0;
    for (const ta_nodes *n = shape->nodes->above; n; n = n->above)
        if (n->count == 1 || n->most == 1)
            return 0;
    return 1;
}

/* What the rounds say of themselves, by the unit of the level. */
typedef struct words {
    const char *fold, *scatter, *across, *gather, *unfold;
} words;

static const words words_of[] = {
    [TA_UNIT_NODE] = {"fold the node's other ranks", "scatter inside nodes", "between nodes",
                      "gather inside nodes", "to the node's other ranks"},
    [TA_UNIT_PACKAGE] = {"fold the package's other ranks", "scatter inside packages",
                         "between packages", "gather inside packages",
                         "to the package's other ranks"},
    [TA_UNIT_RACK] = {"fold the rack's other nodes", "scatter inside racks", "between racks",
                      "gather inside racks", "to the rack's other nodes"},
};

/* Where a rank is on each level: in which unit, and which of its members it is, or is in. */
typedef struct path {
    int levels;
    const ta_nodes *of[TA_MOST_LEVELS];
    int unit[TA_MOST_LEVELS], member[TA_MOST_LEVELS];
} path;

static path find_path(const ta_exchange_shape *shape, int levels, int rank)
{
    path p = {.levels = 0};
    int member = rank;
    for (const ta_nodes *n = shape->nodes; n && p.levels < levels; n = n->above) {
        int k = p.levels++;
        p.of[k] = n;
        p.unit[k] = n->node_of[member];
        p.member[k] = n->local_of[member];
        member = p.unit[k];
    }
    return p;
}

/* The rank in this unit of a level that has the place of this one below it. */
static int rank_in(const path *p, int level, int unit)
{
    for (int k = level; k >= 0; --k)
        unit = p->of[k]->ranks[p->of[k]->first[unit] + p->member[k]];
    return unit;
}

static int rank_of_member(const path *p, int level, int member)
{
    const ta_nodes *n = p->of[level];
    int unit = n->ranks[n->first[p->unit[level]] + member];
    return rank_in(p, level - 1, unit);
}

/* Is it a lane's, on all levels below this one? */
static int takes_part(const path *p, int level)
{
    for (int k = 0; k < level; ++k)
        if (p->member[k] >= p->of[k]->lanes)
            return 0;
    return 1;
}

/* The heads that a rank has to do with on a level: its part of its part of them. */
static ta_heads heads_on(const ta_exchange_shape *shape, const path *p, int level)
{
    ta_heads heads = {0, shape->heads};
    for (int k = 0; k < level; ++k) {
        ta_heads part =
            ta_parts(heads.end - heads.first, p->of[k]->lanes, p->member[k], p->member[k] + 1);
        heads = (ta_heads){heads.first + part.first, heads.first + part.end};
    }
    return heads;
}

/* From the numbers of a block, and heads counted from 0, to ranks and heads. */
static void place_round(const path *p, int level, int first_head, ta_round *round)
{
    if (round->to >= 0)
        round->to = rank_of_member(p, level, round->to);
    if (round->from >= 0)
        round->from = rank_of_member(p, level, round->from);
    round->given.first += first_head;
    round->given.end += first_head;
    round->kept.first += first_head;
    round->kept.end += first_head;
}

/* ---- The parts of an exchange ---- */

/* Extra member number lanes + e of a unit belongs to lane e % lanes, in round e / lanes. */
static int fold_count(const ta_nodes *n)
{
    return (n->most - n->lanes + n->lanes - 1) / n->lanes;
}

static void fold(const ta_exchange_shape *shape, const path *p, int level, int index, int back,
                 ta_round *round)
{
    const ta_nodes *n = p->of[level];
    int unit = p->unit[level], member = p->member[level];
    int here = n->first[unit + 1] - n->first[unit], lane = member % n->lanes;
    int extra = (index + 1) * n->lanes + lane;
    round->phase = back ? words_of[n->unit].unfold : words_of[n->unit].fold;
    round->replaces = back;
    if (!takes_part(p, level) || extra >= here || (member >= n->lanes && member != extra))
        return;
    int other = rank_of_member(p, level, member == extra ? lane : extra);
    ta_heads heads = heads_on(shape, p, level);
    if ((member == extra) != back) {
        round->to = other;
        round->given = heads;
    } else {
        round->from = other;
        round->kept = heads;
    }
}

static void scatter(const ta_exchange_shape *shape, const path *p, int level, int index, int back,
                    ta_round *round)
{
    const ta_nodes *n = p->of[level];
    round->phase = back ? words_of[n->unit].gather : words_of[n->unit].scatter;
    if (!takes_part(p, level + 1))
        return;
    ta_heads heads = heads_on(shape, p, level);
    if (back)
        ta_gather_block(n->lanes, p->member[level], index, heads.end - heads.first, round);
    else
        ta_halving_block(n->lanes, p->member[level], index, heads.end - heads.first, round);
    place_round(p, level, heads.first, round);
}

/* In the root's unit every lane gives its part to the member with the root, which may be none of
 * the lanes. */
static void collect(const ta_exchange_shape *shape, const path *p, int level, int giver,
                    ta_round *round)
{
    const ta_nodes *n = p->of[level];
    path root = find_path(shape, p->levels, shape->root);
    int taker = root.member[level];
    round->phase = words_of[n->unit].gather;
    round->replaces = 1;
    if (p->unit[level] != root.unit[level] || !takes_part(p, level) || giver == taker)
        return;
    ta_heads heads = heads_on(shape, p, level);
    ta_heads part = ta_parts(heads.end - heads.first, n->lanes, giver, giver + 1);
    part = (ta_heads){heads.first + part.first, heads.first + part.end};
    if (p->member[level] == giver) {
        round->to = rank_of_member(p, level, taker);
        round->given = part;
    } else if (p->member[level] == taker) {
        round->from = rank_of_member(p, level, giver);
        round->kept = part;
    }
}

static int across_count(const ta_exchange_shape *shape, const ta_nodes *last)
{
    return shape->placement == TA_PLACE_ROOT ? ta_binomial_count(last->count)
                                             : ta_folded_count(last->count);
}

static void across(const ta_exchange_shape *shape, const path *p, int index, ta_round *round)
{
    int last = p->levels - 1;
    const ta_nodes *n = p->of[last];
    round->phase = words_of[n->unit].across;
    if (!takes_part(p, p->levels))
        return;
    ta_heads part = heads_on(shape, p, p->levels);
    if (shape->placement == TA_PLACE_ROOT)
        ta_binomial_block(n->count, p->unit[last], index,
                          find_path(shape, p->levels, shape->root).unit[last], part, round);
    else
        ta_doubling_block(n->count, p->unit[last], index, part, round);
    if (round->to >= 0)
        round->to = rank_in(p, last, round->to);
    if (round->from >= 0)
        round->from = rank_in(p, last, round->from);
}

/* ---- All of it ---- */

static int gather_count(const ta_exchange_shape *shape, const ta_nodes *n)
{
    return shape->placement == TA_PLACE_ROOT ? n->lanes : ta_folded_count(n->lanes);
}

static int unfold_count(const ta_exchange_shape *shape, const ta_nodes *n)
{
    return shape->placement == TA_PLACE_ROOT ? 0 : fold_count(n);
}

static int count_rounds(const ta_exchange_shape *shape, int levels)
{
    int count = 0;
    const ta_nodes *last = NULL;
    for (const ta_nodes *n = shape->nodes; n && levels-- > 0; n = n->above) {
        count += fold_count(n) + ta_folded_count(n->lanes);
        count += gather_count(shape, n) + unfold_count(shape, n);
        last = n;
    }
    return count + across_count(shape, last);
}

/* Is round number *index one of these `count`? If not, it is counted from behind them. */
static int is_in(int *index, int count)
{
    if (*index < count)
        return 1;
    *index -= count;
    return 0;
}

static void find_round(const ta_exchange_shape *shape, int levels, int rank, int index,
                       ta_round *round)
{
    path p = find_path(shape, levels, rank);
    for (int k = 0; k < p.levels; ++k) {
        if (is_in(&index, fold_count(p.of[k]))) {
            fold(shape, &p, k, index, 0, round);
            return;
        }
        if (is_in(&index, ta_folded_count(p.of[k]->lanes))) {
            scatter(shape, &p, k, index, 0, round);
            return;
        }
    }
    if (is_in(&index, across_count(shape, p.of[p.levels - 1]))) {
        across(shape, &p, index, round);
        return;
    }
    for (int k = p.levels - 1; k >= 0; --k) {
        if (is_in(&index, gather_count(shape, p.of[k]))) {
            if (shape->placement == TA_PLACE_ROOT)
                collect(shape, &p, k, index, round);
            else
                scatter(shape, &p, k, index, 1, round);
            return;
        }
        if (is_in(&index, unfold_count(shape, p.of[k]))) {
            fold(shape, &p, k, index, 1, round);
            return;
        }
    }
}

static int two_level_rounds(const ta_exchange_shape *shape)
{
    return count_rounds(shape, 1);
}

static void two_level_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    find_round(shape, 1, rank, index, round);
}

const ta_round_ops ta_two_level_rounds = {two_level_rounds, two_level_round};

static int multi_level_rounds(const ta_exchange_shape *shape)
{
    return count_rounds(shape, TA_MOST_LEVELS);
}

static void multi_level_round(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    find_round(shape, TA_MOST_LEVELS, rank, index, round);
}

const ta_round_ops ta_multi_level_rounds = {multi_level_rounds, multi_level_round};

static int rounds_across(const ta_exchange_shape *shape)
{
    return across_count(shape, shape->nodes);
}

static void round_across(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    path p = find_path(shape, 1, rank);
    across(shape, &p, index, round);
}

const ta_round_ops ta_two_level_across = {rounds_across, round_across};
