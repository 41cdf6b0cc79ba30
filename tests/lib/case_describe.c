/* A decode case in one line, for the message of a failing test: see case.h. */
#include "case.h"

#include "base/text.h"

static const char *const dtype_names[] = {"-",    "f32",  "f16",      "bf16",
                                          "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz"};
static const char *const scales_names[] = {"none", "tensor", "heads", "tokens"};
static const char *const placement_names[] = {"all", "root", "heads"};
static const char *const special_names[] = {"none",      "NaN query",    "NaN key",
                                            "NaN value", "infinite key", "infinite value"};

static void describe_layout(ta_text *t, const char *name, const case_layout *layout)
{
    if (layout->strides_given)
        ta_text_add(t, " %s=order%d+%d+%d+%d@%d", name, layout->order, layout->pad_head,
                    layout->pad_token, layout->pad_batch, layout->offset);
}

static void describe_options(ta_text *t, const decode_case *c)
{
    const ta_plan_config *p = &c->plan;
    ta_text_add(t, " %s window=%d scale=%g softcap=%g%s%s",
                p->mask == TA_MASK_FULL ? "full" : "causal", (int)p->window, (double)p->scale,
                (double)p->softcap, c->alibi ? " alibi" : "", c->sinks ? " sinks" : "");
    ta_text_add(t, " query=%s", placement_names[p->query_placement]);
    if (p->query_placement == TA_PLACE_ROOT)
        ta_text_add(t, ":%d", p->query_root);
    ta_text_add(t, " out=%s", placement_names[p->out_placement]);
    if (p->out_placement == TA_PLACE_ROOT)
        ta_text_add(t, ":%d", p->out_root);
    if (p->exchange)
        ta_text_add(t, " exchange=%d", (int)p->exchange);
    if (p->reproducible_tile)
        ta_text_add(t, " reproducible=%d", (int)p->reproducible_tile);
    if (p->weights == TA_WEIGHTS_ROUNDED)
        ta_text_add(t, " rounded-weights");
    if (c->k_scale || c->v_scale)
        ta_text_add(t, " scales=%s,%s", scales_names[c->k_scale], scales_names[c->v_scale]);
    if (c->value_binades)
        ta_text_add(t, " binades=%d", c->value_binades);
    if (c->far_keys)
        ta_text_add(t, " far-keys");
    if (c->special)
        ta_text_add(t, " special=%s", special_names[c->special]);
}

void case_describe(const decode_case *c, char *text, size_t capacity)
{
    const ta_plan_config *p = &c->plan;
    ta_text t;
    ta_text_init(&t, text, capacity);
    ta_text_add(&t, "seed=%llu ranks=%d threads=%d simd=%s kv=%s q=%s out=%s",
                (unsigned long long)c->seed, c->ranks, c->threads, *c->simd ? c->simd : "best",
                dtype_names[p->kv_dtype], dtype_names[p->query_dtype], dtype_names[p->out_dtype]);
    if (c->device[0])
        ta_text_add(&t, " devices=%s,%s", c->device[0], c->device[1]);
    ta_text_add(&t, " heads=%d/%d dims=%d/%d query_tokens=%d lengths=", (int)p->query_heads,
                (int)p->kv_heads, (int)p->k_dim, (int)p->v_dim, (int)p->query_tokens);
    for (int b = 0; b < p->batch; ++b)
        ta_text_add(&t, "%s%d", b ? "," : "", (int)c->lengths[b]);
    if (c->ragged)
        for (int b = 0; b < p->batch; ++b)
            ta_text_add(&t, "%s%d", b ? "," : " ragged=", (int)c->tokens[b]);
    if (c->spare_batch || c->spare_call_tokens >= 0)
        ta_text_add(&t, " plan-batch+%d call-tokens+%d", c->spare_batch, c->spare_call_tokens);
    ta_text_add(&t, "%s%s%s%s", c->call_window ? " call-window" : "",
                c->call_softcap ? " call-softcap" : "", c->call_alibi ? " call-alibi" : "",
                c->call_sinks ? " call-sinks" : "");
    if (c->selected)
        ta_text_add(&t, " selected=%d%s", (int)c->selected, c->selected_each ? ",each" : "");
    for (int b = 0; c->prefixes && b < p->batch; ++b)
        ta_text_add(&t, "%s%d:%d", b ? "," : " prefixes=", c->group[b], (int)c->prefix[b]);
    ta_text_add(&t, " %s block=%d bounds=%d",
                p->map.kind == TA_SHARD_WEIGHTED       ? "weighted"
                : p->map.kind == TA_SHARD_BLOCK_CYCLIC ? "cyclic"
                                                       : "contiguous",
                (int)p->map.block, (int)c->bounds);
    ta_text_add(&t, " algorithm=%d", (int)p->algorithm);
    describe_options(&t, c);
    if (c->paged)
        ta_text_add(&t, " page=%d+%d,%d", (int)c->page_tokens, (int)c->spare_pages,
                    c->orderly_pages);
    if (c->v_in_k)
        ta_text_add(&t, " v_in_k@%d", c->v_offset);
    describe_layout(&t, "Q", &c->q);
    describe_layout(&t, "K", &c->k);
    describe_layout(&t, "V", &c->v);
    describe_layout(&t, "O", &c->out);
    ta_text_add(&t, "%s%s", c->own_workspace ? " workspace" : "", c->want_lse ? "" : " no-lse");
}
