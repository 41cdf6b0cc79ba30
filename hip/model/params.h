/* What the kernels of a model's operations are given, and their launchers; src/device/model.h says
 * what each does. model.c calls them. */
#ifndef TA_HIP_MODEL_PARAMS_H
#define TA_HIP_MODEL_PARAMS_H

#include "device/model.h"
#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One pass over numbers or rows of them; each kernel uses what it needs. */
typedef struct ta_model_params {
    const void *from;  /* floats; of embed and widen, numbers of this dtype */
    const float *more; /* weight of a norm, the other operand */
    const float *cosines, *sines;
    const int32_t *words;
    void *to;
    int64_t rows, width, stride;
    int64_t heads;
    float epsilon;
    ta_dtype dtype;
    int64_t table_rows, times;
    int32_t element_bytes;
} ta_model_params;

ta_launched ta_launch_model_embed(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_norm(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_rope(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_swiglu(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_add(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_narrow(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_widen(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_repeat(const ta_model_params *params, void *stream);
ta_launched ta_launch_model_argmax(const ta_model_params *params, void *stream);
/* rows [row][width] of `to` += more[width] */
ta_launched ta_launch_model_bias(const ta_model_params *params, void *stream);

typedef struct ta_product_params {
    ta_model_matrix w;
    const float *bias; /* or NULL */
    const float *from;
    float *to;
    int64_t rows;
    int32_t aligned; /* 1: rows of weights and of inputs begin at multiples of 16 bytes */
} ta_product_params;

ta_launched ta_launch_model_product(const ta_product_params *params, int wave, void *stream);

#ifdef __cplusplus
}
#endif

#endif
