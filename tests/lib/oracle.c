/* Naive attention in double: see oracle.h. Follows the formulas in the comment of ta_plan_config,
 * in the order they are printed there. */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static oracle_term *add_term(oracle_row *row)
{
    if (row->terms == row->capacity) {
        row->capacity = row->capacity ? 2 * row->capacity : 64;
        row->term = realloc(row->term, (size_t)row->capacity * sizeof *row->term);
        if (!row->term)
            abort();
    }
    oracle_term *term = &row->term[row->terms++];
    memset(term, 0, sizeof *term);
    return term;
}

static bool visible(const oracle_problem *problem, int x, int y)
{
    if (problem->causal && y > x)
        return false;
    return problem->window == 0 || x - y < problem->window;
}

static void score_key(const oracle_problem *problem, const double *q, const double *k, int distance,
                      int head, oracle_term *term)
{
    double dot = 0, sum_abs = 0, sum_square = 0;
    for (int i = 0; i < problem->k_dim; ++i) {
        double product = q[i] * k[i];
        dot += product;
        sum_abs += fabs(product);
        sum_square += product * product;
    }
    term->dot = problem->scale * dot;
    term->dot_abs = fabs(problem->scale) * sum_abs;
    term->dot_square = problem->scale * problem->scale * sum_square;
    term->capped = term->dot;
    term->slope = 1;
    if (problem->softcap != 0) {
        double fraction = tanh(term->dot / problem->softcap);
        term->capped = problem->softcap * fraction;
        term->slope = 1 - fraction * fraction;
    }
    term->score = term->capped;
    if (problem->alibi_slopes) {
        double bias = (double)problem->alibi_slopes[head] * abs(distance);
        term->score -= bias;
        term->bias = fabs(bias);
    }
}

static void softmax(oracle_row *row)
{
    row->top = -INFINITY;
    for (int i = 0; i < row->terms; ++i)
        if (!(row->term[i].score <= row->top))
            row->top = row->term[i].score;
    double sum = 0;
    for (int i = 0; i < row->terms; ++i)
        if (row->term[i].score != -INFINITY) /* such a key counts as one that is not there */
            sum += row->term[i].weight = exp(row->term[i].score - row->top);
    row->lse = row->top == -INFINITY ? -INFINITY : row->top + log(sum);
    for (int i = 0; i < row->terms; ++i)
        row->term[i].weight /= sum > 0 || isnan(sum) ? sum : 1;
}

void oracle_attend(const oracle_problem *problem, const oracle_sequence *sequence, int token,
                   int head, oracle_row *row)
{
    int kv_head = head / (problem->query_heads / problem->kv_heads);
    int x = sequence->length - problem->query_tokens + token;
    const double *q = sequence->q + ((int64_t)token * problem->query_heads + head) * problem->k_dim;
    row->terms = 0;
    for (int y = 0; y < sequence->length; ++y) {
        if (!visible(problem, x, y) || (problem->selected && !problem->selected[y]))
            continue;
        int64_t index = (int64_t)y * problem->kv_heads + kv_head;
        oracle_term *term = add_term(row);
        score_key(problem, q, sequence->k + index * problem->k_dim, x - y, head, term);
        term->v = sequence->v + index * problem->v_dim;
    }
    row->keys = row->terms;
    if (problem->sinks)
        add_term(row)->score = problem->sinks[head];
    softmax(row);
    memset(row->out, 0, sizeof row->out);
    for (int i = 0; i < row->keys; ++i)
        for (int d = 0; d < problem->v_dim; ++d)
            row->out[d] += row->term[i].weight * row->term[i].v[d];
}

void oracle_row_free(oracle_row *row)
{
    free(row->term);
    memset(row, 0, sizeof *row);
}
