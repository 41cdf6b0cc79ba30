/* The kernels for x86 CPUs with AVX-512 (F, BW, DQ, VL). Compiled with flags of its own; kernels.c
 * asks the CPU before it uses the table. */
#include "host/attend/attend_wide.h"

FOR_DTYPE(f32, TA_F32)
FOR_DTYPE(f16, TA_F16)
FOR_DTYPE(bf16, TA_BF16)

const ta_host_kernels ta_kernels_avx512 = TA_SIMD_TABLE("avx512");
