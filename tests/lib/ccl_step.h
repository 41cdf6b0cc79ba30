/* A small decode step on the ranks of a group of GPUs (ccl_ranks.h), and what comes before and
 * after each test of one. Included by test_ccl_steps.c, test_ccl_capture.c and
 * test_ccl_mismatch.c. */
#ifndef TESTS_CCL_STEP_H
#define TESTS_CCL_STEP_H

#include "base/status.h"
#include "captured.h"
#include "ccl_ranks.h"
#include "expect.h"
#include "options.h"
#include "simt/simt_ccl.h"
#include "simt/simt_control.h"
#include "small_step.h"

/* Of the plans that prepare() makes. */
static ta_exchange prepared_exchange;

void setUp(void)
{
    simt_reset();
    simt_fail_ccl(-1, 0);
    options.algorithm = TA_ALGORITHM_AUTO;
    prepared_exchange = TA_EXCHANGE_AUTO;
    options.messages = true; /* unless a test asks for it */
}

void tearDown(void)
{
    TEST_ASSERT_TRUE_MESSAGE(ccl_all_gone(), "communicators are left");
}

/* A rank's step and plan. */
typedef struct prepared {
    small_step step;
    ta_plan *plan;
} prepared;

static inline ta_status prepare(ta_group *group, ta_device *device, prepared *p)
{
    small_step_init(&p->step, ta_group_rank(group), ta_group_size(group));
    p->step.config.exchange = prepared_exchange;
    TA_TRY(small_step_to_device(&p->step, device));
    TA_TRY(ta_plan_create(group, device, &p->step.config, &p->plan));
    return small_step_fill(&p->step);
}

/* That step as a graph, which the caller launches and frees. */
static inline ta_status capture(prepared *p, hipStream_t stream, captured *c)
{
    TA_TRY(captured_begin(stream));
    TA_TRY(small_step_queue(&p->step, p->plan, stream));
    return captured_end(c, stream);
}

static inline void release(prepared *p)
{
    ta_plan_destroy(p->plan);
    small_step_release(&p->step);
}

/* Every algorithm in turn; the last leaves it to the plan. */
static inline void run_all(int ranks, int timeout_ms, ccl_rank_fn fn, void *context)
{
    static const ta_algorithm algorithms[] = {TA_ALGORITHM_RING_KV, TA_ALGORITHM_RING_Q,
                                              TA_ALGORITHM_AUTO};
    for (int i = 0; i < 3; ++i) {
        options.algorithm = algorithms[i];
        EXPECT_OK(ccl_run(ranks, timeout_ms, fn, context));
    }
}

#endif
