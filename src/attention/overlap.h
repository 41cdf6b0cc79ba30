/* One call of an attention plan on the grid, moving while it computes; as grid.h. */
#ifndef TA_ATTENTION_OVERLAP_H
#define TA_ATTENTION_OVERLAP_H

#include "plan.h"

ta_status ta_grid_overlap_forward(ta_attention *attention, const ta_attention_input *input,
                                  const ta_tensor *out, float *lse, void *stream);

ta_status ta_grid_overlap_backward(ta_attention *attention, const ta_attention_input *input,
                                   const ta_attention_gradient *gradient, void *stream);

#endif
