/* The presets of ta_cluster_create(). Every number has its source beside it; a number that nobody
 * measured for us is called assumed. docs/model.md lists what follows from them.
 *
 * Message latencies of GPU clusters are those of NCCL's own cost model (src/graph/tuning.cc, ring
 * with the LL protocol, which is what it chooses for partials of tens of kilobytes): a fixed 3.6 µs
 * for the call, and for each hop 0.47 µs over NVLink, 1.0 µs over PCIe, 5.0 µs over a network
 * adapter. Bandwidths are those of data sheets, one way. So are the operations per second,
 * dense: of f32 without tensor cores, and of f16 and bf16 with them and sums in f32; attention
 * reaches a part of them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "cluster.h"

#define NCCL_CALL_S 3.6e-6
#define NVLINK_HOP_S 0.47e-6
#define PCIE_HOP_S 1.0e-6
#define NETWORK_HOP_S 5.0e-6

/* Assumed: an empty kernel after another on one stream, a graph's node rather less. */
#define GPU_KERNEL_S 3e-6

/* Assumed for every network with more than one rack: as fast as inside, and two switches more, each
 * with the 0.3 µs of an InfiniBand or Ethernet switch that stores and forwards. */
#define RACK_HOP_S 0.6e-6

/* Ranks that read each other's memory: a signal is the fence behind the partial, which goes there
 * and back, and the flag, one hop each. Over NVLink and PCIe that is NCCL's hop, three times; so an
 * all-gather of 2 GPUs over PCIe would take 3 µs and a kernel, and 4.1 µs are reported for one by
 * peer stores (against 8.3 µs by messages). Over Infinity Fabric the 6.4 µs that are reported for
 * 24 KB between 8 MI355X, less a kernel. All are of others' programs: no GPU has run this library's
 * direct exchange yet. */
#define NVLINK_SIGNAL_S (3 * NVLINK_HOP_S)
#define PCIE_SIGNAL_S (3 * PCIE_HOP_S)
#define XGMI_SIGNAL_S (6.4e-6 - GPU_KERNEL_S)

/* Of messages that are never announced. */
#define LEVEL(latency, rank, total)                                                                \
    {                                                                                              \
        .latency_s = (latency), .rank_bytes_per_s = (rank), .total_bytes_per_s = (total)           \
    }

/* A node of GPUs: messages to GPUs of the same node, one hop away, at `link` to one and at `links`
 * together; to other nodes by its network adapters of `nic` each; and to other racks, between which
 * eight nodes send at once. */
#define GPU_NODE(hop, link, links, nics, nic)                                                      \
    .kernel_s = GPU_KERNEL_S, .nics_per_node = (nics),                                             \
    .levels = {LEVEL(NCCL_CALL_S + (hop), link, links),                                            \
               LEVEL(NCCL_CALL_S + NETWORK_HOP_S, nic, (nics) * (nic)),                            \
               LEVEL(NCCL_CALL_S + NETWORK_HOP_S + RACK_HOP_S, nic, 8 * (nics) * (nic))}

/* NVIDIA H100 data sheet (SXM5): 80 GB, 3.35 TB/s, 67 TFLOP/s in f32, 989 in bf16; NVLink 900 GB/s
 * both ways. DGX H100 user guide: 8 GPUs on NVSwitch, so that all send at full speed at once, and
 * 8 ConnectX-7 of 400 Gb/s. */
static const ta_cluster h100 = {
    .name = "h100",
    .device = "NVIDIA H100 SXM5 80 GB",
    .memory_bytes = 80e9,
    .memory_bytes_per_s = 3.35e12,
    .flops_per_s = {67e12, 989e12},
    GPU_NODE(NVLINK_HOP_S, 450e9, 8 * 450e9, 8, 50e9),
    .signal_s = NVLINK_SIGNAL_S,
    .read_bytes_per_s = 450e9,
};

/* NVIDIA H200 data sheet (SXM): 141 GB, 4.8 TB/s, the H100's operations and NVLink. DGX H200 user
 * guide: 8 GPUs on NVSwitch, and 8 ConnectX-7 of 400 Gb/s. */
static const ta_cluster h200 = {
    .name = "h200",
    .device = "NVIDIA H200 SXM 141 GB",
    .memory_bytes = 141e9,
    .memory_bytes_per_s = 4.8e12,
    .flops_per_s = {67e12, 989e12},
    GPU_NODE(NVLINK_HOP_S, 450e9, 8 * 450e9, 8, 50e9),
    .signal_s = NVLINK_SIGNAL_S,
    .read_bytes_per_s = 450e9,
};

/* NVIDIA Blackwell architecture brief (HGX B200, 1000 W): 80 TFLOP/s in f32, 2250 in bf16; NVLink
 * 1.8 TB/s both ways. DGX B200 data sheet: 8 GPUs on NVSwitch with 1,440 GB and 64 TB/s together,
 * so 180 GB and 8 TB/s each, and 8 ConnectX-7 of 400 Gb/s. NVLink's hop is assumed to be H100's. */
static const ta_cluster b200 = {
    .name = "b200",
    .device = "NVIDIA B200 180 GB",
    .memory_bytes = 180e9,
    .memory_bytes_per_s = 8e12,
    .flops_per_s = {80e12, 2250e12},
    GPU_NODE(NVLINK_HOP_S, 900e9, 8 * 900e9, 8, 50e9),
    .signal_s = NVLINK_SIGNAL_S,
    .read_bytes_per_s = 900e9,
};

/* NVIDIA A100 data sheet (SXM4, 80 GB): 2,039 GB/s, 19.5 TFLOP/s in f32, 312 in bf16; NVLink 600
 * GB/s both ways. DGX A100 user guide: 8 GPUs on NVSwitch, and 8 ConnectX-6 of 200 Gb/s. */
static const ta_cluster a100 = {
    .name = "a100",
    .device = "NVIDIA A100 SXM4 80 GB",
    .memory_bytes = 80e9,
    .memory_bytes_per_s = 2.039e12,
    .flops_per_s = {19.5e12, 312e12},
    GPU_NODE(NVLINK_HOP_S, 300e9, 8 * 300e9, 8, 25e9),
    .signal_s = NVLINK_SIGNAL_S,
    .read_bytes_per_s = 300e9,
};

/* AMD Instinct MI300X data sheet: 192 GB, 5.3 TB/s, 163.4 TFLOP/s in f32, 1307.4 in bf16; 7
 * Infinity Fabric links of 128 GB/s both ways, one to each of the others, so a message between two
 * devices has one link, and a device that sends to all has seven. Eight network adapters of 400
 * Gb/s (RoCE). RCCL has NCCL's latencies, with NVLink's hop for Infinity Fabric. */
static const ta_cluster mi300x = {
    .name = "mi300x",
    .device = "AMD Instinct MI300X 192 GB",
    .memory_bytes = 192e9,
    .memory_bytes_per_s = 5.3e12,
    .flops_per_s = {163.4e12, 1307.4e12},
    GPU_NODE(NVLINK_HOP_S, 64e9, 8 * 7 * 64e9, 8, 50e9),
    .signal_s = XGMI_SIGNAL_S,
    .read_bytes_per_s = 7 * 64e9,
};

/* AMD Instinct MI325X data sheet: 256 GB, 6 TB/s, the MI300X's operations and links. */
static const ta_cluster mi325x = {
    .name = "mi325x",
    .device = "AMD Instinct MI325X 256 GB",
    .memory_bytes = 256e9,
    .memory_bytes_per_s = 6e12,
    .flops_per_s = {163.4e12, 1307.4e12},
    GPU_NODE(NVLINK_HOP_S, 64e9, 8 * 7 * 64e9, 8, 50e9),
    .signal_s = XGMI_SIGNAL_S,
    .read_bytes_per_s = 7 * 64e9,
};

/* AMD Instinct MI355X data sheet: 288 GB, 8 TB/s, 157.3 TFLOP/s in f32, 2516.6 in bf16; 7 Infinity
 * Fabric links of 153.6 GB/s both ways, one to each of the others. Eight network adapters of 400
 * Gb/s (RoCE). */
static const ta_cluster mi355x = {
    .name = "mi355x",
    .device = "AMD Instinct MI355X 288 GB",
    .memory_bytes = 288e9,
    .memory_bytes_per_s = 8e12,
    .flops_per_s = {157.3e12, 2516.6e12},
    GPU_NODE(NVLINK_HOP_S, 76.8e9, 8 * 7 * 76.8e9, 8, 50e9),
    .signal_s = XGMI_SIGNAL_S,
    .read_bytes_per_s = 7 * 76.8e9,
};

/* NVIDIA L40S data sheet: 48 GB, 864 GB/s, 91.6 TFLOP/s in f32, 362 in bf16 (dense), PCIe 4.0 x16,
 * 31.5 GB/s each way, with peer access. The node's total is assumed to be four such pairs at once,
 * and the network one adapter of 200 Gb/s for two GPUs. */
static const ta_cluster l40s = {
    .name = "l40s",
    .device = "NVIDIA L40S 48 GB",
    .memory_bytes = 48e9,
    .memory_bytes_per_s = 864e9,
    .flops_per_s = {91.6e12, 362e12},
    GPU_NODE(PCIE_HOP_S, 31.5e9, 8 * 31.5e9, 4, 25e9),
    .signal_s = PCIE_SIGNAL_S,
    .read_bytes_per_s = 31.5e9,
};

/* NVIDIA GeForce RTX 4090 data sheet and Ada white paper: 24 GB, 1,008 GB/s, 82.6 TFLOP/s in f32,
 * 165.2 in bf16, PCIe 4.0 x16: 16 GT/s · 16 lanes · 128/130 = 31.5 GB/s each way. The driver has
 * no peer-to-peer for it, so every byte goes through host memory: half of that. The node's total
 * is assumed to be two such pairs at once, and the network to be one adapter of 100 Gb/s. */
static const ta_cluster rtx4090 = {
    .name = "rtx4090",
    .device = "NVIDIA GeForce RTX 4090 24 GB",
    .memory_bytes = 24e9,
    .memory_bytes_per_s = 1.008e12,
    .flops_per_s = {82.6e12, 165.2e12},
    GPU_NODE(2 * PCIE_HOP_S, 15.75e9, 2 * 15.75e9, 1, 12.5e9),
};

/* Ranks that are threads of one process on a machine with two memory channels or less: docs/
 * performance.md measured 19 GB/s of reading on one thread and 30 GB/s on two; a copy reads and
 * writes. Attention is assumed to reach half of one core's two FMAs of 8 floats at 3 GHz. Two
 * threads hand over a message in about 2 µs when both are awake, and signal each other in half of
 * it (assumed). More than
 * one node is assumed to be joined by 10 Gb/s Ethernet at 30 µs. Better: ta_cluster_probe(). */
static const ta_cluster local = {
    .name = "local",
    .device = "host",
    .memory_bytes_per_s = 19e9,
    .kernel_s = 1e-6,
    .flops_per_s = {48e9, 48e9},
    .nics_per_node = 1,
    .levels = {LEVEL(2e-6, 9.5e9, 15e9), LEVEL(30e-6, 1.25e9, 1.25e9),
               LEVEL(40e-6, 1.25e9, 1.25e9)},
    .signal_s = 1e-6,
    .read_bytes_per_s = 9.5e9,
};

static double this_machines_memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (double)pages * (double)page_bytes : 1e9;
}

ta_status ta_cluster_preset(ta_cluster_draft *draft, const char *name)
{
    static const ta_cluster *const presets[] = {&h100,   &h200,   &b200, &a100,    &mi300x,
                                                &mi325x, &mi355x, &l40s, &rtx4090, &local};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; ++i) {
        if (strcmp(presets[i]->name, name) != 0)
            continue;
        *draft->cluster = *presets[i];
        if (presets[i] == &local)
            draft->cluster->memory_bytes = this_machines_memory_bytes();
        draft->given = (1u << TA_CLUSTER_KEYS) - 1;
        return TA_OK;
    }
    return ta_fail(TA_ERR_INVALID,
                   "%s: preset is '%s': must be h100, h200, b200, a100, mi300x, mi325x, mi355x, "
                   "l40s, rtx4090 or local",
                   draft->where, name);
}
