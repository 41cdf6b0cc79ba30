/* Attention plans on a GPU beside their results (test_gpu_attention.c), on the executor: against
 * the host, what a NaN may reach, calls that are far ahead of the device, capture, and errors of
 * one rank of a group of GPUs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/attention.h>

#include "device/device.h"
#include "lib/attention_check.h"
#include "lib/attention_plan.h"
#include "lib/case.h"
#include "lib/expect.h"
#include "lib/number.h"
#include "lib/options.h"
#include "simt/simt_control.h"

#define TOKENS 70
#define DIM 24
#define NUMBERS (TOKENS * DIM)

static ta_device *device;

void setUp(void)
{
    options.device = "simt";
    attention_settings = simt_settings;
    options.ccl = false;
    EXPECT_OK(ta_device_open("simt", NULL, &device));
}

void tearDown(void)
{
    ta_device_close(device);
}

/* ---- Against the host ---------------------------------------------------------------------- */

static const char *const kinds[5] = {"out", "lse", "dq", "dk", "dv"};

static void make_kept(const attention_case *c, double *(*kept)[ATTENTION_SEQUENCES])
{
    const oracle_problem *p = &c->problem;
    int each[5] = {p->query_heads * p->v_dim, p->query_heads, p->query_heads * p->k_dim,
                   p->kv_heads * p->k_dim, p->kv_heads * p->v_dim};
    for (int kind = 0; kind < 5; ++kind)
        for (int s = 0; s < c->sequences; ++s)
            kept[kind][s] = calloc((size_t)(c->lengths[s] * each[kind]) + 1, sizeof(double));
}

static void compare_kept(const attention_case *c, const attention_run *run, int kind, int s,
                         const double *host, const double *gpu)
{
    const oracle_problem *p = &c->problem;
    const gradient_sequence *e = &c->exact[s];
    const gradient_numbers *all[] = {&e->out, &e->lse, &e->dq, &e->dk, &e->dv};
    int each[5] = {p->query_heads * p->v_dim, p->query_heads, p->query_heads * p->k_dim,
                   p->kv_heads * p->k_dim, p->kv_heads * p->v_dim};
    for (int64_t i = 0; i < (int64_t)c->lengths[s] * each[kind]; ++i) {
        char text[900];
        if (bound_compare(host[i], 2 * all[kind]->bound[i], gpu[i]) <= 1)
            continue;
        snprintf(text, sizeof text, "%s[%lld] is %.9g on the host and %.9g on the GPU: %s [%s]",
                 kinds[kind], (long long)i, host[i], gpu[i], attention_describe(c, run),
                 simt_settings());
        TEST_FAIL_MESSAGE(text);
    }
}

static void test_against_the_host(void)
{
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype) {
        double *host[5][ATTENTION_SEQUENCES] = {{NULL}}, *gpu[5][ATTENTION_SEQUENCES] = {{NULL}};
        attention_case c = {.seed = 40 + (uint64_t)dtype, .dtype = (ta_dtype)dtype, .sequences = 3};
        attention_run run = {.ranks = 1, .kept = host};
        c.problem = (oracle_problem){.query_heads = 4,
                                     .kv_heads = 2,
                                     .k_dim = 40,
                                     .v_dim = 24,
                                     .causal = dtype != TA_F16,
                                     .window = dtype == TA_F32 ? 20 : 0,
                                     .softcap = dtype == TA_BF16 ? 5 : 0,
                                     .scale = 0.2f};
        c.lengths[0] = 45;
        c.lengths[2] = 70;
        make_kept(&c, host);
        make_kept(&c, gpu);
        attention_case_make(&c, 1);
        options.device = "host";
        (void)attention_run_case(&c, &run);
        options.device = "simt";
        run.kept = gpu;
        (void)attention_run_case(&c, &run);
        for (int kind = 0; kind < 5; ++kind)
            for (int s = 0; s < c.sequences; ++s) {
                compare_kept(&c, &run, kind, s, host[kind][s], gpu[kind][s]);
                free(host[kind][s]);
                free(gpu[kind][s]);
            }
        attention_case_free(&c);
    }
}

/* ---- Numbers of a call with one head ------------------------------------------------------- */

enum { Q, K, V, DOUT, OUT, DQ, DK, DV, TENSORS };

typedef struct numbers {
    ta_dtype dtype;
    double all[TENSORS][NUMBERS], lse[TOKENS];
} numbers;

static numbers *make_numbers(ta_dtype dtype)
{
    numbers *n = calloc(1, sizeof *n);
    random_source source = random_from(3);
    n->dtype = dtype;
    for (int t = 0; t <= DOUT; ++t)
        for (int i = 0; i < NUMBERS; ++i)
            n->all[t][i] = random_normal(&source);
    return n;
}

static ta_attention_config good_config(ta_dtype dtype)
{
    return attention_small_config(dtype, DIM, TOKENS);
}

/* Device memory with these numbers. */
static void *upload(ta_device *on, ta_dtype dtype, const double *from, int count)
{
    size_t bytes = (size_t)count * number_bytes(dtype);
    void *host = malloc(bytes), *memory;
    for (int i = 0; i < count; ++i)
        number_encode(dtype, host, i, from[i]);
    EXPECT_OK(on->ops->alloc(on, bytes, &memory));
    EXPECT_OK(on->ops->copy(on, memory, host, bytes, NULL));
    free(host);
    return memory;
}

static void download(ta_device *on, ta_dtype dtype, double *to, const void *memory, int count)
{
    size_t bytes = (size_t)count * number_bytes(dtype);
    void *host = malloc(bytes);
    EXPECT_OK(on->ops->copy(on, host, memory, bytes, NULL));
    EXPECT_OK(on->ops->synchronize(on, NULL));
    for (int i = 0; i < count; ++i)
        to[i] = number_decode(dtype, host, i);
    free(host);
}

static void run_both(numbers *n, int32_t sequences, const int32_t *lengths)
{
    ta_attention_config config = good_config(n->dtype);
    ta_attention *plan;
    void *at[TENSORS], *lse = upload(device, TA_F32, n->lse, TOKENS);
    for (int t = 0; t < TENSORS; ++t)
        at[t] = upload(device, n->dtype, n->all[t], NUMBERS);
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_attention_gradient gradient = TA_ATTENTION_GRADIENT_INIT;
    ta_tensor out = {at[OUT], 0, 0, 0};
    input.sequences = sequences;
    input.lengths = lengths;
    input.q.data = at[Q];
    input.k.data = at[K];
    input.v.data = at[V];
    gradient.out.data = at[OUT];
    gradient.dout.data = at[DOUT];
    gradient.lse = lse;
    gradient.dq.data = at[DQ];
    gradient.dk.data = at[DK];
    gradient.dv.data = at[DV];
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    EXPECT_OK(ta_attention_forward(plan, &input, &out, lse, NULL));
    EXPECT_OK(ta_attention_backward(plan, &input, &gradient, NULL));
    for (int t = 0; t < TENSORS; ++t) {
        download(device, n->dtype, n->all[t], at[t], NUMBERS);
        device->ops->free(device, at[t]);
    }
    download(device, TA_F32, n->lse, lse, TOKENS);
    device->ops->free(device, lse);
    ta_attention_destroy(plan);
}

static int same(const numbers *a, const numbers *b, int tensor, int first, int end)
{
    return memcmp(a->all[tensor] + first * DIM, b->all[tensor] + first * DIM,
                  (size_t)(end - first) * DIM * sizeof(double)) == 0;
}

static int all_nan(const numbers *n, int tensor, int first, int end)
{
    for (int i = first * DIM; i < end * DIM; ++i)
        if (!isnan(n->all[tensor][i]))
            return 0;
    return 1;
}

/* A NaN in a query, a key or a value, or an infinity, reaches what depends on it, and no bit of
 * anything else. */
static void test_nan_reaches_what_depends_on_it(void)
{
    static const int32_t lengths[] = {50, 20};
    for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype) {
        numbers *clean = make_numbers((ta_dtype)dtype), *n = make_numbers((ta_dtype)dtype);
        run_both(clean, 2, lengths);
        n->all[Q][30 * DIM + 3] = NAN; /* row 30, which sees the keys 0 to 30 */
        run_both(n, 2, lengths);
        TEST_ASSERT_TRUE(same(n, clean, OUT, 0, 30) && same(n, clean, OUT, 31, TOKENS));
        TEST_ASSERT_TRUE(all_nan(n, OUT, 30, 31) && isnan(n->lse[30]) && all_nan(n, DQ, 30, 31));
        TEST_ASSERT_TRUE(same(n, clean, DQ, 0, 30) && same(n, clean, DQ, 31, TOKENS));
        TEST_ASSERT_TRUE(all_nan(n, DK, 0, 31) && all_nan(n, DV, 0, 31));
        TEST_ASSERT_TRUE(same(n, clean, DK, 31, TOKENS) && same(n, clean, DV, 31, TOKENS));
        free(n);
        n = make_numbers((ta_dtype)dtype);
        n->all[K][40 * DIM] = NAN; /* the rows 40 to 49 see it */
        run_both(n, 2, lengths);
        TEST_ASSERT_TRUE(same(n, clean, OUT, 0, 40) && all_nan(n, OUT, 40, 50));
        TEST_ASSERT_TRUE(same(n, clean, DQ, 0, 40) && all_nan(n, DQ, 40, 50));
        TEST_ASSERT_TRUE(same(n, clean, OUT, 50, TOKENS) && same(n, clean, DQ, 50, TOKENS));
        TEST_ASSERT_TRUE(same(n, clean, DK, 50, TOKENS) && same(n, clean, DV, 50, TOKENS));
        free(n);
        n = make_numbers((ta_dtype)dtype);
        n->all[V][40 * DIM + 5] = dtype == TA_F16 ? INFINITY : NAN;
        run_both(n, 2, lengths);
        TEST_ASSERT_TRUE(same(n, clean, OUT, 0, 40) && same(n, clean, OUT, 50, TOKENS));
        TEST_ASSERT_TRUE(same(n, clean, DQ, 0, 40) && same(n, clean, DQ, 50, TOKENS));
        TEST_ASSERT_FALSE(isfinite(n->all[OUT][49 * DIM + 5]));
        TEST_ASSERT_TRUE(isfinite(n->all[OUT][49 * DIM + 4]));
        TEST_ASSERT_TRUE(memcmp(n->lse, clean->lse, sizeof n->lse) == 0);
        free(clean);
        free(n);
    }
}

/* ---- Calls ahead of the device ------------------------------------------------------------- */

/* Every call has lengths of its own, and all are queued before the first has run: more of them than
 * there are pieces of pinned memory for their arrays. */
static void test_calls_ahead_of_the_device(void)
{
    enum { CALLS = 11 };
    ta_attention_config config = good_config(TA_F32);
    ta_attention *plan;
    numbers *n = make_numbers(TA_F32);
    void *q = upload(device, TA_F32, n->all[Q], NUMBERS), *out[2][CALLS];
    void *k = upload(device, TA_F32, n->all[K], NUMBERS);
    void *v = upload(device, TA_F32, n->all[V], NUMBERS);
    hipStream_t stream;
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    EXPECT_OK(device->ops->synchronize(device, NULL));
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    for (int waits = 0; waits < 2; ++waits)
        for (int i = 0; i < CALLS; ++i) {
            ta_attention_input input = TA_ATTENTION_INPUT_INIT;
            int32_t lengths[2] = {5 + 3 * i, TOKENS - 5 - 3 * i};
            out[waits][i] = upload(device, TA_F32, n->all[OUT], NUMBERS);
            EXPECT_OK(device->ops->synchronize(device, NULL));
            ta_tensor to = {out[waits][i], 0, 0, 0};
            input.sequences = 2;
            input.lengths = lengths;
            input.q.data = q;
            input.k.data = k;
            input.v.data = v;
            EXPECT_OK(ta_attention_forward(plan, &input, &to, NULL, stream));
            lengths[0] = lengths[1] = -1; /* read already */
            if (waits)
                EXPECT_OK(device->ops->synchronize(device, stream));
        }
    EXPECT_OK(device->ops->synchronize(device, stream));
    for (int i = 0; i < CALLS; ++i) {
        numbers *other = make_numbers(TA_F32);
        download(device, TA_F32, n->all[OUT], out[0][i], NUMBERS);
        download(device, TA_F32, other->all[OUT], out[1][i], NUMBERS);
        TEST_ASSERT_TRUE(same(n, other, OUT, 0, TOKENS));
        device->ops->free(device, out[0][i]);
        device->ops->free(device, out[1][i]);
        free(other);
    }
    device->ops->free(device, q);
    device->ops->free(device, k);
    device->ops->free(device, v);
    ta_attention_destroy(plan);
    (void)hipStreamDestroy(stream);
    free(n);
}

static void test_capture_is_refused(void)
{
    ta_attention_config config = good_config(TA_F32);
    ta_attention *plan;
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    ta_tensor out = {NULL, 0, 0, 0};
    hipStream_t stream;
    hipGraph_t graph;
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    EXPECT_OK(ta_attention_create(NULL, device, &config, &plan));
    TEST_ASSERT_EQUAL_INT(hipSuccess,
                          hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_attention_forward(plan, &input, &out, NULL, stream),
                 "captured", NULL);
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipStreamEndCapture(stream, &graph));
    TEST_ASSERT_EQUAL_INT(hipSuccess, hipGraphDestroy(graph));
    ta_attention_destroy(plan);
    (void)hipStreamDestroy(stream);
}

/* ---- Several GPUs -------------------------------------------------------------------------- */

/* A bad argument on one rank is an error on all, and the next call is right. */
static ta_status faulty_calls(ta_group *threads, void *context)
{
    ta_attention_config config = good_config(TA_F32);
    ta_device *own, *other;
    ta_group *group;
    ta_attention *plan = NULL;
    numbers *n = make_numbers(TA_F32);
    int32_t length = 30;
    (void)context;
    TA_TRY(case_rank_open(threads, "simt", NULL, &own, &group));
    TA_TRY(ta_device_open("host", NULL, &other));
    RANK_EXPECT(ta_attention_create(group, other, &config, &plan) == TA_ERR_INVALID);
    RANK_EXPECT(strstr(ta_last_error(), "simt") && !plan);
    config.grid_rows = 2;
    config.grid_columns = 1;
    config.window = ta_group_rank(group) ? 7 : 8;
    RANK_EXPECT(ta_attention_create(group, own, &config, &plan) == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "config.window"));
    config.window = 0;
    TA_TRY(ta_attention_create(group, own, &config, &plan));
    ta_attention_input input = TA_ATTENTION_INPUT_INIT;
    void *at[3] = {upload(own, TA_F32, n->all[Q], NUMBERS), upload(own, TA_F32, n->all[K], NUMBERS),
                   upload(own, TA_F32, n->all[OUT], NUMBERS)};
    ta_tensor out = {at[2], 0, 0, 0};
    input.sequences = 1;
    input.lengths = &length;
    input.q.data = at[0];
    input.v.data = at[1];
    input.k.data = ta_group_rank(group) == 1 ? NULL : at[1];
    RANK_EXPECT(ta_attention_forward(plan, &input, &out, NULL, NULL) == TA_ERR_INVALID);
    RANK_EXPECT(strstr(ta_last_error(), ta_group_rank(group) == 1 ? "input.k" : "rank 1"));
    input.k.data = at[1];
    length = ta_group_rank(group) == 1 ? 29 : 30;
    RANK_EXPECT(ta_attention_forward(plan, &input, &out, NULL, NULL) == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "lengths"));
    length = 30;
    RANK_EXPECT(ta_attention_forward(plan, &input, &out, NULL, NULL) == TA_OK);
    download(own, TA_F32, n->all[OUT], at[2], NUMBERS);
    RANK_EXPECT(n->all[OUT][0] != 0);
    for (int i = 0; i < 3; ++i)
        own->ops->free(own, at[i]);
    ta_attention_destroy(plan);
    ta_device_close(other);
    case_rank_close(threads, own, group);
    free(n);
    return TA_OK;
}

static void test_faults_reach_all_ranks(void)
{
    options.ccl = true;
    EXPECT_OK(ta_group_run_threads(2, NULL, faulty_calls, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_against_the_host);
    RUN_TEST(test_nan_reaches_what_depends_on_it);
    RUN_TEST(test_calls_ahead_of_the_device);
    RUN_TEST(test_capture_is_refused);
    RUN_TEST(test_faults_reach_all_ranks);
    return UNITY_END() != 0;
}
