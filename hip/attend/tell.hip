/* tell_step. Grid: one block of a wave.
 *
 * What attend tells the other ranks in its own launch, for a rank that attends with no head: in a
 * ring of more ranks than query heads. device.c launches it. */
#include "tell.h"

static const int tell_threads = 64; /* a whole wave on every device */

__global__ void __launch_bounds__(tell_threads) tell_step(ta_tell_params p)
{
    ta_tell_step(p.problem, p.kv, p.tell);
}

ta_launched ta_launch_tell(const ta_tell_params *params, void *stream)
{
    ta_launch_result result =
        TA_LAUNCH(tell_step, dim3(1), tell_threads, 0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
