/* Checks that the configs of all plans share. Each message names the field, its value and what
 * would be right. Used by decode/config.c and attention/config.c. */
#ifndef TA_CONFIG_CHECK_H
#define TA_CONFIG_CHECK_H

#include <treeattn/treeattn.h>

#include "dtype.h"

ta_status ta_check_int(const char *name, int64_t value, int64_t low, int64_t high);

/* A head dimension: a multiple of 8 up to `most`. */
ta_status ta_check_dim(const char *name, int32_t value, int32_t most);

/* A type that there is, and that may be what `role` says. */
ta_status ta_check_dtype(const char *name, ta_dtype dtype, ta_dtype_role role);

/* A workspace that the caller brings: large enough, and aligned. */
#define TA_WORKSPACE_ALIGNMENT 64
ta_status ta_check_workspace(const void *workspace, size_t bytes, size_t needed);

/* Finite, and at least `low`: 0 or -INFINITY. */
ta_status ta_check_finite(const char *name, float value, float low);

#endif
