/* How the work of attend() is divided: see attend.h. A part is a sequence with its own tokens, or
 * the prefix that the sequences of a group share. attend.c runs what comes out. */
#include "attend.h"
#include "host/kernels.h"
#include "tile.h"
#include "widen.h"

/* ---- One part ---- */

/* Enough items that some tens of threads finish at about the same time. */
#define ITEMS_WANTED 128

/* At least 8 splits, so that one long sequence among short ones does not keep a single thread busy
 * at the end; at most 64, to bound the merging. */
#define SPLITS_MIN 8
#define SPLITS_MAX 64

/* A split shorter than this costs more to merge than it gains. */
#define SPLIT_TOKENS_MIN 512

/* Rows of all heads of an item, and the bytes of their queries and sums: beyond that they leave the
 * second cache level. Rows past it form another group, which reads K and V again: with hundreds of
 * rows, arithmetic takes many times longer than reading. */
#define GROUP_BYTES (1 << 20)
#define GROUP_ROWS_MAX 1024
#define HEADS_TOGETHER_ROWS 256

/* The most memory for the records of all splits, unless one split alone needs more. */
#define RECORDS_BYTES (64ll << 20)

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static int64_t ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

static int64_t clamp(int64_t n, int64_t low, int64_t high)
{
    return n < low ? low : n > high ? high : n;
}

/* KV heads that have lists of their own are taken one by one. */
static int32_t choose_group_heads(const ta_problem *p, int32_t rows)
{
    if (p->selected_lists > 1)
        return 1;
    int32_t block_rows = rows < TA_ROW_BLOCK   ? 1
                         : rows < TA_ROWS_MOST ? TA_ROW_BLOCK
                                               : TA_ROWS_MOST;
    int64_t heads = TA_BLOCK_VALUES / (block_rows * p->v_dim);
    int64_t few_rows = HEADS_TOGETHER_ROWS / rows;
    heads = heads < few_rows ? heads : few_rows;
    heads = heads < TA_HEADS_MAX ? heads : TA_HEADS_MAX;
    if (ta_dtype_is_narrow(p->kv_dtype) && heads > ta_widened_heads(p))
        heads = ta_widened_heads(p);
    return (int32_t)clamp(heads, 1, p->kv_heads);
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t choose_group_rows(const ta_problem *p, int32_t rows)
{
    int64_t most = GROUP_BYTES / (((int64_t)p->k_dim + p->v_dim) * (int64_t)sizeof(float));
    most = clamp(most / 16 * 16, 16, GROUP_ROWS_MAX);
    return (int32_t)(rows < most ? rows : most);
}

/* A prefix is one for many sequences, so it is divided as if there were no other. */
static int32_t choose_splits(const ta_problem *p, const ta_division *d, int is_prefix)
{
    int64_t per_split = (int64_t)(is_prefix ? 1 : p->plan_batch) * d->head_groups * d->row_groups;
    int64_t splits = clamp(ceil_div(ITEMS_WANTED, per_split), SPLITS_MIN, SPLITS_MAX);
    int64_t tokens =
        p->selected && p->selected_count < p->max_tokens ? p->selected_count : p->max_tokens;
    int64_t useful = ceil_div(tokens, SPLIT_TOKENS_MIN);
    int64_t bytes = p->plan_rows * p->query_heads * d->record_floats * 4;
    int64_t affordable = RECORDS_BYTES / bytes;
    splits = splits < useful ? splits : useful;
    return (int32_t)clamp(splits, 1, affordable > 1 ? affordable : 1);
}

ta_division ta_divide(const ta_problem *problem, int32_t query_tokens, int heads_together,
                      int is_prefix)
{
    const ta_problem *p = problem;
    ta_division d = {.query_tokens = query_tokens};
    if (query_tokens == 0)
        return d;
    d.rows = p->query_heads / p->kv_heads * query_tokens;
    d.group_rows = choose_group_rows(p, d.rows);
    d.row_groups = (int32_t)ceil_div(d.rows, d.group_rows);
    d.group_heads = heads_together ? choose_group_heads(p, d.rows) : 1;
    d.head_groups = (int32_t)ceil_div(p->kv_heads, d.group_heads);
    d.record_floats = (int32_t)round_up(ta_problem_record_floats(p), 16); /* on cache lines */
    d.tally_tile = p->tally_tile;
    d.splits = choose_splits(p, &d, is_prefix);
    d.items = (int64_t)d.head_groups * d.row_groups * d.splits;
    return d;
}

/* ---- Which tokens its rows see ---- */

/* Of what one sequence sees, the positions that belong to the part. */
static ta_visible within(const ta_problem *p, const ta_kv *kv, const ta_division *d, ta_visible v)
{
    const int32_t *bounds = ta_kv_bounds(kv, d->sequence);
    int32_t first = ta_shard_held(&p->shard, bounds, d->from);
    int32_t end = ta_shard_held(&p->shard, bounds, d->to);
    v.first = v.first > first ? v.first : first;
    v.end = v.end < end ? v.end : end;
    if (v.first > v.end)
        v.first = v.end;
    return v;
}

ta_query_row ta_division_row(const ta_division *division, const ta_problem *problem,
                             const ta_kv *kv, int32_t token)
{
    const ta_problem *p = problem;
    const ta_division *d = division;
    int64_t row = d->first_row + token;
    int32_t sequence = d->to == INT32_MAX ? d->sequence : ta_problem_sequence_of(p, row);
    int32_t length = kv->lengths[sequence];
    int32_t position = length - ta_problem_query_tokens(p, sequence) +
                       (int32_t)(row - ta_problem_first_row(p, sequence));
    ta_visible v = ta_shard_visible(&p->shard, ta_kv_bounds(kv, d->sequence), length, position,
                                    p->causal, p->window);
    return (ta_query_row){within(p, kv, d, v), position};
}

/* What some row of sequences [first, end) sees, from the beginning of the first tile on in
 * reproducible mode. */
static ta_visible find_divided(const ta_problem *p, const ta_kv *kv, const ta_division *d,
                               int32_t first, int32_t end)
{
    ta_visible all = {0, 0};
    for (int32_t b = first; b < end; b++) {
        ta_visible v =
            within(p, kv, d,
                   ta_shard_seen(&p->shard, ta_kv_bounds(kv, d->sequence), kv->lengths[b],
                                 ta_problem_query_tokens(p, b), p->causal, p->window));
        if (v.first >= v.end)
            continue;
        all.first = all.first < all.end ? smaller(all.first, v.first) : v.first;
        all.end = all.end > v.end ? all.end : v.end;
    }
    if (all.first < all.end && p->tally_tile)
        all.first -= all.first % p->tally_tile;
    return all;
}

/* ---- All parts of a call ---- */

int32_t ta_division_parts(const ta_problem *problem)
{
    return problem->batch + problem->prefix_groups;
}

static void place(ta_division *d, const ta_problem *p, const ta_division *before)
{
    d->first_item = before ? before->first_item + before->items : 0;
    d->first_record =
        before ? before->first_record + (int64_t)p->kv_heads * before->splits * before->rows : 0;
}

static void divide_sequence(const ta_problem *p, const ta_kv *kv, int heads_together, int32_t b,
                            ta_division *d)
{
    int32_t tokens = ta_problem_query_tokens(p, b);
    if (b > 0 && tokens == d[-1].query_tokens)
        *d = d[-1];
    else
        *d = ta_divide(p, tokens, heads_together, 0);
    d->sequence = b;
    d->first_row = ta_problem_first_row(p, b);
    d->from = ta_problem_shared(p, b);
    d->to = INT32_MAX;
    d->divided = find_divided(p, kv, d, b, b + 1);
}

static void divide_prefix(const ta_problem *p, const ta_kv *kv, int heads_together, int32_t group,
                          ta_division *d)
{
    int32_t first = p->prefix_starts[group], end = p->prefix_starts[group + 1];
    int32_t shared = first < end ? ta_problem_shared(p, first) : 0;
    int64_t first_row = ta_problem_first_row(p, first);
    int64_t tokens = shared ? ta_problem_first_row(p, end) - first_row : 0;
    *d = ta_divide(p, (int32_t)tokens, heads_together, 1);
    d->sequence = first;
    d->first_row = first_row;
    d->to = shared;
    d->divided = find_divided(p, kv, d, first, end);
}

void ta_divide_all(const ta_problem *problem, const ta_kv *kv, int heads_together,
                   ta_division *divisions)
{
    const ta_problem *p = problem;
    for (int32_t part = 0; part < ta_division_parts(p); part++) {
        ta_division *d = &divisions[part];
        if (part < p->batch)
            divide_sequence(p, kv, heads_together, part, d);
        else
            divide_prefix(p, kv, heads_together, part - p->batch, d);
        place(d, p, part ? d - 1 : NULL);
    }
}

int64_t ta_division_items(const ta_division *divisions, const ta_problem *problem)
{
    const ta_division *last = &divisions[ta_division_parts(problem) - 1];
    return last->first_item + last->items;
}

int32_t ta_division_split_tokens(const ta_division *division, int32_t tokens)
{
    int64_t even = round_up(ceil_div(tokens, division->splits), TA_TOKEN_BLOCK);
    if (division->tally_tile)
        even = round_up(clamp(even, SPLIT_TOKENS_MIN, INT32_MAX), division->tally_tile);
    return (int32_t)clamp(even, SPLIT_TOKENS_MIN, INT32_MAX);
}

/* The last part that does not begin after the item. */
static int32_t part_of(const ta_division *divisions, int32_t parts, int64_t item)
{
    int32_t first = 0, end = parts;
    while (end - first > 1) {
        int32_t middle = first + (end - first) / 2;
        if (divisions[middle].first_item <= item)
            first = middle;
        else
            end = middle;
    }
    return first;
}

ta_item ta_division_item(const ta_division *divisions, const ta_problem *problem, int64_t item)
{
    int32_t part = part_of(divisions, ta_division_parts(problem), item);
    const ta_division *d = &divisions[part];
    ta_item i = {.part = part};
    item -= d->first_item;
    i.split = (int32_t)(item % d->splits);
    item /= d->splits;
    i.row = (int32_t)(item % d->row_groups) * d->group_rows;
    item /= d->row_groups;
    i.kv_head = (int32_t)(item % d->head_groups) * d->group_heads;
    i.rows = smaller(d->rows - i.row, d->group_rows);
    i.heads = smaller(problem->kv_heads - i.kv_head, d->group_heads);
    return i;
}
