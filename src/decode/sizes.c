/* Agreeing on the sizes of messages: see sizes.h. */
#include "sizes.h"

#include "base/status.h"
#include "step.h"
#include "step_fault.h"

static int compares_first(const ta_plan *plan)
{
    return ta_plan_is_ring(plan) && plan->algorithm == TA_ALGORITHM_RING_KV &&
           !plan->lengths_hidden;
}

/* With output on one root, an exchange in rounds tells nobody else; nor does a direct one that has
 * some between nodes. */
static int tells_root_alone(const ta_plan *plan)
{
    const ta_exchange_entry *kind = &ta_exchange_kinds[plan->job.kind];
    return plan->out_placement == TA_PLACE_ROOT && !ta_plan_is_ring(plan) &&
           (kind->rounds || (kind->shares && plan->choice.nodes.count > 1));
}

int ta_sizes_are_agreed(const ta_plan *plan)
{
    return plan->ranks > 1 && !compares_first(plan) &&
           (!tells_root_alone(plan) || ta_plan_tracks(plan));
}

int ta_sizes_need_notices(const ta_plan *plan)
{
    return ta_plan_tracks(plan) && tells_root_alone(plan);
}

static ta_sizes sizes_of(const ta_step *step)
{
    const ta_problem *p = &step->problem;
    return (ta_sizes){p->rows, p->batch, step->tokens.dtype, p->starts != NULL};
}

/* Slices of K and V have a place for each sequence. Notices compare what errors name. */
int ta_sizes_change(const ta_plan *plan, const ta_step *step)
{
    const ta_problem *p = &step->problem;
    int slices = ta_plan_is_ring(plan) && plan->algorithm == TA_ALGORITHM_RING_KV;
    return ta_sizes_are_agreed(plan) &&
           (p->rows != plan->sizes.rows ||
            ((slices || plan->notices) && p->batch != plan->sizes.batch) ||
            (plan->notices && (p->starts != NULL) != plan->sizes.ragged));
}

int ta_sizes_of_append_change(const ta_plan *plan, const ta_step *step)
{
    return step->problem.rows != plan->append_sizes.rows ||
           step->tokens.dtype != plan->append_sizes.dtype;
}

ta_status ta_sizes_check_capture(const ta_plan *plan, const ta_step *step, void *stream)
{
    const ta_problem *p = &step->problem;
    if (!ta_device_captures(plan->device, stream))
        return TA_OK;
    return ta_fail(TA_ERR_UNSUPPORTED,
                   "stream %p is being captured and this call has %lld query rows in %d sequences: "
                   "the ranks have to compare that first, so make one such call before the "
                   "capture; the last one had %lld",
                   stream, (long long)p->rows, (int)p->batch, (long long)plan->sizes.rows);
}

void ta_sizes_make_idle(const ta_plan *plan, const ta_sizes *sizes, ta_step *idle)
{
    *idle = (ta_step){.problem = plan->problem};
    idle->problem.rows = sizes->rows;
    idle->problem.batch = sizes->batch;
    idle->tokens.dtype = sizes->dtype;
}

ta_fault ta_sizes_ask(const ta_plan *plan, const ta_step *step)
{
    ta_fault own = ta_fault_of(TA_FAULT_ASKS, plan->rank);
    ta_step_share_call(plan, step, &own);
    return own;
}

static void merge_answer(ta_fault *all, const ta_fault *next)
{
    *all = all->rank < 0 ? *next : ta_fault_merge(*all, *next);
}

ta_status ta_sizes_hear(ta_plan *plan, int number, const void *record, ta_fault *all, void *stream)
{
    if (plan->answers)
        return plan->device->ops->copy(plan->device, &plan->answers[number], record,
                                       sizeof(ta_fault), stream);
    merge_answer(all, record);
    return TA_OK;
}

ta_status ta_sizes_end_hearing(ta_plan *plan, int count, ta_fault *all, void *stream)
{
    if (plan->answers && plan->group->ops->wait)
        TA_TRY(plan->group->ops->wait(plan->group, stream));
    else if (plan->answers)
        TA_TRY(plan->device->ops->synchronize(plan->device, stream));
    else
        (void)ta_take_report(plan); /* it says the same */
    for (int i = 0; plan->answers && i < count; ++i)
        merge_answer(all, &plan->answers[i]);
    return TA_OK;
}

/* ---- Notices ---- */

static ta_fault notice_of(const ta_plan *plan, const ta_sizes *sizes, int32_t status)
{
    ta_fault notice = ta_fault_of(status, plan->rank);
    ta_fault_share(&notice, TA_COMMON_BATCH, (uint64_t)sizes->batch);
    ta_fault_share(&notice, TA_COMMON_TOKENS, sizes->ragged ? (uint64_t)sizes->rows : 0);
    return notice;
}

ta_status ta_sizes_set_usual(ta_plan *plan, void *stream)
{
    ta_device *device = plan->device;
    ta_fault usual = notice_of(plan, &plan->sizes, TA_OK);
    if (!plan->notices)
        return TA_OK;
    plan->noticed = TA_OK;
    TA_TRY(device->ops->copy(device, plan->usual_notice, &usual, sizeof usual, stream));
    return device->ops->copy(device, &plan->notices[plan->rank], &usual, sizeof usual, stream);
}

/* The usual one is there already, and what else it may be is in device memory too, but for a
 * question: the host waits for that anyway. */
ta_status ta_sizes_notify(ta_plan *plan, const ta_fault *own, void *stream)
{
    const ta_fault *notice = own;
    if (!plan->notices)
        return TA_OK;
    if (own->status != TA_FAULT_ASKS)
        notice = own->status == TA_OK ? plan->usual_notice : &plan->faults[-own->status];
    if (own->status != TA_OK || plan->noticed != TA_OK)
        TA_TRY(plan->device->ops->copy(plan->device, &plan->notices[plan->rank], notice,
                                       sizeof *notice, stream));
    plan->noticed = own->status;
    return ta_group_all_gather(plan->group, plan->notices, plan->notices_at, stream);
}

/* ---- Asking ---- */

/* Whatever tells all ranks of the others: the records of the exchange, or the notices. */
static ta_status hear_all(ta_plan *plan, ta_fault *all, void *stream)
{
    ta_merge heard = plan->runs->heard(plan);
    const float *theirs = (const float *)(const void *)heard.theirs;
    int messages = theirs ? heard.messages : 0;
    if (plan->notices) {
        for (int rank = 0; rank < plan->ranks; ++rank)
            TA_TRY(ta_sizes_hear(plan, rank, &plan->notices[rank], all, stream));
        return ta_sizes_end_hearing(plan, plan->ranks, all, stream);
    }
    TA_TRY(ta_sizes_hear(plan, 0, heard.fault, all, stream));
    for (int i = 0; i < messages; ++i)
        TA_TRY(ta_sizes_hear(plan, 1 + i, theirs + i * heard.stride, all, stream));
    return ta_sizes_end_hearing(plan, 1 + messages, all, stream);
}

ta_status ta_sizes_agree(ta_plan *plan, const ta_step *step, ta_fault *answer, void *stream)
{
    ta_step idle;
    ta_sizes asked = sizes_of(step);
    ta_fault own = ta_sizes_ask(plan, step), notice = notice_of(plan, &asked, TA_FAULT_ASKS);
    *answer = ta_fault_of(TA_OK, -1);
    ta_sizes_make_idle(plan, &plan->sizes, &idle);
    TA_TRY(ta_sizes_notify(plan, &notice, stream));
    TA_TRY(plan->runs->decode(plan, &idle, &own, stream));
    TA_TRY(hear_all(plan, answer, stream));
    if (answer->status == TA_FAULT_ASKS) {
        plan->sizes = asked;
        return ta_sizes_set_usual(plan, stream);
    }
    return TA_OK;
}
