/* Running the grid of a launch: launch.cpp. */
#ifndef SIMT_LAUNCH_INTERNAL_H
#define SIMT_LAUNCH_INTERNAL_H

#include "block.h"

namespace simt
{

/* Run all blocks, on as many threads as the settings say. False: a block failed, `why` says how. */
bool run_grid(const kernel_launch &launch, unsigned workers, std::string *why);

} // namespace simt

#endif
