/* Launches: what a runtime refuses at once, and the kernel as a piece of work for its stream. */
#include "launch.h"

#include <map>
#include <mutex>
#include <string.h>

#include "runtime.h"
#include "simt_language.h"
#include "stream.h"

namespace simt
{

char fence_order;

void fail_inactive(call where, unsigned number)
{
    const wave *w = simt_self->wave;
    if (number >= simt_self->block->wave_width)
        lane_fail(where, "reads lane %u of a wave of %u", number, simt_self->block->wave_width);
    if (number >= w->count)
        lane_fail(where, "reads lane %u, but the block ends at lane %u of this wave", number,
                  w->count - 1);
    lane_fail(where, "reads lane %u, which has left the kernel", number);
}

/* Kernels that asked for more shared memory than is usual. */
static std::mutex allowed_mutex;
static std::map<const void *, size_t> &allowed()
{
    static std::map<const void *, size_t> bytes;
    return bytes;
}

/* What a kernel may have: dynamic shared memory, and all of a block together. As on NVIDIA, the
 * variables of a kernel need room beside all the dynamic memory that it asked for. */
struct shared_limits {
    size_t dynamic_bytes, all_bytes;
};

static shared_limits find_limits(const void *function, size_t dynamic_bytes, const settings &s)
{
    std::lock_guard<std::mutex> lock(allowed_mutex);
    auto entry = allowed().find(function);
    size_t usual = s.device.default_shared_bytes;
    if (entry == allowed().end() || entry->second < usual)
        return {usual, usual};
    size_t unused = entry->second - (dynamic_bytes < entry->second ? dynamic_bytes : entry->second);
    return {entry->second, s.device.shared_bytes - unused};
}

/* Template arguments make kernel names that need parentheses inside a macro. */
static std::string plain_name(const char *name)
{
    size_t length = strlen(name);
    return name[0] == '(' && name[length - 1] == ')' ? std::string(name + 1, length - 2) : name;
}

/* Blocks that can wait for others on a unit: each has an OS thread and the stacks of its lanes. */
static const unsigned resident_per_unit = 1;

static unsigned max_resident()
{
    return static_cast<unsigned>(current_settings().device.compute_units) * resident_per_unit;
}

static hipError_t check_request(const kernel_request &r, const std::string &name, size_t limit)
{
    uint64_t threads = static_cast<uint64_t>(r.block.x) * r.block.y * r.block.z;
    if (threads == 0 || threads > max_block)
        return fail(hipErrorInvalidConfiguration, "%s: a block of %u,%u,%u threads", name.c_str(),
                    r.block.x, r.block.y, r.block.z);
    if (r.grid.x == 0 || r.grid.y == 0 || r.grid.z == 0 || r.grid.x > 0x7fffffff ||
        r.grid.y > 65535 || r.grid.z > 65535)
        return fail(hipErrorInvalidConfiguration, "%s: a grid of %u,%u,%u blocks", name.c_str(),
                    r.grid.x, r.grid.y, r.grid.z);
    if (r.dynamic_bytes > limit)
        return fail(hipErrorInvalidValue, "%s: %zu bytes of shared memory, %zu are allowed",
                    name.c_str(), r.dynamic_bytes, limit);
    if (r.resident && r.grid.x > max_resident())
        return fail(hipErrorLaunchOutOfResources,
                    "%s: %u blocks are to wait for others, and %u can be there", name.c_str(),
                    r.grid.x, max_resident());
    if (launch_fault.strikes())
        return fail(hipErrorLaunchOutOfResources, "%s: refused, as the test asked", name.c_str());
    return hipSuccess;
}

static hipError_t run_kernel(const kernel_launch &prototype, run_context &context)
{
    settings s = current_settings();
    kernel_launch launch = prototype;
    launch.wave = s.wave;
    launch.narrow = static_cast<dialect>(s.narrow);
    launch.order = s.order;
    launch.seed = s.seed * 0x9e3779b97f4a7c15u + context.ordinal;
    count(counted.kernels);
    if (kernel_fault.strikes()) {
        context.why = "fails, as the test asked";
        return hipErrorLaunchFailure;
    }
    return run_grid(launch, launch.resident ? launch.grid.x : s.workers, &context.why)
               ? hipSuccess
               : hipErrorLaunchFailure;
}

static void add_bytes(std::vector<unsigned char> *to, const void *from, size_t bytes)
{
    const unsigned char *first = static_cast<const unsigned char *>(from);
    to->insert(to->end(), first, first + bytes);
}

void note_argument(kernel_request *request, const void *value, size_t bytes)
{
    add_bytes(&request->arguments, value, bytes);
    for (size_t i = 0; i + sizeof(void *) <= bytes; i += sizeof(void *)) {
        const void *word;
        memcpy(&word, static_cast<const char *>(value) + i, sizeof word);
        request->addresses.push_back(word);
    }
}

hipError_t submit_kernel(hipStream_t stream, kernel_request &&r)
{
    std::string name = plain_name(r.name);
    shared_limits limits = find_limits(r.function, r.dynamic_bytes, current_settings());
    if (hipError_t error = check_request(r, name, limits.dynamic_bytes))
        return error;
    count(counted.launches);
    kernel_launch launch = {
        name,          r.grid,       r.block, r.dynamic_bytes, limits.all_bytes, 0,
        dialect::none, SIMT_FORWARD, 0,       r.resident,      std::move(r.body)};
    work kernel;
    kernel.name = name;
    kernel.run = [launch](run_context &context) { return run_kernel(launch, context); };
    add_bytes(&kernel.identity, &r.grid, sizeof r.grid);
    add_bytes(&kernel.identity, &r.block, sizeof r.block);
    add_bytes(&kernel.identity, &r.dynamic_bytes, sizeof r.dynamic_bytes);
    add_bytes(&kernel.identity, r.arguments.data(), r.arguments.size());
    kernel.addresses = std::move(r.addresses);
    return submit(stream, std::move(kernel));
}

} // namespace simt

using namespace simt;

hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                        int threads, size_t)
{
    if (!blocks || !kernel || threads < 1 || threads > static_cast<int>(max_block))
        return fail(hipErrorInvalidValue,
                    "hipOccupancyMaxActiveBlocksPerMultiprocessor: %d threads", threads);
    *blocks = static_cast<int>(resident_per_unit);
    return hipSuccess;
}

hipError_t hipFuncSetAttribute(const void *kernel, hipFuncAttribute attribute, int value)
{
    size_t most = current_settings().device.shared_bytes;
    if (attribute != hipFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<size_t>(value) > most)
        return fail(hipErrorInvalidValue,
                    "hipFuncSetAttribute: %d bytes of shared memory, the device has %zu", value,
                    most);
    std::lock_guard<std::mutex> lock(allowed_mutex);
    allowed()[kernel] = static_cast<size_t>(value);
    return hipSuccess;
}
