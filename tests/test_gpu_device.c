/* The device table of the GPU modules (hip/device.c) on the executor, which runs queued work at the
 * latest moment that is allowed: copies, the counts that ta_explain() shows, and errors that come
 * late. test_gpu_capture.c has stream capture. */
#include <treeattn/cluster.h>

#include "decode/plan.h"
#include "device/attention.h"
#include "device/device.h"
#include "group/group.h"
#include "lib/expect.h"
#include "lib/simt_device.h"
#include "lib/small_step.h"
#include "simt/simt_control.h"

static char *device_memory(size_t bytes)
{
    void *memory = NULL;
    EXPECT_OK(device->ops->alloc(device, bytes, &memory));
    return memory;
}

static char *pinned_memory(size_t bytes)
{
    void *memory = NULL;
    EXPECT_OK(device->ops->alloc_host(device, bytes, &memory));
    return memory;
}

static uint64_t waits(void)
{
    return simt_get_counters().host_waits;
}

/* ---- Copies -------------------------------------------------------------------------------- */

/* The host may change its own memory as soon as the copy returns. */
static void test_ordinary_memory_has_been_read(void)
{
    char here[100], back[100] = {0}, *there = device_memory(sizeof here);
    memset(here, 5, sizeof here);
    EXPECT_OK(device->ops->copy(device, there, here, sizeof here, NULL));
    memset(here, 6, sizeof here);
    EXPECT_OK(device->ops->copy(device, back, there, sizeof back, NULL));
    EXPECT_OK(device->ops->synchronize(device, NULL));
    TEST_ASSERT_EACH_EQUAL_CHAR(5, back, sizeof back);
    device->ops->free(device, there);
}

/* Pinned and device memory is copied in stream order, and the host waits for none of it. */
static void test_pinned_memory_is_not_waited_for(void)
{
    char *first = pinned_memory(100), *second = pinned_memory(100);
    char *there = device_memory(100), *elsewhere = device_memory(100);
    memset(first, 7, 100);
    uint64_t before = waits();
    EXPECT_OK(device->ops->copy(device, there, first, 100, NULL));
    EXPECT_OK(device->ops->copy(device, elsewhere, there, 100, NULL));
    EXPECT_OK(device->ops->copy(device, second, elsewhere, 100, NULL));
    TEST_ASSERT_EQUAL_UINT64(before, waits());
    TEST_ASSERT_EQUAL_UINT64(0, device->stats.waits);
    TEST_ASSERT_TRUE_MESSAGE(second[0] != 7, "the executor runs work late");
    EXPECT_OK(device->ops->synchronize(device, NULL));
    TEST_ASSERT_EACH_EQUAL_CHAR(7, second, 100);
    device->ops->free(device, there);
    device->ops->free(device, elsewhere);
    device->ops->free_host(device, first);
    device->ops->free_host(device, second);
}

/* Pinned memory is not given back while a copy may still use it. */
static void test_freeing_pinned_memory_waits(void)
{
    char *pinned = pinned_memory(100), back[100] = {0}, *there = device_memory(100);
    memset(pinned, 8, 100);
    EXPECT_OK(device->ops->copy(device, there, pinned, 100, NULL));
    device->ops->free_host(device, pinned);
    EXPECT_OK(device->ops->copy(device, back, there, 100, NULL));
    EXPECT_OK(device->ops->synchronize(device, NULL));
    TEST_ASSERT_EACH_EQUAL_CHAR(8, back, sizeof back);
    device->ops->free(device, there);
}

static void test_copies_are_counted(void)
{
    char here[100] = {0}, *pinned = pinned_memory(100);
    char *there = device_memory(100), *elsewhere = device_memory(100);
    EXPECT_OK(device->ops->copy(device, there, here, 100, NULL));
    EXPECT_OK(device->ops->copy(device, there, pinned, 30, NULL));
    EXPECT_OK(device->ops->copy(device, elsewhere, there, 100, NULL));
    EXPECT_OK(device->ops->copy(device, here, there, 7, NULL));
    EXPECT_OK(device->ops->copy(device, pinned, there, 0, NULL));
    TEST_ASSERT_EQUAL_UINT64(130, device->stats.bytes_to_device);
    TEST_ASSERT_EQUAL_UINT64(7, device->stats.bytes_from_device);
    TEST_ASSERT_EQUAL_UINT64(1, device->stats.waits);
    TEST_ASSERT_EQUAL_UINT64(0, device->stats.launches);
    EXPECT_OK(device->ops->synchronize(device, NULL));
    TEST_ASSERT_EQUAL_UINT64(2, device->stats.waits);
    device->ops->free(device, there);
    device->ops->free(device, elsewhere);
    device->ops->free_host(device, pinned);
}

/* ---- What a step does ---------------------------------------------------------------------- */

static void expect_says(const char *text, const char *format, unsigned long long a,
                        unsigned long long b)
{
    char line[200], message[5000];
    snprintf(line, sizeof line, format, a, b);
    snprintf(message, sizeof message, "\"%s\" is not in: %s", line, text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, line), message);
}

/* On one rank: what the executor saw is what ta_explain() says. Nothing is copied, waited for or
 * allocated, and there are two launches: what may be cut is finished where it is merged. */
static void test_a_step_of_one_rank(void)
{
    for (int longer = 0; longer < 2; ++longer) {
        small_step step;
        ta_plan *plan;
        char text[4000];
        small_step_init(&step, 0, 1);
        step.config.max_tokens = longer ? 100000 : SMALL_TOKENS;
        step.kv.k.batch_stride = SMALL_TOKENS * SMALL_KV_HEADS * SMALL_K_DIM;
        step.kv.v.batch_stride = SMALL_TOKENS * SMALL_KV_HEADS * SMALL_V_DIM;
        EXPECT_OK(small_step_to_device(&step, device));
        EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
        EXPECT_OK(small_step_fill(&step));
        simt_counters before = simt_get_counters();
        EXPECT_OK(small_step_queue(&step, plan, NULL));
        simt_counters after = simt_get_counters();
        TEST_ASSERT_EQUAL_UINT64(2, after.launches - before.launches);
        TEST_ASSERT_EQUAL_UINT64(before.allocations, after.allocations);
        TEST_ASSERT_EQUAL_UINT64(before.host_waits, after.host_waits);
        EXPECT_OK(small_step_fetch(&step, NULL));
        TEST_ASSERT_TRUE(small_step_right(&step));
        EXPECT_OK(ta_explain(plan, text, sizeof text, NULL));
        expect_says(text, "last step launches: %llu\n", after.launches - before.launches, 0);
        expect_says(text, "last step waits: %llu\n", 0, 0);
        expect_says(text, "last step copies: %llu bytes to the device, %llu bytes from it\n", 0, 0);
        ta_plan_destroy(plan);
        small_step_release(&step);
    }
}

/* Units with more shared memory hold more blocks at a time, so a long sequence is cut into more
 * pieces, which need more memory. */
static size_t bytes_of_a_long_step(size_t shared_bytes_per_unit)
{
    simt_device_config config = simt_get_device_config();
    small_step step;
    ta_device *other;
    ta_plan *plan;
    config.shared_bytes_per_unit = shared_bytes_per_unit;
    simt_set_device_config(&config);
    EXPECT_OK(ta_device_open("simt:1", NULL, &other));
    small_step_init(&step, 0, 1);
    step.config.max_tokens = 1 << 20;
    step.config.k_dim = 264; /* for the kernels that use it */
    EXPECT_OK(ta_plan_create(NULL, other, &step.config, &plan));
    size_t bytes = other->ops->attend_bytes(other, &plan->problem);
    ta_plan_destroy(plan);
    ta_device_close(other);
    simt_reset();
    return bytes;
}

static void test_blocks_of_a_unit(void)
{
    size_t few = bytes_of_a_long_step(1 << 14), more = bytes_of_a_long_step(1 << 15);
    TEST_ASSERT_TRUE(few > 0);
    TEST_ASSERT_TRUE_MESSAGE(more > few, "a unit holds as many blocks with twice the memory");
}

/* Partials of a small step: rows of v_dim + 2 floats. */
#define PARTIAL_BYTES (SMALL_ROWS * (SMALL_V_DIM + 2) * 4)

/* A device for each rank, so that no rank waits for another's work. */
static ta_status open_for_rank(int rank, ta_device **own)
{
    char name[20];
    snprintf(name, sizeof name, "simt:%d", rank);
    return ta_device_open(name, NULL, own);
}

static ta_status staged_rank(ta_group *group, void *context)
{
    small_step step;
    ta_plan *plan;
    ta_device *own;
    char text[4000], expected[40];
    (void)context;
    TA_TRY(open_for_rank(ta_group_rank(group), &own));
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    TA_TRY(small_step_to_device(&step, own));
    TA_TRY(ta_plan_create(group, own, &step.config, &plan));
    TA_TRY(small_step_fill(&step));
    TA_TRY(ta_group_barrier(group, NULL));
    simt_counters before = simt_get_counters();
    ta_group_stats sent = group->stats;
    TA_TRY(small_step_queue(&step, plan, NULL));
    sent.bytes_sent = group->stats.bytes_sent - sent.bytes_sent;
    TA_TRY(ta_group_barrier(group, NULL));
    RANK_EXPECT(simt_get_counters().allocations == before.allocations);
    TA_TRY(ta_group_barrier(group, NULL));
    TA_TRY(small_step_fetch(&step, NULL));
    RANK_EXPECT(small_step_right(&step));
    RANK_EXPECT(plan->last_step.device.launches == 2);
    RANK_EXPECT(plan->last_step.device.waits == 1);
    RANK_EXPECT(plan->last_step.device.bytes_to_device == PARTIAL_BYTES);
    RANK_EXPECT(plan->last_step.device.bytes_from_device == PARTIAL_BYTES + TA_FAULT_BYTES);
    TA_TRY(ta_explain(plan, text, sizeof text, NULL));
    snprintf(expected, sizeof expected, " %llu bytes sent", (unsigned long long)sent.bytes_sent);
    RANK_EXPECT(strstr(text, expected));
    RANK_EXPECT(sent.bytes_sent >= PARTIAL_BYTES);
    ta_plan_destroy(plan);
    small_step_release(&step);
    ta_device_close(own);
    return TA_OK;
}

/* On several ranks the host waits once, for the partial that it sends. */
static void test_a_staged_step(void)
{
    static const int rank_counts[] = {2, 3, 5, 8};
    for (int i = 0; i < 4; ++i)
        EXPECT_OK(ta_group_run_threads(rank_counts[i], NULL, staged_rank, NULL));
}

/* A step that fails because of its arguments leaves a result alone that was not yet waited for. */
static ta_status fault_rank(ta_group *group, void *context)
{
    small_step step;
    ta_plan *plan;
    ta_device *own;
    int rank = ta_group_rank(group), bad_rank = *(int *)context;
    TA_TRY(open_for_rank(rank, &own));
    small_step_init(&step, rank, ta_group_size(group));
    TA_TRY(small_step_to_device(&step, own));
    TA_TRY(ta_plan_create(group, own, &step.config, &plan));
    TA_TRY(small_step_fill(&step));
    TA_TRY(small_step_queue(&step, plan, NULL));
    const int32_t *lengths = step.kv.lengths;
    step.kv.lengths = rank == bad_rank ? NULL : lengths;
    RANK_EXPECT(small_step_queue(&step, plan, NULL) == TA_ERR_INVALID);
    step.kv.lengths = lengths;
    TA_TRY(small_step_fetch(&step, NULL));
    RANK_EXPECT(small_step_right(&step));
    ta_plan_destroy(plan);
    small_step_release(&step);
    ta_device_close(own);
    return TA_OK;
}

static void test_a_bad_step_leaves_the_one_before_alone(void)
{
    for (int ranks = 2; ranks <= 5; ++ranks)
        for (int bad = 0; bad < ranks; ++bad)
            EXPECT_OK(ta_group_run_threads(ranks, NULL, fault_rank, &bad));
}

/* ---- Errors -------------------------------------------------------------------------------- */

typedef struct one_step {
    small_step step;
    ta_plan *plan;
} one_step;

static void make_step(one_step *s)
{
    small_step_init(&s->step, 0, 1);
    EXPECT_OK(small_step_to_device(&s->step, device));
    EXPECT_OK(ta_plan_create(NULL, device, &s->step.config, &s->plan));
    EXPECT_OK(small_step_fill(&s->step));
}

static void end_step(one_step *s)
{
    ta_plan_destroy(s->plan);
    small_step_release(&s->step);
}

/* A launch that is refused names its kernel, the device and the runtime's reason, and the device
 * goes on. */
static void test_a_refused_launch_names_its_kernel(void)
{
    static const char *const kernels[] = {"launching kernel attend", "launching kernel finish"};
    for (int nth = 1; nth <= 2; ++nth) {
        one_step s;
        make_step(&s);
        simt_fail_launch(nth);
        EXPECT_ERROR(TA_ERR_DEVICE, small_step_queue(&s.step, s.plan, NULL), kernels[nth - 1],
                     "failed on simt:0");
        TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), "hipErrorLaunchOutOfResources"));
        TEST_ASSERT_NULL_MESSAGE(strstr(ta_last_error(), ") (last kernel"), ta_last_error());
        EXPECT_OK(small_step_decode(&s.step, s.plan));
        TEST_ASSERT_TRUE(small_step_right(&s.step));
        end_step(&s);
    }
}

/* A device that calls itself by another architecture is refused, with its name; then the next one
 * is opened as if nothing had been. */
static void expect_refused_arch(const char *arch, const char *first, const char *second)
{
    ta_device *other = NULL;
    simt_device_config config = simt_get_device_config();
    snprintf(config.arch, sizeof config.arch, "%s", arch);
    simt_set_device_config(&config);
    EXPECT_ERROR(TA_ERR_UNSUPPORTED, ta_device_open("simt:1", NULL, &other), first, second);
    TEST_ASSERT_NULL(other);
    char info[8192];
    EXPECT_OK(ta_info(info, sizeof info, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(info, "not used: it is of"), info);
    simt_reset();
    EXPECT_OK(ta_device_open("simt:1", NULL, &other));
    ta_device_close(other);
}

static void test_an_unknown_architecture_is_refused(void)
{
    expect_refused_arch("gfx906:sramecc+:xnack-", "simt:1 is of architecture gfx906:", "gfx90a");
    expect_refused_arch("gfx908", "simt:1 is of architecture gfx908:", "gfx942");
    expect_refused_arch("sm_75", "simt:1 is of architecture sm_75:", "sm_80 and later");
    expect_refused_arch("gfx942", "is of architecture gfx942:", "compiled for simt");
}

/* What ta_info() says of the runtime and of each device, to the end of its line. */
static void test_info_about_devices(void)
{
    char info[8192];
    simt_device_config config = simt_get_device_config();
    config.devices = 2;
    config.compute_units = 19;
    config.memory_bytes = (size_t)5 << 29;
    simt_set_device_config(&config);
    simt_set_wave(64);
    EXPECT_OK(ta_info(info, sizeof info, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(info, "\nsimt runtime version: 1\nsimt driver version: 2\n"
                     "simt:0: SIMT executor, wave 64, simt, 19 units, 2.5 GiB\n"
                     "simt:1: SIMT executor, wave 64, simt, 19 units, 2.5 GiB\nsimt collectives: "),
        info);
    simt_reset();
}

static void expect_described(ta_device *other, const char *lines)
{
    char said[2000];
    ta_text text;
    ta_text_init(&text, said, sizeof said);
    other->ops->describe(other, &text);
    TEST_ASSERT_EQUAL_STRING(lines, said);
}

/* What ta_explain() and the benchmark say of a device, to the letter. */
static void test_what_is_said_of_a_device(void)
{
    simt_device_config config = simt_get_device_config();
    ta_device *other;
    config.devices = 5;
    config.compute_units = 19;
    config.memory_bytes = (size_t)5 << 29;
    config.shared_bytes = 50000;
    simt_set_device_config(&config);
    simt_set_wave(64);
    EXPECT_OK(ta_device_open("simt:2", NULL, &other));
    expect_described(other, "simt:2: SIMT executor, wave 64, simt, 2.5 GiB\n"
                            "simt:2 units: 19, waves of 64, 50000 bytes of shared memory, "
                            "matrix cores\n"
                            "simt:2 peers: addresses memory of 4 of 4 other devices\n");
    simt_set_peers(SIMT_PEERS_PAIRS);
    expect_described(other, "simt:2: SIMT executor, wave 64, simt, 2.5 GiB\n"
                            "simt:2 units: 19, waves of 64, 50000 bytes of shared memory, "
                            "matrix cores\n"
                            "simt:2 peers: addresses memory of 1 of 4 other devices\n");
    ta_device_close(other);
    simt_reset();
}

/* A device that does not answer is left out of ta_info(), the others are not, and it is named when
 * it is opened. */
static void test_a_device_that_does_not_answer(void)
{
    char info[8192];
    ta_device *other = NULL;
    simt_fail_query(2);
    EXPECT_OK(ta_info(info, sizeof info, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(info, "\nsimt:0: SIMT executor"), info);
    TEST_ASSERT_NULL_MESSAGE(strstr(info, "\nsimt:1: "), info);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(info, "\nsimt:2: SIMT executor"), info);
    simt_fail_query(1);
    EXPECT_ERROR(TA_ERR_DEVICE, ta_device_open("simt:1", NULL, &other), "simt:1",
                 "asking what it can do");
    TEST_ASSERT_NULL(other);
    EXPECT_OK(ta_device_open("simt:1", NULL, &other));
    ta_device_close(other);
}

/* A runtime that fails when ta_info() asks it for the second time tells nothing of devices. */
static void test_info_without_a_count(void)
{
    char info[8192];
    simt_fail_count(2);
    EXPECT_OK(ta_info(info, sizeof info, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(info, "\nmodule simt devices: 8\n"), info);
    TEST_ASSERT_NULL_MESSAGE(strstr(info, "\nsimt:0: "), info);
    TEST_ASSERT_EQUAL_INT(0, hipPeekAtLastError());
}

/* A runtime that can't be used, and one without devices, are errors that say so; of either nothing
 * is left that the next call could take for its own. */
static void test_a_runtime_without_devices(void)
{
    ta_device *other = NULL;
    simt_fail_count(1);
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_device_open("simt:1", NULL, &other),
                 "the simt runtime can't be used: ", "hipGetDeviceCount fails");
    TEST_ASSERT_EQUAL_INT(0, hipPeekAtLastError());
    simt_fail_count(-1);
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_device_open("simt:1", NULL, &other), "simt:1", NULL);
    TEST_ASSERT_EQUAL_INT(0, hipPeekAtLastError());
    TEST_ASSERT_NULL(other);
    EXPECT_OK(ta_device_open("simt:1", NULL, &other));
    ta_device_close(other);
}

/* Whichever slot gets a dtype that has no kernels says so, and launches nothing. */
#define NO_KERNEL(expr, kernel) EXPECT_ERROR(TA_ERR_UNSUPPORTED, expr, kernel, "dtype 0")

static void test_an_unknown_dtype_has_no_kernel(void)
{
    static const int numbers[] = {TA_DTYPE_NONE, TA_DTYPE_END, 77, -1};
    const ta_device_ops *ops = device->ops;
    ta_dtype unknown = TA_DTYPE_NONE; /* in C++ an enum can have no number above its last */
    ta_problem good = {.k_dim = 8, .v_dim = 8, .max_tokens = 1};
    good.batch = good.query_tokens = good.query_heads = good.kv_heads = 1;
    good.rows = good.plan_rows = good.plan_batch = 1;
    good.kv_dtype = good.query_dtype = good.out_dtype = TA_F32;
    ta_problem kv = good, query = good, out = good;
    kv.kv_dtype = query.query_dtype = out.out_dtype = unknown;
    ta_attention_work shape = {
        .query_heads = 1, .kv_heads = 1, .k_dim = 8, .v_dim = 8, .dtype = unknown};
    ta_kv cache = {0};
    float *memory = (float *)device_memory(4096);
    ta_tensor t = {memory, 8, 8, 8};
    for (int i = 0; i < 4; ++i)
        TEST_ASSERT_FALSE(ops->has_dtype(device, (ta_dtype)numbers[i], TA_AS_KV));
    TEST_ASSERT_TRUE(ops->has_dtype(device, TA_BF16, TA_AS_KV));
    ta_tell tell = {.to = NULL};
    NO_KERNEL(ops->attend(device, &kv, &t, &cache, memory, memory, &tell, NULL), "attend");
    NO_KERNEL(ops->attend(device, &query, &t, &cache, memory, memory, &tell, NULL),
              "attend_direct_fma");
    query.k_dim = 264;
    NO_KERNEL(ops->attend(device, &query, &t, &cache, memory, memory, &tell, NULL), "attend_fma");
    query.k_dim = 8;
    NO_KERNEL(ops->pack_kv(device, &kv, &cache, 1, memory, NULL), "pack_kv");
    NO_KERNEL(ops->pack_query(device, &query, &t, 1, memory, NULL), "pack_query");
    ta_finish finish = {.problem = out, .last = {.records = memory, .v_dim = 8}, .heads = 1};
    finish.out = t;
    NO_KERNEL(ops->finish(device, &finish, NULL), "finish");
    finish.last.tallies = 1;
    NO_KERNEL(ops->finish(device, &finish, NULL), "finish_tallies");
    NO_KERNEL(ops->attention->finish(device, &shape, memory, 1, &t, memory, NULL),
              "attention_finish");
    NO_KERNEL(ops->attention->delta(device, &shape, &t, &t, 1, memory, NULL), "attention_delta");
    NO_KERNEL(ops->attention->store(device, memory, 1, 1, 8, unknown, &t, NULL), "attention_store");
    NO_KERNEL(ops->attention->pack(device, &t, 1, 1, 8, unknown, memory, 32, NULL),
              "attention_pack");
    TEST_ASSERT_EQUAL_UINT64(0, device->stats.launches);
    ops->free(device, memory);
}

/* A kernel that fails while it runs is an error of the next wait, which names the last kernel. */
static void test_a_late_error_comes_with_the_wait(void)
{
    for (int nth = 1; nth <= 2; ++nth) {
        one_step s;
        make_step(&s);
        simt_fail_kernel(nth);
        EXPECT_OK(small_step_queue(&s.step, s.plan, NULL));
        EXPECT_ERROR(TA_ERR_DEVICE, device->ops->synchronize(device, NULL), "last kernel: finish",
                     "hipErrorLaunchFailure");
        TEST_ASSERT_NOT_NULL(strstr(ta_last_error(), nth == 1 ? "attend" : "finish"));
        EXPECT_ERROR(TA_ERR_DEVICE, small_step_queue(&s.step, s.plan, NULL),
                     "launching kernel attend", "last kernel: finish");
        simt_reset();
        EXPECT_OK(small_step_decode(&s.step, s.plan));
        TEST_ASSERT_TRUE(small_step_right(&s.step));
        end_step(&s);
    }
}

/* … and of a copy that has to wait. */
static void test_a_late_error_comes_with_a_copy(void)
{
    one_step s;
    make_step(&s);
    simt_fail_kernel(1);
    EXPECT_OK(small_step_queue(&s.step, s.plan, NULL));
    EXPECT_ERROR(TA_ERR_DEVICE, small_step_fill(&s.step), "last kernel: finish", "attend");
    simt_reset();
    end_step(&s);
}

/* One rank's kernel fails: its step says which, and no other rank waits for it. */
static ta_status failing_rank(ta_group *group, void *context)
{
    small_step step;
    ta_plan *plan;
    ta_device *own;
    int rank = ta_group_rank(group);
    (void)context;
    TA_TRY(open_for_rank(rank, &own));
    small_step_init(&step, rank, ta_group_size(group));
    TA_TRY(small_step_to_device(&step, own));
    TA_TRY(ta_plan_create(group, own, &step.config, &plan));
    TA_TRY(small_step_fill(&step));
    TA_TRY(ta_group_barrier(group, NULL));
    if (rank == 0)
        simt_fail_kernel(1); /* whichever rank comes first */
    /* A rank that is through may have failed before this one is. */
    ta_status status = ta_group_barrier(group, NULL);
    if (status == TA_OK)
        status = small_step_queue(&step, plan, NULL);
    RANK_EXPECT(status == TA_ERR_DEVICE || status == TA_ERR_ABORTED);
    /* A rank that hears of it at its own launch has queued nothing yet. */
    RANK_EXPECT(strstr(ta_last_error(), "kernel: attend") ||
                strstr(ta_last_error(), "launching kernel attend"));
    ta_plan_destroy(plan);
    small_step_release(&step);
    ta_device_close(own);
    return TA_OK;
}

static void test_a_kernel_that_fails_on_one_rank(void)
{
    for (int ranks = 2; ranks <= 5; ++ranks) {
        EXPECT_OK(ta_group_run_threads(ranks, NULL, failing_rank, NULL));
        simt_reset();
    }
}

/* Memory that the device does not have: the plan fails on this rank, and leaves nothing behind. */
static void test_no_memory_for_a_plan(void)
{
    small_step step;
    ta_plan *plan = NULL;
    small_step_init(&step, 0, 1);
    simt_fail_malloc(1);
    EXPECT_ERROR(TA_ERR_NO_MEMORY, ta_plan_create(NULL, device, &step.config, &plan), "allocating",
                 "simt:0");
    TEST_ASSERT_NULL(plan);
    EXPECT_OK(ta_plan_create(NULL, device, &step.config, &plan));
    ta_plan_destroy(plan);
}

static ta_status no_memory_rank(ta_group *group, void *context)
{
    small_step step;
    ta_plan *plan = NULL;
    ta_device *own;
    int nth = *(int *)context;
    TA_TRY(open_for_rank(ta_group_rank(group), &own));
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    if (ta_group_rank(group) == 0)
        simt_fail_malloc(nth);
    TA_TRY(ta_group_barrier(group, NULL));
    RANK_EXPECT(ta_plan_create(group, own, &step.config, &plan) != TA_OK);
    RANK_EXPECT(strstr(ta_last_error(), "allocating") && strstr(ta_last_error(), "as the test"));
    TA_TRY(ta_plan_create(group, own, &step.config, &plan));
    ta_plan_destroy(plan);
    ta_device_close(own);
    return TA_OK;
}

/* The workspace or the staging memory, of one rank: all ranks hear of it. */
static void test_no_memory_on_one_rank(void)
{
    for (int nth = 1; nth <= 3; ++nth)
        EXPECT_OK(ta_group_run_threads(3, NULL, no_memory_rank, &nth));
}

/* What the GPU can see of a cache without reading its memory. */
static void test_bad_caches(void)
{
    one_step s;
    make_step(&s);
    ta_kv good = s.step.kv;
    s.step.kv.lengths = NULL;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_queue(&s.step, s.plan, NULL), "kv.lengths", NULL);
    s.step.kv = good;
    s.step.kv.lengths = (const int32_t *)((const char *)good.lengths + 2);
    EXPECT_ERROR(TA_ERR_INVALID, small_step_queue(&s.step, s.plan, NULL), "lengths", "4 bytes");
    s.step.kv = good;
    s.step.kv.k.data = (char *)good.k.data + 2;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_queue(&s.step, s.plan, NULL), "kv.k.data", "4");
    s.step.kv = good;
    s.step.kv.bounds = good.lengths;
    EXPECT_ERROR(TA_ERR_INVALID, small_step_queue(&s.step, s.plan, NULL), "kv.bounds",
                 "block-cyclic");
    s.step.kv = good;
    EXPECT_OK(small_step_fetch(&s.step, NULL));
    TEST_ASSERT_TRUE(small_step_untouched(&s.step));
    TEST_ASSERT_EQUAL_UINT64(0, device->stats.launches);
    end_step(&s);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_ordinary_memory_has_been_read);
    RUN_TEST(test_pinned_memory_is_not_waited_for);
    RUN_TEST(test_freeing_pinned_memory_waits);
    RUN_TEST(test_copies_are_counted);
    RUN_TEST(test_a_step_of_one_rank);
    RUN_TEST(test_blocks_of_a_unit);
    RUN_TEST(test_a_staged_step);
    RUN_TEST(test_a_bad_step_leaves_the_one_before_alone);
    RUN_TEST(test_a_refused_launch_names_its_kernel);
    RUN_TEST(test_an_unknown_architecture_is_refused);
    RUN_TEST(test_info_about_devices);
    RUN_TEST(test_what_is_said_of_a_device);
    RUN_TEST(test_info_without_a_count);
    RUN_TEST(test_a_device_that_does_not_answer);
    RUN_TEST(test_a_runtime_without_devices);
    RUN_TEST(test_an_unknown_dtype_has_no_kernel);
    RUN_TEST(test_a_late_error_comes_with_the_wait);
    RUN_TEST(test_a_late_error_comes_with_a_copy);
    RUN_TEST(test_a_kernel_that_fails_on_one_rank);
    RUN_TEST(test_no_memory_for_a_plan);
    RUN_TEST(test_no_memory_on_one_rank);
    RUN_TEST(test_bad_caches);
    return UNITY_END() != 0;
}
