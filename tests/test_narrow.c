/* K and V of 8 bits through the public interface: features in combination, drawn at random, on odd
 * numbers of ranks and in every algorithm; dialects that must not be taken for each other; codes
 * that are no numbers; and bad scales. test_decode and test_append draw 8 bits too, test_dtype,
 * test_host_kernels and test_simt_narrow have every code. On the executor also with instructions
 * for 8 bits, TA_SIMT_NARROW: so bytes of OCP come to a device that reads FNUZ, as gfx942 does.
 * `test_narrow --seed N` runs one of the random cases again. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "lib/case.h"
#include "lib/device_array.h"
#include "lib/expect.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "lib/plan_config.h"
#include "lib/seed_main.h"
#include "lib/spoiled_call.h"

static bound_worst worst;

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- Combinations ---- */

static void run_seed(uint64_t seed)
{
    static const int ranks[] = {1, 3, 5, 7};
    decode_case c = case_combined(seed, ranks[seed % 4]);
    expect_case(&c, &worst);
}

static void test_combinations(void)
{
    run_seeds(run_seed, 0, options.cases ? options.cases : options_host() ? 400 : 12);
}

/* Both orders of the axes, one row and many, lengths around the blocks of tokens. */
static void test_shapes(void)
{
    static const int lengths[] = {1, 63, 64, 65, 257, 513, 1200};
    for (int i = 0; i < 7 * 16; ++i) {
        decode_case c = case_grouped(8 << i % 5, lengths[i % 7]);
        c.seed = (uint64_t)i;
        c.plan.query_heads = c.plan.kv_heads << i / 7 % 4;
        c.plan.kv_dtype = (ta_dtype)(NUMBER_DTYPE_END + i % 4);
        c.plan.query_dtype = i % 3 ? TA_BF16 : TA_F32;
        c.plan.out_dtype = TA_F32;
        c.k.strides_given = c.v.strides_given = true;
        c.k.order = i / 28 % 2;
        c.v.order = i / 14 % 2;
        c.k_scale = (case_scales)(i % 4);
        c.v_scale = (case_scales)(i / 4 % 4);
        if (options_chosen(c.seed))
            expect_case(&c, &worst);
    }
}

/* ---- Dialects and codes ---- */

enum { TOKENS = 3, HEADS = 2, DIM = 16 };

/* One rank, one sequence, one query token, all in f32 but for the cache. */
typedef struct small {
    ta_plan_config config;
    float q[HEADS * DIM], out[HEADS * DIM];
    uint8_t k[TOKENS * HEADS * DIM], v[TOKENS * HEADS * DIM];
    float k_scales[HEADS], v_scales[HEADS];
    int32_t lengths[1];
    ta_kv kv;
} small;

static void init(void *call)
{
    small *s = call;
    memset(s, 0, sizeof *s);
    s->config = plan_config(TA_E4M3, 1, HEADS, DIM, TOKENS);
    s->config.query_dtype = TA_F32;
    s->config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    s->config.map.block = TOKENS;
    for (int i = 0; i < HEADS * DIM; ++i) {
        s->q[i] = 1.0f;
        s->out[i] = 77.0f;
    }
    memset(s->v, 0x38, sizeof s->v); /* 1, and with a bias of 8 a half */
    s->k_scales[0] = s->k_scales[1] = 0.5f;
    s->v_scales[0] = 2.0f;
    s->v_scales[1] = 3.0f;
    s->lengths[0] = TOKENS;
    s->kv = (ta_kv)TA_KV_INIT;
    s->kv.k.data = s->k;
    s->kv.v.data = s->v;
    s->kv.lengths = s->lengths;
    s->kv.k_scale = (ta_scales){s->k_scales, 0, 0, 1};
    s->kv.v_scale = (ta_scales){s->v_scales, 0, 0, 1};
}

static ta_status make(void *call, ta_plan *plan)
{
    small *s = call;
    ta_tensor q = {s->q, 0, 0, 0}, out = {s->out, 0, 0, 0};
    return ta_decode(plan, &q, &s->kv, &out, NULL, NULL, NULL);
}

static bool is_untouched(const void *call)
{
    const small *s = call;
    for (int i = 0; i < HEADS * DIM; ++i)
        if (s->out[i] != 77.0f)
            return false;
    return true;
}

static bool is_right(const void *call, int rank)
{
    const small *s = call;
    (void)rank;
    for (int i = 0; i < HEADS * DIM; ++i)
        if (s->out[i] != (i < DIM ? 2.0f : 3.0f))
            return false;
    return true;
}

static void decode_small(small *s)
{
    ta_device *device;
    ta_plan *plan;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s->config, &plan));
    EXPECT_OK(make(s, plan));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* The same bytes are other numbers in another dialect: the type says which. */
static void test_the_type_says_the_dialect(void)
{
    static const float ones[] = {1.0f, 0.5f, 0.5f, 0.25f}; /* 0x38 in each */
    for (int i = 0; i < 4; ++i) {
        small s;
        init(&s);
        s.config.kv_dtype = (ta_dtype)(TA_E4M3 + (i % 2) * 2 + i / 2);
        decode_small(&s);
        TEST_ASSERT_TRUE(s.out[0] == 2.0f * ones[i]);
        TEST_ASSERT_TRUE(s.out[DIM] == 3.0f * ones[i]);
    }
}

/* A sequence for each code, on the device that the program was told to use. */
enum { CODES = 256, WIDE_DIM = 128 };

typedef struct coded {
    int dim, tokens;
    ta_device *device;
    device_array q, k, v, lengths, scales, out;
} coded;

static void coded_open(coded *c, int dim, int tokens)
{
    size_t vectors = (size_t)(CODES * HEADS * dim), cache = vectors * (size_t)tokens;
    c->dim = dim;
    c->tokens = tokens;
    EXPECT_OK(ta_device_open(options.device, NULL, &c->device));
    EXPECT_OK(device_array_make(c->device, vectors, 2, &c->q));
    EXPECT_OK(device_array_make(c->device, cache, 1, &c->k));
    EXPECT_OK(device_array_make(c->device, cache, 1, &c->v));
    EXPECT_OK(device_array_make(c->device, CODES, sizeof(int32_t), &c->lengths));
    EXPECT_OK(device_array_make(c->device, HEADS, sizeof(float), &c->scales));
    EXPECT_OK(device_array_make(c->device, vectors, sizeof(float), &c->out));
    for (size_t i = 0; i < vectors; ++i)
        ((uint16_t *)c->q.host)[i] = 0x3f80; /* 1 in bf16 */
    for (int i = 0; i < CODES; ++i)
        ((int32_t *)c->lengths.host)[i] = tokens;
    ((float *)c->scales.host)[0] = 2.0f;
    ((float *)c->scales.host)[1] = 3.0f;
    memset(c->v.host, 0x38, cache);
}

static void coded_close(coded *c)
{
    device_array *arrays[] = {&c->q, &c->k, &c->v, &c->lengths, &c->scales, &c->out};
    for (int i = 0; i < 6; ++i)
        device_array_free(arrays[i]);
    ta_device_close(c->device);
}

static void coded_decode(coded *c, ta_dtype dtype)
{
    ta_plan *plan;
    ta_plan_config config = plan_config(dtype, CODES, HEADS, c->dim, c->tokens);
    ta_kv kv = TA_KV_INIT;
    ta_tensor q = {.data = c->q.device}, out = {.data = c->out.device};
    const device_array *given[] = {&c->q, &c->k, &c->v, &c->lengths, &c->scales};
    config.query_dtype = TA_BF16;
    config.out_dtype = TA_F32;
    kv.k.data = c->k.device;
    kv.v.data = c->v.device;
    kv.lengths = c->lengths.device;
    kv.v_scale = (ta_scales){c->scales.device, 0, 0, 1};
    for (int i = 0; i < 5; ++i)
        EXPECT_OK(device_array_to(given[i], NULL));
    EXPECT_OK(ta_plan_create(NULL, c->device, &config, &plan));
    EXPECT_OK(ta_decode(plan, &q, &kv, &out, NULL, NULL, NULL));
    EXPECT_OK(device_array_from(&c->out, NULL));
    ta_plan_destroy(plan);
}

static void check_coded(const coded *c, ta_dtype dtype, int code, int head, int d, bool right)
{
    char text[160];
    if (right)
        return;
    float got = ((const float *)c->out.host)[(code * HEADS + head) * c->dim + d];
    snprintf(text, sizeof text, "dtype %d, code 0x%02x, %d dimensions: head %d, element %d is %g",
             (int)dtype, (unsigned)code, c->dim, head, d, (double)got);
    TEST_FAIL_MESSAGE(text);
}

/* In an element of a key of head 1: a NaN reaches its head alone. */
static void check_keys(coded *c, ta_dtype dtype)
{
    size_t token = (size_t)(HEADS * c->dim);
    for (size_t code = 0; code < CODES; ++code)
        ((uint8_t *)c->k.host)[(code * (size_t)c->tokens + 1) * token + (size_t)c->dim] =
            (uint8_t)code;
    coded_decode(c, dtype);
    for (int code = 0; code < CODES; ++code) {
        uint8_t byte = (uint8_t)code;
        double number = number_decode(dtype, &byte, 0);
        bool lost = isnan(number) || number == INFINITY;
        for (int d = 0; d < c->dim; ++d) {
            const float *out = (const float *)c->out.host + code * HEADS * c->dim;
            check_coded(c, dtype, code, 0, d, !isnan(out[d]));
            check_coded(c, dtype, code, 1, d, isnan(out[c->dim + d]) == lost);
        }
    }
}

/* In all values of a single token, which come out as they are. */
static void check_values(coded *c, ta_dtype dtype)
{
    size_t token = (size_t)(HEADS * c->dim);
    for (size_t code = 0; code < CODES; ++code)
        memset((uint8_t *)c->v.host + code * token, (int)code, token);
    coded_decode(c, dtype);
    for (int code = 0; code < CODES; ++code) {
        uint8_t byte = (uint8_t)code;
        double number = number_decode(dtype, &byte, 0);
        for (int d = 0; d < HEADS * c->dim; ++d) {
            float got = ((const float *)c->out.host)[code * HEADS * c->dim + d];
            float expected = (float)((d < c->dim ? 2 : 3) * number);
            bool right = isnan(number) ? isnan(got) : got == expected;
            if (isinf(number) && !options_host()) /* a part of a weight can be 0: numerics.md */
                right = !isfinite(got);
            check_coded(c, dtype, code, d / c->dim, d % c->dim, right);
        }
    }
}

/* Every code in a key and in a value; −0 is a zero but in FNUZ. */
static void test_every_code_of_a_cache(void)
{
    static const int dims[] = {DIM, WIDE_DIM};
    for (int i = 0; i < 2; ++i)
        for (int dtype = TA_E4M3; dtype <= TA_E5M2_FNUZ; ++dtype) {
            coded keys, values;
            coded_open(&keys, dims[i], TOKENS);
            check_keys(&keys, (ta_dtype)dtype);
            coded_close(&keys);
            coded_open(&values, dims[i], 1);
            check_values(&values, (ta_dtype)dtype);
            coded_close(&values);
        }
}

/* ---- Bad input ---- */

SPOIL(misaligned, s->kv.k_scale.data = (float *)(void *)((char *)s->k_scales + 1))
SPOIL(misaligned_values, s->kv.v_scale.data = (float *)(void *)((char *)s->v_scales + 2))
SPOIL(negative_batch_stride, s->kv.k_scale.batch_stride = -7)
SPOIL(negative_stride, s->kv.v_scale.token_stride = -1)
SPOIL(negative_head_stride, s->kv.v_scale.head_stride = -5)
SPOIL(far_stride, s->kv.k_scale.token_stride = INT64_MAX / 2)
SPOIL(far_head_stride, s->kv.k_scale.head_stride = INT64_MAX)
SPOIL(no_scales, s->kv.k_scale.data = NULL; s->kv.k_scale.token_stride = HEADS)
SPOIL(no_head_scales, s->kv.v_scale.data = NULL)
SPOIL(nan_scale, s->k_scales[1] = NAN)
SPOIL(zero_scale, s->v_scales[0] = 0.0f)
SPOIL(negative_scale, s->v_scales[1] = -1.0f)
SPOIL(infinite_scale, s->k_scales[0] = INFINITY)

static const mistake mistakes[] = {
    {"kv.k_scale.data is ", "aligned to 4 bytes", spoil_misaligned, NULL},
    {"kv.v_scale.data is ", "aligned to 4 bytes", spoil_misaligned_values, NULL},
    {"kv.k_scale.batch_stride is -7", "0 ", spoil_negative_batch_stride, NULL},
    {"kv.v_scale.token_stride is -1", "0 ", spoil_negative_stride, NULL},
    {"kv.v_scale.head_stride is -5", "0 ", spoil_negative_head_stride, NULL},
    {"kv.k_scale.token_stride is 4611686018427387903", "address space", spoil_far_stride, NULL},
    {"kv.k_scale.head_stride is 9223372036854775807", "address space", spoil_far_head_stride, NULL},
    {"kv.k_scale.data is NULL", "head_stride 1: must be the scales", spoil_no_scales, NULL},
    {"kv.v_scale.data is NULL", "the strides 0", spoil_no_head_scales, NULL},
    {"kv.k_scale of sequence 0 and KV head 1 is nan", "above 0", spoil_nan_scale, NULL},
    {"kv.v_scale of sequence 0 and KV head 0 is 0", "above 0", spoil_zero_scale, NULL},
    {"kv.v_scale of sequence 0 and KV head 1 is -1", "above 0", spoil_negative_scale, NULL},
    {"kv.k_scale of sequence 0 and KV head 0 is inf", "above 0", spoil_infinite_scale, NULL},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

static const spoiled_call kind = {sizeof(small), init, make, is_untouched, is_right};

static void test_bad_scales(void)
{
    spoiled_alone(&kind, mistakes, MISTAKES);
    spoiled_on_one_rank(&kind, mistakes, MISTAKES);
}

/* Types of more bits have no scales, and queries of 8 bits there are none. */
static void test_what_types_may_be(void)
{
    ta_device *device;
    ta_plan *plan = NULL;
    small s;
    init(&s);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    s.config.query_dtype = TA_DTYPE_NONE;
    EXPECT_ERROR(TA_ERR_INVALID, ta_plan_create(NULL, device, &s.config, &plan),
                 "config.query_dtype is TA_DTYPE_NONE with config.kv_dtype TA_E4M3", "TA_BF16");
    s.config.query_dtype = TA_E5M2;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_plan_create(NULL, device, &s.config, &plan),
                 "config.query_dtype is TA_E5M2", "must be TA_F32, TA_F16 or TA_BF16");
    s.config.query_dtype = TA_F32;
    s.config.out_dtype = TA_E4M3;
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_plan_create(NULL, device, &s.config, &plan),
                 "config.out_dtype is TA_E4M3", "must be TA_F32, TA_F16 or TA_BF16");
    init(&s);
    s.config.kv_dtype = TA_F16;
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &plan));
    EXPECT_ERROR(TA_ERR_INVALID, make(&s, plan), "kv.k_scale.data is ", "must be NULL");
    TEST_ASSERT_TRUE(is_untouched(&s));
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* ta_append() and the scales that it is to make. */
static void test_bad_scales_to_be_made(void)
{
    ta_device *device;
    ta_plan *plan = NULL;
    small s;
    float made[2][TOKENS * HEADS];
    ta_append_input input = TA_APPEND_INPUT_INIT;
    init(&s);
    EXPECT_OK(ta_device_open("host", NULL, &device));
    EXPECT_OK(ta_plan_create(NULL, device, &s.config, &plan));
    input.k.data = input.v.data = s.q;
    input.dtype = TA_F32;
    input.make_scales = 2;
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &s.kv, NULL, NULL),
                 "input.make_scales is 2", "0 or 1");
    input.make_scales = 1;
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &s.kv, NULL, NULL),
                 "kv.k_scale.token_stride is 0", "overlap");
    s.kv.k_scale = (ta_scales){made[0], TOKENS * HEADS, HEADS, 1};
    s.kv.v_scale = (ta_scales){NULL, 0, 0, 0};
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &s.kv, NULL, NULL),
                 "kv.v_scale.data is NULL", "make_scales");
    s.kv.v_scale = (ta_scales){made[1], TOKENS * HEADS, HEADS, 1};
    input.reserved = 3;
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &s.kv, NULL, NULL), "input.reserved is 3",
                 "0");
    input.reserved = 0;
    input.dtype = TA_E4M3;
    EXPECT_ERROR(TA_ERR_INVALID, ta_append(plan, &input, &s.kv, NULL, NULL),
                 "input.make_scales is 1", "e4m3");
    input.dtype = TA_F32;
    s.q[0] = -896.0f;
    EXPECT_OK(ta_append(plan, &input, &s.kv, NULL, NULL));
    TEST_ASSERT_TRUE(made[0][(TOKENS - 1) * HEADS] == 2.0f);
    TEST_ASSERT_EQUAL_HEX8(0xfe, s.k[(TOKENS - 1) * HEADS * DIM]);
    ta_plan_destroy(plan);
    ta_device_close(device);
}

/* Infinities and numbers beyond the range are stored as the largest, a NaN as NaN. */
static void test_append_clamps(void)
{
    static const float given[] = {1e9f, -1e9f, INFINITY, -INFINITY, NAN, -0.0f, 1e-9f, 3.0f};
    for (int dtype = TA_E4M3; dtype <= TA_E5M2_FNUZ; ++dtype) {
        ta_device *device;
        ta_plan *plan = NULL;
        small s;
        ta_append_input input = TA_APPEND_INPUT_INIT;
        init(&s);
        s.config.kv_dtype = (ta_dtype)dtype;
        for (int i = 0; i < HEADS * DIM; ++i)
            s.q[i] = given[i % 8];
        input.k.data = input.v.data = s.q;
        input.dtype = TA_F32;
        EXPECT_OK(ta_device_open("host", NULL, &device));
        EXPECT_OK(ta_plan_create(NULL, device, &s.config, &plan));
        EXPECT_OK(ta_append(plan, &input, &s.kv, NULL, NULL));
        for (int i = 0; i < HEADS * DIM; ++i) {
            double scaled = (double)(given[i % 8] / s.v_scales[i / DIM]);
            double stored = number_decode((ta_dtype)dtype, s.v, (TOKENS - 1) * HEADS * DIM + i);
            uint8_t code = (uint8_t)number_bits((ta_dtype)dtype, scaled);
            double expected = number_decode((ta_dtype)dtype, &code, 0);
            TEST_ASSERT_TRUE(isnan(expected) ? isnan(stored) : stored == expected);
            TEST_ASSERT_EQUAL_INT(i % 8 == 4, isnan(stored));
        }
        ta_plan_destroy(plan);
        ta_device_close(device);
    }
}

static void run_all(void)
{
    RUN_TEST(test_combinations);
    RUN_TEST(test_shapes);
    RUN_TEST(test_every_code_of_a_cache);
    if (options_host()) {
        RUN_TEST(test_the_type_says_the_dialect);
        RUN_TEST(test_bad_scales);
        RUN_TEST(test_what_types_may_be);
        RUN_TEST(test_bad_scales_to_be_made);
        RUN_TEST(test_append_clamps);
    }
    bound_worst_print(&worst);
}

int main(int argc, char **argv)
{
    return seed_main(argc, argv, run_seed, run_all);
}
