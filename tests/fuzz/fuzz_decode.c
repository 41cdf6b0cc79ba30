/* Plans, decode steps, appends and combines from descriptors that are right, nearly right and
 * wrong, on one to five ranks that are threads. No call may crash or read beyond what a descriptor
 * says; every rank returns. K, V, q and out have exactly the elements that their descriptor
 * reaches. */
#include <treeattn/cluster.h>
#include <treeattn/treeattn.h>

#include "ranks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_BYTES (1 << 20)

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
        t.data = calloc((size_t)reach, element_bytes(dtype));
    return t;
}

/* Scales of K or V, none of them most of the time, and their memory: of just the size that they
 * reach. */
static ta_scales take_scales(bytes *b, const int64_t shape[3])
{
    ta_scales s = {0};
    int kind = take_from(b, 0, 6); /* for the tensor, for each head, for each token and head */
    if (kind > 2)
        return s;
    s.head_stride = kind > 0 ? take_from(b, 1, 3) : 0;
    s.token_stride = kind > 1 ? shape[2] * s.head_stride : 0;
    s.batch_stride = kind > 1 ? shape[1] * s.token_stride : 0;
    int64_t reach = 1, strides[3] = {s.batch_stride, s.token_stride, s.head_stride};
    for (int axis = 0; axis < 3; ++axis)
        reach += shape[axis] > 1 ? (shape[axis] - 1) * strides[axis] : 0;
    if (reach < 1 || reach > MOST_BYTES)
        return s;
    s.data = calloc((size_t)reach, sizeof *s.data);
    for (int64_t i = 0; s.data && i < reach; ++i)
        s.data[i] = i % 8 == 0 && take_chance(b, 8) ? take_float(b) : 0.5f;
    if (take_chance(b, 30))
        s.token_stride = take_stride(b, shape[1], s.token_stride, 0);
    return s;
}

/* Five ranks are on three nodes in two racks. */
static ta_cluster *cluster;

static ta_plan_config take_config(bytes *b, int ranks)
{
    static const ta_dtype dtypes[] = {TA_F32,        TA_F16,  TA_BF16,
                                      TA_DTYPE_NONE, TA_E4M3, TA_E5M2_FNUZ};
    ta_plan_config c = TA_PLAN_CONFIG_INIT;
    c.batch = take_int(b, 1, 3);
    c.query_tokens = take_int(b, 0, 3);
    TAKE_HEADS(b, &c);
    c.kv_dtype = dtypes[take_chance(b, 3) ? take_from(b, 4, 5) : take_from(b, 0, 2)];
    c.query_dtype = dtypes[take_from(b, 0, 3)];
    c.out_dtype = dtypes[take_from(b, 0, 3)];
    c.max_tokens = take_int(b, 1, 40);
    TAKE_MAP_AND_SCORES(b, &c, 2, ranks);
    c.query_placement = (ta_placement)take_int(b, 0, 2);
    c.query_root = take_int(b, 0, ranks - 1);
    c.out_placement = (ta_placement)take_int(b, 0, 2);
    c.out_root = take_int(b, 0, ranks - 1);
    c.algorithm = (ta_algorithm)take_int(b, 0, 3);
    c.exchange = (ta_exchange)take_int(b, 0, TA_EXCHANGE_MULTI_LEVEL);
    c.cluster = take_chance(b, 2) ? cluster : NULL;
    c.reproducible_tile = take_chance(b, 6) ? 16 : take_int(b, 0, 0);
    c.append_scattered = take_int(b, 0, 1);
    c.shared_prefixes = take_int(b, 0, 1);
    c.weights = (ta_weights)take_int(b, 0, 1);
    c.combine_only = take_chance(b, 6);
    if (c.combine_only && !take_chance(b, 12)) { /* which has fewer fields */
        ta_plan_config combine = TA_PLAN_CONFIG_INIT;
        combine.batch = c.batch;
        combine.query_tokens = c.query_tokens;
        combine.query_heads = c.query_heads;
        combine.v_dim = c.v_dim;
        combine.query_dtype = c.query_dtype;
        combine.out_dtype = c.out_dtype;
        combine.out_placement = c.out_placement;
        combine.out_root = c.out_root;
        combine.exchange = c.exchange;
        combine.cluster = c.cluster;
        combine.combine_only = 1;
        c = combine;
    }
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

/* Lists of positions and groups of sequences, some of them out of range. Returns their memory. */
static int32_t *take_lists(bytes *b, const ta_plan_config *c, int tokens, ta_call *call)
{
    int lists = take_chance(b, 2) && c->kv_heads > 0 ? c->kv_heads : 1;
    int count = take_from(b, 1, 20);
    int64_t rows = (int64_t)c->batch * tokens; /* a call of more is refused */
    size_t words = (size_t)(rows * lists * count), groups = (size_t)c->batch;
    int32_t *memory = calloc(words + 2 * groups + 1, sizeof *memory);
    if (take_chance(b, 3)) {
        call->selected = memory;
        call->selected_count = take_chance(b, 20) ? take_int(b, 0, count) : count;
        call->selected_lists = take_chance(b, 20) ? take_int(b, 0, 3) : lists;
        if (call->selected_count > count || call->selected_lists > lists)
            call->selected_count = count, call->selected_lists = lists;
        for (size_t i = 0; i < words; ++i) /* mostly without one that stands twice */
            memory[i] = take_chance(b, 30) ? take_int(b, -1, 40) : (int32_t)(i % (size_t)count) * 2;
    }
    if (!take_chance(b, 3))
        return memory;
    call->prefix_starts = memory + words;
    call->prefix_lengths = memory + words + groups + 1;
    call->prefix_groups = take_from(b, 1, c->batch);
    for (int g = 0; g < call->prefix_groups; ++g) {
        memory[words + (size_t)g + 1] = g + 1 == call->prefix_groups ? c->batch : g + 1;
        memory[words + groups + 1 + (size_t)g] = take_int(b, 0, 20);
    }
    if (take_chance(b, 12))
        memory[words + (size_t)take(b) % (groups + 1)] = take_int(b, 0, 9);
    return memory;
}

/* New tokens of the sequences, where the map wants them: as many as the call has queries. */
static void run_append(bytes *b, ta_plan *plan, const ta_plan_config *c, const ta_group *group,
                       const ta_kv *kv, const ta_call *call)
{
    static const ta_dtype dtypes[] = {TA_DTYPE_NONE, TA_F32, TA_F16, TA_BF16};
    ta_append_input input = TA_APPEND_INPUT_INIT;
    int tokens = c->query_tokens ? c->query_tokens : 1, v_dim = c->v_dim ? c->v_dim : c->k_dim;
    int first, heads = c->kv_heads, ragged = call->tokens > 0;
    int64_t batch = ragged ? 1 : c->batch, each = ragged ? call->tokens : tokens;
    input.source = (ta_append_source)take_int(b, 0, 2);
    input.dtype = dtypes[take_from(b, 0, 3)];
    input.make_scales = take_chance(b, 4);
    ta_dtype dtype = input.dtype ? input.dtype : c->kv_dtype;
    if (input.source == TA_APPEND_HEADS &&
        ta_head_range(heads, ta_group_size(group), ta_group_rank(group), &first, &heads) != TA_OK)
        return;
    input.k = take_tensor(b, (int64_t[]){batch, each, heads, c->k_dim}, dtype);
    input.v = take_tensor(b, (int64_t[]){batch, each, heads, v_dim}, dtype);
    (void)ta_append(plan, &input, kv, call, NULL);
    free(input.k.data);
    free(input.v.data);
}

static void run_combine(bytes *b, ta_plan *plan, const ta_plan_config *c)
{
    int tokens = c->query_tokens ? c->query_tokens : 1;
    ta_dtype result = c->out_dtype ? c->out_dtype : c->query_dtype;
    size_t rows = (size_t)c->batch * (size_t)tokens * (size_t)c->query_heads;
    const int64_t shape[] = {c->batch, tokens, c->query_heads, c->v_dim};
    ta_tensor part = take_tensor(b, shape, c->query_dtype), out = take_tensor(b, shape, result);
    float *part_lse = calloc(rows, sizeof *part_lse), *lse = calloc(rows, sizeof *lse);
    for (size_t i = 0; i < rows; ++i)
        part_lse[i] = take_float(b);
    (void)ta_combine(plan, &part, take_chance(b, 16) ? NULL : part_lse,
                     (ta_lse_base)take_int(b, 0, 1), &out, take_chance(b, 3) ? NULL : lse, NULL,
                     NULL);
    free(part.data);
    free(out.data);
    free(part_lse);
    free(lse);
}

/* One step with the plan, if its tensors can be made. */
static void run_step(bytes *b, ta_plan *plan, const ta_plan_config *c, const ta_group *group)
{
    ta_kv kv = TA_KV_INIT;
    ta_call call = TA_CALL_INIT;
    tables t = {0};
    int tokens = c->query_tokens ? c->query_tokens : 1, v_dim = c->v_dim ? c->v_dim : c->k_dim;
    ta_dtype query = c->query_dtype ? c->query_dtype : c->kv_dtype;
    ta_dtype result = c->out_dtype ? c->out_dtype : query;
    int64_t blocks = take_tables(b, c, ta_group_size(group), &kv, &t);
    int64_t block_tokens = kv.page_table ? kv.page_tokens : c->max_tokens;
    int32_t *starts = take_call(b, c, tokens, &call);
    int32_t *lists = take_lists(b, c, tokens, &call);
    int ragged = call.tokens > 0; /* then queries are packed */
    int64_t batch = ragged ? 1 : c->batch, each = ragged ? call.tokens : tokens;
    ta_tensor q = take_tensor(b, (int64_t[]){batch, each, c->query_heads, c->k_dim}, query);
    kv.k = take_tensor(b, (int64_t[]){blocks, block_tokens, c->kv_heads, c->k_dim}, c->kv_dtype);
    kv.v = take_tensor(b, (int64_t[]){blocks, block_tokens, c->kv_heads, v_dim}, c->kv_dtype);
    kv.k_scale = take_scales(b, (int64_t[]){blocks, block_tokens, c->kv_heads});
    kv.v_scale = take_scales(b, (int64_t[]){blocks, block_tokens, c->kv_heads});
    ta_tensor out = take_tensor(b, (int64_t[]){batch, each, c->query_heads, v_dim}, result);
    float *lse = calloc((size_t)c->batch * (size_t)tokens * (size_t)c->query_heads, sizeof *lse);
    for (int i = 0; i < 2; ++i)
        (void)ta_decode(plan, &q, &kv, &out, take_chance(b, 3) ? NULL : lse,
                        take_chance(b, 2) && !ragged ? NULL : &call, NULL);
    run_append(b, plan, c, group, &kv, &call);
    free(q.data);
    free(kv.k.data);
    free(kv.v.data);
    free(kv.k_scale.data);
    free(kv.v_scale.data);
    free(out.data);
    free(lse);
    free(starts);
    free(lists);
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
    if (status == TA_OK && is_small(&config) && config.combine_only)
        run_combine(&b, plan, &config);
    else if (status == TA_OK && is_small(&config))
        run_step(&b, plan, &config, group);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!cluster && ta_cluster_create("local:2x2x2", &cluster) != TA_OK)
        abort();
    return run_ranks(data, size, run_rank);
}
