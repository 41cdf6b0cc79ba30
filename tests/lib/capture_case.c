/* See capture_case.h. */
#include "capture_case.h"

#include <stdlib.h>
#include <string.h>

/* Those of attend_fma and attend_mma. */
static void choose_shared(int which, decode_case *c)
{
    c->plan.kv_dtype = which % 3 == 0 ? TA_F32 : which % 3 == 1 ? TA_F16 : TA_BF16;
    c->plan.k_dim = 64;
    c->plan.v_dim = 32;
    c->lengths[1] = which == 2 || which == 4 ? 1500 : 7;
    if (which < 4) { /* not for the direct kernels, whose caches are aligned */
        c->k.strides_given = true;
        c->k.pad_token = 1;
    }
    if (which >= 3) /* matrix cores */
        c->plan.query_heads = 16;
    if (which == 4 || which == 5) {
        c->paged = true;
        c->page_tokens = 8;
        c->spare_pages = 2;
    }
    if (which == 5) {
        c->alibi = c->sinks = true;
        c->plan.softcap = 20;
        c->plan.window = 30;
    }
}

/* Long enough that sequences are cut, for blocks that share them. */
static void choose_direct(int which, decode_case *c)
{
    c->plan.kv_dtype = c->plan.query_dtype = which == CAPTURE_DIRECT_PAGED ? TA_F16 : TA_BF16;
    c->plan.k_dim = c->plan.v_dim = which == CAPTURE_DIRECT_PAGED ? 64 : 128;
    c->lengths[0] = 300;
    c->lengths[1] = 1100;
    c->lengths[2] = 90;
    if (which == CAPTURE_DIRECT_PAGED) {
        c->plan.query_heads = 24;
        c->plan.window = 700;
    }
    if (which == CAPTURE_DIRECT_FMA) {
        c->plan.kv_dtype = c->plan.query_dtype = TA_F32;
        c->plan.k_dim = c->plan.v_dim = 80;
    }
    if (which == CAPTURE_DIRECT_FMA_PAGED) {
        c->plan.query_dtype = TA_F32;
        c->plan.k_dim = 192;
        c->plan.window = 700;
    }
    if (which == CAPTURE_LATENT) {
        c->plan.k_dim = 576;
        c->plan.v_dim = 512;
        c->v_in_k = true;
        c->plan.query_heads = 12;
        c->plan.kv_heads = 1;
        c->lengths[1] = 500;
    }
    if (which == CAPTURE_DIRECT_PAGED || which == CAPTURE_DIRECT_FMA_PAGED ||
        which == CAPTURE_NARROW_SELECTED) {
        c->paged = true;
        c->page_tokens = 16;
        c->spare_pages = 2;
    }
}

/* What else comes with the cache or the call. */
static void add_features(int which, decode_case *c)
{
    if (which == CAPTURE_NARROW || which == CAPTURE_NARROW_SELECTED) {
        c->plan.kv_dtype = which == CAPTURE_NARROW ? TA_E4M3 : TA_E5M2;
        c->k_scale = c->v_scale = CASE_SCALES_TOKENS;
    }
    if (which == CAPTURE_SELECTED || which == CAPTURE_NARROW_SELECTED) {
        c->selected = 200;
        c->selected_each = which == CAPTURE_SELECTED;
        c->plan.algorithm = TA_ALGORITHM_TREE; /* a plan can't know, and rings of K have no lists */
    }
    if (which == CAPTURE_PREFIXES || which == CAPTURE_NARROW_SELECTED) {
        c->prefixes = true;
        c->group[1] = 0;
        c->group[2] = 2;
        c->prefix[0] = c->prefix[1] = 240;
        c->prefix[2] = 33;
    }
}

decode_case capture_case(int which)
{
    decode_case c = case_plain();
    c.seed = 1000 + (uint64_t)which;
    c.plan.batch = 3;
    c.plan.query_heads = 6;
    c.plan.kv_heads = 2;
    c.plan.query_tokens = which % 2 ? 2 : 1;
    c.lengths[0] = 40;
    c.lengths[2] = 23;
    c.own_workspace = which % 2;
    if (which < CAPTURE_DIRECT) {
        choose_shared(which, &c);
    } else {
        choose_direct(which, &c);
        add_features(which, &c);
    }
    return c;
}

/* Of the fullest rank: its tokens of a sequence are dealt one by one. */
static int share(const decode_case *c, int sequence)
{
    return (c->lengths[sequence] + c->ranks - 1) / c->ranks;
}

static int longest(const decode_case *c)
{
    int most = 0;
    for (int b = 0; b < c->plan.batch; ++b)
        most = share(c, b) > most ? share(c, b) : most;
    return most;
}

static int pages(const decode_case *c)
{
    int count = 0;
    for (int b = 0; b < c->plan.batch; ++b)
        count += (share(c, b) + c->page_tokens - 1) / c->page_tokens;
    return count;
}

/* Prefixes that their groups' first sequences still have, and every other time the second sequence
 * in the other group. */
static void change_prefixes(const decode_case *c, int round, decode_case *other)
{
    int second = round % 2 ? 1 : c->group[1];
    other->group[1] = second;
    other->group[2] = second == 1 ? 1 : 2;
    for (int b = 0; b < c->plan.batch; ++b) {
        int first = other->group[b];
        other->prefix[b] = other->lengths[first] * (round + first + 1) / 9;
    }
}

decode_case capture_case_change(const decode_case *c, int round)
{
    decode_case other = *c;
    /* Several ranks lose as many tokens and pages each, so that their buffers keep their sizes. */
    int unit = c->ranks == 1 ? 1 : c->ranks * (c->paged ? c->page_tokens : 1);
    /* Numbers of ALiBi and sinks come from the seed, and belong to the plan. Scales and lists have
     * the same strides for all seeds that are so far apart. */
    if (!c->alibi && !c->sinks)
        other.seed += 102u * (unsigned)round;
    for (int b = 0; b < c->plan.batch; ++b)
        other.lengths[b] -= round * (b + 1) * c->lengths[b] / 12 / unit * unit;
    if (c->prefixes && round > 0)
        change_prefixes(c, round, &other);
    other.spare_tokens += longest(c) - longest(&other);
    if (c->paged)
        other.spare_pages += pages(c) - pages(&other);
    return other;
}

/* A part of a shard's memory. */
typedef struct part {
    void *memory;
    size_t count;
} part;

enum { PARTS = 12 };

static void find_parts(const case_shard *s, part *parts)
{
    size_t groups = (size_t)s->call.prefix_groups;
    const part all[PARTS] = {
        {s->q.memory, (size_t)s->q.count},    {s->k.memory, (size_t)s->k.count},
        {s->v.memory, (size_t)s->v.count},    {s->out.memory, (size_t)s->out.count},
        {s->lse, (size_t)s->lse_count},       {s->lengths, s->lengths_count},
        {s->page_table, s->page_table_count}, {s->k_scales, s->k_scales_count},
        {s->v_scales, s->v_scales_count},     {s->selected, s->selected_count},
        {s->prefix_starts, groups},           {s->prefix_lengths, groups},
    };
    memcpy(parts, all, sizeof all);
}

void capture_case_replace(case_shard *from, case_shard *in)
{
    part new[PARTS], old[PARTS];
    find_parts(from, new);
    find_parts(in, old);
    for (int j = 0; j < PARTS; ++j) {
        if (new[j].count != old[j].count)
            abort(); /* the case is no change of the other */
        for (int i = 0; i < in->copy_count; ++i)
            if (in->copies[i].host == old[j].memory)
                memcpy(old[j].memory, new[j].memory, in->copies[i].bytes);
    }
}
