/* See blas.h. A library that made a handle stays open until the process ends: handles of it may
 * live in any thread. One that made none is closed. The calls are in vendor_blas.h. */
#define TA_BLAS_CALLS
#include "blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct ta_blas {
    void *handle;
    ta_blas_destroy_fn destroy;
    ta_blas_stream_fn set_stream;
    ta_blas_gemm_fn gemm;
};

const char *ta_blas_name(void)
{
    return TA_BLAS_NAME;
}

/* ISO C knows no way from an object pointer to a function. */
static int find(void *library, const char *name, void *function, size_t bytes)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, bytes);
    return address != NULL;
}

/* The named file, or the first of the usual ones that opens. */
static void *open_library(const char *file, char *why, size_t capacity)
{
    static const char *const usual[] = {TA_BLAS_FILES};
    void *library = NULL;
    if (file)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; !file && !library && i < sizeof usual / sizeof *usual; i++)
        library = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, capacity, "%s", dlerror());
    return library;
}

/* Its functions, and a handle. */
static ta_status make_handle(void *library, const char *file, ta_blas *b)
{
    ta_blas_create_fn create;
    int found = find(library, TA_BLAS_CREATE, &create, sizeof create) &&
                find(library, TA_BLAS_DESTROY, &b->destroy, sizeof b->destroy) &&
                find(library, TA_BLAS_STREAM, &b->set_stream, sizeof b->set_stream) &&
                find(library, TA_BLAS_GEMM, &b->gemm, sizeof b->gemm);
    if (!found)
        return ta_gpu_core->fail_quietly(TA_ERR_NOT_FOUND, "%s is no " TA_BLAS_NAME ": it lacks %s",
                                         file ? file : "its file", TA_BLAS_GEMM);
    int error = create(&b->handle);
    if (error == 0)
        return TA_OK;
    return ta_gpu_core->fail_quietly(TA_ERR_NOT_FOUND,
                                     TA_BLAS_NAME " made no handle: its status is %d", error);
}

ta_status ta_blas_open(const char *file, ta_blas **blas)
{
    char why[400] = "";
    void *library = open_library(file, why, sizeof why);
    if (!library)
        return ta_gpu_core->fail_quietly(TA_ERR_NOT_FOUND, TA_BLAS_NAME " can't be opened: %s",
                                         why);
    ta_blas *b = calloc(1, sizeof *b);
    ta_status status =
        b ? make_handle(library, file, b)
          : ta_gpu_core->fail(TA_ERR_NO_MEMORY, "no memory for a handle of " TA_BLAS_NAME);
    if (status == TA_OK) {
        *blas = b;
        return TA_OK;
    }
    free(b);
    dlclose(library);
    return status;
}

void ta_blas_close(ta_blas *blas)
{
    if (blas)
        (void)blas->destroy(blas->handle);
    free(blas);
}

/* The library's number of a type; -1 if it has none. */
static int type_of(ta_dtype dtype)
{
    switch (dtype) {
    case TA_F32:
        return TA_BLAS_F32;
    case TA_F16:
        return TA_BLAS_F16;
    case TA_BF16:
        return TA_BLAS_BF16;
    default:
        return -1;
    }
}

/* Rows of ours are columns of a BLAS: the weights are [inputs, outputs] to it, the inputs [inputs,
 * rows] and the result [outputs, rows]. */
ta_status ta_blas_product(ta_blas *blas, const ta_model_matrix *w, const void *from, int64_t rows,
                          float *to, void *stream)
{
    int outputs = (int)w->rows, inputs = (int)w->columns, type = type_of(w->dtype);
    if (type < 0)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED,
                                 "weights are of dtype %d: products by " TA_BLAS_NAME
                                 " need f32, f16 or bf16",
                                 (int)w->dtype);
    int error = blas->set_stream(blas->handle, (hipStream_t)stream);
    if (error == 0)
        error = ta_blas_multiply(blas->gemm, blas->handle, outputs, (int)rows, inputs, w->data,
                                 (int)w->stride, from, inputs, type, to, outputs);
    if (error == 0)
        return TA_OK;
    return ta_gpu_core->fail(TA_ERR_DEVICE,
                             "a product of %d outputs, %d inputs and %lld rows by " TA_BLAS_NAME
                             " failed: its status is %d",
                             outputs, inputs, (long long)rows, error);
}
