/* The planner's choice in words and as JSON: candidates, predicted microseconds by step, why. The
 * second half of ta_explain(), and ta_explain_json(). */
#include "explain_choice.h"

#include "base/status.h"

static const double MICRO = 1e6;

/* The candidate that this plan runs, or NULL if nothing was predicted. A ring of one rank is a
 * tree, of which there is one kind. */
static const ta_candidate *chosen_candidate(const ta_plan *plan)
{
    if (plan->ranks == 1 && plan->choice.candidates)
        return &plan->choice.candidates[TA_WAY_TREE];
    return ta_choice_candidate(&plan->choice);
}

/* Why a tree runs although a ring is faster. */
static const char *why_no_ring(const ta_choice *choice)
{
    if (choice->wanted_algorithm == TA_ALGORITHM_TREE)
        return ", but the config asks for the tree";
    if (choice->wanted != TA_EXCHANGE_AUTO)
        return ", but the config asks for an exchange";
    return choice->candidates[TA_WAY_TREE].fits > ta_choice_ring(choice)->fits
               ? ", but does not fit into memory"
               : ", which is no difference";
}

void ta_choice_explain_algorithm(const ta_plan *plan, ta_text *out)
{
    const ta_choice *choice = &plan->choice;
    const ta_candidate *ring = ta_choice_ring(choice), *chosen = chosen_candidate(plan);
    if (choice->wanted_algorithm > TA_ALGORITHM_TREE) {
        ta_text_add(out, "the config asks for it");
    } else if (ta_plan_is_ring(plan)) {
        ta_text_add(out, "the least predicted time of all ways on this cluster");
    } else {
        ta_text_add(out, "K and V stay in place, and what moves does not grow with the tokens");
        if (ring && ring->possible)
            ta_text_add(out, "; %s would take %.1f us%s", ring->algorithm, ring->seconds * MICRO,
                        ring->seconds < chosen->seconds ? why_no_ring(choice) : "");
    }
}

static void add_phases(const ta_candidate *c, ta_text *out)
{
    for (int i = 0; i < c->phase_count; ++i) {
        const ta_cost_phase *phase = &c->phases[i];
        ta_text_add(out, "%s%s %.1f", i ? ", " : "", phase->name, phase->seconds * MICRO);
        if (phase->rounds > 1)
            ta_text_add(out, " (%lld rounds)", (long long)phase->rounds);
    }
}

static void add_candidate(const ta_candidate *c, int chosen, ta_text *out)
{
    ta_text_add(out, "candidate: %s%s%s: %.1f us", c->algorithm, *c->exchange ? " " : "",
                c->exchange, c->seconds * MICRO);
    ta_text_add(out, " = ");
    add_phases(c, out);
    if (!c->fits)
        ta_text_add(out, "; does not fit, needs %.3g bytes", c->memory_bytes);
    ta_text_add(out, "%s\n", chosen ? "; chosen" : "");
}

static void add_why(const ta_plan *plan, ta_text *out)
{
    const ta_choice *choice = &plan->choice;
    if (plan->ranks == 1)
        ta_text_add(out, "one rank has nothing to exchange");
    else if (ta_plan_is_ring(plan))
        ta_choice_explain_algorithm(plan, out);
    else if (choice->wanted != TA_EXCHANGE_AUTO)
        ta_text_add(out, "the config asks for it");
    else if (choice->candidates)
        ta_text_add(out, "the least predicted time of all exchanges on this cluster");
    else if (choice->exchange == TA_EXCHANGE_BINOMIAL)
        ta_text_add(out, "the default for output on one rank; no cluster was given");
    else
        ta_text_add(out, "the default; no cluster was given");
}

static int one_device_is_cheaper(const ta_plan *plan)
{
    const ta_candidate *one = &plan->choice.candidates[TA_WAY_ONE_DEVICE];
    return one->possible && one->fits && one->seconds < chosen_candidate(plan)->seconds;
}

static void add_advice(const ta_plan *plan, ta_text *out)
{
    const ta_candidate *chosen = chosen_candidate(plan);
    const ta_candidate *one = &plan->choice.candidates[TA_WAY_ONE_DEVICE];
    if (one_device_is_cheaper(plan))
        ta_text_add(out,
                    "do not shard: one device holds the %.3g bytes of all ranks and would take "
                    "%.1f us",
                    one->memory_bytes, one->seconds * MICRO);
    else if (!chosen->fits)
        ta_text_add(out, "the %.3g bytes of a rank are more than a device has: use more ranks",
                    chosen->memory_bytes);
    else if (!one->possible)
        ta_text_add(out, "none: there is one rank");
    else if (!one->fits)
        ta_text_add(out, "shard: one device cannot hold the %.3g bytes of all ranks",
                    one->memory_bytes);
    else
        ta_text_add(out, "shard: one device would take %.1f us", one->seconds * MICRO);
}

static void add_exchange(const ta_plan *plan, ta_text *out)
{
    const ta_exchange_entry *kind = &ta_exchange_kinds[plan->choice.exchange];
    const ta_exchange_shape *shape = &plan->job.shape;
    int chunks = ta_exchange_job_chunks(&plan->job);
    if (plan->ranks == 1) {
        ta_text_add(out, "exchange: none\n");
        return;
    }
    ta_text_add(out, "exchange: %s, %s", kind->name, kind->what);
    if (shape->tallies && kind->what_of_tallies)
        ta_text_add(out, "%s", kind->what_of_tallies);
    if (kind->rounds)
        ta_text_add(out, ", %d rounds", kind->rounds->rounds(shape));
    if (chunks > 1)
        ta_text_add(out, " for each of %d chunks", chunks);
    ta_text_add(out, "\n");
}

void ta_choice_explain(const ta_plan *plan, ta_text *out)
{
    const ta_choice *choice = &plan->choice;
    if (!ta_plan_is_ring(plan)) {
        add_exchange(plan, out);
        ta_text_add(out, "why this exchange: ");
        add_why(plan, out);
        ta_text_add(out, "\n");
    }
    if (!choice->candidates)
        return;
    ta_text_add(out, "cluster: %s, these ranks %s %d %s\n", choice->cluster,
                choice->by_package ? "in" : "on", choice->nodes.count,
                choice->by_package ? "packages of one node" : "nodes");
    for (int way = 0; way < TA_WAYS; ++way) {
        const ta_candidate *c = &choice->candidates[way];
        if (c->possible)
            add_candidate(c, c == chosen_candidate(plan), out);
    }
    ta_text_add(out, "advice: ");
    add_advice(plan, out);
    ta_text_add(out, "\n");
}

/* ---- JSON ---- */

static void add_json_candidate(const ta_candidate *c, int chosen, ta_text *out)
{
    ta_text_add(out,
                "{\"algorithm\": \"%s\", \"exchange\": \"%s\", \"chosen\": %s, \"fits\": %s, "
                "\"microseconds\": %.9g, \"messages_sent_per_rank\": %llu, "
                "\"bytes_sent_per_rank\": %llu, \"bytes_sent_in_total\": %llu, "
                "\"memory_bytes_per_rank\": %.9g, \"steps\": [",
                c->algorithm, c->exchange, chosen ? "true" : "false", c->fits ? "true" : "false",
                c->seconds * MICRO, (unsigned long long)c->busiest.messages_sent,
                (unsigned long long)c->busiest.bytes_sent, (unsigned long long)c->total_bytes,
                c->memory_bytes);
    for (int i = 0; i < c->phase_count; ++i) {
        const ta_cost_phase *phase = &c->phases[i];
        ta_text_add(out,
                    "%s{\"name\": \"%s\", \"microseconds\": %.9g, \"rounds\": %lld, "
                    "\"bytes_sent_per_rank\": %llu}",
                    i ? ", " : "", phase->name, phase->seconds * MICRO, (long long)phase->rounds,
                    (unsigned long long)phase->rank_bytes);
    }
    ta_text_add(out, "]}");
}

static void add_json_prediction(const ta_plan *plan, ta_text *out)
{
    const ta_choice *choice = &plan->choice;
    const char *before = "";
    ta_text_add(out, ",\n \"cluster\": ");
    ta_text_add_quoted(out, choice->cluster); /* the user's name */
    ta_text_add(out, ", \"nodes\": %d", choice->by_package ? 1 : choice->nodes.count);
    if (choice->by_package)
        ta_text_add(out, ", \"packages\": %d", choice->nodes.count);
    ta_text_add(out, ", \"one_device_is_cheaper\": %s, \"advice\": \"",
                one_device_is_cheaper(plan) ? "true" : "false");
    add_advice(plan, out);
    ta_text_add(out, "\",\n \"candidates\": [");
    for (int way = 0; way < TA_WAYS; ++way) {
        const ta_candidate *c = &choice->candidates[way];
        if (!c->possible)
            continue;
        ta_text_add(out, "%s\n  ", before);
        add_json_candidate(c, c == chosen_candidate(plan), out);
        before = ",";
    }
    ta_text_add(out, "\n ]");
}

/* As ta_prediction names it. */
static const char *algorithm_name(const ta_plan *plan)
{
    if (!ta_plan_is_ring(plan))
        return "tree";
    return plan->algorithm == TA_ALGORITHM_RING_KV ? "ring pass-KV" : "ring pass-Q";
}

ta_status ta_explain_json(const ta_plan *plan, char *text, size_t capacity, size_t *needed_bytes)
{
    ta_text out;
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    TA_TRY(ta_text_open(&out, text, capacity));
    int merges = plan->ranks > 1 && !ta_plan_is_ring(plan);
    ta_text_add(&out, "{\"algorithm\": \"%s\", \"exchange\": \"%s\", \"ranks\": %d, \"why\": \"",
                algorithm_name(plan), merges ? ta_exchange_kinds[plan->choice.exchange].name : "",
                plan->ranks);
    add_why(plan, &out);
    ta_text_add(&out, "\"");
    if (plan->choice.candidates)
        add_json_prediction(plan, &out);
    ta_text_add(&out, "}\n");
    if (needed_bytes)
        *needed_bytes = out.length + 1;
    return TA_OK;
}
