/* See model_weights.h. */
#include "model_weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/elements.h"
#include "common/pages.h"
#include "common/parallel.h"
#include "safetensors.h"
#include "tensor_list.h"

struct llama_weights {
    llama_part all;
    float *vectors; /* norms and biases, as floats whatever the file has */
    size_t vectors_used;
    safetensors *files; /* or: */
    char *mapping;
    size_t mapped_bytes;
};

/* ---- All tensors in turn ------------------------------------------------------------------- */

typedef struct tensor_entry {
    const tensor_kind *kind;
    char name[96];
    uint64_t number; /* of the tensor, the same for every run */
    int64_t rows, columns;
    void *field;      /* a llama_matrix, or a pointer to floats */
    int is_embedding; /* which every rank has whole */
} tensor_entry;

typedef int (*tensor_fn)(void *context, const tensor_entry *tensor);

static int is_vector(const tensor_entry *tensor)
{
    return tensor->kind->columns == AXIS_NONE;
}

/* Layer -1 is the model. */
static int for_tensors(llama_weights *w, const tensor_kind *kinds, int layer, tensor_fn fn,
                       void *context)
{
    const llama_config *config = &w->all.config;
    int64_t first;
    for (const tensor_kind *kind = kinds; kind->name; kind++) {
        tensor_entry t = {.kind = kind};
        t.number = (uint64_t)(layer + 1) * 64 + (uint64_t)(kind - kinds);
        if (!tensor_exists(kind, config))
            continue;
        if (layer < 0)
            snprintf(t.name, sizeof t.name, "%s", kind->name);
        else
            snprintf(t.name, sizeof t.name, "model.layers.%d.%s", layer, kind->name);
        tensor_range(kind->rows, config, 0, 1, &first, &t.rows);
        tensor_range(kind->columns, config, 0, 1, &first, &t.columns);
        t.field = layer < 0 ? (char *)&w->all + kind->at : (char *)&w->all.layers[layer] + kind->at;
        t.is_embedding = t.field == &w->all.embedding;
        if (fn(context, &t) != 0)
            return -1;
    }
    return 0;
}

static int for_all_tensors(llama_weights *w, tensor_fn fn, void *context)
{
    int status = for_tensors(w, model_tensors, -1, fn, context);
    for (int layer = 0; status == 0 && layer < w->all.config.layers; layer++)
        status = for_tensors(w, layer_tensors, layer, fn, context);
    return status;
}

static int count_vectors(void *context, const tensor_entry *tensor)
{
    *(size_t *)context += is_vector(tensor) ? (size_t)tensor->rows : 0;
    return 0;
}

static float *take_vector(llama_weights *w, const tensor_entry *tensor)
{
    float *vector = w->vectors + w->vectors_used;
    w->vectors_used += (size_t)tensor->rows;
    *(const float **)tensor->field = vector;
    return vector;
}

static llama_weights *make(const llama_config *config, char *error, size_t capacity)
{
    size_t floats = 0;
    element_init();
    llama_weights *w = calloc(1, sizeof *w);
    if (w) {
        w->all.config = *config;
        w->all.layers = calloc((size_t)config->layers, sizeof *w->all.layers);
    }
    if (w && w->all.layers) {
        for_all_tensors(w, count_vectors, &floats);
        w->vectors = calloc(floats, sizeof *w->vectors);
    }
    if (w && w->vectors)
        return w;
    snprintf(error, capacity, "not enough memory for the list of weights");
    llama_weights_free(w);
    return NULL;
}

/* ---- From files ---------------------------------------------------------------------------- */

typedef struct load_job {
    llama_weights *w;
    char *error;
    size_t capacity;
} load_job;

/* Returns -1 without memory. */
static int read_vector(const safetensor *found, float *vector)
{
    size_t count = (size_t)found->shape[0], bytes = count * element_bytes(found->dtype);
    double *values = malloc(count * sizeof *values);
    void *aligned = malloc(bytes + 1);
    if (values && aligned) {
        memcpy(aligned, found->data, bytes);
        element_read(found->dtype, aligned, found->shape[0], values);
        for (size_t i = 0; i < count; i++)
            vector[i] = (float)values[i];
    }
    int status = values && aligned ? 0 : -1;
    free(aligned);
    free(values);
    return status;
}

static int load_tensor(void *context, const tensor_entry *t)
{
    load_job *job = context;
    const safetensor *found = safetensors_find(job->w->files, t->name);
    int axes = is_vector(t) ? 1 : 2;
    if (!found) {
        snprintf(job->error, job->capacity, "the model has no tensor '%s', which its config needs",
                 t->name);
        return -1;
    }
    if (found->axes != axes || found->shape[0] != t->rows ||
        (axes == 2 && found->shape[1] != t->columns)) {
        snprintf(job->error, job->capacity,
                 "tensor '%s' has %d axes, of %lld and %lld, but the config needs %d, of %lld and "
                 "%lld",
                 t->name, found->axes, (long long)found->shape[0], (long long)found->shape[1], axes,
                 (long long)t->rows, axes == 2 ? (long long)t->columns : 0);
        return -1;
    }
    if (found->dtype == TA_DTYPE_NONE) {
        snprintf(job->error, job->capacity, "tensor '%s' is %s, but must be BF16, F16 or F32",
                 t->name, found->type);
        return -1;
    }
    if (!is_vector(t)) {
        *(llama_matrix *)t->field =
            (llama_matrix){found->data, found->dtype, t->rows, t->columns, t->columns};
        return 0;
    }
    if (read_vector(found, take_vector(job->w, t)) == 0)
        return 0;
    snprintf(job->error, job->capacity, "not enough memory for '%s'", t->name);
    return -1;
}

static void tie_head(llama_weights *w)
{
    if (w->all.config.tied)
        w->all.head = w->all.embedding;
}

llama_weights *llama_weights_load(const llama_config *config, const char *path, char *error,
                                  size_t capacity)
{
    llama_weights *w = make(config, error, capacity);
    load_job job = {w, error, capacity};
    if (!w)
        return NULL;
    w->files = safetensors_open(path, error, capacity);
    if (!w->files || for_all_tensors(w, load_tensor, &job) != 0) {
        llama_weights_free(w);
        return NULL;
    }
    tie_head(w);
    return w;
}

/* ---- Random -------------------------------------------------------------------------------- */

typedef struct random_job {
    llama_weights *w;
    ta_dtype dtype;
    uint64_t seed;
    int rank, ranks;
    size_t used; /* bytes of the mapping */
    int thread, threads;
} random_job;

static int place_matrix(void *context, const tensor_entry *t)
{
    random_job *job = context;
    if (is_vector(t))
        return 0;
    *(llama_matrix *)t->field = (llama_matrix){job->w->mapping ? job->w->mapping + job->used : NULL,
                                               job->dtype, t->rows, t->columns, t->columns};
    size_t bytes = (size_t)t->rows * (size_t)t->columns * element_bytes(job->dtype);
    job->used += (bytes + 63) / 64 * 64;
    return 0;
}

/* Tensors take their numbers from places of the generator that are far apart. */
static uint64_t tensor_seed(const random_job *job, const tensor_entry *t)
{
    return (job->seed + 1) * 0x9e3779b97f4a7c15u + (t->number << 40);
}

static int fill_vector(void *context, const tensor_entry *t)
{
    random_job *job = context;
    if (!is_vector(t))
        return 0;
    float *vector = take_vector(job->w, t), middle = strstr(t->name, ".bias") ? 0.0f : 1.0f;
    element_fill(TA_F32, vector, 0, t->rows, tensor_seed(job, t), 1.0f);
    for (int64_t i = 0; i < t->rows; i++)
        vector[i] = middle + 0.25f * vector[i];
    return 0;
}

/* This thread's rows of what the rank has of it. */
static int fill_matrix(void *context, const tensor_entry *t)
{
    const random_job *job = context;
    int64_t first_row = 0, rows = t->rows, first, columns;
    if (is_vector(t))
        return 0;
    if (!t->is_embedding) /* which every rank looks words up in */
        tensor_range(t->kind->rows, &job->w->all.config, job->rank, job->ranks, &first_row, &rows);
    tensor_range(t->kind->columns, &job->w->all.config, job->rank, job->ranks, &first, &columns);
    float range = exp2f(roundf(0.5f * log2f(3.0f / (float)t->columns)));
    const llama_matrix *m = t->field;
    for (int64_t row = first_row + job->thread; row < first_row + rows; row += job->threads) {
        int64_t at = row * t->columns + first;
        char *data = (char *)m->data + (size_t)at * element_bytes(job->dtype);
        element_fill(job->dtype, data, at, columns, tensor_seed(job, t), range);
    }
    return 0;
}

static void fill_on_thread(int thread, int threads, void *context)
{
    random_job job = *(const random_job *)context;
    job.thread = thread;
    job.threads = threads;
    for_all_tensors(job.w, fill_matrix, &job);
}

llama_weights *llama_weights_random(const llama_config *config, ta_dtype dtype, uint64_t seed,
                                    int rank, int ranks, int threads, int pages, char *error,
                                    size_t capacity)
{
    llama_weights *w = make(config, error, capacity);
    random_job job = {w, dtype, seed, rank, ranks, 0, 0, 1};
    if (!w)
        return NULL;
    for_all_tensors(w, place_matrix, &job);
    w->mapped_bytes = (job.used + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    w->mapping = pages_map(w->mapped_bytes, pages, 0);
    job.used = 0;
    if (!w->mapping || for_all_tensors(w, place_matrix, &job) != 0 ||
        for_all_tensors(w, fill_vector, &job) != 0 ||
        parallel_run(threads, fill_on_thread, &job) != 0) {
        snprintf(error, capacity, "%.1f GiB of memory, or %d threads, could not be had for weights",
                 (double)w->mapped_bytes * 0x1p-30, threads);
        llama_weights_free(w);
        return NULL;
    }
    tie_head(w);
    return w;
}

void llama_weights_free(llama_weights *w)
{
    if (!w)
        return;
    safetensors_close(w->files);
    pages_unmap(w->mapping, w->mapped_bytes);
    free(w->vectors);
    free(w->all.layers);
    free(w);
}

const llama_part *llama_weights_all(const llama_weights *weights)
{
    return &weights->all;
}
