/* The one file that knows for which vendor it is compiled. HIP's names are the language of hip/: on
 * AMD they are HIP's own, on NVIDIA they are mapped to CUDA's here, and the SIMT executor
 * implements them on the CPU for the tests. What the vendors spell or do differently has one
 * spelling of ours, below.
 *
 * C files get the runtime calls, properties and pointers. Files compiled as HIP or CUDA, and all
 * C++ files of the SIMT module, get the kernel language and TA_LAUNCH too.
 *
 * In a kernel:
 *     template <int Wave> __global__ void k(…)   the wave width is a constant;
 *     { TA_ONLY_WAVE(Wave); … }                  the first statement checks it
 *     TA_DEVICE float helper(…)                  a device function, always inlined
 *     TA_SHARED(float, tile, [64][65]);          a shared array (a variable: no third argument)
 *     TA_SHARED_DYNAMIC(float, buffer);          float *buffer: what the launch asked for
 *     ta_syncthreads() ta_syncwave()             barriers
 *     ta_lane() ta_wave_id()
 *     ta_shfl(v, lane) ta_shfl_xor(v, mask)
 *     ta_shfl_down(v, delta, width) ta_shfl_up(v, delta, width)
 *     ta_ballot(p)                               64 bits, whatever the width
 *     ta_load16(p) ta_load16_stream(p)           16 bytes at once, 16-byte aligned
 *     ta_store16(p, v)
 *     ta_load_global(p)                          an int32_t that is in the device's own memory
 *     ta_uniform(i)                              an i that the wave's lanes share: may be scalar
 *     ta_opaque(i)                               in a loop: what follows from a thread's own i is
 *                                                not computed in advance, in dear registers
 *     ta_opaque_uniform(i)                       the same for an i that the wave's lanes share
 *     ta_exp2(x) ta_as_float(bits) ta_as_bits(x)
 *     ta_from_f16(h) ta_from_bf16(h) ta_to_f16(x) ta_to_bf16(x)
 *     threadIdx.x blockIdx gridDim __threadfence() atomicAdd() …   as in HIP
 *
 * Every lane of the wave that has not left the kernel must reach a shuffle, ballot or wave barrier.
 * A shuffle may not read a lane that has left, nor one outside the wave. Blocks have one dimension.
 * Atomics order nothing: put __threadfence() on both sides.
 *
 * On the host:
 *     TA_WAVE_SWITCH(wave, Wave, result = TA_LAUNCH(k<Wave>, grid, threads, bytes, stream, …)) */
#ifndef TA_VENDOR_H
#define TA_VENDOR_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(TA_SIMT)
#define TA_VENDOR "simt"
#elif defined(__CUDACC__) || defined(TA_CUDA)
#define TA_VENDOR "cuda"
#ifndef TA_CUDA
#define TA_CUDA 1
#endif
#elif defined(__HIPCC__) || defined(TA_ROCM)
#define TA_VENDOR "rocm"
#ifndef TA_ROCM
#define TA_ROCM 1
#endif
#else
#error "compile with nvcc, with hipcc, or define TA_CUDA, TA_ROCM (C files) or TA_SIMT"
#endif

/* ---- The runtime --------------------------------------------------------------------------- */

#if defined(TA_SIMT)
#include "simt.h"

#elif defined(TA_ROCM)
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif
#ifdef __HIPCC__
#include <hip/hip_runtime.h>
#else
#include <hip/hip_runtime_api.h>
#endif

#else /* TA_CUDA */
#ifdef __CUDACC__
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#include <cuda_runtime_api.h>
#endif

#define hipError_t cudaError_t
#define hipSuccess cudaSuccess
#define hipErrorInvalidValue cudaErrorInvalidValue
#define hipErrorOutOfMemory cudaErrorMemoryAllocation
#define hipErrorInvalidConfiguration cudaErrorInvalidConfiguration
#define hipErrorInvalidDevice cudaErrorInvalidDevice
#define hipErrorNoDevice cudaErrorNoDevice
#define hipErrorNotReady cudaErrorNotReady
#define hipErrorNotSupported cudaErrorNotSupported
#define hipGetErrorName cudaGetErrorName
#define hipGetErrorString cudaGetErrorString
#define hipGetLastError cudaGetLastError
#define hipPeekAtLastError cudaPeekAtLastError

#define hipGetDeviceCount cudaGetDeviceCount
#define hipGetDevice cudaGetDevice
#define hipSetDevice cudaSetDevice
#define hipDeviceReset cudaDeviceReset
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipDeviceProp_t struct cudaDeviceProp
#define hipGetDeviceProperties cudaGetDeviceProperties
#define hipDeviceGetAttribute cudaDeviceGetAttribute
#define hipDeviceGetPCIBusId cudaDeviceGetPCIBusId
#define hipDeviceAttributeL2CacheSize cudaDevAttrL2CacheSize
#define hipDeviceAttributeMaxSharedMemoryPerBlock cudaDevAttrMaxSharedMemoryPerBlock
#define hipDeviceAttributeMaxSharedMemoryPerMultiprocessor                                         \
    cudaDevAttrMaxSharedMemoryPerMultiprocessor
#define hipDeviceAttributeMaxThreadsPerMultiProcessor cudaDevAttrMaxThreadsPerMultiProcessor
#define hipDeviceAttributeMultiprocessorCount cudaDevAttrMultiProcessorCount
#define hipDeviceAttributeSharedMemPerBlockOptin cudaDevAttrMaxSharedMemoryPerBlockOptin
#define hipDeviceAttributeWarpSize cudaDevAttrWarpSize
#define hipRuntimeGetVersion cudaRuntimeGetVersion
#define hipDriverGetVersion cudaDriverGetVersion
#define hipFuncSetAttribute cudaFuncSetAttribute
#define hipFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
#define hipLaunchKernel cudaLaunchKernel
#define hipLaunchHostFunc cudaLaunchHostFunc

#define hipMalloc cudaMalloc
#define hipFree cudaFree
#define hipHostMalloc cudaHostAlloc
#define hipHostMallocDefault cudaHostAllocDefault
#define hipHostMallocPortable cudaHostAllocPortable
#define hipHostMallocMapped cudaHostAllocMapped
#define hipHostFree cudaFreeHost
#define hipMemGetInfo cudaMemGetInfo
#define hipMemcpy cudaMemcpy
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemcpyKind enum cudaMemcpyKind
#define hipMemcpyHostToHost cudaMemcpyHostToHost
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipMemcpyDeviceToDevice cudaMemcpyDeviceToDevice
#define hipMemcpyDefault cudaMemcpyDefault
#define hipMemset cudaMemset
#define hipMemsetAsync cudaMemsetAsync
#define hipPointerAttribute_t struct cudaPointerAttributes
#define hipPointerGetAttributes cudaPointerGetAttributes
#define hipMemoryType enum cudaMemoryType
#define hipMemoryTypeDevice cudaMemoryTypeDevice
#define hipMemoryTypeHost cudaMemoryTypeHost

#define hipStream_t cudaStream_t
#define hipStreamDefault cudaStreamDefault
#define hipStreamNonBlocking cudaStreamNonBlocking
#define hipStreamCreateWithFlags cudaStreamCreateWithFlags
#define hipStreamDestroy cudaStreamDestroy
#define hipStreamSynchronize cudaStreamSynchronize
#define hipStreamQuery cudaStreamQuery
#define hipStreamWaitEvent cudaStreamWaitEvent
#define hipEvent_t cudaEvent_t
#define hipEventDefault cudaEventDefault
#define hipEventBlockingSync cudaEventBlockingSync
#define hipEventDisableTiming cudaEventDisableTiming
#define hipEventCreateWithFlags cudaEventCreateWithFlags
#define hipEventDestroy cudaEventDestroy
#define hipEventRecord cudaEventRecord
#define hipEventSynchronize cudaEventSynchronize
#define hipEventQuery cudaEventQuery
#define hipEventElapsedTime cudaEventElapsedTime

#define hipStreamCaptureMode enum cudaStreamCaptureMode
#define hipStreamCaptureModeGlobal cudaStreamCaptureModeGlobal
#define hipStreamCaptureModeThreadLocal cudaStreamCaptureModeThreadLocal
#define hipStreamCaptureModeRelaxed cudaStreamCaptureModeRelaxed
#define hipStreamCaptureStatus enum cudaStreamCaptureStatus
#define hipStreamCaptureStatusNone cudaStreamCaptureStatusNone
#define hipStreamCaptureStatusActive cudaStreamCaptureStatusActive
#define hipStreamCaptureStatusInvalidated cudaStreamCaptureStatusInvalidated
#define hipStreamBeginCapture cudaStreamBeginCapture
#define hipStreamEndCapture cudaStreamEndCapture
#define hipStreamIsCapturing cudaStreamIsCapturing
#define hipThreadExchangeStreamCaptureMode cudaThreadExchangeStreamCaptureMode
#define hipGraph_t cudaGraph_t
#define hipGraphExec_t cudaGraphExec_t
#define hipGraphInstantiateWithFlags cudaGraphInstantiateWithFlags
#define hipGraphLaunch cudaGraphLaunch
#define hipGraphDestroy cudaGraphDestroy
#define hipGraphExecDestroy cudaGraphExecDestroy
#endif

/* ---- Properties and pointers --------------------------------------------------------------- */

typedef struct ta_gpu {
    char name[96];
    char arch[32]; /* "sm_90", "gfx942:sramecc+:xnack-", "simt" */
    int wave;      /* threads in a wave */
    int compute_units;
    int max_threads_per_unit;
    int shared_bytes;          /* largest shared memory of a block; above 48 KiB ask first, with */
    int shared_bytes_per_unit; /* hipFuncSetAttribute() */
    int cache_bytes;           /* second level */
    size_t memory_bytes;
} ta_gpu;

static inline hipError_t ta_gpu_query(int device, ta_gpu *gpu)
{
    memset(gpu, 0, sizeof *gpu);
    hipDeviceProp_t properties;
    hipError_t error = hipGetDeviceProperties(&properties, device);
    if (error != hipSuccess)
        return error;
    snprintf(gpu->name, sizeof gpu->name, "%.95s", properties.name);
    gpu->memory_bytes = properties.totalGlobalMem;
#if defined(TA_CUDA)
    snprintf(gpu->arch, sizeof gpu->arch, "sm_%d%d", properties.major, properties.minor);
#else
    snprintf(gpu->arch, sizeof gpu->arch, "%.31s", properties.gcnArchName);
#endif
#define TA_GPU_NUMBER(field, attribute)                                                            \
    if (error == hipSuccess)                                                                       \
    error = hipDeviceGetAttribute(&gpu->field, attribute, device)
    TA_GPU_NUMBER(wave, hipDeviceAttributeWarpSize);
    TA_GPU_NUMBER(compute_units, hipDeviceAttributeMultiprocessorCount);
    TA_GPU_NUMBER(max_threads_per_unit, hipDeviceAttributeMaxThreadsPerMultiProcessor);
    TA_GPU_NUMBER(cache_bytes, hipDeviceAttributeL2CacheSize);
    TA_GPU_NUMBER(shared_bytes, hipDeviceAttributeMaxSharedMemoryPerBlock);
    TA_GPU_NUMBER(shared_bytes_per_unit, hipDeviceAttributeMaxSharedMemoryPerMultiprocessor);
#undef TA_GPU_NUMBER
    if (error != hipSuccess)
        return error;
    /* AMD knows no more than that, and may say so with an error or with 0. */
    int on_request = 0;
    error = hipDeviceGetAttribute(&on_request, hipDeviceAttributeSharedMemPerBlockOptin, device);
    if (error != hipSuccess)
        (void)hipGetLastError();
    else if (on_request > gpu->shared_bytes)
        gpu->shared_bytes = on_request;
    return hipSuccess;
}

/* Whose memory is it? */
typedef enum ta_memory {
    TA_MEMORY_HOST,   /* any that the runtime did not give out */
    TA_MEMORY_PINNED, /* the host's, from hipHostMalloc() */
    TA_MEMORY_DEVICE
} ta_memory;

static inline ta_memory ta_memory_of(const void *address)
{
    hipPointerAttribute_t attributes;
    memset(&attributes, 0, sizeof attributes);
    if (hipPointerGetAttributes(&attributes, address) != hipSuccess) {
        (void)hipGetLastError(); /* HIP's way to say that it never saw the address */
        return TA_MEMORY_HOST;
    }
#if defined(TA_ROCM) && HIP_VERSION_MAJOR < 6
    hipMemoryType type = attributes.memoryType;
#else
    hipMemoryType type = attributes.type;
#endif
    if (type == hipMemoryTypeDevice)
        return TA_MEMORY_DEVICE;
    return type == hipMemoryTypeHost ? TA_MEMORY_PINNED : TA_MEMORY_HOST;
}

/* ---- Collectives: only in files that define TA_CCL_CALLS before this is included ----------- */

#ifdef TA_CCL_CALLS

/* Types and prototypes; no call is linked, library.c finds them in this file at run time. */
#if defined(TA_SIMT)
#include "simt_ccl.h"
#define TA_CCL_NAME "the executor's NCCL"
#define TA_CCL_FILE "libsimt.so"
#elif defined(TA_ROCM)
#include <rccl/rccl.h>
#define TA_CCL_NAME "RCCL"
#define TA_CCL_FILE "librccl.so.1"
#else
#include <nccl.h>
#define TA_CCL_NAME "NCCL"
#define TA_CCL_FILE "libnccl.so.2"
#endif

/* What a header that is older lacks. The functions are not called then, whatever the library is. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#define ncclInProgress ((ncclResult_t)7)
#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        1                                                                                          \
    }
typedef struct ncclConfig_t {
    int blocking;
} ncclConfig_t;
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
#endif
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 18, 0)
#define NCCL_SPLIT_NOCOLOR (-1)
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *part,
                           ncclConfig_t *config);
#endif

#endif

/* ---- Kernels ------------------------------------------------------------------------------- */

#if defined(__cplusplus) && (defined(__CUDACC__) || defined(__HIPCC__) || defined(TA_SIMT))

#include <tuple>
#include <type_traits>
#include <utility>

#define TA_DEVICE static __device__ __forceinline__
/* For the headers of src/ that are written for kernels too (partial.h, shard.h). */
#undef TA_INLINE
#define TA_INLINE static __host__ __device__ __forceinline__

/* 16 bytes that travel as one access. */
struct alignas(16) ta_vec16 {
    uint32_t word[4];
};

/* Run a statement with the constant `Wave` equal to the device's width. Each width that this build
 * supports instantiates the kernels in it once. */
#define TA_WAVE_CASE(width, Wave, ...)                                                             \
    case width: {                                                                                  \
        constexpr int Wave = width;                                                                \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }
#if defined(TA_CUDA)
#define TA_WAVE_SWITCH(wave, Wave, ...)                                                            \
    switch (wave) {                                                                                \
        TA_WAVE_CASE(32, Wave, __VA_ARGS__)                                                        \
    default:                                                                                       \
        break;                                                                                     \
    }
#else
#define TA_WAVE_SWITCH(wave, Wave, ...)                                                            \
    switch (wave) {                                                                                \
        TA_WAVE_CASE(32, Wave, __VA_ARGS__)                                                        \
        TA_WAVE_CASE(64, Wave, __VA_ARGS__)                                                        \
    default:                                                                                       \
        break;                                                                                     \
    }
#endif

/* What became of a launch. Errors of the kernel itself come later, from the stream. */
struct ta_launch_result {
    hipError_t error;
    const char *kernel; /* as the source spells it */
};

/* TA_LAUNCH(kernel, grid, threads, shared_bytes, stream, arguments…): `grid` is a dim3 or a number.
 * A kernel with several template arguments goes in parentheses. */
#define TA_LAUNCH(kernel, ...) ta_launch(#kernel, kernel, __VA_ARGS__)

#if defined(TA_SIMT)

template <class... P, class... A>
static inline ta_launch_result ta_launch(const char *name, void (*kernel)(P...), dim3 grid,
                                         unsigned threads, size_t shared_bytes, hipStream_t stream,
                                         A &&...arguments)
{
    return {simt::launch(name, kernel, grid, dim3(threads), shared_bytes, stream,
                         std::forward<A>(arguments)...),
            name};
}

#else

template <class Values, size_t... I>
static inline hipError_t ta_launch_values(const void *kernel, dim3 grid, unsigned threads,
                                          size_t shared_bytes, hipStream_t stream, Values &values,
                                          std::index_sequence<I...>)
{
    void *pointers[] = {static_cast<void *>(&std::get<I>(values))..., nullptr};
    return hipLaunchKernel(kernel, grid, dim3(threads), pointers, shared_bytes, stream);
}

template <class... P, class... A>
static inline ta_launch_result ta_launch(const char *name, void (*kernel)(P...), dim3 grid,
                                         unsigned threads, size_t shared_bytes, hipStream_t stream,
                                         A &&...arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "a kernel takes all its arguments");
    std::tuple<typename std::decay<P>::type...> values(std::forward<A>(arguments)...);
    return {ta_launch_values(reinterpret_cast<const void *>(kernel), grid, threads, shared_bytes,
                             stream, values, std::index_sequence_for<P...>()),
            name};
}

#define TA_SHARED(type, name, ...) __shared__ __align__(16) type name __VA_ARGS__
#define TA_SHARED_DYNAMIC(type, name)                                                              \
    extern __shared__ __align__(16) unsigned char ta_dynamic_shared[];                             \
    type *name = reinterpret_cast<type *>(ta_dynamic_shared)

TA_DEVICE void ta_syncthreads()
{
    __syncthreads();
}

TA_DEVICE float ta_as_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

TA_DEVICE uint32_t ta_as_bits(float value)
{
    return __float_as_uint(value);
}

TA_DEVICE ta_vec16 ta_load16(const void *address)
{
    return *static_cast<const ta_vec16 *>(address);
}

TA_DEVICE void ta_store16(void *address, ta_vec16 value)
{
    *static_cast<ta_vec16 *>(address) = value;
}

#endif

#if defined(TA_CUDA)

#define TA_ONLY_WAVE(Wave) static_assert(Wave == 32, "a wave is 32 threads on NVIDIA")
#define TA_ALL_LANES 0xffffffffu

TA_DEVICE int ta_lane()
{
    return static_cast<int>(threadIdx.x % 32);
}

TA_DEVICE int ta_wave_id()
{
    return static_cast<int>(threadIdx.x / 32);
}

TA_DEVICE void ta_syncwave()
{
    __syncwarp();
}

template <class T> TA_DEVICE T ta_shfl(T value, int lane)
{
    return __shfl_sync(TA_ALL_LANES, value, lane);
}

template <class T> TA_DEVICE T ta_shfl_xor(T value, int mask)
{
    return __shfl_xor_sync(TA_ALL_LANES, value, mask);
}

template <class T> TA_DEVICE T ta_shfl_down(T value, int delta, int width)
{
    return __shfl_down_sync(TA_ALL_LANES, value, static_cast<unsigned>(delta), width);
}

template <class T> TA_DEVICE T ta_shfl_up(T value, int delta, int width)
{
    return __shfl_up_sync(TA_ALL_LANES, value, static_cast<unsigned>(delta), width);
}

TA_DEVICE uint64_t ta_ballot(bool predicate)
{
    return __ballot_sync(TA_ALL_LANES, predicate);
}

TA_DEVICE int32_t ta_uniform(int32_t value)
{
    return value;
}

TA_DEVICE void ta_opaque(int32_t &value)
{
    asm volatile("" : "+r"(value));
}

TA_DEVICE void ta_opaque_uniform(int32_t &value)
{
    asm volatile("" : "+r"(value));
}

/* Within 2 units in the last place; exp2(-inf) is 0 and NaN stays NaN. */
TA_DEVICE float ta_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

TA_DEVICE int32_t ta_load_global(const int32_t *address)
{
    return *address;
}

/* For what is read once and written by no thread of this kernel: leaves the first-level cache
 * alone. */
TA_DEVICE ta_vec16 ta_load16_stream(const void *address)
{
    ta_vec16 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
        : "l"(__cvta_generic_to_global(address)));
    return v;
}

/* For what other blocks read too. */
TA_DEVICE ta_vec16 ta_load16_global(const void *address)
{
    ta_vec16 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
        : "l"(__cvta_generic_to_global(address)));
    return v;
}

TA_DEVICE float ta_from_f16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

TA_DEVICE uint16_t ta_to_f16(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

#elif defined(TA_ROCM)

/* Decided by the architecture that is compiled for; the host's pass never uses it. */
#if defined(__GFX8__) || defined(__GFX9__)
#define TA_DEVICE_WAVE 64
#else
#define TA_DEVICE_WAVE 32
#endif

/* A module for several architectures has the kernels of both widths for each: those that can't run
 * there are left empty. */
#ifdef __HIP_DEVICE_COMPILE__
#define TA_ONLY_WAVE(Wave)                                                                         \
    if (Wave != TA_DEVICE_WAVE)                                                                    \
    return
#else
#define TA_ONLY_WAVE(Wave) static_assert(Wave == 32 || Wave == 64, "no such wave")
#endif

TA_DEVICE int ta_lane()
{
    return static_cast<int>(threadIdx.x % TA_DEVICE_WAVE);
}

/* In a scalar register, so that branches on it are scalar too. */
TA_DEVICE int ta_wave_id()
{
    return __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x / TA_DEVICE_WAVE));
}

TA_DEVICE void ta_syncwave()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

template <class T> TA_DEVICE T ta_shfl(T value, int lane)
{
    return __shfl(value, lane, TA_DEVICE_WAVE);
}

template <class T> TA_DEVICE T ta_shfl_xor(T value, int mask)
{
    return __shfl_xor(value, mask, TA_DEVICE_WAVE);
}

template <class T> TA_DEVICE T ta_shfl_down(T value, int delta, int width)
{
    return __shfl_down(value, static_cast<unsigned>(delta), width);
}

template <class T> TA_DEVICE T ta_shfl_up(T value, int delta, int width)
{
    return __shfl_up(value, static_cast<unsigned>(delta), width);
}

TA_DEVICE uint64_t ta_ballot(bool predicate)
{
    return __ballot(predicate);
}

TA_DEVICE int32_t ta_uniform(int32_t value)
{
    return __builtin_amdgcn_readfirstlane(value);
}

TA_DEVICE void ta_opaque(int32_t &value)
{
    asm volatile("" : "+v"(value));
}

TA_DEVICE void ta_opaque_uniform(int32_t &value)
{
    asm volatile("" : "+s"(value));
}

/* Within 1 unit in the last place, subnormal results become 0. */
TA_DEVICE float ta_exp2(float x)
{
    return __builtin_amdgcn_exp2f(x);
}

typedef uint32_t ta_words4 __attribute__((ext_vector_type(4)));

/* Otherwise a load by a pointer that was itself loaded waits for shared memory too. */
TA_DEVICE int32_t ta_load_global(const int32_t *address)
{
    return *(__attribute__((address_space(1))) const int32_t *)address;
}

/* For what is read once: leaves the caches to others. */
TA_DEVICE ta_vec16 ta_load16_stream(const void *address)
{
    typedef __attribute__((address_space(1))) const ta_words4 *global_words;
    return __builtin_bit_cast(ta_vec16, __builtin_nontemporal_load((global_words)address));
}

/* For what other blocks read too. */
TA_DEVICE ta_vec16 ta_load16_global(const void *address)
{
    typedef __attribute__((address_space(1))) const ta_words4 *global_words;
    return __builtin_bit_cast(ta_vec16, *(global_words)address);
}

TA_DEVICE float ta_from_f16(uint16_t bits)
{
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

TA_DEVICE uint16_t ta_to_f16(float value)
{
    return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}

#else /* TA_SIMT: the last argument of each is where it was called from */

#include "base/dtype.h"

#define TA_ONLY_WAVE(Wave) simt::check_wave(Wave, simt::call::here())

#define TA_SHARED(type, name, ...)                                                                 \
    static char name##_key;                                                                        \
    typedef type name##_type __VA_ARGS__;                                                          \
    name##_type &name = *static_cast<name##_type *>(simt::shared_variable(                         \
        simt::call::here(), &name##_key, #name, sizeof(name##_type), alignof(name##_type)))
#define TA_SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(simt_self->block->shared)

TA_DEVICE int ta_lane()
{
    return static_cast<int>(simt_self->number);
}

TA_DEVICE int ta_wave_id()
{
    return static_cast<int>(simt_self->wave->number);
}

TA_DEVICE void ta_syncthreads(simt::call where = simt::call::here())
{
    simt::barrier_wait(where);
}

TA_DEVICE void ta_syncwave(simt::call where = simt::call::here())
{
    simt::wave_sync(where);
}

template <class T> TA_DEVICE T ta_shfl(T value, int lane, simt::call where = simt::call::here())
{
    return simt::shuffle(value, static_cast<unsigned>(lane), where);
}

template <class T> TA_DEVICE T ta_shfl_xor(T value, int mask, simt::call where = simt::call::here())
{
    return simt::shuffle_xor(value, static_cast<unsigned>(mask), where);
}

template <class T>
TA_DEVICE T ta_shfl_down(T value, int delta, int width, simt::call where = simt::call::here())
{
    return simt::shuffle_down(value, static_cast<unsigned>(delta), static_cast<unsigned>(width),
                              where);
}

template <class T>
TA_DEVICE T ta_shfl_up(T value, int delta, int width, simt::call where = simt::call::here())
{
    return simt::shuffle_up(value, static_cast<unsigned>(delta), static_cast<unsigned>(width),
                            where);
}

TA_DEVICE uint64_t ta_ballot(bool predicate, simt::call where = simt::call::here())
{
    return simt::wave_ballot(where, predicate);
}

TA_DEVICE int32_t ta_uniform(int32_t value)
{
    return value;
}

TA_DEVICE void ta_opaque(int32_t &)
{
}

TA_DEVICE void ta_opaque_uniform(int32_t &)
{
}

TA_DEVICE float ta_exp2(float x)
{
    return exp2f(x);
}

TA_DEVICE float ta_as_float(uint32_t bits)
{
    return ta_float_from_bits(bits);
}

TA_DEVICE uint32_t ta_as_bits(float value)
{
    return ta_float_bits(value);
}

TA_DEVICE ta_vec16 ta_load16(const void *address, simt::call where = simt::call::here())
{
    return simt::aligned_for<ta_vec16>(address, where);
}

TA_DEVICE int32_t ta_load_global(const int32_t *address)
{
    return *address;
}

TA_DEVICE ta_vec16 ta_load16_stream(const void *address, simt::call where = simt::call::here())
{
    return simt::aligned_for<ta_vec16>(address, where);
}

TA_DEVICE ta_vec16 ta_load16_global(const void *address, simt::call where = simt::call::here())
{
    return simt::aligned_for<ta_vec16>(address, where);
}

TA_DEVICE void ta_store16(void *address, ta_vec16 value, simt::call where = simt::call::here())
{
    const_cast<ta_vec16 &>(simt::aligned_for<ta_vec16>(address, where)) = value;
}

TA_DEVICE float ta_from_f16(uint16_t bits)
{
    return ta_f16_to_f32(bits);
}

TA_DEVICE uint16_t ta_to_f16(float value)
{
    return ta_f32_to_f16(value);
}

#endif

/* bf16 is the upper half of a binary32: the same on all vendors. Rounds to nearest, ties to
 * even. */
TA_DEVICE float ta_from_bf16(uint16_t bits)
{
    return ta_as_float(static_cast<uint32_t>(bits) << 16);
}

TA_DEVICE uint16_t ta_to_bf16(float value)
{
    uint32_t bits = ta_as_bits(value);
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return static_cast<uint16_t>((value == value ? rounded : bits | 0x400000u) >> 16);
}

#endif

#endif
