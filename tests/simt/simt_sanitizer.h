/* Which sanitizer this build has, and the calls by which it is told about fibers, about memory that
 * only looks allocated, and about what orders the memory accesses of two threads of a block.
 *
 * SIMT_TSAN is given by the build, since the scheduler's own files are compiled without -fsanitize=
 * thread: their bookkeeping would look like races between the simulated threads. */
#ifndef SIMT_SANITIZER_H
#define SIMT_SANITIZER_H

#if defined(__has_feature)
#define SIMT_HAS_FEATURE(name) __has_feature(name)
#else
#define SIMT_HAS_FEATURE(name) 0
#endif

#ifndef SIMT_ASAN
#if defined(__SANITIZE_ADDRESS__) || SIMT_HAS_FEATURE(address_sanitizer)
#define SIMT_ASAN 1
#else
#define SIMT_ASAN 0
#endif
#endif

#ifndef SIMT_TSAN
#if defined(__SANITIZE_THREAD__) || SIMT_HAS_FEATURE(thread_sanitizer)
#define SIMT_TSAN 1
#else
#define SIMT_TSAN 0
#endif
#endif

#if SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace simt
{

inline void poison_region(const void *memory, size_t bytes)
{
#if SIMT_ASAN
    __asan_poison_memory_region(memory, bytes);
#else
    (void)memory, (void)bytes;
#endif
}

inline void unpoison_region(const void *memory, size_t bytes)
{
#if SIMT_ASAN
    __asan_unpoison_memory_region(memory, bytes);
#else
    (void)memory, (void)bytes;
#endif
}

/* What a thread did before release() of an object happens before what another does after
 * acquire(). */
inline void order_release(void *object)
{
#if SIMT_TSAN
    __tsan_release(object);
#else
    (void)object;
#endif
}

inline void order_acquire(void *object)
{
#if SIMT_TSAN
    __tsan_acquire(object);
#else
    (void)object;
#endif
}

} // namespace simt

#endif
