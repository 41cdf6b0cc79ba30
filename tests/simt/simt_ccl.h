/* NCCL's calls as the SIMT executor offers them: the types and functions that hip/ uses, with
 * NCCL's names, values and meaning. For C and C++. Ranks are threads of one process, each on a
 * device of its own. Implemented in ccl_*.cpp.
 *
 *  * Where NCCL leaves something open, this is strict. A send waits for its receive, whatever
 * its size. A communicator that is not blocking says ncclInProgress after every call that queues
 * work, and refuses the next one before it was asked with ncclCommGetAsyncError(). A peer that
 * is gone is not noticed by the others. Sums of floats are added in another order from element
 * to element, and a maximum of floats may drop a NaN. Sizes or types that do not match are an
 * asynchronous error. */
#ifndef SIMT_CCL_H
#define SIMT_CCL_H

#include <limits.h>
#include <stddef.h>

#include "simt_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION(x, y, z) ((x)*10000 + (y)*100 + (z))
#define NCCL_VERSION_CODE NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_SPLIT_NOCOLOR (-1)

typedef struct ncclComm *ncclComm_t;

typedef struct ncclUniqueId {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

#define SIMT_CCL_RESULT_LIST(X)                                                                    \
    X(ncclSuccess, 0, "success")                                                                   \
    X(ncclUnhandledCudaError, 1, "a call of the GPU's runtime failed")                             \
    X(ncclSystemError, 2, "a system call or a device failed")                                      \
    X(ncclInternalError, 3, "an internal check failed")                                            \
    X(ncclInvalidArgument, 4, "an argument is not valid")                                          \
    X(ncclInvalidUsage, 5, "the call is not allowed here")                                         \
    X(ncclRemoteError, 6, "another rank failed or left")                                           \
    X(ncclInProgress, 7, "not finished yet")

typedef enum ncclResult_t {
#define SIMT_CCL_RESULT_ENUM(name, value, message) name = value,
    SIMT_CCL_RESULT_LIST(SIMT_CCL_RESULT_ENUM)
#undef SIMT_CCL_RESULT_ENUM
} ncclResult_t;

typedef struct ncclConfig_t {
    size_t size;
    unsigned magic, version;
    int blocking; /* 0 or 1; INT_MIN: 1, and of a split: as the parent */
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        sizeof(ncclConfig_t), 0xcafebeefu, NCCL_VERSION_CODE, INT_MIN                              \
    }

typedef enum ncclDataType_t {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt64 = 4,
    ncclFloat32 = 7,
    ncclFloat = 7
} ncclDataType_t;

typedef enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm); /* NULL: of the calling thread */

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *part,
                           ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *ranks);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank);
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      hipStream_t stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, hipStream_t stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, hipStream_t stream);

/* ---- For the tests ------------------------------------------------------------------------- */

/* The library that is pretended to be there: functions that it did not have yet refuse to work. */
void simt_set_ccl_version(int version);

/* The n-th piece of work from now on that runs for this rank of any communicator fails, once: an
 * asynchronous error of that rank; nobody's part in it ends before an abort. nth 0: never mind. */
void simt_fail_ccl(int rank, int nth);

/* Communicators that were made and are neither destroyed nor aborted. */
int simt_ccl_communicators(void);

#ifdef __cplusplus
}
#endif

#endif
