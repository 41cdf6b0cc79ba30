/* What a kernel does with the memory of other devices, which run kernels of their own at the same
 * time: stores, the system fence behind them, flags, and waiting. hip/vendor.h gives them their
 * names; peer.cpp and lane.cpp implement what is not here.
 *
 * For TSan only a flag orders anything, by a store with release and a load with acquire. A fence
 * orders nothing there: that every thread has one between its stores and the flag of its block is
 * checked by counting. */
#ifndef SIMT_PEER_H
#define SIMT_PEER_H

#include <atomic>

#include "simt_lane.h"

/* A test asks for flags that order nothing, to see that TSan tells (tests/peers/). */
#ifdef SIMT_WITHOUT_RELEASE
#define SIMT_FLAG_RELEASE __ATOMIC_RELAXED
#else
#define SIMT_FLAG_RELEASE __ATOMIC_RELEASE
#endif
#ifdef SIMT_WITHOUT_ACQUIRE
#define SIMT_FLAG_ACQUIRE __ATOMIC_RELAXED
#else
#define SIMT_FLAG_ACQUIRE __ATOMIC_ACQUIRE
#endif

namespace simt
{

/* The test asked for it. */
extern std::atomic<bool> peers_lose_stores;

template <class T> SIMT_INLINE void peer_store(T *address, const T &value, call where)
{
    if (reinterpret_cast<uintptr_t>(address) % alignof(T) != 0)
        lane_fail(where, "address %p is not a multiple of %zu", static_cast<void *>(address),
                  alignof(T));
    if (!peers_lose_stores.load(std::memory_order_relaxed))
        *address = value;
    simt_self->unfenced = where;
}

SIMT_INLINE void system_fence()
{
    simt_self->unfenced.file = nullptr;
}

/* All threads of the block have a system fence behind their stores to peers, or it is an error. */
void check_fenced(call where);

SIMT_INLINE void flag_store(uint32_t *flag, uint32_t value, call where)
{
    check_fenced(where);
    __atomic_store_n(flag, value, SIMT_FLAG_RELEASE);
}

SIMT_INLINE uint32_t flag_load(const uint32_t *flag)
{
    return __atomic_load_n(flag, SIMT_FLAG_ACQUIRE);
}

/* Between two looks at a flag: lets other devices go on. An error in a launch whose blocks need not
 * all be there. */
void wait_for_peers(call where);

uint64_t wall_clock_ns();

} // namespace simt

#endif
