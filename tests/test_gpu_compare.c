/* The host device against the GPU kernels on the executor, with the same random plans and inputs:
 * outputs and log-sum-exps within the sum of both bounds, the records that travel between ranks
 * too, and groups in which every other rank is a GPU. `--seed N` runs that case alone. */
#include <math.h>
#include <stdlib.h>

#include "base/partial.h"
#include "decode/plan.h"
#include "device/device.h"
#include "lib/case.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "simt/simt_control.h"

static char failure[2048];
static bound_worst worst;

void setUp(void)
{
    options.messages = true; /* host and GPU have different exchanges of the same case otherwise */
}

void tearDown(void)
{
}

static int case_count(int usual)
{
    return options.one_seed ? 1 : options.cases ? options.cases : usual;
}

static uint64_t first_seed(uint64_t usual)
{
    return options.one_seed ? options.seed : usual;
}

static void fail_case(const decode_case *c, const char *what)
{
    char line[1024], message[2300];
    case_describe(c, line, sizeof line);
    snprintf(message, sizeof message, "%s\n    case: %s [%s]", what, line, simt_settings());
    TEST_FAIL_MESSAGE(message);
}

/* ---- Whole steps --------------------------------------------------------------------------- */

static void keep(decode_case *c, const char *even, const char *odd, case_kept *kept)
{
    c->device[0] = even;
    c->device[1] = odd;
    if (!case_run_keep(c, &worst, kept, failure, sizeof failure))
        TEST_FAIL_MESSAGE(failure);
}

static void compare(const decode_case *c, const char *name, const double *host, const double *gpu,
                    const double *bound, int64_t count)
{
    char what[200];
    for (int64_t i = 0; i < count; ++i) {
        double ratio = bound_compare(host[i], 2 * bound[i], gpu[i]);
        snprintf(what, sizeof what, "%s[%lld] is %.9g on the host and %.9g on the GPU: %.3g bounds",
                 name, (long long)i, host[i], gpu[i], 2 * ratio);
        if (!(ratio <= 1))
            fail_case(c, what);
    }
}

static void test_steps(void)
{
    for (int i = 0; i < case_count(20); ++i) {
        decode_case c = case_random(first_seed(500000) + (uint64_t)i);
        case_kept host, gpu;
        keep(&c, "host", "host", &host);
        keep(&c, "simt", "simt", &gpu);
        compare(&c, "out", host.out, gpu.out, host.out_bound, host.out_count);
        compare(&c, "lse", host.lse, gpu.lse, host.lse_bound, host.lse_count);
        case_kept_free(&host);
        case_kept_free(&gpu);
    }
}

/* ---- Records ------------------------------------------------------------------------------- */

/* The records that a step of one rank leaves in its plan. */
static float *make_records(const decode_case *c, const case_data *data, const char *name,
                           int64_t floats)
{
    ta_device *device;
    ta_plan *plan;
    case_shard shard;
    void *workspace = NULL;
    float *records = malloc((size_t)floats * sizeof(float));
    case_shard_make(c, data, 0, &shard);
    EXPECT_OK(ta_device_open(name, NULL, &device));
    EXPECT_OK(case_shard_to_device(&shard, device));
    EXPECT_OK(case_plan_make(c, data, NULL, device, &workspace, &plan));
    EXPECT_OK(case_fill(&shard));
    EXPECT_OK(case_queue(c, plan, &shard, NULL));
    EXPECT_OK(device->ops->copy(device, records, plan->records, (size_t)floats * 4, NULL));
    if (device->ops->synchronize)
        EXPECT_OK(device->ops->synchronize(device, NULL));
    ta_plan_destroy(plan);
    if (workspace)
        device->ops->free(device, workspace);
    case_shard_free(&shard);
    ta_device_close(device);
    return records;
}

/* A partial means the same whatever its m: compare o / l and m + log₂ l. Records are ordered by
 * head, then row; the oracle's results by row, then head. */
static void compare_records(const decode_case *c, const case_data *data, const float *host,
                            const float *gpu)
{
    int v_dim = c->plan.v_dim, heads = c->plan.query_heads;
    int rows = (int)case_rows(c);
    for (int i = 0; i < heads * rows; ++i) {
        const float *a = host + i * ta_record_floats(v_dim), *b = gpu + i * ta_record_floats(v_dim);
        int index = i % rows * heads + i / rows;
        double lse[2] = {(double)ta_partial_lse(a[v_dim], a[v_dim + 1]),
                         (double)ta_partial_lse(b[v_dim], b[v_dim + 1])};
        compare(c, "record lse", &lse[0], &lse[1], data->lse_bound + index, 1);
        float scale[2] = {ta_partial_normalizer(a[v_dim], a[v_dim + 1]),
                          ta_partial_normalizer(b[v_dim], b[v_dim + 1])};
        for (int d = 0; d < v_dim; ++d) {
            double out[2] = {(double)(a[d] * scale[0]), (double)(b[d] * scale[1])};
            compare(c, "record out", &out[0], &out[1], data->out_bound + index * v_dim + d, 1);
        }
    }
}

static void test_records(void)
{
    for (int i = 0; i < case_count(12); ++i) {
        decode_case c = case_random(first_seed(600000) + (uint64_t)i);
        case_data data;
        c.ranks = 1;
        c.plan.map.ranks = 0;
        c.plan.query_root = c.plan.out_root = 0;
        c.sinks = false; /* they join when a step finishes */
        c.plan.out_dtype = TA_F32;
        case_data_make(&c, &data);
        int64_t floats = case_rows(&c) * c.plan.query_heads * ta_record_floats(c.plan.v_dim);
        float *host = make_records(&c, &data, "host", floats);
        float *gpu = make_records(&c, &data, "simt", floats);
        compare_records(&c, &data, host, gpu);
        free(host);
        free(gpu);
        case_data_free(&c, &data);
    }
}

/* ---- Mixed groups -------------------------------------------------------------------------- */

/* Host and GPU ranks in one group: each rank's result is within the bound of the oracle's, and the
 * same bits on all ranks of one kind. */
static void test_mixed_groups(void)
{
    static const int ranks[] = {2, 3, 5, 8};
    for (int i = 0; i < case_count(16); ++i) {
        decode_case c = case_random(first_seed(700000) + (uint64_t)i);
        case_kept kept;
        c.ranks = ranks[i % 4];
        c.plan.map.ranks = 0;
        c.plan.query_root = c.plan.query_root % c.ranks;
        c.plan.out_root = c.plan.out_root % c.ranks;
        if (c.plan.map.kind == TA_SHARD_CONTIGUOUS && c.bounds == CASE_BOUNDS_NONE)
            c.plan.map.block = c.plan.map.block ? c.plan.map.block : 4;
        c.simd[0] = '\0'; /* ranks that merge alike */
        keep(&c, i / 4 % 2 ? "simt" : "host", i / 4 % 2 ? "host" : "simt", &kept);
        case_kept_free(&kept);
    }
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_steps);
    RUN_TEST(test_records);
    RUN_TEST(test_mixed_groups);
    bound_worst_print(&worst);
    return UNITY_END() != 0;
}
