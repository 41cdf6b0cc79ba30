/* See soak_loop.h. */
#include "soak_loop.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"
#include "case.h"

#define STEPS_PER_CASE 10
/* Pages that the heap's fragments may take, however long it runs. */
#define RESIDENT_SLACK (64.0 * 1024 * 1024)

/* Freed memory that threads keep for themselves, and the fragments of a heap for each thread, would
 * look like memory in use. glibc reads this only when a program starts. */
void soak_restart_without_caches(char **argv)
{
    static const char name[] = "GLIBC_TUNABLES";
    if (getenv(name))
        return;
    setenv(name,
           "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1:"
           "glibc.malloc.mmap_threshold=65536:glibc.malloc.trim_threshold=65536",
           1);
    execv("/proc/self/exe", argv);
}

soak_use soak_now(void)
{
    soak_use use = {0, 0, 0};
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file) {
        if (fscanf(file, "%ld %ld", &pages, &resident) == 2)
            use.resident_bytes = (double)resident * (double)sysconf(_SC_PAGESIZE);
        fclose(file);
    }
    struct mallinfo2 heap = mallinfo2();
    use.heap_bytes = (double)heap.uordblks + (double)heap.hblkhd;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        ++use.descriptors;
    if (folder)
        closedir(folder);
    return use;
}

static void print(long done, const soak_use *use)
{
    printf("%8ld steps: heap %8.0f KiB, resident %8.0f KiB, %d descriptors\n", done,
           use->heap_bytes / 1024, use->resident_bytes / 1024, use->descriptors);
    fflush(stdout);
}

static ta_status compare(const soak_use *warm, const soak_use *end, double heap_slack)
{
    if (end->heap_bytes > warm->heap_bytes + heap_slack)
        return ta_fail(TA_ERR_DEVICE, "the heap grew from %.0f to %.0f bytes", warm->heap_bytes,
                       end->heap_bytes);
    if (end->resident_bytes > warm->resident_bytes + RESIDENT_SLACK)
        return ta_fail(TA_ERR_DEVICE, "memory grew from %.0f to %.0f bytes", warm->resident_bytes,
                       end->resident_bytes);
    if (end->descriptors > warm->descriptors)
        return ta_fail(TA_ERR_DEVICE, "descriptors grew from %d to %d", warm->descriptors,
                       end->descriptors);
    return TA_OK;
}

ta_status soak_run(int ranks, long steps, uint64_t seed, double heap_slack, int report)
{
    static char failure[2048];
    case_steps = STEPS_PER_CASE;
    bound_worst worst = {0};
    long cases = (steps + STEPS_PER_CASE - 1) / STEPS_PER_CASE, tenth = cases < 10 ? 1 : cases / 10;
    soak_use warm = {0, 0, 0}, use = {0, 0, 0};
    for (long i = 0; i < cases; ++i) {
        decode_case c = case_random_on(seed + (uint64_t)i, ranks);
        if (!case_run(&c, &worst, failure, sizeof failure))
            return ta_fail(TA_ERR_DEVICE, "%.1000s", failure);
        if ((i + 1) % tenth)
            continue;
        use = soak_now();
        if (i + 1 == tenth)
            warm = use;
        if (report)
            print((i + 1) * STEPS_PER_CASE, &use);
    }
    if (report)
        bound_worst_print(&worst);
    return compare(&warm, &use, heap_slack);
}
