/* Memory in ordinary and in huge pages, on Linux; see pages.h. */
#include "pages.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

void *pages_map(size_t bytes, int kind, int reserve)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (reserve ? 0 : MAP_NORESERVE);
    char *all = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)all % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0)
        munmap(all, before);
    if (before < HUGE_PAGE)
        munmap(all + before + bytes, HUGE_PAGE - before);
    (void)madvise(all + before, bytes, kind == PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return all + before;
}

void pages_unmap(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

double pages_huge_bytes(const void *memory, size_t bytes)
{
    char line[256];
    uintptr_t begin = (uintptr_t)memory, from, to;
    unsigned long long kilobytes;
    double sum = 0;
    int inside = 0, told = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2)
            inside = from < begin + bytes && to > begin;
        if (inside && sscanf(line, "AnonHugePages: %llu kB", &kilobytes) == 1) {
            sum += (double)kilobytes * 1024;
            told = 1;
        }
    }
    fclose(file);
    if (!told)
        return -1;
    return sum < (double)bytes ? sum : (double)bytes; /* a mapping may reach beyond */
}

size_t pages_small_bytes(void)
{
    long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}
