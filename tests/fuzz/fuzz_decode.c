/* Plans and decode steps from descriptors that are right, nearly right and wrong, on one to four
 * ranks that are threads. No call may crash or read beyond what a descriptor says; every rank
 * returns. K, V, q and out have exactly the elements that their descriptor reaches. */
#include <treeattn/treeattn.h>

#include "ranks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_BYTES (1 << 20)

static size_t bytes_of(ta_dtype dtype)
{
    return dtype == TA_F32 ? 4 : 2;
}

static int is_tame(int64_t stride)
{
    return stride > 0 && stride < MOST_BYTES;
}

/* A stride: mostly the dense one, left at 0 if the library can compute it from `inner`; where an
 * axis is not walked along, any at all. */
static int64_t take_stride(bytes *b, int64_t count, int64_t dense, int64_t inner)
{
    static const int64_t far[] = {INT64_MAX, INT64_MAX / 2, INT64_MIN, -1, INT64_MAX / 16 + 1};
    if (count <= 1 ? take_chance(b, 3) : take_chance(b, 30))
        return far[take(b) % (count <= 1 ? 5 : 4)];
    if (!is_tame(inner))
        return dense;
    return take_chance(b, 3) ? dense + 8 * take_from(b, 0, 3) : 0;
}

/* A tensor and its memory, which is NULL if it would be too large to make. */
static ta_tensor take_tensor(bytes *b, const int64_t shape[4], ta_dtype dtype)
{
    int64_t reach = shape[3];
    ta_tensor t = {0};
    t.head_stride = take_stride(b, shape[2], shape[3], 1);
    int64_t head = t.head_stride ? t.head_stride : shape[3];
    int64_t dense = shape[2] * (is_tame(head) ? head : shape[3]);
    t.token_stride = take_stride(b, shape[1], dense, head);
    int64_t token = t.token_stride ? t.token_stride : dense;
    dense = shape[1] * (is_tame(token) ? token : dense);
    t.batch_stride = take_stride(b, shape[0], dense, token);
    int64_t batch = t.batch_stride ? t.batch_stride : dense;
    const int64_t strides[3] = {batch, token, head};
    for (int axis = 0; axis < 3; ++axis)
        if (shape[axis] > 1 && is_tame(strides[axis]))
            reach += (shape[axis] - 1) * strides[axis];
    if (reach > 0 && reach < MOST_BYTES && !take_chance(b, 40))
        t.data = calloc((size_t)reach, bytes_of(dtype));
    return t;
}

static ta_plan_config take_config(bytes *b, int ranks)
{
    static const ta_dtype dtypes[] = {TA_F32, TA_F16, TA_BF16, TA_DTYPE_NONE};
    ta_plan_config c = TA_PLAN_CONFIG_INIT;
    c.batch = take_int(b, 1, 3);
    c.query_tokens = take_int(b, 0, 3);
    c.kv_heads = take_int(b, 1, 3);
    c.query_heads = take_chance(b, 24) ? take_int(b, 1, 9) : take_times(b, c.kv_heads);
    c.k_dim = take_chance(b, 24) ? take_int(b, 0, 60) : 8 * take_from(b, 1, 4);
    c.v_dim = take_chance(b, 24) ? take_int(b, 0, 60) : 8 * take_from(b, 0, 4);
    c.kv_dtype = dtypes[take_from(b, 0, 2)];
    c.query_dtype = dtypes[take_from(b, 0, 3)];
    c.out_dtype = dtypes[take_from(b, 0, 3)];
    c.max_tokens = take_int(b, 1, 40);
    c.map.kind = (ta_shard_kind)take_int(b, 0, 1);
    c.map.ranks = take_chance(b, 8) ? ranks : take_int(b, 0, 0);
    c.map.block = take_int(b, 0, 20);
    c.mask = (ta_mask)take_int(b, 0, 1);
    c.window = take_chance(b, 3) ? take_int(b, 1, 9) : 0;
    c.scale = take_float(b);
    c.softcap = take_float(b);
    c.query_placement = (ta_placement)take_int(b, 0, 2);
    c.query_root = take_int(b, 0, ranks - 1);
    c.out_placement = (ta_placement)take_int(b, 0, 2);
    c.out_root = take_int(b, 0, ranks - 1);
    c.algorithm = (ta_algorithm)take_int(b, 0, 3);
    c.exchange = (ta_exchange)take_int(b, 0, 6);
    c.reproducible_tile = take_chance(b, 6) ? 16 : take_int(b, 0, 0);
    return c;
}

/* Lengths, bounds and a page table; some of them out of range. */
typedef struct tables {
    int32_t *lengths, *bounds, *pages;
} tables;

static int64_t take_tables(bytes *b, const ta_plan_config *c, int ranks, ta_kv *kv, tables *t)
{
    size_t batch = (size_t)c->batch, columns = (size_t)ranks + 1;
    int64_t blocks = c->batch;
    t->lengths = calloc(batch, sizeof *t->lengths);
    for (size_t i = 0; i < batch; ++i)
        t->lengths[i] = take_int(b, 0, 60);
    kv->lengths = t->lengths;
    if (c->map.kind == TA_SHARD_CONTIGUOUS && (c->map.block == 0 || take_chance(b, 8))) {
        int each = take_chance(b, 2);
        t->bounds = calloc(each ? batch * columns : columns, sizeof *t->bounds);
        for (size_t i = 0; i < (each ? batch * columns : columns); ++i)
            t->bounds[i] = i % columns ? t->bounds[i - 1] + take_from(b, 0, 30) : 0;
        if (take_chance(b, 16))
            t->bounds[(size_t)take(b) % columns] = take_int(b, 0, 60);
        kv->bounds = t->bounds;
        kv->bounds_stride = each ? (int64_t)columns : 0;
    }
    if (take_chance(b, 3)) {
        kv->page_tokens = take_int(b, 1, 20);
        kv->page_count = take_int(b, 1, 6);
        kv->page_table_stride = 64; /* of pages of a token, more than a rank holds */
        t->pages = calloc(batch * 64, sizeof *t->pages);
        for (size_t i = 0; i < batch * 64; ++i)
            t->pages[i] =
                i % 8 ? (int32_t)i % (kv->page_count > 0 ? kv->page_count : 1) : take_int(b, 0, 0);
        kv->page_table = t->pages;
        blocks = kv->page_count;
    }
    return blocks;
}

/* What the call adds; now and then out of range. Returns its starts. */
static int32_t *take_call(bytes *b, const ta_plan_config *c, int tokens, ta_call *call)
{
    int32_t *starts = calloc((size_t)c->batch + 1, sizeof *starts);
    call->tag = 7;
    call->batch = take_chance(b, 3) ? take_int(b, 0, c->batch) : 0;
    call->window = take_chance(b, 4) ? take_int(b, -1, 9) : 0;
    call->softcap = take_chance(b, 4) ? take_float(b) : 0.0f;
    if (!take_chance(b, 3))
        return starts;
    int batch = call->batch > 0 && call->batch < c->batch ? call->batch : c->batch;
    for (int i = 1; i <= batch; ++i)
        starts[i] = starts[i - 1] + take_from(b, 0, tokens);
    call->starts = starts;
    call->tokens = take_chance(b, 12) ? take_int(b, 0, 9) : starts[batch];
    if (take_chance(b, 12))
        starts[take(b) % (c->batch + 1)] = take_int(b, 0, 9);
    return starts;
}

/* One step with the plan, if its tensors can be made. */
static void run_step(bytes *b, ta_plan *plan, const ta_plan_config *c, int ranks)
{
    ta_kv kv = TA_KV_INIT;
    ta_call call = TA_CALL_INIT;
    tables t = {0};
    int tokens = c->query_tokens ? c->query_tokens : 1, v_dim = c->v_dim ? c->v_dim : c->k_dim;
    ta_dtype query = c->query_dtype ? c->query_dtype : c->kv_dtype;
    ta_dtype result = c->out_dtype ? c->out_dtype : query;
    int64_t blocks = take_tables(b, c, ranks, &kv, &t);
    int64_t block_tokens = kv.page_table ? kv.page_tokens : c->max_tokens;
    int32_t *starts = take_call(b, c, tokens, &call);
    int ragged = call.tokens > 0; /* then queries are packed */
    int64_t batch = ragged ? 1 : c->batch, each = ragged ? call.tokens : tokens;
    ta_tensor q = take_tensor(b, (int64_t[]){batch, each, c->query_heads, c->k_dim}, query);
    kv.k = take_tensor(b, (int64_t[]){blocks, block_tokens, c->kv_heads, c->k_dim}, c->kv_dtype);
    kv.v = take_tensor(b, (int64_t[]){blocks, block_tokens, c->kv_heads, v_dim}, c->kv_dtype);
    ta_tensor out = take_tensor(b, (int64_t[]){batch, each, c->query_heads, v_dim}, result);
    float *lse = calloc((size_t)c->batch * (size_t)tokens * (size_t)c->query_heads, sizeof *lse);
    for (int i = 0; i < 2; ++i)
        (void)ta_decode(plan, &q, &kv, &out, take_chance(b, 3) ? NULL : lse,
                        take_chance(b, 2) && !ragged ? NULL : &call, NULL);
    free(q.data);
    free(kv.k.data);
    free(kv.v.data);
    free(out.data);
    free(lse);
    free(starts);
    free(t.lengths);
    free(t.bounds);
    free(t.pages);
}

static int is_small(const ta_plan_config *c)
{
    return c->batch <= 16 && c->query_heads <= 64 && c->kv_heads <= 64 && c->query_tokens <= 16 &&
           c->max_tokens <= 64;
}

/* All ranks read the same bytes, but for one that may go its own way. */
static ta_status run_rank(ta_group *group, void *context)
{
    bytes b = *(const bytes *)context;
    int ranks = ta_group_size(group);
    ta_device *device = open_device(&b, group);
    ta_plan *plan = NULL;
    ta_plan_config config = take_config(&b, ranks);
    size_t workspace = 0;
    (void)ta_plan_workspace(group, device, &config, &workspace);
    ta_status status = ta_plan_create(group, device, &config, &plan);
    if (status == TA_OK && is_small(&config))
        run_step(&b, plan, &config, ranks);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return run_ranks(data, size, run_rank);
}
