/* What the files of the decoder share: its state, and the steps through a layer. decoder.c makes it
 * and computes words, layer.c is a layer, prefill.c the prompt. */
#ifndef BENCH_LLAMA_DECODER_PARTS_H
#define BENCH_LLAMA_DECODER_PARTS_H

#include <treeattn/attention.h>

#include "decoder.h"
#include "device_part.h"
#include "ops.h"
#include "sharded_cache.h"

/* In functions that return a status: the first that is none ends them. */
#define DECODER_TRY(call)                                                                          \
    do {                                                                                           \
        ta_status status_ = (call);                                                                \
        if (status_ != TA_OK)                                                                      \
            return status_;                                                                        \
    } while (0)

/* Tokens of a prompt that one rank has, for attention on the grid. */
typedef struct grid_rows {
    ta_attention *plan;
    ta_dtype dtype;     /* that of the cache, or of a cache of 8 bits bf16 */
    int32_t tokens;     /* that there is room for */
    int32_t *positions; /* host memory */
    float *x;           /* [token][hidden] */
    void *q, *k, *v;    /* [token][heads][dim] */
    void *out;
} grid_rows;

/* The cache of an algorithm with expanded heads, in which every query head has its own K and V; all
 * zero without one. */
typedef struct expanded_heads {
    sharded_cache cache;
    ta_plan *chunks; /* to append by, as the decoder's */
    void *k, *v;     /* of options.chunk tokens */
} expanded_heads;

struct decoder {
    decoder_options options;
    const llama_part *part;
    const llama_config *config; /* of the whole model */
    ta_group *group;
    int rank, ranks;
    ta_device *device;
    int gpu;           /* its memory is not the host's */
    int own_group;     /* 1: `group` is the decoder's */
    int waits;         /* decoder_wait() */
    device_part there; /* the weights on a GPU, which `part` then is */
    llama_ops *ops;
    sharded_cache cache;
    ta_plan *steps[DECODER_ALGORITHMS]; /* of one token */
    ta_plan *chunks;                    /* of several, of the prompt; NULL with PREFILL_NONE */
    expanded_heads expanded;
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
    float *host_angles;      /* host memory for cosines, then sines */
    size_t activation_bytes;

    decoder_times times;
};

/* One product, on the clock. */
ta_status decoder_linear(decoder *d, const llama_matrix *w, const float *bias, const float *from,
                         int64_t rows, float *to);

/* The clock at the begin of something that is timed, and what has passed since: 0 on a device with
 * streams, unless the host waits. */
double decoder_clock(decoder *d);
double decoder_passed(decoder *d, double start);

/* Angles of positions, for layer_project(). */
ta_status layer_angles(decoder *d, const int32_t *positions, int64_t tokens);

/* d->q, d->k and d->v of at most options.chunk tokens, from x. */
ta_status layer_project(decoder *d, const llama_layer *layer, const float *x, int64_t tokens);

/* Append d->k and d->v, and attend with d->q to the whole cache: d->attended. The tokens are the
 * last of the cache's length. */
ta_status layer_attend(decoder *d, ta_plan *plan, int32_t layer, int64_t tokens);

/* x = x + what follows d->attended: output projection, then the MLP. */
ta_status layer_finish(decoder *d, const llama_layer *layer, float *x, int64_t tokens);

/* Both caches now have so many tokens. */
ta_status decoder_set_length(decoder *d, int32_t length);

/* Is there an algorithm with expanded heads, and is it that of this plan? */
int decoder_has_expanded(const decoder *d);
int decoder_is_expanded(const decoder *d, const ta_plan *plan);

/* Make its cache and plan, and append tokens to it: those of input, of `rows` rows. (expanded.c) */
ta_status expanded_create(decoder *d);
void expanded_destroy(decoder *d);
ta_status expanded_append(decoder *d, ta_plan *plan, int32_t layer, const ta_append_input *input,
                          int64_t rows, const ta_call *call);

/* A plan of decode steps of so many tokens, over the cache or over that of expanded heads. */
ta_status decoder_plan(decoder *d, ta_algorithm algorithm, int expanded, int32_t tokens,
                       ta_plan **plan);

/* All layers for at most options.chunk tokens of d->x, at the end of the cache. */
ta_status decoder_layers(decoder *d, ta_plan *plan, int64_t tokens);

/* The logits that follow one row, on all ranks: with replicated weights without a message. */
ta_status decoder_head(decoder *d, const float *x, float *logits);

/* The grid's part of the state. */
ta_status grid_create(decoder *d);
void grid_destroy(decoder *d);

#endif
