/* What a call of an attention plan sends and takes, for all ranks at once: the mirror of grid.c,
 * overlap.c and ring.c. tests/test_attention_cost.c compares messages and bytes of
 * every rank with what its group counted. Where all ranks hold equally many tokens, hops that are
 * alike are added as one that repeats. */
#include <stdlib.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "cost.h"
#include "exchange/rounds.h"
#include "group/agree.h"

#define AGREE_BYTES (TA_AGREE_NUMBERS * sizeof(int64_t))

#define ATTEND_KERNELS 1
#define MERGE_KERNELS 1

typedef struct estimate {
    const ta_attention *a;
    ta_cost *cost;
    int backward, equal; /* do all ranks hold equally many tokens? */
    double window;       /* the part of the scores that the window leaves */
    ta_cost_lines rows, columns;
    size_t *offsets; /* [lines][members + 1] */
    /* Bytes of one token. */
    size_t query, out, key, value, record, number; /* `number`: an f32 for each query head */
} estimate;

/* ---- Work ---------------------------------------------------------------------------------- */

double ta_attention_attend_s(const ta_attention *attention, const ta_cluster *cluster,
                             double scores, int backward)
{
    const ta_attention_work *s = &attention->shape;
    double products = backward ? 3.0 * s->k_dim + 2.0 * s->v_dim : (double)s->k_dim + s->v_dim;
    if (!cluster)
        return 0;
    return ATTEND_KERNELS * cluster->kernel_s +
           2 * scores * s->query_heads * products /
               cluster->flops_per_s[ta_dtype_bytes(s->dtype) == 2];
}

/* The part of all pairs that a window lets a query see, of one long sequence. */
static double window_part(const ta_attention *a)
{
    double tokens = 0, after = 0;
    for (int rank = 0; rank < a->ranks; ++rank)
        tokens += a->counts[rank];
    double w = a->window > 0 && a->window < tokens ? a->window : tokens;
    if (tokens == 0)
        return 1;
    if (!a->causal)
        after = tokens * (tokens - 1) / 2;
    return (after + w * tokens - w * (w - 1) / 2) / (after + tokens * (tokens + 1) / 2);
}

/* Score elements of one rank's queries with another's keys. Under a causal mask striped and zigzag
 * ranks see half of each other; of contiguous ones the later sees all of the earlier. */
static double pair_scores(const estimate *e, int query_rank, int key_rank)
{
    const ta_attention *a = e->a;
    double part = !a->causal                           ? 1
                  : a->map.kind != TA_SHARD_CONTIGUOUS ? 0.5
                  : query_rank > key_rank              ? 1
                  : query_rank == key_rank             ? 0.5
                                                       : 0;
    return part * e->window * a->counts[query_rank] * a->counts[key_rank];
}

/* One rank's queries with all keys of a column. */
static double column_scores(const estimate *e, int query_rank, int column)
{
    double sum = 0;
    for (int member = 0; member < e->columns.members; ++member)
        sum += pair_scores(e, query_rank, ta_cost_rank(&e->columns, column, member));
    return sum;
}

static double attend_s(const estimate *e, double scores)
{
    return ta_attention_attend_s(e->a, e->cost->cluster, scores, e->backward);
}

static void add_merge(const estimate *e, int rank, size_t token_bytes)
{
    ta_cost_work(e->cost, MERGE_KERNELS, 3.0 * e->a->counts[rank] * (double)token_bytes);
}

/* ---- The grid without overlap -------------------------------------------------------------- */

static void gather(const estimate *e, const ta_cost_lines *lines, size_t token_bytes,
                   const char *phase)
{
    size_t *at = e->offsets;
    for (int line = 0; line < lines->lines; ++line, ++at)
        for (int member = at[0] = 0; member < lines->members; ++member, ++at)
            at[1] = at[0] + (size_t)e->a->counts[ta_cost_rank(lines, line, member)] * token_bytes;
    ta_cost_all_gather_lines(e->cost, phase, lines, e->offsets);
}

static void reduce(const estimate *e, const ta_cost_lines *lines, size_t token_bytes,
                   const char *phase)
{
    for (int index = 0; lines->members > 1 && index < ta_pairwise_count(lines->members); ++index) {
        for (int line = 0; line < lines->lines; ++line)
            for (int member = 0; member < lines->members; ++member) {
                ta_round round = {.to = -1, .from = -1};
                ta_pairwise_block(lines->members, member, index, lines->members, &round);
                int rank = ta_cost_rank(lines, line, member);
                int to = ta_cost_rank(lines, line, round.to);
                ta_cost_message(e->cost, rank, to, (uint64_t)e->a->counts[to] * token_bytes);
                add_merge(e, rank, token_bytes);
            }
        ta_cost_round(e->cost, phase);
    }
}

/* Along the row; backward also dO, lse and delta. */
static void gather_queries(const estimate *e)
{
    gather(e, &e->rows, e->query, "gather queries");
    if (!e->backward)
        return;
    gather(e, &e->rows, e->out, "gather queries");
    gather(e, &e->rows, e->number, "gather queries");
    gather(e, &e->rows, e->number, "gather queries");
}

static double grid_scores(const estimate *e)
{
    double most = 0;
    for (int rank = 0; rank < e->a->ranks; ++rank) {
        double sum = 0;
        int row = rank / e->rows.members, column = rank % e->rows.members;
        for (int member = 0; member < e->rows.members; ++member)
            sum += column_scores(e, ta_cost_rank(&e->rows, row, member), column);
        most = sum > most ? sum : most;
        if (e->equal && e->a->map.kind != TA_SHARD_CONTIGUOUS)
            break; /* the others are alike */
    }
    return most;
}

static void estimate_grid(const estimate *e)
{
    gather_queries(e);
    gather(e, &e->columns, e->key, "gather K and V");
    gather(e, &e->columns, e->value, "gather K and V");
    ta_cost_local(e->cost, "attend", attend_s(e, grid_scores(e)));
    if (!e->backward) {
        reduce(e, &e->rows, e->record, "merge partials");
        return;
    }
    size_t f32 = sizeof(float), each = ta_dtype_bytes(e->a->shape.dtype);
    reduce(e, &e->rows, e->query / each * f32, "add dQ");
    reduce(e, &e->columns, e->key / each * f32, "add dK and dV");
    reduce(e, &e->columns, e->value / each * f32, "add dK and dV");
}

/* ---- The grid with overlap ----------------------------------------------------------------- */

static int owner_after(int member, int hop, int members)
{
    return (member + 2 * members - hop) % members;
}

/* Everybody sends something of the member whose block it has after `hop` hops to the next one. */
static void pass_on(const estimate *e, const ta_cost_lines *lines, int hop, size_t token_bytes,
                    int older_hop, size_t older_token_bytes)
{
    for (int line = 0; line < lines->lines; ++line)
        for (int member = 0; member < lines->members; ++member) {
            int owner = ta_cost_rank(lines, line, owner_after(member, hop, lines->members));
            int older = ta_cost_rank(lines, line, owner_after(member, older_hop, lines->members));
            ta_cost_message(e->cost, ta_cost_rank(lines, line, member),
                            ta_cost_rank(lines, line, (member + 1) % lines->members),
                            (uint64_t)e->a->counts[owner] * token_bytes +
                                (uint64_t)e->a->counts[older] * older_token_bytes);
        }
}

/* The slowest rank's work in a hop of the columns, or of the rows. */
static double hop_scores(const estimate *e, int hop, int of_rows)
{
    double most = 0;
    for (int rank = 0; rank < e->a->ranks; ++rank) {
        int row = rank / e->rows.members, column = rank % e->rows.members;
        double scores;
        if (of_rows)
            scores = column_scores(
                e, ta_cost_rank(&e->rows, row, owner_after(column, hop, e->rows.members)), column);
        else
            scores = pair_scores(
                e, rank,
                ta_cost_rank(&e->columns, column, owner_after(row, hop, e->columns.members)));
        most = scores > most ? scores : most;
    }
    return most;
}

static void add_merges(const estimate *e, size_t token_bytes)
{
    for (int rank = 0; rank < e->a->ranks; ++rank)
        add_merge(e, rank, token_bytes);
}

/* Hop 0 of the row is under way while the columns rotate. */
static void rotate_keys(const estimate *e)
{
    int members = e->columns.members;
    for (int hop = 0, repeats; hop < members; hop += repeats) {
        repeats = e->equal && hop > 0 && hop < members - 1 ? members - 1 - hop : 1;
        ta_cost_repeat(e->cost, repeats);
        if (hop < members - 1)
            pass_on(e, &e->columns, hop, e->key + e->value, hop, 0);
        if (hop == 0 && e->rows.members > 1)
            pass_on(e, &e->rows, 0, e->query, 0, 0);
        ta_cost_overlap(e->cost, attend_s(e, hop_scores(e, hop, 0)));
        if (hop > 0)
            add_merges(e, e->record);
        ta_cost_round(e->cost, "rotate K and V, attend");
    }
}

static void rotate_queries(const estimate *e)
{
    int members = e->rows.members;
    for (int hop = 1, repeats; hop < members; hop += repeats) {
        size_t query = hop < members - 1 ? e->query : 0, record = hop >= 2 ? e->record : 0;
        repeats = e->equal && hop >= 2 && hop < members - 1 ? members - 1 - hop : 1;
        ta_cost_repeat(e->cost, repeats);
        if (query || record)
            pass_on(e, &e->rows, hop, query, hop - 1, record);
        ta_cost_overlap(e->cost, attend_s(e, hop_scores(e, hop, 1)));
        if (record)
            add_merges(e, record);
        ta_cost_round(e->cost, "rotate queries, attend");
    }
    pass_on(e, &e->rows, members - 1, e->record, members - 1, 0);
    add_merges(e, e->record);
    ta_cost_round(e->cost, "partials home");
}

/* The row's queries with the block that is here. */
static double row_scores(const estimate *e, int hop)
{
    double most = 0;
    for (int rank = 0; rank < e->a->ranks; ++rank) {
        int row = rank / e->rows.members, column = rank % e->rows.members;
        int key_rank = ta_cost_rank(&e->columns, column, owner_after(row, hop, e->columns.members));
        double sum = 0;
        for (int member = 0; member < e->rows.members; ++member)
            sum += pair_scores(e, ta_cost_rank(&e->rows, row, member), key_rank);
        most = sum > most ? sum : most;
    }
    return most;
}

static void rotate_gradients(const estimate *e)
{
    int members = e->columns.members;
    size_t each = ta_dtype_bytes(e->a->shape.dtype), all = e->key + e->value;
    size_t dq = e->query / each * sizeof(float) * (size_t)e->rows.members;
    size_t all_sums = all / each * sizeof(float);
    for (int hop = 0, repeats; hop < members; hop += repeats) {
        size_t block = hop < members - 1 ? all : 0, sums = hop >= 2 ? all_sums : 0;
        repeats = e->equal && hop >= 2 && hop < members - 1 ? members - 1 - hop : 1;
        ta_cost_repeat(e->cost, repeats);
        if (block || sums)
            pass_on(e, &e->columns, hop, block, hop - 1, sums);
        ta_cost_overlap(e->cost, attend_s(e, row_scores(e, hop)));
        if (hop > 0)
            add_merges(e, dq + sums);
        ta_cost_round(e->cost, "rotate K, V, dK and dV, attend");
    }
    pass_on(e, &e->columns, members - 1, all_sums, members - 1, 0);
    add_merges(e, all_sums);
    ta_cost_round(e->cost, "dK and dV home");
    reduce(e, &e->rows, e->query / each * sizeof(float), "add dQ");
}

/* ---- The ring ------------------------------------------------------------------------------ */

static double ring_scores(const estimate *e, int hop)
{
    double most = 0;
    for (int rank = 0; rank < e->a->ranks; ++rank) {
        double scores = pair_scores(e, rank, owner_after(rank, hop, e->a->ranks));
        most = scores > most ? scores : most;
    }
    return most;
}

static void estimate_ring(const estimate *e)
{
    int ranks = e->a->ranks;
    const ta_cost_lines all = {1, ranks, 0, 1};
    size_t each = ta_dtype_bytes(e->a->shape.dtype), block = e->key + e->value;
    for (int hop = 0, repeats; hop < ranks; hop += repeats) {
        repeats = e->equal && hop > 0 && hop < ranks - 1 ? ranks - 1 - hop : 1;
        ta_cost_repeat(e->cost, repeats);
        if (hop < ranks - 1)
            pass_on(e, &all, hop, block, hop, 0);
        ta_cost_overlap(e->cost, attend_s(e, ring_scores(e, hop)));
        if (hop > 0 && !e->backward)
            add_merges(e, e->record);
        ta_cost_round(e->cost, "pass K and V, attend");
        if (!e->backward || ranks == 1)
            continue;
        ta_cost_repeat(e->cost, repeats);
        pass_on(e, &all, hop, block / each * sizeof(float), hop, 0);
        add_merges(e, e->query / each * sizeof(float) + block / each * sizeof(float));
        ta_cost_round(e->cost, "pass dK and dV");
    }
}

/* ---- All of them --------------------------------------------------------------------------- */

/* All but the offsets, which scores do without. */
static void begin(const ta_attention *a, int backward, ta_cost *cost, estimate *e)
{
    const ta_attention_work *s = &a->shape;
    size_t each = ta_dtype_bytes(s->dtype), queries = (size_t)s->query_heads;
    int ring = a->algorithm == TA_ATTENTION_RING;
    int columns = ring ? 1 : a->grid_columns, rows = a->ranks / columns;
    *e = (estimate){.a = a, .cost = cost, .backward = backward, .equal = 1};
    for (int rank = 1; rank < a->ranks; ++rank)
        e->equal &= a->counts[rank] == a->counts[0];
    e->window = window_part(a);
    e->rows = (ta_cost_lines){rows, columns, columns, 1};
    e->columns = (ta_cost_lines){columns, rows, 1, columns};
    e->query = queries * (size_t)s->k_dim * each;
    e->out = queries * (size_t)s->v_dim * each;
    e->key = (size_t)s->kv_heads * (size_t)s->k_dim * each;
    e->value = (size_t)s->kv_heads * (size_t)s->v_dim * each;
    e->record = queries * (size_t)ta_record_floats(s->v_dim) * sizeof(float);
    e->number = queries * sizeof(float);
}

ta_status ta_attention_estimate(const ta_attention *attention, int backward, ta_cost *cost)
{
    const ta_attention *a = attention;
    estimate e;
    begin(a, backward, cost, &e);
    e.offsets = calloc(2 * (size_t)a->ranks, sizeof *e.offsets);
    if (!e.offsets)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the offsets of %d ranks", a->ranks);
    if (a->ranks > 1)
        ta_cost_all_reduce(cost, "agree", AGREE_BYTES);
    if (backward) /* delta reads two tensors */
        ta_cost_local(cost, "delta",
                      ta_cost_memory_s(cost->cluster, 1, 2.0 * a->max_tokens * (double)e.out));
    if (a->algorithm == TA_ATTENTION_RING) {
        estimate_ring(&e);
    } else if (a->algorithm == TA_ATTENTION_GRID_OVERLAP && backward && e.columns.members > 1) {
        gather_queries(&e);
        rotate_gradients(&e);
    } else if (a->algorithm == TA_ATTENTION_GRID_OVERLAP && !backward) {
        rotate_keys(&e);
        if (e.rows.members > 1)
            rotate_queries(&e);
    } else {
        estimate_grid(&e);
    }
    if (!backward)
        ta_cost_local(cost, "finish",
                      ta_cost_memory_s(cost->cluster, 1, a->max_tokens * (double)e.record));
    free(e.offsets);
    return TA_OK;
}

double ta_attention_scores(const ta_attention *attention)
{
    estimate e;
    begin(attention, 0, NULL, &e);
    return grid_scores(&e);
}
