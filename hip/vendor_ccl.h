/* A part of vendor.h, which alone includes it: the collectives. NCCL's names are the language of
 * hip/ccl/. No call is linked; ccl/library.c finds them in TA_CCL_FILE at run time. */
#ifndef TA_VENDOR_CCL_H
#define TA_VENDOR_CCL_H

#if defined(TA_SIMT)
#define TA_CCL_NAME "the executor's NCCL"
#define TA_CCL_FILE "libsimt.so"
#elif defined(TA_ROCM)
#define TA_CCL_NAME "RCCL"
#define TA_CCL_FILE "librccl.so.1"
#else
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
