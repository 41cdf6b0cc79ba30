/* Plan agreement: rank 0 tells what it planned, every rank compares with its own, and all hear the
 * verdict of all, so that a plan exists on every rank or on none. Called by plan.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "plan.h"

/* What must be the same on all ranks: name, kind, value. */
#define FIELDS(X)                                                                                  \
    X("batch", INTEGER, p->batch)                                                                  \
    X("query_tokens", INTEGER, p->query_tokens)                                                    \
    X("query_heads", INTEGER, p->query_heads)                                                      \
    X("kv_heads", INTEGER, p->kv_heads)                                                            \
    X("k_dim", INTEGER, p->k_dim)                                                                  \
    X("v_dim", INTEGER, p->v_dim)                                                                  \
    X("kv_dtype", INTEGER, p->kv_dtype)                                                            \
    X("query_dtype", INTEGER, p->query_dtype)                                                      \
    X("out_dtype", INTEGER, p->out_dtype)                                                          \
    X("max_tokens", INTEGER, p->max_tokens)                                                        \
    X("map.kind", INTEGER, p->shard.cyclic)                                                        \
    X("map.block", INTEGER, p->shard.block)                                                        \
    X("mask", INTEGER, !p->causal)                                                                 \
    X("window", INTEGER, p->window)                                                                \
    X("scale", REAL, ta_float_bits(p->scale))                                                      \
    X("softcap", REAL, ta_float_bits(p->softcap))                                                  \
    X("alibi_slopes", ARRAY, hash_floats(p->alibi_slopes, p->query_heads))                         \
    X("sinks", ARRAY, hash_floats(p->sinks, p->query_heads))                                       \
    X("query_placement", INTEGER, plan->query_placement)                                           \
    X("query_root", INTEGER, plan->query_root)                                                     \
    X("out_placement", INTEGER, plan->out_placement)                                               \
    X("out_root", INTEGER, plan->out_root)                                                         \
    X("algorithm", INTEGER, plan->choice.wanted_algorithm)                                         \
    X("exchange", INTEGER, plan->choice.wanted)                                                    \
    X("replay", INTEGER, plan->replays)                                                            \
    X("reproducible_tile", INTEGER, p->tally_tile)

/* How a value travels: as it is, as the bits of a float, as a hash of an array (0 if absent). */
typedef enum field_kind { INTEGER, REAL, ARRAY } field_kind;

enum {
#define COUNT(name, kind, value) +1
    FIELD_COUNT = 0 FIELDS(COUNT)
#undef COUNT
};

static const struct {
    const char *name;
    field_kind kind;
} fields[FIELD_COUNT] = {
#define DESCRIBE(name, kind, value) {name, kind},
    FIELDS(DESCRIBE)
#undef DESCRIBE
};

/* What rank 0 tells. */
typedef struct proposal {
    int64_t valid;
    int64_t values[FIELD_COUNT];
} proposal;

/* What each rank answers. */
typedef struct verdict {
    int32_t status;
    int32_t field; /* the first that differs from rank 0's, -1: none */
    int64_t value;
    int64_t lengths_hidden; /* the host cannot see the lengths, which are in its device's memory */
    char error[256];
} verdict;

/* FNV-1a over the bits; 0 for no array. */
static int64_t hash_floats(const float *values, int count)
{
    uint64_t hash = 14695981039346656037u;
    if (!values)
        return 0;
    for (int i = 0; i < count; ++i)
        hash = (hash ^ ta_float_bits(values[i])) * 1099511628211u;
    return (int64_t)(hash >> 1);
}

static void describe(const ta_plan *plan, proposal *own)
{
    const ta_problem *p = &plan->problem;
    const int64_t values[FIELD_COUNT] = {
#define VALUE(name, kind, value) (int64_t)(value),
        FIELDS(VALUE)
#undef VALUE
    };
    own->valid = 1;
    memcpy(own->values, values, sizeof values);
}

static void compare(const proposal *own, const proposal *first, verdict *answer)
{
    if (!own->valid || !first->valid)
        return;
    for (int i = 0; i < FIELD_COUNT && answer->field < 0; ++i)
        if (own->values[i] != first->values[i]) {
            answer->status = TA_ERR_MISMATCH;
            answer->field = i;
            answer->value = own->values[i];
        }
}

static ta_status report_difference(int field, int rank, int64_t value, int64_t first)
{
    const char *name = fields[field].name;
    switch (fields[field].kind) {
    case REAL:
        return ta_fail(TA_ERR_MISMATCH,
                       "plans differ: config.%s is %.9g on rank %d and %.9g on rank 0", name,
                       (double)ta_float_from_bits((uint32_t)value), rank,
                       (double)ta_float_from_bits((uint32_t)first));
    case ARRAY:
        return ta_fail(TA_ERR_MISMATCH, "plans differ: config.%s %s on rank %d and %s on rank 0",
                       name, value ? "is set" : "is NULL", rank,
                       !first  ? "is NULL"
                       : value ? "has other values"
                               : "is set");
    default:
        return ta_fail(TA_ERR_MISMATCH,
                       "plans differ: config.%s is %lld on rank %d and %lld on rank 0", name,
                       (long long)value, rank, (long long)first);
    }
}

static ta_status report(const verdict *answers, int ranks, int rank, const proposal *first)
{
    if (answers[rank].status != TA_OK && answers[rank].field < 0)
        return (ta_status)answers[rank].status; /* its own error, already in ta_last_error() */
    for (int r = 0; r < ranks; ++r) {
        const verdict *v = &answers[r];
        if (v->status == TA_OK)
            continue;
        if (v->field < 0)
            return ta_fail(TA_ERR_MISMATCH, "rank %d could not make its plan: %s", r, v->error);
        return report_difference(v->field, r, v->value, first->values[v->field]);
    }
    return TA_OK;
}

ta_status ta_plan_agree(ta_group *group, ta_plan *plan, ta_status status)
{
    proposal own = {0}, first;
    int ranks = group->size, rank = group->rank;
    verdict *answers = calloc((size_t)ranks, sizeof *answers);
    size_t *offsets = calloc((size_t)ranks + 1, sizeof *offsets);
    if (!answers || !offsets) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory to agree with %d ranks", ranks);
        ta_group_abort(group, ta_last_error());
        goto free_answers;
    }
    if (status == TA_OK)
        describe(plan, &own);
    first = own;
    verdict *answer = &answers[rank];
    *answer = (verdict){.status = status, .field = -1};
    if (status == TA_OK)
        answer->lengths_hidden = plan->device->ops->alloc_host != NULL;
    if (status != TA_OK)
        snprintf(answer->error, sizeof answer->error, "%s", ta_last_error());
    ta_status heard = ta_group_broadcast_host(group, &first, sizeof first, 0);
    if (heard == TA_OK) {
        compare(&own, &first, answer);
        for (int r = 0; r <= ranks; ++r)
            offsets[r] = (size_t)r * sizeof *answers;
        heard = ta_group_all_gather_host(group, answers, offsets);
    }
    if (heard != TA_OK) { /* a rank that heard already may have left; the first cause counts */
        status = status == TA_OK ? heard : ta_fail(status, "%s", answer->error);
        goto free_answers;
    }
    status = report(answers, ranks, rank, &first);
    for (int r = 0; r < ranks; ++r)
        plan->lengths_hidden |= answers[r].lengths_hidden != 0;

free_answers:
    free(offsets);
    free(answers);
    return status;
}
