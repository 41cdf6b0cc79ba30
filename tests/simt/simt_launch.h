/* Launching a kernel: its arguments are copied at once, the kernel runs when its stream gets there.
 * Work of any other kind is queued by the same means. Implemented in launch.cpp and stream.cpp. */
#ifndef SIMT_LAUNCH_H
#define SIMT_LAUNCH_H

#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "simt_lane.h"
#include "simt_runtime.h"

namespace simt
{

/* What a queued piece of work is told when it runs, and its answer if it fails. */
struct run_context {
    int device;
    uint64_t ordinal; /* how many pieces of work ran on this stream before */
    std::string why;
};

/* A piece of work for a stream. `run` is called on a thread of the stream, once, or once for each
 * time a graph that contains it is launched. */
struct work {
    std::string name;
    std::function<hipError_t(run_context &)> run;
    /* What tells it from other work in a captured graph: sizes, arguments. */
    std::vector<unsigned char> identity;
    /* Words that may be addresses. Those inside device or pinned memory must be there still
     * whenever a graph that captured this work is launched. */
    std::vector<const void *> addresses;
};

/* Queue work, or add it to the graph if the stream is being captured. NULL is the null stream. */
hipError_t submit(hipStream_t stream, work &&work);

struct kernel_request {
    const char *name;
    const void *function;
    dim3 grid, block;
    size_t dynamic_bytes;
    bool resident;
    std::function<void()> body;
    std::vector<unsigned char> arguments;
    std::vector<const void *> addresses;
};

hipError_t submit_kernel(hipStream_t stream, kernel_request &&request);

/* Remember what an argument is, for captures. */
void note_argument(kernel_request *request, const void *value, size_t bytes);

/* `resident`: all blocks run at once, on an OS thread each, so that they may wait for others; a
 * grid that the device has no room for is refused. */
template <class... P, class... A>
hipError_t launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                  size_t dynamic_bytes, bool resident, hipStream_t stream, A &&...arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "a kernel takes all its arguments");
    static_assert((std::is_trivially_copyable<typename std::decay<P>::type>::value && ...),
                  "kernel arguments are copied as bytes");
    std::tuple<typename std::decay<P>::type...> bound(std::forward<A>(arguments)...);
    kernel_request request = {
        name,     reinterpret_cast<const void *>(kernel),           grid, block, dynamic_bytes,
        resident, [kernel, bound]() { std::apply(kernel, bound); }, {},   {}};
    std::apply([&](const auto &...value) { (note_argument(&request, &value, sizeof value), ...); },
               bound);
    return submit_kernel(stream, std::move(request));
}

} // namespace simt

#endif
