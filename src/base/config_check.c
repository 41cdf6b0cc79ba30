/* See config_check.h. */
#include "config_check.h"

#include <math.h>

#include "dtype.h"
#include "status.h"

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

ta_status ta_check_dtype(const char *name, ta_dtype dtype)
{
    if (!ta_dtype_valid(dtype))
        return ta_fail(TA_ERR_INVALID, "config.%s is %d: must be TA_F32, TA_F16 or TA_BF16", name,
                       (int)dtype);
    return TA_OK;
}

ta_status ta_check_finite(const char *name, float value, float low)
{
    if (!isfinite(value) || value < low)
        return ta_fail(TA_ERR_INVALID, "config.%s is %g: must be finite%s", name, (double)value,
                       low == 0.0f ? " and 0 or more" : "");
    return TA_OK;
}
