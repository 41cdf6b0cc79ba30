/* See blas_library.h. */
#include "blas_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* cblas_sgemm() with its enumerations as the numbers that they are. */
enum { ROW_MAJOR = 101, AS_IT_IS = 111, TRANSPOSED = 112 };
#define C_CALL(name, integer)                                                                      \
    typedef void (*name)(int order, int transpose_a, int transpose_b, integer m, integer n,        \
                         integer k, float alpha, const float *a, integer lda, const float *b,      \
                         integer ldb, float beta, float *c, integer ldc)
C_CALL(c_call, int);
C_CALL(c_call_64, int64_t);
/* Fortran's, with the lengths of its texts behind the rest, as compilers pass them. */
typedef void (*fortran_call)(const char *transpose_a, const char *transpose_b, const int *m,
                             const int *n, const int *k, const float *alpha, const float *a,
                             const int *lda, const float *b, const int *ldb, const float *beta,
                             float *c, const int *ldc, size_t length_a, size_t length_b);

/* oneDNN's, in rows; not 0 is an error. That of bf16 is exported and in no header. */
#define ONEDNN_CALL(name, element)                                                                 \
    typedef int (*name)(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,       \
                        float alpha, const element *a, int64_t lda, const element *b, int64_t ldb, \
                        float beta, float *c, int64_t ldc)
ONEDNN_CALL(onednn_call, float);
ONEDNN_CALL(onednn_bf16_call, uint16_t);

/* What a product is called, the first that a library has. Those of Python's packages have names of
 * their own, so that they do not meet another BLAS. */
static const struct {
    const char *name;
    blas_call call;
} calls[] = {
    {"cblas_sgemm", BLAS_C},       {"sgemm_", BLAS_FORTRAN},
    {"cblas_sgemm64_", BLAS_C_64}, {"scipy_cblas_sgemm64_", BLAS_C_64},
    {"dnnl_sgemm", BLAS_ONEDNN},
};

static const struct {
    const char *name, *file;
} known[] = {
    {"oneDNN", "libdnnl.so.3"}, {"oneDNN", "libdnnl.so.2"}, {"OpenBLAS", "libopenblas.so.0"},
    {"BLIS", "libblis.so.4"},   {"MKL", "libmkl_rt.so.2"},
};

/* How to tell each that its caller has the threads. */
static const char *const threads[] = {
    "openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads64_",
    "bli_thread_set_num_threads",
    "MKL_Set_Num_Threads",
};

/* Without instructions for it, products of bf16 take longer than those of floats. */
static int cpu_has_bf16(void)
{
#if defined(LLAMA_X86)
    return __builtin_cpu_supports("avx512bf16") != 0;
#else
    return 0;
#endif
}

/* 1.5 · 3 + 2 · 4, by the library's product of bf16: not every CPU has it. */
static int multiplies_bf16(const blas_library *library)
{
    const uint16_t from[] = {0x3fc0, 0x4000}, w[] = {0x4040, 0x4080};
    float to = 0;
    return blas_multiply_bf16(library, 1, 1, 2, from, w, 2, &to, 1) == 0 && to == 12.5f;
}

/* What oneDNN has beside a product of floats. Its threads are OpenMP's, whose number belongs to the
 * thread that calls. */
static void find_onednn(void *handle, blas_library *library)
{
    void *bf16 = dlsym(handle, "dnnl_gemm_bf16bf16f32");
    void *set_threads = dlsym(handle, "omp_set_num_threads");
    memcpy(&library->set_threads, &set_threads, sizeof set_threads);
    memcpy(&library->bf16, &bf16, sizeof bf16);
    if (bf16 && (!cpu_has_bf16() || !multiplies_bf16(library)))
        library->bf16 = NULL;
}

int blas_open(const char *file, blas_library *library, char *error, size_t capacity)
{
    const char *folder = strrchr(file, '/');
    blas_library found = {.name = folder ? folder + 1 : file};
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
    if (!handle) {
        const char *why = dlerror();
        snprintf(error, capacity, "'%s' is no BLAS: %s", file, why ? why : "it cannot be opened");
        return -1;
    }
    for (size_t i = 0; !symbol && i < sizeof calls / sizeof *calls; i++) {
        symbol = dlsym(handle, calls[i].name);
        found.call = calls[i].call;
    }
    if (!symbol) {
        snprintf(error, capacity,
                 "'%s' is no BLAS: it has none of cblas_sgemm, sgemm_ and dnnl_sgemm", file);
        dlclose(handle);
        return -1;
    }
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        void (*set_threads)(long);
        void *address = dlsym(handle, threads[i]);
        memcpy(&set_threads, &address, sizeof address);
        if (address)
            set_threads(1);
    }
    memcpy(&found.address, &symbol, sizeof symbol);
    if (found.call == BLAS_ONEDNN)
        find_onednn(handle, &found);
    *library = found;
    return 0;
}

int blas_open_known(blas_library *library)
{
    char error[256];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (blas_open(known[i].file, library, error, sizeof error) == 0) {
            library->name = known[i].name;
            return 0;
        }
    }
    return -1;
}

/* Rows of ours are columns of Fortran's: the weights are [columns, outputs] to it. */
static void by_fortran(fortran_call call, int rows, int outputs, int columns, const float *from,
                       const float *w, int w_stride, float *to, int to_stride)
{
    const float one = 1, zero = 0;
    call("T", "N", &outputs, &rows, &columns, &one, w, &w_stride, from, &columns, &zero, to,
         &to_stride, 1, 1);
}

static int by_onednn(const blas_library *library, int64_t rows, int64_t outputs, int64_t columns,
                     const float *from, const float *w, int64_t w_stride, float *to,
                     int64_t to_stride)
{
    if (library->set_threads)
        library->set_threads(1);
    int status = ((onednn_call)library->address)('N', 'T', rows, outputs, columns, 1, from, columns,
                                                 w, w_stride, 0, to, to_stride);
    return status == 0 ? 0 : -1;
}

int blas_multiply_bf16(const blas_library *library, int64_t rows, int64_t outputs, int64_t columns,
                       const uint16_t *from, const uint16_t *w, int64_t w_stride, float *to,
                       int64_t to_stride)
{
    if (library->set_threads)
        library->set_threads(1);
    int status = ((onednn_bf16_call)library->bf16)('N', 'T', rows, outputs, columns, 1, from,
                                                   columns, w, w_stride, 0, to, to_stride);
    return status == 0 ? 0 : -1;
}

int blas_multiply(const blas_library *library, int64_t rows, int64_t outputs, int64_t columns,
                  const float *from, const float *w, int64_t w_stride, float *to, int64_t to_stride)
{
    if (library->call == BLAS_ONEDNN)
        return by_onednn(library, rows, outputs, columns, from, w, w_stride, to, to_stride);
    if (library->call == BLAS_FORTRAN)
        by_fortran((fortran_call)library->address, (int)rows, (int)outputs, (int)columns, from, w,
                   (int)w_stride, to, (int)to_stride);
    else if (library->call == BLAS_C)
        ((c_call)library->address)(ROW_MAJOR, AS_IT_IS, TRANSPOSED, (int)rows, (int)outputs,
                                   (int)columns, 1, from, (int)columns, w, (int)w_stride, 0, to,
                                   (int)to_stride);
    else if (library->call == BLAS_C_64)
        ((c_call_64)library->address)(ROW_MAJOR, AS_IT_IS, TRANSPOSED, rows, outputs, columns, 1,
                                      from, columns, w, w_stride, 0, to, to_stride);
    return 0;
}
