/* ta_combine() and ta_append() on groups of GPUs (hip/ccl/) over the executor's NCCL: both captured
 * in one graph, a combine that its plan replays, and ranks that are not in the same step, of which
 * a rank hears when the step has run. Results themselves are looked at in test_combine.c and
 * test_append.c, which run on such groups too. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "device/device.h"
#include "lib/captured.h"
#include "lib/ccl_around.h"
#include "lib/ccl_ranks.h"
#include "lib/device_array.h"
#include "lib/expect.h"
#include "lib/number.h"
#include "lib/plan_config.h"
#include "simt/simt_ccl.h"
#include "simt/simt_control.h"

enum {
    BATCH = 2,
    HEADS = 3,
    DIM = 8,
    TOKENS = 6,
    ROWS = BATCH * HEADS,
    CACHE = TOKENS * ROWS * DIM
};

/* What a rank has: a plan that combines, one that attends, and their arguments. */
typedef struct work {
    ta_plan *combines, *attends;
    device_array part, part_lse, out, lse, k, v, new_k, new_v, lengths, starts;
    ta_call call;
    int no_input; /* for ta_append() */
} work;

static ta_status make_plans(ccl_rank *r, int replay, work *w)
{
    ta_plan_config config = combine_config(BATCH, HEADS, DIM);
    config.replay = replay;
    TA_TRY(ta_plan_create(r->group, r->device, &config, &w->combines));
    config = plan_config(TA_F32, BATCH, HEADS, DIM, TOKENS);
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = 1;
    config.append_scattered = 1;
    return ta_plan_create(r->group, r->device, &config, &w->attends);
}

static ta_status make_work(ccl_rank *r, int replay, work *w)
{
    memset(w, 0, sizeof *w);
    w->call = (ta_call)TA_CALL_INIT;
    device_array *arrays[] = {&w->part, &w->out, &w->new_k, &w->new_v,   &w->part_lse,
                              &w->lse,  &w->k,   &w->v,     &w->lengths, &w->starts};
    static const size_t counts[] = {ROWS * DIM, ROWS * DIM, ROWS * DIM, ROWS * DIM, ROWS,
                                    ROWS,       CACHE,      CACHE,      BATCH,      BATCH + 1};
    for (int i = 0; i < 10; ++i)
        TA_TRY(device_array_make(r->device, counts[i], 4, arrays[i]));
    return make_plans(r, replay, w);
}

static void free_work(work *w)
{
    device_array *arrays[] = {&w->part, &w->out, &w->new_k, &w->new_v,   &w->part_lse,
                              &w->lse,  &w->k,   &w->v,     &w->lengths, &w->starts};
    ta_plan_destroy(w->combines);
    ta_plan_destroy(w->attends);
    for (int i = 0; i < 10; ++i)
        device_array_free(arrays[i]);
}

/* New numbers of a round: every rank's part is `round` + its rank, with equal weights; tokens are
 * numbers of sequence and head. */
static ta_status fill_work(ccl_rank *r, int round, work *w)
{
    const device_array *given[] = {&w->part, &w->part_lse, &w->out,   &w->lse,    &w->k,
                                   &w->v,    &w->new_k,    &w->new_v, &w->lengths};
    int first, heads;
    TA_TRY(ta_head_range(HEADS, r->ranks, r->rank, &first, &heads));
    for (int i = 0; i < ROWS * DIM; ++i)
        ((float *)w->part.host)[i] = (float)(round + r->rank);
    for (int i = 0; i < BATCH * heads * DIM; ++i) {
        int b = i / DIM / heads, h = first + i / DIM % heads;
        ((float *)w->new_k.host)[i] = (float)(100 * round + 10 * b + h);
        ((float *)w->new_v.host)[i] = -(float)(100 * round + 10 * b + h);
    }
    number_poison(TA_F32, w->out.host, ROWS * DIM);
    number_poison(TA_F32, w->k.host, CACHE);
    number_poison(TA_F32, w->v.host, CACHE);
    ((int32_t *)w->lengths.host)[0] = 1 + round;
    ((int32_t *)w->lengths.host)[1] = 2;
    for (int i = 0; i < 9; ++i)
        TA_TRY(device_array_to(given[i], r->streams[0]));
    return ta_device_synchronize(r->device, r->streams[0]);
}

static ta_status queue_combine(ccl_rank *r, work *w)
{
    ta_tensor part = {w->part.device, 0, 0, 0}, out = {w->out.device, 0, 0, 0};
    return ta_combine(w->combines, &part, w->part_lse.device, TA_LSE_E, &out, w->lse.device,
                      &w->call, r->streams[0]);
}

static ta_status queue_append(ccl_rank *r, work *w)
{
    ta_append_input input = TA_APPEND_INPUT_INIT;
    ta_kv kv = TA_KV_INIT;
    input.source = TA_APPEND_HEADS;
    input.k.data = w->new_k.device;
    input.v.data = w->new_v.device;
    kv.k.data = w->k.device;
    kv.v.data = w->v.device;
    kv.lengths = w->lengths.device;
    return ta_append(w->attends, w->no_input ? NULL : &input, &kv, &w->call, r->streams[0]);
}

static ta_status fetch(ccl_rank *r, work *w)
{
    TA_TRY(device_array_from(&w->out, r->streams[0]));
    TA_TRY(device_array_from(&w->lse, r->streams[0]));
    TA_TRY(device_array_from(&w->k, r->streams[0]));
    return device_array_from(&w->v, r->streams[0]);
}

/* The mean of the ranks' parts, and the logarithm of how many they are. */
static ta_status check_combined(ccl_rank *r, int round, const work *w)
{
    double mean = round + (r->ranks - 1) / 2.0;
    for (int i = 0; i < ROWS * DIM; ++i)
        RANK_EXPECT(fabs((double)((float *)w->out.host)[i] - mean) < 1e-5);
    for (int i = 0; i < ROWS; ++i)
        RANK_EXPECT(fabs((double)((float *)w->lse.host)[i] - log(r->ranks)) < 1e-5);
    return TA_OK;
}

/* Each sequence's last token where the map has it, and nothing else. */
static ta_status check_appended(ccl_rank *r, int round, const work *w)
{
    for (int b = 0; b < BATCH; ++b)
        for (int i = 0; i < TOKENS * HEADS * DIM; ++i) {
            int at = b * TOKENS * HEADS * DIM + i, h = i / DIM % HEADS;
            int position = b ? 1 : round;
            int is_new = position % r->ranks == r->rank && i / DIM / HEADS == position / r->ranks;
            float number = (float)(100 * round + 10 * b + h);
            RANK_EXPECT(is_new ? ((float *)w->k.host)[at] == number
                               : number_is_poison(TA_F32, w->k.host, at));
            RANK_EXPECT(is_new ? ((float *)w->v.host)[at] == -number
                               : number_is_poison(TA_F32, w->v.host, at));
        }
    return TA_OK;
}

/* ---- Captured ---- */

static ta_status captured_rank(ccl_rank *r)
{
    work w;
    hipStream_t stream = (hipStream_t)r->streams[0];
    captured c;
    TA_TRY(make_work(r, 0, &w));
    TA_TRY(fill_work(r, 0, &w));
    TA_TRY(captured_begin(stream));
    ta_device_stats before = r->device->stats;
    TA_TRY(queue_append(r, &w));
    TA_TRY(queue_combine(r, &w));
    RANK_EXPECT(r->device->stats.waits == before.waits);
    TA_TRY(captured_end(&c, stream));
    for (int round = 0; round < 4; ++round) {
        TA_TRY(fill_work(r, round, &w));
        RANK_EXPECT(hipGraphLaunch(c.exec, stream) == hipSuccess);
        TA_TRY(fetch(r, &w));
        TA_TRY(check_combined(r, round, &w));
        TA_TRY(check_appended(r, round, &w));
    }
    TA_TRY(captured_free(&c));
    free_work(&w);
    return TA_OK;
}

static void test_captured(void)
{
    static const int ranks[] = {2, 3, 5};
    for (int i = 0; i < 3; ++i)
        EXPECT_OK(ccl_run(ranks[i], LONG_WAIT_MS, captured_rank, NULL));
}

/* ---- Replayed by the plan ---- */

static ta_status replaying_rank(ccl_rank *r)
{
    work w;
    TA_TRY(make_work(r, 1, &w));
    for (int round = 0; round < 3; ++round) {
        TA_TRY(fill_work(r, round, &w));
        TA_TRY(queue_combine(r, &w));
        TA_TRY(fetch(r, &w));
        TA_TRY(check_combined(r, round, &w));
    }
    free_work(&w);
    return TA_OK;
}

static void test_replayed(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, replaying_rank, NULL));
}

/* ---- Not in the same step ---- */

static int all_poison(const device_array *array)
{
    for (size_t i = 0; i < array->bytes / 4; ++i)
        if (!number_is_poison(TA_F32, array->host, (int64_t)i))
            return 0;
    return 1;
}

/* As many tokens on all ranks, of other sequences on one: the starts are where the host does not
 * see them. */
static ta_status differing_starts(ccl_rank *r, work *w)
{
    const int32_t starts[BATCH + 1] = {0, r->rank != 1, 1};
    memcpy(w->starts.host, starts, sizeof starts);
    TA_TRY(device_array_to(&w->starts, r->streams[0]));
    w->call.tokens = 1;
    w->call.starts = w->starts.device;
    TA_TRY(queue_combine(r, w));
    TA_TRY(fetch(r, w));
    RANK_EXPECT(all_poison(&w->out));
    RANK_EXPECT(ta_plan_check(w->combines) == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "call.starts"));
    w->call = (ta_call)TA_CALL_INIT;
    return TA_OK;
}

static ta_status differing_rank(ccl_rank *r)
{
    work w;
    TA_TRY(make_work(r, 0, &w));
    TA_TRY(fill_work(r, 1, &w));
    w.call.tag = r->rank == 1 ? 5 : 6;
    TA_TRY(queue_append(r, &w));
    TA_TRY(queue_combine(r, &w));
    TA_TRY(fetch(r, &w));
    RANK_EXPECT(all_poison(&w.out) && all_poison(&w.k) && all_poison(&w.v));
    RANK_EXPECT(ta_plan_check(w.combines) == TA_ERR_MISMATCH && strstr(ta_last_error(), "the tag"));
    RANK_EXPECT(ta_plan_check(w.attends) == TA_ERR_MISMATCH && strstr(ta_last_error(), "the tag"));
    w.call.tag = 0;
    ((int32_t *)w.lengths.host)[1] += r->rank == 1; /* which only the device sees */
    TA_TRY(device_array_to(&w.lengths, r->streams[0]));
    TA_TRY(queue_append(r, &w));
    TA_TRY(fetch(r, &w));
    RANK_EXPECT(all_poison(&w.k) && all_poison(&w.v));
    RANK_EXPECT(ta_plan_check(w.attends) == TA_ERR_MISMATCH &&
                strstr(ta_last_error(), "kv.lengths"));
    TA_TRY(differing_starts(r, &w));
    TA_TRY(fill_work(r, 2, &w)); /* and the next is right */
    TA_TRY(queue_append(r, &w));
    TA_TRY(queue_combine(r, &w));
    TA_TRY(fetch(r, &w));
    TA_TRY(check_combined(r, 2, &w));
    TA_TRY(check_appended(r, 2, &w));
    free_work(&w);
    return TA_OK;
}

static void test_ranks_that_differ(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, differing_rank, NULL));
}

/* One rank's bad argument: it hears at once, the others when the step has run. */
static ta_status wrong_rank(ccl_rank *r)
{
    work w;
    TA_TRY(make_work(r, 0, &w));
    TA_TRY(fill_work(r, 1, &w));
    void *new_k = w.new_k.device, *part = w.part.device;
    if (r->rank == 1)
        w.new_k.device = w.part.device = NULL;
    RANK_EXPECT(queue_append(r, &w) == (r->rank == 1 ? TA_ERR_INVALID : TA_OK));
    RANK_EXPECT(queue_combine(r, &w) == (r->rank == 1 ? TA_ERR_INVALID : TA_OK));
    w.new_k.device = new_k;
    w.part.device = part;
    TA_TRY(fetch(r, &w));
    RANK_EXPECT(all_poison(&w.out) && all_poison(&w.k) && all_poison(&w.v));
    ta_status heard = r->rank == 1 ? TA_OK : TA_ERR_INVALID;
    RANK_EXPECT(ta_plan_check(w.attends) == heard && ta_plan_check(w.combines) == heard);
    w.no_input = r->rank == 1;
    RANK_EXPECT(queue_append(r, &w) == (r->rank == 1 ? TA_ERR_INVALID : TA_OK));
    TA_TRY(fetch(r, &w));
    RANK_EXPECT(all_poison(&w.k) && all_poison(&w.v) && ta_plan_check(w.attends) == heard);
    free_work(&w);
    return TA_OK;
}

static void test_one_rank_is_wrong(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, wrong_rank, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_captured);
    RUN_TEST(test_replayed);
    RUN_TEST(test_ranks_that_differ);
    RUN_TEST(test_one_rank_is_wrong);
    return UNITY_END() != 0;
}
