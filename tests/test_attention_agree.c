/* Ranks whose attention plans or calls differ (src/attention/agree.c): for every field of a config
 * and every argument that ranks share, all get an error that names it, the rank and both values, no
 * plan is left, nothing is written, and the group still works. */
#include <string.h>

#include <treeattn/attention.h>

#include "attention/make.h"
#include "base/status.h"
#include "lib/attention_plan.h"
#include "lib/expect.h"
#include "lib/spoil.h"

#define RANKS 4
#define DIM 16

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_attention_config good_config(void)
{
    ta_attention_config config = attention_small_config(TA_F32, DIM, 64);
    config.query_heads = 4;
    config.kv_heads = 2;
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = 4;
    config.grid_rows = config.grid_columns = 2;
    return config;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

typedef struct difference {
    int rank; /* the one that differs */
    const char *said;
    void (*spoil)(ta_attention_config *config);
} difference;

#define SPOIL(name, change) SPOIL_FUNCTION(spoil_##name, ta_attention_config *config, change)
SPOIL(query_heads, config->query_heads = 8)
SPOIL(kv_heads, config->kv_heads = 4)
SPOIL(k_dim, config->k_dim = 24; config->v_dim = DIM)
SPOIL(v_dim, config->v_dim = 8)
SPOIL(dtype, config->dtype = TA_BF16)
SPOIL(max_tokens, config->max_tokens = 65)
SPOIL(map_kind, config->map.kind = TA_SHARD_ZIGZAG)
SPOIL(map_block, config->map.block = 5)
SPOIL(mask, config->mask = TA_MASK_FULL)
SPOIL(window, config->window = 7)
SPOIL(scale, config->scale = 0.125f)
SPOIL(softcap, config->softcap = 30)
SPOIL(grid_rows, config->grid_rows = 1; config->grid_columns = 4)
SPOIL(grid_columns, config->grid_rows = config->grid_columns = 0)
SPOIL(forward_only, config->forward_only = 1)
SPOIL(algorithm, config->algorithm = TA_ATTENTION_GRID_OVERLAP)

static const difference differences[] = {
    {1, "config.query_heads is 8 on rank 1 and 4 on rank 0", spoil_query_heads},
    {2, "config.kv_heads is 4 on rank 2 and 2 on rank 0", spoil_kv_heads},
    {3, "config.k_dim is 24 on rank 3 and 16 on rank 0", spoil_k_dim},
    {1, "config.v_dim is 8 on rank 1 and 16 on rank 0", spoil_v_dim},
    {2, "config.dtype is 3 on rank 2 and 1 on rank 0", spoil_dtype},
    {3, "config.max_tokens is 65 on rank 3 and 64 on rank 0", spoil_max_tokens},
    {1, "config.map.kind is 2 on rank 1 and 1 on rank 0", spoil_map_kind},
    {2, "config.map.block is 5 on rank 2 and 4 on rank 0", spoil_map_block},
    {3, "config.mask is 1 on rank 3 and 0 on rank 0", spoil_mask},
    {1, "config.window is 7 on rank 1 and 0 on rank 0", spoil_window},
    {2, "config.scale is 0.125 on rank 2 and 0.25 on rank 0", spoil_scale},
    {3, "config.softcap is 30 on rank 3 and 0 on rank 0", spoil_softcap},
    {1, "config.grid_rows is 1 on rank 1 and 2 on rank 0", spoil_grid_rows},
    {2, "config.grid_rows is 0 on rank 2 and 2 on rank 0", spoil_grid_columns},
    {3, "config.forward_only is 1 on rank 3 and 0 on rank 0", spoil_forward_only},
    {1, "config.algorithm is ", spoil_algorithm},
    /* Rank 0 differs from all others: named after the first other. */
    {0, "config.window is 0 on rank 1 and 7 on rank 0", spoil_window},
};

static ta_status differing_rank(ta_group *group, void *context)
{
    const difference *d = context;
    ta_attention_config config = good_config();
    ta_attention *plan = NULL;
    ta_device *device;
    TA_TRY(ta_device_open("host", NULL, &device));
    if (ta_group_rank(group) == d->rank)
        d->spoil(&config);
    RANK_EXPECT(ta_attention_create(group, device, &config, &plan) == TA_ERR_MISMATCH && !plan);
    if (!strstr(ta_last_error(), d->said) || !strstr(ta_last_error(), "attention plans differ"))
        return ta_fail(TA_ERR_SYSTEM, "expected '%s', not '%s'", d->said, ta_last_error());
    config = good_config();
    TA_TRY(ta_attention_create(group, device, &config, &plan));
    ta_attention_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_each_field(void)
{
    for (size_t i = 0; i < sizeof differences / sizeof *differences; ++i)
        EXPECT_OK(
            ta_group_run_threads(RANKS, NULL, differing_rank, (void *)(uintptr_t)&differences[i]));
}

/* A rank without memory for a plan, or with a bad argument, takes part. */
static ta_status without_plan(ta_group *group, void *context)
{
    int bad = *(int *)context, rank = ta_group_rank(group);
    ta_attention_config config = good_config();
    ta_attention *plan = NULL;
    ta_device *device;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_status status = rank == bad
                           ? ta_attention_agree(group, NULL, ta_fail(TA_ERR_NO_MEMORY, "none left"))
                           : ta_attention_create(group, device, &config, &plan);
    RANK_EXPECT(status == (rank == bad ? TA_ERR_NO_MEMORY : TA_ERR_MISMATCH) && !plan);
    RANK_EXPECT(strstr(ta_last_error(), "none left"));
    status = ta_attention_create(group, device, &config, rank == bad ? NULL : &plan);
    RANK_EXPECT(status == (rank == bad ? TA_ERR_INVALID : TA_ERR_MISMATCH) && !plan);
    RANK_EXPECT(strstr(ta_last_error(), "attention is NULL"));
    ta_device_close(device);
    return TA_OK;
}

static void test_a_rank_without_a_plan(void)
{
    for (int bad = 0; bad < RANKS; ++bad)
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, without_plan, &bad));
}

/* ---- Calls ----------------------------------------------------------------------------------- */

/* What one rank gives in place of the others': lengths, a pass, or another plan. */
typedef struct call {
    int rank;
    int32_t sequences, lengths[3];
    int backward, other_plan;
    const char *said;
} call;

static const call calls[] = {
    {3, 3, {9, 8, 8}, 0, 0, "calls differ: input.lengths[2] is 8 on rank 3 and 7 on rank 0"},
    {1, 3, {9, 0, 7}, 0, 0, "calls differ: input.lengths[1] is 0 on rank 1 and 8 on rank 0"},
    {2, 2, {9, 8, 7}, 0, 0, "calls differ: input.sequences is 2 on rank 2 and 3 on rank 0"},
    {0, 3, {1, 8, 7}, 0, 0, "calls differ: input.lengths[0] is 9 on rank 1 and 1 on rank 0"},
    {2, 3, {9, 8, 7}, 1, 0, "calls differ: backward is 1 on rank 2 and 0 on rank 0"},
    {2, 3, {9, 8, 7}, 0, 1, "calls differ: plan is "},
};

static ta_status differing_call(ta_group *group, void *context)
{
    const call *c = context;
    static const int32_t good[3] = {9, 8, 7};
    float q[32 * 4 * DIM] = {0}, kv[32 * 2 * DIM] = {0}, out[32 * 4 * DIM] = {0};
    int differs = ta_group_rank(group) == c->rank;
    ta_attention_config config = good_config();
    ta_attention *plans[2];
    ta_device *device;
    TA_TRY(ta_device_open("host", NULL, &device));
    for (int i = 0; i < 2; ++i)
        TA_TRY(ta_attention_create(group, device, &config, &plans[i]));
    RANK_EXPECT(plans[0]->id != plans[1]->id);
    for (int round = 0; round < 2; ++round) { /* and the next call is right */
        int spoilt = differs && round == 0;
        ta_attention *plan = plans[spoilt && c->other_plan];
        ta_attention_input input = TA_ATTENTION_INPUT_INIT;
        input.sequences = spoilt ? c->sequences : 3;
        input.lengths = spoilt ? c->lengths : good;
        input.q.data = q;
        input.k.data = input.v.data = kv;
        ta_tensor to = {out, 0, 0, 0};
        float lse[32 * 4] = {0}, dq[32 * 4 * DIM], dk[32 * 2 * DIM], dv[32 * 2 * DIM];
        ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
        gradient.out.data = gradient.dout.data = out;
        gradient.lse = lse;
        gradient.dq.data = dq, gradient.dk.data = dk, gradient.dv.data = dv;
        ta_status status = spoilt && c->backward
                               ? ta_attention_backward(plan, &input, &gradient, NULL)
                               : ta_attention_forward(plan, &input, &to, NULL, NULL);
        RANK_EXPECT(status == (round ? TA_OK : TA_ERR_MISMATCH));
        if (!round && !strstr(ta_last_error(), c->said))
            return ta_fail(TA_ERR_SYSTEM, "expected '%s', not '%s'", c->said, ta_last_error());
    }
    for (int i = 0; i < 2; ++i)
        ta_attention_destroy(plans[i]);
    ta_device_close(device);
    return TA_OK;
}

static void test_each_argument(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i)
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, differing_call, (void *)(uintptr_t)&calls[i]));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_field);
    RUN_TEST(test_a_rank_without_a_plan);
    RUN_TEST(test_each_argument);
    return UNITY_END() != 0;
}
