/* The whole sequences of a decode case and what attention over them is: see case.h. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "options.h"

static void *allocate(int64_t count)
{
    void *memory = calloc((size_t)count + 1, sizeof(double));
    if (!memory)
        abort();
    return memory;
}

/* `count` random numbers, as `dtype` stores them and exactly in double. */
static void draw(random_source *r, ta_dtype dtype, double mean, double deviation, int64_t count,
                 double **exact, void **stored)
{
    *exact = allocate(count);
    *stored = allocate(count);
    for (int64_t i = 0; i < count; ++i) {
        number_encode(dtype, *stored, i, mean + deviation * random_normal(r));
        (*exact)[i] = number_decode(dtype, *stored, i);
    }
}

static void set(ta_dtype dtype, double value, int64_t index, double *exact, void *stored)
{
    number_encode(dtype, stored, index, value);
    exact[index] = value;
}

static bool is_narrow(ta_dtype dtype)
{
    return number_bytes(dtype) == 1;
}

static void put_special(const decode_case *c, random_source *r, ta_dtype query_dtype, int b,
                        int64_t queries, int64_t vectors, case_data *data)
{
    const ta_plan_config *p = &c->plan;
    double number = NAN;
    if (c->special == CASE_INFINITE_KEY && c->v_in_k)
        return; /* what weight 0 makes of an infinite value is left open */
    if (c->special >= CASE_INFINITE_KEY && is_narrow(p->kv_dtype))
        return; /* most of them have none */
    if (c->special == CASE_INFINITE_KEY || c->special == CASE_INFINITE_VALUE)
        number = random_one_in(r, 2) ? INFINITY : -INFINITY;
    if (c->special == CASE_NAN_QUERY && queries > 0)
        set(query_dtype, number, random_int(r, 0, (int)queries - 1), data->q[b], data->q_stored[b]);
    else if (vectors > 0 && (c->special == CASE_NAN_KEY || c->special == CASE_INFINITE_KEY))
        set(p->kv_dtype, number, random_int(r, 0, (int)(vectors * p->k_dim) - 1), data->k[b],
            data->k_stored[b]);
    else if (vectors > 0 && c->special != CASE_NAN_QUERY)
        set(p->kv_dtype, number, random_int(r, 0, (int)(vectors * p->v_dim) - 1), data->v[b],
            data->v_stored[b]);
}

/* q·k of a far key is about −1e60, of the others as if their first element were not there. */
static void put_far_keys(const decode_case *c, random_source *r, ta_dtype query_dtype, int b,
                         case_data *data)
{
    const ta_plan_config *p = &c->plan;
    for (int64_t row = 0; row < (int64_t)case_query_tokens(c, b) * p->query_heads; ++row)
        set(query_dtype, 0x1p100, row * p->k_dim, data->q[b], data->q_stored[b]);
    for (int64_t vector = 0; vector < (int64_t)c->lengths[b] * p->kv_heads; ++vector) {
        bool far = vector >= p->kv_heads && random_one_in(r, 3);
        set(p->kv_dtype, far ? -0x1p100 : 0, vector * p->k_dim, data->k[b], data->k_stored[b]);
    }
}

/* Magnitudes that differ by more than a binary32 has digits for. */
static void stretch_values(const decode_case *c, random_source *r, int b, case_data *data)
{
    int64_t count = (int64_t)c->lengths[b] * c->plan.kv_heads * c->plan.v_dim;
    for (int64_t i = 0; i < count; ++i) {
        int binades = random_int(r, -c->value_binades, c->value_binades);
        set(c->plan.kv_dtype, ldexp(data->v[b][i], binades), i, data->v[b], data->v_stored[b]);
        data->v[b][i] = number_decode(c->plan.kv_dtype, data->v_stored[b], i);
    }
}

/* The exact numbers are those of the bytes times their scales, which a double has. */
static void draw_scales(const decode_case *c, random_source *r, case_scales kind, int b, int dim,
                        double *exact, float **scales)
{
    int heads = c->plan.kv_heads;
    int64_t vectors = (int64_t)c->lengths[b] * heads;
    *scales = allocate(vectors + heads);
    random_source common = random_from(c->seed + 17u * (unsigned)kind);
    for (int64_t i = 0; i < vectors; ++i) {
        if (i >= heads && kind != CASE_SCALES_TOKENS)
            (*scales)[i] = (*scales)[i - heads];
        else if (i > 0 && kind == CASE_SCALES_TENSOR)
            (*scales)[i] = (*scales)[0];
        else
            (*scales)[i] =
                (float)exp2(4 * random_unit(kind == CASE_SCALES_TOKENS ? r : &common) - 2);
        for (int d = 0; d < dim; ++d)
            exact[i * dim + d] *= (double)(*scales)[i];
    }
}

static void draw_sequence(const decode_case *c, random_source *r, ta_dtype query_dtype, int b,
                          case_data *data)
{
    const ta_plan_config *p = &c->plan;
    int64_t queries = (int64_t)case_query_tokens(c, b) * p->query_heads * p->k_dim;
    int64_t vectors = (int64_t)c->lengths[b] * p->kv_heads;
    draw(r, query_dtype, 0, c->query_deviation, queries, &data->q[b], &data->q_stored[b]);
    draw(r, p->kv_dtype, 0, c->key_deviation, vectors * p->k_dim, &data->k[b], &data->k_stored[b]);
    draw(r, p->kv_dtype, c->value_mean, 1, vectors * p->v_dim, &data->v[b], &data->v_stored[b]);
    if (c->value_binades)
        stretch_values(c, r, b, data);
    if (c->special && b == p->batch - 1)
        put_special(c, r, query_dtype, b, queries, vectors, data);
    if (c->far_keys)
        put_far_keys(c, r, query_dtype, b, data);
    for (int64_t i = 0; c->v_in_k && i < vectors; ++i)
        memcpy(data->v[b] + i * p->v_dim, data->k[b] + i * p->k_dim + c->v_offset,
               (size_t)p->v_dim * sizeof(double));
    if (c->k_scale)
        draw_scales(c, r, c->k_scale, b, p->k_dim, data->k[b], &data->k_scales[b]);
    if (c->v_scale)
        draw_scales(c, r, c->v_scale, b, p->v_dim, data->v[b], &data->v_scales[b]);
}

/* The first tokens of a sequence are those of its group's first one. */
static void share_prefix(const decode_case *c, int b, case_data *data)
{
    const ta_plan_config *p = &c->plan;
    int64_t vectors = (int64_t)case_borrowed(c, b) * p->kv_heads;
    size_t size = number_bytes(p->kv_dtype), k = (size_t)(vectors * p->k_dim),
           v = (size_t)(vectors * p->v_dim);
    int from = c->group[b];
    if (vectors == 0)
        return;
    memcpy(data->k[b], data->k[from], k * sizeof(double));
    memcpy(data->v[b], data->v[from], v * sizeof(double));
    memcpy(data->k_stored[b], data->k_stored[from], k * size);
    memcpy(data->v_stored[b], data->v_stored[from], v * size);
}

/* A list of a sequence's positions: some of them in a random order, places of none between. */
static void draw_list(const decode_case *c, random_source *r, int32_t length, int32_t *list)
{
    int32_t *order = allocate(length), taken = 0;
    bool empty = random_one_in(r, 8);
    int gaps = random_int(r, 1, 6);
    for (int32_t y = 0; y < length; ++y) {
        int32_t other = random_int(r, 0, y);
        order[y] = order[other];
        order[other] = y;
    }
    for (int32_t i = 0; i < c->selected; ++i)
        list[i] = empty || taken == length || random_one_in(r, gaps + 1) ? -1 : order[taken++];
    for (int32_t i = 0; c->selected_reversed && i < c->selected / 2; ++i) {
        int32_t other = list[c->selected - 1 - i];
        list[c->selected - 1 - i] = list[i];
        list[i] = other;
    }
    free(order);
}

static void draw_lists(const decode_case *c, case_data *data)
{
    random_source source = random_from(c->seed ^ 0x11575u);
    int lists = c->selected_each ? c->plan.kv_heads : 1;
    if (!c->selected)
        return;
    data->selected_words = case_rows(c) * lists * c->selected;
    data->selected = allocate(data->selected_words);
    int32_t *list = data->selected;
    for (int b = 0; b < c->plan.batch; ++b)
        for (int i = 0; i < case_query_tokens(c, b) * lists; ++i, list += c->selected)
            draw_list(c, &source, c->lengths[b], list);
}

/* Which keys of a sequence a row's list has for a query head. */
static void find_selected(const decode_case *c, const case_data *data, int b, int t, int head,
                          bool *selected)
{
    int lists = c->selected_each ? c->plan.kv_heads : 1;
    int kv_head = head / (c->plan.query_heads / c->plan.kv_heads);
    const int32_t *list =
        data->selected +
        ((case_first_row(c, b) + t) * lists + (lists > 1 ? kv_head : 0)) * c->selected;
    memset(selected, 0, (size_t)c->lengths[b]);
    for (int32_t i = 0; i < c->selected; ++i)
        if (list[i] >= 0)
            selected[list[i]] = true;
}

/* Ascending from 0 to the length or a little beyond, with empty ranges among them. */
static void draw_bounds(const decode_case *c, random_source *r, int b, case_data *data)
{
    int32_t *bounds = data->bounds[b], longest = 0;
    if (c->bounds == CASE_BOUNDS_SHARED && b > 0) {
        memcpy(bounds, data->bounds[0], sizeof data->bounds[0]);
        return;
    }
    for (int i = 0; i < c->plan.batch; ++i)
        if (i == b || c->bounds == CASE_BOUNDS_SHARED)
            longest = c->lengths[i] > longest ? c->lengths[i] : longest;
    bounds[0] = 0;
    bounds[c->ranks] = longest + (random_one_in(r, 2) ? random_int(r, 0, 4) : 0);
    int32_t tile = c->plan.reproducible_tile;
    for (int rank = 1; rank < c->ranks; ++rank) {
        bounds[rank] = random_int(r, 0, bounds[c->ranks]);
        if (tile && bounds[rank] < longest) /* also the shorter ones of sequences that share it */
            bounds[rank] -= bounds[rank] % tile;
        if (rank > 1 && random_one_in(r, 4))
            bounds[rank] = bounds[rank - 1];
        for (int i = rank; i > 1 && bounds[i] < bounds[i - 1]; --i) {
            int32_t larger = bounds[i - 1];
            bounds[i - 1] = bounds[i];
            bounds[i] = larger;
        }
    }
}

/* Deal blocks, one by one, until it is this one's turn. */
static int weighted_owner(const decode_case *c, int32_t block)
{
    for (;;)
        for (int rank = 0; rank < c->ranks; ++rank)
            for (int32_t i = 0; i < c->weights[rank]; ++i)
                if (block-- == 0)
                    return rank;
}

int case_owner(const decode_case *c, const case_data *data, int sequence, int32_t position)
{
    int32_t block = c->plan.map.block;
    if (c->plan.map.kind == TA_SHARD_BLOCK_CYCLIC)
        return position / (block ? block : 64) % c->ranks;
    if (c->plan.map.kind == TA_SHARD_WEIGHTED)
        return weighted_owner(c, position / (block ? block : 64));
    for (int rank = 0; rank < c->ranks; ++rank) {
        int64_t end = c->bounds == CASE_BOUNDS_NONE ? (rank + 1) * (int64_t)block
                                                    : data->bounds[sequence][rank + 1];
        if (position < end)
            return rank;
    }
    return c->ranks - 1;
}

static int32_t fullest_shard(const decode_case *c, const case_data *data)
{
    int32_t most = 1;
    for (int b = 0; b < c->plan.batch; ++b) {
        int32_t held[CASE_MAX_RANKS] = {0};
        for (int32_t y = 0; y < c->lengths[b]; ++y) {
            int32_t *mine = &held[case_owner(c, data, b, y)];
            if (++*mine > most)
                most = *mine;
        }
    }
    return most;
}

static void expect(const decode_case *c, ta_dtype out_dtype, case_data *data)
{
    const ta_plan_config *p = &c->plan;
    int64_t rows = case_rows(c) * p->query_heads, row_index = 0;
    data->out = allocate(rows * p->v_dim);
    data->out_bound = allocate(rows * p->v_dim);
    data->lse = allocate(rows);
    data->lse_bound = allocate(rows);
    oracle_row row = {0};
    bound_row bound;
    /* What is in several splits of a list, or in a prefix and behind it, is merged once more. */
    int partials = bound_partials(c->plan.algorithm, c->ranks);
    partials *= (c->selected ? 8 : 1) * (c->prefixes ? 2 : 1);
    for (int b = 0; b < p->batch; ++b) {
        oracle_sequence sequence = {c->lengths[b], data->q[b], data->k[b], data->v[b]};
        oracle_problem problem = data->problem;
        bool *selected = allocate(c->lengths[b]);
        problem.selected = c->selected ? selected : NULL;
        problem.query_tokens = case_query_tokens(c, b);
        for (int t = 0; t < problem.query_tokens; ++t)
            for (int h = 0; h < p->query_heads; ++h, ++row_index) {
                if (c->selected)
                    find_selected(c, data, b, t, h, selected);
                oracle_attend(&problem, &sequence, t, h, &row);
                bound_of_row(&problem, &row, out_dtype, partials, &bound);
                size_t bytes = (size_t)p->v_dim * sizeof(double);
                memcpy(data->out + row_index * p->v_dim, row.out, bytes);
                memcpy(data->out_bound + row_index * p->v_dim, bound.out, bytes);
                data->lse[row_index] = row.lse;
                data->lse_bound[row_index] = bound.lse;
            }
        free(selected);
    }
    oracle_row_free(&row);
}

/* What matrix cores may do to weights. Theirs is the type of K and V, or bf16 if these have 8 bits;
 * f32 they do not multiply, and the host keeps weights exact;
 * but a result may be of another rank. */
static void set_rounding(const decode_case *c, oracle_problem *problem)
{
    bool of_host = options_host() && !options.others && !c->device[0];
    if (c->plan.weights == TA_WEIGHTS_EXACT || c->plan.kv_dtype == TA_F32 || of_host)
        return;
    bool f16 = c->plan.kv_dtype == TA_F16;
    problem->rounding = f16 ? 0x1p-11 : 0x1p-8;
    problem->rounding_lost = f16 ? 0x1p-40 : 0;
}

void case_data_make(const decode_case *c, case_data *data)
{
    const ta_plan_config *p = &c->plan;
    memset(data, 0, sizeof *data);
    /* The inputs are the same for every shard map. */
    random_source source = random_from(c->seed ^ 0x5eed0000u), map = random_from(c->seed ^ 0xb0d5u);
    ta_dtype query_dtype = p->query_dtype ? p->query_dtype : p->kv_dtype;
    ta_dtype out_dtype = p->out_dtype ? p->out_dtype : query_dtype;
    for (int h = 0; h < p->query_heads; ++h) {
        data->alibi[h] = (float)(0.2 * random_normal(&source));
        data->sinks[h] = (float)(2 * random_normal(&source));
    }
    for (int b = 0; b < p->batch; ++b) {
        draw_sequence(c, &source, query_dtype, b, data);
        share_prefix(c, b, data);
        if (c->bounds != CASE_BOUNDS_NONE)
            draw_bounds(c, &map, b, data);
    }
    draw_lists(c, data);
    data->max_tokens = fullest_shard(c, data) + c->spare_tokens;
    data->problem = (oracle_problem){
        .query_tokens = p->query_tokens,
        .query_heads = p->query_heads,
        .kv_heads = p->kv_heads,
        .k_dim = p->k_dim,
        .v_dim = p->v_dim,
        .causal = p->mask == TA_MASK_CAUSAL,
        .window = p->window,
        .scale = p->scale != 0 ? (double)p->scale : 1 / sqrt(p->k_dim),
        .softcap = (double)p->softcap,
        .alibi_slopes = c->alibi ? data->alibi : NULL,
        .sinks = c->sinks ? data->sinks : NULL,
        .run_tokens = options_host() && number_bytes(p->kv_dtype) == 2 ? 128 : 64,
        .tile = p->reproducible_tile,
        .scaled = is_narrow(p->kv_dtype),
    };
    set_rounding(c, &data->problem);
    expect(c, out_dtype, data);
}

void case_data_free(const decode_case *c, case_data *data)
{
    for (int b = 0; b < c->plan.batch; ++b) {
        free(data->q[b]);
        free(data->k[b]);
        free(data->v[b]);
        free(data->q_stored[b]);
        free(data->k_stored[b]);
        free(data->v_stored[b]);
        free(data->k_scales[b]);
        free(data->v_scales[b]);
    }
    free(data->selected);
    free(data->out);
    free(data->out_bound);
    free(data->lse);
    free(data->lse_bound);
}
