/* See candidate.h. */
#include "candidate.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static const double MICRO = 1e6;

void ta_call_cost_set(ta_call_cost *call, const char *name, const ta_cost *cost, double attend_s)
{
    *call = (ta_call_cost){.name = name,
                           .seconds = cost->seconds,
                           .attend_s = attend_s,
                           .phase_count = cost->phase_count};
    memcpy(call->phases, cost->phases, sizeof call->phases);
    ta_cost_busiest(cost, &call->busiest);
    for (int rank = 0; rank < cost->ranks; ++rank)
        call->total_bytes += cost->traffic[rank].bytes_sent;
}

double ta_candidate_seconds(const ta_candidate *candidate)
{
    double sum = 0;
    for (int i = 0; i < candidate->call_count; ++i)
        sum += candidate->calls[i].seconds;
    return sum;
}

static int is_better(const ta_candidate *c, const ta_candidate *than)
{
    double gain = c->is_ring && !than->is_ring ? TA_RING_GAIN : 0;
    if (c->fits != than->fits)
        return c->fits;
    return ta_candidate_seconds(c) < (1 - gain) * ta_candidate_seconds(than);
}

int ta_candidates_best(const ta_candidates *candidates,
                       int (*is_open)(const ta_candidate *candidate, const void *context),
                       const void *context)
{
    int best = -1;
    for (int i = 0; i < candidates->count; ++i) {
        const ta_candidate *c = &candidates->list[i];
        if (c->possible && is_open(c, context) &&
            (best < 0 || is_better(c, &candidates->list[best])))
            best = i;
    }
    return best;
}

const ta_candidate *ta_candidates_chosen(const ta_candidates *candidates)
{
    return candidates->list ? &candidates->list[candidates->chosen] : NULL;
}

void ta_candidates_free(ta_candidates *candidates)
{
    free(candidates->list);
    candidates->list = NULL;
}

/* ---- Text ------------------------------------------------------------------------------------ */

void ta_candidate_write_name(const ta_candidate *candidate, ta_text *out)
{
    const ta_candidate *c = candidate;
    ta_text_add(out, "%s%s%s", c->algorithm_name, *c->exchange_name ? " " : "", c->exchange_name);
    if (c->grid_rows)
        ta_text_add(out, " of %d x %d", c->grid_rows, c->grid_columns);
}

static void write_call(const ta_call_cost *call, ta_text *out)
{
    ta_text_add(out, "%s %.1f us =", call->name, call->seconds * MICRO);
    for (int i = 0; i < call->phase_count; ++i) {
        const ta_cost_phase *phase = &call->phases[i];
        ta_text_add(out, "%s %s %.1f", i ? "," : "", phase->name, phase->seconds * MICRO);
        if (phase->rounds > 1)
            ta_text_add(out, " (%lld rounds)", (long long)phase->rounds);
    }
}

void ta_candidates_write(const ta_candidates *candidates, ta_text *out)
{
    for (int i = 0; i < candidates->count; ++i) {
        const ta_candidate *c = &candidates->list[i];
        if (!c->possible)
            continue;
        ta_text_add(out, "candidate: ");
        ta_candidate_write_name(c, out);
        for (int call = 0; call < c->call_count; ++call) {
            ta_text_add(out, "%s", call ? "; " : ": ");
            write_call(&c->calls[call], out);
        }
        if (!c->fits)
            ta_text_add(out, "; does not fit, needs %.3g bytes", c->memory_bytes);
        ta_text_add(out, "%s\n", i == candidates->chosen ? "; chosen" : "");
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const char *truth(int value)
{
    return value ? "true" : "false";
}

static void write_json_call(const ta_call_cost *call, ta_text *out)
{
    const ta_traffic *t = &call->busiest;
    ta_text_add(out,
                "{\"name\": \"%s\", \"microseconds\": %.9g, \"attend_microseconds\": %.9g, "
                "\"messages_sent\": %llu, \"messages_received\": %llu, \"bytes_sent\": %llu, "
                "\"bytes_received\": %llu, \"bytes_sent_by_all\": %llu, \"steps\": [",
                call->name, call->seconds * MICRO, call->attend_s * MICRO,
                (unsigned long long)t->messages_sent, (unsigned long long)t->messages_received,
                (unsigned long long)t->bytes_sent, (unsigned long long)t->bytes_received,
                (unsigned long long)call->total_bytes);
    for (int i = 0; i < call->phase_count; ++i) {
        const ta_cost_phase *phase = &call->phases[i];
        ta_text_add(out,
                    "%s{\"name\": \"%s\", \"microseconds\": %.9g, \"rounds\": %lld, \"bytes\": "
                    "%llu}",
                    i ? ", " : "", phase->name, phase->seconds * MICRO, (long long)phase->rounds,
                    (unsigned long long)phase->rank_bytes);
    }
    ta_text_add(out, "]}");
}

static void write_json_candidate(const ta_candidate *c, int chosen, ta_text *out)
{
    ta_text_add(out,
                "{\"algorithm\": \"%s\", \"exchange\": \"%s\", \"grid_rows\": %d, "
                "\"grid_columns\": %d, \"chosen\": %s, \"fits\": %s, \"memory_bytes\": %.9g, "
                "\"microseconds\": %.9g,\n   \"calls\": [",
                c->algorithm_name, c->exchange_name, c->grid_rows, c->grid_columns, truth(chosen),
                truth(c->fits), c->memory_bytes, ta_candidate_seconds(c) * MICRO);
    for (int i = 0; i < c->call_count; ++i) {
        ta_text_add(out, "%s", i ? ",\n    " : "");
        write_json_call(&c->calls[i], out);
    }
    ta_text_add(out, "]}");
}

void ta_candidates_write_json(const ta_candidates *candidates, ta_text *out)
{
    const char *before = "";
    ta_text_add(out, "\"cluster\": ");
    ta_text_add_quoted(out, candidates->cluster); /* the user's name */
    ta_text_add(out, ",\n \"candidates\": [");
    for (int i = 0; i < candidates->count; ++i) {
        if (!candidates->list[i].possible)
            continue;
        ta_text_add(out, "%s\n  ", before);
        write_json_candidate(&candidates->list[i], i == candidates->chosen, out);
        before = ",";
    }
    ta_text_add(out, "\n ]");
}

void ta_running_write_json(const ta_running *running, ta_text *out)
{
    const ta_running *r = running;
    ta_text_add(out,
                "{\"algorithm\": \"%s\", \"exchange\": \"%s\", \"grid_rows\": %d, "
                "\"grid_columns\": %d, \"ranks\": %d, \"memory_bytes\": %zu,\n \"why\": ",
                r->algorithm, r->exchange, r->grid_rows, r->grid_columns, r->ranks,
                r->memory_bytes);
    ta_text_add_quoted(out, r->why);
}

/* ---- Predictions ----------------------------------------------------------------------------- */

ta_predicted_call ta_call_cost_predicted(const ta_call_cost *call)
{
    return (ta_predicted_call){.seconds = call->seconds,
                               .attend_seconds = call->attend_s,
                               .messages_sent = call->busiest.messages_sent,
                               .messages_received = call->busiest.messages_received,
                               .bytes_sent = call->busiest.bytes_sent,
                               .bytes_received = call->busiest.bytes_received,
                               .total_bytes_sent = call->total_bytes};
}

ta_status ta_predict_check(const ta_cluster *cluster, int ranks)
{
    if (!cluster)
        return ta_fail(TA_ERR_INVALID, "cluster is NULL: make one with ta_cluster_create()");
    if (ranks < 1 || ranks > cluster->ranks)
        return ta_fail(TA_ERR_INVALID, "ranks is %d: must be from 1 to %d, the cluster's", ranks,
                       cluster->ranks);
    return TA_OK;
}

ta_status ta_predict_check_candidate(int candidate, int count)
{
    if (candidate < 0 || candidate >= count)
        return ta_fail_quietly(TA_ERR_NOT_FOUND, "candidate is %d: must be from 0 to %d", candidate,
                               count - 1);
    return TA_OK;
}
