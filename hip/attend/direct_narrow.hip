/* attend_direct for K and V of 8 bits and a query of bf16, of 64, 128 and 256 dimensions:
 * direct_kernel.h has it, direct_elements.h what is different. attend.c launches it. */
#include "direct_kernel.h"

ta_launched ta_launch_direct_narrow(const ta_direct_params *params, int wave, void *stream)
{
    switch (params->problem.k_dim) {
    case 64:
        return ta_launch_narrow_dim<64>(params, wave, stream);
    case 128:
        return ta_launch_narrow_dim<128>(params, wave, stream);
    default:
        return ta_launch_narrow_dim<256>(params, wave, stream);
    }
}
