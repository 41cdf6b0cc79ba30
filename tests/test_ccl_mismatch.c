/* Ranks that are not in the same step, with a GPU each: lengths and bounds are where the host does
 * not see them. On groups that move device memory, where ranks hear of it later, also when a graph
 * is replayed; and on groups that move host memory. lib/differing_step.h says what must come of
 * it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "lib/ccl_step.h"
#include "lib/differing_step.h"

typedef struct trial {
    differing_step d;
    int staged; /* a group that moves host memory */
} trial;

static ta_status run_rank(ccl_rank *r)
{
    const trial *t = r->context;
    return differing_step_rank(t->staged ? r->threads : r->group, r->device, &t->d, r->streams[0]);
}

/* Every `step`-th of all from `first` on: they are slow here. */
static void run_ranks(int ranks, int first, int step)
{
    trial t = {.staged = 0};
    char text[40];
    ta_cluster *cluster;
    snprintf(text, sizeof text, "local:2x%d", (ranks + 1) / 2);
    EXPECT_OK(ta_cluster_create(text, &cluster));
    for (t.staged = 0; t.staged < 2; ++t.staged) {
        options.each = !t.staged; /* then they may exchange directly */
        options.messages = t.staged;
        for (int i = first; differing_step_get(i, ranks, !t.staged, &t.d); i += step) {
            char message[400];
            t.d.cluster = t.d.exchange == TA_EXCHANGE_DIRECT ? NULL : cluster;
            ta_status status = ccl_run(ranks, LONG_WAIT_MS, run_rank, &t);
            snprintf(message, sizeof message,
                     "%d ranks, %s, kind %d, algorithm %d, exchange %d, placement %d, "
                     "reproducible %d: %.200s",
                     ranks, t.staged ? "staged" : "ccl", (int)t.d.kind, (int)t.d.algorithm,
                     (int)t.d.exchange, (int)t.d.placement, t.d.reproducible,
                     status == TA_OK ? "" : ta_last_error());
            TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, status, message);
        }
    }
    ta_cluster_destroy(cluster);
}

static void test_steps_that_differ(void)
{
    run_ranks(2, 0, 5);
    run_ranks(3, 1, 5);
    run_ranks(5, 2, 5);
    run_ranks(8, 3, 7);
}

/* A graph that was captured while all was well, replayed when one rank is a token ahead. */
static ta_status replay_rank(ccl_rank *r)
{
    hipStream_t stream = (hipStream_t)r->streams[0];
    captured c;
    prepared p;
    TA_TRY(prepare(r->group, r->device, &p));
    TA_TRY(capture(&p, stream, &c));
    for (int round = 0; round < 4; ++round) {
        bool wrong = round == 1 || round == 2;
        p.step.lengths[1] += r->rank == 1 ? (round == 1) - (round == 3) : 0;
        TA_TRY(small_step_fill(&p.step));
        RANK_EXPECT(hipGraphLaunch(c.exec, stream) == hipSuccess);
        TA_TRY(small_step_fetch(&p.step, stream));
        ta_status status = ta_plan_check(p.plan);
        RANK_EXPECT(status == (wrong ? TA_ERR_MISMATCH : TA_OK));
        RANK_EXPECT(!wrong || strstr(ta_last_error(), "kv.lengths"));
        RANK_EXPECT(wrong ? small_step_untouched(&p.step) : small_step_right(&p.step));
    }
    TA_TRY(captured_free(&c));
    release(&p);
    return TA_OK;
}

static void test_replays(void)
{
    run_all(3, LONG_WAIT_MS, replay_rank, NULL);
    prepared_exchange = TA_EXCHANGE_DIRECT;
    run_all(3, LONG_WAIT_MS, replay_rank, NULL);
}

/* ---- Checked mode: tables in device memory ---- */

/* A step that one rank gets wrong, and what that rank says. */
static ta_status expect_refused(ccl_rank *r, prepared *p, ta_status wanted, const char *text)
{
    TA_TRY(small_step_fill(&p->step));
    ta_status status = small_step_queue(&p->step, p->plan, r->streams[0]);
    RANK_EXPECT(status == (r->rank == 1 ? wanted : TA_OK));
    RANK_EXPECT(r->rank != 1 || strstr(ta_last_error(), text));
    TA_TRY(small_step_fetch(&p->step, r->streams[0]));
    RANK_EXPECT(small_step_untouched(&p->step));
    RANK_EXPECT(ta_plan_check(p->plan) == (r->rank == 1 ? TA_OK : wanted));
    return TA_OK;
}

static ta_status expect_right(ccl_rank *r, prepared *p)
{
    TA_TRY(small_step_fill(&p->step));
    TA_TRY(small_step_queue(&p->step, p->plan, r->streams[0]));
    TA_TRY(small_step_fetch(&p->step, r->streams[0]));
    RANK_EXPECT(small_step_right(&p->step));
    return ta_plan_check(p->plan);
}

static ta_status captured_and_checked(ccl_rank *r, prepared *p)
{
    hipStream_t stream = (hipStream_t)r->streams[0];
    hipGraph_t graph;
    RANK_EXPECT(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal) == hipSuccess);
    ta_status status = small_step_queue(&p->step, p->plan, stream);
    RANK_EXPECT(status == TA_ERR_UNSUPPORTED && strstr(ta_last_error(), "config.check"));
    RANK_EXPECT(hipStreamEndCapture(stream, &graph) == hipSuccess);
    RANK_EXPECT(hipGraphDestroy(graph) == hipSuccess);
    return TA_OK;
}

/* What a call points to. */
static ta_status checked_call(ccl_rank *r, prepared *p)
{
    small_step *s = &p->step;
    ptrdiff_t moved = (const char *)s->kv.lengths - (const char *)s->lengths; /* to the device */
    small_step_ragged(s, SMALL_BATCH * SMALL_QUERY_TOKENS);
    TA_TRY(expect_right(r, p));
    s->starts[1] = r->rank == 1 ? 3 : 2;
    TA_TRY(expect_refused(r, p, TA_ERR_INVALID, "call.starts[1] is 3 after 0"));
    s->starts[1] = 2;
    s->call.sinks = (const float *)((const char *)s->sinks + moved);
    s->sinks[2] = r->rank == 1 ? INFINITY : 0;
    TA_TRY(expect_refused(r, p, TA_ERR_INVALID, "call.sinks[2] is inf"));
    s->call.sinks = NULL;
    s->call.alibi_slopes = (const float *)((const char *)s->slopes + moved);
    TA_TRY(expect_right(r, p)); /* slopes of 0 change nothing */
    s->slopes[3] = r->rank == 1 ? NAN : 0;
    TA_TRY(expect_refused(r, p, TA_ERR_INVALID, "call.alibi_slopes[3] is "));
    s->slopes[3] = 0;
    s->call = (ta_call)TA_CALL_INIT;
    return expect_right(r, p);
}

static ta_status checked_rank(ccl_rank *r)
{
    prepared p;
    int32_t *pages = p.step.bounds;
    small_step_init(&p.step, r->rank, r->ranks);
    p.step.config.check = 1;
    p.step.config.replay = *(const int *)r->context; /* a graph would not be checked */
    p.step.kv.bounds = pages;                        /* whose memory is a page table here */
    TA_TRY(small_step_to_device(&p.step, r->device));
    p.step.kv.page_table = p.step.kv.bounds;
    p.step.kv.page_table_stride = SMALL_TOKENS;
    p.step.kv.page_tokens = 1;
    p.step.kv.page_count = SMALL_BATCH * SMALL_TOKENS;
    p.step.kv.bounds = NULL;
    for (int i = 0; i < SMALL_BATCH * SMALL_TOKENS; ++i)
        pages[i] = i;
    TA_TRY(ta_plan_create(r->group, r->device, &p.step.config, &p.plan));
    TA_TRY(expect_right(r, &p));
    pages[1] = r->rank == 1 ? SMALL_BATCH * SMALL_TOKENS : 1;
    TA_TRY(expect_refused(r, &p, TA_ERR_INVALID, "page 1 of sequence 0 in kv.page_table is 14"));
    pages[1] = 1;
    p.step.lengths[1] = r->rank == 1 ? -3 : 3;
    TA_TRY(expect_refused(r, &p, TA_ERR_INVALID, "kv.lengths[1] is -3"));
    p.step.lengths[1] = 3;
    TA_TRY(expect_right(r, &p));
    TA_TRY(checked_call(r, &p));
    TA_TRY(captured_and_checked(r, &p));
    release(&p);
    return TA_OK;
}

static void test_checked_tables(void)
{
    for (int replays = 0; replays < 2; ++replays)
        run_all(2, LONG_WAIT_MS, checked_rank, &replays);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_steps_that_differ);
    RUN_TEST(test_replays);
    RUN_TEST(test_checked_tables);
    return UNITY_END() != 0;
}
