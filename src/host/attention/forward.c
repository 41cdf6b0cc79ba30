/* Attention over full sequences, forward. The work is divided into items, each some rows of one KV
 * head; keys go by in tiles, and the rows take each tile panel by panel: scores, the new maximum,
 * weights, sums of values. A tile that no row of a panel sees is skipped. See job.h. */
#include <math.h>
#include <string.h>

#include "base/partial.h"
#include "job.h"

/* The most rows of an item. Their queries and sums stay in the second cache level beside a tile;
 * the more there are, the less often a tile is loaded. Half as many where there would be so few
 * items that threads wait for the last ones. */
#define ITEM_PANELS 32
#define ITEM_ROWS (ITEM_PANELS * TA_PANEL_LANES)
#define ITEMS_WANTED 32

static int64_t item_rows(const ta_attention_job *job)
{
    return job->rows * job->work->kv_heads >= (int64_t)ITEM_ROWS * ITEMS_WANTED ? ITEM_ROWS
                                                                                : ITEM_ROWS / 2;
}

/* The most keys of a tile: sums over tokens are made in runs of at most 64 (docs/numerics.md). */
#define TILE_KEYS 64

/* One item in a thread's scratch. */
typedef struct forward_item {
    const ta_attention_job *job;
    int32_t kv_head;
    int64_t row; /* the first */
    int rows;
    float *k, *v;  /* the present tile; K as pairs if packed */
    float *q;      /* [panel][k_dim][lane], or [panel][pair][lane] in the same room */
    int packed;    /* are queries and keys multiplied as bf16? */
    float *o;      /* [panel][v_dim][lane] */
    float *scores; /* [key][lane], then weights */
    ta_panel_partial *partials;
} forward_item;

static size_t line(size_t floats)
{
    return (floats * sizeof(float) + 63) / 64 * 64;
}

static size_t tile_bytes(int32_t dim)
{
    return line((size_t)(TILE_KEYS * ta_tile_stride(dim)));
}

static size_t query_bytes(const ta_attention_work *shape)
{
    return line((size_t)ITEM_ROWS * (size_t)shape->k_dim);
}

static size_t output_bytes(const ta_attention_work *shape)
{
    return line(ITEM_PANELS * (size_t)ta_sums_floats(shape->v_dim));
}

size_t ta_attention_forward_scratch(const ta_attention_work *shape)
{
    return tile_bytes(shape->k_dim) + tile_bytes(shape->v_dim) + query_bytes(shape) +
           output_bytes(shape) + line(TILE_KEYS * TA_PANEL_LANES) +
           ITEM_PANELS * sizeof(ta_panel_partial);
}

static forward_item prepare(const ta_attention_job *job, int64_t item, char *scratch)
{
    const ta_attention_work *w = job->work;
    int64_t most = item_rows(job), blocks = (job->rows + most - 1) / most;
    forward_item f = {.job = job, .kv_head = (int32_t)(item % w->kv_heads)};
    f.row = (blocks - 1 - item / w->kv_heads) * most; /* the longest first, if causal */
    f.rows = (int)(job->rows - f.row < most ? job->rows - f.row : most);
    f.k = (float *)scratch;
    f.v = (float *)(scratch += tile_bytes(w->k_dim));
    f.q = (float *)(scratch += tile_bytes(w->v_dim));
    f.o = (float *)(scratch += query_bytes(w));
    f.scores = (float *)(scratch += output_bytes(w));
    f.partials = (ta_panel_partial *)(scratch + line(TILE_KEYS * TA_PANEL_LANES));
    return f;
}

static int panel_rows(const forward_item *f, int panel)
{
    int left = f->rows - panel * TA_PANEL_LANES;
    return left < TA_PANEL_LANES ? left : TA_PANEL_LANES;
}

static float *query_panel(const forward_item *f, int panel)
{
    return f->q + (int64_t)panel * f->job->work->k_dim * TA_PANEL_LANES;
}

/* The queries as pairs of bf16; returns whether that is the same as computing with floats. */
static int pack_queries(const forward_item *f)
{
    const ta_attention_work *w = f->job->work;
    int packs = 1;
    for (int p = 0; packs && p * TA_PANEL_LANES < f->rows; p++) {
        packs = ta_tile_copy_rows(f->job, &w->q, w->k_dim, f->kv_head, f->row + p * TA_PANEL_LANES,
                                  panel_rows(f, p), f->k);
        ta_panel_of_pairs(f->job, f->k, w->k_dim, query_panel(f, p));
    }
    return packs;
}

static void load_queries(const forward_item *f)
{
    const ta_attention_work *w = f->job->work;
    for (int p = 0; p * TA_PANEL_LANES < f->rows; p++) {
        ta_tile_load_rows(f->job, &w->q, w->k_dim, f->kv_head, f->row + p * TA_PANEL_LANES,
                          panel_rows(f, p), f->job->query_factor, f->k);
        f->job->kernels->panels->transpose(f->k, ta_tile_stride(w->k_dim), TA_PANEL_LANES, w->k_dim,
                                           query_panel(f, p), TA_PANEL_LANES);
    }
}

static void start_rows(forward_item *f)
{
    const ta_attention_work *w = f->job->work;
    f->packed = f->job->multiplies_bf16 && pack_queries(f);
    if (!f->packed)
        load_queries(f);
    for (int p = 0; p * TA_PANEL_LANES < f->rows; p++) {
        for (int j = 0; j < TA_PANEL_LANES; j++) {
            f->partials[p].m[j] = -INFINITY;
            f->partials[p].l[j] = 0.0f;
        }
    }
    memset(f->o, 0, output_bytes(w));
}

/* What each lane of a panel sees of the n keys from `key` on. */
static ta_panel_mask mask_of(const forward_item *f, int panel, int32_t key, int n)
{
    ta_panel_mask mask = {0};
    for (int j = 0; j < panel_rows(f, panel); j++) {
        ta_visible seen = ta_row_visible(f->job, f->row + panel * TA_PANEL_LANES + j);
        mask.first[j] = (float)(seen.first <= key      ? 0
                                : seen.first - key < n ? seen.first - key
                                                       : n);
        mask.end[j] = (float)(seen.end <= key ? 0 : seen.end - key < n ? seen.end - key : n);
    }
    return mask;
}

/* One panel against the keys of the tile from `key` to `end`; `first` is the tile's own. */
static void attend_panel(const forward_item *f, int panel, int32_t first, int32_t key, int32_t end,
                         int masked)
{
    const ta_attention_work *w = f->job->work;
    const ta_host_kernels *kernels = f->job->kernels;
    int n = end - key;
    int64_t k_stride = f->packed ? ta_pairs_stride(w->k_dim) : ta_tile_stride(w->k_dim);
    int64_t v_stride = ta_tile_stride(w->v_dim);
    const float *k = f->k + (key - first) * k_stride, *v = f->v + (key - first) * v_stride;
    float *o = f->o + panel * ta_sums_floats(w->v_dim);
    ta_panel_partial *partial = &f->partials[panel];
    if (f->packed)
        kernels->panels->dots_bf16(k, k_stride, n, ta_pairs(w->k_dim), query_panel(f, panel),
                                   f->job->query_factor, f->scores);
    else
        kernels->panels->dots(k, k_stride, n, w->k_dim, query_panel(f, panel), f->scores);
    if (f->job->cap > 0.0f)
        kernels->softcap(f->scores, n * TA_PANEL_LANES, f->job->cap);
    if (!masked) {
        kernels->panels->softmax(f->scores, n, NULL, partial);
        kernels->panels->sums(v, v_stride, n, w->v_dim, f->scores, partial->rescale, o);
        return;
    }
    ta_panel_mask mask = mask_of(f, panel, key, n);
    kernels->panels->softmax(f->scores, n, &mask, partial);
    if (ta_tile_finite(v, v_stride, n, w->v_dim))
        kernels->panels->sums(v, v_stride, n, w->v_dim, f->scores, partial->rescale, o);
    else
        ta_panel_sums_hidden(v, v_stride, n, w->v_dim, f->scores, partial->rescale, o);
}

/* Ask for part `part` of `parts` of the keys and values from `key` up to `end`. */
static void fetch_part(const forward_item *f, int32_t key, int32_t end, int part, int parts)
{
    const ta_attention_work *w = f->job->work;
    int32_t n = end - key, from = key + n * part / parts, to = key + n * (part + 1) / parts;
    ta_fetch_keys(f->job, &w->k, w->k_dim, f->kv_head, from, to);
    ta_fetch_keys(f->job, &w->v, w->v_dim, f->kv_head, from, to);
}

/* All rows against the tile of the n keys from `key` on; those up to `next_end` are loaded next. */
static void attend_tile(const forward_item *f, int32_t key, int n, int32_t next_end)
{
    int panels = (f->rows + TA_PANEL_LANES - 1) / TA_PANEL_LANES;
    for (int p = 0; p < panels; p++) {
        fetch_part(f, key + n, next_end, p, panels);
        int64_t row = f->row + p * TA_PANEL_LANES;
        ta_visible top = ta_row_visible(f->job, row);
        ta_visible bottom = ta_row_visible(f->job, row + panel_rows(f, p) - 1);
        int32_t first = top.first > key ? top.first : key;
        int32_t end = bottom.end < key + n ? bottom.end : key + n;
        if (first < end)
            attend_panel(f, p, key, first, end, bottom.first > first || top.end < end);
    }
}

static void write_records(const forward_item *f)
{
    const ta_attention_work *w = f->job->work;
    int64_t stride = ta_tile_stride(w->v_dim);
    for (int p = 0; p * TA_PANEL_LANES < f->rows; p++) {
        f->job->kernels->panels->transpose(f->o + p * ta_sums_floats(w->v_dim), TA_PANEL_LANES,
                                           w->v_dim, TA_PANEL_LANES, f->v, stride);
        for (int j = 0; j < panel_rows(f, p); j++) {
            int64_t row = f->row + p * TA_PANEL_LANES + j;
            float *record = f->job->records +
                            ta_row_index(f->job, f->kv_head, row) * ta_record_floats(w->v_dim);
            float m = f->partials[p].m[j], l = f->partials[p].l[j];
            memcpy(record, f->v + j * stride, (size_t)w->v_dim * sizeof(float));
            record[w->v_dim] = l != l ? l : m; /* a NaN among the scores is in l only */
            record[w->v_dim + 1] = l;
        }
    }
}

static void run_item(void *context, int64_t item, int thread)
{
    const ta_attention_job *job = context;
    const ta_attention_work *w = job->work;
    forward_item f = prepare(job, item, job->scratch + (size_t)thread * job->scratch_bytes);
    int32_t first = ta_row_visible(job, f.row).first;
    int32_t end = ta_row_visible(job, f.row + f.rows - 1).end;
    int most = TILE_KEYS / job->kernels->panels->rows * job->kernels->panels->rows;
    start_rows(&f);
    for (int32_t key = first; key < end; key += most) {
        int n = end - key < most ? end - key : most;
        if (f.packed)
            ta_tile_copy_keys(job, &w->k, w->k_dim, f.kv_head, key, n, f.k);
        else
            ta_tile_load_keys(job, &w->k, w->k_dim, f.kv_head, key, n, f.k);
        ta_tile_load_keys(job, &w->v, w->v_dim, f.kv_head, key, n, f.v);
        attend_tile(&f, key, n, end - key - n < most ? end : key + n + most);
    }
    write_records(&f);
}

void ta_host_attention_forward(ta_pool *pool, ta_attention_job *job)
{
    int64_t blocks = (job->rows + item_rows(job) - 1) / item_rows(job);
    job->scratch_bytes = ta_attention_forward_scratch(job->work);
    ta_pool_run(pool, blocks * job->work->kv_heads, run_item, job);
}
