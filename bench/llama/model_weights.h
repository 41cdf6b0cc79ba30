/* The weights of a model: matrices in the type that they are stored in, from safetensors files or
 * random numbers of a seed, and the part of them that one rank computes with. Every matrix is
 * [outputs][inputs], as files have it. Decoders compute with a part. */
#ifndef BENCH_LLAMA_WEIGHTS_H
#define BENCH_LLAMA_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

#include "common/read_loops.h"
#include "config.h"

/* Rows of weights, or some columns of them. */
typedef struct llama_matrix {
    const void *data; /* aligned to nothing in particular */
    ta_dtype dtype;
    int64_t rows, columns;
    int64_t stride; /* elements from row to row */
} llama_matrix;

typedef struct llama_layer {
    llama_matrix q, k, v, o, gate, up, down;
    const float *attention_norm, *mlp_norm;
    const float *q_norm, *k_norm;          /* [head_dim], or NULL */
    const float *q_bias, *k_bias, *v_bias; /* or NULL */
} llama_layer;

/* All weights, or a rank's part of them: views into the same memory. */
typedef struct llama_part {
    llama_config config; /* of the whole model */
    llama_matrix embedding, head;
    int32_t first_word; /* which word is row 0 of the head */
    const float *norm;
    llama_layer *layers;
} llama_part;

typedef struct llama_weights llama_weights;

/* From the files of a folder, which must have exactly the shapes of the config. NULL with a
 * sentence in `error`. */
llama_weights *llama_weights_load(const llama_config *config, const char *path, char *error,
                                  size_t capacity);

/* Random ones, uniform with a variance of 1 / inputs, so that activations keep their size. The same
 * seed gives the same weights, whoever fills how much of them: only what rank `rank` of `ranks`
 * computes with is filled, by so many threads; 0 of 1: all. `pages` as in pages_map(). */
llama_weights *llama_weights_random(const llama_config *config, ta_dtype dtype, uint64_t seed,
                                    int rank, int ranks, int threads, int pages, char *error,
                                    size_t capacity);
void llama_weights_free(llama_weights *weights);

/* All of them. */
const llama_part *llama_weights_all(const llama_weights *weights);

/* The part of rank `rank` of `ranks` when heads, columns of the MLP and words are divided: its
 * ta_head_range() of each. 0 of 1: all. Returns -1 without memory. */
int llama_part_make(const llama_weights *weights, int rank, int ranks, llama_part *part);
void llama_part_free(llama_part *part);

enum { LLAMA_LAYER_MATRICES = 7 };
const llama_matrix *llama_layer_matrix(const llama_layer *layer, int index);

/* Bytes of the matrices that a decode step reads; and of all that the rank holds: the embedding
 * too, whole, of which a step reads one row, and which may be the head. */
double llama_part_bytes(const llama_part *part);
double llama_part_memory(const llama_part *part);

/* They as pieces to read: returns how many, or writes them too. */
size_t llama_part_pieces(const llama_part *part, read_piece *pieces);

#endif
