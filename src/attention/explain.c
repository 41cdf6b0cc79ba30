/* ta_attention_explain(), its JSON, and ta_attention_predict(): what an attention plan will do and
 * why, and what all ways of doing it would cost. The numbers are those of choice.c, the words those
 * of cluster/candidate.c. */
#include <stdlib.h>

#include <treeattn/cluster.h>

#include "base/arguments.h"
#include "base/dtype.h"
#include "base/status.h"
#include "cost.h"
#include "make.h"

static const char *why(const ta_attention *a)
{
    if (a->ranks == 1)
        return "one rank has nothing to exchange";
    if (a->wanted == TA_ATTENTION_RING || (a->wanted != TA_ATTENTION_AUTO && a->wanted_rows))
        return "the config asks for it";
    if (a->candidates.list)
        return a->wanted_rows || a->wanted != TA_ATTENTION_AUTO
                   ? "the least predicted time of what the config leaves open, on this cluster"
                   : "the least predicted time of all ways on this cluster";
    return a->wanted_rows ? "the config gives the grid; no cluster was given"
                          : "the fewest bytes; no cluster was given";
}

/* ---- Text ---------------------------------------------------------------------------------- */

static void add_work(const ta_attention *a, ta_text *out)
{
    const ta_attention_work *s = &a->shape;
    ta_text_add(out, "device: %s\ngroup: %s, %d ranks, this is rank %d\n", a->device->name,
                a->caller ? a->caller->ops->name : "none", a->ranks, a->rank);
    ta_text_add(out,
                "attention: %d query heads, %d KV heads, dims %d and %d, %s, %s, up to %d "
                "tokens on a rank%s\n",
                (int)s->query_heads, (int)s->kv_heads, (int)s->k_dim, (int)s->v_dim,
                ta_dtype_name(s->dtype), a->causal ? "causal" : "full", (int)a->max_tokens,
                a->forward_only ? ", forward only" : "");
}

/* As the host's clock has it. */
static void add_calls(const ta_attention *a, ta_text *out)
{
    static const char *const names[] = {"forward", "backward"};
    for (int i = 0; i < 2; ++i) {
        double calls = (double)a->counted[i].calls;
        if (a->counted[i].calls)
            ta_text_add(out, "%s: %llu calls, %.1f us each, of them attend %.1f\n", names[i],
                        (unsigned long long)a->counted[i].calls,
                        (double)a->counted[i].ns * 1e-3 / calls,
                        (double)a->counted[i].attend_ns * 1e-3 / calls);
    }
}

static ta_status begin_text(const ta_attention *a, char *text, size_t capacity, ta_text *out)
{
    if (!a)
        return ta_fail(TA_ERR_INVALID, "attention is NULL: make one with ta_attention_create()");
    return ta_text_open(out, text, capacity);
}

ta_status ta_attention_explain(const ta_attention *attention, char *text, size_t capacity,
                               size_t *needed_bytes)
{
    const ta_attention *a = attention;
    ta_text out;
    TA_TRY(begin_text(a, text, capacity, &out));
    add_work(a, &out);
    ta_text_add(&out, "algorithm: %s", ta_attention_algorithm_name(a->algorithm));
    if (a->algorithm != TA_ATTENTION_RING)
        ta_text_add(&out, " of %d x %d", a->grid_rows, a->grid_columns);
    ta_text_add(&out, "\nwhy: %s\nworkspace: %zu bytes, %s\n", why(a), a->memory_bytes,
                a->owns_memory ? "the plan's own" : "the caller's");
    add_calls(a, &out);
    if (a->candidates.list) {
        ta_text_add(&out, "cluster: %s\n", a->candidates.cluster);
        ta_candidates_write(&a->candidates, &out);
    }
    return ta_text_close(&out, needed_bytes);
}

ta_status ta_attention_explain_json(const ta_attention *attention, char *text, size_t capacity,
                                    size_t *needed_bytes)
{
    const ta_attention *a = attention;
    ta_text out;
    TA_TRY(begin_text(a, text, capacity, &out));
    int is_ring = a->algorithm == TA_ATTENTION_RING;
    ta_running running = {.algorithm = ta_attention_algorithm_name(a->algorithm),
                          .exchange = "",
                          .why = why(a),
                          .grid_rows = is_ring ? 0 : a->grid_rows,
                          .grid_columns = is_ring ? 0 : a->grid_columns,
                          .ranks = a->ranks,
                          .memory_bytes = a->memory_bytes};
    ta_running_write_json(&running, &out);
    if (a->candidates.list) {
        ta_text_add(&out, ",\n ");
        ta_candidates_write_json(&a->candidates, &out);
    }
    ta_text_add(&out, "}\n");
    return ta_text_close(&out, needed_bytes);
}

/* ---- Predictions --------------------------------------------------------------------------- */

static ta_attention_prediction public_form(const ta_candidates *candidates, int index)
{
    const ta_candidate *c = &candidates->list[index];
    ta_attention_prediction p = {.algorithm = (ta_attention_algorithm)c->algorithm,
                                 .grid_rows = c->grid_rows,
                                 .grid_columns = c->grid_columns,
                                 .possible = c->possible,
                                 .chosen = index == candidates->chosen,
                                 .fits = c->fits,
                                 .forward = ta_call_cost_predicted(&c->calls[0]),
                                 .memory_bytes = c->memory_bytes};
    if (c->call_count > 1)
        p.backward = ta_call_cost_predicted(&c->calls[1]);
    return p;
}

ta_status ta_attention_predict(const ta_cluster *cluster, const ta_attention_config *config,
                               int ranks, int candidate, ta_attention_prediction *prediction)
{
    ta_attention_config known;
    TA_TRY(ta_predict_check(cluster, ranks));
    TA_TRY(ta_struct_read(TA_STRUCT(ta_attention_config), "config", config, &known));
    ta_attention *a = calloc(1, sizeof *a);
    if (!a)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for an attention plan");
    known.cluster = cluster;
    a->ranks = ranks;
    ta_status status = ta_attention_resolve(&known, a);
    if (status == TA_OK)
        status = ta_predict_check_candidate(candidate, a->candidates.count);
    if (status == TA_OK) {
        ta_attention_prediction found = public_form(&a->candidates, candidate);
        status =
            ta_struct_write(TA_STRUCT(ta_attention_prediction), "prediction", &found, prediction);
    }
    ta_candidates_free(&a->candidates);
    free(a->turn_starts);
    free(a);
    return status;
}
