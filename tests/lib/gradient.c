/* Gradients in double, and their bounds: see gradient.h. With a row i and a key j, P the softmax,
 * dP = dO·V, delta = dO·out and the slope of the soft-cap:
 *
 *     dS = P · slope · (dP − delta),  dQ_i = scale Σ_j dS k_j,  dK_j = scale Σ_i dS q_i,
 *     dV_j = Σ_i P dO_i .
 *
 * Errors are in units of u = 2^-24, and named as in docs/numerics.md. */
#include "gradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"

static const double UNIT = 0x1p-24;
static const double RUN = 64;            /* tokens that are added in one run, at most */
static const double SMALLEST = 0x1p-126; /* probabilities below it may become 0 */
static const double TANH_ERROR = 4;

/* A number that is a sum: its terms, and the errors that they bring along. */
typedef struct total {
    double sum, sum_abs, sum_square, lost;
    int terms;
    bound_spread error;
} total;

static void add_term(total *t, double value, bound_spread error, double lost)
{
    t->sum += value;
    t->sum_abs += fabs(value);
    t->sum_square += value * value;
    t->lost += fabs(lost);
    t->terms++;
    t->error.most += error.most;
    t->error.square += error.square;
}

/* `more` is what is added in full. */
static void finish(const total *t, double more, ta_dtype dtype, int ranks, double *value,
                   double *bound)
{
    bound_spread error = t->error;
    *value = t->sum;
    *bound = 0;
    if (t->terms == 0)
        return;
    bound_add_summation(&error, t->terms + ranks, RUN, t->sum, t->sum_abs, t->sum_square);
    *bound = UNIT * (bound_settle(&error) + more + 3 * fabs(t->sum)) + SMALLEST * (1 + t->lost);
    if (dtype != TA_F32)
        *bound += number_half_ulp(dtype, fabs(t->sum) + *bound);
}

static bound_spread scaled(bound_spread s, double factor)
{
    return (bound_spread){s.most * fabs(factor), s.square * factor * factor};
}

static void include(bound_spread *into, bound_spread from)
{
    into->most += from.most;
    into->square += from.square;
}

/* What a pair of a row and a key has. */
typedef struct pair {
    double p, slope, product, ds;
    bound_spread p_error;  /* relative, of p, but for what all keys of the row share */
    bound_spread ds_error; /* likewise, of ds, absolute */
} pair;

/* What all keys of a row share. */
typedef struct row_errors {
    double lse;   /* relative, of p */
    double delta; /* absolute */
} row_errors;

static double dot_product(const double *a, const double *b, int n, double sums, bound_spread *error)
{
    double sum = 0, sum_abs = 0, sum_square = 0;
    for (int i = 0; i < n; ++i) {
        sum += a[i] * b[i];
        sum_abs += fabs(a[i] * b[i]);
        sum_square += a[i] * b[i] * a[i] * b[i];
    }
    bound_add_summation(error, n, n / sums, sum, sum_abs, sum_square);
    return sum;
}

static pair make_pair(const oracle_problem *problem, const oracle_row *row, const oracle_term *term,
                      const double *dout, double delta, double rescales)
{
    bound_spread product_error = {0, 0}, slope_error = {0, 0};
    pair x = {.p = term->weight, .slope = term->slope};
    x.p_error = bound_weight_error(problem, row, term, rescales);
    bound_add_source(&x.p_error, fabs(term->score - row->lse));
    x.product = dot_product(dout, term->v, problem->v_dim, 1, &product_error);
    double difference = x.product - delta, weight = x.p * x.slope;
    x.ds = weight * difference;
    bound_add_source(&product_error, difference);
    if (problem->softcap != 0) { /* of 1 − t² */
        double t = term->capped / problem->softcap;
        include(&slope_error, scaled(x.p_error, 2 * t / problem->softcap));
        bound_add_source(&slope_error, 2 * TANH_ERROR * t * t + 2);
    }
    include(&x.ds_error, scaled(x.p_error, x.ds));
    include(&x.ds_error, scaled(product_error, weight));
    include(&x.ds_error, scaled(slope_error, x.p * difference));
    bound_add_source(&x.ds_error, 3 * x.ds);
    return x;
}

/* The error of delta: of the library's outputs, and of the product with them. */
static double delta_error(const oracle_problem *problem, const oracle_row *row, const double *dout,
                          const pair *pairs, double delta, double rescales, ta_dtype dtype)
{
    bound_spread error = {0, 0}, l = {0, 0};
    double square = 0;
    for (int j = 0; j < row->terms; ++j) {
        square += pairs[j].p * pairs[j].p;
        include(&error, scaled(pairs[j].p_error, pairs[j].p * (pairs[j].product - delta)));
    }
    bound_add_summation(&l, row->terms + rescales, RUN, 1, 1, square);
    include(&error, scaled(l, delta));
    for (int d = 0; d < problem->v_dim; ++d) {
        bound_spread o = {0, 0};
        double sum_abs = 0, sum_square = 0;
        for (int j = 0; j < row->terms; ++j) {
            double value = pairs[j].p * row->term[j].v[d];
            sum_abs += fabs(value);
            sum_square += value * value;
        }
        bound_add_summation(&o, row->terms + rescales, RUN, row->out[d], sum_abs, sum_square);
        bound_add_source(&o, 2 * row->out[d]);
        if (dtype != TA_F32)
            bound_add_source(&o, number_half_ulp(dtype, fabs(row->out[d])) / UNIT);
        include(&error, scaled(o, dout[d]));
    }
    dot_product(dout, row->out, problem->v_dim, 8, &error);
    return bound_settle(&error);
}

/* All that is computed on the way. */
typedef struct work {
    const oracle_problem *problem;
    const oracle_sequence *sequence;
    const double *dout;
    ta_dtype dtype;
    int ranks;
    gradient_sequence *result;
    total *dk, *dv;
    pair *pairs;
} work;

/* The index of a term's key among [token][KV head]. */
static int64_t key_of(const work *w, const oracle_term *term)
{
    return (term->v - w->sequence->v) / w->problem->v_dim;
}

static void add_to_keys(const work *w, const oracle_row *row, const double *q, const double *dout,
                        row_errors errors)
{
    const oracle_problem *p = w->problem;
    for (int j = 0; j < row->terms; ++j) {
        const pair *x = &w->pairs[j];
        int64_t key = key_of(w, &row->term[j]);
        bound_spread ds_error = x->ds_error, p_error = x->p_error;
        bound_add_source(&ds_error, x->ds * errors.lse);
        bound_add_source(&ds_error, x->p * x->slope * errors.delta);
        bound_add_source(&ds_error, 3 * x->ds); /* the query as it was scaled for the scores */
        bound_add_source(&p_error, errors.lse);
        for (int d = 0; d < p->k_dim; ++d) {
            double factor = p->scale * q[d];
            add_term(&w->dk[key * p->k_dim + d], x->ds * factor, scaled(ds_error, factor),
                     (x->product + errors.delta) * factor);
        }
        for (int d = 0; d < p->v_dim; ++d)
            add_term(&w->dv[key * p->v_dim + d], x->p * dout[d], scaled(p_error, x->p * dout[d]),
                     dout[d]);
    }
}

static void finish_query(const work *w, const oracle_row *row, int64_t index, row_errors errors)
{
    const oracle_problem *p = w->problem;
    gradient_numbers *dq = &w->result->dq;
    for (int d = 0; d < p->k_dim; ++d) {
        total t = {0};
        double by_delta = 0;
        for (int j = 0; j < row->terms; ++j) {
            const pair *x = &w->pairs[j];
            double factor = p->scale * w->sequence->k[key_of(w, &row->term[j]) * p->k_dim + d];
            add_term(&t, x->ds * factor, scaled(x->ds_error, factor), x->product * factor);
            by_delta += x->p * x->slope * factor;
        }
        double shared = errors.lse * fabs(t.sum) + errors.delta * fabs(by_delta);
        finish(&t, shared, w->dtype, w->ranks, &dq->value[index * p->k_dim + d],
               &dq->bound[index * p->k_dim + d]);
    }
}

static void compute_row(const work *w, int token, int head, oracle_row *row)
{
    const oracle_problem *p = w->problem;
    int64_t index = (int64_t)token * p->query_heads + head;
    const double *q = w->sequence->q + index * p->k_dim, *dout = w->dout + index * p->v_dim;
    bound_row bound;
    oracle_attend(p, w->sequence, token, head, row);
    bound_of_row(p, row, w->dtype, w->ranks, &bound);
    memcpy(w->result->out.value + index * p->v_dim, row->out, (size_t)p->v_dim * sizeof(double));
    memcpy(w->result->out.bound + index * p->v_dim, bound.out, (size_t)p->v_dim * sizeof(double));
    w->result->lse.value[index] = row->lse;
    w->result->lse.bound[index] = bound.lse;
    double delta = 0, rescales = ceil(log2(row->terms / RUN + 1)) + ceil(log2(w->ranks));
    for (int d = 0; d < p->v_dim; ++d)
        delta += dout[d] * row->out[d];
    for (int j = 0; j < row->terms; ++j)
        w->pairs[j] = make_pair(p, row, &row->term[j], dout, delta, rescales);
    row_errors errors = {0, 0};
    if (row->terms > 0) {
        errors.lse = bound.lse / UNIT + 2 * fabs(row->lse);
        errors.delta = delta_error(p, row, dout, w->pairs, delta, rescales, w->dtype);
    }
    add_to_keys(w, row, q, dout, errors);
    finish_query(w, row, index, errors);
}

static void *zeros(int64_t count, size_t each)
{
    void *memory = calloc((size_t)count + 1, each);
    if (!memory)
        abort();
    return memory;
}

static gradient_numbers numbers(int64_t count)
{
    return (gradient_numbers){zeros(count, sizeof(double)), zeros(count, sizeof(double))};
}

void gradient_compute(const oracle_problem *problem, const oracle_sequence *sequence,
                      const double *dout, ta_dtype dtype, int ranks, gradient_sequence *result)
{
    int64_t n = sequence->length, rows = n * problem->query_heads, keys = n * problem->kv_heads;
    int64_t k_numbers = keys * problem->k_dim, v_numbers = keys * problem->v_dim;
    *result =
        (gradient_sequence){numbers(rows * problem->v_dim), numbers(rows),
                            numbers(rows * problem->k_dim), numbers(k_numbers), numbers(v_numbers)};
    work w = {problem, sequence, dout, dtype, ranks, result, NULL, NULL, NULL};
    w.dk = zeros(k_numbers, sizeof *w.dk);
    w.dv = zeros(v_numbers, sizeof *w.dv);
    w.pairs = zeros(n, sizeof *w.pairs);
    oracle_row row = {0};
    for (int token = 0; token < n; ++token)
        for (int head = 0; head < problem->query_heads; ++head)
            compute_row(&w, token, head, &row);
    for (int64_t i = 0; i < k_numbers; ++i)
        finish(&w.dk[i], 0, dtype, ranks, &result->dk.value[i], &result->dk.bound[i]);
    for (int64_t i = 0; i < v_numbers; ++i)
        finish(&w.dv[i], 0, dtype, ranks, &result->dv.value[i], &result->dv.bound[i]);
    oracle_row_free(&row);
    free(w.dk);
    free(w.dv);
    free(w.pairs);
}

void gradient_free(gradient_sequence *result)
{
    gradient_numbers *all[] = {&result->out, &result->lse, &result->dq, &result->dk, &result->dv};
    for (int i = 0; i < 5; ++i) {
        free(all[i]->value);
        free(all[i]->bound);
    }
}
