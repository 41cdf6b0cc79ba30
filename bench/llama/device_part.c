/* See device_part.h. */
#include "device_part.h"

#include <stdlib.h>
#include <string.h>

#include "common/elements.h"

/* Device memory that is remembered, with a copy of so many bytes. */
static ta_status copy_bytes(device_part *d, const void *from, size_t bytes, const void **to)
{
    void *memory;
    ta_status status = ta_device_alloc(d->device, bytes, &memory);
    if (status != TA_OK)
        return status;
    d->memory[d->count++] = memory;
    d->bytes += bytes;
    *to = memory;
    return ta_device_copy(d->device, memory, from, bytes, NULL);
}

/* Columns of a matrix are brought together on the host first: one copy for each row would take
 * longer. */
static ta_status copy_columns(device_part *d, llama_matrix *m, size_t row)
{
    size_t each = element_bytes(m->dtype);
    char *dense = malloc(row * (size_t)m->rows);
    if (!dense)
        return TA_ERR_NO_MEMORY;
    for (int64_t i = 0; i < m->rows; i++)
        memcpy(dense + (size_t)i * row, (const char *)m->data + (size_t)(i * m->stride) * each,
               row);
    ta_status status = copy_bytes(d, dense, row * (size_t)m->rows, &m->data);
    m->stride = m->columns;
    free(dense);
    return status;
}

static ta_status copy_matrix(device_part *d, llama_matrix *m)
{
    size_t row = (size_t)m->columns * element_bytes(m->dtype);
    if (m->rows == 0 || m->columns == 0)
        return TA_OK;
    if (m->stride != m->columns)
        return copy_columns(d, m, row);
    return copy_bytes(d, m->data, row * (size_t)m->rows, &m->data);
}

static ta_status copy_vector(device_part *d, const float **vector, int64_t count)
{
    if (!*vector || count == 0)
        return TA_OK;
    const void *to = NULL;
    ta_status status = copy_bytes(d, *vector, (size_t)count * sizeof **vector, &to);
    *vector = to;
    return status;
}

static ta_status copy_layer(device_part *d, llama_layer *layer)
{
    const llama_config *c = &d->part.config;
    llama_matrix *const matrices[] = {&layer->q,    &layer->k,  &layer->v,   &layer->o,
                                      &layer->gate, &layer->up, &layer->down};
    const struct {
        const float **vector;
        int64_t count;
    } vectors[] = {
        {&layer->attention_norm, c->hidden}, {&layer->mlp_norm, c->hidden},
        {&layer->q_norm, c->head_dim},       {&layer->k_norm, c->head_dim},
        {&layer->q_bias, layer->q.rows},     {&layer->k_bias, layer->k.rows},
        {&layer->v_bias, layer->v.rows},
    };
    ta_status status = TA_OK;
    for (size_t i = 0; status == TA_OK && i < sizeof matrices / sizeof *matrices; i++)
        status = copy_matrix(d, matrices[i]);
    for (size_t i = 0; status == TA_OK && i < sizeof vectors / sizeof *vectors; i++)
        status = copy_vector(d, vectors[i].vector, vectors[i].count);
    return status;
}

/* A head that is rows of the embedding is so there too. */
static ta_status copy_head(device_part *d, const llama_part *from)
{
    llama_part *part = &d->part;
    ta_status status = copy_matrix(d, &part->embedding);
    if (status != TA_OK)
        return status;
    if (!part->config.tied)
        return copy_matrix(d, &part->head);
    size_t at = (size_t)((const char *)from->head.data - (const char *)from->embedding.data);
    part->head.data = (const char *)part->embedding.data + at;
    return TA_OK;
}

ta_status device_part_make(ta_device *device, const llama_part *from, device_part *made)
{
    enum { EACH = 14, OTHERS = 3 }; /* tensors of a layer, and of the model */
    size_t layers = (size_t)from->config.layers;
    *made = (device_part){.part = *from, .device = device};
    made->part.layers = calloc(layers, sizeof *made->part.layers);
    made->memory = calloc(layers * EACH + OTHERS, sizeof *made->memory);
    ta_status status = made->part.layers && made->memory ? TA_OK : TA_ERR_NO_MEMORY;
    if (status == TA_OK)
        status = copy_head(made, from);
    if (status == TA_OK)
        status = copy_vector(made, &made->part.norm, from->config.hidden);
    for (size_t i = 0; status == TA_OK && i < layers; i++) {
        made->part.layers[i] = from->layers[i];
        status = copy_layer(made, &made->part.layers[i]);
    }
    if (status != TA_OK)
        device_part_free(made);
    return status;
}

void device_part_free(device_part *made)
{
    for (size_t i = 0; i < made->count; i++)
        ta_device_free(made->device, made->memory[i]);
    free(made->memory);
    free(made->part.layers);
    *made = (device_part){0};
}
