/* The two-level exchange. Inside each node the heads are scattered over its ranks; then the ranks
 * with the same heads on all nodes, a lane, merge them in a tree of their own, so that every lane's
 * adapter works at once and a node's heads leave it only once; then each node gathers its lanes.
 *
 * Nodes may differ: there are as many lanes as the smallest node has ranks. The ranks beyond them
 * on larger nodes first fold into a lane, and get the result from it in the end. exchange.c lists
 * and runs it. */
#include "kinds.h"

/* Several nodes with several ranks on each: otherwise it is one of the flat exchanges. */
int ta_two_level_supports(const ta_exchange_shape *shape)
{
    return shape->nodes && shape->nodes->count > 1 && shape->nodes->most > 1;
}

/* The rounds of each phase, in their order. */
typedef struct phases {
    int fold, scatter, across, gather, unfold;
} phases;

static phases make_phases(const ta_exchange_shape *shape)
{
    const ta_nodes *n = shape->nodes;
    int extras = (n->most - n->lanes + n->lanes - 1) / n->lanes;
    int to_root = shape->placement == TA_PLACE_ROOT;
    return (phases){
        .fold = extras,
        .scatter = ta_folded_count(n->lanes),
        .across = to_root ? ta_binomial_count(n->count) : ta_folded_count(n->count),
        .gather = to_root ? n->lanes : ta_folded_count(n->lanes),
        .unfold = to_root ? 0 : extras,
    };
}

static int rounds(const ta_exchange_shape *shape)
{
    phases p = make_phases(shape);
    return p.fold + p.scatter + p.across + p.gather + p.unfold;
}

static int rank_of(const ta_nodes *n, int node, int local)
{
    return n->ranks[n->first[node] + local];
}

/* From the numbers of a block to ranks: on this node, or on the same lane of another. */
static void to_ranks(const ta_nodes *n, int node, int local, int across, ta_round *round)
{
    if (round->to >= 0)
        round->to = across ? rank_of(n, round->to, local) : rank_of(n, node, round->to);
    if (round->from >= 0)
        round->from = across ? rank_of(n, round->from, local) : rank_of(n, node, round->from);
}

/* Extra rank number lanes + e of a node belongs to lane e % lanes, in round e / lanes. */
static void fold(const ta_exchange_shape *shape, int node, int local, int index, int back,
                 ta_round *round)
{
    const ta_nodes *n = shape->nodes;
    int here = n->first[node + 1] - n->first[node], lane = local % n->lanes;
    int extra = (index + 1) * n->lanes + lane;
    if (extra >= here || (local >= n->lanes && local != extra))
        return;
    int other = local == extra ? lane : extra, sends = (local == extra) != back;
    round->phase = back ? "to the node's other ranks" : "fold the node's other ranks";
    round->replaces = back;
    if (sends) {
        round->to = rank_of(n, node, other);
        round->given = (ta_heads){0, shape->heads};
    } else {
        round->from = rank_of(n, node, other);
        round->kept = (ta_heads){0, shape->heads};
    }
}

static void scatter(const ta_exchange_shape *shape, int node, int local, int index, ta_round *round)
{
    round->phase = "scatter inside nodes";
    if (local >= shape->nodes->lanes)
        return;
    ta_halving_block(shape->nodes->lanes, local, index, shape->heads, round);
    to_ranks(shape->nodes, node, local, 0, round);
}

static void across(const ta_exchange_shape *shape, int node, int local, int index, ta_round *round)
{
    const ta_nodes *n = shape->nodes;
    round->phase = "between nodes";
    if (local >= n->lanes)
        return;
    ta_heads part = ta_parts(shape->heads, n->lanes, local, local + 1);
    if (shape->placement == TA_PLACE_ROOT)
        ta_binomial_block(n->count, node, index, n->node_of[shape->root], part, round);
    else
        ta_doubling_block(n->count, node, index, part, round);
    to_ranks(n, node, local, 1, round);
}

/* Every lane of the root's node but the root itself gives it its part. */
static void collect(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    const ta_nodes *n = shape->nodes;
    int giver = rank_of(n, n->node_of[shape->root], index);
    ta_heads part = ta_parts(shape->heads, n->lanes, index, index + 1);
    round->replaces = 1;
    if (giver == shape->root)
        return;
    if (rank == giver) {
        round->to = shape->root;
        round->given = part;
    } else if (rank == shape->root) {
        round->from = giver;
        round->kept = part;
    }
}

static void gather(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    const ta_nodes *n = shape->nodes;
    int local = n->local_of[rank];
    round->phase = "gather inside nodes";
    if (shape->placement == TA_PLACE_ROOT) {
        collect(shape, rank, index, round);
    } else if (local < n->lanes) {
        ta_gather_block(n->lanes, local, index, shape->heads, round);
        to_ranks(n, n->node_of[rank], local, 0, round);
    }
}

static void round_of(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    phases p = make_phases(shape);
    int node = shape->nodes->node_of[rank], local = shape->nodes->local_of[rank];
    if (index < p.fold) {
        fold(shape, node, local, index, 0, round);
        return;
    }
    index -= p.fold;
    if (index < p.scatter) {
        scatter(shape, node, local, index, round);
        return;
    }
    index -= p.scatter;
    if (index < p.across) {
        across(shape, node, local, index, round);
        return;
    }
    index -= p.across;
    if (index < p.gather)
        gather(shape, rank, index, round);
    else
        fold(shape, node, local, index - p.gather, 1, round);
}

const ta_round_ops ta_two_level_rounds = {rounds, round_of};

static int rounds_across(const ta_exchange_shape *shape)
{
    return make_phases(shape).across;
}

static void round_across(const ta_exchange_shape *shape, int rank, int index, ta_round *round)
{
    across(shape, shape->nodes->node_of[rank], shape->nodes->local_of[rank], index, round);
}

const ta_round_ops ta_two_level_across = {rounds_across, round_across};
