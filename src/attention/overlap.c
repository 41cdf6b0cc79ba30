/* Attention on a grid of ranks, forward, with overlap. First K and V rotate along the column while
 * every rank attends with its own queries to the block that is there; all blocks are kept. Then the
 * queries rotate along the row with their partials (rotation.h), and each rank attends with those
 * that come by to all keys of its column. So the bytes are those of the grid without overlap
 * (grid.c), and what is kept along the row is of two ranks, not of all. Backward is in
 * overlap_backward.c. */
#include "grid.h"

#include "base/dtype.h"
#include "base/neighbors.h"
#include "base/partial.h"
#include "base/status.h"
#include "rotation.h"

static int next_member(const ta_line *line)
{
    return ta_next_rank(line->member, line->ranks);
}

static int previous_member(const ta_line *line)
{
    return ta_previous_rank(line->member, line->ranks);
}

static int32_t tokens_of(const ta_line *line, int member)
{
    return line->starts[member + 1] - line->starts[member];
}

/* ---- K and V, along the column ------------------------------------------------------------- */

/* K and V of a token lie side by side, so that a rank's block is one message. */
static size_t key_value_bytes(const ta_attention *a)
{
    const ta_attention_work *s = &a->shape;
    return (size_t)s->kv_heads * (size_t)(s->k_dim + s->v_dim) * ta_dtype_bytes(s->dtype);
}

static char *block_at(const ta_attention *a, int member)
{
    return (char *)a->k + (size_t)a->column.starts[member] * key_value_bytes(a);
}

static size_t block_bytes(const ta_attention *a, int member)
{
    return (size_t)tokens_of(&a->column, member) * key_value_bytes(a);
}

static size_t keys_bytes(const ta_attention *a)
{
    const ta_attention_work *s = &a->shape;
    return (size_t)s->kv_heads * (size_t)s->k_dim * ta_dtype_bytes(s->dtype);
}

static ta_status pack_block(ta_attention *a, const ta_attention_input *input, void *stream)
{
    const ta_attention_work *s = &a->shape;
    char *own = block_at(a, a->column.member);
    size_t stride = key_value_bytes(a);
    TA_TRY(ta_grid_pack(a, &input->k, s->kv_heads, s->k_dim, own, stride, stream));
    return ta_grid_pack(a, &input->v, s->kv_heads, s->v_dim, own + keys_bytes(a), stride, stream);
}

/* The keys of the work: from one member's block on; with one rank in the column its own. */
static void set_keys(const ta_attention *a, const ta_attention_input *input, int member,
                     ta_attention_work *work)
{
    const ta_attention_work *s = &a->shape;
    work->k = input->k;
    work->v = input->v;
    if (a->column.ranks == 1)
        return;
    char *block = block_at(a, member);
    work->k = ta_grid_dense(block, s->kv_heads, s->k_dim);
    work->v = ta_grid_dense(block + keys_bytes(a), s->kv_heads, s->v_dim);
    work->k.token_stride = work->v.token_stride = (int64_t)s->kv_heads * (s->k_dim + s->v_dim);
}

static int moves_block(const ta_attention *a, int hop)
{
    return hop < a->column.ranks - 1;
}

static ta_status start_block(ta_attention *a, int hop, void *stream)
{
    const ta_line *line = &a->column;
    int here = ta_rotation_owner(line, hop), coming = ta_rotation_owner(line, hop + 1);
    if (!moves_block(a, hop))
        return TA_OK;
    return ta_group_start(line->group, block_at(a, here), block_bytes(a, here), next_member(line),
                          block_at(a, coming), block_bytes(a, coming), previous_member(line),
                          stream);
}

/* What was received, or computed apart, into the records of so many tokens. */
static ta_status merge(ta_attention *a, float *into, int32_t tokens, void *stream)
{
    return ta_device_merge(a->device, into, a->received, (int64_t)tokens * a->shape.query_heads,
                           a->shape.v_dim, stream);
}

/* This rank's queries against the block that is here. */
static ta_status attend_block(ta_attention *a, const ta_attention_input *input, int hop,
                              void *stream)
{
    int owner = ta_rotation_owner(&a->column, hop);
    ta_attention_work work;
    ta_attention_find_order(a, input, a->rank, owner * a->grid_columns + a->row.member, &work);
    work.q = input->q;
    set_keys(a, input, owner, &work);
    TA_TRY(ta_attention_attend(a, &work, hop == 0 ? a->records : a->received, stream));
    return hop == 0 ? TA_OK : merge(a, a->records, a->tokens, stream);
}

/* Returns with the partials of this rank's queries over the column's keys in `records`, and all of
 * these keys here. */
static ta_status rotate_keys(ta_attention *a, const ta_attention_input *input, void *stream)
{
    if (a->column.ranks > 1)
        TA_TRY(pack_block(a, input, stream));
    for (int hop = 0; hop < a->column.ranks; ++hop) {
        TA_TRY(start_block(a, hop, stream));
        ta_status status = attend_block(a, input, hop, stream);
        if (moves_block(a, hop)) /* also after a failure: the buffers are in use */
            TA_TRY(ta_group_finish(a->column.group, stream));
        TA_TRY(status);
    }
    return TA_OK;
}

/* ---- Queries and their partials, along the row --------------------------------------------- */

static ta_rotation row_rotation(const ta_attention *a)
{
    const ta_attention_work *s = &a->shape;
    size_t heads = (size_t)s->query_heads;
    return (ta_rotation){.line = &a->row,
                         .buffers = a->travel,
                         .block = heads * (size_t)s->k_dim * ta_dtype_bytes(s->dtype),
                         .sums = heads * (size_t)ta_record_floats(s->v_dim) * sizeof(float)};
}

/* The queries that are here against all keys of the column. */
static ta_status attend_queries(ta_attention *a, const ta_attention_input *input,
                                const ta_rotation *rotation, int hop, void *stream)
{
    int owner = ta_rotation_owner(&a->row, hop);
    ta_attention_work work;
    ta_attention_find_order(a, input, a->rank - a->row.member + owner, -1, &work);
    work.q = ta_grid_dense(ta_rotation_block(rotation, hop), a->shape.query_heads, a->shape.k_dim);
    set_keys(a, input, 0, &work);
    float *records = ta_rotation_adds(hop) ? a->received : ta_rotation_sums(rotation, hop);
    return ta_attention_attend(a, &work, records, stream);
}

static ta_status rotate_queries(ta_attention *a, const ta_attention_input *input,
                                const ta_rotation *rotation, void *stream)
{
    const ta_line *line = &a->row;
    for (int hop = 1; hop < line->ranks; ++hop) {
        TA_TRY(ta_rotation_start(rotation, hop, stream));
        ta_status status = attend_queries(a, input, rotation, hop, stream);
        TA_TRY(ta_rotation_finish(rotation, hop, stream));
        TA_TRY(status);
        if (ta_rotation_adds(hop))
            TA_TRY(merge(a, ta_rotation_sums(rotation, hop),
                         tokens_of(line, ta_rotation_owner(line, hop)), stream));
    }
    TA_TRY(ta_rotation_home(rotation, a->received, stream));
    return merge(a, a->records, a->tokens, stream);
}

ta_status ta_grid_overlap_forward(ta_attention *attention, const ta_attention_input *input,
                                  const ta_tensor *out, float *lse, void *stream)
{
    ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    ta_rotation rotation = row_rotation(a);
    if (a->row.ranks > 1) { /* the first hop is under way while K and V rotate */
        TA_TRY(ta_grid_pack(a, &input->q, s->query_heads, s->k_dim, ta_rotation_block(&rotation, 0),
                            rotation.block, stream));
        TA_TRY(ta_rotation_start(&rotation, 0, stream));
    }
    ta_status status = rotate_keys(a, input, stream);
    if (a->row.ranks > 1) {
        TA_TRY(ta_rotation_finish(&rotation, 0, stream));
        TA_TRY(status);
        TA_TRY(rotate_queries(a, input, &rotation, stream));
    }
    TA_TRY(status);
    return a->ops->finish(a->device, s, a->records, a->tokens, out, lse, stream);
}
