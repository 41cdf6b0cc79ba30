/* The allocation functions of a program that is linked with -Wl,--wrap for each of them
 * (wrap_allocation in meson.build): calls go to __wrap_, which the program defines, and __real_ is
 * the function itself. */
#ifndef TESTS_WRAPPED_ALLOCATION_H
#define TESTS_WRAPPED_ALLOCATION_H

#include <stddef.h>

#define WRAPPED(result, name, ...)                                                                 \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__);
WRAPPED(void *, malloc, size_t bytes)
WRAPPED(void *, calloc, size_t count, size_t bytes)
WRAPPED(void *, realloc, void *memory, size_t bytes)
WRAPPED(void *, aligned_alloc, size_t alignment, size_t bytes)
WRAPPED(int, posix_memalign, void **memory, size_t alignment, size_t bytes)
WRAPPED(char *, strdup, const char *text)
WRAPPED(void, free, void *memory)
#undef WRAPPED

#endif
