/* The kernels for x86 CPUs with AVX2, FMA and F16C: simd_avx2.h and words_avx2.h have the vector
 * operations, attend_simd.h and panel_simd.h what is done with them. Compiled with flags of its
 * own; kernels.c asks the CPU before it uses the table. */
#include "simd_avx2.h"
#include "words_avx2.h"

#include "host/attend/attend_simd.h"
#include "panel_simd.h"

TA_DTYPE_WIDE_LIST(FOR_DTYPE, )
TA_DTYPE_NARROW_LIST(FOR_NARROW, )

const ta_host_kernels ta_kernels_avx2 = TA_SIMD_TABLE("avx2");
