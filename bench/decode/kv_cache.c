/* The KV cache of a row: memory, contents, shards, addresses. See kv_cache.h; measure.c decodes
 * from it, bandwidth.c reads it, check_output.c computes the truth from it. */
#include "kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/elements.h"
#include "common/launch.h"
#include "common/pages.h"
#include "common/parallel.h"

#define KV_SEED 1

/* Where a rank begins in a contiguous map: equal parts, or at tiles if there are any. */
static int32_t bound(const decode_options *o, const bench_case *row, int rank)
{
    int64_t at = (int64_t)row->tokens * rank / row->ranks;
    return (int32_t)(o->tile && rank < row->ranks ? at - at % o->tile : at);
}

int32_t kv_most_tokens(const decode_options *o, const bench_case *row)
{
    int32_t most = 1;
    for (int rank = 0; o->map == TA_SHARD_CONTIGUOUS && rank < row->ranks; rank++) {
        int32_t held = bound(o, row, rank + 1) - bound(o, row, rank);
        most = held > most ? held : most;
    }
    if (o->map == TA_SHARD_CONTIGUOUS)
        return most;
    /* Rank 0 has the most: whole rounds of blocks, and the start of the last round. */
    int64_t round = o->block * row->ranks;
    int64_t rest = row->tokens % round;
    return (int32_t)(row->tokens / round * o->block + (rest < o->block ? rest : o->block));
}

/* Tokens of one sequence that a rank has room for: whole pages if it is paged. */
static int64_t room_tokens(const decode_options *o, const bench_case *row)
{
    int64_t page = o->page_tokens ? o->page_tokens : 1;
    return (kv_most_tokens(o, row) + page - 1) / page * page;
}

static double vector_bytes(const decode_options *o, const bench_case *row)
{
    return (double)(o->head_dim + (o->latent ? 0 : o->v_dim)) *
           (double)element_bytes(row->kv_dtype);
}

double kv_layout_bytes(const decode_options *options, const bench_case *row)
{
    return (double)options->batch * (double)room_tokens(options, row) * row->ranks * row->kv_heads *
           vector_bytes(options, row);
}

double kv_whole_bytes(const decode_options *options, const bench_case *row)
{
    return (double)options->batch * row->tokens * row->kv_heads * vector_bytes(options, row);
}

double kv_read_bytes(const decode_options *options, const bench_case *row)
{
    double shared = (double)options->shared_prefix;
    double tokens = (double)options->batch * (row->tokens - shared) + shared;
    if (options->selected)
        tokens = (double)options_rows(options) * (double)options->selected;
    return tokens * row->kv_heads * vector_bytes(options, row);
}

int kv_arena_alloc(kv_arena *arena, size_t bytes, int pages)
{
    *arena = (kv_arena){.bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, .pages = pages};
    /* With MPI the whole cache may be larger than any host: only addresses. */
    arena->data = pages_map(arena->bytes, pages, !launch.mpi);
    return arena->data ? 0 : -1;
}

void kv_arena_free(kv_arena *arena)
{
    pages_unmap(arena->data, arena->bytes);
    arena->data = NULL;
}

static void fill_part(int thread, int threads, void *context)
{
    kv_arena *arena = context;
    /* Whole huge pages, so that each is first touched by one thread. */
    size_t pages = arena->bytes / HUGE_PAGE;
    size_t first = pages * (size_t)thread / (size_t)threads * HUGE_PAGE;
    size_t end = pages * ((size_t)thread + 1) / (size_t)threads * HUGE_PAGE;
    size_t element = element_bytes(arena->filled);
    element_fill(arena->filled, arena->data + first, (int64_t)(first / element),
                 (int64_t)((end - first) / element), KV_SEED, 1.0f);
}

int kv_arena_fill(kv_arena *arena, ta_dtype dtype, int threads)
{
    if (arena->filled == dtype)
        return 0;
    arena->filled = dtype;
    return parallel_run(threads, fill_part, arena);
}

size_t kv_shard_bytes(const kv_layout *layout)
{
    return (size_t)(layout->shard_vectors * (layout->k_dim + layout->v_own)) *
           element_bytes(layout->row->kv_dtype);
}

static void fill_shard_part(int thread, int threads, void *context)
{
    const kv_layout *layout = context;
    ta_dtype dtype = layout->row->kv_dtype;
    int64_t elements = (int64_t)(kv_shard_bytes(layout) / element_bytes(dtype));
    int64_t first = elements * thread / threads, end = elements * (thread + 1) / threads;
    element_fill(dtype, layout->shards[launch.rank].k + (size_t)first * element_bytes(dtype),
                 launch.rank * elements + first, end - first, KV_SEED, 1.0f);
}

int kv_shard_fill(const kv_layout *layout, int threads)
{
    return parallel_run(threads, fill_shard_part, (void *)layout);
}

void kv_layout_read(const kv_layout *layout, const void *at, int64_t count, double *values)
{
    ta_dtype dtype = layout->row->kv_dtype;
    float computed[576]; /* the largest head dimension, of the largest type */
    size_t offset = (size_t)((const char *)at - layout->arena);
    if (launch.mpi && offset / kv_shard_bytes(layout) != (size_t)launch.rank) {
        element_fill(dtype, computed, (int64_t)(offset / element_bytes(dtype)), count, KV_SEED,
                     1.0f);
        at = computed;
    }
    element_read(dtype, at, count, values);
}

/* Pages of a sequence are scattered in the pool, as they are in a server after some hours: a fixed
 * shuffle of all of them. */
static int32_t *make_page_table(int32_t batch, int32_t pages_per_sequence)
{
    int64_t pages = (int64_t)batch * pages_per_sequence;
    int32_t *table = malloc((size_t)pages * sizeof *table);
    if (!table)
        return NULL;
    uint32_t state = 1;
    for (int64_t i = 0; i < pages; i++) {
        state = state * 1664525u + 1013904223u;
        int64_t other = (int64_t)((uint64_t)state * (uint64_t)(i + 1) >> 32);
        table[i] = table[other];
        table[other] = (int32_t)i;
    }
    return table;
}

static void set_strides(kv_layout *layout, int64_t layout_kind)
{
    /* A sequence, or a page, holds this many tokens. */
    int64_t tokens = layout->page_tokens ? layout->page_tokens : layout->max_tokens;
    int32_t heads = layout->row->kv_heads;
    layout->batch_stride = tokens * heads;
    layout->token_stride = layout_kind == LAYOUT_HEAD ? 1 : heads;
    layout->head_stride = layout_kind == LAYOUT_HEAD ? tokens : 1;
}

static int32_t held_tokens(const kv_layout *layout, int rank)
{
    if (!layout->cyclic)
        return layout->bounds[rank + 1] - layout->bounds[rank];
    int32_t count = 0; /* by search, which needs no formula of its own */
    for (int32_t step = 1 << 30; step > 0; step /= 2) {
        int64_t trial = (int64_t)count + step;
        if (trial <= layout->max_tokens &&
            kv_layout_position(layout, rank, (int32_t)trial - 1) < layout->row->tokens)
            count = (int32_t)trial;
    }
    return count;
}

static int make_shards(kv_layout *layout, kv_arena *arena)
{
    size_t element = element_bytes(layout->row->kv_dtype);
    size_t k_bytes = (size_t)(layout->shard_vectors * layout->k_dim) * element;
    size_t v_bytes = (size_t)(layout->shard_vectors * layout->v_own) * element;
    layout->arena = arena->data;
    for (int rank = 0; rank < layout->row->ranks; rank++) {
        kv_shard *shard = &layout->shards[rank];
        shard->k = arena->data + (size_t)rank * (k_bytes + v_bytes);
        shard->v = layout->v_own ? shard->k + k_bytes : shard->k;
        shard->tokens = held_tokens(layout, rank);
        if (!layout->page_tokens)
            continue;
        shard->page_table = make_page_table(layout->batch, layout->pages_per_sequence);
        if (!shard->page_table)
            return -1;
    }
    return 0;
}

int kv_layout_make(kv_layout *layout, const decode_options *options, const bench_case *row,
                   kv_arena *arena)
{
    int64_t room = room_tokens(options, row);
    *layout = (kv_layout){
        .row = row,
        .batch = (int32_t)options->batch,
        .k_dim = (int32_t)options->head_dim,
        .v_dim = (int32_t)options->v_dim,
        .v_own = options->latent ? 0 : (int32_t)options->v_dim,
        .v_step = (int32_t)(options->latent ? options->head_dim : options->v_dim),
        .cyclic = options->map == TA_SHARD_BLOCK_CYCLIC,
        .block = (int32_t)options->block,
        .max_tokens = kv_most_tokens(options, row),
        .page_tokens = (int32_t)options->page_tokens,
        .shard_vectors = options->batch * room * row->kv_heads,
    };
    if (layout->page_tokens)
        layout->pages_per_sequence = (int32_t)(room / layout->page_tokens);
    set_strides(layout, options->layout);
    layout->bounds = calloc((size_t)row->ranks + 1, sizeof *layout->bounds);
    layout->lengths = calloc((size_t)layout->batch, sizeof *layout->lengths);
    layout->shards = calloc((size_t)row->ranks, sizeof *layout->shards);
    if (!layout->bounds || !layout->lengths || !layout->shards)
        goto free_layout;
    for (int rank = 0; rank <= row->ranks; rank++)
        layout->bounds[rank] = bound(options, row, rank);
    for (int32_t b = 0; b < layout->batch; b++)
        layout->lengths[b] = row->tokens;
    if (make_shards(layout, arena) != 0)
        goto free_layout;
    return 0;

free_layout:
    kv_layout_free(layout);
    return -1;
}

void kv_layout_free(kv_layout *layout)
{
    for (int rank = 0; layout->shards && rank < layout->row->ranks; rank++)
        free(layout->shards[rank].page_table);
    free(layout->shards);
    free(layout->lengths);
    free(layout->bounds);
}

static ta_tensor tensor_view(const kv_layout *layout, char *data, int32_t dim)
{
    ta_tensor tensor = {data, layout->batch_stride * dim, layout->token_stride * dim,
                        layout->head_stride * dim};
    return tensor;
}

void kv_layout_view(const kv_layout *layout, int rank, ta_kv *kv)
{
    const kv_shard *shard = &layout->shards[rank];
    *kv = (ta_kv)TA_KV_INIT;
    kv->k = tensor_view(layout, shard->k, layout->k_dim);
    kv->v = tensor_view(layout, shard->v, layout->v_step);
    kv->lengths = layout->lengths;
    if (!layout->cyclic)
        kv->bounds = layout->bounds;
    if (layout->page_tokens) {
        kv->page_table = shard->page_table;
        kv->page_table_stride = layout->pages_per_sequence;
        kv->page_tokens = layout->page_tokens;
        kv->page_count = layout->batch * layout->pages_per_sequence;
    }
}

int32_t kv_layout_position(const kv_layout *layout, int rank, int32_t local)
{
    if (!layout->cyclic)
        return layout->bounds[rank] + local;
    int64_t block = layout->block;
    int64_t position = local / block * block * layout->row->ranks + rank * block + local % block;
    return position > INT32_MAX ? INT32_MAX : (int32_t)position;
}

kv_vectors kv_layout_at(const kv_layout *layout, int rank, int32_t sequence, int32_t local,
                        int32_t kv_head)
{
    const kv_shard *shard = &layout->shards[rank];
    int64_t outer = sequence, token = local;
    if (layout->page_tokens) {
        int64_t entry =
            (int64_t)sequence * layout->pages_per_sequence + local / layout->page_tokens;
        outer = shard->page_table[entry];
        token = local % layout->page_tokens;
    }
    int64_t vector =
        outer * layout->batch_stride + token * layout->token_stride + kv_head * layout->head_stride;
    int64_t bytes = (int64_t)element_bytes(layout->row->kv_dtype);
    kv_vectors at = {shard->k + vector * layout->k_dim * bytes,
                     shard->v + vector * layout->v_step * bytes};
    return at;
}
