/* The conformance suite, of groups whose ranks address each other's memory (group/shared.h,
 * group/signals.h): memory of all ranks and of some of them, words by which they tell each other
 * that something is there, and fault records that go with them. Direct exchanges stand on it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "conformance.h"
#include "group/signals.h"

#define BYTES (24 * (size_t)TA_SHARED_LINE) /* of a rank, in each of two sets */
#define ROUNDS 6

/* Some ranks of the group, this one among them. */
typedef struct sharers {
    int *ranks, count, index;
    ta_signals *signals;
    ta_shared *slab;
} sharers;

static unsigned char *part_of(const sharers *s, int round, int index)
{
    size_t set = (size_t)(round & 1);
    return (unsigned char *)s->slab->memory + (set * (size_t)s->count + (size_t)index) * BYTES;
}

/* In which round which of them tells of a fault. */
static ta_status told(int round, int index)
{
    return round % 3 == 1 && index == 0 ? TA_ERR_INVALID : TA_OK;
}

static ta_status open_shared(conformance *c, sharers *s)
{
    ta_group *g = c->group;
    ta_signals *again = NULL;
    size_t bytes = 2 * (size_t)s->count * BYTES;
    TA_TRY(ta_signals_open(g, s->ranks, s->count, &s->signals));
    CONFORM(c, s->signals->count == s->count && s->signals->index == s->index);
    TA_TRY(ta_signals_open(g, s->ranks, s->count, &again));
    CONFORM(c, again == s->signals);
    TA_TRY(g->ops->share(g, s->ranks, s->count, bytes, &s->slab));
    CONFORM(c, s->slab->bytes >= bytes && (uintptr_t)s->slab->memory % TA_SHARED_LINE == 0);
    for (size_t i = 0; i < BYTES; ++i) /* its own parts: others may have filled theirs by now */
        CONFORM(c, part_of(s, 0, s->index)[i] == 0 && part_of(s, 1, s->index)[i] == 0);
    return TA_OK;
}

static ta_status one_round(conformance *c, sharers *s, int round)
{
    ta_fault own = ta_fault_of(told(round, s->index), c->group->rank);
    pattern_fill(part_of(s, round, s->index), BYTES, c->group->rank, round);
    ta_signal_ready(s->signals, &own);
    for (int i = 0; i < s->count; ++i) {
        if (i != s->index)
            TA_TRY(ta_await_ready(s->signals, i));
        snprintf(c->what, sizeof c->what, "round %d, rank %d of %d that share memory", round,
                 s->ranks[i], s->count);
        CONFORM(c, pattern_is(part_of(s, round, i), BYTES, s->ranks[i], round));
        CONFORM(c, ta_signal_fault(s->signals, i)->status == told(round, i));
    }
    return TA_OK;
}

/* The first of them is done with the memory before the others are. */
static ta_status leave_one_by_one(conformance *c, sharers *s, int last_round)
{
    ta_fault none = ta_fault_of(TA_OK, c->group->rank);
    if (s->index == 0) {
        s->slab->release(s->slab);
        s->slab = NULL;
    }
    ta_signal_merged(s->signals, &none);
    if (s->index == 0)
        return TA_OK;
    TA_TRY(ta_await_merged(s->signals, 0));
    CONFORM(c, pattern_is(part_of(s, last_round, 0), BYTES, s->ranks[0], last_round));
    return TA_OK;
}

/* Of all ranks, or of every second one from `first` on. */
static ta_status share_among(conformance *c, int first, int step)
{
    sharers s = {.ranks = calloc((size_t)c->group->size, sizeof(int))};
    ta_status status = s.ranks ? TA_OK : ta_fail(TA_ERR_NO_MEMORY, "no memory for ranks");
    for (int rank = first; rank < c->group->size && status == TA_OK; rank += step) {
        if (rank == c->group->rank)
            s.index = s.count;
        s.ranks[s.count++] = rank;
    }
    snprintf(c->what, sizeof c->what, "%d that share memory", s.count);
    if (status == TA_OK)
        status = open_shared(c, &s);
    for (int round = 0; round < ROUNDS && status == TA_OK; ++round)
        status = one_round(c, &s, round);
    if (status == TA_OK)
        status = leave_one_by_one(c, &s, ROUNDS - 1);
    if (s.slab)
        s.slab->release(s.slab);
    free(s.ranks);
    return status;
}

ta_status conformance_shared(conformance *c)
{
    const ta_group_ops *ops = c->group->ops;
    snprintf(c->what, sizeof c->what, "memory that is shared");
    CONFORM(c, !ops->share == !ops->await && !ops->share == !ops->wake);
    if (!ops->share)
        return TA_OK;
    TA_TRY(share_among(c, 0, 1));
    TA_TRY(share_among(c, c->group->rank % 2, 2));
    return share_among(c, 0, 1); /* with the signals that there are */
}
