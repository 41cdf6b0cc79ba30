/* The one file that knows for which vendor it is compiled, with its parts vendor_….h, which nobody
 * else includes. HIP's names are the language of hip/: on AMD they are HIP's own, on NVIDIA they
 * are mapped to CUDA's (vendor_cuda_names.h), and the SIMT executor implements them on the CPU for
 * the tests. What the vendors spell or do differently has one spelling of ours, below.
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
 *     ta_shfl_xor(v, mask)
 *     ta_shfl_xor_by<Mask>(x)                    of a float, by a constant
 *     ta_shfl(x, lane)                           the float or int32_t of that lane of the wave
 *     ta_any(b)                                  is b true on any lane of the wave?
 *     ta_load16(p) ta_load16_stream(p)           16 bytes at once, 16-byte aligned
 *     ta_load16_stream_if(there, p, v)           v = ta_load16_stream(p) if it is there, else it
 *                                                stays the zeros that it is: no lane branches
 *     ta_load8_stream(p)                         8 bytes
 *     ta_ask_for(p)                              a hint: 128 bytes may be brought nearer
 *     ta_load_word(p)                            a word of the device's own memory, by itself
 *     ta_store16(p, v)
 *     ta_copy_start(c, to, from, there)          begin to bring 16 bytes, or zeros, to shared
 *     ta_copies_wait() ta_copy_finish(c, to)     memory; they are there when this thread has
 *                                                called both. Others need a barrier after it
 *     ta_load_global(p)                          an int32_t that is in the device's own memory
 *     ta_uniform(i)                              an i that the wave's lanes share: may be scalar
 *     ta_known_uniform(i)                        the same, and compilers know it: in a loop whose
 *                                                bounds are so known all lanes come to a shuffle
 *     ta_opaque(i)                               in a loop: what follows from a thread's own i is
 *                                                not computed in advance, in dear registers
 *     ta_opaque_uniform(i)                       the same for an i that the wave's lanes share
 *     ta_opaque_pointer(p)                       before a loop: it is kept, not made of its parts
 *                                                in each turn
 *     ta_unset(x, …)                             nobody reads x from here on, which compilers do
 *                                                not see: nothing, or a value
 *     ta_params_again(p)                         the kernel's first argument, a struct: what is
 *                                                read of it from here on was not kept so far
 *     ta_store_peer(p, v)                        into memory that other devices read meanwhile, 4,
 *                                                8 or 16 bytes; every thread that does it has a
 *     ta_fence_system()                          behind it, and then a barrier comes, before the
 *     ta_flag_store(p, v) ta_flag_load(p)        flag that tells them, on other devices too
 *     ta_flag_peek(p)                            a flag that says all by itself: orders nothing, so
 *                                                that it can be on its way beside the other
 *     ta_await_moment()                          between two looks at a flag
 *     ta_wall_clock()                            ticks, ta_gpu.clock_khz of them in a millisecond
 *     ta_count_bits(word)                        how many of them are 1
 *     ta_exp2(x) ta_as_float(bits) ta_as_bits(x)
 *     ta_from_f16(h) ta_from_bf16(h) ta_to_f16(x) ta_to_bf16(x)
 *     ta_to_f16_pair(x, y) ta_to_bf16_pair(x, y) two of them in a word
 *     ta_low_halves(a, b) ta_high_halves(a, b)   a word of half of a, and above it half of b
 *     ta_mix_bytes<Half>(a, b)                   the first two bytes of each, in turn: a, b, a, b;
 *                                                of Half 1 the last two
 *     ta_spread_bytes<Half>(word)                the first (last) two bytes as the upper ones of
 *                                                two halves, with zeros below
 *     ta_spread_signs(word)                      of halves whose highest bit is 1 all lower bits
 *                                                are, the highest or not; 0 of others
 *     ta_scale_pair(word, factor)                both bf16 halves times a power of two, which both
 *                                                halves of `factor` are
 *     ta_converts_narrow(fnuz)                   has the device instructions for 8 bits, of OCP or
 *                                                of FNUZ?
 *     ta_convert_narrow(e4m3, two, a, b)         two codes, the lower bytes of `two`, as floats
 *     ta_quiet(x)                                x; of a NaN that was made so, one whose upper half
 *                                                is NaN too
 *     threadIdx.x blockIdx gridDim __threadfence() atomicAdd() …   as in HIP
 *
 * Every lane of the wave that has not left the kernel must reach a shuffle or wave barrier.
 * A shuffle may not read a lane that has left, nor one outside the wave. Blocks have one dimension.
 * Atomics order nothing: put __threadfence() on both sides.
 *
 * On the host:
 *     TA_WAVE_SWITCH(wave, Wave, result = TA_LAUNCH(k<Wave>, grid, threads, bytes, stream, …))
 *     TA_LAUNCH_RESIDENT(…)                      the same, of a kernel that waits for other
 *                                                devices: its grid is no larger than what can be
 *                                                there at once */
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
#ifdef __HIP_DEVICE_COMPILE__
#define TA_DEVICE_PASS 1 /* of one architecture; the other passes are the host's */
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
#include "vendor_cuda_names.h"
#endif

#include "vendor_query.h"

/* Collectives: only in files that define TA_CCL_CALLS before this is included. */
#ifdef TA_CCL_CALLS
#if defined(TA_SIMT)
#include "simt_ccl.h"
#elif defined(TA_ROCM)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif
#include "vendor_ccl.h"
#endif

/* Matrix products: only in files that define TA_BLAS_CALLS before this is included. */
#ifdef TA_BLAS_CALLS
#include "vendor_blas.h"
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

/* 16 bytes that travel as one access, and 8. */
struct alignas(16) ta_vec16 {
    uint32_t word[4];
};

struct alignas(8) ta_vec8 {
    uint32_t word[2];
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
    int no_type = 0;    /* 1: the kernel was not launched, it has no version for this … */
    int dtype = 0;
};

/* TA_LAUNCH(kernel, grid, threads, shared_bytes, stream, arguments…): `grid` is a dim3 or a number.
 * A kernel with several template arguments goes in parentheses. */
#define TA_LAUNCH(kernel, ...) ta_launch(#kernel, kernel, __VA_ARGS__)
#define TA_LAUNCH_RESIDENT(kernel, ...) ta_launch_resident(#kernel, kernel, __VA_ARGS__)

#if defined(TA_SIMT)
#include "vendor_simt.h"
#else
#include "vendor_gpu.h"
#if defined(TA_CUDA)
#include "vendor_cuda.h"
#else
#include "vendor_rocm.h"
#endif
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

#if !defined(TA_CUDA) /* which has an instruction for it */
TA_DEVICE uint32_t ta_to_bf16_pair(float low, float high)
{
    return ta_low_halves(ta_to_bf16(low), ta_to_bf16(high));
}
#endif

#endif

#endif
