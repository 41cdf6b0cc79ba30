/* One call of an attention plan, in each of the ways of doing it, and what they share. api.c calls
 * them, after its checks and after ta_attention_count_tokens(). */
#ifndef TA_ATTENTION_GRID_H
#define TA_ATTENTION_GRID_H

#include "plan.h"

/* All strides are filled in. `lse` may be NULL. */
typedef ta_status ta_forward_call(ta_attention *attention, const ta_attention_input *input,
                                  const ta_tensor *out, float *lse, void *stream);
typedef ta_status ta_backward_call(ta_attention *attention, const ta_attention_input *input,
                                   const ta_attention_gradient *gradient, void *stream);

/* On the grid of ranks (grid.c); moving while it computes (overlap.c, overlap_backward.c); on the
 * ring of ranks (ring.c). */
ta_forward_call ta_grid_forward, ta_grid_overlap_forward, ta_ring_forward;
ta_backward_call ta_grid_backward, ta_grid_overlap_backward, ta_ring_backward;

/* ---- What they share (grid.c) ---- */

/* A dense tensor [token][head][dim] at `data`; and a copy of this
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
