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

#endif
