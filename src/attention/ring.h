/* One call of an attention plan on the ring of ranks; as grid.h. */
#ifndef TA_ATTENTION_RING_H
#define TA_ATTENTION_RING_H

#include "plan.h"

ta_status ta_ring_forward(ta_attention *attention, const ta_attention_input *input,
                          const ta_tensor *out, float *lse, void *stream);
ta_status ta_ring_backward(ta_attention *attention, const ta_attention_input *input,
                           const ta_attention_gradient *gradient, void *stream);

#endif
