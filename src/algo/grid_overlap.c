/* Attention on a grid of ranks, forward, with overlap. First K and V rotate along the column while
 * every rank attends with its own queries to the block that is there; all blocks are kept. Then the
 * queries rotate along the row, and each rank attends with those that come by to all keys of its
 * column. The partial of a rank's queries begins at the next rank, travels behind them, and in its
 * last hop comes home, where it is merged with what was computed there. So the bytes are those of
 * the grid without overlap (grid.c), and what is kept along the row is of two ranks, not of all.
 *
 * What hop `h` of the row's rotation sends, in one message, is
 *
 *     the queries that are here, Q(h), unless the next rank is their own
 *     the partial of the queries that were here before, P(h - 1), if one has begun: h >= 2
 *
 * and while it travels the block of Q(h) is computed, to be merged with the P(h) that arrives. */
#include "grid_overlap.h"

#include "../dtype.h"
#include "../partial.h"
#include "../status.h"
#include "grid.h"

/* Whose block is at this rank's place after so many hops. */
static int owner_after(const ta_line *line, int hops)
{
    return (line->place + 2 * line->ranks - hops) % line->ranks;
}

static int next_place(const ta_line *line)
{
    return (line->place + 1) % line->ranks;
}

static int previous_place(const ta_line *line)
{
    return (line->place + line->ranks - 1) % line->ranks;
}

static int32_t tokens_of(const ta_line *line, int place)
{
    return line->starts[place + 1] - line->starts[place];
}

/* ---- K and V, along the column ------------------------------------------------------------- */

/* K and V of a token lie side by side, so that a rank's block is one message. */
static size_t key_value_bytes(const ta_attention *a)
{
    const ta_local *s = &a->shape;
    return (size_t)s->kv_heads * (size_t)(s->k_dim + s->v_dim) * ta_dtype_bytes(s->dtype);
}

static char *block_at(const ta_attention *a, int place)
{
    return (char *)a->k + (size_t)a->column.starts[place] * key_value_bytes(a);
}

static size_t block_bytes(const ta_attention *a, int place)
{
    return (size_t)tokens_of(&a->column, place) * key_value_bytes(a);
}

static size_t keys_bytes(const ta_attention *a)
{
    const ta_local *s = &a->shape;
    return (size_t)s->kv_heads * (size_t)s->k_dim * ta_dtype_bytes(s->dtype);
}

static ta_status pack_block(ta_attention *a, const ta_attention_input *input, void *stream)
{
    const ta_local *s = &a->shape;
    char *own = block_at(a, a->column.place);
    size_t stride = key_value_bytes(a);
    TA_TRY(ta_grid_pack(a, &input->k, s->kv_heads, s->k_dim, own, stride, stream));
    return ta_grid_pack(a, &input->v, s->kv_heads, s->v_dim, own + keys_bytes(a), stride, stream);
}

/* The keys of the work: from one place's block on; with one rank in the column its own. */
static void set_keys(const ta_attention *a, const ta_attention_input *input, int place,
                     ta_local *work)
{
    const ta_local *s = &a->shape;
    work->k = input->k;
    work->v = input->v;
    if (a->column.ranks == 1)
        return;
    char *block = block_at(a, place);
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
    int here = owner_after(line, hop), coming = owner_after(line, hop + 1);
    if (!moves_block(a, hop))
        return TA_OK;
    return ta_group_start(line->group, block_at(a, here), block_bytes(a, here), next_place(line),
                          block_at(a, coming), block_bytes(a, coming), previous_place(line),
                          stream);
}

static ta_local empty_work(const ta_attention *a)
{
    ta_local work = a->shape;
    work.query_rows = a->row.rows;
    work.key_rows = a->column.rows;
    work.visible = a->visible;
    return work;
}

/* This rank's queries against the block that is here. */
static ta_status attend_block(ta_attention *a, const ta_attention_input *input, int hop,
                              void *stream)
{
    int owner = owner_after(&a->column, hop);
    ta_local work = empty_work(a);
    TA_TRY(ta_attention_place(a, input->sequences, input->lengths, a->rank,
                              owner * a->grid_columns + a->row.place));
    work.queries = a->tokens;
    work.keys = tokens_of(&a->column, owner);
    work.q = input->q;
    set_keys(a, input, owner, &work);
    TA_TRY(ta_attention_attend(a, &work, hop == 0 ? a->records : a->received, stream));
    if (hop == 0)
        return TA_OK;
    return a->device->ops->merge(a->device, a->records, a->received,
                                 (int64_t)a->tokens * a->shape.query_heads, a->shape.v_dim, stream);
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

static size_t query_bytes(const ta_attention *a, int place)
{
    const ta_local *s = &a->shape;
    return (size_t)tokens_of(&a->row, place) * (size_t)s->query_heads * (size_t)s->k_dim *
           ta_dtype_bytes(s->dtype);
}

static size_t records_bytes(const ta_attention *a, int place)
{
    const ta_local *s = &a->shape;
    return (size_t)tokens_of(&a->row, place) * (size_t)s->query_heads *
           (size_t)ta_record_floats(s->v_dim) * sizeof(float);
}

/* Does a hop's message have queries, and a partial? */
static int sends_queries(const ta_attention *a, int hop)
{
    return hop < a->row.ranks - 1;
}

static int sends_partial(int hop)
{
    return hop >= 2;
}

/* The place of P(hop - 1), which hop `hop` sends: behind Q(hop). Hop `ranks` sends it alone. */
static char *partial_at(const ta_attention *a, int hop)
{
    size_t before = hop < a->row.ranks ? query_bytes(a, owner_after(&a->row, hop)) : 0;
    return a->travel[hop % 2] + before;
}

/* The message of a hop, as its sender, or its receiver one hop later, has it. */
static size_t message_bytes(const ta_attention *a, int hop, int received)
{
    int queries = owner_after(&a->row, hop + received);
    int partial = owner_after(&a->row, hop + received - 1);
    return (sends_queries(a, hop) ? query_bytes(a, queries) : 0) +
           (sends_partial(hop) ? records_bytes(a, partial) : 0);
}

/* What is sent lies in travel[hop % 2], and so it arrives in travel[(hop + 1) % 2]. */
static ta_status start_queries(ta_attention *a, int hop, void *stream)
{
    const ta_line *line = &a->row;
    if (!sends_queries(a, hop) && !sends_partial(hop))
        return TA_OK;
    char *from = sends_queries(a, hop) ? a->travel[hop % 2] : partial_at(a, hop);
    return ta_group_start(line->group, from, message_bytes(a, hop, 0), next_place(line),
                          a->travel[(hop + 1) % 2], message_bytes(a, hop, 1), previous_place(line),
                          stream);
}

static ta_status finish_queries(ta_attention *a, int hop, void *stream)
{
    return sends_queries(a, hop) || sends_partial(hop) ? ta_group_finish(a->row.group, stream)
                                                       : TA_OK;
}

/* The queries that are here against all keys of the column; the first partial begins where it will
 * be sent from. */
static ta_status attend_queries(ta_attention *a, const ta_attention_input *input, int hop,
                                void *stream)
{
    int owner = owner_after(&a->row, hop);
    ta_local work = empty_work(a);
    TA_TRY(ta_attention_place(a, input->sequences, input->lengths, a->rank - a->row.place + owner,
                              -1));
    work.queries = tokens_of(&a->row, owner);
    work.keys = a->column.starts[a->column.ranks];
    work.q = ta_grid_dense(a->travel[hop % 2], a->shape.query_heads, a->shape.k_dim);
    set_keys(a, input, 0, &work);
    float *records = sends_partial(hop) ? a->received : (float *)(void *)partial_at(a, hop + 1);
    return ta_attention_attend(a, &work, records, stream);
}

static ta_status rotate_queries(ta_attention *a, const ta_attention_input *input, void *stream)
{
    const ta_line *line = &a->row;
    for (int hop = 1; hop < line->ranks; ++hop) {
        TA_TRY(start_queries(a, hop, stream));
        ta_status status = attend_queries(a, input, hop, stream);
        TA_TRY(finish_queries(a, hop, stream));
        TA_TRY(status);
        int64_t records = (int64_t)tokens_of(line, owner_after(line, hop)) * a->shape.query_heads;
        if (sends_partial(hop)) /* and so one arrived */
            TA_TRY(a->device->ops->merge(a->device, (float *)(void *)partial_at(a, hop + 1),
                                         a->received, records, a->shape.v_dim, stream));
    }
    return TA_OK;
}

/* The partials come home. */
static ta_status bring_home(ta_attention *a, void *stream)
{
    const ta_line *line = &a->row;
    TA_TRY(ta_group_exchange(line->group, partial_at(a, line->ranks),
                             records_bytes(a, next_place(line)), next_place(line), a->received,
                             records_bytes(a, line->place), previous_place(line), stream));
    return a->device->ops->merge(a->device, a->records, a->received,
                                 (int64_t)a->tokens * a->shape.query_heads, a->shape.v_dim, stream);
}

ta_status ta_grid_overlap_forward(ta_attention *attention, const ta_attention_input *input,
                                  const ta_tensor *out, float *lse, void *stream)
{
    ta_attention *a = attention;
    const ta_local *s = &a->shape;
    size_t query = (size_t)s->query_heads * (size_t)s->k_dim * ta_dtype_bytes(s->dtype);
    if (a->row.ranks > 1) { /* the first hop is under way while K and V rotate */
        TA_TRY(ta_grid_pack(a, &input->q, s->query_heads, s->k_dim, a->travel[0], query, stream));
        TA_TRY(start_queries(a, 0, stream));
    }
    ta_status status = rotate_keys(a, input, stream);
    if (a->row.ranks > 1) {
        TA_TRY(finish_queries(a, 0, stream));
        TA_TRY(status);
        TA_TRY(rotate_queries(a, input, stream));
        TA_TRY(bring_home(a, stream));
    }
    TA_TRY(status);
    return a->local->finish(a->device, s, a->records, a->tokens, out, lse, stream);
}
