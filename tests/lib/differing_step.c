/* Steps that are not the same on all ranks: see differing_step.h. */
#include "differing_step.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "device/device.h"
#include "exchange/kinds.h"
#include "expect.h"
#include "group/group.h"
#include "options.h"
#include "small_step.h"

#define EXCHANGES (TA_EXCHANGE_KINDS - 1) /* without TA_EXCHANGE_AUTO */
#define TRIES (3 * EXCHANGES * 3 * DIFFERING_KINDS * 3)

/* What the error names. */
static const char *const named[DIFFERING_KINDS] = {
    [LOCAL_LENGTHS] = "kv.lengths", [ONE_AHEAD] = "kv.lengths",     [OTHER_TAG] = "the tag",
    [OTHER_BOUNDS] = "kv.bounds",   [OTHER_PLAN] = "the plan",      [OTHER_QUERY] = "the query",
    [OTHER_STARTS] = "call.starts", [OTHER_TOKENS] = "call.tokens", [OTHER_WINDOW] = "call.window",
    [OTHER_BATCH] = "call.batch",   [FEWER_TOKENS] = "call.tokens", [STALE_TOKENS] = "call.tokens",
    [TWO_TOTALS] = "call.tokens"};

typedef struct trial {
    const differing_step *d;
    ta_group *group;
    ta_device *device;
    void *stream;
    small_step step;
    ta_plan *plans[2];
} trial;

/* Is the result known when the call returns? */
static bool at_once(const trial *t)
{
    return !t->group->device;
}

/* A rank without output need not hear of it. */
static bool must_hear(const trial *t)
{
    int rank = t->step.rank;
    int first = 0, count = 0;
    if (t->d->placement == TA_PLACE_ROOT)
        return rank == t->d->root;
    if (t->d->placement == TA_PLACE_ALL)
        return true;
    (void)ta_head_range(SMALL_HEADS, t->step.ranks, rank, &first, &count);
    return count > 0;
}

static void set_lengths(trial *t, bool wrong)
{
    small_step *s = &t->step;
    small_whole whole;
    small_step_whole(&whole);
    for (int b = 0; b < SMALL_BATCH; ++b) {
        s->lengths[b] = whole.lengths[b];
        if (wrong && t->d->kind == LOCAL_LENGTHS)
            s->lengths[b] = (whole.lengths[b] + s->ranks - 1 - s->rank) / s->ranks;
    }
    if (wrong && t->d->kind == ONE_AHEAD && s->rank == t->d->who)
        ++s->lengths[0];
}

/* Do messages have other sizes on ranks that differ? */
static bool differs_in_size(const trial *t)
{
    return t->d->kind >= OTHER_BATCH;
}

/* A call of so many query tokens: uniform if they are all. */
static void set_total(small_step *s, int32_t tokens)
{
    const int32_t all = SMALL_BATCH * SMALL_QUERY_TOKENS;
    small_step_ragged(s, tokens);
    for (int b = 1; b <= SMALL_BATCH; ++b)
        s->starts[b] = b * SMALL_QUERY_TOKENS < tokens ? b * SMALL_QUERY_TOKENS : tokens;
    if (tokens < all)
        return;
    s->call.tokens = 0;
    s->call.starts = NULL;
}

/* What this rank gives: as all others, or wrong. */
static void set_step(trial *t, bool wrong)
{
    small_step *s = &t->step;
    bool differs = wrong && s->rank == t->d->who;
    set_lengths(t, wrong);
    if (t->d->kind == OTHER_TAG)
        s->call.tag = differs ? 12 : 11;
    for (int r = 0; r < s->ranks; ++r)
        s->bounds[r] = r;
    s->bounds[s->ranks] = SMALL_TOKENS;
    if (differs && t->d->kind == OTHER_BOUNDS)
        s->bounds[s->ranks] += 3; /* the few bits of `what` show it on 2, 3, 4, 5 and 8 ranks */
    if (t->d->kind == OTHER_STARTS) {
        small_step_ragged(s, 3);
        s->starts[1] = differs ? 1 : 2;
        s->starts[2] = 3;
    }
    if (t->d->kind == OTHER_TOKENS) {
        s->call.tokens = 0;
        s->call.starts = NULL;
        if (differs)
            small_step_ragged(s, SMALL_BATCH * SMALL_QUERY_TOKENS);
    }
    if (t->d->kind == OTHER_WINDOW)
        s->call.window = differs ? 3 : 0;
    if (differs_in_size(t)) {
        bool fewer =
            t->d->kind == FEWER_TOKENS ? differs : wrong && t->d->kind == STALE_TOKENS && !differs;
        set_total(s, SMALL_BATCH * SMALL_QUERY_TOKENS - fewer);
        if (wrong && t->d->kind == TWO_TOTALS)
            set_total(s, differs ? 1 : 3);
        s->call.batch = differs && t->d->kind == OTHER_BATCH ? SMALL_BATCH - 1 : 0;
    }
    if (t->d->kind == OTHER_QUERY)
        s->query[5] = differs ? 0.5f : 0.25f;
}

/* This rank's heads of the query, where they are among all. */
static void scatter_query(small_step *s)
{
    int first = 0, count = 0;
    (void)ta_head_range(SMALL_HEADS, s->ranks, s->rank, &first, &count);
    s->config.query_placement = TA_PLACE_HEADS;
    s->q.data = (float *)s->q.data + first * SMALL_K_DIM;
    s->q.head_stride = SMALL_K_DIM;
    s->q.token_stride = SMALL_HEADS * SMALL_K_DIM;
    s->q.batch_stride = SMALL_QUERY_TOKENS * SMALL_HEADS * SMALL_K_DIM;
}

static ta_status prepare(trial *t)
{
    small_step *s = &t->step;
    small_step_init(s, ta_group_rank(t->group), ta_group_size(t->group));
    s->config.algorithm = t->d->algorithm;
    s->config.exchange = t->d->exchange;
    s->config.out_placement = t->d->placement;
    s->config.out_root = t->d->placement == TA_PLACE_ROOT ? t->d->root : 0;
    s->config.cluster = t->d->cluster;
    s->config.check = t->d->kind == OTHER_QUERY;
    if (t->d->reproducible) {
        s->config.reproducible_tile = 16;
        s->config.map.block = 16;
    }
    if (t->d->kind == OTHER_BOUNDS) {
        s->config.map.kind = TA_SHARD_CONTIGUOUS;
        s->config.map.block = 0;
        s->kv.bounds = s->bounds;
    }
    TA_TRY(small_step_to_device(s, t->device));
    if (t->d->scattered)
        scatter_query(s);
    for (int i = 0; i < 2; ++i)
        TA_TRY(ta_plan_create(t->group, t->device, &s->config, &t->plans[i]));
    return TA_OK;
}

static ta_status run(trial *t, ta_plan *plan)
{
    TA_TRY(small_step_fill(&t->step));
    return small_step_queue(&t->step, plan, t->stream);
}

/* Who differs, and in what. */
static ta_status check_sentence(const trial *t)
{
    char who[20];
    const char *said = ta_last_error();
    snprintf(who, sizeof who, t->d->who == 0 ? "ranks %d and" : " %d ", t->d->who);
    RANK_EXPECT(strstr(said, named[t->d->kind]));
    RANK_EXPECT(strstr(said, " differ in "));
    RANK_EXPECT(t->d->kind == LOCAL_LENGTHS || strstr(said, who));
    return TA_OK;
}

static ta_status expect_difference(trial *t, ta_plan *plan)
{
    ta_status status = run(t, plan), fetched = TA_OK;
    if (at_once(t) && status != TA_OK)
        TA_TRY(check_sentence(t));
    fetched = small_step_fetch(&t->step, t->stream);
    bool may_wait = differs_in_size(t) || t->d->kind == OTHER_TOKENS;
    if (!at_once(t) && may_wait && status == TA_ERR_MISMATCH) {
        TA_TRY(check_sentence(t)); /* it waited for the others before it would send its own */
    } else if (!at_once(t)) {
        TA_TRY(status);
        status = ta_plan_check(plan);
        if (status != TA_OK)
            TA_TRY(check_sentence(t));
    }
    TA_TRY(fetched);
    RANK_EXPECT(status == TA_ERR_MISMATCH || (status == TA_OK && !must_hear(t)));
    RANK_EXPECT(small_step_untouched(&t->step));
    RANK_EXPECT(ta_plan_check(plan) == TA_OK); /* it was told once */
    return TA_OK;
}

static ta_status expect_right(trial *t, ta_plan *plan)
{
    TA_TRY(run(t, plan));
    TA_TRY(small_step_fetch(&t->step, t->stream));
    TA_TRY(ta_plan_check(plan));
    bool known = t->d->kind != OTHER_BOUNDS && t->d->kind != OTHER_QUERY &&
                 t->d->kind != OTHER_STARTS && !t->d->reproducible;
    RANK_EXPECT(!known || t->d->placement != TA_PLACE_ALL || small_step_right(&t->step));
    return TA_OK;
}

/* Calls of all sizes, one after the other, whose results are looked at where they are known. */
static ta_status change_sizes(trial *t, ta_plan *plan)
{
    for (int32_t tokens = 1; tokens <= SMALL_BATCH * SMALL_QUERY_TOKENS; ++tokens) {
        set_total(&t->step, tokens);
        TA_TRY(run(t, plan));
        TA_TRY(small_step_fetch(&t->step, t->stream));
        TA_TRY(ta_plan_check(plan));
    }
    return expect_right(t, plan);
}

ta_status differing_step_rank(ta_group *group, ta_device *device, const differing_step *d,
                              void *stream)
{
    trial t = {.d = d, .group = group, .device = device, .stream = stream};
    TA_TRY(prepare(&t));
    int swapped = d->kind == OTHER_PLAN && t.step.rank == d->who;
    set_step(&t, false);
    TA_TRY(expect_right(&t, t.plans[0]));
    set_step(&t, true);
    for (int i = 0; i < 2; ++i)
        TA_TRY(expect_difference(&t, t.plans[i ^ swapped]));
    set_step(&t, false);
    for (int i = 0; i < 2; ++i)
        TA_TRY(expect_right(&t, t.plans[i]));
    if (differs_in_size(&t))
        TA_TRY(change_sizes(&t, t.plans[1]));
    for (int i = 0; i < 2; ++i)
        ta_plan_destroy(t.plans[i]);
    small_step_release(&t.step);
    return TA_OK;
}

/* Does only the root hear, and in host memory the group notice sizes that differ? test_mismatch.c
 * has these. */
static int is_noticed_by_group(const differing_step *d, int device_memory)
{
    return d->kind >= OTHER_BATCH && d->placement == TA_PLACE_ROOT && !device_memory &&
           d->algorithm == TA_ALGORITHM_TREE && d->exchange != TA_EXCHANGE_ALL_GATHER &&
           d->exchange != TA_EXCHANGE_ALL_REDUCE;
}

/* Can it be, on so many ranks? */
static int possible(const differing_step *d, int ranks, int device_memory)
{
    if (is_noticed_by_group(d, device_memory))
        return 0;
    if (d->scattered && (d->kind == OTHER_QUERY || d->exchange != TA_EXCHANGE_DOUBLING))
        return 0; /* a query that is in one place is compared with nothing */
    if (d->algorithm != TA_ALGORITHM_TREE)
        return d->exchange == TA_EXCHANGE_DOUBLING && !d->reproducible;
    if (d->exchange == TA_EXCHANGE_DOUBLING)
        return d->placement != TA_PLACE_ROOT;
    if (d->exchange == TA_EXCHANGE_TWO_LEVEL)
        return ranks > 2;
    if (d->exchange == TA_EXCHANGE_MULTI_LEVEL)
        return 0;                          /* two levels and more are the same to a fault */
    if (d->exchange == TA_EXCHANGE_DIRECT) /* GPUs that are in different plans do not meet */
        return options_direct() && (!device_memory || d->kind != OTHER_PLAN);
    return d->exchange != TA_EXCHANGE_ALL_REDUCE || !device_memory;
}

int differing_step_get(int i, int ranks, int device_memory, differing_step *d)
{
    static const ta_algorithm algorithms[] = {TA_ALGORITHM_TREE, TA_ALGORITHM_RING_KV,
                                              TA_ALGORITHM_RING_Q};
    static const ta_placement placements[] = {TA_PLACE_ALL, TA_PLACE_ROOT, TA_PLACE_HEADS};
    int seen = 0;
    for (int n = 0; n < TRIES; ++n) {
        int kind = n % DIFFERING_KINDS, place = n / DIFFERING_KINDS;
        *d = (differing_step){.kind = (differing_kind)kind,
                              .placement = placements[place % 3],
                              .exchange = (ta_exchange)(1 + place / 3 % EXCHANGES),
                              .algorithm = algorithms[place / (3 * EXCHANGES) % 3],
                              .reproducible = place / (9 * EXCHANGES) == 1,
                              .scattered = place / (9 * EXCHANGES) == 2,
                              .root = ranks - 1,
                              .who = n % (ranks - 1)};
        if (d->reproducible) /* rank 0 has room for no more tokens */
            d->who = ranks - 1;
        if (d->reproducible && kind != ONE_AHEAD)
            continue;
        if (!possible(d, ranks, device_memory) || seen++ < i)
            continue;
        if (d->algorithm != TA_ALGORITHM_TREE)
            d->exchange = TA_EXCHANGE_AUTO;
        return 1;
    }
    return 0;
}
