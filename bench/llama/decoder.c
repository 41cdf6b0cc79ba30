/* Making a decoder, and computing one word; see decoder.h. layer.c and prefill.c do the rest. */
#include "decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/collectives.h>

#include "common/machine.h"
#include "common/rank_device.h"
#include "decoder_parts.h"

ta_status decoder_plan(decoder *d, ta_algorithm algorithm, int expanded, int32_t tokens,
                       ta_plan **plan)
{
    const decoder_options *o = &d->options;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_tokens = tokens;
    config.query_heads = d->config->heads;
    config.kv_heads = expanded ? d->config->heads : d->config->kv_heads;
    config.k_dim = d->config->head_dim;
    config.kv_dtype = o->cache_dtype;
    config.query_dtype = TA_F32;
    config.max_tokens = d->cache.most_tokens;
    config.map = d->cache.map;
    config.algorithm = algorithm;
    config.reproducible_tile = o->reproducible_tile;
    if (o->tensor) {
        config.query_placement = TA_PLACE_HEADS;
        config.out_placement = TA_PLACE_HEADS;
        config.append_scattered = 1;
    }
    return ta_plan_create(d->group, d->device, &config, plan);
}

static ta_status make_plans(decoder *d)
{
    const decoder_options *o = &d->options;
    for (int i = 0; i < o->algorithms; i++)
        DECODER_TRY(decoder_plan(d, o->algorithm[i], o->expanded[i], 1, &d->steps[i]));
    if (o->prefill == PREFILL_NONE)
        return TA_OK;
    DECODER_TRY(decoder_plan(d, o->algorithm[0], 0, o->chunk, &d->chunks));
    if (decoder_has_expanded(d))
        DECODER_TRY(decoder_plan(d, TA_ALGORITHM_RING_KV, 1, o->chunk, &d->expanded.chunks));
    return o->prefill == PREFILL_GRID ? grid_create(d) : TA_OK;
}

/* Device memory for so many floats, at least one. */
static ta_status take(decoder *d, float **floats, int64_t count)
{
    size_t bytes = (size_t)(count > 0 ? count : 1) * sizeof **floats;
    d->activation_bytes += bytes;
    return ta_device_alloc(d->device, bytes, (void **)floats);
}

static int64_t most_words(const decoder *d)
{
    return (d->config->vocabulary + d->ranks - 1) / d->ranks;
}

static ta_status make_activations(decoder *d)
{
    const llama_config *c = d->config;
    int64_t rows = d->options.prefill == PREFILL_NONE ? 1 : d->options.chunk;
    const struct {
        float **floats;
        int64_t count;
    } all[] = {
        {&d->x, rows * c->hidden},
        {&d->normed, rows * c->hidden},
        {&d->added, rows * c->hidden},
        {&d->q, rows * d->query_width},
        {&d->attended, rows * d->query_width},
        {&d->k, rows * d->key_width},
        {&d->v, rows * d->key_width},
        {&d->gate, rows * d->inner_width},
        {&d->up, rows * d->inner_width},
        {&d->cosines, rows * c->head_dim / 2},
        {&d->sines, rows * c->head_dim / 2},
        {&d->logits, d->options.tensor ? d->ranks * most_words(d) : c->vocabulary},
    };
    ta_status status = TA_OK;
    for (size_t i = 0; status == TA_OK && i < sizeof all / sizeof *all; i++)
        status = take(d, all[i].floats, all[i].count);
    if (status == TA_OK)
        status = ta_device_alloc(d->device, 2 * sizeof *d->starts, (void **)&d->starts);
    if (status == TA_OK)
        status = ta_device_alloc(d->device, (size_t)rows * sizeof *d->words, (void **)&d->words);
    d->host_angles = calloc((size_t)(rows * c->head_dim), sizeof *d->host_angles);
    return status == TA_OK && !d->host_angles ? TA_ERR_NO_MEMORY : status;
}

static ta_status open_device(decoder *d)
{
    const decoder_options *o = &d->options;
    rank_device_config config = {o->device, o->gpu_each, o->ccl, o->threads, NULL};
    ta_group *launched = d->group;
    DECODER_TRY(rank_device_open(&config, launched, &d->device, &d->group));
    d->own_group = d->group != launched;
    d->gpu = strcmp(ta_device_name(d->device), "host") != 0;
    return TA_OK;
}

/* The operations, and the weights where they can read them. */
static ta_status make_ops(decoder *d)
{
    const llama_config *c = d->config;
    int64_t widest = c->hidden > d->inner_width ? c->hidden : d->inner_width;
    widest = d->query_width > widest ? d->query_width : widest;
    if (!d->gpu) {
        d->ops = llama_ops_host(d->options.threads);
        return d->ops ? TA_OK : TA_ERR_NO_MEMORY;
    }
    DECODER_TRY(llama_ops_gpu(d->device, d->options.products, d->options.chunk * widest, &d->ops));
    DECODER_TRY(device_part_make(d->device, d->part, &d->there));
    d->part = &d->there.part;
    return TA_OK;
}

static ta_status make(decoder *d)
{
    const decoder_options *o = &d->options;
    DECODER_TRY(open_device(d));
    DECODER_TRY(make_ops(d));
    DECODER_TRY(cache_create(d->device, d->config, o->cache_dtype, d->rank, d->ranks, o->tokens,
                             o->block, o->page_tokens, &d->cache));
    if (decoder_has_expanded(d))
        DECODER_TRY(expanded_create(d));
    DECODER_TRY(make_activations(d));
    return make_plans(d);
}

ta_status decoder_create(ta_group *group, const decoder_options *options, const llama_part *part,
                         decoder **made)
{
    decoder *d = calloc(1, sizeof *d);
    if (!d)
        return TA_ERR_NO_MEMORY;
    d->options = *options;
    d->part = part;
    d->config = &part->config;
    d->group = group;
    d->rank = ta_group_rank(group);
    d->ranks = ta_group_size(group);
    d->append_source = options->tensor ? TA_APPEND_HEADS : TA_APPEND_ALL;
    d->query_width = part->layers[0].q.rows;
    d->key_width = part->layers[0].k.rows;
    d->inner_width = part->layers[0].gate.rows;
    ta_status status = make(d);
    if (status == TA_OK)
        *made = d;
    else
        decoder_destroy(d);
    return status;
}

void decoder_destroy(decoder *d)
{
    if (!d)
        return;
    grid_destroy(d);
    for (int i = 0; i < DECODER_ALGORITHMS; i++)
        ta_plan_destroy(d->steps[i]);
    ta_plan_destroy(d->chunks);
    expanded_destroy(d);
    void *const memory[] = {d->x,     d->normed, d->added,  d->q,    d->attended,
                            d->k,     d->v,      d->gate,   d->up,   d->cosines,
                            d->sines, d->logits, d->starts, d->words};
    for (size_t i = 0; d->device && i < sizeof memory / sizeof *memory; i++)
        ta_device_free(d->device, memory[i]);
    if (d->cache.device)
        cache_destroy(&d->cache);
    device_part_free(&d->there);
    if (d->ops)
        d->ops->table->destroy(d->ops);
    if (d->own_group)
        ta_group_destroy(d->group);
    ta_device_close(d->device);
    free(d->host_angles);
    free(d);
}

/* Every rank has the logits of its words: bring them together. */
static ta_status gather_logits(decoder *d, float *logits)
{
    int64_t most = most_words(d);
    double start = decoder_clock(d);
    ta_status status = ta_all_gather(d->group, d->device, d->logits + d->rank * most, d->logits,
                                     (size_t)most, TA_ELEMENT_F32, NULL);
    d->times.exchange_us += decoder_passed(d, start);
    for (int rank = 0; status == TA_OK && rank < d->ranks; rank++) {
        int first, count;
        status = ta_head_range(d->config->vocabulary, d->ranks, rank, &first, &count);
        if (status == TA_OK && count)
            status = ta_device_copy(d->device, logits + first, d->logits + rank * most,
                                    (size_t)count * sizeof *logits, NULL);
    }
    return status == TA_OK ? ta_device_synchronize(d->device, NULL) : status;
}

ta_status decoder_head(decoder *d, const float *x, float *logits)
{
    const llama_config *c = d->config;
    float *own = d->options.tensor ? d->logits + d->rank * most_words(d) : d->logits;
    DECODER_TRY(
        d->ops->table->norm(d->ops, x, d->part->norm, c->norm_epsilon, 1, c->hidden, d->normed));
    DECODER_TRY(decoder_linear(d, &d->part->head, NULL, d->normed, 1, own));
    if (d->options.tensor)
        return gather_logits(d, logits);
    DECODER_TRY(
        ta_device_copy(d->device, logits, own, (size_t)c->vocabulary * sizeof *logits, NULL));
    return ta_device_synchronize(d->device, NULL);
}

ta_status decoder_set_length(decoder *d, int32_t length)
{
    DECODER_TRY(cache_set_length(&d->cache, length));
    return decoder_has_expanded(d) ? cache_set_length(&d->expanded.cache, length) : TA_OK;
}

static ta_status step(decoder *d, int algorithm, int32_t word, int32_t position, float *logits)
{
    DECODER_TRY(decoder_set_length(d, position + 1));
    DECODER_TRY(ta_device_copy(d->device, d->words, &word, sizeof word, NULL));
    DECODER_TRY(layer_angles(d, &position, 1));
    DECODER_TRY(d->ops->table->embed(d->ops, &d->part->embedding, d->words, 1, d->x));
    DECODER_TRY(decoder_layers(d, d->steps[algorithm], 1));
    return decoder_head(d, d->x, logits);
}

ta_status decoder_step(decoder *d, int algorithm, int32_t word, int32_t position, float *logits)
{
    double start = machine_time_us();
    ta_status status = step(d, algorithm, word, position, logits);
    d->times.all_us += machine_time_us() - start;
    return status;
}

ta_status decoder_best(decoder *d, int32_t *word)
{
    DECODER_TRY(d->ops->table->argmax(d->ops, d->logits, d->config->vocabulary, d->words));
    DECODER_TRY(ta_device_copy(d->device, word, d->words, sizeof *word, NULL));
    return ta_device_synchronize(d->device, NULL);
}

void decoder_wait(decoder *d, int wait)
{
    d->waits = wait && d->gpu;
}

const char *decoder_products(const decoder *d, int many)
{
    return d->ops->table->products(d->ops, many);
}

int decoder_on_gpu(const decoder *d)
{
    return d->gpu;
}

decoder_times decoder_get_times(const decoder *d)
{
    return d->times;
}

void decoder_memory(const decoder *d, double *cache, double *other)
{
    ta_plan_stats stats = TA_PLAN_STATS_INIT;
    *cache = cache_bytes(&d->cache);
    *other = 0;
    if (ta_plan_get_stats(d->steps[0], &stats) == TA_OK)
        *other = (double)stats.device_bytes_most - *cache - (double)d->there.bytes;
}

ta_group *decoder_group(const decoder *d)
{
    return d->group;
}

size_t decoder_cache_pieces(const decoder *d, read_piece *pieces)
{
    return cache_pieces(&d->cache, pieces);
}

double decoder_cache_used(const decoder *d)
{
    return cache_used_bytes(&d->cache);
}
