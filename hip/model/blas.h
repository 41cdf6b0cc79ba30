/* The vendor's BLAS: cuBLAS or rocBLAS, opened at run time. model.c has one for each model that
 * uses it. */
#ifndef TA_HIP_MODEL_BLAS_H
#define TA_HIP_MODEL_BLAS_H

#include "gpu.h"

typedef struct ta_blas ta_blas;

/* Of the device that is current: `file` NULL for the usual ones. TA_ERR_NOT_FOUND, quietly, with
 * the reason, if there is none. */
ta_status ta_blas_open(const char *file, ta_blas **blas);
void ta_blas_close(ta_blas *blas); /* NULL is allowed */
const char *ta_blas_name(void);

/* to[row][output] = Σ w[output][i] · from[row][i], where `from` is dense and of the weights' type.
 * Sizes fit an int. */
ta_status ta_blas_product(ta_blas *blas, const ta_model_matrix *w, const void *from, int64_t rows,
                          float *to, void *stream);

#endif
