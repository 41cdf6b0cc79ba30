/* Attention over full sequences, backward. An item is one KV head and a range of its keys; its
 * tiles of keys meet the tiles of rows that see them, and each pair adds to dK and dV of the
 * keys, and to dQ of the rows. dK and dV are complete within an item. dQ is summed apart for each
 * range of keys, and the sums are added in order: no two threads ever add to the same number, and
 * the bits depend on the work alone.
 *
 * With P = exp2(S - lse) and dP = dO·Vᵀ: dS = P ∘ (dP - delta), dV = Pᵀ·dO, dK = dSᵀ·Q and
 * dQ = dS·K. Lanes are keys, except in the panels of dQ. See job.h and panel.h. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "job.h"

#define LANES TA_PANEL_LANES

/* Keys of a tile: the more there are, the less often rows are loaded. */
#define TILE_PANELS 8
#define TILE_KEYS (TILE_PANELS * LANES)

/* Keys of one sum of dQ, see docs/numerics.md. */
#define RUN_KEYS 64

/* Rows that meet a tile of keys at one time: whole blocks of registers, and whole panels of dQ. */
#define TILE_ROWS 48
#define ROW_PANELS (TILE_ROWS / LANES)

/* Threads that can be busy with one KV head's worth of work; each part has sums of dQ of its
 * own. */
#define ITEMS_WANTED 16
#define SPLIT_KEYS_MIN 512

/* One item in a thread's scratch. Rows are rows of tiles, [row][dim]; panels have lanes. */
typedef struct backward_item {
    const ta_attention_job *job;
    int32_t kv_head;
    float *dq;                 /* [panel of rows][k_dim][lane], all rows of the KV head */
    float *k_rows;             /* the tile of keys */
    float *k, *v, *dk, *dv;    /* [panel of keys][dim][lane] */
    float *q_rows, *dout_rows; /* the tile of rows; q as it makes scores */
    /* As pairs of bf16, where the CPU multiplies them: panels of keys, tiles of rows. */
    float *k_pairs, *v_pairs, *q_pairs, *dout_pairs;
    float *p, *ds;      /* [row][lane], one panel of keys */
    float *ds_rows;     /* [panel of rows][key][lane] */
    float *lse, *delta; /* [row] */
    float *first, *end; /* [row]: the lanes that a row sees of a panel */
} backward_item;

static size_t line(int64_t floats)
{
    return ((size_t)floats * sizeof(float) + 63) / 64 * 64;
}

/* Cut the next piece of the scratch; with a NULL scratch only `used` counts. */
static float *cut(char *scratch, size_t *used, int64_t floats)
{
    char *piece = scratch ? scratch + *used : NULL;
    *used += line(floats);
    return (float *)piece;
}

static size_t cut_scratch(const ta_attention_work *w, char *scratch, backward_item *b)
{
    size_t used = 0;
    int64_t k_tile = ta_tile_stride(w->k_dim), v_tile = ta_tile_stride(w->v_dim);
    int64_t key_tile = k_tile > v_tile ? k_tile : v_tile; /* values pass through it as well */
    b->k_rows = cut(scratch, &used, TILE_KEYS * key_tile);
    b->k = cut(scratch, &used, TILE_KEYS * (int64_t)w->k_dim);
    b->v = cut(scratch, &used, TILE_KEYS * (int64_t)w->v_dim);
    b->dk = cut(scratch, &used, TILE_PANELS * ta_sums_floats(w->k_dim));
    b->dv = cut(scratch, &used, TILE_PANELS * ta_sums_floats(w->v_dim));
    b->q_rows = cut(scratch, &used, TILE_ROWS * k_tile);
    b->dout_rows = cut(scratch, &used, TILE_ROWS * v_tile);
    b->k_pairs = cut(scratch, &used, TILE_KEYS * (int64_t)w->k_dim);
    b->v_pairs = cut(scratch, &used, TILE_KEYS * (int64_t)w->v_dim);
    b->q_pairs = cut(scratch, &used, TILE_ROWS * ta_pairs_stride(w->k_dim));
    b->dout_pairs = cut(scratch, &used, TILE_ROWS * ta_pairs_stride(w->v_dim));
    b->p = cut(scratch, &used, TILE_ROWS * LANES);
    b->ds = cut(scratch, &used, TILE_ROWS * LANES);
    b->ds_rows = cut(scratch, &used, TILE_KEYS * TILE_ROWS);
    b->lse = cut(scratch, &used, TILE_ROWS);
    b->delta = cut(scratch, &used, TILE_ROWS);
    b->first = cut(scratch, &used, TILE_ROWS);
    b->end = cut(scratch, &used, TILE_ROWS);
    return used;
}

static int64_t row_tiles(int64_t rows)
{
    return (rows + TILE_ROWS - 1) / TILE_ROWS;
}

/* Floats of the sums of dQ for one KV head and one range of keys. */
static int64_t dq_floats(const ta_attention_work *w)
{
    int64_t rows = (int64_t)w->queries * (w->query_heads / w->kv_heads);
    return row_tiles(rows) * ROW_PANELS * ta_sums_floats(w->k_dim);
}

static int32_t choose_splits(const ta_attention_work *w)
{
    int32_t wanted = (ITEMS_WANTED + w->kv_heads - 1) / w->kv_heads;
    int32_t most = w->keys / SPLIT_KEYS_MIN > 1 ? w->keys / SPLIT_KEYS_MIN : 1;
    return wanted < most ? wanted : most;
}

size_t ta_attention_backward_bytes(const ta_attention_work *shape, int threads)
{
    backward_item unused;
    return (size_t)threads * cut_scratch(shape, NULL, &unused) +
           (size_t)choose_splits(shape) * (size_t)shape->kv_heads * line(dq_floats(shape));
}

static float *dq_of(const ta_attention_job *job, int32_t kv_head, int32_t split)
{
    int64_t floats = (int64_t)(line(dq_floats(job->work)) / sizeof(float));
    return job->dq_panels + ((int64_t)split * job->work->kv_heads + kv_head) * floats;
}

/* The n keys or values from `key` on as panels of pairs. */
static void pack_keys(const backward_item *b, const ta_tensor *tensor, int32_t dim, int32_t key,
                      int n, float *panels)
{
    ta_tile_copy_keys(b->job, tensor, dim, b->kv_head, key, n, b->k_rows);
    for (int p = 0; p < TILE_PANELS; p++)
        ta_panel_of_pairs(b->job, b->k_rows + p * LANES * ta_pairs_stride(dim), dim,
                          panels + (int64_t)p * LANES * dim);
}

/* Load n keys from `key` on: as rows for dQ, as panels for scores. */
static void start_keys(const backward_item *b, int32_t key, int n)
{
    const ta_attention_work *w = b->job->work;
    const ta_panel_kernels *panels = b->job->kernels->panels;
    if (b->job->multiplies_bf16) {
        pack_keys(b, &w->k, w->k_dim, key, n, b->k_pairs);
        pack_keys(b, &w->v, w->v_dim, key, n, b->v_pairs);
    }
    ta_tile_load_keys(b->job, &w->v, w->v_dim, b->kv_head, key, n, b->k_rows);
    for (int p = 0; p < TILE_PANELS; p++)
        panels->transpose(b->k_rows + p * LANES * ta_tile_stride(w->v_dim),
                          ta_tile_stride(w->v_dim), LANES, w->v_dim,
                          b->v + (int64_t)p * LANES * w->v_dim, LANES);
    ta_tile_load_keys(b->job, &w->k, w->k_dim, b->kv_head, key, n, b->k_rows);
    for (int p = 0; p < TILE_PANELS; p++)
        panels->transpose(b->k_rows + p * LANES * ta_tile_stride(w->k_dim),
                          ta_tile_stride(w->k_dim), LANES, w->k_dim,
                          b->k + (int64_t)p * LANES * w->k_dim, LANES);
    memset(b->dk, 0, line(TILE_PANELS * ta_sums_floats(w->k_dim)));
    memset(b->dv, 0, line(TILE_PANELS * ta_sums_floats(w->v_dim)));
}

/* Load n rows from `row` on; returns whether products with keys may be of pairs. */
static int start_rows(const backward_item *b, int64_t row, int n)
{
    const ta_attention_work *w = b->job->work;
    const ta_attention_work_gradient *g = b->job->gradient;
    int packed = b->job->multiplies_bf16;
    if (packed) {
        packed = ta_tile_copy_rows(b->job, &w->q, w->k_dim, b->kv_head, row, n, b->q_pairs);
        packed &= ta_tile_copy_rows(b->job, &g->dout, w->v_dim, b->kv_head, row, n, b->dout_pairs);
    }
    ta_tile_load_rows(b->job, &w->q, w->k_dim, b->kv_head, row, n, b->job->query_factor, b->q_rows);
    ta_tile_load_rows(b->job, &g->dout, w->v_dim, b->kv_head, row, n, 1.0f, b->dout_rows);
    for (int i = 0; i < n; i++) {
        int64_t at = ta_row_index(b->job, b->kv_head, row + i);
        b->lse[i] = (float)(g->lse[at] * M_LOG2E);
        b->delta[i] = g->delta[at];
    }
    return packed;
}

/* What each row sees of the 16 keys from `key` on; returns whether any row sees less than all. */
static int mask_panel(const backward_item *b, int64_t row, int n, int32_t key, int keys)
{
    int masked = 0;
    for (int i = 0; i < n; i++) {
        ta_visible seen = ta_row_visible(b->job, row + i);
        int64_t first = (int64_t)seen.first - key, end = (int64_t)seen.end - key;
        b->first[i] = (float)(first < 0 ? 0 : first < LANES ? first : LANES);
        b->end[i] = (float)(end < 0 ? 0 : end < LANES ? end : LANES);
        masked |= first > 0 || end < keys;
    }
    return masked;
}

static void add_sums(const backward_item *b, int careful, const float *tile, int32_t dim, int n,
                     const float *weights, float *to)
{
    int64_t stride = ta_tile_stride(dim);
    if (careful && !ta_tile_finite(tile, stride, n, dim))
        ta_panel_sums_hidden(tile, stride, n, dim, weights, NULL, to);
    else
        b->job->kernels->panels->sums(tile, stride, n, dim, weights, NULL, to);
}

/* Scores into p and dO·V into ds, for one panel of keys and n rows. */
static void find_products(const backward_item *b, int packed, int n, int panel)
{
    const ta_attention_work *w = b->job->work;
    const ta_panel_kernels *panels = b->job->kernels->panels;
    int64_t k = (int64_t)panel * LANES * w->k_dim, v = (int64_t)panel * LANES * w->v_dim;
    if (packed) {
        panels->dots_bf16(b->q_pairs, ta_pairs_stride(w->k_dim), n, ta_pairs(w->k_dim),
                          b->k_pairs + k, b->job->query_factor, b->p);
        panels->dots_bf16(b->dout_pairs, ta_pairs_stride(w->v_dim), n, ta_pairs(w->v_dim),
                          b->v_pairs + v, 1.0f, b->ds);
        return;
    }
    panels->dots(b->q_rows, ta_tile_stride(w->k_dim), n, w->k_dim, b->k + k, b->p);
    panels->dots(b->dout_rows, ta_tile_stride(w->v_dim), n, w->v_dim, b->v + v, b->ds);
}

/* One panel of keys against the tile of n rows: P and dS, then dV and dK; dS is kept for dQ. */
static int add_panel(const backward_item *b, int packed, int64_t row, int n, int panel, int32_t key,
                     int keys)
{
    const ta_attention_work *w = b->job->work;
    const ta_host_kernels *kernels = b->job->kernels;
    const ta_panel_kernels *panels = kernels->panels;
    int masked = mask_panel(b, row, n, key, keys);
    find_products(b, packed, n, panel);
    if (b->job->cap > 0.0f)
        kernels->softcap(b->p, n * LANES, 1.0f);
    panels->gradient(b->p, b->ds, n, b->lse, b->delta, b->first, b->end, b->job->cap);
    add_sums(b, masked, b->dout_rows, w->v_dim, n, b->p, b->dv + panel * ta_sums_floats(w->v_dim));
    add_sums(b, masked, b->q_rows, w->k_dim, n, b->ds, b->dk + panel * ta_sums_floats(w->k_dim));
    for (int x = 0; x * LANES < n; x++)
        panels->transpose(b->ds + x * LANES * LANES, LANES, LANES, LANES,
                          b->ds_rows + (x * TILE_KEYS + panel * LANES) * LANES, LANES);
    return masked;
}

/* Ask for a part of the rows that are loaded next, those from `row` on: for each panel of keys as
 * many. */
static void fetch_part(const backward_item *b, int64_t row, int panel)
{
    const ta_attention_work *w = b->job->work;
    const int rows = TILE_ROWS / TILE_PANELS;
    int64_t first = row + panel * rows, end = first + rows;
    end = end < b->job->rows ? end : b->job->rows;
    ta_fetch_rows(b->job, &w->q, w->k_dim, b->kv_head, first, end);
    ta_fetch_rows(b->job, &b->job->gradient->dout, w->v_dim, b->kv_head, first, end);
}

/* The tile of n keys from `key` on against the tile of rows from `row` on. */
static void add_tile(const backward_item *b, int32_t key, int n, int64_t row)
{
    const ta_attention_work *w = b->job->work;
    int rows = (int)(b->job->rows - row < TILE_ROWS ? b->job->rows - row : TILE_ROWS);
    int32_t first = ta_row_visible(b->job, row).first - key;
    int32_t end = ta_row_visible(b->job, row + rows - 1).end - key;
    int from = first > 0 ? first / LANES * LANES : 0, to = end < n ? end : n, masked = 0;
    if (from >= to)
        return;
    int packed = start_rows(b, row, rows);
    for (int at = from; at < to; at += LANES) {
        fetch_part(b, row + TILE_ROWS, at / LANES);
        masked |=
            add_panel(b, packed, row, rows, at / LANES, key + at, n - at < LANES ? n - at : LANES);
    }
    for (int x = 0; x * LANES < rows; x++)
        for (int at = from; at < to; at += RUN_KEYS)
            add_sums(b, masked, b->k_rows + at * ta_tile_stride(w->k_dim), w->k_dim,
                     to - at < RUN_KEYS ? to - at : RUN_KEYS,
                     b->ds_rows + (x * TILE_KEYS + at) * LANES,
                     b->dq + (row / LANES + x) * ta_sums_floats(w->k_dim));
}

/* Store panels of one of the gradients: lane j of panel p is key `key` + 16 p + j. */
static void store_keys(const backward_item *b, const float *panels, int32_t dim, int32_t key, int n,
                       float factor, const ta_tensor *to)
{
    const ta_attention_job *job = b->job;
    ta_dtype dtype = job->gradient->kv_dtype;
    int64_t stride = ta_tile_stride(dim);
    for (int p = 0; p * LANES < n; p++)
        job->kernels->panels->transpose(panels + p * ta_sums_floats(dim), LANES, dim, LANES,
                                        b->k_rows + p * LANES * stride, stride);
    for (int i = 0; i < n; i++) {
        int64_t at = job->work->key_rows[key + i] * to->token_stride + b->kv_head * to->head_stride;
        job->kernels->store[dtype](b->k_rows + i * stride, dim, factor,
                                   (char *)to->data + at * (int64_t)ta_dtype_bytes(dtype));
    }
}

/* The first row of those that see a key at or after `key`: ends of ranges ascend. */
static int64_t first_row(const ta_attention_job *job, int32_t key)
{
    int64_t low = 0, high = job->rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (ta_row_visible(job, middle).end > key)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void run_item(void *context, int64_t item, int thread)
{
    const ta_attention_job *job = context;
    const ta_attention_work *w = job->work;
    backward_item b = {.job = job, .kv_head = (int32_t)(item % w->kv_heads)};
    int32_t split = (int32_t)(item / w->kv_heads); /* the longest first, if causal */
    int32_t start = split * job->split_keys;
    int32_t end = w->keys - start < job->split_keys ? w->keys : start + job->split_keys;
    cut_scratch(w, job->scratch + (size_t)thread * job->scratch_bytes, &b);
    b.dq = dq_of(job, b.kv_head, split);
    memset(b.dq, 0, line(dq_floats(w)));
    for (int32_t key = start; key < end; key += TILE_KEYS) {
        int n = end - key < TILE_KEYS ? end - key : TILE_KEYS;
        start_keys(&b, key, n);
        int64_t row = first_row(job, key) / TILE_ROWS * TILE_ROWS;
        for (; row < job->rows && ta_row_visible(job, row).first < key + n; row += TILE_ROWS)
            add_tile(&b, key, n, row);
        store_keys(&b, b.dv, w->v_dim, key, n, 1.0f, &job->gradient->dv);
        store_keys(&b, b.dk, w->k_dim, key, n, w->scale / job->query_factor, &job->gradient->dk);
    }
}

/* Add the sums of dQ of all ranges of keys, for one panel of rows, and store them. */
static void store_dq(void *context, int64_t item, int thread)
{
    const ta_attention_job *job = context;
    const ta_attention_work *w = job->work;
    backward_item b = {0};
    int32_t kv_head = (int32_t)(item % w->kv_heads);
    int64_t row = item / w->kv_heads * LANES, floats = ta_sums_floats(w->k_dim);
    int64_t stride = ta_tile_stride(w->k_dim), at = row / LANES * floats;
    const ta_tensor *to = &job->gradient->dq;
    ta_dtype dtype = job->gradient->dq_dtype;
    cut_scratch(w, job->scratch + (size_t)thread * job->scratch_bytes, &b);
    float *sum = dq_of(job, kv_head, 0) + at;
    for (int32_t split = 1; split < job->splits; split++) {
        const float *more = dq_of(job, kv_head, split) + at;
        for (int64_t i = 0; i < floats; i++)
            sum[i] += more[i];
    }
    job->kernels->panels->transpose(sum, LANES, w->k_dim, LANES, b.q_rows, stride);
    for (int j = 0; j < LANES && row + j < job->rows; j++)
        job->kernels->store[dtype](b.q_rows + j * stride, w->k_dim, w->scale,
                                   (char *)to->data + ta_row_element(job, to, kv_head, row + j) *
                                                          (int64_t)ta_dtype_bytes(dtype));
}

void ta_host_attention_backward(ta_pool *pool, ta_attention_job *job)
{
    const ta_attention_work *w = job->work;
    backward_item unused;
    job->splits = choose_splits(w);
    job->split_keys = (w->keys + job->splits - 1) / job->splits;
    job->split_keys = (job->split_keys + TILE_KEYS - 1) / TILE_KEYS * TILE_KEYS;
    job->scratch_bytes = cut_scratch(w, NULL, &unused);
    job->dq_panels = (float *)(job->scratch + (size_t)ta_pool_threads(pool) * job->scratch_bytes);
    ta_pool_run(pool, (int64_t)job->splits * w->kv_heads, run_item, job);
    ta_pool_run(pool, (job->rows + LANES - 1) / LANES * w->kv_heads, store_dq, job);
}
