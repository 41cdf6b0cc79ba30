/* See llama_reference.h. */
#include "llama_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/elements.h"

static double *zeros(int64_t count)
{
    double *data = calloc((size_t)count, sizeof *data);
    if (!data)
        abort();
    return data;
}

static double weight(const llama_matrix *m, int64_t row, int64_t column)
{
    double value;
    element_read(m->dtype,
                 (const char *)m->data +
                     (size_t)(row * m->stride + column) * element_bytes(m->dtype),
                 1, &value);
    return value;
}

/* y = W x + bias */
static void multiply(const llama_matrix *w, const float *bias, const double *x, double *y)
{
    for (int64_t row = 0; row < w->rows; row++) {
        y[row] = bias ? bias[row] : 0;
        for (int64_t i = 0; i < w->columns; i++)
            y[row] += weight(w, row, i) * x[i];
    }
}

static void normalise(const double *x, const float *scale, double epsilon, int width, double *y)
{
    double mean = 0;
    for (int i = 0; i < width; i++)
        mean += x[i] * x[i] / width;
    for (int i = 0; i < width; i++)
        y[i] = x[i] / sqrt(mean + epsilon) * scale[i];
}

/* The angle by which pair i of a head is turned at a position. */
static double angle(const llama_config *c, int i, int position)
{
    double plain = 1 / pow(c->rope.theta, 2.0 * i / c->head_dim), pi = acos(-1);
    double wave = 2 * pi / plain;
    if (!c->rope.scaled || wave < c->rope.original_tokens / c->rope.high_factor)
        return position * plain;
    if (wave > c->rope.original_tokens / c->rope.low_factor)
        return position * plain / c->rope.factor;
    double smooth = (c->rope.original_tokens / wave - c->rope.low_factor) /
                    (c->rope.high_factor - c->rope.low_factor);
    return position * ((1 - smooth) * plain / c->rope.factor + smooth * plain);
}

static void turn(const llama_config *c, double *head, int position)
{
    int half = c->head_dim / 2;
    for (int i = 0; i < half; i++) {
        double a = head[i], b = head[i + half], by = angle(c, i, position);
        head[i] = a * cos(by) - b * sin(by);
        head[i + half] = b * cos(by) + a * sin(by);
    }
}

/* Norm and turn each head. */
static void finish_heads(const llama_config *c, double *heads, int count, const float *norm,
                         int position)
{
    for (int h = 0; h < count; h++) {
        double *head = heads + h * c->head_dim;
        if (norm)
            normalise(head, norm, c->norm_epsilon, c->head_dim, head);
        turn(c, head, position);
    }
}

/* One query over keys and values [0, tokens), of one KV head. */
static void attend(const llama_config *c, const double *q, const double *k, const double *v,
                   int tokens, double *out)
{
    int dim = c->head_dim, stride = c->kv_heads * dim;
    double most = -INFINITY, sum = 0, *scores = zeros(tokens);
    for (int t = 0; t < tokens; t++) {
        for (int i = 0; i < dim; i++)
            scores[t] += q[i] * k[t * stride + i] / sqrt(dim);
        most = fmax(most, scores[t]);
    }
    memset(out, 0, (size_t)dim * sizeof *out);
    for (int t = 0; t < tokens; t++) {
        double each = exp(scores[t] - most);
        sum += each;
        for (int i = 0; i < dim; i++)
            out[i] += each * v[t * stride + i];
    }
    for (int i = 0; i < dim; i++)
        out[i] /= sum;
    free(scores);
}

/* x of one token through a layer; its K and V go behind those of the tokens before it. */
static void layer_token(const llama_config *c, const llama_layer *layer, double *x, double *keys,
                        double *values, int position)
{
    int dim = c->head_dim, width = c->heads * dim, key_width = c->kv_heads * dim;
    double *h = zeros(c->hidden), *q = zeros(width), *out = zeros(width), *y = zeros(c->hidden);
    double *gate = zeros(c->inner), *up = zeros(c->inner);
    double *k = keys + position * key_width, *v = values + position * key_width;
    normalise(x, layer->attention_norm, c->norm_epsilon, c->hidden, h);
    multiply(&layer->q, layer->q_bias, h, q);
    multiply(&layer->k, layer->k_bias, h, k);
    multiply(&layer->v, layer->v_bias, h, v);
    finish_heads(c, q, c->heads, layer->q_norm, position);
    finish_heads(c, k, c->kv_heads, layer->k_norm, position);
    for (int head = 0; head < c->heads; head++) {
        int at = head / (c->heads / c->kv_heads) * dim;
        attend(c, q + head * dim, keys + at, values + at, position + 1, out + head * dim);
    }
    multiply(&layer->o, NULL, out, y);
    for (int i = 0; i < c->hidden; i++)
        x[i] += y[i];
    normalise(x, layer->mlp_norm, c->norm_epsilon, c->hidden, h);
    multiply(&layer->gate, NULL, h, gate);
    multiply(&layer->up, NULL, h, up);
    for (int i = 0; i < c->inner; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    multiply(&layer->down, NULL, gate, y);
    for (int i = 0; i < c->hidden; i++)
        x[i] += y[i];
    double *const all[] = {h, q, out, y, gate, up};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

void reference_logits(const llama_part *model, const int32_t *words, int count, double *logits)
{
    const llama_config *c = &model->config;
    int64_t each = (int64_t)count * c->kv_heads * c->head_dim;
    double *k = zeros(each * c->layers), *v = zeros(each * c->layers), *x = zeros(c->hidden);
    for (int token = 0; token < count; token++) {
        for (int i = 0; i < c->hidden; i++)
            x[i] = weight(&model->embedding, words[token], i);
        for (int layer = 0; layer < c->layers; layer++)
            layer_token(c, &model->layers[layer], x, k + layer * each, v + layer * each, token);
        normalise(x, model->norm, c->norm_epsilon, c->hidden, x);
        multiply(&model->head, NULL, x, logits + (int64_t)token * c->vocabulary);
    }
    free(k);
    free(v);
    free(x);
}
