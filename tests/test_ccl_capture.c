/* Decode steps on groups of GPUs (hip/ccl/) over the executor's NCCL: captured by the caller,
 * replayed by the plan, and all on the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "decode/replay.h"
#include "device/device.h"
#include "lib/ccl_step.h"
#include "simt/simt_ccl.h"
#include "simt/simt_control.h"

/* Values of the other sign give results of the other sign, bit for bit. */
static ta_status replay(ccl_rank *r, prepared *p, hipGraphExec_t graph)
{
    float first[sizeof p->step.results / sizeof(float)];
    for (int round = 0; round < 3; ++round) {
        TA_TRY(small_step_fill(&p->step));
        RANK_EXPECT(hipGraphLaunch(graph, (hipStream_t)r->streams[0]) == hipSuccess);
        TA_TRY(small_step_fetch(&p->step, r->streams[0]));
        if (round == 0) {
            RANK_EXPECT(small_step_right(&p->step));
            memcpy(first, p->step.results, sizeof first);
        }
        for (size_t i = 0; i < sizeof first / sizeof *first; ++i)
            RANK_EXPECT(p->step.results[i] == (round % 2 ? -first[i] : first[i]));
        for (size_t i = 0; i < sizeof p->step.values / sizeof(float); ++i)
            p->step.values[i] = -p->step.values[i];
    }
    return TA_OK;
}

static ta_status captured_rank(ccl_rank *r)
{
    prepared p;
    hipStream_t stream = (hipStream_t)r->streams[0];
    captured c;
    TA_TRY(prepare(r->group, r->device, &p));
    TA_TRY(capture(&p, stream, &c));
    TA_TRY(replay(r, &p, c.exec));
    TA_TRY(captured_free(&c));
    TA_TRY(small_step_decode(&p.step, p.plan)); /* and directly, after an odd number of rounds */
    release(&p);
    return TA_OK;
}

static void test_captured(void)
{
    static const int ranks[] = {2, 3, 5};
    for (int i = 0; i < 6; ++i) {
        prepared_exchange = i < 3 ? TA_EXCHANGE_AUTO : TA_EXCHANGE_DIRECT;
        run_all(ranks[i % 3], LONG_WAIT_MS, captured_rank, NULL);
    }
}

/* Under capture nobody can wait for the ranks to compare a new size of messages: such a call is
 * refused, and works once it was made outside. */
static ta_status new_size_rank(ccl_rank *r)
{
    prepared p;
    hipStream_t stream = (hipStream_t)r->streams[0];
    captured c;
    TA_TRY(prepare(r->group, r->device, &p));
    p.step.starts[2] = 3;
    small_step_ragged(&p.step, 3);
    TA_TRY(small_step_fill(&p.step));
    TA_TRY(captured_begin(stream));
    RANK_EXPECT(small_step_queue(&p.step, p.plan, stream) == TA_ERR_UNSUPPORTED);
    RANK_EXPECT(strstr(ta_last_error(), "has 3 query rows in 2 sequences"));
    RANK_EXPECT(strstr(ta_last_error(), "make one such call before the capture"));
    RANK_EXPECT(hipStreamEndCapture(stream, &c.graph) == hipSuccess);
    RANK_EXPECT(hipGraphDestroy(c.graph) == hipSuccess);
    TA_TRY(small_step_fetch(&p.step, stream));
    RANK_EXPECT(small_step_untouched(&p.step));
    TA_TRY(small_step_queue(&p.step, p.plan, stream));
    TA_TRY(small_step_fetch(&p.step, stream));
    RANK_EXPECT(!small_step_untouched(&p.step));
    TA_TRY(capture(&p, stream, &c));
    TA_TRY(small_step_fill(&p.step));
    RANK_EXPECT(hipGraphLaunch(c.exec, stream) == hipSuccess);
    TA_TRY(small_step_fetch(&p.step, stream));
    RANK_EXPECT(!small_step_untouched(&p.step));
    TA_TRY(captured_free(&c));
    release(&p);
    return TA_OK;
}

static void test_a_new_size_is_not_captured(void)
{
    run_all(2, LONG_WAIT_MS, new_size_rank, NULL);
    run_all(3, LONG_WAIT_MS, new_size_rank, NULL);
}

/* A step with the stopwatch on it; it counts the same launches and messages every time. */
static ta_status timed_step(ccl_rank *r, prepared *p, ta_device_stats *device,
                            ta_group_stats *group)
{
    double seconds = -1;
    ta_device_stats device_before = r->device->stats;
    ta_group_stats group_before = r->group->stats;
    TA_TRY(small_step_fill(&p->step));
    TA_TRY(ta_device_timer_start(r->device, r->streams[0]));
    TA_TRY(small_step_queue(&p->step, p->plan, r->streams[0]));
    TA_TRY(ta_device_timer_read(r->device, r->streams[0], &seconds));
    RANK_EXPECT(seconds > 0 && seconds < 20);
    device->launches = r->device->stats.launches - device_before.launches;
    group->messages_sent = r->group->stats.messages_sent - group_before.messages_sent;
    group->bytes_received = r->group->stats.bytes_received - group_before.bytes_received;
    return small_step_fetch(&p->step, r->streams[0]);
}

/* A plan that replays its steps gives the bits of one that does not, also when the arguments
 * change, and after a step that failed. */
static ta_status replaying_rank(ccl_rank *r)
{
    prepared direct, p;
    ta_device_stats launched[2];
    ta_group_stats sent[2];
    TA_TRY(prepare(r->group, r->device, &direct));
    small_step_init(&p.step, r->rank, r->ranks);
    p.step.config.replay = 1;
    TA_TRY(small_step_to_device(&p.step, r->device));
    TA_TRY(ta_plan_create(r->group, r->device, &p.step.config, &p.plan));
    TA_TRY(timed_step(r, &direct, &launched[0], &sent[0]));
    uint64_t attend_ns = r->device->stats.attend_ns;
    RANK_EXPECT(attend_ns > 0 || r->ranks > 2); /* where some have no part of the heads of a ring */
    void *query = p.step.q.data;
    for (int round = 0; round < 5; ++round) {
        small_step *step = &p.step;
        if (round == 3) { /* on one rank: the others hear of it in the next round */
            step->kv.size = r->rank == 1 ? 1 : step->kv.size;
            TA_TRY(small_step_fill(step));
            ta_status failed = small_step_queue(step, p.plan, r->streams[0]);
            RANK_EXPECT(failed == (r->rank == 1 ? TA_ERR_INVALID : TA_OK));
            TA_TRY(small_step_fetch(step, r->streams[0]));
            RANK_EXPECT(small_step_untouched(step));
            step->kv.size = sizeof step->kv;
            RANK_EXPECT(small_step_queue(step, p.plan, r->streams[0]) ==
                        (r->rank == 1 ? TA_OK : TA_ERR_INVALID));
        }
        step->q.data = round == 2 ? step->kv.k.data : query; /* numbers, whatever they mean */
        step->lengths[0] = round == 1 ? 5 : direct.step.lengths[0];
        TA_TRY(timed_step(r, &p, &launched[1], &sent[1]));
        RANK_EXPECT(launched[1].launches == launched[0].launches);
        RANK_EXPECT(sent[1].messages_sent == sent[0].messages_sent && sent[1].messages_sent > 0);
        RANK_EXPECT(sent[1].bytes_received == sent[0].bytes_received);
        int same = !memcmp(step->results, direct.step.results, sizeof step->results);
        RANK_EXPECT(same == (round != 1 && round != 2));
    }
    RANK_EXPECT(r->device->stats.attend_ns == attend_ns); /* nobody sees into a graph */
    TA_TRY(timed_step(r, &direct, &launched[0], &sent[0]));
    RANK_EXPECT(r->device->stats.attend_ns > attend_ns || attend_ns == 0);
    char text[4096];
    TA_TRY(ta_explain(p.plan, text, sizeof text, NULL));
    RANK_EXPECT(strstr(text, ", replayed from a graph"));
    release(&p);
    release(&direct);
    return TA_OK;
}

static void test_replayed(void)
{
    static const int ranks[] = {2, 3, 5};
    for (int i = 0; i < 3; ++i)
        run_all(ranks[i], LONG_WAIT_MS, replaying_rank, NULL);
}

static int count_recordings(const ta_plan *plan)
{
    int count = 0;
    for (int i = 0; i < TA_RECORDINGS; ++i)
        count += plan->recordings[i].graph != NULL;
    return count;
}

/* A step with a layer's options. A window of 3 gives other bits than none. */
static ta_status layer_step(ccl_rank *r, prepared *p, int layer, const float *expected)
{
    p->step.call.tag = (uint64_t)layer + 1;
    p->step.call.window = layer % 2 ? 3 : -1;
    TA_TRY(small_step_fill(&p->step));
    TA_TRY(small_step_queue(&p->step, p->plan, r->streams[0]));
    TA_TRY(small_step_fetch(&p->step, r->streams[0]));
    int same = !memcmp(p->step.results, expected, sizeof p->step.results);
    RANK_EXPECT(same == (layer % 2 == 0));
    return TA_OK;
}

/* One plan serves all layers of a model: each has its recording. Of too many, those that were not
 * used for the longest time go. */
static ta_status layers_rank(ccl_rank *r)
{
    prepared direct, p;
    void *kept;
    TA_TRY(prepare(r->group, r->device, &direct));
    TA_TRY(small_step_queue(&direct.step, direct.plan, r->streams[0]));
    TA_TRY(small_step_fetch(&direct.step, r->streams[0]));
    const float *expected = direct.step.results;
    small_step_init(&p.step, r->rank, r->ranks);
    p.step.config.replay = 1;
    TA_TRY(small_step_to_device(&p.step, r->device));
    TA_TRY(ta_plan_create(r->group, r->device, &p.step.config, &p.plan));
    for (int i = 0; i < 12; ++i)
        TA_TRY(layer_step(r, &p, i % 4, expected));
    RANK_EXPECT(count_recordings(p.plan) == 4);
    kept = p.plan->recordings[1].graph;
    for (int i = 4; i < TA_RECORDINGS + 9; ++i) {
        TA_TRY(layer_step(r, &p, i, expected));
        TA_TRY(layer_step(r, &p, 1, expected));
    }
    RANK_EXPECT(count_recordings(p.plan) == TA_RECORDINGS);
    RANK_EXPECT(p.plan->recordings[1].graph == kept && p.plan->recordings[1].step.tag == 2);
    RANK_EXPECT(p.plan->recordings[0].step.tag > 4);
    release(&p);
    release(&direct);
    return TA_OK;
}

static void test_several_recordings(void)
{
    run_all(2, LONG_WAIT_MS, layers_rank, NULL);
}

/* Through host memory a step can't be captured. */
static ta_status staged_rank(ta_group *threads, void *context)
{
    small_step step;
    ta_device *device;
    ta_plan *plan = NULL;
    (void)context;
    TA_TRY(ta_device_open("simt:0", NULL, &device));
    small_step_init(&step, ta_group_rank(threads), 2);
    step.config.replay = 1;
    RANK_EXPECT(ta_plan_create(threads, device, &step.config, &plan) == TA_ERR_UNSUPPORTED &&
                !plan);
    RANK_EXPECT(strstr(ta_last_error(), "config.replay is 1: group threads moves host memory"));
    ta_device_close(device);
    return TA_OK;
}

static void test_no_replay_through_the_host(void)
{
    EXPECT_OK(ta_group_run_threads(2, NULL, staged_rank, NULL));
}

/* A step neither waits nor copies through the host. */
static ta_status counted_rank(ccl_rank *r)
{
    prepared p;
    TA_TRY(prepare(r->group, r->device, &p));
    TA_TRY(ta_group_barrier(r->threads, NULL));
    ta_device_stats before = r->device->stats;
    TA_TRY(small_step_queue(&p.step, p.plan, r->streams[0]));
    RANK_EXPECT(r->device->stats.waits == before.waits);
    RANK_EXPECT(r->device->stats.bytes_to_device == before.bytes_to_device);
    RANK_EXPECT(r->device->stats.bytes_from_device == before.bytes_from_device);
    TA_TRY(small_step_fetch(&p.step, r->streams[0]));
    RANK_EXPECT(small_step_right(&p.step));
    release(&p);
    return TA_OK;
}

static void test_stays_on_the_device(void)
{
    run_all(3, LONG_WAIT_MS, counted_rank, NULL);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_captured);
    RUN_TEST(test_a_new_size_is_not_captured);
    RUN_TEST(test_replayed);
    RUN_TEST(test_several_recordings);
    RUN_TEST(test_no_replay_through_the_host);
    RUN_TEST(test_stays_on_the_device);
    return UNITY_END() != 0;
}
