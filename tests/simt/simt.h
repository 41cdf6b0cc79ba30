/* The SIMT executor: HIP kernels and the HIP runtime on a CPU, for tests. hip/vendor.h includes
 * this when TA_SIMT is defined. docs/simt.md says how it works and what it can see.
 *
 *     simt_runtime.h    the hip… calls, for C too
 *     simt_ccl.h        the nccl… calls, for C too; vendor.h includes it where it is wanted
 *     simt_language.h   the kernel language
 *     simt_narrow.h     instructions for numbers of 8 bits
 *     simt_peer.h       what kernels do with the memory of other devices
 *     simt_launch.h     launches, and any other work for a stream
 *     simt_control.h    thread order, wave width, faults, counts: for the tests */
#ifndef SIMT_H
#define SIMT_H

#include "simt_runtime.h"

#ifdef __cplusplus
#include "simt_language.h"
#include "simt_launch.h"
#include "simt_narrow.h"
#include "simt_peer.h"

template <class T> inline hipError_t hipMalloc(T **memory, size_t bytes)
{
    return hipMalloc(reinterpret_cast<void **>(memory), bytes);
}

template <class T> inline hipError_t hipHostMalloc(T **memory, size_t bytes, unsigned flags)
{
    return hipHostMalloc(reinterpret_cast<void **>(memory), bytes, flags);
}
#endif

#endif
