/* The scales by which ta_append() divides: those of the tokens that this rank stores must be there.
 * Called by append.c where the host sees them, by check_more.c with tables that it copied. */
#include "append_scales.h"

#include <math.h>

#include "base/status.h"
#include "device/new_token.h"

/* The scales of one row, of K and of V: [2][heads]. */
typedef struct row_scales {
    const ta_problem *problem;
    const ta_kv *kv;
    int64_t row;
    ta_new_token token;
} row_scales;

static const ta_scales *scales_of(const row_scales *s, int values)
{
    return values ? &s->kv->v_scale : &s->kv->k_scale;
}

static ta_status check_scale(const row_scales *s, int values, int32_t head, float scale)
{
    if (scale > 0.0f && !isinf(scale))
        return TA_OK;
    return ta_fail(TA_ERR_INVALID,
                   "kv.%s of row %lld, a new token of sequence %d, and KV head %d is %g: must be "
                   "finite and above 0, the token is divided by it; or set input.make_scales to 1",
                   values ? "v_scale" : "k_scale", (long long)s->row, (int)s->token.sequence,
                   (int)head, (double)scale);
}

static ta_status check_row(const row_scales *s, const float *copies)
{
    int32_t heads = s->problem->kv_heads;
    for (int values = 0; values < 2; ++values)
        for (int32_t head = 0; scales_of(s, values)->data && head < heads; ++head) {
            const float *scale = ta_new_token_scale(scales_of(s, values), &s->token, head);
            TA_TRY(check_scale(s, values, head, copies ? copies[values * heads + head] : *scale));
        }
    return TA_OK;
}

static ta_status fetch_row(const row_scales *s, ta_device *device, float *copies, void *stream)
{
    int32_t heads = s->problem->kv_heads;
    for (int values = 0; values < 2; ++values)
        for (int32_t head = 0; scales_of(s, values)->data && head < heads; ++head)
            TA_TRY(device->ops->copy(device, copies + values * heads + head,
                                     ta_new_token_scale(scales_of(s, values), &s->token, head),
                                     sizeof *copies, stream));
    return device->ops->synchronize(device, stream);
}

ta_status ta_check_new_scales(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                              const ta_new_tokens *tokens, float *copies, void *stream)
{
    row_scales s = {.problem = problem, .kv = kv};
    if (tokens->make_scales || tokens->dtype == problem->kv_dtype)
        return TA_OK;
    if (!kv->k_scale.data && !kv->v_scale.data)
        return TA_OK;
    for (s.row = 0; s.row < problem->rows; ++s.row) {
        s.token = ta_find_new_token(problem, kv, s.row);
        if (!s.token.found)
            continue;
        if (copies)
            TA_TRY(fetch_row(&s, device, copies, stream));
        TA_TRY(check_row(&s, copies));
    }
    return TA_OK;
}
