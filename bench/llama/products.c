/* See products.h: which loops, which BLAS, and who does what. blas_library.c opens a BLAS. */
#include "products.h"

#include <stdlib.h>
#include <string.h>

#include "blas_library.h"
#include "common/elements.h"
#include "common/machine.h"

typedef void (*level_fn)(const product_job *job, int64_t first, int64_t last);

static const struct {
    const char *name;
    level_fn fn;
} levels[] = {
    {"plain", product_plain},
#if defined(LLAMA_X86)
    {"avx2", product_avx2},
    {"avx512", product_avx512},
#endif
};
enum { LEVELS = sizeof levels / sizeof *levels };
static int level = -1;

static int has_level(int index)
{
#if defined(LLAMA_X86)
    if (index == 1)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (index == 2)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
#endif
    return index == 0;
}

int products_level(const char *name)
{
    for (int i = LEVELS - 1; i >= 0; i--) {
        if ((!name || strcmp(name, levels[i].name) == 0) && has_level(i)) {
            level = i;
            return 0;
        }
    }
    return -1;
}

const char *products_one_name(void)
{
    if (level < 0)
        products_level(NULL);
    return levels[level].name;
}

/* ---- BLAS ---------------------------------------------------------------------------------- */

/* Fewer rows than this do not pay for turning the weights into floats first. */
#define BLAS_ROWS 16
/* Weights that are floats at a time, for each thread. */
#define PANEL_BYTES ((int64_t)1 << 20)

static blas_library blas;

/* Is the library faster than the own loops? One that is nobody's work of speed is not. */
static int is_worth_it(const blas_library *library)
{
    enum { ROWS = 64, SIZE = 384, TRIALS = 3 };
    float *all = calloc((size_t)(2 * ROWS + SIZE) * SIZE, sizeof *all);
    if (!all)
        return 0;
    float *weights = all + 2 * ROWS * SIZE, *to = all + ROWS * SIZE;
    product_job job = {{weights, TA_F32, SIZE, SIZE, SIZE}, NULL, all, ROWS, to, NULL};
    double least[2] = {1e30, 1e30};
    element_fill(TA_F32, all, 0, (int64_t)(2 * ROWS + SIZE) * SIZE, 1, 1.0f);
    products_one_name(); /* a level is chosen */
    for (int i = 0; i < 2 * TRIALS; i++) {
        double start = machine_time_us();
        if (i % 2)
            levels[level].fn(&job, 0, SIZE);
        else
            blas_multiply(library, ROWS, SIZE, SIZE, all, weights, SIZE, to, SIZE);
        double us = machine_time_us() - start;
        least[i % 2] = us < least[i % 2] ? us : least[i % 2];
    }
    free(all);
    return least[0] < least[1];
}

int products_use(const char *library, char *error, size_t capacity)
{
    blas = (blas_library){0};
    if (library && strcmp(library, "own") == 0)
        return 0;
    if (library)
        return blas_open(library, &blas, error, capacity);
    if (blas_open_known(&blas) == 0)
        return 0;
    blas_library any;
    if (blas_open("libblas.so.3", &any, error, capacity) == 0 && is_worth_it(&any))
        blas = any;
    return 0;
}

const char *products_many_name(void)
{
    return blas.call ? blas.name : products_one_name();
}

ta_dtype products_type(ta_dtype weights, int64_t rows)
{
    return weights == TA_BF16 && rows >= BLAS_ROWS && blas.bf16 ? TA_BF16 : TA_F32;
}

/* Weights as floats, to where BLAS reads them: a product with the unit matrix would do it too. */
static void widen(const llama_matrix *w, int64_t first, int64_t rows, float *to)
{
    int64_t each = (int64_t)element_bytes(w->dtype);
    for (int64_t row = 0; row < rows; row++) {
        const char *from = (const char *)w->data + (first + row) * w->stride * each;
        if (w->dtype == TA_BF16) {
            for (int64_t i = 0; i < w->columns; i++) {
                uint16_t half;
                memcpy(&half, from + 2 * i, sizeof half);
                uint32_t bits = (uint32_t)half << 16;
                memcpy(&to[row * w->columns + i], &bits, sizeof bits);
            }
        } else {
            memcpy(&to[row * w->columns], from, (size_t)(w->columns * each));
        }
    }
}

/* Can the library read these weights, not floats made of them? A file may have them anywhere. */
static int is_as_it_is(const llama_matrix *w)
{
    return products_type(w->dtype, BLAS_ROWS) == w->dtype &&
           (uintptr_t)w->data % element_bytes(w->dtype) == 0;
}

typedef struct blas_job {
    const product_job *job;
    int64_t panel;
    uint16_t *from_bf16; /* inputs, made of job->from */
    _Atomic int no_memory;
} blas_job;

/* To the nearest, ties to even; what is no number stays so. */
static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rows [first, last) of the inputs. */
static void narrow_inputs(void *context, int64_t first, int64_t last)
{
    const blas_job *b = context;
    int64_t columns = b->job->w.columns;
    for (int64_t i = first * columns; i < last * columns; i++)
        b->from_bf16[i] = to_bf16(b->job->from[i]);
}

static void add_bias(const product_job *job, int64_t first, int64_t last)
{
    for (int64_t row = 0; job->bias && row < job->rows; row++)
        for (int64_t i = first; i < last; i++)
            job->to[row * job->w.rows + i] += job->bias[i];
}

/* With weights as they are: floats, or bf16 where the library multiplies them. */
static void outputs_as_they_are(blas_job *b, int64_t first, int64_t last)
{
    const product_job *job = b->job;
    const llama_matrix *w = &job->w;
    const uint16_t *from = b->from_bf16 ? b->from_bf16 : job->from_bf16;
    int wrong = w->dtype == TA_F32
                    ? blas_multiply(&blas, job->rows, last - first, w->columns, job->from,
                                    (const float *)w->data + first * w->stride, w->stride,
                                    job->to + first, w->rows)
                    : blas_multiply_bf16(&blas, job->rows, last - first, w->columns, from,
                                         (const uint16_t *)w->data + first * w->stride, w->stride,
                                         job->to + first, w->rows);
    if (wrong)
        b->no_memory = 1;
    add_bias(job, first, last);
}

/* With weights as floats, so many rows of them at a time. */
static void blas_outputs(void *context, int64_t first, int64_t last)
{
    blas_job *b = context;
    const product_job *job = b->job;
    const llama_matrix *w = &job->w;
    if (is_as_it_is(w)) {
        outputs_as_they_are(b, first, last);
        return;
    }
    float *panel = malloc((size_t)(b->panel * w->columns) * sizeof *panel);
    if (!panel) {
        b->no_memory = 1;
        return;
    }
    for (int64_t at = first; at < last; at += b->panel) {
        int64_t count = last - at < b->panel ? last - at : b->panel;
        widen(w, at, count, panel);
        if (blas_multiply(&blas, job->rows, count, w->columns, job->from, panel, w->columns,
                          job->to + at, w->rows) != 0)
            b->no_memory = 1;
        add_bias(job, at, at + count);
    }
    free(panel);
}

static void own_outputs(void *context, int64_t first, int64_t last)
{
    levels[level].fn(context, first, last);
}

static ta_status run_blas(const product_job *job, team *workers)
{
    const llama_matrix *w = &job->w;
    int64_t threads = team_threads(workers),
            panel = PANEL_BYTES / (w->columns * (int64_t)sizeof(float));
    blas_job b = {job, panel < 16 ? 16 : panel, NULL, 0};
    if (w->dtype == TA_BF16 && is_as_it_is(w) && !job->from_bf16) {
        b.from_bf16 = malloc((size_t)(job->rows * w->columns) * sizeof *b.from_bf16);
        if (!b.from_bf16)
            return TA_ERR_NO_MEMORY;
        team_run(workers, job->rows, (job->rows + threads - 1) / threads, narrow_inputs, &b);
    }
    team_run(workers, w->rows, (w->rows + threads - 1) / threads, blas_outputs, &b);
    free(b.from_bf16);
    return b.no_memory ? TA_ERR_NO_MEMORY : TA_OK;
}

ta_status product_run(const product_job *job, team *workers)
{
    int64_t outputs = job->w.rows, threads = team_threads(workers);
    products_one_name(); /* a level is chosen */
    if (job->w.dtype != TA_F32 && job->w.dtype != TA_F16 && job->w.dtype != TA_BF16)
        return TA_ERR_UNSUPPORTED;
    if (job->rows < 1 || outputs < 1)
        return TA_OK;
    /* f16 is widened by the own loops alone. */
    if (blas.call && job->rows >= BLAS_ROWS && job->w.dtype != TA_F16 && job->w.columns)
        return run_blas(job, workers);
    /* Several portions for each thread, so that one that is held up does not hold up the others. */
    int64_t portion = (outputs / (8 * threads) + 3) / 4 * 4;
    team_run(workers, outputs, portion < 16 ? 16 : portion, own_outputs, (void *)job);
    return TA_OK;
}
