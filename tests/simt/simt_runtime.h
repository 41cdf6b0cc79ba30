/* The HIP runtime as the SIMT executor offers it: the types and calls that hip/ uses, with HIP's
 * names and meaning. For C and C++. The values of the errors are HIP's. Implemented in device.cpp,
 * memory.cpp, stream.cpp, event.cpp and graph.cpp.
 *
 * Differences from a real runtime, all on the strict side: queued work runs only when the host
 * waits (see simt_control.h), pageable host memory is read and written when the copy runs and not
 * before, and hipGetErrorString() of an error that just happened gives the precise sentence. */
#ifndef SIMT_RUNTIME_H
#define SIMT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMT_ERROR_LIST(X)                                                                         \
    X(hipSuccess, 0, "success")                                                                    \
    X(hipErrorInvalidValue, 1, "an argument is not valid")                                         \
    X(hipErrorOutOfMemory, 2, "out of memory")                                                     \
    X(hipErrorInvalidConfiguration, 9, "the grid or block of a launch is not valid")               \
    X(hipErrorNoDevice, 100, "no device")                                                          \
    X(hipErrorInvalidDevice, 101, "no such device")                                                \
    X(hipErrorInvalidHandle, 400, "the handle is not valid")                                       \
    X(hipErrorNotReady, 600, "not finished yet")                                                   \
    X(hipErrorMapFailed, 205, "memory could not be mapped")                                        \
    X(hipErrorLaunchOutOfResources, 701, "a launch asks for more than the device has")             \
    X(hipErrorPeerAccessAlreadyEnabled, 704, "this device addresses that one already")             \
    X(hipErrorLaunchFailure, 719, "a kernel failed")                                               \
    X(hipErrorNotSupported, 801, "not supported")                                                  \
    X(hipErrorStreamCaptureUnsupported, 900, "not allowed while a stream is captured")             \
    X(hipErrorStreamCaptureInvalidated, 901, "the capture was spoilt by an earlier error")         \
    X(hipErrorStreamCaptureUnmatched, 903, "this stream did not begin the capture")                \
    X(hipErrorStreamCaptureUnjoined, 904, "captured work is not joined to the first stream")       \
    X(hipErrorStreamCaptureIsolation, 905, "a captured stream depends on work outside")            \
    X(hipErrorStreamCaptureImplicit, 906, "the null stream depends on a captured stream")          \
    X(hipErrorStreamCaptureWrongThread, 908, "another thread began this capture")                  \
    X(hipErrorUnknown, 999, "unknown error")

typedef enum hipError_t {
#define SIMT_ERROR_ENUM(name, value, message) name = value,
    SIMT_ERROR_LIST(SIMT_ERROR_ENUM)
#undef SIMT_ERROR_ENUM
} hipError_t;

typedef struct simt_stream *hipStream_t;
typedef struct simt_event *hipEvent_t;
typedef struct simt_graph *hipGraph_t;
typedef struct simt_graph_exec *hipGraphExec_t;

/* ---- Devices and errors -------------------------------------------------------------------- */

typedef enum hipDeviceAttribute_t {
    hipDeviceAttributeL2CacheSize,
    hipDeviceAttributeMaxSharedMemoryPerBlock,
    hipDeviceAttributeMaxSharedMemoryPerMultiprocessor,
    hipDeviceAttributeMaxThreadsPerBlock,
    hipDeviceAttributeMaxThreadsPerMultiProcessor,
    hipDeviceAttributeMultiprocessorCount,
    hipDeviceAttributeSharedMemPerBlockOptin,
    hipDeviceAttributeWarpSize
} hipDeviceAttribute_t;

typedef struct hipDeviceProp_t {
    char name[256];
    char gcnArchName[256];
    size_t totalGlobalMem;
    int warpSize;
    int multiProcessorCount;
} hipDeviceProp_t;

typedef enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 } hipFuncAttribute;

hipError_t hipGetDeviceCount(int *count);
hipError_t hipSetDevice(int device); /* for the calling thread */
hipError_t hipGetDevice(int *device);
hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device);
hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device);
hipError_t hipDeviceGetPCIBusId(char *text, int bytes, int device);
hipError_t hipDeviceSynchronize(void);
hipError_t hipDeviceReset(void); /* drops queued work, and the device's error */
hipError_t hipRuntimeGetVersion(int *version);
hipError_t hipDriverGetVersion(int *version);
hipError_t hipFuncSetAttribute(const void *kernel, hipFuncAttribute attribute, int value);
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                        int threads, size_t shared_bytes);
hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
const char *hipGetErrorName(hipError_t error);
const char *hipGetErrorString(hipError_t error);

/* ---- Memory -------------------------------------------------------------------------------- */

typedef enum hipMemcpyKind {
    hipMemcpyHostToHost = 0,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3,
    hipMemcpyDefault = 4
} hipMemcpyKind;

typedef enum hipMemoryType {
    hipMemoryTypeUnregistered = 0,
    hipMemoryTypeHost = 1,
    hipMemoryTypeDevice = 2
} hipMemoryType;

typedef struct hipPointerAttribute_t {
    hipMemoryType type;
    int device;
} hipPointerAttribute_t;

#define hipHostMallocDefault 0u

hipError_t hipMalloc(void **memory, size_t bytes);
hipError_t hipFree(void *memory); /* waits for the device first */
hipError_t hipHostMalloc(void **memory, size_t bytes, unsigned flags);
hipError_t hipHostFree(void *memory);
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *pointer);
hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream);
hipError_t hipMemset(void *to, int value, size_t bytes);
hipError_t hipMemsetAsync(void *to, int value, size_t bytes, hipStream_t stream);

/* ---- Memory of other devices: peer.cpp ------------------------------------------------------ */

#define hipIpcMemLazyEnablePeerAccess 1u

typedef struct hipIpcMemHandle_t {
    char reserved[64];
} hipIpcMemHandle_t;

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
/* Of memory whose size is a multiple of 2 MiB: others share it with smaller allocations. */
hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *memory);
hipError_t hipIpcOpenMemHandle(void **memory, hipIpcMemHandle_t handle, unsigned flags);
hipError_t hipIpcCloseMemHandle(void *memory);

/* ---- Streams and events -------------------------------------------------------------------- */

#define hipStreamDefault 0u
#define hipStreamNonBlocking 1u
#define hipEventDefault 0u
#define hipEventDisableTiming 2u

typedef void (*hipHostFn_t)(void *data);

hipError_t hipStreamCreate(hipStream_t *stream);
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t fn, void *data);

hipError_t hipEventCreate(hipEvent_t *event);
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t first, hipEvent_t second);

/* ---- Capture ------------------------------------------------------------------------------- */

typedef enum hipStreamCaptureMode {
    hipStreamCaptureModeGlobal = 0,
    hipStreamCaptureModeThreadLocal = 1,
    hipStreamCaptureModeRelaxed = 2
} hipStreamCaptureMode;

typedef enum hipStreamCaptureStatus {
    hipStreamCaptureStatusNone = 0,
    hipStreamCaptureStatusActive = 1,
    hipStreamCaptureStatusInvalidated = 2
} hipStreamCaptureStatus;

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status);
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode);
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *exec, hipGraph_t graph,
                                        unsigned long long flags);
hipError_t hipGraphLaunch(hipGraphExec_t exec, hipStream_t stream);
hipError_t hipGraphExecDestroy(hipGraphExec_t exec);
hipError_t hipGraphDestroy(hipGraph_t graph);

#ifdef __cplusplus
}
#endif

#endif
