/* The executor's settings, faults and counts as its own files see them. The functions that tests
 * call are in simt_control.h; both are implemented in settings.cpp. */
#ifndef SIMT_SETTINGS_H
#define SIMT_SETTINGS_H

#include <atomic>

#include "simt_control.h"

namespace simt
{

struct settings {
    simt_order order;
    uint64_t seed;
    unsigned wave;
    simt_streams streams;
    unsigned workers;
    bool guard;
    simt_peers peers;
    simt_narrow narrow;
    simt_device_config device;
};

/* A copy, so that work that runs sees one consistent set. */
settings current_settings();

struct counts {
    std::atomic<uint64_t> launches, graph_launches, kernels, blocks, allocations, host_waits,
        copied_bytes;
};
extern counts counted;

/* Relaxed, so that counting orders nothing that TSan should see as unordered. */
inline void count(std::atomic<uint64_t> &counter, uint64_t more = 1)
{
    counter.fetch_add(more, std::memory_order_relaxed);
}

/* The n-th event from when it was armed is the one that fails. */
struct fault {
    std::atomic<int> remaining;

    bool strikes()
    {
        return remaining.load() > 0 && remaining.fetch_sub(1) == 1;
    }
};
extern fault malloc_fault, query_fault, count_fault, none_fault, launch_fault, kernel_fault;

} // namespace simt

#endif
