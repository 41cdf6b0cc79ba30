/* A rank's part of the weights, as views; see model_weights.h. */
#include <stdlib.h>

#include "common/elements.h"
#include "model_weights.h"
#include "tensor_list.h"

/* Rows and columns of a matrix. */
static llama_matrix view(const llama_matrix *m, const tensor_kind *kind, const llama_config *config,
                         int rank, int ranks)
{
    llama_matrix part = *m;
    int64_t row, column;
    tensor_range(kind->rows, config, rank, ranks, &row, &part.rows);
    tensor_range(kind->columns, config, rank, ranks, &column, &part.columns);
    size_t at = (size_t)(row * m->stride + column);
    part.data = (const char *)m->data + at * element_bytes(m->dtype);
    return part;
}

static void divide_layer(llama_layer *layer, const llama_config *config, int rank, int ranks)
{
    for (const tensor_kind *kind = layer_tensors; kind->name; kind++) {
        void *field = (char *)layer + kind->at;
        int64_t first, count;
        if (!tensor_exists(kind, config))
            continue;
        if (kind->columns != AXIS_NONE) {
            *(llama_matrix *)field = view(field, kind, config, rank, ranks);
            continue;
        }
        tensor_range(kind->rows, config, rank, ranks, &first, &count);
        *(const float **)field += first;
    }
}

int llama_part_make(const llama_weights *weights, int rank, int ranks, llama_part *part)
{
    const llama_part *all = llama_weights_all(weights);
    const tensor_kind words = {"", 0, AXIS_WORDS, AXIS_HIDDEN};
    int64_t first, count;
    llama_layer *layers = calloc((size_t)all->config.layers, sizeof *layers);
    if (!layers)
        return -1;
    *part = *all;
    part->layers = layers;
    part->head = view(&all->head, &words, &all->config, rank, ranks);
    tensor_range(AXIS_WORDS, &all->config, rank, ranks, &first, &count);
    part->first_word = (int32_t)first;
    for (int i = 0; i < all->config.layers; i++) {
        layers[i] = all->layers[i];
        divide_layer(&layers[i], &all->config, rank, ranks);
    }
    return 0;
}

void llama_part_free(llama_part *part)
{
    free(part->layers);
    part->layers = NULL;
}

const llama_matrix *llama_layer_matrix(const llama_layer *layer, int index)
{
    const llama_matrix *const all[LLAMA_LAYER_MATRICES] = {
        &layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};
    return all[index];
}

/* A matrix of whole rows is one piece. Readers read whole words: what is before the first one and
 * behind the last is left out, and with it a row that has none. */
static size_t matrix_pieces(const llama_matrix *m, read_piece *pieces)
{
    size_t row = (size_t)m->columns * element_bytes(m->dtype), count = 0;
    int whole = m->columns == m->stride;
    for (int64_t i = 0; i < (whole ? 1 : m->rows); i++) {
        size_t at = (size_t)(i * m->stride) * element_bytes(m->dtype);
        size_t bytes = whole ? row * (size_t)m->rows : row;
        const char *begin = (const char *)m->data + at;
        size_t before = (8 - (uintptr_t)begin % 8) % 8;
        if (bytes < before + 8)
            continue;
        if (pieces)
            pieces[count] = (read_piece){begin + before, (bytes - before) / 8 * 8};
        count++;
    }
    return count;
}

static double matrix_bytes(const llama_matrix *m)
{
    return (double)m->rows * (double)m->columns * (double)element_bytes(m->dtype);
}

static double layers_bytes(const llama_part *part)
{
    double bytes = 0;
    for (int i = 0; i < part->config.layers; i++)
        for (int j = 0; j < LLAMA_LAYER_MATRICES; j++)
            bytes += matrix_bytes(llama_layer_matrix(&part->layers[i], j));
    return bytes;
}

double llama_part_bytes(const llama_part *part)
{
    return layers_bytes(part) + matrix_bytes(&part->head);
}

double llama_part_memory(const llama_part *part)
{
    double head = part->config.tied ? 0 : matrix_bytes(&part->head);
    return layers_bytes(part) + head + matrix_bytes(&part->embedding);
}

size_t llama_part_pieces(const llama_part *part, read_piece *pieces)
{
    size_t count = matrix_pieces(&part->head, pieces);
    for (int i = 0; i < part->config.layers; i++)
        for (int j = 0; j < LLAMA_LAYER_MATRICES; j++)
            count += matrix_pieces(llama_layer_matrix(&part->layers[i], j),
                                   pieces ? pieces + count : NULL);
    return count;
}
