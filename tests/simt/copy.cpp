/* Copies and fills: queued as any other work, and checked when they are queued. Host memory is read
 * and written when the copy runs, also where a real runtime would have read it earlier: relying on
 * that is relying on one vendor. */
#include <string.h>

#include "runtime.h"
#include "stream.h"

namespace simt
{

static hipError_t check_copy(const void *to, const void *from, size_t bytes, hipMemcpyKind kind)
{
    bool to_device = kind == hipMemcpyHostToDevice || kind == hipMemcpyDeviceToDevice;
    bool from_device = kind == hipMemcpyDeviceToHost || kind == hipMemcpyDeviceToDevice;
    if (kind == hipMemcpyDefault) {
        to_device = memory_on_device(to);
        from_device = memory_on_device(from);
    }
    if (!memory_fits(to, bytes, to_device))
        return fail(hipErrorInvalidValue, "hipMemcpy: %zu bytes at %p are not %s memory (to)",
                    bytes, to, to_device ? "device" : "host");
    if (!memory_fits(from, bytes, from_device))
        return fail(hipErrorInvalidValue, "hipMemcpy: %zu bytes at %p are not %s memory (from)",
                    bytes, from, from_device ? "device" : "host");
    return hipSuccess;
}

/* What makes one copy or fill different from another. */
static std::vector<unsigned char> identity_of(uintptr_t a, uintptr_t b, size_t bytes)
{
    uint64_t words[3] = {a, b, bytes};
    const unsigned char *first = reinterpret_cast<const unsigned char *>(words);
    return std::vector<unsigned char>(first, first + sizeof words);
}

} // namespace simt

using namespace simt;

hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream)
{
    if (bytes == 0)
        return hipSuccess;
    if (hipError_t error = check_copy(to, from, bytes, kind))
        return error;
    work copy;
    copy.name = "copy";
    copy.identity =
        identity_of(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes);
    copy.addresses = {to, from};
    copy.run = [to, from, bytes](run_context &) {
        memmove(to, from, bytes);
        count(counted.copied_bytes, bytes);
        return hipSuccess;
    };
    return submit(stream, std::move(copy));
}

hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream)
{
    if (bytes == 0)
        return hipSuccess;
    if (!memory_fits(to, bytes, true))
        return fail(hipErrorInvalidValue, "hipMemset: %zu bytes at %p are not device memory", bytes,
                    to);
    work fill;
    fill.name = "fill";
    fill.identity =
        identity_of(reinterpret_cast<uintptr_t>(to), static_cast<uintptr_t>(value), bytes);
    fill.addresses = {to};
    fill.run = [to, value, bytes](run_context &) {
        memset(to, value, bytes);
        return hipSuccess;
    };
    return submit(stream, std::move(fill));
}

hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind)
{
    if (capture_forbids("hipMemcpy"))
        return hipErrorStreamCaptureUnsupported;
    if (hipError_t error = hipMemcpyAsync(to, from, bytes, kind, nullptr))
        return error;
    return hipStreamSynchronize(nullptr);
}

hipError_t hipMemset(void *to, int value, size_t bytes)
{
    return hipMemsetAsync(to, value, bytes, nullptr);
}
