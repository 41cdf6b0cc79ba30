/* What the files of the simulated runtime share: errors, the error state of devices, memory.
 * stream.h has the queues. */
#ifndef SIMT_RUNTIME_INTERNAL_H
#define SIMT_RUNTIME_INTERNAL_H

#include <string>
#include <vector>

#include "settings.h"
#include "simt_runtime.h"

namespace simt
{

const int max_devices = 64;

/* ---- Errors: error.cpp --------------------------------------------------------------------- */

/* In a switch over a list of errors: return its name, or its sentence. */
#define SIMT_RETURN_NAME(name, value, message)                                                     \
    case name:                                                                                     \
        return #name;
#define SIMT_RETURN_TEXT(name, value, message)                                                     \
    case name:                                                                                     \
        return message;

/* Make `error` this thread's last error, with a sentence about it, and return it. */
__attribute__((format(printf, 2, 3))) hipError_t fail(hipError_t error, const char *format, ...);

/* The first error of work that ran on a device stays with the device until it is reset: later calls
 * report it and queued work no longer runs. */
void fail_device(int device, hipError_t error, const std::string &text);
bool device_failed(int device);
/* hipSuccess, or the device's error, made this thread's last one. */
hipError_t device_status(int device);
void clear_device(int device); /* and this thread's last error */
void clear_errors();

/* The calling thread's device. */
int current_device();

/* ---- Memory: memory.cpp -------------------------------------------------------------------- */

/* A piece of memory as it was when somebody looked: `number` is never given out again. */
struct allocation_use {
    const void *address;
    uint64_t number;
};

/* Those of the words that point into device or pinned memory. */
std::vector<allocation_use> find_allocations(const std::vector<const void *> &words);
bool allocation_alive(const allocation_use &use);

/* Does the range lie in one piece of device memory (device_side), or in none at all? */
bool memory_fits(const void *memory, size_t bytes, bool device_side);
bool memory_on_device(const void *memory);

/* The file behind memory that other processes may map, and its size; false: it is not such memory,
 * or is another process's. And mapping that of another process, whose file this now owns; NULL: it
 * can't be. */
bool memory_shared(const void *memory, int *file, size_t *bytes);
void *memory_import(int file, size_t bytes);
bool memory_imported(const void *memory);
hipError_t memory_end_import(void *memory);

/* Around any work that runs on a device. */
void memory_open();
void memory_close();
void memory_apply_guard(bool on);

} // namespace simt

#endif
