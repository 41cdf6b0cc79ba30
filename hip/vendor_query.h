/* A part of vendor.h, which alone includes it: what a device is, and whose memory an address is, in
 * the calls of HIP. */
#ifndef TA_VENDOR_QUERY_H
#define TA_VENDOR_QUERY_H

#include <unistd.h>

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
    int clock_khz; /* of ta_wall_clock() in kernels */
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
    gpu->clock_khz = 1000000;
#if defined(TA_ROCM)
    if (hipDeviceGetAttribute(&gpu->clock_khz, hipDeviceAttributeWallClockRate, device) !=
            hipSuccess ||
        gpu->clock_khz <= 0) {
        (void)hipGetLastError();
        gpu->clock_khz = 100000; /* of every CDNA and RDNA so far */
    }
#endif
    /* AMD knows no more than that, and may say so with an error or with 0. */
    int on_request = 0;
    error = hipDeviceGetAttribute(&on_request, hipDeviceAttributeSharedMemPerBlockOptin, device);
    if (error != hipSuccess)
        (void)hipGetLastError();
    else if (on_request > gpu->shared_bytes)
        gpu->shared_bytes = on_request;
    return hipSuccess;
}

/* Whose driver this machine lacks, if that is why there are no devices; NULL otherwise. CUDA then
 * has a version of 0 for it, and words about one that is too old; ROCm says that there is no
 * device. */
static inline const char *ta_missing_driver(hipError_t error)
{
#if defined(TA_CUDA)
    int version = 0;
    if (error != hipSuccess && hipDriverGetVersion(&version) == hipSuccess && version == 0)
        return "NVIDIA";
#elif defined(TA_ROCM)
    if (error == hipErrorNoDevice && access("/dev/kfd", F_OK) != 0)
        return "AMD GPU";
#endif
    (void)error;
    return NULL;
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

/* Memory that other devices write to while a kernel reads it. On AMD no cache may hold it. */
static inline hipError_t ta_alloc_for_peers(void **memory, size_t bytes)
{
#if defined(TA_ROCM)
    return hipExtMallocWithFlags(memory, bytes, hipDeviceMallocUncached);
#else
    return hipMalloc(memory, bytes);
#endif
}

#endif
