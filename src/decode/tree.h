/* Tree decode (Tree Attention): K and V stay where they are, one packed partial of each rank
 * travels. */
#ifndef TA_TREE_H
#define TA_TREE_H

#include "plan.h"

/* One step. Strides are filled in. A rank with a fault of its own takes part without attending; the
 * fault of the lowest rank comes out. Writes `out` and `lse` only if there is none. */
ta_status ta_tree_decode(ta_plan *plan, const ta_tensor *q, const ta_kv *kv, const ta_tensor *out,
                         float *lse, ta_fault *fault, void *stream);

#endif
