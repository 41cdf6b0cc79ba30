/* Pairs of ranks for the probe: see pairs.h. */
#include "pairs.h"

/* How many of those that share this rank's unit (node or package) are before it. */
static int number_in(const int *unit_of, int rank)
{
    int before = 0;
    for (int other = 0; other < rank; ++other)
        before += unit_of[other] == unit_of[rank];
    return before;
}

/* The rank of this number in a unit, or -1. */
static int rank_at(const int *unit_of, int ranks, int unit, int number)
{
    for (int rank = 0; rank < ranks; ++rank)
        if (unit_of[rank] == unit && number-- == 0)
            return rank;
    return -1;
}

static int node_of_package(const ta_cluster *c, int package)
{
    return c->node_of[rank_at(c->package_of, c->ranks, package, 0)];
}

/* Packages of a node in pairs, in the order of their numbers: the other one of a pair, or -1. */
static int package_beside(const ta_cluster *c, int own)
{
    int node = node_of_package(c, own), index = 0;
    for (int package = 0; package < own; ++package)
        index += node_of_package(c, package) == node;
    int step = index % 2 ? -1 : 1;
    for (int package = own + step; package >= 0 && package < c->packages; package += step)
        if (node_of_package(c, package) == node)
            return package;
    return -1;
}

int ta_pairs_by_package(const ta_cluster *c)
{
    int together = 0, apart = 0;
    for (int rank = 0; c->package_of && rank < c->ranks; ++rank)
        for (int other = 0; other < rank; ++other) {
            int a = c->package_of[rank], b = c->package_of[other];
            if (c->node_of[other] != c->node_of[rank] || a < 0 || b < 0)
                continue;
            together |= a == b;
            apart |= a != b;
        }
    return together && apart;
}

static int partner_of(const ta_cluster *c, int by_package, int rank, ta_level_kind level, int alone)
{
    const int *unit_of = by_package ? c->package_of : c->node_of;
    int unit = unit_of[rank];
    if (unit < 0 || (level == TA_LEVEL_PACKAGE && !by_package))
        return -1;
    int number = number_in(unit_of, rank);
    int inside = level == TA_LEVEL_PACKAGE || (level == TA_LEVEL_NODE && !by_package);
    if (alone && number > inside)
        return -1;
    if (inside)
        return rank_at(unit_of, c->ranks, unit, number ^ 1);
    int beside = level == TA_LEVEL_NODE ? package_beside(c, unit) : unit ^ 1;
    return beside < 0 ? -1 : rank_at(unit_of, c->ranks, beside, number);
}

int ta_pairs_partner(const ta_cluster *c, int rank, ta_level_kind level, int alone)
{
    int by_package = level != TA_LEVEL_NETWORK && ta_pairs_by_package(c);
    return partner_of(c, by_package, rank, level, alone);
}

int ta_pairs_senders(const ta_cluster *c, ta_level_kind level)
{
    const int *unit_of = level == TA_LEVEL_PACKAGE ? c->package_of : c->node_of;
    int units = level == TA_LEVEL_PACKAGE ? c->packages : c->nodes, most = 0;
    int by_package = level != TA_LEVEL_NETWORK && ta_pairs_by_package(c);
    for (int unit = 0; unit < units; ++unit) {
        int here = 0;
        for (int rank = 0; rank < c->ranks; ++rank)
            here += unit_of[rank] == unit && partner_of(c, by_package, rank, level, 0) >= 0;
        most = here > most ? here : most;
    }
    return most;
}
