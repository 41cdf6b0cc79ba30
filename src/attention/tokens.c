/* Who holds which token in a call of an attention plan, and which keys a query sees. Everything
 * here is a matter of counting positions: one pass over each sequence. */
#include "base/shard_map.h"
#include "base/status.h"
#include "plan.h"

static int32_t ceil_div(int32_t n, int32_t d)
{
    return (int32_t)(((int64_t)n + d - 1) / d);
}

ta_shard_map ta_attention_map(const ta_attention *attention, int32_t length)
{
    ta_shard_map map = attention->map;
    if (map.block)
        return map;
    if (map.kind == TA_SHARD_BLOCK_CYCLIC)
        map.block = TA_DEFAULT_BLOCK;
    else
        map.block = ceil_div(length, map.kind == TA_SHARD_ZIGZAG ? 2 * map.ranks : map.ranks);
    if (map.block == 0)
        map.block = 1; /* an empty sequence */
    return map;
}

/* How many tokens each rank holds, into counts. */
static ta_status count_tokens(ta_attention *a, int32_t sequences, const int32_t *lengths)
{
    for (int rank = 0; rank < a->ranks; ++rank) {
        int64_t sum = 0;
        for (int32_t s = 0; s < sequences; ++s) {
            ta_shard_map map = ta_attention_map(a, lengths[s]);
            int32_t count;
            TA_TRY(ta_shard_count(&map, rank, lengths[s], &count));
            sum += count;
        }
        if (sum > a->max_tokens)
            return ta_fail(TA_ERR_INVALID,
                           "rank %d would hold %lld tokens of these lengths, more than max_tokens, "
                           "%d",
                           rank, (long long)sum, (int)a->max_tokens);
        a->counts[rank] = (int32_t)sum;
    }
    return TA_OK;
}

/* Where the tokens of each rank of a line start when they are gathered. The ranks of a line are
 * `first`, `first` + `step`, … */
static void start_line(const ta_attention *a, ta_line *line, int first, int step)
{
    line->starts[0] = 0;
    for (int i = 0; i < line->ranks; ++i)
        line->starts[i + 1] = line->starts[i] + a->counts[first + i * step];
}

/* What the queries [first, end) of a sequence with the keys [key_first, key_end) see; `positions`
 * of the queries are in visible[].first, and how many keys are not after them in visible[].end.
 * Both ends of a range ascend, since positions do. */
static void see_keys(ta_attention *a, int32_t first, int32_t end, int32_t key_first,
                     int32_t key_end)
{
    int32_t from = key_first;
    for (int32_t i = first; i < end; ++i) {
        int64_t start = a->window > 0 ? (int64_t)a->visible[i].first - a->window + 1 : 0;
        while (from < key_end && a->key_positions[from] < start)
            ++from;
        a->visible[i].first = from;
        if (!a->causal)
            a->visible[i].end = key_end;
        if (a->visible[i].end < from)
            a->visible[i].end = from;
    }
}

/* Is a rank's token among the queries, or keys, that are asked for? */
static int is_query(const ta_attention *a, int owner, int query_rank)
{
    return query_rank >= 0 ? owner == query_rank
                           : owner / a->grid_columns == a->rank / a->grid_columns;
}

static int is_key(const ta_attention *a, int owner, int key_rank)
{
    return key_rank >= 0 ? owner == key_rank : owner % a->grid_columns == a->rank % a->grid_columns;
}

ta_status ta_attention_find_tokens(ta_attention *attention, int32_t sequences,
                                   const int32_t *lengths, int query_rank, int key_rank)
{
    ta_attention *a = attention;
    int32_t queries = 0, keys = 0;
    TA_TRY(count_tokens(a, sequences, lengths));
    a->tokens = a->counts[a->rank];
    start_line(a, &a->row, a->rank / a->grid_columns * a->grid_columns, 1);
    start_line(a, &a->column, a->rank % a->grid_columns, a->grid_columns);
    for (int rank = 0; rank < a->ranks; ++rank)
        a->cursors[rank] = 0;
    for (int32_t s = 0; s < sequences; ++s) {
        ta_shard_map map = ta_attention_map(a, lengths[s]);
        int32_t first_query = queries, first_key = keys;
        for (int32_t position = 0; position < lengths[s]; ++position) {
            int owner = ta_shard_owner(&map, position);
            int32_t place = a->cursors[owner]++;
            if (is_key(a, owner, key_rank)) {
                a->key_positions[keys] = position;
                a->column.rows[keys++] =
                    place + (key_rank >= 0 ? 0 : a->column.starts[owner / a->grid_columns]);
            }
            if (is_query(a, owner, query_rank)) {
                a->visible[queries] = (ta_visible){position, keys};
                a->row.rows[queries++] =
                    place + (query_rank >= 0 ? 0 : a->row.starts[owner % a->grid_columns]);
            }
        }
        see_keys(a, first_query, queries, first_key, keys);
    }
    return TA_OK;
}

int64_t ta_attention_traffic(const ta_attention_work *shape, int grid_rows, int grid_columns,
                             int backward)
{
    const ta_attention_work *s = shape;
    int64_t each = s->dtype == TA_F32 ? 4 : 2, sum = 4;
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
