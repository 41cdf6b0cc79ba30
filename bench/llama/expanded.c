/* A ring as Tree Attention's published code has it: K and V of each KV head are repeated for every
 * query head that uses them, and it is these copies that are kept, sent and attended to. It
 * computes the same numbers and moves as many times the bytes; it is here to be measured beside the
 * others. decoder.c makes it where --ring expanded asks for it. */
#include "common/elements.h"
#include "decoder_parts.h"

int decoder_has_expanded(const decoder *d)
{
    int any = 0;
    for (int i = 0; i < d->options.algorithms; i++)
        any |= d->options.expanded[i];
    return any;
}

int decoder_is_expanded(const decoder *d, const ta_plan *plan)
{
    for (int i = 0; i < d->options.algorithms; i++)
        if (d->options.expanded[i] && d->steps[i] == plan)
            return 1;
    return 0;
}

ta_status expanded_create(decoder *d)
{
    const decoder_options *o = &d->options;
    expanded_heads *e = &d->expanded;
    llama_config config = *d->config;
    size_t rows = o->prefill == PREFILL_NONE ? 1 : (size_t)o->chunk;
    size_t bytes = rows * (size_t)d->query_width * sizeof(float);
    config.kv_heads = config.heads;
    DECODER_TRY(cache_create(d->device, &config, o->cache_dtype, d->rank, d->ranks, o->tokens,
                             o->block, o->page_tokens, &e->cache));
    DECODER_TRY(ta_device_alloc(d->device, bytes, &e->k));
    return ta_device_alloc(d->device, bytes, &e->v);
}

void expanded_destroy(decoder *d)
{
    expanded_heads *e = &d->expanded;
    ta_plan_destroy(e->chunks);
    ta_device_free(d->device, e->v);
    ta_device_free(d->device, e->k);
    if (e->cache.device)
        cache_destroy(&e->cache);
}

ta_status expanded_append(decoder *d, ta_plan *plan, int32_t layer, const ta_append_input *input,
                          int64_t rows, const ta_call *call)
{
    expanded_heads *e = &d->expanded;
    const llama_config *c = d->config;
    int64_t times = c->heads / c->kv_heads;
    ta_append_input wide = *input;
    ta_kv kv = cache_layer(&e->cache, layer);
    ta_dtype dtype = input->dtype;
    DECODER_TRY(d->ops->table->repeat(d->ops, dtype, input->k.data, rows, c->kv_heads, times,
                                      c->head_dim, e->k));
    DECODER_TRY(d->ops->table->repeat(d->ops, dtype, input->v.data, rows, c->kv_heads, times,
                                      c->head_dim, e->v));
    wide.k.data = e->k;
    wide.v.data = e->v;
    return ta_append(plan, &wide, &kv, call, NULL);
}
