/* Making and destroying an attention plan: resolve the config, agree with the other ranks, form the
 * lines of the grid, allocate all memory. Everything is allocated here, so that a call allocates
 * nothing. */
#include "make.h"

#include <stdlib.h>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "group/agree.h"
#include "group/staged.h"

/* Cut a piece off the memory; without memory only add up. */
static void *cut(const ta_attention *a, size_t *used, int64_t count, size_t each)
{
    void *piece = a->memory ? (char *)a->memory + *used : NULL;
    *used += ((size_t)count * each + TA_WORKSPACE_ALIGNMENT - 1) / TA_WORKSPACE_ALIGNMENT *
             TA_WORKSPACE_ALIGNMENT;
    return piece;
}

/* What a ring needs beside: every piece is of one rank's tokens. */
static void cut_ring(ta_attention *a, size_t *used)
{
    const ta_attention_work *s = &a->shape;
    int64_t own = a->max_tokens, record = (int64_t)s->query_heads * ta_record_floats(s->v_dim);
    int64_t block = own * s->kv_heads * (s->k_dim + s->v_dim);
    int64_t query = own * s->query_heads * s->k_dim;
    a->ring_kv[0] = cut(a, used, block, ta_dtype_bytes(s->dtype));
    a->ring_kv[1] = cut(a, used, block, ta_dtype_bytes(s->dtype));
    a->received = cut(a, used, own * record, sizeof(float));
    if (a->forward_only)
        return;
    a->ring_sums[0] = cut(a, used, block, sizeof(float));
    a->ring_sums[1] = cut(a, used, block, sizeof(float));
    a->ring_block = cut(a, used, block, sizeof(float));
    a->dq = cut(a, used, query, sizeof(float));
    a->ring_dq = cut(a, used, query, sizeof(float));
}

/* The largest of some numbers of floats for each token that a rank gets from another. */
static int64_t received_floats(const ta_attention *a)
{
    const ta_attention_work *s = &a->shape;
    int64_t most = 0, along_row = (int64_t)s->query_heads * s->k_dim;
    int64_t along_column = (int64_t)s->kv_heads * (s->k_dim > s->v_dim ? s->k_dim : s->v_dim);
    if (a->algorithm == TA_ATTENTION_GRID_OVERLAP) /* both at once */
        along_column = (int64_t)s->kv_heads * (s->k_dim + s->v_dim);
    if (a->row.ranks > 1 || a->algorithm == TA_ATTENTION_GRID_OVERLAP)
        most = (int64_t)s->query_heads * ta_record_floats(s->v_dim);
    if (!a->forward_only && a->row.ranks > 1 && along_row > most)
        most = along_row;
    if (!a->forward_only && a->column.ranks > 1 && along_column > most)
        most = along_column;
    return most;
}

/* With overlap, bytes of one token that travel: a query and a partial, or K, V, dK and dV. */
static size_t travel_bytes(const ta_attention *a)
{
    const ta_attention_work *s = &a->shape;
    size_t each = ta_dtype_bytes(s->dtype), heads = (size_t)s->query_heads, row = 0, column = 0;
    if (a->row.ranks > 1)
        row =
            heads * ((size_t)s->k_dim * each + (size_t)ta_record_floats(s->v_dim) * sizeof(float));
    if (a->column.ranks > 1 && !a->forward_only)
        column = (size_t)s->kv_heads * (size_t)(s->k_dim + s->v_dim) * (each + sizeof(float));
    return row > column ? row : column;
}

/* The device's workspace, for the largest block that it is given. */
static size_t workspace_bytes(const ta_attention *a)
{
    ta_attention_work largest = a->shape;
    int overlap = a->algorithm == TA_ATTENTION_GRID_OVERLAP;
    largest.queries = a->max_tokens * (overlap ? 1 : a->row.ranks);
    largest.keys = a->max_tokens * a->column.ranks;
    size_t forward = a->ops->bytes(a->device, &largest, 0), backward = 0;
    largest.queries = a->max_tokens * a->row.ranks;
    largest.keys = a->max_tokens * (overlap ? 1 : a->column.ranks);
    if (!a->forward_only)
        backward = a->ops->bytes(a->device, &largest, 1);
    return forward > backward ? forward : backward;
}

/* Give every piece its place; a line with one rank needs none of its own. */
size_t ta_attention_cut(ta_attention *attention)
{
    ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    size_t used = 0, each = ta_dtype_bytes(s->dtype);
    int64_t own = a->max_tokens, queries = own * a->row.ranks, keys = own * a->column.ranks;
    int64_t query = (int64_t)s->query_heads * s->k_dim, out = (int64_t)s->query_heads * s->v_dim;
    int64_t key = (int64_t)s->kv_heads * s->k_dim, value = (int64_t)s->kv_heads * s->v_dim;
    int64_t record = (int64_t)s->query_heads * ta_record_floats(s->v_dim);
    int backward = !a->forward_only;
    int overlap = a->algorithm == TA_ATTENTION_GRID_OVERLAP;
    int rotates = overlap && backward && a->column.ranks > 1; /* dK and dV, with K and V */
    if (a->ops)
        a->workspace = cut(a, &used, 1, workspace_bytes(a));
    a->records = cut(a, &used, (overlap ? own : queries) * record, sizeof(float));
    if (a->caller && a->caller->device)
        a->message = cut(a, &used, TA_AGREE_NUMBERS, sizeof(int64_t));
    if (backward)
        a->own_delta = cut(a, &used, own * s->query_heads, sizeof(float));
    if (a->algorithm == TA_ATTENTION_RING)
        cut_ring(a, &used);
    else
        a->received = cut(a, &used, own * received_floats(a), sizeof(float));
    for (int i = 0; overlap && i < 2; ++i)
        a->travel[i] = cut(a, &used, own, travel_bytes(a));
    if (a->row.ranks > 1) {
        if (!overlap || backward)
            a->q = cut(a, &used, queries * query, each);
        if (backward) {
            a->dout = cut(a, &used, queries * out, each);
            a->lse = cut(a, &used, queries * s->query_heads, sizeof(float));
            a->delta = cut(a, &used, queries * s->query_heads, sizeof(float));
        }
    }
    if (backward && a->algorithm != TA_ATTENTION_RING && (a->row.ranks > 1 || rotates))
        a->dq = cut(a, &used, queries * query, sizeof(float));
    if (rotates) {
        a->ring_dq = cut(a, &used, queries * query, sizeof(float));
        a->dk = cut(a, &used, own * (key + value), sizeof(float));
    }
    if (a->column.ranks > 1) {
        char *kv = cut(a, &used, keys * (key + value), each);
        a->k = kv;
        a->v = kv ? kv + (size_t)(keys * key) * each : NULL;
        if (backward && !overlap) {
            a->dk = cut(a, &used, keys * key, sizeof(float));
            a->dv = cut(a, &used, keys * value, sizeof(float));
        }
    }
    return used;
}

static ta_status make_line(ta_line *line)
{
    size_t ranks = (size_t)line->ranks;
    line->starts = calloc(ranks + 1, sizeof *line->starts);
    line->offsets = calloc(ranks + 1, sizeof *line->offsets);
    line->taken = calloc(ranks, sizeof *line->taken);
    if (!line->starts || !line->offsets || !line->taken)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a line of %zu ranks", ranks);
    return TA_OK;
}

static ta_status make_memory(ta_attention *a)
{
    TA_TRY(make_line(&a->row));
    TA_TRY(make_line(&a->column));
    /* At worst every token is a run. Pages that no call touches take no memory. */
    size_t keys = (size_t)a->max_tokens * (size_t)a->column.ranks;
    size_t queries = (size_t)a->max_tokens * (size_t)a->row.ranks;
    a->counts = calloc((size_t)a->ranks, sizeof *a->counts);
    a->order.query_runs = calloc(queries, sizeof *a->order.query_runs);
    a->order.key_runs = calloc(keys, sizeof *a->order.key_runs);
    if (!a->counts || !a->order.query_runs || !a->order.key_runs)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the order of %zu queries and %zu keys",
                       queries, keys);
    ta_attention_work largest = a->shape;
    largest.queries = a->max_tokens * a->row.ranks;
    largest.keys = a->max_tokens * a->column.ranks;
    if (a->ops->reserve)
        TA_TRY(a->ops->reserve(a->device, &largest));
    a->memory_bytes = ta_attention_cut(a);
    TA_TRY(ta_device_workspace(a->device, a->workspace_given, a->workspace_bytes, a->memory_bytes,
                               &a->memory, &a->owns_memory));
    ta_attention_cut(a);
    return TA_OK;
}

/* Everything of a plan but its lines and its memory. */
static ta_status describe(ta_group *group, ta_device *device, const ta_attention_config *config,
                          ta_attention *a)
{
    a->caller = a->group = group;
    a->rank = ta_group_rank(group);
    a->ranks = ta_group_size(group);
    if (!device)
        return ta_fail(TA_ERR_INVALID, "device is NULL: open one with ta_device_open()");
    if (!device->ops->attention)
        return ta_fail(TA_ERR_UNSUPPORTED, "device %s has no attention over full sequences",
                       device->name);
    if (group && group->device && group->device != device)
        return ta_fail(TA_ERR_INVALID, "group %s moves memory of device %s: device is %s",
                       group->ops->name, group->device->name, device->name);
    a->device = device;
    a->ops = device->ops->attention;
    ta_attention_config known;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_attention_config), "config", config, &known));
    TA_TRY(ta_attention_resolve(&known, a));
    return ta_device_check_dtype(device, "dtype", a->shape.dtype, TA_AS_ATTENTION);
}

void ta_attention_set_lines(ta_attention *attention)
{
    ta_attention *a = attention;
    a->row = (ta_line){.ranks = a->grid_columns, .member = a->rank % a->grid_columns};
    a->column = (ta_line){.ranks = a->grid_rows, .member = a->rank / a->grid_columns};
    if (a->algorithm == TA_ATTENTION_RING)
        a->column = (ta_line){.ranks = 1, .member = 0};
}

/* The groups of this rank's lines; all ranks come here or none. */
static ta_status make_groups(ta_attention *a)
{
    if (a->row.ranks > 1)
        TA_TRY(ta_group_split(a->group, a->column.member, a->row.member, &a->row.group));
    if (a->column.ranks > 1)
        TA_TRY(ta_group_split(a->group, a->row.member, a->column.member, &a->column.group));
    return TA_OK;
}

ta_status ta_attention_workspace(const ta_group *group, const ta_device *device,
                                 const ta_attention_config *config, size_t *bytes)
{
    ta_attention a = {0};
    if (!bytes)
        return ta_fail(TA_ERR_INVALID, "bytes is NULL: must point to the result");
    ta_status status = describe((ta_group *)group, (ta_device *)device, config, &a);
    if (status == TA_OK) {
        ta_attention_set_lines(&a);
        *bytes = ta_attention_cut(&a);
    }
    ta_candidates_free(&a.candidates);
    free(a.turn_starts);
    return status;
}

static void destroy_line(ta_line *line)
{
    ta_group_destroy(line->group);
    free(line->starts);
    free(line->offsets);
    free(line->taken);
}

static void free_attention(ta_attention *a)
{
    if (!a)
        return;
    ta_candidates_free(&a->candidates);
    destroy_line(&a->row);
    destroy_line(&a->column);
    if (a->group != a->caller)
        ta_group_destroy(a->group);
    free(a->counts);
    free(a->turn_starts);
    free(a->order.query_runs);
    free(a->order.key_runs);
    if (a->owns_memory)
        ta_device_free(a->device, a->memory);
    free(a);
}

ta_status ta_attention_create(ta_group *group, ta_device *device, const ta_attention_config *config,
                              ta_attention **attention)
{
    ta_attention *a = calloc(1, sizeof *a);
    ta_status status = a ? TA_OK : ta_fail(TA_ERR_NO_MEMORY, "no memory for an attention plan");
    if (status == TA_OK && !attention)
        status = ta_fail(TA_ERR_INVALID, "attention is NULL: must point to the result");
    if (status == TA_OK)
        status = describe(group, device, config, a);
    if (status == TA_OK && group && !group->device && device->ops->alloc_host)
        status = ta_group_stage(group, device, &a->group);
    TA_TRY_GOTO(ta_attention_agree(group, a, status), destroy);
    TA_TRY_GOTO(ta_attention_follow(a), destroy);
    ta_attention_set_lines(a);
    TA_TRY_GOTO(make_groups(a), destroy);
    TA_TRY_GOTO(ta_attention_agree(group, a, make_memory(a)), destroy);
    if (a->algorithm == TA_ATTENTION_RING)
        ta_log_info("attention plan: ring of %d, %zu bytes", a->ranks, a->memory_bytes);
    else
        ta_log_info("attention plan: grid of %d x %d%s, %zu bytes", a->grid_rows, a->grid_columns,
                    a->algorithm == TA_ATTENTION_GRID_OVERLAP ? " with overlap" : "",
                    a->memory_bytes);
    ta_device_hold(device);
    *attention = a;
    return TA_OK;

destroy:
    free_attention(a);
    return status;
}

void ta_attention_destroy(ta_attention *attention)
{
    if (!attention)
        return;
    ta_device *device = attention->device;
    free_attention(attention);
    ta_device_let_go(device);
}
