/* The prompt; see decoder.h. In chunks, every rank computes every token, or its part of each, as
 * in a step of many tokens. On the grid, a rank computes those tokens that it will hold, and
 * attention alone needs the others: what it leaves in K and V is where the cache wants it. */
#include <stdlib.h>
#include <string.h>

#include <treeattn/collectives.h>

#include "common/elements.h"
#include "common/machine.h"
#include "decoder_parts.h"

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The next ragged call has the last `tokens` of `length`. */
static ta_status set_call(decoder *d, int32_t length, int32_t tokens)
{
    const int32_t starts[2] = {0, tokens};
    ta_status status = decoder_set_length(d, length);
    if (status == TA_OK)
        status = ta_device_copy(d->device, d->starts, starts, sizeof starts, NULL);
    return status;
}

/* ---- Chunks -------------------------------------------------------------------------------- */

/* Words [first, first + count) through all layers. */
static ta_status compute_chunk(decoder *d, const int32_t *words, int32_t first, int32_t count)
{
    int32_t *positions = malloc((size_t)count * sizeof *positions);
    if (!positions)
        return TA_ERR_NO_MEMORY;
    for (int32_t i = 0; i < count; i++)
        positions[i] = first + i;
    ta_status status = layer_angles(d, positions, count);
    free(positions);
    if (status == TA_OK)
        status = set_call(d, first + count, count);
    if (status == TA_OK)
        status =
            ta_device_copy(d->device, d->words, words + first, (size_t)count * sizeof *words, NULL);
    if (status == TA_OK)
        status = d->ops->table->embed(d->ops, &d->part->embedding, d->words, count, d->x);
    if (status != TA_OK)
        return status;
    return decoder_layers(d, d->chunks, count);
}

static ta_status prefill_chunks(decoder *d, const int32_t *words, int32_t count, float *logits)
{
    ta_status status = TA_OK;
    int32_t done = 0, now = 0;
    for (; status == TA_OK && done < count; done += now) {
        now = least(d->options.chunk, count - done);
        status = compute_chunk(d, words, done, now);
    }
    if (status != TA_OK)
        return status;
    return decoder_head(d, d->x + (int64_t)(now - 1) * d->config->hidden, logits);
}

/* ---- The grid ------------------------------------------------------------------------------ */

ta_status grid_create(decoder *d)
{
    grid_rows *g = &d->grid;
    const llama_config *c = d->config;
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = c->heads;
    config.kv_heads = c->kv_heads;
    config.k_dim = c->head_dim;
    config.dtype = g->dtype = cache_has_scales(&d->cache) ? TA_BF16 : d->options.cache_dtype;
    config.max_tokens = g->tokens = d->cache.most_tokens;
    config.map = d->cache.map;
    config.forward_only = 1;
    ta_status status = ta_attention_create(d->group, d->device, &config, &g->plan);
    size_t tokens = (size_t)g->tokens, each = element_bytes(g->dtype);
    size_t query = tokens * (size_t)d->query_width * each,
           key = tokens * (size_t)d->key_width * each;
    size_t x = tokens * (size_t)c->hidden * sizeof *g->x;
    const struct {
        void **memory;
        size_t bytes;
    } all[] = {{&g->q, query}, {&g->out, query}, {&g->k, key}, {&g->v, key}, {(void **)&g->x, x}};
    for (size_t i = 0; status == TA_OK && i < sizeof all / sizeof *all; i++) {
        status = ta_device_alloc(d->device, all[i].bytes, all[i].memory);
        d->activation_bytes += all[i].bytes;
    }
    g->positions = calloc(tokens, sizeof *g->positions);
    return status == TA_OK && !g->positions ? TA_ERR_NO_MEMORY : status;
}

void grid_destroy(decoder *d)
{
    grid_rows *g = &d->grid;
    void *const memory[] = {g->q, g->out, g->k, g->v, g->x};
    ta_attention_destroy(g->plan);
    for (size_t i = 0; d->device && i < sizeof memory / sizeof *memory; i++)
        ta_device_free(d->device, memory[i]);
    free(g->positions);
}

/* Element `token` of an array of tokens of so many elements, in the grid's type. */
static void *token_at(const decoder *d, void *array, int32_t token, int64_t width)
{
    return (char *)array + (size_t)(token * width) * element_bytes(d->grid.dtype);
}

/* Q, K and V of all tokens of this rank, a chunk at a time. */
static ta_status project_all(decoder *d, const llama_layer *layer, int32_t tokens)
{
    grid_rows *g = &d->grid;
    for (int32_t at = 0, now; at < tokens; at += now) {
        now = least(d->options.chunk, tokens - at);
        DECODER_TRY(layer_angles(d, g->positions + at, now));
        DECODER_TRY(layer_project(d, layer, g->x + (int64_t)at * d->config->hidden, now));
        const struct {
            const float *from;
            void *to;
            int64_t width;
        } all[] = {
            {d->q, g->q, d->query_width}, {d->k, g->k, d->key_width}, {d->v, g->v, d->key_width}};
        for (int i = 0; i < 3; i++)
            DECODER_TRY(d->ops->table->narrow(d->ops, g->dtype, all[i].from,
                                              token_at(d, all[i].to, at, all[i].width),
                                              now * all[i].width));
    }
    return TA_OK;
}

static ta_status attend_on_grid(decoder *d, int32_t count)
{
    grid_rows *g = &d->grid;
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_stats before = TA_ATTENTION_STATS_INIT, after = TA_ATTENTION_STATS_INIT;
    double start = decoder_clock(d);
    ta_tensor out = {.data = g->out};
    input.sequences = 1;
    input.lengths = &count;
    input.q.data = g->q;
    input.k.data = g->k;
    input.v.data = g->v;
    ta_status status = ta_attention_get_stats(g->plan, &before);
    if (status == TA_OK)
        status = ta_attention_forward(g->plan, &input, &out, NULL, NULL);
    if (status == TA_OK)
        status = ta_attention_get_stats(g->plan, &after);
    if (d->gpu) { /* what of it is exchange, only the device knows */
        d->times.attend_us += decoder_passed(d, start);
        return status;
    }
    double attended = 1e-3 * (double)(after.forward_attend_ns - before.forward_attend_ns);
    d->times.attend_us += attended;
    d->times.exchange_us += 1e-3 * (double)(after.forward_ns - before.forward_ns) - attended;
    return status;
}

/* Into the cache, a chunk of the sequence at a time. Nothing moves. */
static ta_status append_own(decoder *d, int32_t layer, int32_t count)
{
    grid_rows *g = &d->grid;
    ta_kv kv = cache_layer(&d->cache, layer);
    ta_append_input input = TA_APPEND_INPUT_INIT;
    ta_call call = TA_CALL_INIT;
    input.source = TA_APPEND_LOCAL;
    input.dtype = g->dtype;
    input.make_scales = cache_has_scales(&d->cache);
    call.starts = d->starts;
    for (int32_t length = 0; length < count; length += call.tokens) {
        int32_t own, end;
        call.tokens = least(d->options.chunk, count - length);
        DECODER_TRY(ta_shard_count(&d->cache.map, d->rank, length, &own));
        DECODER_TRY(ta_shard_count(&d->cache.map, d->rank, length + call.tokens, &end));
        DECODER_TRY(set_call(d, length + call.tokens, call.tokens));
        input.k.data = token_at(d, g->k, own, d->key_width);
        input.v.data = token_at(d, g->v, own, d->key_width);
        DECODER_TRY(ta_append(d->chunks, &input, &kv, &call, NULL));
        if (decoder_has_expanded(d))
            DECODER_TRY(expanded_append(d, d->expanded.chunks, layer, &input, end - own, &call));
    }
    return TA_OK;
}

static ta_status finish_all(decoder *d, const llama_layer *layer, int32_t tokens)
{
    for (int32_t at = 0, now; at < tokens; at += now) {
        now = least(d->options.chunk, tokens - at);
        DECODER_TRY(d->ops->table->widen(d->ops, d->grid.dtype,
                                         token_at(d, d->grid.out, at, d->query_width), d->attended,
                                         now * d->query_width));
        DECODER_TRY(layer_finish(d, layer, d->grid.x + (int64_t)at * d->config->hidden, now));
    }
    return TA_OK;
}

/* This rank's words, by the same map as the cache. */
static ta_status embed_own(decoder *d, const int32_t *words, int32_t count, int32_t *tokens)
{
    grid_rows *g = &d->grid;
    ta_status status = ta_shard_count(&d->cache.map, d->rank, count, tokens);
    for (int32_t i = 0; status == TA_OK && i < *tokens; i++)
        status = ta_shard_position(&d->cache.map, d->rank, i, &g->positions[i]);
    int32_t *own = calloc((size_t)d->options.chunk, sizeof *own);
    if (status == TA_OK && !own)
        status = TA_ERR_NO_MEMORY;
    for (int32_t at = 0, now; status == TA_OK && at < *tokens; at += now) {
        now = least(d->options.chunk, *tokens - at);
        for (int32_t i = 0; i < now; i++)
            own[i] = words[g->positions[at + i]];
        status = ta_device_copy(d->device, d->words, own, (size_t)now * sizeof *own, NULL);
        if (status == TA_OK)
            status = d->ops->table->embed(d->ops, &d->part->embedding, d->words, now,
                                          g->x + (int64_t)at * d->config->hidden);
    }
    free(own);
    return status;
}

/* The rank that has the last token computes the logits, and all get them. */
static ta_status share_logits(decoder *d, int32_t count, float *logits)
{
    int owner;
    int32_t local;
    ta_status status = ta_shard_locate(&d->cache.map, count - 1, &owner, &local);
    if (status == TA_OK && owner == d->rank)
        status = decoder_head(d, d->grid.x + (int64_t)local * d->config->hidden, logits);
    if (status == TA_OK)
        status = ta_broadcast(d->group, d->device, d->logits, (size_t)d->config->vocabulary,
                              TA_ELEMENT_F32, owner, NULL);
    if (status == TA_OK)
        status = ta_device_copy(d->device, logits, d->logits,
                                (size_t)d->config->vocabulary * sizeof *logits, NULL);
    return status == TA_OK ? ta_device_synchronize(d->device, NULL) : status;
}

static ta_status prefill_grid(decoder *d, const int32_t *words, int32_t count, float *logits)
{
    int32_t tokens;
    ta_status status = embed_own(d, words, count, &tokens);
    for (int32_t i = 0; status == TA_OK && i < d->config->layers; i++) {
        const llama_layer *layer = &d->part->layers[i];
        status = project_all(d, layer, tokens);
        if (status == TA_OK)
            status = attend_on_grid(d, count);
        if (status == TA_OK)
            status = append_own(d, i, count);
        if (status == TA_OK)
            status = finish_all(d, layer, tokens);
    }
    return status == TA_OK ? share_logits(d, count, logits) : status;
}

/* ---- Any ----------------------------------------------------------------------------------- */

ta_status decoder_prefill(decoder *d, const int32_t *words, int32_t count, float *logits)
{
    double start = machine_time_us();
    ta_status status = TA_OK;
    if (d->options.prefill == PREFILL_NONE) {
        status = decoder_set_length(d, count);
        if (status == TA_OK)
            status = cache_fill(&d->cache, 1, 1);
        if (status == TA_OK && decoder_has_expanded(d))
            status = cache_fill(&d->expanded.cache, 1, d->config->heads / d->config->kv_heads);
        memset(logits, 0, (size_t)d->config->vocabulary * sizeof *logits);
    } else if (d->options.prefill == PREFILL_GRID) {
        status = prefill_grid(d, words, count, logits);
    } else {
        status = prefill_chunks(d, words, count, logits);
    }
    d->times.all_us += machine_time_us() - start;
    return status;
}
