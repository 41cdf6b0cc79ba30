/* What the files of the decoder share: its state, and the steps through a layer. decoder.c makes it
 * and computes words, layer.c is a layer, prefill.c the prompt. */
#ifndef BENCH_LLAMA_DECODER_PARTS_H
#define BENCH_LLAMA_DECODER_PARTS_H

#include <treeattn/attention.h>

#include "decoder.h"
#include "ops.h"
#include "sharded_cache.h"

/* Tokens of a prompt that one rank has, for attention on the grid; in the type of the cache. */
typedef struct grid_rows {
    ta_attention *plan;
    int32_t tokens;     /* that there is room for */
    int32_t *positions; /* host memory */
    float *x;           /* [token][hidden] */
    void *q, *k, *v;    /* [token][heads][dim] */
    void *out;
} grid_rows;

struct decoder {
    decoder_options options;
    const llama_part *part;
    const llama_config *config; /* of the whole model */
    ta_group *group;
    int rank, ranks;
    ta_device *device;
    llama_ops *ops;
    sharded_cache cache;
    ta_plan *steps[DECODER_ALGORITHMS]; /* of one token */
    ta_plan *chunks;                    /* of several, of the prompt; NULL with PREFILL_NONE */
    ta_append_source append_source;
    grid_rows grid;
    int64_t query_width, key_width; /* elements of Q, of K and of V that this rank computes */
    int64_t inner_width;
    uint64_t calls; /* of the library: a tag for each */

    /* Activations of options.chunk tokens, device memory. */
    float *x, *normed, *added;
    float *q, *k, *v, *attended;
    float *gate, *up;
    float *logits;           /* [ranks][words of the rank that has most] */
    float *cosines, *sines;  /* [token][head_dim / 2] */
    int32_t *starts, *words; /* of a ragged call: 0 and the tokens; the words to look up */
    size_t activation_bytes;

    decoder_times times;
};

/* One product, on the clock. */
ta_status decoder_linear(decoder *d, const llama_matrix *w, const float *bias, const float *from,
                         int64_t rows, float *to);

/* Angles of positions, for layer_project(). */
void layer_angles(decoder *d, const int32_t *positions, int64_t tokens);

/* d->q, d->k and d->v of at most options.chunk tokens, from x. */
ta_status layer_project(decoder *d, const llama_layer *layer, const float *x, int64_t tokens);

/* Append d->k and d->v, and attend with d->q to the whole cache: d->attended. The tokens are the
 * last of the cache's length. */
ta_status layer_attend(decoder *d, ta_plan *plan, int32_t layer, int64_t tokens);

/* x = x + what follows d->attended: output projection, then the MLP. */
ta_status layer_finish(decoder *d, const llama_layer *layer, float *x, int64_t tokens);

/* All layers for at most options.chunk tokens of d->x, at the end of the cache. */
ta_status decoder_layers(decoder *d, ta_plan *plan, int64_t tokens);

/* The logits that follow one row, on all ranks: with replicated weights without a message. */
ta_status decoder_head(decoder *d, const float *x, float *logits);

/* The grid's part of the state. */
ta_status grid_create(decoder *d);
void grid_destroy(decoder *d);

#endif
