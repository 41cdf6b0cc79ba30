/* See capture_case.h. */
#include "capture_case.h"

#include <string.h>

decode_case capture_case(int which)
{
    decode_case c = case_plain();
    c.seed = 1000 + (uint64_t)which;
    c.plan.batch = 3;
    c.plan.query_heads = 6;
    c.plan.kv_heads = 2;
    c.plan.k_dim = 64;
    c.plan.v_dim = 32;
    c.plan.query_tokens = which % 2 ? 2 : 1;
    c.plan.kv_dtype = which % 3 == 0 ? TA_F32 : which % 3 == 1 ? TA_F16 : TA_BF16;
    c.lengths[0] = 40;
    c.lengths[1] = which == 2 || which == 4 ? 1500 : 7;
    c.lengths[2] = 23;
    if (which >= 3) /* matrix cores */
        c.plan.query_heads = 16;
    if (which == 4 || which == 5) {
        c.paged = true;
        c.page_tokens = 8;
        c.spare_pages = 2;
    }
    if (which == 5) {
        c.alibi = c.sinks = true;
        c.plan.softcap = 20;
        c.plan.window = 30;
    }
    c.own_workspace = which % 2;
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

decode_case capture_case_change(const decode_case *c, int round)
{
    decode_case other = *c;
    /* Several ranks lose as many tokens and pages each, so that their buffers keep their sizes. */
    int unit = c->ranks == 1 ? 1 : c->ranks * (c->paged ? c->page_tokens : 1);
    if (!c->alibi && !c->sinks) /* their numbers come from the seed, and belong to the plan */
        other.seed += 17u * (unsigned)round;
    for (int b = 0; b < c->plan.batch; ++b)
        other.lengths[b] -= round * (b + 1) * c->lengths[b] / 12 / unit * unit;
    other.spare_tokens += longest(c) - longest(&other);
    if (c->paged)
        other.spare_pages += pages(c) - pages(&other);
    return other;
}

void capture_case_replace(case_shard *from, case_shard *in)
{
    void *old[] = {in->q.memory, in->k.memory,   in->v.memory,  in->lse,
                   in->lengths,  in->page_table, in->out.memory};
    void *new[] = {from->q.memory, from->k.memory,   from->v.memory,  from->lse,
                   from->lengths,  from->page_table, from->out.memory};
    for (int i = 0; i < in->copy_count; ++i)
        for (int j = 0; j < 7; ++j)
            if (in->copies[i].host == old[j])
                memcpy(old[j], new[j], in->copies[i].bytes);
}
