/* What ranks tell each other of their slabs, and how they get at them: ranks of this process by
 * their addresses, those of other processes by IPC handles. Called by peers.c. */
#include "peer_rank.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

/* What is in an offer. */
typedef struct offer {
    char host[40];    /* the boot of it: no two hosts have the same; "": nobody tells */
    char process[40]; /* random: no two processes have the same; "": there is no such number */
    char bus_id[16];  /* of the device */
    char vendor[8];
    uint64_t address; /* of the slab in its own process */
    int32_t index;    /* of the device there */
    int32_t blocks;   /* at most */
    hipIpcMemHandle_t handle;
} offer;

_Static_assert(sizeof(offer) <= sizeof(ta_peers_offer), "an offer has room for it");

static void read_line(const char *path, char *text, size_t capacity)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = file >= 0 ? read(file, text, capacity - 1) : 0;
    text[bytes > 0 ? bytes : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (file >= 0)
        close(file);
}

/* Random, and with the process's number: a fork has another. */
static void name_process(char *text, size_t capacity)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t number; /* 0: none yet */
    pthread_mutex_lock(&lock);
    if (!number && getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        number = 0;
    *text = '\0';
    if (number)
        snprintf(text, capacity, "%016llx %d", (unsigned long long)number, (int)getpid());
    pthread_mutex_unlock(&lock);
}

ta_status ta_peers_write_offer(ta_gpu_peers *p, ta_peers_offer *to)
{
    offer o = {.address = (uint64_t)(uintptr_t)p->slab,
               .index = p->gpu->index,
               .blocks = p->params.blocks,
               .vendor = TA_VENDOR};
    read_line("/proc/sys/kernel/random/boot_id", o.host, sizeof o.host);
    name_process(o.process, sizeof o.process);
    TA_TRY(ta_gpu_check(p->gpu, hipDeviceGetPCIBusId(o.bus_id, sizeof o.bus_id, p->gpu->index),
                        "asking for the place on the PCI bus"));
    /* Without a handle it can still be shared within this process. */
    if (hipIpcGetMemHandle(&o.handle, p->slab) != hipSuccess)
        (void)hipGetLastError();
    memset(to, 0, sizeof *to);
    memcpy(to->bytes, &o, sizeof o);
    return TA_OK;
}

static ta_status fail_unsupported(const ta_gpu_peers *p, int rank, const char *why)
{
    return ta_gpu_core->fail_quietly(
        TA_ERR_UNSUPPORTED, "rank %d can't address memory of rank %d from %s: %s",
        (int)p->names[p->params.rank], (int)p->names[rank], p->gpu->device.name, why);
}

static ta_status use_address(ta_gpu_peers *p, int32_t rank, const offer *theirs)
{
    int can = 0;
    if (hipDeviceCanAccessPeer(&can, p->gpu->index, theirs->index) != hipSuccess || !can) {
        (void)hipGetLastError();
        return fail_unsupported(p, rank, "its device is no peer");
    }
    hipError_t error = hipDeviceEnablePeerAccess(theirs->index, 0);
    (void)hipGetLastError();
    if (error != hipSuccess && error != hipErrorPeerAccessAlreadyEnabled)
        return fail_unsupported(p, rank, hipGetErrorString(error));
    p->slabs[rank] = (char *)(uintptr_t)theirs->address;
    return TA_OK;
}

static ta_status use_handle(ta_gpu_peers *p, int32_t rank, const offer *theirs)
{
    void *memory = NULL;
    hipError_t error = hipIpcOpenMemHandle(&memory, theirs->handle, hipIpcMemLazyEnablePeerAccess);
    if (error != hipSuccess) {
        const char *why = hipGetErrorString(error);
        ta_status status = fail_unsupported(p, rank, why);
        (void)hipGetLastError();
        return status;
    }
    p->slabs[rank] = memory;
    p->imported[rank] = 1;
    return TA_OK;
}

static ta_status use(ta_gpu_peers *p, int32_t rank, const offer *own, const offer *theirs)
{
    if (strcmp(own->vendor, theirs->vendor) != 0)
        return fail_unsupported(p, rank, "its device is of another vendor");
    int same_process = own->process[0] && strcmp(own->process, theirs->process) == 0;
    if (!same_process && (!own->host[0] || !theirs->host[0]))
        return fail_unsupported(p, rank,
                                "whether it is on the same host is not known, as one of them can't "
                                "read /proc/sys/kernel/random/boot_id");
    if (!same_process && strcmp(own->host, theirs->host) != 0)
        return fail_unsupported(p, rank, "it is on another host");
    if (strcmp(own->bus_id, theirs->bus_id) == 0)
        return fail_unsupported(p, rank,
                                "both have the same device, on which one could wait "
                                "for the other in vain");
    return same_process ? use_address(p, rank, theirs) : use_handle(p, rank, theirs);
}

ta_status ta_peers_use_offers(ta_gpu_peers *p, const ta_peers_offer *offers)
{
    ta_peers_params *q = &p->params;
    offer own, theirs;
    memcpy(&own, offers[q->rank].bytes, sizeof own);
    for (int32_t rank = 0; rank < q->ranks; ++rank) {
        memcpy(&theirs, offers[rank].bytes, sizeof theirs);
        if (theirs.blocks < q->blocks)
            q->blocks = theirs.blocks;
    }
    p->slabs[q->rank] = p->slab;
    for (int32_t rank = 0; rank < q->ranks; ++rank) {
        memcpy(&theirs, offers[rank].bytes, sizeof theirs);
        if (rank != q->rank)
            TA_TRY(use(p, rank, &own, &theirs));
    }
    TA_TRY(ta_gpu_check(p->gpu, ta_copy_and_wait(p->control->names, p->names, sizeof p->names),
                        "copying numbers of ranks"));
    return ta_gpu_check(p->gpu, ta_copy_and_wait(p->control->slabs, p->slabs, sizeof p->slabs),
                        "copying addresses");
}
