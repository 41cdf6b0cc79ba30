/* One layer, for tokens that every rank computes; see decoder_parts.h. With divided weights a rank
 * has its heads of Q, K and V and its columns of the MLP, and what comes back to the width of the
 * model is added up over the ranks, twice in a layer. */
#include <treeattn/collectives.h>

#include "common/machine.h"
#include "decoder_parts.h"

ta_status decoder_linear(decoder *d, const llama_matrix *w, const float *bias, const float *from,
                         int64_t rows, float *to)
{
    double start = machine_time_us();
    int status = d->ops->table->linear(d->ops, w, bias, from, rows, to);
    d->times.linear_us += machine_time_us() - start;
    return status == 0 ? TA_OK : TA_ERR_NO_MEMORY;
}

void layer_angles(decoder *d, const int32_t *positions, int64_t tokens)
{
    llama_rope_angles(&d->config->rope, d->config->head_dim, positions, tokens, d->cosines,
                      d->sines);
}

ta_status layer_project(decoder *d, const llama_layer *layer, const float *x, int64_t tokens)
{
    const llama_config *c = d->config;
    const llama_ops_table *ops = d->ops->table;
    int64_t dim = c->head_dim, heads = d->query_width / dim, kv_heads = d->key_width / dim;
    ops->norm(d->ops, x, layer->attention_norm, c->norm_epsilon, tokens, c->hidden, d->normed);
    ta_status status = decoder_linear(d, &layer->q, layer->q_bias, d->normed, tokens, d->q);
    if (status == TA_OK)
        status = decoder_linear(d, &layer->k, layer->k_bias, d->normed, tokens, d->k);
    if (status == TA_OK)
        status = decoder_linear(d, &layer->v, layer->v_bias, d->normed, tokens, d->v);
    if (status != TA_OK)
        return status;
    if (c->qk_norm) {
        ops->norm(d->ops, d->q, layer->q_norm, c->norm_epsilon, tokens * heads, dim, d->q);
        ops->norm(d->ops, d->k, layer->k_norm, c->norm_epsilon, tokens * kv_heads, dim, d->k);
    }
    ops->rope(d->ops, d->q, tokens, heads, dim, d->cosines, d->sines);
    ops->rope(d->ops, d->k, tokens, kv_heads, dim, d->cosines, d->sines);
    return TA_OK;
}

/* A step's time is that of attending and of the exchange. */
static ta_status attend(decoder *d, ta_plan *plan, const ta_kv *kv, const ta_call *call)
{
    ta_plan_stats before = TA_PLAN_STATS_INIT, after = TA_PLAN_STATS_INIT;
    ta_tensor q = {.data = d->query_width ? d->q : NULL};
    ta_tensor out = {.data = d->query_width ? d->attended : NULL};
    ta_status status = ta_plan_get_stats(plan, &before);
    if (status == TA_OK)
        status = ta_decode(plan, &q, kv, &out, NULL, call, NULL);
    if (status == TA_OK)
        status = ta_plan_get_stats(plan, &after);
    if (status != TA_OK)
        return status;
    double attended = 1e-3 * (double)(after.attend_ns - before.attend_ns);
    d->times.attend_us += attended;
    d->times.exchange_us += 1e-3 * (double)(after.step_ns - before.step_ns) - attended;
    return TA_OK;
}

ta_status layer_attend(decoder *d, ta_plan *plan, int32_t layer, int64_t tokens)
{
    ta_kv kv = cache_layer(&d->cache, layer);
    ta_call call = TA_CALL_INIT;
    ta_append_input input = TA_APPEND_INPUT_INIT;
    call.tag = ++d->calls;
    if (plan == d->chunks) {
        call.tokens = (int32_t)tokens;
        call.starts = d->starts;
    }
    input.k.data = d->key_width ? d->k : NULL;
    input.v.data = d->key_width ? d->v : NULL;
    input.dtype = TA_F32;
    input.source = d->append_source;
    double start = machine_time_us();
    ta_status status = ta_append(plan, &input, &kv, &call, NULL);
    if (d->append_source == TA_APPEND_HEADS)
        d->times.exchange_us += machine_time_us() - start;
    return status == TA_OK ? attend(d, plan, &kv, &call) : status;
}

/* Add d->added to x: first over the ranks, if each has only its part of it. */
static ta_status add_parts(decoder *d, float *x, int64_t tokens)
{
    int64_t count = tokens * d->config->hidden;
    if (d->options.tensor && d->ranks > 1) {
        double start = machine_time_us();
        ta_status status = ta_all_reduce(d->group, d->device, d->added, d->added, (size_t)count,
                                         TA_ELEMENT_F32, TA_REDUCE_SUM, NULL);
        d->times.exchange_us += machine_time_us() - start;
        if (status != TA_OK)
            return status;
    }
    d->ops->table->add(d->ops, x, d->added, count);
    return TA_OK;
}

ta_status layer_finish(decoder *d, const llama_layer *layer, float *x, int64_t tokens)
{
    const llama_config *c = d->config;
    const llama_ops_table *ops = d->ops->table;
    ta_status status = decoder_linear(d, &layer->o, NULL, d->attended, tokens, d->added);
    if (status == TA_OK)
        status = add_parts(d, x, tokens);
    if (status != TA_OK)
        return status;
    ops->norm(d->ops, x, layer->mlp_norm, c->norm_epsilon, tokens, c->hidden, d->normed);
    status = decoder_linear(d, &layer->gate, NULL, d->normed, tokens, d->gate);
    if (status == TA_OK)
        status = decoder_linear(d, &layer->up, NULL, d->normed, tokens, d->up);
    if (status != TA_OK)
        return status;
    ops->swiglu(d->ops, d->gate, d->up, tokens * d->inner_width);
    status = decoder_linear(d, &layer->down, NULL, d->gate, tokens, d->added);
    return status == TA_OK ? add_parts(d, x, tokens) : status;
}

ta_status decoder_layers(decoder *d, ta_plan *plan, int64_t tokens)
{
    ta_status status = TA_OK;
    for (int32_t i = 0; status == TA_OK && i < d->config->layers; i++) {
        const llama_layer *layer = &d->part->layers[i];
        status = layer_project(d, layer, d->x, tokens);
        if (status == TA_OK)
            status = layer_attend(d, plan, i, tokens);
        if (status == TA_OK)
            status = layer_finish(d, layer, d->x, tokens);
    }
    return status;
}
