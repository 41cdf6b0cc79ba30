/* See products.h: which loops, which BLAS, and who does what. */
#include "products.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/elements.h"

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

/* cblas_sgemm() with its enumerations as the numbers that they are. */
typedef void (*sgemm_fn)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                         float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                         float *c, int ldc);
enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };

/* Fewer rows than this do not pay for turning the weights into floats first. */
#define BLAS_ROWS 16
/* Weights that are floats at a time, for each thread. */
#define PANEL_BYTES ((int64_t)1 << 20)

static struct {
    const char *name;
    sgemm_fn sgemm;
} blas;

/* Those whose products are worth it, and how to tell each that its caller has the threads. */
static const struct {
    const char *name, *file, *threads;
} libraries[] = {
    {"OpenBLAS", "libopenblas.so.0", "openblas_set_num_threads"},
    {"BLIS", "libblis.so.4", "bli_thread_set_num_threads"},
    {"MKL", "libmkl_rt.so.2", "MKL_Set_Num_Threads"},
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static int open_blas(const char *name, const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "cblas_sgemm") : NULL;
    if (!symbol) {
        if (library)
            dlclose(library);
        return -1;
    }
    for (int i = 0; i < LIBRARIES; i++) {
        void (*set_threads)(long);
        void *found = dlsym(library, libraries[i].threads);
        memcpy(&set_threads, &found, sizeof found);
        if (found)
            set_threads(1);
    }
    memcpy(&blas.sgemm, &symbol, sizeof symbol);
    blas.name = name;
    return 0; /* it stays open until the program ends */
}

int products_use(const char *library, char *error, size_t capacity)
{
    blas.sgemm = NULL;
    if (library && strcmp(library, "own") == 0)
        return 0;
    for (int i = 0; !library && i < LIBRARIES; i++)
        if (open_blas(libraries[i].name, libraries[i].file) == 0)
            return 0;
    if (!library || open_blas(library, library) == 0)
        return 0;
    const char *why = dlerror();
    snprintf(error, capacity, "'%s' is no BLAS: %s", library, why ? why : "it has no cblas_sgemm");
    return -1;
}

const char *products_many_name(void)
{
    return blas.sgemm ? blas.name : products_one_name();
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

typedef struct blas_job {
    const product_job *job;
    int64_t panel;
    _Atomic int no_memory;
} blas_job;

static void blas_outputs(void *context, int64_t first, int64_t last)
{
    blas_job *b = context;
    const product_job *job = b->job;
    const llama_matrix *w = &job->w;
    float *panel = malloc((size_t)(b->panel * w->columns) * sizeof *panel);
    if (!panel) {
        b->no_memory = 1;
        return;
    }
    for (int64_t at = first; at < last; at += b->panel) {
        int64_t count = last - at < b->panel ? last - at : b->panel;
        widen(w, at, count, panel);
        blas.sgemm(ROW_MAJOR, AS_IT_IS, TRANSPOSED, (int)job->rows, (int)count, (int)w->columns, 1,
                   job->from, (int)w->columns, panel, (int)w->columns, 0, job->to + at,
                   (int)w->rows);
        for (int64_t row = 0; job->bias && row < job->rows; row++)
            for (int64_t i = at; i < at + count; i++)
                job->to[row * w->rows + i] += job->bias[i];
    }
    free(panel);
}

/* ---- Both ---------------------------------------------------------------------------------- */

static void own_outputs(void *context, int64_t first, int64_t last)
{
    levels[level].fn(context, first, last);
}

int product_run(const product_job *job, team *workers)
{
    int64_t outputs = job->w.rows, threads = team_threads(workers);
    products_one_name(); /* a level is chosen */
    if (job->rows < 1 || outputs < 1)
        return 0;
    /* f16 is widened by the own loops alone. */
    if (blas.sgemm && job->rows >= BLAS_ROWS && job->w.dtype != TA_F16 && job->w.columns) {
        int64_t panel = PANEL_BYTES / (job->w.columns * (int64_t)sizeof(float));
        blas_job b = {job, panel < 16 ? 16 : panel, 0};
        team_run(workers, outputs, (outputs + threads - 1) / threads, blas_outputs, &b);
        return b.no_memory ? -1 : 0;
    }
    /* Several portions for each thread, so that one that is held up does not hold up the others. */
    int64_t portion = (outputs / (8 * threads) + 3) / 4 * 4;
    team_run(workers, outputs, portion < 16 ? 16 : portion, own_outputs, (void *)job);
    return 0;
}
