/* See product_rate.h. All products read the same weights, inputs and outputs: values change no
 * times, and a prompt's weights come from memory too where they are larger than caches. */
#include "product_rate.h"

#include <stdlib.h>

#include "common/elements.h"
#include "common/machine.h"
#include "products.h"

#define MOST_BYTES ((int64_t)64 << 20)

struct product_rate {
    team *workers;
    int64_t rows;
    int shapes;
    struct {
        int64_t outputs, columns;
    } shape[LLAMA_LAYER_MATRICES];
    ta_dtype dtype; /* of weights and inputs, as the library multiplies them */
    void *weights, *from;
    float *to;
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void *take(ta_dtype dtype, int64_t count)
{
    void *elements = malloc((size_t)larger(count, 1) * element_bytes(dtype));
    if (elements)
        element_fill(dtype, elements, 0, count, 1, 0.125f);
    return elements;
}

product_rate *product_rate_create(const llama_part *part, int64_t rows, int threads)
{
    int64_t weights = 0, columns = 0, outputs = 0;
    product_rate *rate = calloc(1, sizeof *rate);
    if (!rate)
        return NULL;
    rate->rows = rows;
    rate->dtype = products_type(llama_layer_matrix(&part->layers[0], 0)->dtype, rows);
    for (int i = 0; i < LLAMA_LAYER_MATRICES; i++) {
        const llama_matrix *m = llama_layer_matrix(&part->layers[0], i);
        if (m->rows < 1 || m->columns < 1)
            continue; /* a rank may have no heads */
        int64_t most = larger(MOST_BYTES / (m->columns * (int64_t)sizeof(float)), 1);
        int64_t count = m->rows < most ? m->rows : most;
        rate->shape[rate->shapes].outputs = count;
        rate->shape[rate->shapes++].columns = m->columns;
        weights = larger(weights, count * m->columns);
        columns = larger(columns, m->columns);
        outputs = larger(outputs, count);
    }
    rate->weights = take(rate->dtype, weights);
    rate->from = take(rate->dtype, rows * columns);
    rate->to = take(TA_F32, rows * outputs);
    rate->workers = team_create(threads);
    if (rate->weights && rate->from && rate->to && rate->workers)
        return rate;
    product_rate_destroy(rate);
    return NULL;
}

void product_rate_destroy(product_rate *rate)
{
    if (!rate)
        return;
    team_destroy(rate->workers);
    free(rate->to);
    free(rate->from);
    free(rate->weights);
    free(rate);
}

ta_status product_rate_run(product_rate *rate, double *us, double *flops)
{
    ta_status status = TA_OK;
    double start = machine_time_us(), count = 0;
    for (int i = 0; status == TA_OK && i < rate->shapes; i++) {
        int64_t outputs = rate->shape[i].outputs, columns = rate->shape[i].columns;
        product_job job = {.w = {rate->weights, rate->dtype, outputs, columns, columns},
                           .rows = rate->rows,
                           .to = rate->to};
        if (rate->dtype == TA_F32)
            job.from = rate->from;
        else
            job.from_bf16 = rate->from;
        status = product_run(&job, rate->workers);
        count += 2.0 * (double)rate->rows * (double)outputs * (double)columns;
    }
    *us = machine_time_us() - start;
    *flops = count;
    return status;
}
