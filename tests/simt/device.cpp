/* Devices: how many there are, their properties, and calls that concern a whole device. */
#include <stdio.h>
#include <string.h>

#include "simt_lane.h"
#include "stream.h"

namespace simt
{

static thread_local int this_device;

int current_device()
{
    return this_device;
}

static bool valid_device(int device)
{
    return device >= 0 && device < current_settings().device.devices;
}

} // namespace simt

using namespace simt;

hipError_t hipGetDeviceCount(int *count)
{
    *count = 1; /* of a call that fails nobody may believe it */
    if (count_fault.strikes())
        return fail(hipErrorUnknown, "hipGetDeviceCount fails, as the test asked");
    if (none_fault.strikes())
        return fail(hipErrorNoDevice, "hipGetDeviceCount finds none, as the test asked");
    *count = current_settings().device.devices;
    return hipSuccess;
}

hipError_t hipSetDevice(int device)
{
    if (!valid_device(device))
        return fail(hipErrorInvalidDevice, "hipSetDevice: there is no device %d", device);
    this_device = device;
    return hipSuccess;
}

hipError_t hipGetDevice(int *device)
{
    *device = this_device;
    return hipSuccess;
}

hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device)
{
    if (!valid_device(device))
        return fail(hipErrorInvalidDevice, "hipGetDeviceProperties: there is no device %d", device);
    if (query_fault.strikes())
        return fail(hipErrorInvalidDevice, "hipGetDeviceProperties fails, as the test asked");
    settings s = current_settings();
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "SIMT executor, wave %u", s.wave);
    snprintf(properties->gcnArchName, sizeof properties->gcnArchName, "%s", s.device.arch);
    properties->totalGlobalMem = s.device.memory_bytes;
    properties->warpSize = static_cast<int>(s.wave);
    properties->multiProcessorCount = s.device.compute_units;
    return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device)
{
    if (!valid_device(device))
        return fail(hipErrorInvalidDevice, "hipDeviceGetAttribute: there is no device %d", device);
    settings s = current_settings();
    switch (attribute) {
    case hipDeviceAttributeL2CacheSize:
        *value = static_cast<int>(s.device.cache_bytes);
        break;
    case hipDeviceAttributeMaxSharedMemoryPerBlock:
        *value = static_cast<int>(s.device.default_shared_bytes);
        break;
    case hipDeviceAttributeMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(s.device.shared_bytes_per_unit);
        break;
    case hipDeviceAttributeMaxThreadsPerBlock:
        *value = max_block;
        break;
    case hipDeviceAttributeMaxThreadsPerMultiProcessor:
        *value = threads_per_unit;
        break;
    case hipDeviceAttributeMultiprocessorCount:
        *value = s.device.compute_units;
        break;
    case hipDeviceAttributeSharedMemPerBlockOptin:
        *value = static_cast<int>(s.device.shared_bytes);
        break;
    case hipDeviceAttributeWarpSize:
        *value = static_cast<int>(s.wave);
        break;
    default:
        return fail(hipErrorInvalidValue, "hipDeviceGetAttribute: no attribute %d", attribute);
    }
    return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char *text, int bytes, int device)
{
    if (!valid_device(device))
        return fail(hipErrorInvalidDevice, "hipDeviceGetPCIBusId: there is no device %d", device);
    snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", static_cast<unsigned>(device + 1));
    return hipSuccess;
}

hipError_t hipRuntimeGetVersion(int *version)
{
    *version = 1;
    return hipSuccess;
}

hipError_t hipDriverGetVersion(int *version)
{
    *version = 2;
    return hipSuccess;
}

hipError_t hipDeviceSynchronize(void)
{
    if (capture_forbids("hipDeviceSynchronize"))
        return hipErrorStreamCaptureUnsupported;
    count(counted.host_waits);
    wait_for_device(this_device);
    return device_status(this_device);
}

hipError_t hipDeviceReset(void)
{
    queue_lock lock(queues().mutex);
    for (const std::shared_ptr<queue> &q : queues().all)
        if (q->device == this_device) {
            q->pieces.clear();
            q->done = q->last;
            q->capture = nullptr;
            q->frontier.clear();
        }
    queues().changed.notify_all();
    clear_device(this_device);
    return hipSuccess;
}
