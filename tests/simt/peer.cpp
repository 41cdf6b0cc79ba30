/* Devices that address each other's memory, in one process and between processes, and waiting in a
 * kernel for another device: see simt_peer.h. */
#include "simt_peer.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <set>

#include "simt_sanitizer.h"
#include "stream.h"

#if SIMT_TSAN
#define IGNORED(X) X(Reads) X(Writes) X(Sync)
#define DECLARE(what)                                                                              \
    void AnnotateIgnore##what##Begin(const char *file, int line);                                  \
    void AnnotateIgnore##what##End(const char *file, int line);
#define BEGIN(what) AnnotateIgnore##what##Begin(__FILE__, __LINE__);
#define END(what) AnnotateIgnore##what##End(__FILE__, __LINE__);
extern "C" {
IGNORED(DECLARE)
}
#else
#define IGNORED(X)
#endif

namespace simt
{

/* TSan does not see it: the lock inside would order what only flags are to order. */
static void let_others_run()
{
    IGNORED(BEGIN)
    want_all();
    IGNORED(END)
}

void wait_for_peers(call where)
{
    static std::atomic<unsigned> counter;
    if (!simt_self->block->resident)
        lane_fail(where, "waits for another device in a launch whose blocks need not all be there");
    if (process_ends())
        lane_fail(where, "waits for another device while the process ends");
    unsigned looks = counter.fetch_add(1, std::memory_order_relaxed);
    if (looks % 64 == 0)
        let_others_run();
    /* There are more waiting blocks than cores: those who have something to do come first. */
    if (looks % 4 != 0) {
        struct timespec moment = {0, 50000};
        nanosleep(&moment, nullptr);
    } else {
        sched_yield();
    }
}

uint64_t wall_clock_ns()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

/* What is in a handle. */
struct shared_handle {
    char magic[8];
    int process, file;
    size_t bytes;
};

static const char handle_magic[8] = "simtipc";

/* Which device may use which: pairs of them. */
static std::mutex enabled_mutex;
static std::set<std::pair<int, int>> &enabled()
{
    static std::set<std::pair<int, int>> pairs;
    return pairs;
}

static bool is_device(int device)
{
    return device >= 0 && device < current_settings().device.devices;
}

} // namespace simt

using namespace simt;

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    if (!can || !is_device(device) || !is_device(peer))
        return fail(hipErrorInvalidDevice, "hipDeviceCanAccessPeer: devices %d and %d", device,
                    peer);
    simt_peers peers = current_settings().peers;
    *can = device != peer && peers != SIMT_PEERS_NONE &&
           (peers != SIMT_PEERS_PAIRS || device / 2 == peer / 2);
    return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags)
{
    int device = current_device(), can = 0;
    if (flags != 0 || hipDeviceCanAccessPeer(&can, device, peer) != hipSuccess || !can)
        return fail(hipErrorInvalidDevice,
                    "hipDeviceEnablePeerAccess: device %d can't address memory of device %d",
                    device, peer);
    std::lock_guard<std::mutex> lock(enabled_mutex);
    if (!enabled().insert(std::make_pair(device, peer)).second)
        return fail(hipErrorPeerAccessAlreadyEnabled,
                    "hipDeviceEnablePeerAccess: device %d addresses device %d already", device,
                    peer);
    return hipSuccess;
}

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *memory)
{
    shared_handle h = {};
    static_assert(sizeof h <= sizeof *handle, "a handle has room for it");
    if (!handle || !memory_shared(memory, &h.file, &h.bytes))
        return fail(hipErrorInvalidValue,
                    "hipIpcGetMemHandle: %p is not the start of device memory of a multiple of "
                    "2 MiB",
                    memory);
    memcpy(h.magic, handle_magic, sizeof h.magic);
    h.process = getpid();
    memset(handle, 0, sizeof *handle);
    memcpy(handle->reserved, &h, sizeof h);
    return hipSuccess;
}

hipError_t hipIpcOpenMemHandle(void **memory, hipIpcMemHandle_t handle, unsigned flags)
{
    shared_handle h;
    char path[64];
    memcpy(&h, handle.reserved, sizeof h);
    if (!memory || flags != hipIpcMemLazyEnablePeerAccess || h.process == getpid() ||
        memcmp(h.magic, handle_magic, sizeof h.magic) != 0)
        return fail(hipErrorInvalidValue,
                    "hipIpcOpenMemHandle: flags %#x, or not a handle of another process", flags);
    if (current_settings().peers != SIMT_PEERS_ALL && current_settings().peers != SIMT_PEERS_LOSSY)
        return fail(hipErrorMapFailed, "hipIpcOpenMemHandle: refused, as the test asked");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.process, h.file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    *memory = file >= 0 ? memory_import(file, h.bytes) : nullptr;
    if (*memory)
        return hipSuccess;
    if (file >= 0)
        close(file);
    return fail(hipErrorMapFailed, "hipIpcOpenMemHandle: memory of process %d can't be mapped",
                h.process);
}

hipError_t hipIpcCloseMemHandle(void *memory)
{
    if (!memory_imported(memory))
        return fail(hipErrorInvalidValue, "hipIpcCloseMemHandle: %p was not opened", memory);
    return memory_end_import(memory);
}
