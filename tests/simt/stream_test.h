/* Work for the tests of streams and events: two small kernels, and how they are launched. */
#ifndef SIMT_STREAM_TEST_H
#define SIMT_STREAM_TEST_H

#include "simt_test.h"

__global__ void set_value(float *out, float value)
{
    out[threadIdx.x] = value;
}

__global__ void add_value(float *out, const float *in, float value)
{
    out[threadIdx.x] = in[threadIdx.x] + value;
}

static inline void launch_set(float *out, float value, hipStream_t stream)
{
    CHECK_HIP(TA_LAUNCH(set_value, 1, 4, 0, stream, out, value).error);
}

static inline void launch_add(float *out, const float *in, float value, hipStream_t stream)
{
    CHECK_HIP(TA_LAUNCH(add_value, 1, 4, 0, stream, out, in, value).error);
}

static inline void read_async(float *to, const float *from, hipStream_t stream)
{
    CHECK_HIP(hipMemcpyAsync(to, from, 4 * sizeof *to, hipMemcpyDeviceToHost, stream));
}

static inline hipStream_t new_stream()
{
    hipStream_t stream = nullptr;
    CHECK_HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    return stream;
}

static inline hipEvent_t new_event()
{
    hipEvent_t event = nullptr;
    CHECK_HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
    return event;
}

#endif
