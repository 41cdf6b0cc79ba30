/* A plan for attention over full sequences on one rank of a test: a device of one thread, and a
 * config with the fields that every plan needs. */
#ifndef TESTS_ATTENTION_PLAN_H
#define TESTS_ATTENTION_PLAN_H

#include <treeattn/attention.h>

#include "base/status.h"

static inline ta_attention_config attention_small_config(ta_dtype dtype, int32_t dim,
                                                         int32_t tokens)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = 1;
    config.k_dim = dim;
    config.dtype = dtype;
    config.max_tokens = tokens;
    return config;
}

typedef struct attention_rank {
    ta_device *device;
    ta_attention *plan;
} attention_rank;

/* End with attention_rank_close(), also after a failure. */
static inline ta_status attention_rank_open(attention_rank *r, ta_group *group,
                                            const ta_attention_config *config)
{
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    one_thread.threads = 1;
    *r = (attention_rank){NULL, NULL};
    TA_TRY(ta_device_open("host", &one_thread, &r->device));
    return ta_attention_create(group, r->device, config, &r->plan);
}

static inline void attention_rank_close(attention_rank *r)
{
    ta_attention_destroy(r->plan);
    ta_device_close(r->device);
}

#endif
