/* Inside the module: the device behind a ta_device, and how errors of the runtime become statuses.
 * The C files of hip/ share it. */
#ifndef TA_HIP_GPU_H
#define TA_HIP_GPU_H

#include "vendor.h"

#include "base/status.h"
#include "device/attention.h"
#include "device/ccl_own.h"
#include "device/model.h"
#include "device/module.h"
#include "device/peers.h"
#include "group/group.h"
#include "kernels.h"

/* Pinned memory on its way to the device (arrays.c). */
typedef struct ta_gpu_pinned {
    void *memory;
    hipEvent_t event; /* behind the copy */
    int used;         /* 1: there was one */
} ta_gpu_pinned;

#define TA_GPU_PINNED 4

/* Spans that the stopwatch can tell apart from one start on. */
#define TA_GPU_SPANS 128

typedef struct ta_gpu_device {
    ta_device device;
    int index;
    ta_gpu properties;
    ta_gpu_limits limits;
    /* Queued last on this device, by any thread: what a late error can be about. */
    const char *_Atomic last_kernel;
    ta_gpu_pinned pinned[TA_GPU_PINNED];
    size_t pinned_bytes;                   /* of each */
    int next_pinned;                       /* the one to use next */
    hipStream_t recorder;                  /* that steps are captured on; NULL until one is */
    hipEvent_t marks[2];                   /* of the stopwatch: its start, and now; NULL likewise */
    int spans;                             /* that were begun since its start */
    hipEvent_t spans_at[2 * TA_GPU_SPANS]; /* where each begins and ends; NULL likewise */
} ta_gpu_device;

static inline ta_gpu_device *ta_gpu_of(ta_device *device)
{
    return (ta_gpu_device *)device; /* its first member */
}

/* The core's services, set when the module is entered (module.c). */
extern const ta_core *ta_gpu_core;

ta_status ta_gpu_open(int index, const ta_device_config *config, ta_device **device);

/* TA_OK, or the error that the runtime returned from `action` ("allocating 64 bytes"). */
__attribute__((format(printf, 3, 4))) ta_status
ta_gpu_check(const ta_gpu_device *gpu, hipError_t error, const char *action, ...);

/* The same for a launch; remembers the kernel. */
ta_status ta_gpu_check_launch(ta_gpu_device *gpu, ta_launched launched);

/* Make the device the calling thread's current one, and the one before current again. */
ta_status ta_gpu_enter(const ta_gpu_device *gpu, int *before);
void ta_gpu_leave(const ta_gpu_device *gpu, int before);

/* Run one expression that gives a status on the device, and return it. */
#define TA_ON_GPU(gpu, expr)                                                                       \
    int before_;                                                                                   \
    TA_TRY(ta_gpu_enter(gpu, &before_));                                                           \
    ta_status status_ = (expr);                                                                    \
    ta_gpu_leave(gpu, before_);                                                                    \
    return status_

/* Graphs and the stopwatch (graph.c). */
ta_status ta_gpu_record(ta_device *device, void **stream);
ta_status ta_gpu_recorded(ta_device *device, void *stream, void **graph);
ta_status ta_gpu_replay(ta_device *device, void *graph, void *stream);
void ta_gpu_drop(ta_device *device, void *graph);
ta_status ta_gpu_timer_start(ta_device *device, void *stream);
ta_status ta_gpu_timer_read(ta_device *device, void *stream, double *seconds);
ta_status ta_gpu_span(ta_device *device, int end, void *stream);
void ta_gpu_free_graphs(ta_gpu_device *gpu);

/* The attend slots of the vtable and its check of the caller's cache (attend/attend.c,
 * splits.c). */
size_t ta_gpu_attend_bytes(const ta_device *device, const ta_problem *problem);
ta_status ta_gpu_pack_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                         int32_t slots, void *packed, void *stream);
ta_status ta_gpu_attend(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                        const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                        void *stream);
ta_status ta_gpu_attend_and_finish(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                                   const ta_kv *kv, void *workspace, const ta_finish *finish,
                                   void *stream);
ta_status ta_gpu_tell(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                      const ta_tell *tell, void *stream);
ta_status ta_gpu_check_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv);

/* What attend() is given, by whichever kernels; and what follows where nothing is exchanged. */
typedef struct ta_gpu_call {
    const ta_problem *problem;
    const ta_tensor *q;
    const ta_kv *kv;
    float *records;
    void *workspace;
    const ta_tell *tell;
    const ta_finish *finish; /* NULL: nothing */
} ta_gpu_call;

/* What all ways of attending need: how scores are made, and the error of too large a grid. */
ta_score_rule ta_gpu_score_rule(const ta_problem *problem);
ta_status ta_gpu_fail_grid(int64_t rows, int64_t blocks);

/* Equal shares (attend/pieces.c), of items of `group` rows for as many blocks as units hold at a
 * time: the workspace of the plan's largest call, and what kernels are told. */
size_t ta_gpu_share_bytes(const ta_gpu_limits *limits, const ta_problem *problem, int32_t group,
                          int32_t per_unit);
ta_share_params ta_gpu_share(const ta_gpu_limits *limits, const ta_problem *problem, int32_t group,
                             int32_t per_unit, void *workspace);

/* What follows attend on the device, there too: after equal shares, and where no other launch
 * finished; then the slots of the vtable that merge and finish. */
ta_status ta_gpu_end_pieces(ta_gpu_device *gpu, const ta_gpu_call *call,
                            const ta_share_params *share, void *stream);
ta_status ta_gpu_finish_call(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream);
ta_status ta_gpu_merge(ta_device *device, const ta_merge *merge, void *stream);
ta_status ta_gpu_finish(ta_device *device, const ta_finish *finish, void *stream);

/* What the parameters of every call to the kernels with shared memory have; the rest is 0. */
void ta_gpu_start_attend(ta_attend_params *params, const ta_gpu_call *call);

/* attend() by the kernels with shared memory in equal shares, and its workspace; is a cache for
 * their aligned variants; and a launch of them (attend/pieces.c). */
size_t ta_gpu_pieces_bytes(const ta_gpu_limits *limits, const ta_problem *problem);
ta_status ta_gpu_attend_pieces(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream);
int ta_gpu_aligned(const ta_problem *problem, const ta_kv *kv);
ta_status ta_gpu_launch_attend(ta_gpu_device *gpu, const ta_attend_params *params, int aligned,
                               void *stream);

/* attend() by splits, and its workspace (attend/splits.c). */
size_t ta_gpu_splits_bytes(const ta_gpu_limits *limits, const ta_problem *problem);
ta_status ta_gpu_attend_splits(ta_gpu_device *gpu, const ta_gpu_call *call, void *stream);

/* Attention over full sequences: its table (attention/attention.c), and its arrays on the device
 * (arrays.c). Reserve for the largest call, before any; bring those of one call to `to`, in
 * stream order, and let `work` point there. */
extern const ta_attention_ops ta_gpu_attention_ops;
size_t ta_gpu_arrays_bytes(const ta_attention_work *shape);
ta_status ta_gpu_reserve_arrays(ta_device *device, const ta_attention_work *largest);
ta_status ta_gpu_bring_arrays(ta_gpu_device *gpu, const ta_token_order *order,
                              ta_attention_work *work, void *to, void *stream);
void ta_gpu_free_arrays(ta_gpu_device *gpu);

/* Devices that address each other's memory (exchange/peers.c); each that is opened, and its end
 * (parted.c). */
extern const ta_peer_ops ta_gpu_peer_ops;
void ta_gpu_open_peers(const ta_gpu_device *gpu);
void ta_gpu_close_peers(const ta_gpu_device *gpu);

/* A decoder's operations beside attention (model/model.c). */
extern const ta_model_ops ta_gpu_model_ops;

/* NCCL's own calls (ccl/own.c); only where TA_CCL is defined. */
extern const ta_ccl_own_ops ta_gpu_ccl_own_ops;

#endif
