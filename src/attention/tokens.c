/* Who holds which token in a call of an attention plan, and which keys a query sees. A sequence is
 * divided into blocks of neighbours, so everything here goes from block to block of the ranks that
 * are asked about, never from token to token: the order that comes out is one of runs
 * (device/attention.h). count_tokens() once a call, find_order() for each attention in it. */
#include "base/shard_map.h"
#include "base/status.h"
#include "plan.h"

ta_shard_map ta_attention_map(const ta_attention *attention, int32_t length)
{
    ta_shard_map map = ta_shard_divided(&attention->map, length);
    if (!map.block)
        map.block = TA_DEFAULT_BLOCK;
    return map;
}

/* Where the tokens of each rank of a line start when they are gathered. The ranks of a line are
 * `first`, `first` + `step`, … */
static void start_line(const ta_attention *a, ta_line *line, int first, int step)
{
    line->starts[0] = 0;
    for (int i = 0; i < line->ranks; ++i)
        line->starts[i + 1] = line->starts[i] + a->counts[first + i * step];
}

/* ---- The blocks of some ranks ---------------------------------------------------------------- */

/* The ranks first, first + step, …, and where the tokens of each start among theirs. */
typedef struct holders {
    int first, step, count;
    const int32_t *starts; /* NULL: one rank, from 0 */
    int32_t *taken;        /* [count]: tokens of each in the sequences and blocks before */
} holders;

static holders queries_of(const ta_attention *a, int rank)
{
    if (rank >= 0)
        return (holders){rank, 1, 1, NULL, a->row.taken};
    return (holders){a->rank / a->grid_columns * a->grid_columns, 1, a->grid_columns, a->row.starts,
                     a->row.taken};
}

static holders keys_of(const ta_attention *a, int rank)
{
    if (rank >= 0)
        return (holders){rank, 1, 1, NULL, a->column.taken};
    return (holders){a->rank % a->grid_columns, a->grid_columns, a->ranks / a->grid_columns,
                     a->column.starts, a->column.taken};
}

static int32_t row_of(const holders *h, int member)
{
    return (h->starts ? h->starts[member] : 0) + h->taken[member];
}

/* Positions [first, end) that one member holds. */
typedef struct block {
    int64_t first, end;
    int member;
} block;

/* Blocks of a weighted map that are neighbours count as one: the turn `index` of the holders'. Of a
 * member without weight it is empty. */
static block weighted_block_at(const holders *h, const ta_shard_map *map, int32_t length,
                               int64_t index)
{
    const int32_t *starts = map->bounds;
    block b = {length, length, (int)(index % h->count)};
    int rank = h->first + b.member * h->step;
    int64_t first = (index / h->count * starts[map->ranks] + starts[rank]) * map->block;
    int64_t end = first + (int64_t)(starts[rank + 1] - starts[rank]) * map->block;
    if (first >= length)
        return b;
    b.first = first;
    b.end = end < length ? end : length;
    return b;
}

/* Block `index` of the holders' in a sequence, in the order of positions: first ≥ `length` if there
 * are not so many. The last block of a map that does not go round takes what is left. */
static block block_at(const holders *h, const ta_shard_map *map, int32_t length, int64_t index)
{
    int64_t number = INT64_MAX, last = -1;
    block b = {length, length, (int)(index % h->count)};
    if (map->kind == TA_SHARD_WEIGHTED)
        return weighted_block_at(h, map, length, index);
    if (map->kind == TA_SHARD_BLOCK_CYCLIC) {
        number = index / h->count * map->ranks + h->first + (int64_t)b.member * h->step;
    } else if (index < h->count) {
        number = h->first + (int64_t)b.member * h->step;
        last = map->kind == TA_SHARD_ZIGZAG ? -1 : map->ranks - 1;
    } else if (map->kind == TA_SHARD_ZIGZAG && index < 2 * (int64_t)h->count) { /* and back */
        last = 2 * (int64_t)map->ranks - 1;
        b.member = h->count - 1 - b.member;
        number = last - h->first - (int64_t)b.member * h->step;
    }
    if (number > (length - 1) / map->block || length == 0)
        return b;
    b.first = number * map->block;
    if (number != last && b.first + map->block < length)
        b.end = b.first + map->block;
    return b;
}

/* Tokens of one rank in a sequence. */
static int64_t count_held(const ta_shard_map *map, int rank, int32_t length)
{
    holders h = {.first = rank, .step = 1, .count = 1};
    int64_t sum = 0;
    block b;
    if (map->kind == TA_SHARD_BLOCK_CYCLIC || map->kind == TA_SHARD_WEIGHTED) {
        ta_shard cyclic = {.cyclic = 1, .ranks = map->ranks, .block = map->block};
        ta_shard_set_rank(&cyclic, map->bounds, rank);
        return ta_shard_held(&cyclic, NULL, length);
    }
    for (int64_t i = 0; (b = block_at(&h, map, length, i)).first < length; ++i) /* two at most */
        sum += b.end - b.first;
    return sum;
}

ta_status ta_attention_count_tokens(ta_attention *attention, int32_t sequences,
                                    const int32_t *lengths)
{
    ta_attention *a = attention;
    a->steps = 0;
    for (int rank = 0; rank < a->ranks; ++rank) {
        int64_t sum = 0;
        for (int32_t s = 0; s < sequences; ++s) {
            ta_shard_map map = ta_attention_map(a, lengths[s]);
            sum += count_held(&map, rank, lengths[s]);
        }
        if (sum > a->max_tokens)
            return ta_fail(TA_ERR_INVALID,
                           "rank %d would hold %lld tokens of these lengths, more than max_tokens, "
                           "%d",
                           rank, (long long)sum, (int)a->max_tokens);
        a->counts[rank] = (int32_t)sum;
    }
    a->tokens = a->counts[a->rank];
    start_line(a, &a->row, a->rank / a->grid_columns * a->grid_columns, 1);
    start_line(a, &a->column, a->rank % a->grid_columns, a->grid_columns);
    return TA_OK;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Add a run of keys, to the one before if it goes on from there. */
static void add_keys(ta_token_order *o, int32_t row, int32_t count)
{
    const ta_key_run *last = o->key_run_count ? &o->key_runs[o->key_run_count - 1] : NULL;
    if (!last || row != last->row + (o->keys - last->first))
        o->key_runs[o->key_run_count++] = (ta_key_run){o->keys, row};
    o->keys += count;
}

/* Does a run of queries go on where `last` ends? One query alone moves in any way. */
static int goes_on(const ta_token_order *o, const ta_query_run *run, int32_t count,
                   ta_query_run *last)
{
    int32_t have = o->queries - last->first;
    int32_t first = run->visible.first - last->visible.first;
    int32_t end = run->visible.end - last->visible.end;
    int32_t moves_first = have == 1 ? first : last->moves_first;
    int32_t moves_end = have == 1 ? end : last->moves_end;
    if (run->row != last->row + have || first != moves_first * have || end != moves_end * have ||
        moves_first < 0 || moves_first > 1 || moves_end < 0 || moves_end > 1)
        return 0;
    if (count > 1 && (run->moves_first != moves_first || run->moves_end != moves_end))
        return 0;
    last->moves_first = moves_first;
    last->moves_end = moves_end;
    return 1;
}

static void add_queries(ta_token_order *o, ta_query_run run, int32_t count)
{
    ta_query_run *last = o->query_run_count ? &o->query_runs[o->query_run_count - 1] : NULL;
    run.first = o->queries;
    if (!last || !goes_on(o, &run, count, last))
        o->query_runs[o->query_run_count++] = run;
    o->queries += count;
}

/* How many keys of a sequence are before a position that only grows. */
typedef struct key_count {
    const holders *h;
    const ta_shard_map *map;
    int32_t length, before; /* keys before the block */
    int64_t index;
    block at; /* the first that ends after the position */
} key_count;

static key_count start_count(const holders *h, const ta_shard_map *map, int32_t length,
                             int32_t before)
{
    return (key_count){h, map, length, before, 0, block_at(h, map, length, 0)};
}

/* Keys before `position`, and in `even` the number of positions for which, counted from there, it
 * moves evenly, in `moves` whether it does. */
static int32_t count_keys(ta_attention *a, key_count *c, int64_t position, int64_t *even,
                          int32_t *moves)
{
    while (c->at.first < c->length && position >= c->at.end) {
        c->before += (int32_t)(c->at.end - c->at.first);
        c->at = block_at(c->h, c->map, c->length, ++c->index);
        a->steps += 1;
    }
    int inside = c->at.first < c->length && position >= c->at.first;
    int64_t until = inside                    ? c->at.end - position
                    : c->at.first < c->length ? c->at.first - position
                                              : INT64_MAX;
    *even = until < *even ? until : *even;
    *moves = inside;
    return c->before + (inside ? (int32_t)(position - c->at.first) : 0);
}

/* The keys of one sequence. */
static void find_keys(ta_attention *a, const holders *h, const ta_shard_map *map, int32_t length)
{
    block b;
    for (int64_t i = 0; (b = block_at(h, map, length, i)).first < length; ++i) {
        if (b.end > b.first)
            add_keys(&a->order, row_of(h, b.member), (int32_t)(b.end - b.first));
        h->taken[b.member] += (int32_t)(b.end - b.first);
        a->steps += 1;
    }
}

/* Its queries, with the keys [first_key, order.keys) that are the sequence's. */
static void find_queries(ta_attention *a, const holders *h, const holders *keys,
                         const ta_shard_map *map, int32_t length, int32_t first_key)
{
    key_count from = start_count(keys, map, length, first_key), to = from;
    block b;
    for (int64_t i = 0; (b = block_at(h, map, length, i)).first < length; ++i)
        for (int64_t x = b.first, even; x < b.end; x += even) {
            ta_query_run run = {.row = row_of(h, b.member), .visible = {first_key, a->order.keys}};
            even = b.end - x;
            if (a->window > 0)
                run.visible.first =
                    count_keys(a, &from, x - a->window + 1, &even, &run.moves_first);
            if (a->causal)
                run.visible.end = count_keys(a, &to, x + 1, &even, &run.moves_end);
            add_queries(&a->order, run, (int32_t)even);
            h->taken[b.member] += (int32_t)even;
            a->steps += 1;
        }
}

void ta_attention_find_order(ta_attention *attention, const ta_attention_input *input,
                             int query_rank, int key_rank, ta_attention_work *work)
{
    ta_attention *a = attention;
    ta_token_order *o = &a->order;
    holders queries = queries_of(a, query_rank), keys = keys_of(a, key_rank);
    o->queries = o->keys = o->query_run_count = o->key_run_count = 0;
    for (int i = 0; i < queries.count; ++i)
        queries.taken[i] = 0;
    for (int i = 0; i < keys.count; ++i)
        keys.taken[i] = 0;
    for (int32_t s = 0; s < input->sequences; ++s) {
        ta_shard_map map = ta_attention_map(a, input->lengths[s]);
        int32_t first_key = o->keys;
        find_keys(a, &keys, &map, input->lengths[s]);
        find_queries(a, &queries, &keys, &map, input->lengths[s], first_key);
    }
    *work = a->shape;
    work->queries = o->queries;
    work->keys = o->keys;
}

int64_t ta_attention_traffic(const ta_attention_work *shape, int grid_rows, int grid_columns,
                             int backward)
{
    const ta_attention_work *s = shape;
    int64_t each = (int64_t)ta_dtype_bytes(s->dtype), sum = sizeof(float);
    int64_t query = (int64_t)s->query_heads * s->k_dim, out = (int64_t)s->query_heads * s->v_dim;
    int64_t kv = (int64_t)s->kv_heads * (s->k_dim + s->v_dim);
    int64_t along_row = query * each + (out + 2 * s->query_heads) * sum;
    int64_t along_column = kv * each;
    if (backward) {
        along_row = (query + out) * each + (2 * s->query_heads + query) * sum;
        along_column = kv * (each + sum);
    }
    return (grid_columns - 1) * along_row + (grid_rows - 1) * along_column;
}
