/* A row of attention in double precision with its tolerance; check_output.c calls it.
 * docs/numerics.md derives the tolerance of which docs/benchmarks.md gives this short form:
 * errors of independent signs add up to at most four times the root of the sum of the squares of
 * their largest sizes. */
#include "exact_row.h"

#include <math.h>

#include "common/elements.h"
#include "rank_tensors.h"

static const double UNIT = 0x1p-24; /* binary32, in which the library accumulates */
static const double DEVIATIONS = 4; /* 7 standard deviations of uniform errors */
static const double EXP_ERROR = 4;  /* of an exp2 or log2, relative, in units */

/* The keys at positions up to `last` that the row sees, with their scores. Returns how many. */
static int32_t score_keys(const decode_options *options, const kv_layout *layout, int64_t token_row,
                          int32_t sequence, int32_t last, int32_t kv_head, const double *query,
                          exact_key *keys)
{
    double scale = 1.0 / sqrt(layout->k_dim), k[EXACT_MAX_DIM];
    int32_t count = 0;
    for (int rank = 0; rank < layout->row->ranks; rank++) {
        for (int32_t local = 0; local < layout->shards[rank].tokens; local++) {
            int32_t position = kv_layout_position(layout, rank, local);
            if (position > last)
                break; /* local order follows the sequence's */
            if (!options_sees(options, layout->row->tokens, token_row, position))
                continue;
            exact_key *key = &keys[count++];
            int32_t source = position < options->shared_prefix ? 0 : sequence;
            key->at = kv_layout_at(layout, rank, source, local, kv_head);
            kv_layout_read(layout, key->at.k, layout->k_dim, k);
            double sum = 0, squares = 0;
            for (int32_t d = 0; d < layout->k_dim; d++) {
                double product = query[d] * k[d];
                sum += product;
                squares += product * product;
            }
            key->score = scale * sum;
            key->products_square = scale * scale * squares;
        }
    }
    return count;
}

/* The square of the relative error of a key's weight, in units: its dot product, the scale, the
 * distance to the largest score, and the exponentials it is multiplied with. */
static double weight_error_square(const kv_layout *layout, const exact_key *key, double top,
                                  double rescales)
{
    double k_dim = layout->k_dim, below = 2 * (top - key->score);
    return key->products_square * (2 + k_dim / 6) + key->score * key->score * (k_dim / 3 + 9) +
           below * below + EXP_ERROR * EXP_ERROR * (1 + rescales);
}

/* Sums over the keys that the tolerance is made of. */
typedef struct error_sums {
    double additions;                  /* n: additions on the way to a sum over the keys */
    double weight_error;               /* Σ (w e)² */
    double weight_square;              /* Σ w² */
    double score;                      /* Σ w |s| */
    double value_error[EXACT_MAX_DIM]; /* Σ (w v)² (2 e² + 1 + n / 6) */
    double value[EXACT_MAX_DIM];       /* Σ w |v| */
} error_sums;

static void attend(const kv_layout *layout, const exact_key *keys, int32_t count, double top,
                   double total, exact_row *row, error_sums *sums)
{
    double v[EXACT_MAX_DIM];
    double rescales = ceil(log2(count)) + ceil(log2(layout->row->ranks));
    *sums = (error_sums){.additions = count + rescales};
    for (int32_t d = 0; d < layout->v_dim; d++)
        row->out[d] = 0;
    for (int32_t i = 0; i < count; i++) {
        double weight = exp(keys[i].score - top) / total;
        double error = weight_error_square(layout, &keys[i], top, rescales);
        double value_factor = weight * weight * (2 * error + 1 + sums->additions / 6);
        sums->weight_error += weight * weight * error;
        sums->weight_square += weight * weight;
        sums->score += weight * fabs(keys[i].score);
        kv_layout_read(layout, keys[i].at.v, layout->v_dim, v);
        for (int32_t d = 0; d < layout->v_dim; d++) {
            row->out[d] += weight * v[d];
            sums->value_error[d] += value_factor * v[d] * v[d];
            sums->value[d] += weight * fabs(v[d]);
        }
    }
}

/* The largest relative error of a weight that was rounded to the type that matrix cores multiply:
 * that of K and V, or bf16 if these have 8 bits. */
static double weight_rounding(const decode_options *options, const bench_case *row)
{
    if (options->weights == TA_WEIGHTS_EXACT || !options->devices.gpu || row->kv_dtype == TA_F32)
        return 0;
    return element_roundoff(row->kv_dtype == TA_F16 ? TA_F16 : TA_BF16);
}

static void set_tolerances(const decode_options *options, const kv_layout *layout,
                           const error_sums *sums, double top, exact_row *row)
{
    double rounding = weight_rounding(options, layout->row);
    double roundoff = element_roundoff(layout->row->dtype);
    double floor = element_floor(layout->row->dtype);
    double n = sums->additions, sum_error = sums->weight_square * (1 + n / 6) + n / 3;
    for (int32_t d = 0; d < layout->v_dim; d++) {
        double out = fabs(row->out[d]);
        double square =
            sums->value_error[d] + out * out * (2 * sums->weight_error + sum_error + n / 3);
        double error = UNIT * (DEVIATIONS * sqrt(square) + 2 * out) + rounding * sums->value[d];
        error += fmax(roundoff * (out + error), floor);
        row->out_tolerance[d] = error;
    }
    row->lse_tolerance =
        UNIT * (DEVIATIONS * sqrt(sums->weight_error + sum_error) + EXP_ERROR + sums->score +
                EXP_ERROR * fabs(row->lse - top) + 2 * fabs(row->lse));
}

void exact_row_compute(const decode_options *options, const kv_layout *layout, int64_t token_row,
                       int head, exact_key *keys, exact_row *row)
{
    const bench_case *shape = layout->row;
    double query[EXACT_MAX_DIM], top = -INFINITY, total = 0;
    error_sums sums;
    int32_t sequence = 0;
    int64_t left = token_row;
    while (left >= options_query_tokens(options, sequence))
        left -= options_query_tokens(options, sequence++);
    int32_t token = (int32_t)left;
    int32_t position = shape->tokens - (int32_t)options_query_tokens(options, sequence) + token;
    int32_t kv_head = head / (shape->query_heads / shape->kv_heads);

    tensors_query_row(options, shape, token_row, head, query);
    int32_t count =
        score_keys(options, layout, token_row, sequence, position, kv_head, query, keys);
    for (int32_t i = 0; i < count; i++)
        top = fmax(top, keys[i].score);
    for (int32_t i = 0; i < count; i++)
        total += exp(keys[i].score - top);
    row->lse = top + log(total);
    attend(layout, keys, count, top, total, row, &sums);
    set_tolerances(options, layout, &sums, top, row);
}
