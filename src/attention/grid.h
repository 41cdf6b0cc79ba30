/* One call of an attention plan on the grid of ranks. api.c calls it, after its checks and
 * after ta_attention_count_tokens(). */
#ifndef TA_ATTENTION_GRID_H
#define TA_ATTENTION_GRID_H

#include "plan.h"

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

/* Bring the tokens of a line's ranks together; with one rank they are where they were. */
ta_status ta_grid_gather(ta_attention *attention, const ta_line *line, const ta_tensor *own,
                         int32_t heads, int32_t dim, void *buffer, ta_tensor *all, void *stream);

/* What backward reads of the row's queries: dO, lse and delta, which is computed here. */
ta_status ta_grid_gather_gradient(ta_attention *attention, const ta_attention_gradient *gradient,
                                  ta_attention_work_gradient *g, void *stream);

/* Sum one of the gradients along a line and store this rank's part; with one rank in the line it
 * is stored already. */
ta_status ta_grid_scatter(ta_attention *attention, const ta_line *line, int32_t heads, int32_t dim,
                          float *all, const ta_tensor *to, void *stream);

#endif
