/* One layer, for tokens that every rank computes; see decoder_parts.h. With divided weights a rank
 * has its heads of Q, K and V and its columns of the MLP, and what comes back to the width of the
 * model is added up over the ranks, twice in a layer. */
#include <treeattn/collectives.h>

#include "common/machine.h"
#include "decoder_parts.h"

double decoder_clock(decoder *d)
{
    if (d->waits)
        (void)ta_device_synchronize(d->device, NULL);
    return machine_time_us();
}

double decoder_passed(decoder *d, double start)
{
    if (d->gpu && !d->waits)
        return 0;
    if (d->waits)
        (void)ta_device_synchronize(d->device, NULL);
    return machine_time_us() - start;
}

ta_status decoder_linear(decoder *d, const llama_matrix *w, const float *bias, const float *from,
                         int64_t rows, float *to)
{
    double start = decoder_clock(d);
    ta_status status = d->ops->table->linear(d->ops, w, bias, from, rows, to);
    d->times.linear_us += decoder_passed(d, start);
    return status;
}

ta_status layer_angles(decoder *d, const int32_t *positions, int64_t tokens)
{
    int64_t count = tokens * d->config->head_dim / 2;
    float *cosines = d->host_angles, *sines = cosines + count;
    llama_rope_angles(&d->config->rope, d->config->head_dim, positions, tokens, cosines, sines);
    size_t bytes = (size_t)count * sizeof *cosines;
    DECODER_TRY(ta_device_copy(d->device, d->cosines, cosines, bytes, NULL));
    return ta_device_copy(d->device, d->sines, sines, bytes, NULL);
}

ta_status layer_project(decoder *d, const llama_layer *layer, const float *x, int64_t tokens)
{
    const llama_config *c = d->config;
    const llama_ops_table *ops = d->ops->table;
    int64_t dim = c->head_dim, heads = d->query_width / dim, kv_heads = d->key_width / dim;
    float epsilon = c->norm_epsilon;
    DECODER_TRY(ops->norm(d->ops, x, layer->attention_norm, epsilon, tokens, c->hidden, d->normed));
    DECODER_TRY(decoder_linear(d, &layer->q, layer->q_bias, d->normed, tokens, d->q));
    DECODER_TRY(decoder_linear(d, &layer->k, layer->k_bias, d->normed, tokens, d->k));
    DECODER_TRY(decoder_linear(d, &layer->v, layer->v_bias, d->normed, tokens, d->v));
    if (c->qk_norm) {
        DECODER_TRY(ops->norm(d->ops, d->q, layer->q_norm, epsilon, tokens * heads, dim, d->q));
        DECODER_TRY(ops->norm(d->ops, d->k, layer->k_norm, epsilon, tokens * kv_heads, dim, d->k));
    }
    DECODER_TRY(ops->rope(d->ops, d->q, tokens, heads, dim, d->cosines, d->sines));
    return ops->rope(d->ops, d->k, tokens, kv_heads, dim, d->cosines, d->sines);
}

/* A step's time is that of attending and of the exchange. Where the host waits for a device with
 * streams, the device's stopwatch tells them apart. */
static ta_status attend(decoder *d, ta_plan *plan, const ta_kv *kv, const ta_call *call)
{
    ta_plan_stats before = TA_PLAN_STATS_INIT, after = TA_PLAN_STATS_INIT;
    ta_tensor q = {.data = d->query_width ? d->q : NULL};
    ta_tensor out = {.data = d->query_width ? d->attended : NULL};
    double start = decoder_clock(d), seconds;
    if (d->waits)
        DECODER_TRY(ta_device_timer_start(d->device, NULL));
    DECODER_TRY(ta_plan_get_stats(plan, &before));
    DECODER_TRY(ta_decode(plan, &q, kv, &out, NULL, call, NULL));
    if (d->waits)
        DECODER_TRY(ta_device_timer_read(d->device, NULL, &seconds));
    DECODER_TRY(ta_plan_get_stats(plan, &after));
    if (d->gpu) {
        double attended = 1e-3 * (double)(after.device_attend_ns - before.device_attend_ns);
        double passed = decoder_passed(d, start);
        d->times.attend_us += d->waits ? attended : 0;
        d->times.exchange_us += d->waits ? passed - attended : 0;
        return TA_OK;
    }
    double attended = 1e-3 * (double)(after.attend_ns - before.attend_ns);
    d->times.attend_us += attended;
    d->times.exchange_us += 1e-3 * (double)(after.step_ns - before.step_ns) - attended;
    return TA_OK;
}

/* Into the cache, and into that of expanded heads: chunks into both, a word into that of its
 * algorithm. */
static ta_status append(decoder *d, ta_plan *plan, int32_t layer, const ta_kv *kv, int64_t tokens,
                        const ta_call *call)
{
    ta_append_input input = TA_APPEND_INPUT_INIT;
    input.k.data = d->key_width ? d->k : NULL;
    input.v.data = d->key_width ? d->v : NULL;
    input.dtype = TA_F32;
    input.source = d->append_source;
    input.make_scales = cache_has_scales(&d->cache);
    if (decoder_is_expanded(d, plan))
        return expanded_append(d, plan, layer, &input, tokens, call);
    DECODER_TRY(ta_append(plan, &input, kv, call, NULL));
    if (plan == d->chunks && decoder_has_expanded(d))
        return expanded_append(d, d->expanded.chunks, layer, &input, tokens, call);
    return TA_OK;
}

ta_status layer_attend(decoder *d, ta_plan *plan, int32_t layer, int64_t tokens)
{
    int expanded = decoder_is_expanded(d, plan);
    ta_kv kv = cache_layer(expanded ? &d->expanded.cache : &d->cache, layer);
    ta_call call = TA_CALL_INIT;
    call.tag = ++d->calls;
    if (plan == d->chunks) {
        call.tokens = (int32_t)tokens;
        call.starts = d->starts;
    }
    double start = decoder_clock(d);
    DECODER_TRY(append(d, plan, layer, &kv, tokens, &call));
    double passed = decoder_passed(d, start);
    if (d->append_source == TA_APPEND_HEADS)
        d->times.exchange_us += passed;
    return attend(d, plan, &kv, &call);
}

/* Add d->added to x: first over the ranks, if each has only its part of it. */
static ta_status add_parts(decoder *d, float *x, int64_t tokens)
{
    int64_t count = tokens * d->config->hidden;
    if (d->options.tensor && d->ranks > 1) {
        double start = decoder_clock(d);
        DECODER_TRY(ta_all_reduce(d->group, d->device, d->added, d->added, (size_t)count,
                                  TA_ELEMENT_F32, TA_REDUCE_SUM, NULL));
        d->times.exchange_us += decoder_passed(d, start);
    }
    return d->ops->table->add(d->ops, x, d->added, count);
}

ta_status layer_finish(decoder *d, const llama_layer *layer, float *x, int64_t tokens)
{
    const llama_config *c = d->config;
    const llama_ops_table *ops = d->ops->table;
    DECODER_TRY(decoder_linear(d, &layer->o, NULL, d->attended, tokens, d->added));
    DECODER_TRY(add_parts(d, x, tokens));
    DECODER_TRY(
        ops->norm(d->ops, x, layer->mlp_norm, c->norm_epsilon, tokens, c->hidden, d->normed));
    DECODER_TRY(decoder_linear(d, &layer->gate, NULL, d->normed, tokens, d->gate));
    DECODER_TRY(decoder_linear(d, &layer->up, NULL, d->normed, tokens, d->up));
    DECODER_TRY(ops->swiglu(d->ops, d->gate, d->up, tokens * d->inner_width));
    DECODER_TRY(decoder_linear(d, &layer->down, NULL, d->gate, tokens, d->added));
    return add_parts(d, x, tokens);
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
