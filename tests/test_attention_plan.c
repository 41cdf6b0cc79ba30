/* Making attention plans (config, plan and agree of src/attention/), the checks of a call, and
 * what a NaN may reach. The results of good calls are the matter of test_attention.c. */
#include "attention/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/attention.h>

#include "lib/attention_plan.h"
#include "lib/expect.h"
#include "lib/random.h"

#define TOKENS 150
#define DIM 16
#define NUMBERS (TOKENS * DIM)

static ta_device *device;

void setUp(void)
{
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    config.threads = 1;
    EXPECT_OK(ta_device_open("host", &config, &device));
}

void tearDown(void)
{
    ta_device_close(device);
}

static ta_attention_config good_config(void)
{
    return attention_small_config(TA_F32, DIM, TOKENS);
}

/* A config with one field changed is refused, and the sentence names it. */
#define REFUSED(field, value, text)                                                                \
    do {                                                                                           \
        ta_attention_config config_ = good_config();                                               \
        ta_attention *plan_ = NULL;                                                                \
        config_.field = (value);                                                                   \
        EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, device, &config_, &plan_),          \
                     "config." text, NULL);                                                        \
        TEST_ASSERT_NULL(plan_);                                                                   \
    } while (0)

static void test_bad_configs(void)
{
    static const int32_t bounds[2] = {0, 8};
    REFUSED(size, 3, "size");
    REFUSED(query_heads, 0, "query_heads");
    REFUSED(kv_heads, 2, "kv_heads");
    REFUSED(k_dim, 12, "k_dim");
    REFUSED(k_dim, 264, "k_dim");
    REFUSED(v_dim, -8, "v_dim");
    REFUSED(dtype, TA_DTYPE_NONE, "dtype is 0: must be TA_F32, TA_F16");
    REFUSED(dtype, (ta_dtype)TA_DTYPE_END, "dtype");
    REFUSED(dtype, (ta_dtype)-1, "dtype is -1");
    REFUSED(max_tokens, 0, "max_tokens");
    REFUSED(map.size, 1, "map.size");
    REFUSED(map.kind, (ta_shard_kind)4, "map.kind");
    REFUSED(map.ranks, 2, "map.ranks");
    REFUSED(map.block, -1, "map.block");
    REFUSED(map.bounds, bounds, "map.bounds");
    REFUSED(mask, (ta_mask)2, "mask");
    REFUSED(window, -1, "window");
    REFUSED(scale, INFINITY, "scale");
    REFUSED(softcap, -1.0f, "softcap");
    REFUSED(grid_rows, 2, "grid_rows");
    REFUSED(grid_columns, 1, "grid_rows");
    REFUSED(forward_only, 2, "forward_only");
    REFUSED(algorithm, (ta_attention_algorithm)4, "algorithm");
    ta_attention_config config = good_config();
    ta_attention *plan;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, NULL, &config, &plan), "device", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, device, NULL, &plan), "config", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, device, &config, NULL), "attention",
                 NULL);
    ta_attention_destroy(NULL);
}

/* A plan on a device like the host but for its table. */
static void expect_unsupported(const ta_device_ops *ops, const char *first, const char *second)
{
    ta_device other = {.ops = ops, .name = "plain"};
    ta_attention_config config = good_config();
    ta_attention *plan = NULL;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_attention_create(NULL, &other, &config, &plan), first,
                 second);
    TEST_ASSERT_NULL(plan);
}

static void test_a_device_without_it(void)
{
    ta_device_ops without = *device->ops;
    without.attention = NULL;
    expect_unsupported(&without, "plain", "full sequences");
}

static int has_no_f32(const ta_device *of, ta_dtype dtype, ta_dtype_role role)
{
    (void)of, (void)role;
    return dtype != TA_F32;
}

static void test_a_device_without_the_dtype(void)
{
    ta_device_ops without = *device->ops;
    without.has_dtype = has_no_f32;
    expect_unsupported(&without, "config.dtype is 1 (f32)", "device plain");
}

static void test_decode_plans_refuse_zigzag(void)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    ta_plan *plan = NULL;
    config.batch = config.query_heads = config.max_tokens = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.map.kind = TA_SHARD_ZIGZAG;
    config.map.block = 4;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &config, &plan), "map.kind", NULL);
}

/* The grid with the fewest bytes is not always square. */
static void test_traffic_of_grids(void)
{
    ta_attention_work equal = {
        .query_heads = 8, .kv_heads = 8, .k_dim = 64, .v_dim = 64, .dtype = TA_F32};
    ta_attention_work grouped = {
        .query_heads = 32, .kv_heads = 4, .k_dim = 64, .v_dim = 64, .dtype = TA_F32};
    int64_t square = ta_attention_traffic(&equal, 4, 4, 0);
    TEST_ASSERT_TRUE(square < ta_attention_traffic(&equal, 8, 2, 0));
    TEST_ASSERT_TRUE(square < ta_attention_traffic(&equal, 2, 8, 0));
    TEST_ASSERT_TRUE(square < ta_attention_traffic(&equal, 16, 1, 0));
    TEST_ASSERT_TRUE(ta_attention_traffic(&grouped, 16, 1, 0) <
                     ta_attention_traffic(&grouped, 4, 4, 0));
}

/* The chosen grid against the ring, equal heads of 128 in f32: about 2 / √P of its bytes. The test
 * of costs holds these numbers to what groups count. */
static void test_traffic_falls_with_the_ranks(void)
{
    static const int ranks[] = {4, 8, 16};
    static const double parts[] = {0.67, 0.57, 0.40};
    ta_attention_work shape = {
        .query_heads = 2, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .dtype = TA_F32};
    for (int i = 0; i < 3; ++i) {
        int64_t least = INT64_MAX, ring = (ranks[i] - 1) * (int64_t)2 * 256 * 4;
        for (int columns = 1; columns <= ranks[i]; columns *= 2) {
            int64_t bytes = ta_attention_traffic(&shape, ranks[i] / columns, columns, 0);
            least = bytes < least ? bytes : least;
        }
        TEST_ASSERT_DOUBLE_WITHIN(0.01, parts[i], (double)least / (double)ring);
    }
}

/* Bytes beside the tensors, on eight ranks. */
typedef struct memory_case {
    ta_attention_config config;
    size_t bytes;
} memory_case;

static ta_status measure_memory(ta_group *group, void *context)
{
    memory_case *m = context;
    attention_rank r;
    TA_TRY(attention_rank_open(&r, group, &m->config));
    if (ta_group_rank(group) == 0)
        m->bytes = r.plan->memory_bytes;
    attention_rank_close(&r);
    return TA_OK;
}

static size_t memory_of(ta_attention_algorithm algorithm, int rows, int32_t tokens)
{
    memory_case m = {.config = good_config()};
    m.config.algorithm = algorithm;
    m.config.grid_rows = rows;
    m.config.grid_columns = rows ? 8 / rows : 0;
    m.config.max_tokens = tokens;
    m.config.forward_only = 1;
    EXPECT_OK(ta_group_run_threads(8, NULL, measure_memory, &m));
    return m.bytes;
}

/* Backward on one rank; sums of dQ for up to 16 ranges of keys. */
static size_t memory_backward(int32_t tokens)
{
    memory_case m = {.config = good_config()};
    m.config.max_tokens = tokens;
    EXPECT_OK(ta_group_run_threads(1, NULL, measure_memory, &m));
    return m.bytes;
}

/* Nothing is quadratic in the sequence, and what rotates needs no room for all of a row. */
static void test_memory(void)
{
    const int large = 1 << 11;
    for (int rows = 1; rows <= 8; rows *= 2)
        for (int algorithm = TA_ATTENTION_GRID; algorithm <= TA_ATTENTION_GRID_OVERLAP;
             ++algorithm) {
            ta_attention_algorithm kind = (ta_attention_algorithm)algorithm;
            int grid = kind == TA_ATTENTION_RING ? 0 : rows;
            size_t once = memory_of(kind, grid, large);
            TEST_ASSERT_TRUE(memory_of(kind, grid, 2 * large) <= 2 * once + 4096);
        }
    TEST_ASSERT_TRUE(memory_backward(1 << 16) <= 2 * memory_backward(1 << 15) + 4096);
    size_t token = (DIM + DIM + 2) * sizeof(float); /* a query and its partial */
    size_t more = (size_t)large; /* tokens, so that what does not grow with them is left out */
    size_t grid =
        memory_of(TA_ATTENTION_GRID, 1, 2 * large) - memory_of(TA_ATTENTION_GRID, 1, large);
    size_t overlap = memory_of(TA_ATTENTION_GRID_OVERLAP, 1, 2 * large) -
                     memory_of(TA_ATTENTION_GRID_OVERLAP, 1, large);
    TEST_ASSERT_TRUE(grid > 8 * token * more);
    TEST_ASSERT_TRUE(overlap < 5 * token * more);
}

/* ---- Calls --------------------------------------------------------------------------------- */

/* All numbers of a call with one head; sequences packed. */
typedef struct numbers {
    float q[NUMBERS], k[NUMBERS], v[NUMBERS], dout[NUMBERS];
    float out[NUMBERS], lse[TOKENS], dq[NUMBERS], dk[NUMBERS], dv[NUMBERS];
} numbers;

static numbers *make_numbers(void)
{
    numbers *n = calloc(1, sizeof *n);
    random_source source = random_from(3);
    for (int i = 0; i < NUMBERS; ++i) {
        n->q[i] = (float)random_normal(&source);
        n->k[i] = (float)random_normal(&source);
        n->v[i] = (float)random_normal(&source);
        n->dout[i] = (float)random_normal(&source);
    }
    return n;
}

static ta_attention_input input_of(numbers *n, int32_t sequences, const int32_t *lengths)
{
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    input.sequences = sequences;
    input.lengths = lengths;
    input.q.data = n->q;
    input.k.data = n->k;
    input.v.data = n->v;
    return input;
}

static ta_attention_gradient gradient_of(numbers *n)
{
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    gradient.out.data = n->out;
    gradient.dout.data = n->dout;
    gradient.lse = n->lse;
    gradient.dq.data = n->dq;
    gradient.dk.data = n->dk;
    gradient.dv.data = n->dv;
    return gradient;
}

static void run_both(numbers *n, int32_t sequences, const int32_t *lengths)
{
    ta_attention_config config = good_config();
    ta_attention *plan;
    ta_attention_input input = input_of(n, sequences, lengths);
    ta_attention_gradient gradient = gradient_of(n);
    ta_tensor out = {n->out, 0, 0, 0};
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    EXPECT_OK(ta_attention_forward(plan, &input, &out, n->lse, NULL));
    EXPECT_OK(ta_attention_backward(plan, &input, &gradient, NULL));
    ta_attention_destroy(plan);
}

static int same(const float *a, const float *b, int first, int end)
{
    return memcmp(a + first * DIM, b + first * DIM, (size_t)(end - first) * DIM * sizeof *a) == 0;
}

static int all_nan(const float *a, int first, int end)
{
    for (int i = first * DIM; i < end * DIM; ++i)
        if (!isnan(a[i]))
            return 0;
    return 1;
}

/* A NaN in a query, a key or a value reaches what depends on it, and no bit of anything else. */
static void test_nan_reaches_what_depends_on_it(void)
{
    static const int32_t lengths[] = {90, 60};
    numbers *clean = make_numbers(), *n = make_numbers();
    run_both(clean, 2, lengths);
    n->q[40 * DIM + 3] = NAN; /* row 40, which sees the keys 0 to 40 */
    run_both(n, 2, lengths);
    TEST_ASSERT_TRUE(same(n->out, clean->out, 0, 40) && same(n->out, clean->out, 41, TOKENS));
    TEST_ASSERT_TRUE(all_nan(n->out, 40, 41) && isnan(n->lse[40]) && all_nan(n->dq, 40, 41));
    TEST_ASSERT_TRUE(same(n->dq, clean->dq, 0, 40) && same(n->dq, clean->dq, 41, TOKENS));
    TEST_ASSERT_TRUE(all_nan(n->dk, 0, 41) && all_nan(n->dv, 0, 41));
    TEST_ASSERT_TRUE(same(n->dk, clean->dk, 41, TOKENS) && same(n->dv, clean->dv, 41, TOKENS));
    n->q[40 * DIM + 3] = clean->q[40 * DIM + 3];
    n->k[70 * DIM] = NAN; /* the rows 70 to 89 see it */
    run_both(n, 2, lengths);
    TEST_ASSERT_TRUE(same(n->out, clean->out, 0, 70) && all_nan(n->out, 70, 90));
    TEST_ASSERT_TRUE(same(n->dq, clean->dq, 0, 70) && all_nan(n->dq, 70, 90));
    TEST_ASSERT_TRUE(same(n->out, clean->out, 90, TOKENS) && same(n->dq, clean->dq, 90, TOKENS));
    TEST_ASSERT_TRUE(same(n->dk, clean->dk, 90, TOKENS) && same(n->dv, clean->dv, 90, TOKENS));
    n->k[70 * DIM] = clean->k[70 * DIM];
    n->v[70 * DIM + 5] = NAN;
    run_both(n, 2, lengths);
    TEST_ASSERT_TRUE(same(n->out, clean->out, 0, 70) && same(n->out, clean->out, 90, TOKENS));
    TEST_ASSERT_TRUE(isnan(n->out[89 * DIM + 5]) && !isnan(n->out[89 * DIM + 4]));
    TEST_ASSERT_TRUE(memcmp(n->lse, clean->lse, sizeof n->lse) == 0);
    free(clean);
    free(n);
}

static void test_bad_calls(void)
{
    static const int32_t lengths[] = {100, 50}, longer[] = {100, 51}, negative[] = {-1};
    numbers *n = make_numbers();
    ta_attention_config config = good_config();
    ta_attention *plan;
    ta_attention_input input = input_of(n, 2, lengths);
    ta_attention_gradient gradient = gradient_of(n);
    ta_tensor out = {n->out, 0, 0, 0}, narrow = {n->out, 0, DIM / 2, 0};
    config.forward_only = 1;
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(NULL, &input, &out, NULL, NULL), "attention",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(plan, NULL, &out, NULL, NULL), "input", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(plan, &input, NULL, NULL, NULL), "out", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(plan, &input, &narrow, NULL, NULL),
                 "out.token_stride", "overlap");
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(plan, &input, &out, NULL, n), "stream", NULL);
    EXPECT_ERROR(TA_ERR_INVALID,
                 ta_attention_forward(plan, &input, &out, (float *)((char *)n->lse + 1), NULL),
                 "lse", "aligned");
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_backward(plan, &input, &gradient, NULL),
                 "forward_only", NULL);
    input.lengths = longer;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(plan, &input, &out, NULL, NULL), "151 tokens",
                 "max_tokens");
    input.lengths = negative;
    input.sequences = 1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(plan, &input, &out, NULL, NULL),
                 "input.lengths[0] is -1", NULL);
    input.lengths = lengths;
    input.q.data = NULL;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_forward(plan, &input, &out, NULL, NULL), "input.q",
                 "100 tokens");
    TEST_ASSERT_EQUAL_FLOAT(0.0f, n->out[0]); /* none of them wrote */
    ta_attention_destroy(plan);
    free(n);
}

/* ---- Workspace and stats --------------------------------------------------------------------- */

static void test_a_workspace_of_the_caller(void)
{
    static const int32_t lengths[] = {100, 50};
    numbers *own = make_numbers(), *n = make_numbers();
    ta_attention_config config = good_config();
    ta_attention *plan = NULL;
    ta_tensor out = {n->out, 0, 0, 0};
    ta_attention_input input = input_of(n, 2, lengths);
    ta_attention_gradient gradient = gradient_of(n);
    size_t bytes = 0;
    run_both(own, 2, lengths);
    EXPECT_OK(ta_attention_workspace(NULL, device, &config, &bytes));
    TEST_ASSERT_TRUE(bytes > 0 && bytes % 64 == 0);
    char *memory = aligned_alloc(64, bytes + 64);
    memset(memory, 0xff, bytes + 64); /* NaN */
    config.workspace = memory;
    config.workspace_bytes = bytes - 1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, device, &config, &plan),
                 "config.workspace_bytes", NULL);
    config.workspace = memory + 4;
    config.workspace_bytes = bytes;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_create(NULL, device, &config, &plan),
                 "config.workspace", "aligned to 64");
    config.workspace = memory;
    uint64_t held = device->stats.bytes_held;
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    TEST_ASSERT_EQUAL_UINT64(held, device->stats.bytes_held);
    EXPECT_OK(ta_attention_forward(plan, &input, &out, n->lse, NULL));
    EXPECT_OK(ta_attention_backward(plan, &input, &gradient, NULL));
    ta_attention_destroy(plan);
    TEST_ASSERT_EQUAL_MEMORY(own, n, sizeof *n); /* the same bits as in memory of its own */
    for (size_t i = bytes; i < bytes + 64; ++i)
        TEST_ASSERT_EQUAL_HEX8(0xff, memory[i]);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_workspace(NULL, device, &config, NULL), "bytes",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_workspace(NULL, NULL, &config, &bytes), "device",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_workspace(NULL, device, NULL, &bytes), "config",
                 NULL);
    config.k_dim = 9;
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_workspace(NULL, device, &config, &bytes),
                 "config.k_dim", NULL);
    free(memory);
    free(own);
    free(n);
}

/* What a rank asks for is what its plan takes, for every algorithm and grid. */
static ta_status workspace_rank(ta_group *group, void *context)
{
    ta_attention_config config = *(ta_attention_config *)context;
    ta_attention_stats stats = TA_ATTENTION_STATS_INIT;
    ta_device *own;
    ta_attention *plan;
    size_t bytes = 0;
    TA_TRY(ta_device_open("host", NULL, &own));
    TA_TRY(ta_attention_workspace(group, own, &config, &bytes));
    TA_TRY(ta_attention_create(group, own, &config, &plan));
    TA_TRY(ta_attention_get_stats(plan, &stats));
    RANK_EXPECT(stats.workspace_bytes == bytes && stats.device_bytes == bytes);
    RANK_EXPECT(stats.algorithm == config.algorithm);
    RANK_EXPECT(stats.grid_rows == config.grid_rows && stats.grid_columns == config.grid_columns);
    ta_attention_destroy(plan);
    RANK_EXPECT(own->stats.bytes_held == 0 && own->stats.bytes_held_most == bytes);
    ta_device_close(own);
    return TA_OK;
}

static void test_workspaces_of_ranks(void)
{
    for (int algorithm = TA_ATTENTION_GRID; algorithm <= TA_ATTENTION_GRID_OVERLAP; ++algorithm)
        for (int rows = 1; rows <= 4; rows *= 2) {
            ta_attention_config config = good_config();
            config.algorithm = (ta_attention_algorithm)algorithm;
            config.grid_rows = algorithm == TA_ATTENTION_RING ? 0 : rows;
            config.grid_columns = algorithm == TA_ATTENTION_RING ? 0 : 4 / rows;
            EXPECT_OK(ta_group_run_threads(4, NULL, workspace_rank, &config));
        }
}

static void test_stats(void)
{
    static const int32_t lengths[] = {100, 50};
    numbers *n = make_numbers();
    ta_attention_config config = good_config();
    ta_attention *plan;
    ta_attention_input input = input_of(n, 2, lengths);
    ta_attention_gradient gradient = gradient_of(n);
    ta_tensor out = {n->out, 0, 0, 0};
    ta_attention_stats s = TA_ATTENTION_STATS_INIT, unset = {0};
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    EXPECT_OK(ta_attention_get_stats(plan, &s));
    TEST_ASSERT_TRUE(!s.forward_calls && !s.backward_calls && !s.forward_ns && !s.backward_ns);
    TEST_ASSERT_EQUAL_INT(TA_ATTENTION_GRID, s.algorithm); /* what AUTO became */
    TEST_ASSERT_TRUE(s.grid_rows == 1 && s.grid_columns == 1);
    for (int i = 0; i < 3; ++i)
        EXPECT_OK(ta_attention_forward(plan, &input, &out, n->lse, NULL));
    EXPECT_OK(ta_attention_backward(plan, &input, &gradient, NULL));
    EXPECT_OK(ta_attention_get_stats(plan, &s));
    TEST_ASSERT_TRUE(s.forward_calls == 3 && s.backward_calls == 1);
    TEST_ASSERT_TRUE(s.forward_attend_ns > 0 && s.forward_attend_ns <= s.forward_ns);
    TEST_ASSERT_TRUE(s.backward_attend_ns > 0 && s.backward_attend_ns <= s.backward_ns);
    TEST_ASSERT_TRUE(s.workspace_bytes > 0 && s.device_bytes == s.workspace_bytes);
    TEST_ASSERT_TRUE(s.device_bytes_most >= s.device_bytes);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_get_stats(NULL, &s), "attention", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_get_stats(plan, NULL), "stats", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_attention_get_stats(plan, &unset), "stats", NULL);
    ta_attention_destroy(plan);
    free(n);
}

/* ---- Several ranks ------------------------------------------------------------------------- */

static ta_status differing_plans(ta_group *group, void *context)
{
    ta_attention_config config = good_config();
    ta_device *own;
    ta_attention *plan = NULL;
    (void)context;
    TA_TRY(ta_device_open("host", NULL, &own));
    config.window = ta_group_rank(group) == 2 ? 7 : 8;
    RANK_EXPECT(ta_attention_create(group, own, &config, &plan) == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "config.window"));
    config.k_dim = ta_group_rank(group) == 1 ? 9 : DIM;
    ta_status status = ta_attention_create(group, own, &config, &plan);
    RANK_EXPECT(status == (ta_group_rank(group) == 1 ? TA_ERR_INVALID : TA_ERR_MISMATCH) && !plan);
    RANK_EXPECT(strstr(ta_last_error(), "config.k_dim is 9"));
    RANK_EXPECT(ta_group_rank(group) == 1 || strstr(ta_last_error(), "rank 1"));
    ta_device_close(own);
    return TA_OK;
}

static void test_plans_must_agree(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, differing_plans, NULL));
}

/* A bad argument on one rank is an error on all, and the next call is right. */
static ta_status faulty_calls(ta_group *group, void *context)
{
    ta_attention_config config = good_config();
    ta_device *own;
    ta_attention *plan;
    numbers *n = make_numbers();
    int32_t length = 30;
    (void)context;
    TA_TRY(ta_device_open("host", NULL, &own));
    config.grid_rows = config.grid_columns = 2;
    TA_TRY(ta_attention_create(group, own, &config, &plan));
    ta_attention_input input = input_of(n, 1, &length);
    ta_tensor out = {n->out, 0, 0, 0};
    if (ta_group_rank(group) == 3)
        input.k.data = NULL;
    ta_status status = ta_attention_forward(plan, &input, &out, NULL, NULL);
    RANK_EXPECT(status == TA_ERR_INVALID && n->out[0] == 0.0f);
    RANK_EXPECT(strstr(ta_last_error(), ta_group_rank(group) == 3 ? "input.k" : "rank 3"));
    input.k.data = n->k;
    length = ta_group_rank(group) == 1 ? 29 : 30;
    RANK_EXPECT(ta_attention_forward(plan, &input, &out, NULL, NULL) == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "input.lengths[0] is 29 on rank 1 and 30 on rank 0"));
    length = 30;
    RANK_EXPECT(ta_attention_forward(plan, &input, &out, n->lse, NULL) == TA_OK);
    RANK_EXPECT(n->out[0] != 0.0f);
    ta_attention_destroy(plan);
    ta_device_close(own);
    free(n);
    return TA_OK;
}

static void test_faults_reach_all_ranks(void)
{
    EXPECT_OK(ta_group_run_threads(4, NULL, faulty_calls, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_bad_configs);
    RUN_TEST(test_a_device_without_it);
    RUN_TEST(test_a_device_without_the_dtype);
    RUN_TEST(test_decode_plans_refuse_zigzag);
    RUN_TEST(test_traffic_of_grids);
    RUN_TEST(test_traffic_falls_with_the_ranks);
    RUN_TEST(test_memory);
    RUN_TEST(test_nan_reaches_what_depends_on_it);
    RUN_TEST(test_bad_calls);
    RUN_TEST(test_a_workspace_of_the_caller);
    RUN_TEST(test_workspaces_of_ranks);
    RUN_TEST(test_stats);
    RUN_TEST(test_plans_must_agree);
    RUN_TEST(test_faults_reach_all_ranks);
    return UNITY_END() != 0;
}
