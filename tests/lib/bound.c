/* The error bound of docs/numerics.md: see bound.h. The names of the terms are the same there.
 *
 * Each source of error has a largest size. Errors add up to at most the sum of those sizes
 * (`most`); with independent signs they add up to at most DEVIATIONS times the root of the sum of
 * their squares (`square`). The bound is the smaller of the two. */
#include "bound.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double UNIT = 0x1p-24;      /* u: half the spacing of binary32 numbers at 1 */
static const double DEVIATIONS = 4;      /* 7 standard deviations of uniform errors */
static const double EXP_ERROR = 4;       /* relative error of one exp2, in u */
static const double LOG_ERROR = 4;       /* of one log2, relative, in u */
static const double TANH_ERROR = 4;      /* of one tanh, relative, in u */
static const double LANES = 8;           /* interleaved sums of a dot product, at least */
static const double RUN_TOKENS = 64;     /* whose weights are added in one run, if not told */
static const double SMALLEST = 0x1p-126; /* weights below it may become 0 */
static const double DROPPED = 0x1p-8;    /* what a tally drops of a tile, of the largest, in u */

typedef bound_spread spread;

void bound_add_source(bound_spread *s, double size)
{
    s->most += size;
    s->square += size * size;
}

double bound_settle(const bound_spread *s)
{
    return fmin(s->most, DEVIATIONS * sqrt(s->square));
}

static double log2_steps(double n)
{
    return n > 1 ? ceil(log2(n)) : 0;
}

/* Adding n terms in runs of at most `run`, and then the sums of the runs: `sum`, `sum_abs` and
 * `sum_square` are of the terms themselves. The product that makes a term and each addition round
 * once. */
void bound_add_summation(bound_spread *s, double n, double run, double sum, double sum_abs,
                         double sum_square)
{
    run = fmin(n, run);
    double runs = ceil(n / run);
    s->most += (1 + run + runs) * sum_abs;
    s->square +=
        sum_square * (1 + run / 2 + runs / 6) + sum * sum * (run * run / (3 * n) + runs / 3);
}

/* The relative error of one term's weight before the division by the sum, in u. */
bound_spread bound_weight_error(const oracle_problem *problem, const oracle_row *row,
                                const oracle_term *term, double rescales)
{
    spread dot = {0, 0}, e = {0, 0};
    bound_add_summation(&dot, problem->k_dim,
                        problem->k_dim / (problem->dot_sums ? problem->dot_sums : LANES), term->dot,
                        term->dot_abs, term->dot_square);
    dot.most += term->dot_abs; /* the query may be scaled before the products */
    dot.square += term->dot_square;
    bound_add_source(&dot, 3 * fabs(term->dot)); /* scale, log2 e, and their product with the dot */
    if (problem->scaled)                         /* its product with the scale of the key */
        bound_add_source(&dot, fabs(term->dot));
    if (term->slope > 0) { /* a cap that is reached hides the errors of the product */
        e.most = term->slope * dot.most;
        e.square = term->slope * term->slope * dot.square;
    }
    if (problem->softcap != 0) /* the tanh, the cap times log2 e, and their product */
        bound_add_source(&e, (TANH_ERROR + 2) * fabs(term->capped));
    bound_add_source(&e, 3 * term->bias);
    if (!term->v)
        bound_add_source(&e, fabs(term->score)); /* the sink times log2 e */
    if (term->bias > 0)
        bound_add_source(&e, fabs(term->score));
    bound_add_source(&e, 2 * (row->top - term->score)); /* score − m, and m as it grows */
    bound_add_source(&e, EXP_ERROR);
    for (int i = 0; i < rescales; ++i)
        bound_add_source(&e, EXP_ERROR);
    return e;
}

/* What the bounds of a row need of its terms. */
typedef struct row_sums {
    spread weights;                  /* weighted errors of the weights, for the lse */
    double square;                   /* Σ w²; the weights add up to 1 */
    double score_abs;                /* Σ w |score| */
    spread lever[ORACLE_MAX_DIM];    /* errors of the weights times w (v − out) */
    double v_abs[ORACLE_MAX_DIM];    /* Σ w |v| */
    double v_square[ORACLE_MAX_DIM]; /* Σ w² v² */
    double v_lost[ORACLE_MAX_DIM];   /* Σ |v|: what weights too small for a binary32 may lose */
} row_sums;

static void add_term(const oracle_problem *problem, const oracle_row *row, const oracle_term *term,
                     double rescales, row_sums *sums)
{
    spread e = bound_weight_error(problem, row, term, rescales);
    double w = term->weight;
    sums->weights.most += w * e.most;
    sums->weights.square += w * w * e.square;
    sums->square += w * w;
    sums->score_abs += w * fabs(term->score);
    for (int d = 0; d < problem->v_dim; ++d) {
        double v = term->v ? term->v[d] : 0, lever = w * (v - row->out[d]);
        sums->lever[d].most += fabs(lever) * e.most;
        sums->lever[d].square += lever * lever * e.square;
        sums->v_abs[d] += w * fabs(v);
        sums->v_square[d] += w * w * v * v;
        sums->v_lost[d] += fabs(v);
    }
}

/* What rounding all weights changes in an output, at most. Weights that are nearly the same are
 * rounded alike, so it need not average out. */
static double rounding_error(const oracle_problem *problem, const oracle_row *row, double v_abs,
                             double v_lost)
{
    return problem->rounding * v_abs + problem->rounding_lost * exp(row->top - row->lse) * v_lost;
}

static double run_tokens(const oracle_problem *problem)
{
    return problem->run_tokens ? problem->run_tokens : RUN_TOKENS;
}

/* How often a weight is rescaled on its way to the result. */
static double count_rescales(const oracle_problem *problem, const oracle_row *row, int partials)
{
    if (problem->tile) /* from block to block of its tile, and to the anchor */
        return log2_steps(ceil(fmin(row->terms, problem->tile) / run_tokens(problem))) + 1;
    return log2_steps(ceil(row->terms / run_tokens(problem))) + log2_steps(partials);
}

/* Adding up all terms of a row. In reproducible mode sums are rounded inside of tiles only, and of
 * each tile's sum digits are dropped. */
static void add_row_summation(const oracle_problem *problem, bound_spread *s, double n, double sum,
                              double sum_abs, double sum_square)
{
    if (!problem->tile) {
        bound_add_summation(s, n, run_tokens(problem), sum, sum_abs, sum_square);
        return;
    }
    double tile = fmin(n, problem->tile), run = fmin(tile, run_tokens(problem)),
           runs = ceil(tile / run);
    double tiles = ceil(n / tile) + 1, dropped = DROPPED * sum_abs;
    s->most += (1 + run + runs) * sum_abs + tiles * dropped;
    s->square += sum_square * (1 + run / 2 + runs / 6) +
                 sum * sum * (run * run / (3 * n) + tile / n * runs / 3) +
                 tiles * dropped * dropped;
}

void bound_of_row(const oracle_problem *problem, const oracle_row *row, ta_dtype out_dtype,
                  int partials, bound_row *bound)
{
    row_sums sums;
    memset(&sums, 0, sizeof sums);
    memset(bound, 0, sizeof *bound);
    if (row->terms == 0)
        return; /* a row that saw nothing is exact */
    double rescales = count_rescales(problem, row, partials);
    double additions = row->terms + rescales;
    for (int i = 0; i < row->terms; ++i)
        if (row->term[i].score != -INFINITY)
            add_term(problem, row, &row->term[i], rescales, &sums);
    spread l = {0, 0};
    add_row_summation(problem, &l, additions, 1, 1, sums.square);
    for (int d = 0; d < problem->v_dim; ++d) {
        double out = fabs(row->out[d]);
        spread o = sums.lever[d];
        add_row_summation(problem, &o, additions, out, sums.v_abs[d], sums.v_square[d]);
        if (problem->scaled) { /* each weight times the scale of its value */
            o.most += sums.v_abs[d];
            o.square += sums.v_square[d];
        }
        o.most += l.most * out;
        o.square += l.square * out * out;
        bound->out[d] = UNIT * (bound_settle(&o) + (problem->tile ? 1 : 2) * out) +
                        SMALLEST * (1 + sums.v_lost[d]) +
                        rounding_error(problem, row, sums.v_abs[d], sums.v_lost[d]);
        if (isinf(row->out[d]))
            bound->out[d] = INFINITY;
        else if (out_dtype != TA_F32)
            bound->out[d] += number_half_ulp(out_dtype, out + bound->out[d]);
    }
    spread lse = {sums.weights.most + l.most, sums.weights.square + l.square};
    /* A tally is finished in double, and rounded once. */
    double finish =
        problem->tile ? fabs(row->lse) : LOG_ERROR * fabs(row->lse - row->top) + 2 * fabs(row->lse);
    bound->lse = UNIT * (bound_settle(&lse) + EXP_ERROR + sums.score_abs + finish);
}

int bound_partials(ta_algorithm algorithm, int ranks)
{
    return algorithm == TA_ALGORITHM_RING_KV ? 2 * ranks : ranks;
}

double bound_compare(double expected, double bound, double got)
{
    if (isinf(expected) && isinf(bound)) /* of an infinite value: infinite or NaN */
        return isfinite(got) ? INFINITY : 0;
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got) ? 0 : INFINITY;
    if (got == expected)
        return 0;
    if (isinf(expected) || isinf(got))
        return INFINITY;
    double ratio = fabs(got - expected) / bound;
    return isnan(ratio) ? INFINITY : ratio;
}

static void include(double *into, double from)
{
    if (!(from <= *into) && !isnan(*into))
        *into = from;
}

void bound_worst_include(bound_worst *into, const bound_worst *from)
{
    for (int i = 0; i < NUMBER_DTYPE_END; ++i)
        include(&into->out[i], from->out[i]);
    include(&into->lse, from->lse);
}

void bound_worst_print(const bound_worst *worst)
{
    printf("worst error / bound:");
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype)
        printf(" %s %.3f", number_name((ta_dtype)dtype), worst->out[dtype]);
    printf(" lse %.3f\n", worst->lse);
}
