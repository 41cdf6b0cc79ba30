/* From the user's plan config to a problem: every field checked, every default filled in. Used by
 * plan.c; implemented in config.c. */
#ifndef TA_CONFIG_H
#define TA_CONFIG_H

#include "device/device.h"

#define TA_MAX_QUERY_TOKENS 1024

/* `problem` gets the config's own host pointers to slopes and sinks. */
ta_status ta_config_resolve(const ta_plan_config *config, int rank, int ranks, ta_problem *problem);

#endif
