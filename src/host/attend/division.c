/* How the work of attend() is divided: see division.h. */
#include "division.h"

#include "host/kernels.h"

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

static int32_t choose_group_heads(const ta_problem *p, int32_t rows)
{
    int32_t block_rows = rows < TA_ROW_BLOCK ? 1 : TA_ROW_BLOCK;
    int64_t heads = TA_BLOCK_VALUES / (block_rows * p->v_dim);
    int64_t few_rows = HEADS_TOGETHER_ROWS / rows;
    heads = heads < few_rows ? heads : few_rows;
    heads = heads < TA_HEADS_MAX ? heads : TA_HEADS_MAX;
    return (int32_t)clamp(heads, 1, p->kv_heads);
}

static int32_t choose_group_rows(const ta_problem *p, int32_t rows)
{
    int64_t most = GROUP_BYTES / (((int64_t)p->k_dim + p->v_dim) * (int64_t)sizeof(float));
    most = clamp(most / 16 * 16, 16, GROUP_ROWS_MAX);
    return (int32_t)(rows < most ? rows : most);
}

static int32_t choose_splits(const ta_problem *p, const ta_division *d)
{
    int64_t per_split = (int64_t)p->plan_batch * d->head_groups * d->row_groups;
    int64_t splits = clamp(ceil_div(ITEMS_WANTED, per_split), SPLITS_MIN, SPLITS_MAX);
    int64_t useful = ceil_div(p->max_tokens, SPLIT_TOKENS_MIN);
    int64_t bytes = p->plan_rows * p->query_heads * d->record_floats * 4;
    int64_t affordable = RECORDS_BYTES / bytes;
    splits = splits < useful ? splits : useful;
    return (int32_t)clamp(splits, 1, affordable > 1 ? affordable : 1);
}

ta_division ta_divide(const ta_problem *problem, int32_t query_tokens, int heads_together)
{
    const ta_problem *p = problem;
    ta_division d = {0};
    if (query_tokens == 0)
        return d;
    d.rows = p->query_heads / p->kv_heads * query_tokens;
    d.group_rows = choose_group_rows(p, d.rows);
    d.row_groups = (int32_t)ceil_div(d.rows, d.group_rows);
    d.group_heads = heads_together ? choose_group_heads(p, d.rows) : 1;
    d.head_groups = (int32_t)ceil_div(p->kv_heads, d.group_heads);
    d.record_floats = (int32_t)round_up(ta_problem_record_floats(p), 16); /* on cache lines */
    d.tally_tile = p->tally_tile;
    d.splits = choose_splits(p, &d);
    d.items = (int64_t)d.head_groups * d.row_groups * d.splits;
    return d;
}

void ta_divide_all(const ta_problem *problem, int heads_together, ta_division *divisions)
{
    const ta_problem *p = problem;
    int64_t item = 0, record = 0;
    for (int32_t b = 0; b < p->batch; b++) {
        ta_division *d = &divisions[b];
        int32_t tokens = ta_problem_query_tokens(p, b);
        if (b > 0 && tokens == ta_problem_query_tokens(p, b - 1))
            *d = divisions[b - 1];
        else
            *d = ta_divide(p, tokens, heads_together);
        d->first_item = item;
        d->first_record = record;
        item += d->items;
        record += (int64_t)p->kv_heads * d->splits * d->rows;
    }
}

int32_t ta_division_split_tokens(const ta_division *division, int32_t tokens)
{
    int64_t even = round_up(ceil_div(tokens, division->splits), TA_TOKEN_BLOCK);
    if (division->tally_tile)
        even = round_up(clamp(even, SPLIT_TOKENS_MIN, INT32_MAX), division->tally_tile);
    return (int32_t)clamp(even, SPLIT_TOKENS_MIN, INT32_MAX);
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The last sequence that does not begin after the item. */
static int32_t sequence_of(const ta_division *divisions, int32_t batch, int64_t item)
{
    int32_t first = 0, end = batch;
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
    int32_t sequence = sequence_of(divisions, problem->batch, item);
    const ta_division *d = &divisions[sequence];
    ta_item i = {.sequence = sequence};
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
