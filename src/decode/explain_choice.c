/* The planner's choice in words and as JSON: candidates, predicted microseconds by step, why. The
 * second half of ta_explain(), and ta_explain_json(). */
#include "explain_choice.h"

#include "base/status.h"

static const double MICRO = 1e6;

static double seconds_of(const ta_candidate *c)
{
    return c->calls[0].seconds;
}

/* Why a tree runs although a ring is faster. */
static const char *why_no_ring(const ta_choice *choice)
{
    if (choice->wanted_algorithm == TA_ALGORITHM_TREE)
        return ", but the config asks for the tree";
    if (choice->wanted != TA_EXCHANGE_AUTO)
        return ", but the config asks for an exchange";
    return ta_candidates_chosen(&choice->candidates)->fits > ta_choice_ring(choice)->fits
               ? ", but does not fit into memory"
               : ", which is no difference";
}

/* Why what would have been faster is not what runs. */
static void add_not_direct(const ta_choice *choice, ta_text *out)
{
    if (*choice->not_possible)
        ta_text_add(out, "; not direct: %s", choice->not_possible);
}

void ta_choice_explain_algorithm(const ta_plan *plan, ta_text *out)
{
    const ta_choice *choice = &plan->choice;
    const ta_candidate *ring = ta_choice_ring(choice);
    if (ta_plan_combines(plan)) {
        ta_text_add(out, "the plan only combines; the attention of each shard is the caller's");
    } else if (choice->wanted_algorithm > TA_ALGORITHM_TREE) {
        ta_text_add(out, "the config asks for it");
    } else if (ta_plan_is_ring(plan)) {
        ta_text_add(out, "the least predicted time of all ways on this cluster");
        add_not_direct(choice, out);
    } else {
        ta_text_add(out, "K and V stay in place, and what moves does not grow with the tokens");
        if (ring && ring->possible)
            ta_text_add(out, "; %s would take %.1f us%s", ring->algorithm_name,
                        seconds_of(ring) * MICRO,
                        seconds_of(ring) < seconds_of(ta_candidates_chosen(&choice->candidates))
                            ? why_no_ring(choice)
                            : "");
    }
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
    else if (choice->candidates.list) {
        ta_text_add(out, "the least predicted time of all exchanges on this cluster");
        add_not_direct(choice, out);
    } else if (choice->exchange == TA_EXCHANGE_BINOMIAL)
        ta_text_add(out, "the default for output on one rank; no cluster was given");
    else
        ta_text_add(out, "the default; no cluster was given");
}

static void add_advice(const ta_plan *plan, ta_text *out)
{
    const ta_candidate *chosen = ta_candidates_chosen(&plan->choice.candidates);
    const ta_candidate *one = &plan->choice.candidates.list[TA_WAY_ONE_DEVICE];
    if (ta_plan_combines(plan))
        ta_text_add(out, "none: what attending costs is not known");
    else if (ta_choice_one_device_is_cheaper(&plan->choice))
        ta_text_add(out,
                    "do not shard: one device holds the %.3g bytes of all ranks and would take "
                    "%.1f us",
                    one->memory_bytes, seconds_of(one) * MICRO);
    else if (!chosen->fits)
        ta_text_add(out, "the %.3g bytes of a rank are more than a device has: use more ranks",
                    chosen->memory_bytes);
    else if (!one->possible)
        ta_text_add(out, "none: there is one rank");
    else if (!one->fits)
        ta_text_add(out, "shard: one device cannot hold the %.3g bytes of all ranks",
                    one->memory_bytes);
    else
        ta_text_add(out, "shard: one device would take %.1f us", seconds_of(one) * MICRO);
}

static void add_exchange(const ta_plan *plan, ta_text *out)
{
    const ta_exchange_entry *kind = &ta_exchange_kinds[plan->choice.exchange];
    ta_exchange_shape largest = plan->job.shape; /* the job is as the last call needed it */
    const ta_exchange_shape *shape = &largest;
    if (plan->ranks == 1) {
        ta_text_add(out, "exchange: none\n");
        return;
    }
    largest.head_bytes = (size_t)plan->problem.rows * largest.record_bytes;
    int chunks = ta_exchange_chunks(plan->choice.exchange, shape);
    ta_text_add(out, "exchange: %s, %s", kind->name, kind->what);
    if (shape->tallies && kind->what_of_tallies)
        ta_text_add(out, "%s", kind->what_of_tallies);
    if (kind->rounds)
        ta_text_add(out, ", %d rounds", kind->rounds->rounds(shape));
    if (chunks > 1)
        ta_text_add(out, " for each of %d chunks", chunks);
    ta_text_add(out, "\n");
}

/* "on 4 nodes", "in 2 packages of one node", "in 16 packages on 8 nodes in 2 racks" */
static void add_places(const ta_nodes *nodes, ta_text *out)
{
    if (nodes->unit == TA_UNIT_PACKAGE && !nodes->above) {
        ta_text_add(out, "in %d packages of one node", nodes->count);
        return;
    }
    for (const ta_nodes *n = nodes; n; n = n->above) {
        const char *what = n->unit == TA_UNIT_NODE      ? "on %d nodes"
                           : n->unit == TA_UNIT_PACKAGE ? "in %d packages"
                                                        : "in %d racks";
        ta_text_add(out, n == nodes ? "" : " ");
        ta_text_add(out, what, n->count);
    }
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
    if (!choice->candidates.list)
        return;
    ta_text_add(out, "cluster: %s, these ranks ", choice->candidates.cluster);
    add_places(&choice->nodes, out);
    ta_text_add(out, "\n");
    ta_candidates_write(&choice->candidates, out);
    ta_text_add(out, "advice: ");
    add_advice(plan, out);
    ta_text_add(out, "\n");
}

/* ---- JSON ---- */

static void add_json_choice(const ta_plan *plan, ta_text *out)
{
    const ta_choice *choice = &plan->choice;
    const ta_nodes *nodes = ta_nodes_find(&choice->nodes, TA_UNIT_NODE);
    const ta_nodes *packages = ta_nodes_find(&choice->nodes, TA_UNIT_PACKAGE);
    const ta_nodes *racks = ta_nodes_find(&choice->nodes, TA_UNIT_RACK);
    ta_text_add(out, ",\n \"nodes\": %d", nodes ? nodes->count : 1);
    if (packages)
        ta_text_add(out, ", \"packages\": %d", packages->count);
    if (racks)
        ta_text_add(out, ", \"racks\": %d", racks->count);
    ta_text_add(out, ", \"one_device_is_cheaper\": %s, \"advice\": \"",
                ta_choice_one_device_is_cheaper(choice) ? "true" : "false");
    add_advice(plan, out);
    ta_text_add(out, "\",\n ");
    ta_candidates_write_json(&choice->candidates, out);
}

ta_status ta_explain_json(const ta_plan *plan, char *text, size_t capacity, size_t *needed_bytes)
{
    ta_text out, words;
    char why[300];
    if (!plan)
        return ta_fail(TA_ERR_INVALID, "plan is NULL: make one with ta_plan_create()");
    TA_TRY(ta_text_open(&out, text, capacity));
    ta_text_init(&words, why, sizeof why);
    add_why(plan, &words);
    int is_ring = ta_plan_is_ring(plan), merges = plan->ranks > 1 && !is_ring;
    ta_running running = {.algorithm =
                              ta_algorithm_name(is_ring ? plan->algorithm : TA_ALGORITHM_TREE),
                          .exchange = merges ? ta_exchange_name(plan->choice.exchange) : "",
                          .why = why,
                          .ranks = plan->ranks,
                          .memory_bytes = plan->memory_bytes};
    ta_running_write_json(&running, &out);
    ta_text_add(&out, ", \"weights\": \"%s\"", plan->problem.rounds_weights ? "rounded" : "exact");
    if (plan->choice.candidates.list)
        add_json_choice(plan, &out);
    ta_text_add(&out, "}\n");
    return ta_text_close(&out, needed_bytes);
}
