/* One call of an attention plan on the grid of ranks. attention.c calls it, after its checks and
 * after ta_attention_place(). */
#ifndef TA_ALGO_GRID_H
#define TA_ALGO_GRID_H

#include "../attention.h"

/* All strides are filled in. `lse` may be NULL. */
ta_status ta_grid_forward(ta_attention *attention, const ta_attention_input *input,
                          const ta_tensor *out, float *lse, void *stream);
ta_status ta_grid_backward(ta_attention *attention, const ta_attention_input *input,
                           const ta_attention_gradient *gradient, void *stream);

/* For the other algorithms too. A dense tensor [token][head][dim] at `data`; and a copy of this
 * rank's tokens of a tensor, heads dense, from token to token `to_stride_bytes`. */
ta_tensor ta_grid_dense(void *data, int32_t heads, int32_t dim);
ta_status ta_grid_pack(ta_attention *attention, const ta_tensor *from, int32_t heads, int32_t dim,
                       char *to, size_t to_stride_bytes, void *stream);

#endif
