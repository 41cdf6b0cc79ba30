/* See config_check.h. */
#include "config_check.h"

#include <math.h>

#include "status.h"
#include "text.h"

ta_status ta_check_int(const char *name, int64_t value, int64_t low, int64_t high)
{
    if (value < low || value > high)
        return ta_fail(TA_ERR_INVALID, "config.%s is %lld: must be from %lld to %lld", name,
                       (long long)value, (long long)low, (long long)high);
    return TA_OK;
}

ta_status ta_check_dim(const char *name, int32_t value, int32_t most)
{
    if (value < 8 || value > most || value % 8)
        return ta_fail(TA_ERR_INVALID, "config.%s is %d: must be a multiple of 8 from 8 to %d",
                       name, (int)value, (int)most);
    return TA_OK;
}

/* "TA_F32, TA_F16 or TA_BF16": the types that have a role. */
static void list_dtypes(ta_dtype_role role, ta_text *out)
{
    const ta_dtype_traits *last = NULL; /* comes after the next one is known */
    const char *between = "";
    for (int number = TA_DTYPE_NONE + 1; number < TA_DTYPE_END; ++number) {
        const ta_dtype_traits *traits = ta_dtype_find((ta_dtype)number);
        if (!(traits->roles & (unsigned)role))
            continue;
        if (last) {
            ta_text_add(out, "%s%s", between, last->constant);
            between = ", ";
        }
        last = traits;
    }
    if (last)
        ta_text_add(out, "%s%s", *between ? " or " : "", last->constant);
}

ta_status ta_check_dtype(const char *name, ta_dtype dtype, ta_dtype_role role)
{
    char data[256];
    ta_text right;
    const ta_dtype_traits *traits = ta_dtype_find(dtype);
    if (traits && traits->roles & (unsigned)role)
        return TA_OK;
    ta_text_init(&right, data, sizeof data);
    list_dtypes(role, &right);
    if (traits)
        return ta_fail(TA_ERR_UNSUPPORTED, "config.%s is %s: must be %s", name, traits->constant,
                       data);
    return ta_fail(TA_ERR_INVALID, "config.%s is %d: must be %s", name, (int)dtype, data);
}

ta_status ta_check_finite(const char *name, float value, float low)
{
    if (!isfinite(value) || value < low)
        return ta_fail(TA_ERR_INVALID, "config.%s is %g: must be finite%s", name, (double)value,
                       low == 0.0f ? " and 0 or more" : "");
    return TA_OK;
}

ta_status ta_check_workspace(const void *workspace, size_t bytes, size_t needed)
{
    if (bytes < needed)
        return ta_fail(TA_ERR_INVALID, "config.workspace_bytes is %zu: must be %zu or more", bytes,
                       needed);
    if ((uintptr_t)workspace % TA_WORKSPACE_ALIGNMENT)
        return ta_fail(TA_ERR_INVALID, "config.workspace is %p: must be aligned to %d bytes",
                       workspace, TA_WORKSPACE_ALIGNMENT);
    return TA_OK;
}
