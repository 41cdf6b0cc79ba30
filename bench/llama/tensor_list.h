/* Which tensors a model has, by their published names, with their shapes and which of their axes is
 * divided over ranks. model_weights.c makes and loads by this list. */
#ifndef BENCH_LLAMA_TENSOR_LIST_H
#define BENCH_LLAMA_TENSOR_LIST_H

#include "model_weights.h"

/* What an axis of a tensor counts. Under a division of the weights all but AXIS_HIDDEN and AXIS_DIM
 * are divided. */
typedef enum tensor_axis {
    AXIS_NONE, /* of a vector */
    AXIS_HIDDEN,
    AXIS_DIM,
    AXIS_QUERIES, /* query heads times their dimension */
    AXIS_KEYS,    /* KV heads, likewise */
    AXIS_INNER,
    AXIS_WORDS
} tensor_axis;

typedef struct tensor_kind {
    const char *name; /* behind "model.layers.N." for those of a layer */
    size_t at; /* offset of its llama_matrix or float pointer, in llama_layer or llama_part */
    tensor_axis rows, columns;
} tensor_kind;

/* Those of a layer, and those of the model: names are NULL behind the last. What a config does not
 * have is left out by tensor_exists(). */
extern const tensor_kind layer_tensors[], model_tensors[];

int tensor_exists(const tensor_kind *kind, const llama_config *config);

/* The range of an axis that rank `rank` of `ranks` has. */
void tensor_range(tensor_axis axis, const llama_config *config, int rank, int ranks, int64_t *first,
                  int64_t *count);

#endif
