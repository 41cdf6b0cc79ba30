/* The check of `treeattn-bench attention`; see check.h. A row needs a pass over its keys,
 * a key a pass over the rows that see it, whose lse and outputs are taken from the results: those
 * are checked beside it.
 *
 * The tolerance is linear: every term of a sum is off by at most (d / 2 + 32 + 4 |lse|) · u of its
 * magnitude, u = 2^-24, plus the rounding into the dtype, of the result and of the stored output
 * that delta is made of. docs/numerics.md has the sharper bound that the tests use. */
#include "check.h"

#include <math.h>
#include <stdlib.h>

#include "common/elements.h"
#include "part.h"

/* Rows and keys that are checked. */
#define SAMPLES 6

#define DIM_MAX 256

/* A sum, and the sum of its terms' magnitudes. */
typedef struct sum {
    double value, size;
} sum;

typedef struct checker {
    const attention_row *row;
    const attention_data *data;
    double scale;
    double *scores; /* [tokens] */
    sum *sums[2];   /* [head_dim] each */
} checker;

static double dot(const double *a, const double *b, int n)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += a[i] * b[i];
    return total;
}

static double dot_abs(const double *a, const double *b, int n)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += fabs(a[i] * b[i]);
    return total;
}

static void add(sum *s, double value, double size)
{
    s->value += value;
    s->size += size;
}

static void clear(const checker *c)
{
    for (int i = 0; i < DIM_MAX; i++)
        c->sums[0][i] = c->sums[1][i] = (sum){0, 0};
}

static void judge(const checker *c, attention_verdict *v, double got, sum expected, double lse)
{
    double u = 0x1p-24, most = c->row->head_dim / 2.0 + 32 + 4 * fabs(lse);
    double roundoff = element_roundoff(c->row->dtype);
    double tolerance = (u * most + 2 * roundoff) * expected.size + 0x1p-24;
    double ratio = fabs(got - expected.value) / tolerance;
    v->checked++;
    if (!(ratio <= 1))
        v->wrong++;
    if (!(ratio <= v->worst))
        v->worst = ratio;
}

static int32_t keys_of(const checker *c, int32_t token)
{
    return c->row->mask == TA_MASK_CAUSAL ? token + 1 : c->row->tokens;
}

/* One row of the output, its lse, and its dq. */
static void check_row(const checker *c, int32_t token, int32_t head, attention_verdict *verdicts)
{
    const attention_row *row = c->row;
    int dim = row->head_dim, kv_head = head / (row->query_heads / row->kv_heads);
    int64_t at = (int64_t)token * row->query_heads + head;
    double q[DIM_MAX], dout[DIM_MAX], k[DIM_MAX], v[DIM_MAX], top = -INFINITY, total = 0;
    double delta = 0, delta_abs = 0;
    part_input_row(row, PART_Q, token, head, q);
    part_input_row(row, PART_DOUT, token, head, dout);
    clear(c);
    for (int32_t j = 0; j < keys_of(c, token); j++) {
        part_input_row(row, PART_K, j, kv_head, k);
        c->scores[j] = c->scale * dot(q, k, dim);
        top = fmax(top, c->scores[j]);
    }
    for (int32_t j = 0; j < keys_of(c, token); j++)
        total += exp(c->scores[j] - top);
    double lse = top + log(total);
    for (int32_t j = 0; j < keys_of(c, token); j++) {
        part_input_row(row, PART_V, j, kv_head, v);
        for (int d = 0; d < dim; d++)
            add(&c->sums[0][d], exp(c->scores[j] - lse) * v[d],
                exp(c->scores[j] - lse) * fabs(v[d]));
    }
    for (int d = 0; d < dim; d++) {
        judge(c, &verdicts[PASS_FORWARD], c->data->out[at * dim + d], c->sums[0][d], lse);
        delta += dout[d] * c->sums[0][d].value;
        delta_abs += fabs(dout[d]) * c->sums[0][d].size;
    }
    judge(c, &verdicts[PASS_FORWARD], c->data->lse[at], (sum){lse, 1 + fabs(lse)}, lse);
    for (int32_t j = 0; j < keys_of(c, token); j++) {
        part_input_row(row, PART_V, j, kv_head, v);
        part_input_row(row, PART_K, j, kv_head, k);
        double p = exp(c->scores[j] - lse), ds = p * (dot(dout, v, dim) - delta);
        double ds_abs = p * (dot_abs(dout, v, dim) + delta_abs);
        for (int d = 0; d < dim; d++)
            add(&c->sums[1][d], c->scale * ds * k[d], c->scale * ds_abs * fabs(k[d]));
    }
    for (int d = 0; d < dim; d++)
        judge(c, &verdicts[PASS_BACKWARD], c->data->dq[at * dim + d], c->sums[1][d], lse);
}

/* Add one row's part to dk and dv of a key. */
static void add_row(const checker *c, int32_t token, int32_t head, const double *k, const double *v)
{
    const attention_row *row = c->row;
    int dim = row->head_dim;
    int64_t at = (int64_t)token * row->query_heads + head;
    const double *out = c->data->out + at * dim;
    double q[DIM_MAX], dout[DIM_MAX];
    part_input_row(row, PART_Q, token, head, q);
    part_input_row(row, PART_DOUT, token, head, dout);
    double p = exp(c->scale * dot(q, k, dim) - c->data->lse[at]);
    double ds = p * (dot(dout, v, dim) - dot(dout, out, dim));
    double ds_abs = p * (dot_abs(dout, v, dim) + dot_abs(dout, out, dim));
    for (int d = 0; d < dim; d++) {
        add(&c->sums[0][d], c->scale * ds * q[d], c->scale * ds_abs * fabs(q[d]));
        add(&c->sums[1][d], p * dout[d], p * fabs(dout[d]));
    }
}

/* One key's dk and dv. */
static void check_key(const checker *c, int32_t token, int32_t kv_head, attention_verdict *verdict)
{
    const attention_row *row = c->row;
    int dim = row->head_dim, group = row->query_heads / row->kv_heads;
    int64_t at = ((int64_t)token * row->kv_heads + kv_head) * dim;
    double k[DIM_MAX], v[DIM_MAX], largest = 0;
    part_input_row(row, PART_K, token, kv_head, k);
    part_input_row(row, PART_V, token, kv_head, v);
    clear(c);
    for (int32_t i = row->mask == TA_MASK_CAUSAL ? token : 0; i < row->tokens; i++)
        for (int32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            add_row(c, i, head, k, v);
            largest = fmax(largest, fabs(c->data->lse[(int64_t)i * row->query_heads + head]));
        }
    for (int d = 0; d < dim; d++) {
        judge(c, verdict, c->data->dk[at + d], c->sums[0][d], largest);
        judge(c, verdict, c->data->dv[at + d], c->sums[1][d], largest);
    }
}

int attention_check(const attention_row *row, const attention_data *data,
                    attention_verdict verdicts[PASSES])
{
    checker c = {.row = row, .data = data, .scale = 1 / sqrt(row->head_dim)};
    c.scores = calloc((size_t)row->tokens, sizeof(double));
    c.sums[0] = calloc(DIM_MAX, sizeof(sum));
    c.sums[1] = calloc(DIM_MAX, sizeof(sum));
    int made = c.scores && c.sums[0] && c.sums[1];
    verdicts[PASS_FORWARD] = verdicts[PASS_BACKWARD] = (attention_verdict){0, 0, 0};
    for (int32_t i = 0; made && i < SAMPLES; i++) { /* the first and the last among them */
        int32_t token = (int32_t)((int64_t)(row->tokens - 1) * i / (SAMPLES - 1));
        check_row(&c, token, i * 7 % row->query_heads, verdicts);
        check_key(&c, token, i * 5 % row->kv_heads, &verdicts[PASS_BACKWARD]);
    }
    free(c.scores);
    free(c.sums[0]);
    free(c.sums[1]);
    return made ? 0 : -1;
}
