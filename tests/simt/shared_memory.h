/* The shared memory of one block: the dynamic part, then one variable after another as the kernel
 * comes to their declarations. All of it is NaN (0xFF bytes) when a block starts. Under ASan
 * everything that belongs to no variable is out of bounds. */
#ifndef SIMT_SHARED_MEMORY_H
#define SIMT_SHARED_MEMORY_H

#include <stddef.h>

namespace simt
{

struct shared_memory {
    ~shared_memory();

    /* For a new block. Returns the dynamic part. */
    void *start_block(size_t dynamic_bytes, size_t limit);

    /* The variable for `key`, or NULL if the limit is passed. */
    void *find(const void *key, size_t bytes, size_t alignment);

    size_t used() const /* bytes of variables and the dynamic part */
    {
        return counted;
    }

  private:
    static const unsigned max_variables = 64;
    static const size_t gap = 64; /* between variables */

    struct variable {
        const void *key;
        char *memory;
    } variables[max_variables];
    unsigned count = 0;
    char *memory = nullptr;
    size_t capacity = 0, end = 0, high = 0, counted = 0, limit = 0;
};

} // namespace simt

#endif
