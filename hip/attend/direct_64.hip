/* attend_direct for K and V of 64 dimensions: direct_kernel.h has it. attend.c launches it. */
#include "direct_kernel.h"

ta_launched ta_launch_direct_64(const ta_direct_params *params, int wave, void *stream)
{
    return ta_launch_dim<64>(params, wave, stream);
}
