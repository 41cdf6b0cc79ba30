/* ta_attention_explain() and ta_attention_predict(): what an attention plan will do and why, and
 * what all ways of doing it would cost. The numbers are those of choice.c. */
#include <stdlib.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/struct_size.h"
#include "cost.h"
#include "make.h"

static const char *const pass_names[TA_PASSES] = {"forward", "backward"};
static const double MILLI = 1e3;

static int passes_of(const ta_attention *a)
{
    return a->forward_only ? 1 : TA_PASSES;
}

static const char *why(const ta_attention *a)
{
    if (a->ranks == 1)
        return "one rank has nothing to exchange";
    if (a->wanted == TA_ATTENTION_RING || (a->wanted_rows && !a->choice.candidates))
        return "the config asks for it";
    if (a->wanted_rows)
        return "the config gives the grid; of what it leaves open, the least predicted time";
    if (a->choice.candidates)
        return "the least predicted time of what the config leaves open, on this cluster";
    return "the fewest bytes; no cluster was given";
}

static void add_name(ta_text *out, ta_attention_algorithm algorithm, int rows, int columns)
{
    ta_text_add(out, "%s", ta_attention_algorithm_name(algorithm));
    if (algorithm != TA_ATTENTION_RING)
        ta_text_add(out, " of %d x %d", rows, columns);
}

/* Of a call so far, or of attending in it. */
static double mean_ms(const ta_attention *a, int pass, int attend)
{
    uint64_t ns = attend ? a->counted[pass].attend_ns : a->counted[pass].ns;
    return a->counted[pass].calls ? (double)ns * 1e-6 / (double)a->counted[pass].calls : 0;
}

/* ---- Text ---------------------------------------------------------------------------------- */

static void add_candidate(const ta_attention *a, int index, ta_text *out)
{
    const ta_attention_candidate *c = &a->choice.candidates[index];
    ta_text_add(out, "candidate: ");
    add_name(out, c->algorithm, c->grid_rows, c->grid_columns);
    for (int i = 0; i < passes_of(a); ++i) {
        const ta_attention_pass *pass = &c->passes[i];
        ta_text_add(out, "%s %s %.3f ms =", i ? ";" : ":", pass_names[i], pass->seconds * MILLI);
        for (int p = 0; p < pass->phase_count; ++p)
            ta_text_add(out, "%s %s %.3f", p ? "," : "", pass->phases[p].name,
                        pass->phases[p].seconds * MILLI);
    }
    if (!c->fits)
        ta_text_add(out, "; does not fit, needs %.3g bytes", c->memory_bytes);
    ta_text_add(out, "%s\n", index == a->choice.chosen ? "; chosen" : "");
}

static void add_text(const ta_attention *a, ta_text *out)
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
    ta_text_add(out, "algorithm: ");
    add_name(out, a->algorithm, a->grid_rows, a->grid_columns);
    ta_text_add(out, "\nwhy: %s\nmemory: %zu bytes beside the tensors\n", why(a), a->memory_bytes);
    for (int i = 0; i < TA_PASSES; ++i)
        if (a->counted[i].calls)
            ta_text_add(out, "%s: %llu calls, %.3f ms each, of them attend %.3f\n", pass_names[i],
                        (unsigned long long)a->counted[i].calls, mean_ms(a, i, 0),
                        mean_ms(a, i, 1));
    if (!a->choice.candidates)
        return;
    ta_text_add(out, "cluster: %s\n", a->choice.cluster);
    for (int i = 0; i < a->choice.count; ++i)
        add_candidate(a, i, out);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void add_json_pass(const ta_attention_pass *pass, const char *name, ta_text *out)
{
    ta_text_add(out,
                ", \"%s\": {\"microseconds\": %.9g, \"attend_microseconds\": %.9g, "
                "\"messages_received_per_rank\": %llu, \"bytes_received_per_rank\": %llu, "
                "\"steps\": [",
                name, pass->seconds * 1e6, pass->attend_s * 1e6,
                (unsigned long long)pass->busiest.messages_received,
                (unsigned long long)pass->busiest.bytes_received);
    for (int i = 0; i < pass->phase_count; ++i)
        ta_text_add(out, "%s{\"name\": \"%s\", \"microseconds\": %.9g, \"rounds\": %lld}",
                    i ? ", " : "", pass->phases[i].name, pass->phases[i].seconds * 1e6,
                    (long long)pass->phases[i].rounds);
    ta_text_add(out, "]}");
}

static void add_json(const ta_attention *a, ta_text *out)
{
    ta_text_add(out,
                "{\"algorithm\": \"%s\", \"grid_rows\": %d, \"grid_columns\": %d, \"ranks\": %d, "
                "\"memory_bytes\": %zu, \"why\": \"%s\"",
                ta_attention_algorithm_name(a->algorithm), a->grid_rows, a->grid_columns, a->ranks,
                a->memory_bytes, why(a));
    for (int i = 0; i < TA_PASSES; ++i)
        ta_text_add(out,
                    ",\n \"%s_calls\": %llu, \"%s_microseconds\": %.9g, "
                    "\"%s_attend_microseconds\": %.9g",
                    pass_names[i], (unsigned long long)a->counted[i].calls, pass_names[i],
                    mean_ms(a, i, 0) * 1e3, pass_names[i], mean_ms(a, i, 1) * 1e3);
    if (a->choice.candidates) {
        ta_text_add(out, ",\n \"cluster\": ");
        ta_text_add_quoted(out, a->choice.cluster);
        ta_text_add(out, ",\n \"candidates\": [");
        for (int i = 0; i < a->choice.count; ++i) {
            const ta_attention_candidate *c = &a->choice.candidates[i];
            ta_text_add(out,
                        "%s\n  {\"algorithm\": \"%s\", \"grid_rows\": %d, \"grid_columns\": %d, "
                        "\"chosen\": %s, \"fits\": %s, \"memory_bytes_per_rank\": %.9g",
                        i ? "," : "", ta_attention_algorithm_name(c->algorithm), c->grid_rows,
                        c->grid_columns, i == a->choice.chosen ? "true" : "false",
                        c->fits ? "true" : "false", c->memory_bytes);
            for (int pass = 0; pass < passes_of(a); ++pass)
                add_json_pass(&c->passes[pass], pass_names[pass], out);
            ta_text_add(out, "}");
        }
        ta_text_add(out, "\n ]");
    }
    ta_text_add(out, "}\n");
}

ta_status ta_attention_explain(const ta_attention *attention, int json, char *text, size_t capacity,
                               size_t *needed_bytes)
{
    ta_text out;
    if (!attention)
        return ta_fail(TA_ERR_INVALID, "attention is NULL: make one with ta_attention_create()");
    TA_TRY(ta_text_open(&out, text, capacity));
    (json ? add_json : add_text)(attention, &out);
    if (needed_bytes)
        *needed_bytes = out.length + 1;
    return TA_OK;
}

/* ---- Predictions --------------------------------------------------------------------------- */

static ta_status check_arguments(const ta_cluster *cluster, int ranks)
{
    if (!cluster)
        return ta_fail(TA_ERR_INVALID, "cluster is NULL: make one with ta_cluster_create()");
    if (ranks < 1 || ranks > cluster->ranks)
        return ta_fail(TA_ERR_INVALID, "ranks is %d: must be from 1 to %d, the cluster's", ranks,
                       cluster->ranks);
    return TA_OK;
}

static ta_attention_prediction public_form(const ta_attention_choice *choice, int index)
{
    const ta_attention_candidate *c = &choice->candidates[index];
    const ta_attention_pass *forward = &c->passes[TA_PASS_FORWARD];
    const ta_attention_pass *backward = &c->passes[TA_PASS_BACKWARD];
    return (ta_attention_prediction){
        .algorithm = c->algorithm,
        .grid_rows = c->grid_rows,
        .grid_columns = c->grid_columns,
        .chosen = index == choice->chosen,
        .fits = c->fits,
        .forward_seconds = forward->seconds,
        .backward_seconds = backward->seconds,
        .forward_attend_seconds = forward->attend_s,
        .backward_attend_seconds = backward->attend_s,
        .forward_messages_received = forward->busiest.messages_received,
        .backward_messages_received = backward->busiest.messages_received,
        .forward_bytes_received = forward->busiest.bytes_received,
        .backward_bytes_received = backward->busiest.bytes_received,
        .memory_bytes = c->memory_bytes,
    };
}

ta_status ta_attention_predict(const ta_cluster *cluster, const ta_attention_config *config,
                               int ranks, int candidate, ta_attention_prediction *prediction)
{
    ta_attention_config known;
    TA_TRY(check_arguments(cluster, ranks));
    TA_TRY(ta_struct_read(TA_STRUCT(ta_attention_config), "config", config, &known));
    ta_attention *a = calloc(1, sizeof *a);
    if (!a)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for an attention plan");
    known.cluster = cluster;
    a->ranks = ranks;
    ta_status status = ta_attention_resolve(&known, a);
    if (status == TA_OK && (candidate < 0 || candidate >= a->choice.count))
        status = ta_fail_quietly(TA_ERR_NOT_FOUND, "candidate is %d: must be from 0 to %d",
                                 candidate, a->choice.count - 1);
    if (status == TA_OK) {
        ta_attention_prediction found = public_form(&a->choice, candidate);
        status =
            ta_struct_write(TA_STRUCT(ta_attention_prediction), "prediction", &found, prediction);
    }
    free(a->choice.candidates);
    free(a);
    return status;
}
