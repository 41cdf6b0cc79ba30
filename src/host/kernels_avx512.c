/* The kernels for x86 CPUs with AVX-512 (F, BW, DQ, VL). Compiled with flags of its own; kernels.c
 * asks the CPU before it uses the table. */
#include "host/attend/attend_wide.h"

TA_DTYPE_WIDE_LIST(FOR_DTYPE, )
TA_DTYPE_NARROW_LIST(FOR_NARROW, )

const ta_host_kernels ta_kernels_avx512 = TA_SIMD_TABLE("avx512");
