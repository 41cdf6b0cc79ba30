/* Making a decoder, and computing one word; see decoder.h. layer.c and prefill.c do the rest. */
#include "decoder.h"

#include <stdlib.h>

#include <treeattn/collectives.h>

#include "common/machine.h"
#include "decoder_parts.h"

static ta_status make_plan(decoder *d, ta_algorithm algorithm, int32_t tokens, ta_plan **plan)
{
    const decoder_options *o = &d->options;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_tokens = tokens;
    config.query_heads = d->config->heads;
    config.kv_heads = d->config->kv_heads;
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
    ta_status status = TA_OK;
    for (int i = 0; status == TA_OK && i < o->algorithms; i++)
        status = make_plan(d, o->algorithm[i], 1, &d->steps[i]);
    if (status == TA_OK && o->prefill != PREFILL_NONE)
        status = make_plan(d, o->algorithm[0], o->chunk, &d->chunks);
    if (status == TA_OK && o->prefill == PREFILL_GRID)
        status = grid_create(d);
    return status;
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
    return status;
}

static ta_status open_device(decoder *d)
{
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    config.threads = d->options.threads;
    ta_status status = ta_device_open(d->options.device, &config, &d->device);
    if (status != TA_OK)
        return status;
    d->ops = llama_ops_host(d->options.threads);
    return d->ops ? TA_OK : TA_ERR_NO_MEMORY;
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
    ta_status status = open_device(d);
    if (status == TA_OK)
        status = cache_create(d->device, d->config, options->cache_dtype, d->rank, d->ranks,
                              options->tokens, options->block, options->page_tokens, &d->cache);
    if (status == TA_OK)
        status = make_activations(d);
    if (status == TA_OK)
        status = make_plans(d);
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
    void *const memory[] = {d->x,     d->normed, d->added,  d->q,    d->attended,
                            d->k,     d->v,      d->gate,   d->up,   d->cosines,
                            d->sines, d->logits, d->starts, d->words};
    for (size_t i = 0; d->device && i < sizeof memory / sizeof *memory; i++)
        ta_device_free(d->device, memory[i]);
    if (d->cache.device)
        cache_destroy(&d->cache);
    if (d->ops)
        d->ops->table->destroy(d->ops);
    ta_device_close(d->device);
    free(d);
}

/* Every rank has the logits of its words: bring them together. */
static ta_status gather_logits(decoder *d, float *logits)
{
    int64_t most = most_words(d);
    double start = machine_time_us();
    ta_status status = ta_all_gather(d->group, d->device, d->logits + d->rank * most, d->logits,
                                     (size_t)most, TA_ELEMENT_F32, NULL);
    d->times.exchange_us += machine_time_us() - start;
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
    d->ops->table->norm(d->ops, x, d->part->norm, c->norm_epsilon, 1, c->hidden, d->normed);
    ta_status status = decoder_linear(d, &d->part->head, NULL, d->normed, 1, own);
    if (status != TA_OK)
        return status;
    if (d->options.tensor)
        return gather_logits(d, logits);
    status = ta_device_copy(d->device, logits, own, (size_t)c->vocabulary * sizeof *logits, NULL);
    return status == TA_OK ? ta_device_synchronize(d->device, NULL) : status;
}

ta_status decoder_step(decoder *d, int algorithm, int32_t word, int32_t position, float *logits)
{
    double start = machine_time_us();
    ta_status status = cache_set_length(&d->cache, position + 1);
    if (status == TA_OK)
        status = ta_device_copy(d->device, d->words, &word, sizeof word, NULL);
    if (status != TA_OK)
        return status;
    layer_angles(d, &position, 1);
    d->ops->table->embed(d->ops, &d->part->embedding, d->words, 1, d->x);
    status = decoder_layers(d, d->steps[algorithm], 1);
    if (status == TA_OK)
        status = decoder_head(d, d->x, logits);
    d->times.all_us += machine_time_us() - start;
    return status;
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
        *other = (double)stats.device_bytes_most - *cache;
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
