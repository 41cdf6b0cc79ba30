/* Cases of ta_combine(): see combine_case.h. */
#include "combine_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "base/status.h"
#include "case.h"
#include "device_array.h"
#include "exchange/kinds.h"
#include "options.h"
#include "plan_config.h"

/* ---- The case ---- */

static void random_rows(random_source *r, combine_case *c)
{
    c->plan_batch = random_int(r, 1, 5);
    c->batch = random_one_in(r, 2) ? c->plan_batch : random_int(r, 1, c->plan_batch);
    c->query_tokens = random_one_in(r, 2) ? 1 : random_int(r, 1, 6);
    c->ragged = random_one_in(r, 2);
    for (int b = 0; b < c->batch; ++b)
        c->starts[b + 1] = c->starts[b] + random_int(r, 0, c->query_tokens);
    if (c->starts[c->batch] == 0)
        c->ragged = false;
}

combine_case combine_case_random(uint64_t seed, int ranks)
{
    static const int counts[] = {1, 2, 3, 5, 8};
    static const double deviations[] = {0.5, 3, 30, 1000};
    random_source r = random_from(seed);
    combine_case c = {.seed = seed, .ranks = RANDOM_PICK(&r, counts)};
    c.ranks = ranks ? ranks : c.ranks;
    c.threads = random_int(&r, 1, 2);
    random_rows(&r, &c);
    c.heads = random_int(&r, 1, 9);
    c.v_dim = random_one_in(&r, 8) ? 576 : 8 * random_int(&r, 1, 17);
    c.part_dtype = (ta_dtype)random_int(&r, TA_F32, NUMBER_DTYPE_END - 1);
    c.out_dtype = (ta_dtype)random_int(&r, TA_F32, NUMBER_DTYPE_END - 1);
    c.placement = (ta_placement)random_int(&r, 0, 2);
    c.root = c.placement == TA_PLACE_ROOT ? random_int(&r, 0, c.ranks - 1) : 0;
    c.exchange = (ta_exchange)random_int(&r, TA_EXCHANGE_AUTO, TA_EXCHANGE_KINDS - 1);
    c.exchange = options_exchange(c.exchange);
    if (!case_exchange_possible(c.exchange, c.ranks, c.placement))
        c.exchange = TA_EXCHANGE_AUTO;
    c.sinks = (combine_sinks)random_int(&r, 0, 2);
    c.part = (combine_layout)random_int(&r, 0, COMBINE_LAYOUTS - 1);
    c.out = (combine_layout)random_int(&r, 0, COMBINE_LAYOUTS - 1);
    if (random_one_in(&r, 3))
        c.special = (combine_special)random_int(&r, 1, COMBINE_SPECIALS - 1);
    c.empty_in = random_one_in(&r, 3) ? 1000000 : random_int(&r, 1, 4);
    c.deviation = RANDOM_PICK(&r, deviations);
    c.want_lse = !random_one_in(&r, 4);
    return c;
}

int64_t combine_case_rows(const combine_case *c)
{
    return c->ragged ? c->starts[c->batch] : (int64_t)c->batch * c->query_tokens;
}

static void describe(const combine_case *c, char *text, size_t capacity)
{
    snprintf(text, capacity,
             "seed %llu: %d ranks, batch %d of %d, %s, %lld rows, %d heads, dim %d, %s to %s, "
             "placement %d root %d, exchange %s, sinks %d, layouts %d %d, special %d, empty 1 in "
             "%d, deviation %g",
             (unsigned long long)c->seed, c->ranks, c->batch, c->plan_batch,
             c->ragged ? "ragged" : "uniform", (long long)combine_case_rows(c), c->heads, c->v_dim,
             number_name(c->part_dtype), number_name(c->out_dtype), (int)c->placement, c->root,
             ta_exchange_name(c->exchange), (int)c->sinks, (int)c->part, (int)c->out,
             (int)c->special, c->empty_in, c->deviation);
}

/* ---- What all ranks have, and what must come out ---- */

typedef struct whole {
    const combine_case *c;
    int64_t rows, records; /* a record is a row of a head: row · heads + head */
    float sinks[16];
    ta_lse_base base[COMBINE_MAX_RANKS];
    float *lse[COMBINE_MAX_RANKS];   /* [record], as that rank's kernel would give it */
    double *part[COMBINE_MAX_RANKS]; /* [record][v_dim], numbers of the parts' type */
    double *out, *out_bound, *out_lse, *lse_bound;
    char failure[COMBINE_MAX_RANKS][512];
    bound_worst worst[COMBINE_MAX_RANKS];
    uint64_t hash[COMBINE_MAX_RANKS];
} whole;

static double rounded(ta_dtype dtype, double value)
{
    uint32_t bits = number_bits(dtype, value);
    return number_decode(dtype, &bits, 0);
}

static void make_rank(whole *w, int rank)
{
    const combine_case *c = w->c;
    random_source r = random_from(c->seed * 64 + (uint64_t)rank + 1);
    w->base[rank] = random_one_in(&r, 2) ? TA_LSE_2 : TA_LSE_E;
    w->lse[rank] = calloc((size_t)w->records, sizeof *w->lse[rank]);
    w->part[rank] = calloc((size_t)(w->records * c->v_dim), sizeof *w->part[rank]);
    for (int64_t i = 0; i < w->records; ++i) {
        bool empty = random_one_in(&r, c->empty_in);
        w->lse[rank][i] = empty ? -INFINITY : (float)(random_normal(&r) * c->deviation);
        for (int d = 0; d < c->v_dim; ++d)
            w->part[rank][i * c->v_dim + d] = rounded(c->part_dtype, random_normal(&r));
    }
    if (c->special == COMBINE_PLAIN || rank != (int)(c->seed % (uint64_t)c->ranks))
        return;
    int64_t at = (int64_t)(c->seed / 7 % (uint64_t)w->records);
    if (c->special == COMBINE_NAN_VALUE && w->lse[rank][at] > -INFINITY)
        w->part[rank][at * c->v_dim + 3] = NAN;
    else if (c->special != COMBINE_NAN_VALUE)
        w->lse[rank][at] = c->special == COMBINE_NAN_LSE ? NAN : INFINITY;
}

/* As attention with a key for each rank that is not empty. */
static void expect_record(whole *w, int64_t record)
{
    const combine_case *c = w->c;
    float sink = w->sinks[record % c->heads];
    double keys[COMBINE_MAX_RANKS], one = 1;
    double *values = calloc((size_t)(c->ranks * c->v_dim), sizeof *values);
    oracle_problem problem = {.query_tokens = 1,
                              .query_heads = 1,
                              .kv_heads = 1,
                              .k_dim = 1,
                              .v_dim = c->v_dim,
                              .scale = 1,
                              .sinks = c->sinks ? &sink : NULL};
    oracle_sequence sequence = {.q = &one, .k = keys, .v = values};
    oracle_row row = {0};
    bound_row bound;
    for (int rank = 0; rank < c->ranks; ++rank) {
        double lse = (double)w->lse[rank][record];
        if (lse == -INFINITY)
            continue;
        keys[sequence.length] = w->base[rank] == TA_LSE_2 ? lse * M_LN2 : lse;
        memcpy(values + sequence.length * c->v_dim, w->part[rank] + record * c->v_dim,
               (size_t)c->v_dim * sizeof *values);
        ++sequence.length;
    }
    oracle_attend(&problem, &sequence, 0, 0, &row);
    bound_of_row(&problem, &row, c->out_dtype, c->ranks, &bound);
    memcpy(w->out + record * c->v_dim, row.out, (size_t)c->v_dim * sizeof *w->out);
    memcpy(w->out_bound + record * c->v_dim, bound.out, (size_t)c->v_dim * sizeof *w->out);
    w->out_lse[record] = row.lse;
    w->lse_bound[record] = bound.lse;
    oracle_row_free(&row);
    free(values);
}

static void make_whole(const combine_case *c, whole *w)
{
    random_source r = random_from(c->seed * 64);
    w->c = c;
    w->rows = combine_case_rows(c);
    w->records = w->rows * c->heads;
    for (int h = 0; h < c->heads; ++h)
        w->sinks[h] = (float)(random_normal(&r) * 2);
    for (int rank = 0; rank < c->ranks; ++rank)
        make_rank(w, rank);
    w->out = calloc((size_t)(w->records * c->v_dim), sizeof *w->out);
    w->out_bound = calloc((size_t)(w->records * c->v_dim), sizeof *w->out_bound);
    w->out_lse = calloc((size_t)w->records, sizeof *w->out_lse);
    w->lse_bound = calloc((size_t)w->records, sizeof *w->lse_bound);
    for (int64_t i = 0; i < w->records; ++i)
        expect_record(w, i);
}

static void free_whole(whole *w)
{
    for (int rank = 0; rank < w->c->ranks; ++rank) {
        free(w->lse[rank]);
        free(w->part[rank]);
    }
    free(w->out);
    free(w->out_bound);
    free(w->out_lse);
    free(w->lse_bound);
}

/* ---- One rank ---- */

/* A tensor of some heads in one of the layouts: elements between heads, rows and in all. */
typedef struct layout {
    int64_t head, row, count;
} layout;

static layout lay_out(const combine_case *c, combine_layout kind, int heads)
{
    int64_t rows = combine_case_rows(c), dim = c->v_dim;
    if (kind == COMBINE_BY_HEADS)
        return (layout){rows * (dim + 8), dim + 8, heads * rows * (dim + 8)};
    int64_t pad = kind == COMBINE_PADDED ? 8 : 0, row = heads * (dim + pad) + 3 * pad;
    return (layout){dim + pad, row, rows * row};
}

static ta_tensor tensor_of(const combine_case *c, combine_layout kind, layout l, void *data)
{
    if (kind == COMBINE_DENSE)
        return (ta_tensor){data, 0, 0, 0};
    return (ta_tensor){data, c->query_tokens * l.row, l.row, l.head};
}

/* What one rank has. */
typedef struct buffers {
    ta_plan *plan;
    int first, heads; /* of the output */
    layout part_layout, out_layout;
    device_array part, part_lse, out, lse, starts, sinks;
} buffers;

static ta_status make_buffers(const whole *w, ta_device *device, int rank, buffers *b)
{
    const combine_case *c = w->c;
    b->heads = c->heads;
    if (c->placement == TA_PLACE_HEADS)
        TA_TRY(ta_head_range(c->heads, c->ranks, rank, &b->first, &b->heads));
    if (c->placement == TA_PLACE_ROOT && rank != c->root)
        b->heads = 0;
    b->part_layout = lay_out(c, c->part, c->heads);
    b->out_layout = lay_out(c, c->out, b->heads);
    TA_TRY(device_array_make(device, (size_t)b->part_layout.count, number_bytes(c->part_dtype),
                             &b->part));
    TA_TRY(device_array_make(device, (size_t)w->records, sizeof(float), &b->part_lse));
    TA_TRY(device_array_make(device, (size_t)b->out_layout.count, number_bytes(c->out_dtype),
                             &b->out));
    TA_TRY(device_array_make(device, (size_t)(w->rows * b->heads), sizeof(float), &b->lse));
    TA_TRY(device_array_make(device, (size_t)c->batch + 1, sizeof(int32_t), &b->starts));
    return device_array_make(device, (size_t)c->heads, sizeof(float), &b->sinks);
}

static void free_buffers(buffers *b)
{
    ta_plan_destroy(b->plan);
    device_array_free(&b->part);
    device_array_free(&b->part_lse);
    device_array_free(&b->out);
    device_array_free(&b->lse);
    device_array_free(&b->starts);
    device_array_free(&b->sinks);
}

/* Everything that must not be read is poison: pads, and the outputs of empty rows. */
static ta_status fill(const whole *w, int rank, buffers *b)
{
    const combine_case *c = w->c;
    number_poison(c->part_dtype, b->part.host, b->part_layout.count);
    number_poison(c->out_dtype, b->out.host, b->out_layout.count);
    number_poison(TA_F32, b->lse.host, w->rows * b->heads);
    memcpy(b->part_lse.host, w->lse[rank], b->part_lse.bytes);
    memcpy(b->starts.host, c->starts, b->starts.bytes);
    memcpy(b->sinks.host, w->sinks, b->sinks.bytes);
    for (int64_t i = 0; i < w->records; ++i)
        for (int d = 0; d < c->v_dim && w->lse[rank][i] != -INFINITY; ++d)
            number_encode(c->part_dtype, b->part.host,
                          i / c->heads * b->part_layout.row + i % c->heads * b->part_layout.head +
                              d,
                          w->part[rank][i * c->v_dim + d]);
    const device_array *all[] = {&b->part, &b->part_lse, &b->out, &b->lse, &b->starts, &b->sinks};
    for (int i = 0; i < 6; ++i)
        TA_TRY(device_array_to(all[i], NULL));
    return TA_OK;
}

static ta_status make_plan(const whole *w, ta_group *group, ta_device *device, ta_plan **plan)
{
    const combine_case *c = w->c;
    ta_plan_config config = combine_config(c->plan_batch, c->heads, c->v_dim);
    config.query_tokens = c->query_tokens;
    config.query_dtype = c->part_dtype;
    config.out_dtype = c->out_dtype;
    config.out_placement = c->placement;
    config.out_root = c->root;
    config.exchange = c->exchange;
    config.sinks = c->sinks == COMBINE_PLAN_SINKS ? w->sinks : NULL;
    ta_cluster *cluster = NULL; /* of several nodes, which the last one does not fill */
    if (c->exchange == TA_EXCHANGE_TWO_LEVEL)
        TA_TRY(ta_cluster_create(c->ranks > 5   ? "h100:3x3"
                                 : c->ranks > 4 ? "h100:2x3"
                                                : "h100:2x2",
                                 &cluster));
    if (c->exchange == TA_EXCHANGE_MULTI_LEVEL)
        TA_TRY(ta_cluster_create("h100:2x2x2", &cluster));
    config.cluster = cluster;
    ta_status status = ta_plan_create(group, device, &config, plan);
    ta_cluster_destroy(cluster);
    return status;
}

static ta_status combine(const whole *w, int rank, buffers *b)
{
    const combine_case *c = w->c;
    ta_call call = TA_CALL_INIT;
    ta_tensor part = tensor_of(c, c->part, b->part_layout, b->part.device);
    ta_tensor out = tensor_of(c, c->out, b->out_layout, b->out.device);
    call.batch = c->batch;
    call.sinks = c->sinks == COMBINE_CALL_SINKS ? b->sinks.device : NULL;
    if (c->ragged) {
        call.tokens = c->starts[c->batch];
        call.starts = b->starts.device;
    }
    TA_TRY(ta_combine(b->plan, &part, b->part_lse.device, w->base[rank], b->heads ? &out : NULL,
                      c->want_lse ? b->lse.device : NULL, &call, NULL));
    TA_TRY(device_array_from(&b->out, NULL));
    return device_array_from(&b->lse, NULL);
}

/* ---- What came out ---- */

static void note(double *worst, double ratio)
{
    if (!(ratio <= *worst))
        *worst = ratio;
}

static void check_number(whole *w, int rank, const char *what, int64_t record, int d, double got,
                         double expected, double bound, double *worst)
{
    double ratio = bound_compare(expected, bound, got);
    char *failure = w->failure[rank];
    note(worst, ratio);
    if (!(ratio <= 1) && !failure[0])
        snprintf(failure, sizeof w->failure[rank],
                 "%s of row %lld head %lld dim %d is %.9g, expected %.9g: %.3g of the bound", what,
                 (long long)(record / w->c->heads), (long long)(record % w->c->heads), d, got,
                 expected, ratio);
}

static void check_record(whole *w, int rank, const buffers *b, int64_t record, bool *used)
{
    const combine_case *c = w->c;
    int64_t row = record / c->heads, head = record % c->heads - b->first;
    int64_t at = row * b->out_layout.row + head * b->out_layout.head;
    for (int d = 0; d < c->v_dim; ++d) {
        int64_t i = record * c->v_dim + d;
        used[at + d] = true;
        check_number(w, rank, "out", record, d, number_decode(c->out_dtype, b->out.host, at + d),
                     w->out[i], w->out_bound[i], &w->worst[rank].out[c->out_dtype]);
        if (number_is_poison(c->out_dtype, b->out.host, at + d) && !w->failure[rank][0])
            snprintf(w->failure[rank], sizeof w->failure[rank], "element %lld was not written",
                     (long long)(at + d));
        uint32_t bits = 0;
        size_t size = number_bytes(c->out_dtype);
        memcpy(&bits, (char *)b->out.host + (size_t)(at + d) * size, size);
        w->hash[rank] = (w->hash[rank] ^ bits) * 0x9e3779b97f4a7c15u;
    }
    if (c->want_lse)
        check_number(w, rank, "lse", record, 0,
                     (double)((float *)b->lse.host)[row * b->heads + head], w->out_lse[record],
                     w->lse_bound[record], &w->worst[rank].lse);
}

static void check(whole *w, int rank, const buffers *b)
{
    const combine_case *c = w->c;
    bool *used = calloc((size_t)b->out_layout.count + 1, sizeof *used);
    w->hash[rank] = 1;
    for (int64_t record = 0; record < w->records; ++record) {
        int64_t head = record % c->heads;
        if (head >= b->first && head < b->first + b->heads)
            check_record(w, rank, b, record, used);
    }
    for (int64_t i = 0; i < b->out_layout.count; ++i)
        if (!used[i] && !number_is_poison(c->out_dtype, b->out.host, i) && !w->failure[rank][0])
            snprintf(w->failure[rank], sizeof w->failure[rank], "element %lld was written",
                     (long long)i);
    free(used);
}

typedef struct rank_run {
    whole *whole;
    int rank;
    buffers buffers;
} rank_run;

static ta_status combine_and_check(ta_group *group, ta_device *device, void *context)
{
    rank_run *run = context;
    TA_TRY(make_buffers(run->whole, device, run->rank, &run->buffers));
    TA_TRY(make_plan(run->whole, group, device, &run->buffers.plan));
    for (int step = 0; step < case_steps; ++step) {
        TA_TRY(fill(run->whole, run->rank, &run->buffers));
        TA_TRY(combine(run->whole, run->rank, &run->buffers));
        check(run->whole, run->rank, &run->buffers);
    }
    return TA_OK;
}

static void release(void *context)
{
    free_buffers(&((rank_run *)context)->buffers);
}

static ta_status run_rank(ta_group *threads, void *context)
{
    rank_run run = {.whole = context, .rank = ta_group_rank(threads)};
    return case_rank_run(threads, run.whole->c->threads, combine_and_check, release, &run);
}

bool combine_case_run(const combine_case *c, bound_worst *worst, char *failure, size_t capacity)
{
    if (!options_ranks(c->ranks))
        return true;
    whole *w = calloc(1, sizeof *w);
    char line[512], found[700];
    make_whole(c, w);
    case_launch_ranks(c->ranks, run_rank, w, found, sizeof found);
    for (int rank = 0; rank < c->ranks; ++rank) {
        bound_worst_include(worst, &w->worst[rank]);
        if (w->failure[rank][0] && !found[0])
            snprintf(found, sizeof found, "rank %d: %s", rank, w->failure[rank]);
        if (case_launch == ta_group_run_threads && c->placement == TA_PLACE_ALL && !found[0] &&
            w->hash[rank] != w->hash[0])
            snprintf(found, sizeof found, "rank %d has other bits than rank 0", rank);
    }
    describe(c, line, sizeof line);
    if (found[0])
        snprintf(failure, capacity, "%s\n%s", found, line);
    free_whole(w);
    free(w);
    return !found[0];
}
