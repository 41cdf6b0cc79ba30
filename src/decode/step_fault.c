/* The fault record of a step, and ta_plan_check(): see step_fault.h. */
#include "step_fault.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/status.h"

/* As the devices do it where the host cannot look (hip/attend/tell.h). */
static void share_starts(const ta_problem *p, ta_fault *own)
{
    if (p->starts)
        ta_fault_share(own, TA_COMMON_STARTS, ta_hash_words(p->starts, (uint32_t)p->batch + 1));
}

static void share_lists(const ta_problem *p, ta_fault *own)
{
    uint64_t hash = 0, words = p->selected ? (uint64_t)(p->rows * p->selected_stride) : 0;
    for (uint64_t i = 0; i < words; ++i)
        hash += ta_hash_at((uint32_t)i, (uint32_t)p->selected[i]);
    if (p->prefix_starts)
        hash += ta_prefix_hash(ta_hash_words(p->prefix_starts, (uint32_t)p->prefix_groups + 1),
                               ta_hash_words(p->prefix_lengths, (uint32_t)p->prefix_groups));
    if (p->selected || p->prefix_starts)
        ta_fault_share(own, TA_COMMON_LISTS, hash);
}

static void share_tables(const ta_problem *p, const ta_kv *kv, ta_fault *own)
{
    uint32_t each = (uint32_t)p->shard.ranks + 1;
    uint64_t bounds = 0;
    ta_fault_share(own, TA_COMMON_LENGTHS, ta_hash_words(kv->lengths, (uint32_t)p->batch));
    if (!kv->bounds)
        return;
    for (uint32_t i = 0; i < (uint32_t)p->batch * each; ++i)
        bounds += ta_hash_at(i, (uint32_t)kv->bounds[i / each * kv->bounds_stride + i % each]);
    ta_fault_share(own, TA_COMMON_BOUNDS, bounds);
}

/* A rank that failed has nothing to compare: in the place of that go the first words of what its
 * ta_last_error() says, which name the argument. */
#define WORDS_AT offsetof(ta_fault, what)
#define WORDS_BYTES (sizeof(ta_fault) - WORDS_AT)

static void quote(ta_fault *fault, const char *sentence)
{
    char words[WORDS_BYTES] = "";
    memcpy(words, sentence, strnlen(sentence, sizeof words));
    memcpy((char *)fault + WORDS_AT, words, sizeof words);
}

/* As ' ("kv.lengths[1] is …")', or nothing if they did not come along, as from device memory. */
static void write_quote(const ta_fault *fault, char *text, size_t capacity)
{
    char words[WORDS_BYTES + 1] = "";
    memcpy(words, (const char *)fault + WORDS_AT, WORDS_BYTES);
    char *last = strrchr(words, ' ');
    if (last && strlen(words) == WORDS_BYTES) /* the word that was cut off */
        last[1] = '\0';
    snprintf(text, capacity, words[0] ? " (\"%s…\")" : "%s", words);
}

/* 0 without lists: then the options are those of every other call. */
static uint64_t hash_of_lists(const ta_problem *p)
{
    if (!p->selected && !p->prefix_starts)
        return 0;
    return ta_hash_at(2, (uint32_t)p->selected_count) + ta_hash_at(3, (uint32_t)p->selected_lists) +
           ta_hash_at(4, (uint32_t)(p->prefix_starts ? p->prefix_groups : 0));
}

void ta_step_share_call(const ta_plan *plan, const ta_step *step, ta_fault *own)
{
    const ta_problem *p = &step->problem;
    own->tag = step->tag;
    ta_fault_share(own, TA_COMMON_PLAN, (uint64_t)plan->id);
    ta_fault_share(own, TA_COMMON_BATCH, (uint64_t)p->batch);
    ta_fault_share(own, TA_COMMON_TOKENS, p->starts ? (uint64_t)p->rows : 0);
    ta_fault_share(own, TA_COMMON_OPTIONS,
                   ta_hash_at(0, (uint32_t)p->window) + ta_hash_at(1, ta_float_bits(p->softcap)) +
                       hash_of_lists(p) + (uint64_t)step->tokens.dtype);
}

ta_fault ta_step_record(const ta_plan *plan, const ta_step *step, uint64_t shared,
                        ta_status checked)
{
    const ta_problem *p = &step->problem;
    ta_fault own = ta_fault_of(checked, plan->rank);
    if (checked != TA_OK)
        quote(&own, ta_last_error());
    if (checked != TA_OK || plan->ranks == 1)
        return own;
    ta_step_share_call(plan, step, &own);
    ta_fault_share(&own, TA_COMMON_QUERY, shared);
    if (ta_plan_device_tells(plan))
        return own;
    share_starts(p, &own);
    share_lists(p, &own);
    if (!ta_problem_combines(p))
        share_tables(p, &step->kv, &own);
    return own;
}

/* Ranks that waited in vain on their devices are no more in the same exchange: for good. */
static void give_up(ta_plan *plan, ta_fault lost)
{
    char reason[100];
    plan->lost = lost;
    snprintf(reason, sizeof reason, "rank %d %s", (int)lost.rank,
             lost.status == TA_ERR_ABORTED ? "aborted the group"
                                           : "did not come to a step within the group's timeout");
    ta_group_abort_for(plan->group, ta_fault_lost_word(lost), reason);
}

/* finish() leaves the report alone until its status is TA_OK again. */
ta_fault ta_take_report(ta_plan *plan)
{
    ta_fault fault = ta_fault_of(TA_OK, plan->rank);
    if (ta_fault_is_lost(plan->lost))
        return plan->lost;
    if (__atomic_load_n(&plan->report->status, __ATOMIC_ACQUIRE) == TA_OK)
        return fault;
    fault = *plan->report;
    __atomic_store_n(&plan->report->status, TA_OK, __ATOMIC_RELEASE);
    if (ta_fault_is_lost(fault))
        give_up(plan, fault);
    return fault;
}

/* What a sentence says of a fault: in what ranks differ, or what the rank said first. */
#define TEXT_BYTES 240

enum {
    ALL_NAMES_BYTES = sizeof "the tag"
#define NAME(name, bits, text) +sizeof text " and " - 1
    TA_COMMON_LIST(NAME)
#undef NAME
};
_Static_assert(ALL_NAMES_BYTES <= TEXT_BYTES, "ranks may differ in everything");

/* In what two ranks differ: "kv.lengths and the tag". If only the hash shows it, that may be any
 * part. */
static void name_differences(int32_t differs, int appends, char *text, size_t capacity)
{
    static const char *const names[] = {
#define NAME(name, bits, text) [TA_COMMON_##name] = (text),
        TA_COMMON_LIST(NAME)
#undef NAME
            [TA_COMMON_PARTS] = "what they were given",
        [TA_COMMON_PARTS + 1] = "the tag"};
    if (differs & (TA_DIFFERS_HASH - 1))
        differs &= ~TA_DIFFERS_HASH;
    int written = 0;
    for (int i = 0; i < TA_COMMON_PARTS + 2; ++i)
        if (differs >> i & 1)
            written +=
                snprintf(text + written, capacity - (size_t)written, "%s%s", written ? " and " : "",
                         appends && i == TA_COMMON_OPTIONS ? "input.dtype" : names[i]);
}

ta_status ta_fail_of_fault(const ta_fault *fault, const char *when, const char *what, int appends)
{
    ta_status status = (ta_status)fault->status;
    char text[TEXT_BYTES] = "";
    if (ta_fault_is_lost(*fault) && status == TA_ERR_ABORTED)
        return ta_found_by_other(ta_fail(status,
                                         "rank %d aborted the group, for which %s step ended on "
                                         "the devices; %s",
                                         (int)fault->rank, when, what));
    if (ta_fault_is_lost(*fault))
        return ta_fail(status,
                       "rank %d did not come to %s step within the group's timeout, another rank "
                       "waited for it in vain; %s",
                       (int)fault->rank, when, what);
    if (fault->other >= 0) {
        name_differences(fault->what, appends, text, sizeof text);
        return ta_fail(status,
                       "ranks %d and %d differ in %s step, in %s: all ranks must give the "
                       "same; %s",
                       (int)fault->rank, (int)fault->other, when, text, what);
    }
    write_quote(fault, text, sizeof text);
    return ta_found_by_other(
        ta_fail(status, "rank %d failed in %s step with %s%s, its ta_last_error() says why; %s",
                (int)fault->rank, when, ta_status_name(status), text, what));
}

ta_status ta_plan_check(ta_plan *plan)
{
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    ta_fault fault = ta_take_report(plan);
    if (fault.status == TA_OK)
        return TA_OK;
    return ta_fail_of_fault(&fault, "an earlier", "that step wrote nothing here", 0);
}
