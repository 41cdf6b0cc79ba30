/* Agreement of ranks on an attention plan, and on the arguments of a call: every rank gives its
 * numbers, all learn the largest and the smallest of each, and whether any rank failed. */
#include "base/dtype.h"
#include "base/status.h"
#include "make.h"

#define FIELDS_MAX 24
_Static_assert(2 * FIELDS_MAX + 1 <= TA_ATTENTION_MESSAGE, "a message has room for all fields");

typedef struct field {
    const char *name;
    int64_t value;
} field;

/* A failure as a number: the lowest rank that failed has the largest. */
static int64_t fault_number(const ta_attention *a, ta_status status)
{
    return status == TA_OK ? 0 : ((int64_t)(a->ranks - a->rank) << 32) + -(int64_t)status;
}

static ta_status agree(const ta_attention *a, const field *fields, int count, ta_status status,
                       void *stream)
{
    int64_t numbers[2 * FIELDS_MAX + 1];
    if (a->ranks == 1)
        return status;
    numbers[0] = fault_number(a, status);
    for (int i = 0; i < count; ++i) { /* a rank that failed has no numbers of its own */
        numbers[1 + 2 * i] = status == TA_OK ? fields[i].value : INT64_MIN;
        numbers[2 + 2 * i] = status == TA_OK ? ~fields[i].value : INT64_MIN;
    }
    TA_TRY(ta_group_max_host(a->caller, numbers, 1 + 2 * (size_t)count, a->message, stream));
    if (status != TA_OK)
        return status;
    if (numbers[0]) {
        ta_status theirs = (ta_status) - (int)(numbers[0] & 0xffff);
        return ta_fail(theirs, "rank %d failed with %s, its ta_last_error() says why",
                       a->ranks - (int)(numbers[0] >> 32), ta_status_name(theirs));
    }
    for (int i = 0; i < count; ++i)
        if (numbers[1 + 2 * i] != ~numbers[2 + 2 * i])
            return ta_fail(TA_ERR_MISMATCH, "the ranks differ in %s: here it is %lld",
                           fields[i].name, (long long)fields[i].value);
    return TA_OK;
}

ta_status ta_attention_agree(const ta_attention *attention, ta_status status)
{
    const ta_attention *a = attention;
    const ta_attention_work *s = &a->shape;
    const field fields[] = {
        {"config.query_heads", s->query_heads},
        {"config.kv_heads", s->kv_heads},
        {"config.k_dim", s->k_dim},
        {"config.v_dim", s->v_dim},
        {"config.dtype", s->dtype},
        {"config.max_tokens", a->max_tokens},
        {"config.map.kind", a->map.kind},
        {"config.map.block", a->map.block},
        {"config.mask", !a->causal},
        {"config.window", a->window},
        {"config.scale, as bits", ta_float_bits(s->scale)},
        {"config.softcap, as bits", ta_float_bits(s->softcap)},
        {"config.grid_rows", a->wanted_rows},
        {"config.grid_columns", a->wanted_columns},
        {"config.forward_only", a->forward_only},
        {"config.algorithm", a->wanted},
    };
    return agree(a, fields, (int)(sizeof fields / sizeof *fields), status, NULL);
}

ta_status ta_attention_agree_call(const ta_attention *attention, int32_t sequences,
                                  const int32_t *lengths, ta_status status, void *stream)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (int32_t i = 0; status == TA_OK && i < sequences; ++i)
        hash = (hash ^ (uint32_t)lengths[i]) * 1099511628211u;
    const field fields[] = {{"input.sequences", sequences},
                            {"input.lengths, hashed", (int64_t)(hash >> 1)}};
    return agree(attention, fields, 2, status, stream);
}
