/* How a launcher ends: what became of the launch, for the C files. A launcher whose kernels are
 * made for some element types picks one with dispatch.h. Included by every .hip file. */
#ifndef TA_HIP_LAUNCHED_H
#define TA_HIP_LAUNCHED_H

#include "vendor.h" /* first: it says what TA_INLINE is for the headers below */

#include "kernels.h"

static inline ta_launched ta_launched_of(const ta_launch_result &result)
{
    return {static_cast<int>(result.error), result.kernel, result.no_type, result.dtype};
}

/* There is no version of the kernel for this dtype. */
static inline ta_launch_result ta_no_type(const char *kernel, ta_dtype dtype)
{
    return {hipErrorInvalidValue, kernel, 1, static_cast<int>(dtype)};
}

/* In a launcher, for a dtype that its kernel looks at itself: refuse one that does not exist. */
#define TA_NEED_TYPE(kernel, dtype)                                                                \
    if (!ta_type_exists(dtype))                                                                    \
    return ta_launched_of(ta_no_type(kernel, dtype))

/* The same for the type of a cache. */
#define TA_NEED_CACHE_TYPE(kernel, dtype)                                                          \
    if (!ta_type_in_caches(dtype))                                                                 \
    return ta_launched_of(ta_no_type(kernel, dtype))

#endif
