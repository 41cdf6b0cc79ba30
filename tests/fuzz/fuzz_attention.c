/* Attention over full sequences from descriptors that are right, nearly right and wrong, on one to
 * five ranks that are threads: no call may crash or read beyond what a descriptor says; every rank
 * returns. Each tensor has exactly the elements that its descriptor reaches. */
#include <treeattn/attention.h>

#include "ranks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST_SEQUENCES 3
#define MOST_TOKENS 64

/* [token][head][dim] with memory for `tokens`; some strides are wrong. */
static ta_tensor take_tensor(bytes *b, int tokens, int heads, int dim, ta_dtype dtype)
{
    static const int64_t far[] = {INT64_MAX, INT64_MIN, -1, INT64_MAX / 2};
    ta_tensor t = {0};
    int wide = take_chance(b, 3) ? 8 : 0;
    size_t row = (size_t)heads * (size_t)(dim + wide);
    t.head_stride = wide ? dim + wide : 0;
    t.token_stride = take_chance(b, 2) ? (int64_t)row : 0;
    if (take_chance(b, heads == 1 ? 3 : 40))
        t.head_stride = far[take(b) % 4];
    if (take_chance(b, tokens == 1 ? 3 : 40))
        t.token_stride = far[take(b) % 4];
    if (take_chance(b, 8))
        t.batch_stride = far[take(b) % 4];
    if (!take_chance(b, 40))
        t.data = calloc((size_t)tokens * row + 1, element_bytes(dtype));
    return t;
}

static ta_attention_config take_config(bytes *b, int ranks)
{
    static const ta_dtype dtypes[] = {TA_F32, TA_F16, TA_BF16, TA_DTYPE_NONE};
    ta_attention_config c = TA_ATTENTION_CONFIG_INIT;
    TAKE_HEADS(b, &c);
    c.dtype = dtypes[take_chance(b, 24) ? 3 : take_from(b, 0, 2)];
    c.max_tokens = take_int(b, 1, MOST_TOKENS);
    TAKE_MAP_AND_SCORES(b, &c, 3, ranks);
    c.grid_rows = take_chance(b, 4) ? take_int(b, 1, ranks) : 0;
    c.grid_columns = take_chance(b, 4) && c.grid_rows > 0 ? ranks / c.grid_rows : 0;
    c.forward_only = take_int(b, 0, 1);
    c.algorithm = (ta_attention_algorithm)take_int(b, 0, 2);
    return c;
}

/* Forward, then backward with what forward wrote. */
static void run_calls(bytes *b, ta_attention *plan, const ta_attention_config *c)
{
    int32_t lengths[MOST_SEQUENCES];
    int k_dim = c->k_dim, v_dim = c->v_dim ? c->v_dim : c->k_dim;
    int tokens = c->max_tokens, heads = c->query_heads;
    int kv_heads = c->kv_heads ? c->kv_heads : heads;
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    input.sequences = take_from(b, 0, MOST_SEQUENCES);
    for (int i = 0; i < MOST_SEQUENCES; ++i)
        lengths[i] = take_int(b, 0, 40);
    input.lengths = take_chance(b, 40) ? NULL : lengths;
    input.q = take_tensor(b, tokens, heads, k_dim, c->dtype);
    input.k = take_tensor(b, tokens, kv_heads, k_dim, c->dtype);
    input.v = take_tensor(b, tokens, kv_heads, v_dim, c->dtype);
    gradient.out = take_tensor(b, tokens, heads, v_dim, c->dtype);
    gradient.dout = take_tensor(b, tokens, heads, v_dim, c->dtype);
    gradient.dq = take_tensor(b, tokens, heads, k_dim, c->dtype);
    gradient.dk = take_tensor(b, tokens, kv_heads, k_dim, c->dtype);
    gradient.dv = take_tensor(b, tokens, kv_heads, v_dim, c->dtype);
    float *lse = calloc((size_t)tokens * (size_t)heads, sizeof *lse);
    gradient.lse = take_chance(b, 16) ? NULL : lse;
    (void)ta_attention_forward(plan, &input, &gradient.out, take_chance(b, 8) ? NULL : lse, NULL);
    (void)ta_attention_backward(plan, &input, &gradient, NULL);
    ta_tensor *all[] = {&input.q,       &input.k,     &input.v,     &gradient.out,
                        &gradient.dout, &gradient.dq, &gradient.dk, &gradient.dv};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(all[i]->data);
    free(lse);
}

/* All ranks read the same bytes, but for one that may go its own way. */
static ta_status run_rank(ta_group *group, void *context)
{
    bytes b = *(const bytes *)context;
    ta_device *device = open_device(&b, group);
    ta_attention *plan = NULL;
    ta_attention_config config = take_config(&b, ta_group_size(group));
    ta_status status = ta_attention_create(group, device, &config, &plan);
    if (status == TA_OK && config.max_tokens <= MOST_TOKENS && config.query_heads <= 64)
        run_calls(&b, plan, &config);
    ta_attention_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return run_ranks(data, size, run_rank);
}
