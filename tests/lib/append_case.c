/* Cases of ta_append(): see append_case.h. */
#include "append_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "case.h"
#include "device_array.h"
#include "number.h"
#include "options.h"
#include "plan_config.h"

/* ---- The case ---- */

static void random_map(random_source *r, append_case *c)
{
    c->map = random_one_in(r, 2) ? TA_SHARD_BLOCK_CYCLIC : TA_SHARD_CONTIGUOUS;
    c->block = random_int(r, 1, 7);
    if (c->map == TA_SHARD_BLOCK_CYCLIC || random_one_in(r, 2))
        return;
    c->block = 0;
    for (int rank = 1; rank <= c->ranks; ++rank)
        c->bounds[rank] = c->bounds[rank - 1] + random_int(r, 0, 12);
    c->bounds[c->ranks] = 100;
}

static void random_calls(random_source *r, append_case *c)
{
    c->calls = random_int(r, 1, APPEND_MAX_CALLS);
    c->ragged = random_one_in(r, 2);
    bool old = random_one_in(r, 2);
    for (int b = 0; old && b < c->plan_batch; ++b)
        c->first[b] = random_int(r, 0, 12);
    for (int call = 0; call < c->calls; ++call) {
        int rows = 0;
        c->batch[call] = random_one_in(r, 2) ? c->plan_batch : random_int(r, 1, c->plan_batch);
        for (int b = 0; b < c->batch[call]; ++b) {
            c->added[call][b] = c->ragged ? random_int(r, 0, c->query_tokens) : c->query_tokens;
            rows += c->added[call][b];
        }
        if (rows == 0)
            c->added[call][0] = 1;
    }
}

/* A cache of 8 bits; with a source of its own, so that a seed draws the rest as ever. */
static void choose_narrow(uint64_t seed, append_case *c)
{
    random_source own = random_from(seed ^ 0x8b175u), *r = &own;
    if (!case_draws_narrow || !random_one_in(r, 3))
        return;
    c->kv_dtype = (ta_dtype)random_int(r, NUMBER_DTYPE_END, NUMBER_NARROW_END - 1);
    if (random_one_in(r, 4)) /* bytes as they are */
        c->dtype = TA_DTYPE_NONE;
    c->scales = (case_scales)random_int(r, CASE_SCALES_NONE, CASE_SCALES_TOKENS);
    c->make_scales = c->dtype && c->scales == CASE_SCALES_TOKENS && random_one_in(r, 2);
}

append_case append_case_random(uint64_t seed, int ranks)
{
    static const int counts[] = {1, 2, 3, 5, 8};
    random_source r = random_from(seed);
    append_case c = {.seed = seed, .ranks = RANDOM_PICK(&r, counts)};
    c.ranks = ranks ? ranks : c.ranks;
    c.threads = random_int(&r, 1, 2);
    c.plan_batch = random_int(&r, 1, APPEND_MAX_BATCH);
    c.query_tokens = random_one_in(&r, 3) ? 1 : random_int(&r, 1, 9);
    c.kv_heads = random_int(&r, 1, 5);
    c.query_heads = c.kv_heads * random_int(&r, 1, 2);
    c.k_dim = 8 * random_int(&r, 1, 9);
    c.v_dim = random_one_in(&r, 2) ? c.k_dim : 8 * random_int(&r, 1, 9);
    c.kv_dtype = (ta_dtype)random_int(&r, TA_F32, NUMBER_DTYPE_END - 1);
    c.dtype = (ta_dtype)random_int(&r, 0, NUMBER_DTYPE_END - 1);
    c.source = (ta_append_source)random_int(&r, TA_APPEND_ALL, TA_APPEND_LOCAL);
    choose_narrow(seed, &c);
    c.paged = random_one_in(&r, 2);
    c.page_tokens = random_int(&r, 1, 6);
    c.by_heads = random_one_in(&r, 2);
    random_map(&r, &c);
    random_calls(&r, &c);
    return c;
}

static void describe(const append_case *c, char *text, size_t capacity)
{
    snprintf(text, capacity,
             "seed %llu: %d ranks, batch %d, %d query tokens, %d/%d heads, dims %d %d, %s from %s, "
             "source %d, map %d block %d, %s pages of %d, %s, %s, %d calls, scales %d%s",
             (unsigned long long)c->seed, c->ranks, c->plan_batch, c->query_tokens, c->query_heads,
             c->kv_heads, c->k_dim, c->v_dim, number_name(c->kv_dtype),
             c->dtype ? number_name(c->dtype) : "the same", (int)c->source, (int)c->map, c->block,
             c->paged ? "with" : "without", c->page_tokens, c->by_heads ? "by heads" : "dense",
             c->ragged ? "ragged" : "uniform", c->calls, (int)c->scales,
             c->make_scales ? " made" : "");
}

/* ---- The model ---- */

/* Which rank holds a position, and where. */
static int owner(const append_case *c, int32_t position, int32_t *local)
{
    int rank = 0;
    if (c->map == TA_SHARD_BLOCK_CYCLIC) {
        *local = position / (c->block * c->ranks) * c->block + position % c->block;
        return position / c->block % c->ranks;
    }
    if (c->block) {
        rank = position / c->block < c->ranks ? position / c->block : c->ranks - 1;
        *local = position - rank * c->block;
        return rank;
    }
    while (position >= c->bounds[rank + 1])
        ++rank;
    *local = position - c->bounds[rank];
    return rank;
}

static int32_t held(const append_case *c, int rank, int32_t length)
{
    int32_t count = 0, local;
    for (int32_t x = 0; x < length; ++x)
        count += owner(c, x, &local) == rank;
    return count;
}

/* An element of the new tokens as it is given. */
static double element(const append_case *c, int b, int32_t x, int head, int d, int values)
{
    uint64_t place = (((uint64_t)b * 1000 + (uint64_t)x) * 100 + (uint64_t)head) * 1000 +
                     (uint64_t)d * 2 + (uint64_t)values;
    random_source r = random_from(c->seed * 1000003 + place);
    double number = random_normal(&r);
    /* Some are beyond what 8 bits have codes for, of f16 infinite: they are clamped. */
    if (c->dtype && c->kv_dtype >= NUMBER_DTYPE_END && !c->make_scales && random_one_in(&r, 16))
        number *= 1e6;
    uint32_t bits = number_bits(c->dtype ? c->dtype : c->kv_dtype, number);
    return number_decode(c->dtype ? c->dtype : c->kv_dtype, &bits, 0);
}

/* The scale that a token and head of a side have, or are to be given. */
static float scale_of(const append_case *c, int b, int32_t x, int head, int values)
{
    if (c->make_scales) {
        uint8_t code = c->kv_dtype == TA_E4M3 ? 0x7e : c->kv_dtype == TA_E5M2 ? 0x7b : 0x7f;
        float largest = 0, type_largest = (float)number_decode(c->kv_dtype, &code, 0);
        for (int d = 0; d < (values ? c->v_dim : c->k_dim); ++d) {
            float magnitude = fabsf((float)element(c, b, x, head, d, values));
            largest = magnitude > largest ? magnitude : largest;
        }
        return largest > 0 ? largest / type_largest : 1.0f;
    }
    uint64_t token = c->scales == CASE_SCALES_TOKENS ? (uint64_t)b * 1000 + (uint64_t)x : 0;
    uint64_t of_head = c->scales >= CASE_SCALES_HEADS ? (uint64_t)head : 0;
    random_source r = random_from(c->seed + token * 100 + of_head * 2 + (uint64_t)values);
    return c->scales ? (float)exp2(6 * random_unit(&r) - 5) : 1.0f;
}

/* One rank's cache, as the library has it and as the test expects it. */
typedef struct cache {
    int32_t max_tokens, pages, used_pages;
    int64_t blocks, tokens;
    int64_t head_stride[2], token_stride[2], block_stride[2]; /* of K and V */
    device_array k, v, wanted_k, wanted_v;
    device_array lengths, starts, bounds, table, new_k, new_v;
    device_array scales[2], wanted_scales[2]; /* [block][token][head], or [head], or one */
    int64_t table_stride;
    ta_kv kv;
} cache;

static int32_t final_length(const append_case *c, int b)
{
    int32_t length = c->first[b];
    for (int call = 0; call < c->calls; ++call)
        length += b < c->batch[call] ? c->added[call][b] : 0;
    return length;
}

static void lay_out(const append_case *c, cache *m)
{
    for (int values = 0; values < 2; ++values) {
        int64_t dim = values ? c->v_dim : c->k_dim;
        m->head_stride[values] = c->by_heads ? m->tokens * (dim + 8) : dim;
        m->token_stride[values] = c->by_heads ? dim + 8 : c->kv_heads * dim;
        m->block_stride[values] =
            c->by_heads ? c->kv_heads * m->head_stride[values] + 16 : m->tokens * c->kv_heads * dim;
    }
}

static ta_status make_arrays(const append_case *c, ta_device *device, cache *m)
{
    size_t size = number_bytes(c->kv_dtype);
    size_t rows = (size_t)(c->plan_batch * c->query_tokens * c->kv_heads);
    size_t k = (size_t)(m->blocks * m->block_stride[0]),
           v = (size_t)(m->blocks * m->block_stride[1]);
    TA_TRY(device_array_make(device, k, size, &m->k));
    TA_TRY(device_array_make(device, v, size, &m->v));
    TA_TRY(device_array_make(device, k, size, &m->wanted_k));
    TA_TRY(device_array_make(device, v, size, &m->wanted_v));
    TA_TRY(device_array_make(device, (size_t)c->plan_batch, 4, &m->lengths));
    TA_TRY(device_array_make(device, (size_t)c->plan_batch + 1, 4, &m->starts));
    TA_TRY(device_array_make(device, APPEND_MAX_RANKS + 1, 4, &m->bounds));
    TA_TRY(device_array_make(device, (size_t)(c->plan_batch * m->table_stride), 4, &m->table));
    size_t scales = c->scales == CASE_SCALES_TOKENS ? (size_t)(m->blocks * m->tokens * c->kv_heads)
                                                    : (size_t)c->kv_heads;
    for (int values = 0; values < 2; ++values) {
        TA_TRY(device_array_make(device, scales, 4, &m->scales[values]));
        TA_TRY(device_array_make(device, scales, 4, &m->wanted_scales[values]));
        number_poison(TA_F32, m->scales[values].host, (int64_t)scales);
    }
    TA_TRY(device_array_make(device, rows * (size_t)c->k_dim, 4, &m->new_k));
    return device_array_make(device, rows * (size_t)c->v_dim, 4, &m->new_v);
}

static void free_cache(cache *m)
{
    device_array *all[] = {&m->k,      &m->v,      &m->wanted_k, &m->wanted_v, &m->lengths,
                           &m->starts, &m->bounds, &m->table,    &m->new_k,    &m->new_v};
    for (int i = 0; i < 10; ++i)
        device_array_free(all[i]);
    for (int values = 0; values < 2; ++values) {
        device_array_free(&m->scales[values]);
        device_array_free(&m->wanted_scales[values]);
    }
}

/* Scales of all tokens are there; those of each token are set with it, or made. */
static ta_status make_scales(const append_case *c, cache *m)
{
    ta_scales *scales[2] = {&m->kv.k_scale, &m->kv.v_scale};
    int64_t heads = c->kv_heads;
    for (int values = 0; c->scales && values < 2; ++values) {
        *scales[values] = (ta_scales){m->scales[values].device, 0, 0, 0};
        if (c->scales >= CASE_SCALES_HEADS)
            scales[values]->head_stride = 1;
        if (c->scales == CASE_SCALES_TOKENS) {
            scales[values]->token_stride = heads;
            scales[values]->batch_stride = m->tokens * heads;
        }
        for (int h = 0; c->scales != CASE_SCALES_TOKENS && h < heads; ++h)
            ((float *)m->scales[values].host)[h] = scale_of(c, 0, 0, h, values);
        memcpy(m->wanted_scales[values].host, m->scales[values].host, m->scales[values].bytes);
        TA_TRY(device_array_to(&m->scales[values], NULL));
    }
    return TA_OK;
}

static ta_status make_cache(const append_case *c, ta_device *device, int rank, cache *m)
{
    m->max_tokens = 1;
    for (int r = 0; r < c->ranks; ++r)
        for (int b = 0; b < c->plan_batch; ++b)
            if (held(c, r, final_length(c, b)) > m->max_tokens)
                m->max_tokens = held(c, r, final_length(c, b));
    m->tokens = c->paged ? c->page_tokens : m->max_tokens;
    m->table_stride = m->max_tokens / c->page_tokens + 1;
    m->blocks = c->paged ? c->plan_batch * m->table_stride + 2 : c->plan_batch;
    m->pages = (int32_t)m->blocks;
    m->used_pages = rank; /* so that ranks differ */
    lay_out(c, m);
    TA_TRY(make_arrays(c, device, m));
    number_poison(c->kv_dtype, m->k.host, m->blocks * m->block_stride[0]);
    number_poison(c->kv_dtype, m->v.host, m->blocks * m->block_stride[1]);
    memcpy(m->wanted_k.host, m->k.host, m->k.bytes);
    memcpy(m->wanted_v.host, m->v.host, m->v.bytes);
    for (int64_t i = 0; i < c->plan_batch * m->table_stride; ++i)
        ((int32_t *)m->table.host)[i] = -7; /* nobody may look at it */
    for (int b = 0; b < c->plan_batch; ++b)
        ((int32_t *)m->lengths.host)[b] = c->first[b];
    memcpy(m->bounds.host, c->bounds, sizeof c->bounds);
    m->kv = (ta_kv)TA_KV_INIT;
    m->kv.k = (ta_tensor){m->k.device, m->block_stride[0], m->token_stride[0], m->head_stride[0]};
    m->kv.v = (ta_tensor){m->v.device, m->block_stride[1], m->token_stride[1], m->head_stride[1]};
    m->kv.lengths = m->lengths.device;
    m->kv.bounds = c->map == TA_SHARD_CONTIGUOUS && !c->block ? m->bounds.device : NULL;
    if (c->paged) {
        m->kv.page_table = m->table.device;
        m->kv.page_table_stride = m->table_stride;
        m->kv.page_tokens = c->page_tokens;
        m->kv.page_count = m->pages;
    }
    TA_TRY(make_scales(c, m));
    TA_TRY(device_array_to(&m->k, NULL));
    return device_array_to(&m->v, NULL);
}

/* Where the cache has a token; takes a page for it if it has none yet. */
static int64_t place(const append_case *c, cache *m, int b, int32_t local, int64_t *within)
{
    *within = local;
    if (!c->paged)
        return b;
    int32_t *entry = (int32_t *)m->table.host + b * m->table_stride + local / c->page_tokens;
    if (*entry < 0)
        *entry = m->used_pages++ % m->pages;
    *within = local % c->page_tokens;
    return *entry;
}

/* ---- One call ---- */

/* Write a new token to where it is given, and, if this rank holds it, to where it is wanted. `row`
 * is where it is given, or -1 if this rank does not have it. */
static void add_token(const append_case *c, cache *m, int rank, int b, int32_t x, int64_t row)
{
    ta_dtype dtype = c->dtype ? c->dtype : c->kv_dtype;
    int first = 0, heads = c->kv_heads;
    int32_t local;
    int64_t within, block = 0;
    bool own = owner(c, x, &local) == rank;
    if (c->source == TA_APPEND_HEADS)
        (void)ta_head_range(c->kv_heads, c->ranks, rank, &first, &heads);
    if (own)
        block = place(c, m, b, local, &within);
    for (int values = 0; values < 2; ++values) {
        int dim = values ? c->v_dim : c->k_dim;
        device_array *given = values ? &m->new_v : &m->new_k;
        device_array *wanted = values ? &m->wanted_v : &m->wanted_k;
        for (int h = 0; h < c->kv_heads; ++h) {
            float scale = scale_of(c, b, x, h, values);
            if (own && c->scales == CASE_SCALES_TOKENS) {
                int64_t at = (block * m->tokens + within) * c->kv_heads + h;
                ((float *)m->wanted_scales[values].host)[at] = scale;
                if (!c->make_scales)
                    ((float *)m->scales[values].host)[at] = scale;
            }
            for (int d = 0; d < dim; ++d) {
                double number = element(c, b, x, h, d, values);
                if (row >= 0 && h >= first && h < first + heads)
                    number_encode(dtype, given->host, (row * heads + h - first) * dim + d, number);
                if (own)
                    number_encode(c->kv_dtype, wanted->host,
                                  block * m->block_stride[values] +
                                      within * m->token_stride[values] +
                                      h * m->head_stride[values] + d,
                                  dtype == c->kv_dtype ? number : (double)((float)number / scale));
            }
        }
    }
}

/* All new tokens of a call; returns how many rows there are. */
static int64_t add_tokens(const append_case *c, cache *m, int rank, int call)
{
    int32_t *lengths = m->lengths.host, *starts = m->starts.host, local;
    int64_t row = 0, packed = 0;
    number_poison(TA_F32, m->new_k.host, (int64_t)m->new_k.bytes / 4);
    number_poison(TA_F32, m->new_v.host, (int64_t)m->new_v.bytes / 4);
    for (int b = 0; b < c->batch[call]; ++b) {
        int64_t nth = 0;
        starts[b] = (int32_t)row;
        for (int t = 0; t < c->added[call][b]; ++t, ++row) {
            int32_t x = lengths[b] + t;
            int64_t at = row;
            if (c->source == TA_APPEND_LOCAL) {
                bool own = owner(c, x, &local) == rank;
                at = !own ? -1 : c->ragged ? packed++ : (int64_t)b * c->query_tokens + nth++;
            }
            add_token(c, m, rank, b, x, at);
        }
        lengths[b] += c->added[call][b];
        starts[b + 1] = (int32_t)row;
    }
    return row;
}

static ta_status append(const append_case *c, ta_plan *plan, cache *m, int rank, int call)
{
    ta_append_input input = TA_APPEND_INPUT_INIT;
    ta_call added = TA_CALL_INIT;
    int64_t rows = add_tokens(c, m, rank, call);
    const device_array *given[] = {&m->new_k,  &m->new_v,  &m->lengths,
                                   &m->starts, &m->bounds, &m->table};
    for (int i = 0; i < 6; ++i)
        TA_TRY(device_array_to(given[i], NULL));
    for (int values = 0; values < 2 && !c->make_scales; ++values)
        TA_TRY(device_array_to(&m->scales[values], NULL));
    input.k.data = m->new_k.device;
    input.v.data = m->new_v.device;
    input.dtype = c->dtype;
    input.source = c->source;
    input.make_scales = c->make_scales;
    added.batch = c->batch[call];
    added.tag = (uint64_t)call;
    if (c->ragged) {
        added.tokens = (int32_t)rows;
        added.starts = m->starts.device;
    }
    return ta_append(plan, &input, &m->kv, &added, NULL);
}

/* ---- What came out ---- */

static ta_status compare(const append_case *c, const cache *m)
{
    TA_TRY(device_array_from(&m->k, NULL));
    TA_TRY(device_array_from(&m->v, NULL));
    for (int values = 0; values < 2; ++values) {
        const device_array *got = values ? &m->v : &m->k;
        const device_array *wanted = values ? &m->wanted_v : &m->wanted_k;
        size_t size = number_bytes(c->kv_dtype);
        for (size_t i = 0; i < got->bytes; i += size)
            if (memcmp((char *)got->host + i, (char *)wanted->host + i, size) != 0)
                return ta_fail(TA_ERR_DEVICE, "element %zu of %s is %g, expected %g", i / size,
                               values ? "V" : "K",
                               number_decode(c->kv_dtype, got->host, (int64_t)(i / size)),
                               number_decode(c->kv_dtype, wanted->host, (int64_t)(i / size)));
        TA_TRY(device_array_from(&m->scales[values], NULL));
        if (c->scales && memcmp(m->scales[values].host, m->wanted_scales[values].host,
                                m->scales[values].bytes) != 0)
            return ta_fail(TA_ERR_DEVICE, "a scale of %s is not as expected", values ? "V" : "K");
    }
    return TA_OK;
}

/* Decode over the cache that was appended to, and over the one that the test built. */
static ta_status decode_both(const append_case *c, ta_device *device, ta_plan *plan, cache *m)
{
    size_t rows = (size_t)(c->plan_batch * c->query_tokens * c->query_heads);
    device_array q, out[2];
    ta_kv kv[2] = {m->kv, m->kv};
    ta_status status;
    TA_TRY(device_array_make(device, rows * (size_t)c->k_dim, 4, &q));
    TA_TRY(device_array_make(device, rows * (size_t)c->v_dim, 4, &out[0]));
    TA_TRY(device_array_make(device, rows * (size_t)c->v_dim, 4, &out[1]));
    random_source r = random_from(c->seed);
    for (size_t i = 0; i < rows * (size_t)c->k_dim; ++i)
        ((float *)q.host)[i] = (float)random_normal(&r);
    kv[1].k.data = m->wanted_k.device;
    kv[1].v.data = m->wanted_v.device;
    TA_TRY_GOTO(device_array_to(&q, NULL), free_arrays);
    TA_TRY_GOTO(device_array_to(&m->wanted_k, NULL), free_arrays);
    TA_TRY_GOTO(device_array_to(&m->wanted_v, NULL), free_arrays);
    for (int i = 0; i < 2; ++i) {
        ta_tensor query = {q.device, 0, 0, 0}, result = {out[i].device, 0, 0, 0};
        TA_TRY_GOTO(ta_decode(plan, &query, &kv[i], &result, NULL, NULL, NULL), free_arrays);
        TA_TRY_GOTO(device_array_from(&out[i], NULL), free_arrays);
    }
    if (memcmp(out[0].host, out[1].host, out[0].bytes) != 0)
        status = ta_fail(TA_ERR_DEVICE, "decode over the appended cache has other bits");
    for (size_t i = 0; i < rows * (size_t)c->v_dim; ++i)
        if (((float *)out[0].host)[i] != ((float *)out[0].host)[i])
            status = ta_fail(TA_ERR_DEVICE, "decode gave NaN at %zu", i);

free_arrays:
    device_array_free(&q);
    device_array_free(&out[0]);
    device_array_free(&out[1]);
    return status;
}

static ta_status make_plan(const append_case *c, ta_group *group, ta_device *device, const cache *m,
                           ta_plan **plan)
{
    ta_plan_config config =
        plan_config(c->kv_dtype, c->plan_batch, c->query_heads, c->k_dim, m->max_tokens);
    config.query_tokens = c->query_tokens;
    config.kv_heads = c->kv_heads;
    config.v_dim = c->v_dim;
    config.query_dtype = TA_F32;
    config.map.kind = c->map;
    config.map.block = c->block;
    config.append_scattered = c->source == TA_APPEND_HEADS;
    config.check = c->seed % 5 == 0;
    return ta_plan_create(group, device, &config, plan);
}

/* ---- One rank ---- */

typedef struct rank_run {
    const append_case *c;
    int rank;
    cache cache;
    ta_plan *plan;
} rank_run;

static ta_status append_and_compare(ta_group *group, ta_device *device, void *context)
{
    rank_run *run = context;
    const append_case *c = run->c;
    cache *m = &run->cache;
    int old = 0;
    TA_TRY(make_cache(c, device, run->rank, m));
    TA_TRY(make_plan(c, group, device, m, &run->plan));
    for (int call = 0; call < c->calls; ++call)
        TA_TRY(append(c, run->plan, m, run->rank, call));
    TA_TRY(compare(c, m));
    for (int b = 0; b < c->plan_batch; ++b)
        old += c->first[b];
    if (old > 0) /* there are tokens in no page, and poison */
        return TA_OK;
    return decode_both(c, device, run->plan, m);
}

static void release(void *context)
{
    rank_run *run = context;
    ta_plan_destroy(run->plan);
    free_cache(&run->cache);
}

static ta_status run_rank(ta_group *threads, void *context)
{
    rank_run run = {.c = context, .rank = ta_group_rank(threads)};
    return case_rank_run(threads, run.c->threads, append_and_compare, release, &run);
}

bool append_case_run(const append_case *c, char *failure, size_t capacity)
{
    append_case told = *c;
    char found[700], line[512];
    if (!options_ranks(c->ranks))
        return true;
    case_launch_ranks(c->ranks, run_rank, &told, found, sizeof found);
    if (!found[0])
        return true;
    describe(c, line, sizeof line);
    snprintf(failure, capacity, "%s\n%s", found, line);
    return false;
}
