/* The shared memory of one block: see shared_memory.h. Called by block.cpp. */
#include "shared_memory.h"

#include <new>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "simt_sanitizer.h"

namespace simt
{

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

shared_memory::~shared_memory()
{
    if (memory) {
        unpoison_region(memory, capacity);
        munmap(memory, capacity);
    }
}

void *shared_memory::start_block(size_t dynamic_bytes, size_t new_limit)
{
    size_t needed = new_limit + max_variables * 2 * gap;
    if (needed > capacity) {
        if (memory) {
            unpoison_region(memory, capacity);
            munmap(memory, capacity);
        }
        void *mapped =
            mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED)
            throw std::bad_alloc();
        memory = static_cast<char *>(mapped);
        capacity = high = needed;
    }
    unpoison_region(memory, high);
    memset(memory, 0xff, high);
    poison_region(memory, capacity);
    unpoison_region(memory, dynamic_bytes);
    count = 0;
    limit = new_limit;
    counted = dynamic_bytes;
    end = high = round_up(dynamic_bytes, gap) + gap;
    return memory;
}

void *shared_memory::find(const void *key, size_t bytes, size_t alignment)
{
    for (unsigned i = 0; i < count; i++)
        if (variables[i].key == key)
            return variables[i].memory;
    size_t at = round_up(end, alignment > gap ? alignment : gap);
    counted += round_up(bytes, 16);
    if (count == max_variables || counted > limit || at + bytes + gap > capacity)
        return nullptr;
    variables[count].key = key;
    variables[count].memory = memory + at;
    count++;
    unpoison_region(memory + at, bytes);
    end = round_up(at + bytes, gap) + gap;
    if (end > high)
        high = end < capacity ? end : capacity;
    return memory + at;
}

} // namespace simt
