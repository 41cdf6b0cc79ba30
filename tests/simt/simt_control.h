/* What a test can ask of the SIMT executor beyond what a real runtime offers: how threads are
 * ordered, the wave width, when queued work runs, faults on demand, and counts of what happened.
 * For C and C++.
 *
 * Every setting has an environment variable, read once at first use; the functions override it.
 * Change a setting only while nothing is queued. simt_settings() prints them all as such variables,
 * which is what a failing test prints so that the failure can be run again. */
#ifndef SIMT_CONTROL_H
#define SIMT_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include "simt_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In which order the threads of a block run between two barriers (and the blocks of a grid, the
 * ready nodes of a graph, the streams of a device that is synchronised). */
typedef enum simt_order {
    SIMT_FORWARD, /* first to last */
    SIMT_REVERSE, /* last to first */
    SIMT_RANDOM   /* another order each time, decided by the seed alone */
} simt_order;

/* When queued work runs. */
typedef enum simt_streams {
    SIMT_ON_SYNC,      /* only when the host waits for it: the latest moment that is allowed */
    SIMT_IN_BACKGROUND /* as soon as a thread of its own gets to it */
} simt_streams;

void simt_set_order(simt_order order, uint64_t seed); /* TA_SIMT_ORDER, TA_SIMT_SEED */
void simt_set_wave(int wave);                         /* TA_SIMT_WAVE: 32 or 64 */
void simt_set_streams(simt_streams when);             /* TA_SIMT_STREAMS: sync or background */
/* Threads that share the blocks of a launch; block b runs on thread b mod count. */
void simt_set_workers(int count); /* TA_SIMT_WORKERS: 1 … 64 */
/* Make device memory unreadable to the host while nothing runs on any device: a pointer that the
 * host uses by mistake is then a segmentation fault. Not under ASan. */
void simt_set_guard(int on); /* TA_SIMT_GUARD: 0 or 1 */

/* The numbers of every simulated device. */
typedef struct simt_device_config {
    int devices;                  /* 8; TA_SIMT_DEVICES */
    int compute_units;            /* 16 */
    size_t shared_bytes;          /* largest shared memory of a block: 65,536 */
    size_t default_shared_bytes;  /* … of a kernel that did not ask for more: 49,152 */
    size_t shared_bytes_per_unit; /* 131,072 */
    size_t memory_bytes;          /* of one device: 4 GiB */
    size_t cache_bytes;           /* second-level cache: 8 MiB */
    char arch[32];                /* what the devices call themselves: "simt"; TA_SIMT_ARCH */
} simt_device_config;

simt_device_config simt_get_device_config(void);
void simt_set_device_config(const simt_device_config *config);

/* All settings, as variables for a command line. Valid until the next call on this thread. */
const char *simt_settings(void);

/* Back to the settings of the environment; no faults; error states of devices and counts
 * cleared. */
void simt_reset(void);

/* Faults. The n-th such event from now on (1 is the next) fails, once; 0 takes the order back. */
void simt_fail_malloc(int nth); /* hipMalloc and hipHostMalloc: hipErrorOutOfMemory */
void simt_fail_query(int nth);  /* hipGetDeviceProperties: hipErrorInvalidDevice */
/* hipGetDeviceCount: hipErrorUnknown; below 0, the -n-th: hipErrorNoDevice. */
void simt_fail_count(int nth);
void simt_fail_launch(int nth); /* a launch is refused: hipErrorLaunchOutOfResources */
void simt_fail_kernel(int nth); /* a kernel fails while it runs: hipErrorLaunchFailure */

/* How devices get at each other's memory. */
typedef enum simt_peers {
    SIMT_PEERS_ALL,
    SIMT_PEERS_NONE,   /* hipDeviceCanAccessPeer() says no */
    SIMT_PEERS_NO_IPC, /* yes, but handles of other processes do not open */
    SIMT_PEERS_LOSSY,  /* yes, and stores get lost on their way */
    SIMT_PEERS_PAIRS   /* of one process: yes between 0 and 1, 2 and 3 and so on, else no */
} simt_peers;
void simt_set_peers(simt_peers peers); /* TA_SIMT_PEERS: all, none, no_ipc, lossy or pairs */

/* Which dialect of 8 bits the devices have instructions for. */
typedef enum simt_narrow {
    SIMT_NARROW_NONE,
    SIMT_NARROW_OCP, /* as NVIDIA from sm_89 on, gfx950 and gfx12 */
    SIMT_NARROW_FNUZ /* as gfx942: OCP's codes are other numbers for it, and it does not tell */
} simt_narrow;
void simt_set_narrow(simt_narrow narrow); /* TA_SIMT_NARROW: none, ocp or fnuz */

/* What happened since the last reset, on all devices. */
typedef struct simt_counters {
    uint64_t launches;       /* kernels submitted, captured ones included */
    uint64_t graph_launches; /* graphs submitted */
    uint64_t kernels;        /* kernels that ran */
    uint64_t blocks;         /* blocks that ran */
    uint64_t allocations;    /* device and pinned memory */
    uint64_t host_waits;     /* calls in which the host may wait for a device */
    uint64_t copied_bytes;   /* by copies, any direction */
} simt_counters;

simt_counters simt_get_counters(void);

/* Events that were made and are not destroyed. */
int simt_events(void);

/* Do two captured graphs do the same work: nodes, order, kernels, sizes and every byte of their
 * arguments? 1 if so; else 0, and the first difference in words in `why`. */
int simt_graphs_equal(hipGraph_t a, hipGraph_t b, char *why, size_t why_bytes);

#ifdef __cplusplus
}
#endif

#endif
