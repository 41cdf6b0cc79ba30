/* A decoder of the Llama family on the ranks of a group. The KV cache is sharded by tokens,
 * always; the weights are replicated, so that every rank computes every token of a step, or
 * divided by heads, columns of the MLP and words (tensor), so that together the ranks read them
 * once. All calls are collective. timing.c times it, docs/llama.md describes it. */
#ifndef BENCH_LLAMA_DECODER_H
#define BENCH_LLAMA_DECODER_H

#include <treeattn/treeattn.h>

#include "model_weights.h"

#define DECODER_ALGORITHMS 4

/* How a prompt is computed. */
typedef enum decoder_prefill_kind {
    /* Each rank its own tokens through all layers, attention on a grid of ranks. Not with divided
     * weights. */
    PREFILL_GRID,
    /* Chunks of tokens one after the other, each with all ranks, by ragged decode steps. */
    PREFILL_CHUNKS,
    /* None: random numbers in the cache, for steps alone. */
    PREFILL_NONE
} decoder_prefill_kind;

typedef struct decoder_options {
    const llama_weights *weights;
    int tensor; /* 1: weights are divided */
    decoder_prefill_kind prefill;
    ta_dtype cache_dtype;
    int32_t tokens;             /* the most that the sequence will have */
    int32_t block, page_tokens; /* of the shard map, and of a page */
    int32_t chunk;              /* tokens that are computed at a time, 1 to 1024 */
    int32_t reproducible_tile;  /* 0: off */
    int algorithms;             /* of decode steps; chunks are computed by the first */
    ta_algorithm algorithm[DECODER_ALGORITHMS];
    int expanded[DECODER_ALGORITHMS]; /* 1: over KV heads that were repeated for each query head,
                                       * as published code does it; not with divided weights */
    const char *device;
    const char *products; /* on a GPU, as in --matmul */
    int gpu_each;         /* 1: each rank has one; 0: all open `device` as it is */
    int ccl;              /* 1: which are connected by NCCL or RCCL */
    int threads;          /* of each rank */
} decoder_options;

typedef struct decoder decoder;

/* `part`: whose weights this rank computes with; it outlives the decoder, as the group does. */
ta_status decoder_create(ta_group *group, const decoder_options *options, const llama_part *part,
                         decoder **made);
void decoder_destroy(decoder *d);

/* Compute a prompt of `count` words, the first of the sequence. logits[vocabulary] are those that
 * follow the last word, the same on all ranks. With PREFILL_NONE the cache then has `count` tokens,
 * and the logits are zeros. */
ta_status decoder_prefill(decoder *d, const int32_t *words, int32_t count, float *logits);

/* Compute one word at `position`, where all before it are in the cache; by algorithm
 * options.algorithm[algorithm]. Doing a position again is allowed. */
ta_status decoder_step(decoder *d, int algorithm, int32_t word, int32_t position, float *logits);

/* The likeliest word after the last call, chosen on the device; the same on all ranks. Only with
 * replicated weights. */
ta_status decoder_best(decoder *d, int32_t *word);

/* On a device with streams the host does not know where time goes, unless it waits for every
 * operation: 1 from now on, 0 no more. Nothing on a host. */
void decoder_wait(decoder *d, int wait);

/* Where the time went since the decoder was made, on this rank; on a device with streams only
 * while decoder_wait() was on. */
typedef struct decoder_times {
    double linear_us;   /* products with weights */
    double attend_us;   /* attending to this rank's part of the cache */
    double exchange_us; /* moving, merging, adding up over ranks, and waiting for them */
    double all_us;      /* of all calls */
} decoder_times;
decoder_times decoder_get_times(const decoder *d);

/* Memory of this rank, in bytes: K and V, and activations with workspaces. */
void decoder_memory(const decoder *d, double *cache, double *other);

/* The group that the decoder's messages go through. */
ta_group *decoder_group(const decoder *d);

/* What computes products with weights, of one row and of many. */
const char *decoder_products(const decoder *d, int many);

/* Is its memory not the host's? */
int decoder_on_gpu(const decoder *d);

/* What a step reads of the cache now, as cache_pieces(). */
size_t decoder_cache_pieces(const decoder *d, read_piece *pieces);
double decoder_cache_used(const decoder *d);

#endif
