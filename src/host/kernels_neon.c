/* The kernels for ARM CPUs of 64 bits, all of which have NEON: simd_neon.h and words_neon.h have
 * the vector operations, attend_simd.h and panel_simd.h what is done with them. */
#include "simd_neon.h"
#include "words_neon.h"

#include "host/attend/attend_simd.h"
#include "panel_simd.h"

TA_DTYPE_WIDE_LIST(FOR_DTYPE, )
TA_DTYPE_NARROW_LIST(FOR_NARROW, )

const ta_host_kernels ta_kernels_neon = TA_SIMD_TABLE("neon");
