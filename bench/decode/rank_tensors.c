/* Query, output and log-sum-exp of each rank; see rank_tensors.h. measure.c passes them to
 * ta_decode(), check_output.c compares the outputs. */
#include "rank_tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/elements.h"

#define QUERY_SEED ((uint64_t)1 << 60) /* far from the counters that fill the cache */

/* Fill one head vector of the query; `index` is that of the vector in the whole tensor. */
static void fill_query_vector(const decode_options *o, const bench_case *row, int64_t token_row,
                              int head, void *data)
{
    int64_t index = token_row * row->query_heads + head;
    element_fill(row->dtype, data, index * o->head_dim, o->head_dim, QUERY_SEED, QUERY_RANGE);
}

void tensors_query_row(const decode_options *options, const bench_case *row, int64_t token_row,
                       int head, double *values)
{
    float storage[576];
    fill_query_vector(options, row, token_row, head, storage);
    element_read(row->dtype, storage, options->head_dim, values);
}

static int placed_heads(int64_t placement, const bench_case *row, int rank, head_part *part)
{
    part->first_head = 0;
    part->heads = row->query_heads;
    if (placement == TA_PLACE_ROOT && rank != 0)
        part->heads = 0;
    if (placement == TA_PLACE_HEADS &&
        ta_head_range(row->query_heads, row->ranks, rank, &part->first_head, &part->heads) != TA_OK)
        return -1;
    return 0;
}

/* 64-byte aligned, as a serving engine's tensors are. */
static void *make_tensor(int64_t elements, size_t element_bytes)
{
    size_t bytes = (size_t)elements * element_bytes;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static int make_rank(const decode_options *o, const bench_case *row, int rank, rank_tensors *t)
{
    int64_t rows = options_rows(o);
    size_t element = element_bytes(row->dtype);
    if (placed_heads(o->query_placement, row, rank, &t->query) != 0 ||
        placed_heads(o->out_placement, row, rank, &t->out) != 0)
        return -1;
    if (t->out.heads > 0) {
        t->out.data = make_tensor(rows * t->out.heads * o->v_dim, element);
        t->lse = make_tensor(rows * t->out.heads, sizeof(float));
        if (!t->out.data || !t->lse)
            return -1;
    }
    if (t->query.heads == 0)
        return 0;
    t->query.data = make_tensor(rows * t->query.heads * o->head_dim, element);
    if (!t->query.data)
        return -1;
    for (int64_t i = 0; i < rows * t->query.heads; i++) {
        char *vector = (char *)t->query.data + (size_t)(i * o->head_dim) * element;
        int head = t->query.first_head + (int)(i % t->query.heads);
        fill_query_vector(o, row, i / t->query.heads, head, vector);
    }
    return 0;
}

double tensors_bytes(const decode_options *options, const bench_case *row)
{
    double element = (double)element_bytes(row->dtype);
    double per_head = (double)(options->head_dim + options->v_dim) * element + sizeof(float);
    return (double)row->ranks * (double)options_rows(options) * row->query_heads * per_head;
}

rank_tensors *tensors_make(const decode_options *options, const bench_case *row)
{
    rank_tensors *tensors = calloc((size_t)row->ranks, sizeof *tensors);
    for (int rank = 0; tensors && rank < row->ranks; rank++) {
        if (make_rank(options, row, rank, &tensors[rank]) != 0) {
            tensors_free(tensors, row);
            return NULL;
        }
    }
    return tensors;
}

void tensors_free(rank_tensors *tensors, const bench_case *row)
{
    for (int rank = 0; tensors && rank < row->ranks; rank++) {
        free(tensors[rank].query.data);
        free(tensors[rank].out.data);
        free(tensors[rank].lse);
    }
    free(tensors);
}

void tensors_poison(rank_tensors *tensors, const decode_options *options, const bench_case *row)
{
    int64_t vectors = options_rows(options) * tensors->out.heads;
    if (!tensors->out.data)
        return;
    /* All bits set is a NaN in each of the types. */
    memset(tensors->out.data, 0xff, (size_t)(vectors * options->v_dim) * element_bytes(row->dtype));
    for (int64_t i = 0; i < vectors; i++)
        tensors->lse[i] = NAN;
}
