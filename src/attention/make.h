/* Making an attention plan: what plan.c takes from its neighbours. */
#ifndef TA_ATTENTION_MAKE_H
#define TA_ATTENTION_MAKE_H

#include <treeattn/attention.h>

#include "plan.h"

/* Check the config and fill it in; `rank` and `ranks` are set (config.c). */
ta_status ta_attention_resolve(const ta_attention_config *config, ta_attention *attention);

/* Choose what the config leaves open, from the predicted times on its cluster or from the bytes
 * that move; then take over what rank 0 chose. The first is local, the second collective
 * (choice.c). */
ta_status ta_attention_choose(const ta_attention_config *config, ta_attention *attention);
ta_status ta_attention_follow(ta_attention *attention);

/* Do all ranks have the same plan, and did all succeed so far? Collective; an error anywhere is an
 * error everywhere; `attention` may be NULL after a failure. Sets its id (agree.c). */
ta_status ta_attention_agree(ta_group *group, ta_attention *attention, ta_status status);

#endif
