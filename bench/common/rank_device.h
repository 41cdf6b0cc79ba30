/* The devices of ranks and what connects them: one device for all, or a GPU of its own for each
 * rank of a host. The commands that have flags --device and --group go by it. */
#ifndef BENCH_RANK_DEVICE_H
#define BENCH_RANK_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

/* Values of a flag `group`, in the order of its words. */
enum { RANK_GROUP_AUTO, RANK_GROUP_HOST, RANK_GROUP_CCL };
extern const char *const rank_group_words[];

/* Its row in a table of flags (args.h), which ends with when auto is ccl. */
#define FLAG_GROUP(field, when)                                                                    \
    FLAG_CHOICE(0, "group", field, rank_group_words, "KIND",                                       \
                "what connects the ranks: host (threads, or MPI under mpirun), ccl for NCCL or "   \
                "RCCL with a GPU of --device for each rank, or auto: ccl " when)

/* What follows from --device. */
typedef struct rank_devices {
    int gpu;        /* it is not the host */
    int each;       /* it is a kind of GPU, without a number: each rank can have one */
    char kind[32];  /* of GPU, where --device is auto */
    char said[256]; /* for people */
} rank_devices;

/* Open *device, so that it is known to be there, and settle what follows from it: whether it is a
 * GPU and, of --group auto, that it is ccl where each rank has one. *device becomes a kind of GPU
 * if it was auto and is one: so *devices stays where it is. Returns an exit code, and a sentence
 * where that is not EXIT_OK. */
int rank_devices_try(rank_devices *devices, const char **device, const char *simd, int64_t *group,
                     char *error, size_t capacity);

/* What a rank opens. */
typedef struct rank_device_config {
    const char *device; /* for ta_device_open() or, if `each`, a kind of GPU */
    int each;           /* each rank of a host takes one of its own */
    int ccl;            /* which NCCL or RCCL connects, if there are several ranks */
    int threads;
    const char *simd;
} rank_device_config;

/* Collective over the group in which the ranks were started. *connected is that one, or one of
 * GPUs, which the caller destroys before the device. After a failure there is nothing to close. */
ta_status rank_device_open(const rank_device_config *config, ta_group *launched, ta_device **device,
                           ta_group **connected);

/* The name of a rank's own GPU. */
void rank_gpu_name(const char *kind, int rank, char *name, size_t capacity);

#endif
