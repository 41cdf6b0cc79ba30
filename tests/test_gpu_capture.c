/* A decode step under stream capture, on the executor, where allocating, waiting on the host or
 * freeing what a graph uses is an error: the graph is launched again with other contents in the
 * same buffers, lengths, scales and lists included, and compared with the oracle each time. Where a
 * step has to wait on the host, it refuses and leaves the capture as it was. */
#include <string.h>

#include "device/device.h"
#include "group/group.h"
#include "lib/capture_case.h"
#include "lib/expect.h"
#include "lib/small_step.h"
#include "simt/simt_control.h"

#define HIP_OK(call) TEST_ASSERT_EQUAL_INT_MESSAGE(hipSuccess, (call), #call)

static ta_device *device;
static hipStream_t stream;

void setUp(void)
{
    simt_reset();
    EXPECT_OK(ta_device_open("simt", NULL, &device));
    HIP_OK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
}

void tearDown(void)
{
    HIP_OK(hipStreamDestroy(stream));
    ta_device_close(device);
    simt_reset();
}

/* ---- One rank ------------------------------------------------------------------------------ */

static hipGraph_t capture(const decode_case *c, ta_plan *plan, const case_shard *shard)
{
    hipGraph_t graph = NULL;
    simt_counters before = simt_get_counters();
    HIP_OK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    EXPECT_OK(case_queue(c, plan, shard, stream));
    HIP_OK(hipStreamEndCapture(stream, &graph));
    simt_counters after = simt_get_counters();
    TEST_ASSERT_EQUAL_UINT64(before.allocations, after.allocations);
    TEST_ASSERT_EQUAL_UINT64(before.host_waits, after.host_waits);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(before.kernels, after.kernels, "a capture runs nothing");
    return graph;
}

/* Launch the graph over what is in the buffers now, and compare with the oracle. */
static void replay(hipGraphExec_t exec, const decode_case *c, const case_data *data,
                   case_shard *shard)
{
    EXPECT_OK(case_fill(shard));
    HIP_OK(hipGraphLaunch(exec, stream));
    HIP_OK(hipStreamSynchronize(stream));
    EXPECT_OK(case_copy_all(shard, false));
    const char *wrong = case_check(c, data, shard);
    char line[1024], message[2048];
    case_describe(c, line, sizeof line);
    snprintf(message, sizeof message, "%s\n    case: %s [%s]", wrong ? wrong : "", line,
             simt_settings());
    TEST_ASSERT_NULL_MESSAGE(wrong, message);
}

static void replay_with_other_contents(hipGraphExec_t exec, const decode_case *c, case_shard *shard)
{
    for (int round = 1; round <= 4; ++round) {
        decode_case other = capture_case_change(c, round);
        case_data data;
        case_shard contents;
        case_data_make(&other, &data);
        case_shard_make(&other, &data, 0, &contents);
        capture_case_replace(&contents, shard);
        replay(exec, &other, &data, shard);
        case_shard_free(&contents);
        case_data_free(&other, &data);
    }
}

static void capture_and_replay(const decode_case *c)
{
    case_data data;
    case_shard shard;
    ta_plan *plan;
    void *workspace = NULL;
    char why[200];
    case_data_make(c, &data);
    case_shard_make(c, &data, 0, &shard);
    EXPECT_OK(case_shard_to_device(&shard, device));
    EXPECT_OK(case_plan_make(c, &data, NULL, device, &workspace, &plan));
    hipGraph_t first = capture(c, plan, &shard), second = capture(c, plan, &shard);
    TEST_ASSERT_TRUE_MESSAGE(simt_graphs_equal(first, second, why, sizeof why), why);
    hipGraphExec_t exec = NULL;
    HIP_OK(hipGraphInstantiateWithFlags(&exec, first, 0));
    replay(exec, c, &data, &shard);
    replay(exec, c, &data, &shard);
    replay_with_other_contents(exec, c, &shard);
    HIP_OK(hipGraphExecDestroy(exec));
    HIP_OK(hipGraphDestroy(first));
    HIP_OK(hipGraphDestroy(second));
    ta_plan_destroy(plan);
    if (workspace)
        device->ops->free(device, workspace);
    case_shard_free(&shard);
    case_data_free(c, &data);
}

static void test_a_captured_step_is_repeated(void)
{
    for (int which = 0; which < CAPTURE_CASES; ++which) {
        decode_case c = capture_case(which);
        capture_and_replay(&c);
    }
}

/* The cases are of the kernels that they are for. A launch that is refused says which it was. */
static void expect_kernel(int which, const char *name)
{
    decode_case c = capture_case(which);
    case_data data;
    case_shard shard;
    ta_plan *plan;
    void *workspace = NULL;
    case_data_make(&c, &data);
    case_shard_make(&c, &data, 0, &shard);
    EXPECT_OK(case_shard_to_device(&shard, device));
    EXPECT_OK(case_plan_make(&c, &data, NULL, device, &workspace, &plan));
    simt_fail_launch(1);
    EXPECT_ERROR(TA_ERR_DEVICE, case_queue(&c, plan, &shard, stream), "launching kernel ", name);
    ta_plan_destroy(plan);
    if (workspace)
        device->ops->free(device, workspace);
    case_shard_free(&shard);
    case_data_free(&c, &data);
}

static void test_the_kernels_of_captured_steps(void)
{
    expect_kernel(CAPTURE_SPLITS, "attend_fma<");
    expect_kernel(CAPTURE_SPLITS + 4, "attend_mma");
    expect_kernel(CAPTURE_DIRECT, "attend_direct<");
    expect_kernel(CAPTURE_DIRECT_PAGED, "attend_direct<");
    expect_kernel(CAPTURE_DIRECT_FMA, "attend_direct_fma<");
    expect_kernel(CAPTURE_DIRECT_FMA_PAGED, "attend_direct_fma<");
    expect_kernel(CAPTURE_LATENT, "attend_latent");
}

/* A copy that would have to wait is refused, and the capture goes on. */
static void test_ordinary_memory_is_not_captured(void)
{
    char here[16] = {0};
    void *there = NULL;
    hipGraph_t graph = NULL;
    EXPECT_OK(device->ops->alloc(device, sizeof here, &there));
    HIP_OK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    TEST_ASSERT_TRUE(device->ops->capturing(device, stream));
    TEST_ASSERT_FALSE(device->ops->capturing(device, NULL));
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, device->ops->copy(device, there, here, sizeof here, stream),
                 "not pinned", "captured");
    EXPECT_OK(device->ops->copy(device, here, there, sizeof here, stream));
    HIP_OK(hipStreamEndCapture(stream, &graph));
    TEST_ASSERT_FALSE(device->ops->capturing(device, stream));
    HIP_OK(hipGraphDestroy(graph));
    device->ops->free(device, there);
}

/* ---- Several ranks ------------------------------------------------------------------------- */

typedef struct rank_steps {
    ta_device *device;
    hipStream_t stream;
    small_step step;
    ta_plan *plan;
} rank_steps;

/* Capture a step, which this group can't have: the capture must hold what was in it before. */
static ta_status capture_refused(rank_steps *r)
{
    hipGraph_t graph = NULL, expected = NULL;
    char why[200] = "";
    void *to = r->step.out.data, *from = r->step.q.data;
    for (int with_step = 0; with_step < 2; ++with_step) {
        hipGraph_t *made = with_step ? &graph : &expected;
        RANK_EXPECT(!hipStreamBeginCapture(r->stream, hipStreamCaptureModeThreadLocal));
        RANK_EXPECT(!hipMemcpyAsync(to, from, 16, hipMemcpyDeviceToDevice, r->stream));
        if (with_step) {
            RANK_EXPECT(small_step_queue(&r->step, r->plan, r->stream) == TA_ERR_UNSUPPORTED);
            RANK_EXPECT(strstr(ta_last_error(), "captured"));
            RANK_EXPECT(strstr(ta_last_error(), "threads"));
        }
        RANK_EXPECT(!hipStreamEndCapture(r->stream, made));
    }
    RANK_EXPECT(simt_graphs_equal(expected, graph, why, sizeof why));
    RANK_EXPECT(!hipGraphDestroy(expected));
    RANK_EXPECT(!hipGraphDestroy(graph));
    return TA_OK;
}

static ta_status refuse_and_go_on(rank_steps *r, bool captures)
{
    TA_TRY(small_step_fill(&r->step));
    if (captures) {
        TA_TRY(capture_refused(r));
    } else {
        RANK_EXPECT(small_step_queue(&r->step, r->plan, r->stream) == TA_ERR_UNSUPPORTED);
        RANK_EXPECT(strstr(ta_last_error(), "rank "));
    }
    TA_TRY(small_step_fetch(&r->step, r->stream));
    RANK_EXPECT(small_step_untouched(&r->step));
    /* The group is as good as before. */
    TA_TRY(small_step_queue(&r->step, r->plan, r->stream));
    TA_TRY(small_step_fetch(&r->step, r->stream));
    RANK_EXPECT(small_step_right(&r->step));
    return TA_OK;
}

/* `context`: the bits of the ranks that capture. */
static ta_status capturing_rank(ta_group *group, void *context)
{
    rank_steps r;
    char name[20];
    int rank = ta_group_rank(group), captures = *(int *)context >> rank & 1;
    snprintf(name, sizeof name, "simt:%d", rank);
    small_step_init(&r.step, rank, ta_group_size(group));
    TA_TRY(ta_device_open(name, NULL, &r.device));
    RANK_EXPECT(!hipSetDevice(rank));
    RANK_EXPECT(!hipStreamCreateWithFlags(&r.stream, hipStreamNonBlocking));
    TA_TRY(small_step_to_device(&r.step, r.device));
    TA_TRY(ta_plan_create(group, r.device, &r.step.config, &r.plan));
    TA_TRY(refuse_and_go_on(&r, captures));
    ta_plan_destroy(r.plan);
    small_step_release(&r.step);
    RANK_EXPECT(!hipStreamDestroy(r.stream));
    ta_device_close(r.device);
    return TA_OK;
}

static void test_a_step_that_must_wait_is_not_captured(void)
{
    for (int ranks = 2; ranks <= 5; ++ranks)
        for (int captures = 1; captures < 1 << ranks; captures = 2 * captures + 1)
            EXPECT_OK(ta_group_run_threads(ranks, NULL, capturing_rank, &captures));
}

/* A group of one rank has nobody to wait for. */
static ta_status alone(ta_group *group, void *context)
{
    small_step step;
    ta_plan *plan;
    hipGraph_t graph = NULL;
    hipGraphExec_t exec = NULL;
    (void)context;
    small_step_init(&step, 0, 1);
    TA_TRY(small_step_to_device(&step, device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    RANK_EXPECT(!hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed));
    TA_TRY(small_step_queue(&step, plan, stream));
    RANK_EXPECT(!hipStreamEndCapture(stream, &graph));
    RANK_EXPECT(!hipGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 0; i < 3; ++i) {
        TA_TRY(small_step_fill(&step));
        RANK_EXPECT(!hipGraphLaunch(exec, stream));
        TA_TRY(small_step_fetch(&step, stream));
        RANK_EXPECT(small_step_right(&step));
    }
    RANK_EXPECT(!hipGraphExecDestroy(exec));
    RANK_EXPECT(!hipGraphDestroy(graph));
    ta_plan_destroy(plan);
    small_step_release(&step);
    return TA_OK;
}

static void test_a_group_of_one_rank_is_captured(void)
{
    EXPECT_OK(ta_group_run_threads(1, NULL, alone, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_captured_step_is_repeated);
    RUN_TEST(test_the_kernels_of_captured_steps);
    RUN_TEST(test_ordinary_memory_is_not_captured);
    RUN_TEST(test_a_step_that_must_wait_is_not_captured);
    RUN_TEST(test_a_group_of_one_rank_is_captured);
    return UNITY_END() != 0;
}
