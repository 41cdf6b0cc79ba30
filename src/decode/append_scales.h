/* The scales by which ta_append() divides new tokens: see append_scales.c. */
#ifndef TA_APPEND_SCALES_H
#define TA_APPEND_SCALES_H

#include "device/device.h"

/* Those of the tokens that this rank stores must be finite and above 0, unless they are made or the
 * tokens are bytes that stay as they are. The host can see all but the scales; `copies` has room
 * for 2 · kv_heads of them, or is NULL where it sees them too. */
ta_status ta_check_new_scales(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                              const ta_new_tokens *tokens, float *copies, void *stream);

#endif
