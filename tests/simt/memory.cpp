/* Device and pinned memory. Fresh memory is NaN (0xFF bytes). A device allocation ends at an
 * unreadable page; under ASan it comes from its allocator, which sees every overrun and use after
 * free.
 *
 * With the guard on, device memory is unreadable while nothing runs on any device. */
#include <map>
#include <mutex>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"
#include "simt_sanitizer.h"
#include "stream.h"

namespace simt
{

struct allocation {
    uint64_t number;
    size_t bytes;
    hipMemoryType type;
    int device;
    void *mapped; /* NULL: from the C library */
    size_t mapped_bytes;
    int file; /* of memory that other processes can map; -1: none */
    bool imported;
};

static const size_t alignment = 256;
static const size_t shared_unit = static_cast<size_t>(2) << 20;

/* Addresses of the first bytes. */
static std::mutex memory_mutex;
static std::map<uintptr_t, allocation> &allocations()
{
    static std::map<uintptr_t, allocation> all;
    return all;
}
static uint64_t last_number;
static size_t used_bytes[max_devices];
static int running; /* pieces of work */
static bool guarded;

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static void protect(const allocation &a, bool open)
{
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (a.mapped)
        mprotect(a.mapped, a.mapped_bytes - page, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void protect_all(bool open)
{
    for (auto &entry : allocations())
        protect(entry.second, open);
}

void memory_open()
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    if (running++ == 0 && guarded)
        protect_all(true);
}

void memory_close()
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    if (--running == 0 && guarded)
        protect_all(false);
}

void memory_apply_guard(bool on)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    if (on != guarded && running == 0)
        protect_all(!on);
    guarded = on;
}

/* The allocation that holds the address, or NULL. Call with the lock. */
static std::pair<const uintptr_t, allocation> *find(const void *address)
{
    uintptr_t a = reinterpret_cast<uintptr_t>(address);
    auto next = allocations().upper_bound(a);
    if (next == allocations().begin())
        return nullptr;
    --next;
    return a - next->first < next->second.bytes ? &*next : nullptr;
}

std::vector<allocation_use> find_allocations(const std::vector<const void *> &words)
{
    std::vector<allocation_use> found;
    std::lock_guard<std::mutex> lock(memory_mutex);
    for (const void *word : words)
        if (auto *entry = find(word))
            found.push_back(allocation_use{word, entry->second.number});
    return found;
}

bool allocation_alive(const allocation_use &use)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto *entry = find(use.address);
    return entry && entry->second.number == use.number;
}

/* Memory that ends where an unreadable page begins. */
static char *map_memory(allocation *a)
{
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    a->mapped_bytes = round_up(a->bytes, page) + page;
    a->mapped = mmap(nullptr, a->mapped_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a->mapped == MAP_FAILED)
        return nullptr;
    char *end = static_cast<char *>(a->mapped) + a->mapped_bytes - page;
    mprotect(end, page, PROT_NONE);
    size_t used = static_cast<size_t>(end - static_cast<char *>(a->mapped));
    if (a->file >= 0 && mmap(a->mapped, used, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                             a->file, 0) == MAP_FAILED) {
        munmap(a->mapped, a->mapped_bytes);
        return nullptr;
    }
    if (!a->imported)
        memset(a->mapped, 0xff, used);
    return end - round_up(a->bytes, alignment);
}

/* Memory of other sizes shares its pages with smaller pieces, on a GPU, and is not handed out. */
static bool is_shareable(const allocation &a)
{
    return a.type == hipMemoryTypeDevice && a.bytes % shared_unit == 0;
}

static char *map_shared(allocation *a)
{
    a->file = memfd_create("simt", MFD_CLOEXEC);
    char *memory = nullptr;
    if (a->file >= 0 && ftruncate(a->file, static_cast<off_t>(a->bytes)) == 0)
        memory = map_memory(a);
    if (!memory && a->file >= 0)
        close(a->file);
    return memory;
}

static char *take_memory(allocation *a)
{
    if (is_shareable(*a))
        return map_shared(a);
    if (a->type == hipMemoryTypeDevice && !SIMT_ASAN)
        return map_memory(a);
    void *memory = nullptr;
    if (posix_memalign(&memory, alignment, a->bytes) != 0)
        return nullptr;
    memset(memory, 0xff, a->bytes);
    return static_cast<char *>(memory);
}

static hipError_t allocate(void **memory, size_t bytes, hipMemoryType type, const char *call)
{
    if (!memory)
        return fail(hipErrorInvalidValue, "%s: the pointer to set is NULL", call);
    if (capture_forbids(call))
        return hipErrorStreamCaptureUnsupported;
    int device = current_device();
    if (hipError_t stuck = device_status(device))
        return stuck;
    count(counted.allocations);
    if (malloc_fault.strikes())
        return fail(hipErrorOutOfMemory, "%s of %zu bytes fails, as the test asked", call, bytes);
    *memory = nullptr;
    if (bytes == 0)
        return hipSuccess;
    size_t limit = current_settings().device.memory_bytes;
    std::lock_guard<std::mutex> lock(memory_mutex);
    if (type == hipMemoryTypeDevice && bytes > limit - used_bytes[device])
        return fail(hipErrorOutOfMemory, "%s of %zu bytes: device %d has %zu left", call, bytes,
                    device, limit - used_bytes[device]);
    allocation a = {++last_number, bytes, type, device, nullptr, 0, -1, false};
    char *taken = take_memory(&a);
    if (!taken)
        return fail(hipErrorOutOfMemory, "%s of %zu bytes: the host has no memory", call, bytes);
    if (type == hipMemoryTypeDevice)
        used_bytes[device] += bytes;
    if (guarded && running == 0)
        protect(a, false);
    allocations().emplace(reinterpret_cast<uintptr_t>(taken), a);
    *memory = taken;
    return hipSuccess;
}

static hipError_t give_back(void *memory, hipMemoryType type, const char *call)
{
    if (!memory)
        return hipSuccess;
    if (capture_forbids(call))
        return hipErrorStreamCaptureUnsupported;
    int device = current_device();
    {
        std::lock_guard<std::mutex> lock(memory_mutex);
        auto entry = allocations().find(reinterpret_cast<uintptr_t>(memory));
        if (entry == allocations().end() || entry->second.type != type)
            return fail(hipErrorInvalidValue, "%s: %p is not the start of such memory", call,
                        memory);
        device = entry->second.device;
    }
    count(counted.host_waits);
    wait_for_device(device);
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto entry = allocations().find(reinterpret_cast<uintptr_t>(memory));
    allocation a = entry->second;
    allocations().erase(entry);
    if (type == hipMemoryTypeDevice && !a.imported)
        used_bytes[device] -= a.bytes;
    if (a.mapped)
        munmap(a.mapped, a.mapped_bytes);
    else
        free(memory);
    if (a.file >= 0)
        close(a.file);
    return hipSuccess;
}

bool memory_shared(const void *memory, int *file, size_t *bytes)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto entry = allocations().find(reinterpret_cast<uintptr_t>(memory));
    if (entry == allocations().end() || entry->second.file < 0 || entry->second.imported)
        return false;
    *file = entry->second.file;
    *bytes = entry->second.bytes;
    return true;
}

void *memory_import(int file, size_t bytes)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    allocation a = {++last_number, bytes, hipMemoryTypeDevice, current_device(), nullptr, 0,
                    file,          true};
    char *memory = map_memory(&a);
    if (memory)
        allocations().emplace(reinterpret_cast<uintptr_t>(memory), a);
    return memory;
}

bool memory_imported(const void *memory)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto entry = allocations().find(reinterpret_cast<uintptr_t>(memory));
    return entry != allocations().end() && entry->second.imported;
}

hipError_t memory_end_import(void *memory)
{
    return give_back(memory, hipMemoryTypeDevice, "hipIpcCloseMemHandle");
}

bool memory_fits(const void *memory, size_t bytes, bool device_side)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto *entry = find(memory);
    bool on_device = entry && entry->second.type == hipMemoryTypeDevice;
    if (on_device != device_side)
        return false;
    uintptr_t offset = entry ? reinterpret_cast<uintptr_t>(memory) - entry->first : 0;
    return !entry || bytes <= entry->second.bytes - offset;
}

bool memory_on_device(const void *memory)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto *entry = find(memory);
    return entry && entry->second.type == hipMemoryTypeDevice;
}

} // namespace simt

using namespace simt;

hipError_t hipMalloc(void **memory, size_t bytes)
{
    return allocate(memory, bytes, hipMemoryTypeDevice, "hipMalloc");
}

hipError_t hipHostMalloc(void **memory, size_t bytes, unsigned)
{
    return allocate(memory, bytes, hipMemoryTypeHost, "hipHostMalloc");
}

hipError_t hipFree(void *memory)
{
    return give_back(memory, hipMemoryTypeDevice, "hipFree");
}

hipError_t hipHostFree(void *memory)
{
    return give_back(memory, hipMemoryTypeHost, "hipHostFree");
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *pointer)
{
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto *entry = find(pointer);
    attributes->type = entry ? entry->second.type : hipMemoryTypeUnregistered;
    attributes->device = entry ? entry->second.device : -1;
    return hipSuccess;
}
