/* Configs of decode plans with the fields that every plan needs. A test adds what it is about. */
#ifndef TESTS_PLAN_CONFIG_H
#define TESTS_PLAN_CONFIG_H

#include <treeattn/treeattn.h>

static inline ta_plan_config plan_config(ta_dtype dtype, int32_t batch, int32_t heads, int32_t dim,
                                         int32_t tokens)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = batch;
    config.query_heads = heads;
    config.k_dim = dim;
    config.kv_dtype = dtype;
    config.max_tokens = tokens;
    return config;
}

/* Of a plan for ta_combine(), of f32. */
static inline ta_plan_config combine_config(int32_t batch, int32_t heads, int32_t dim)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.combine_only = 1;
    config.batch = batch;
    config.query_heads = heads;
    config.v_dim = dim;
    config.query_dtype = TA_F32;
    return config;
}

#endif
