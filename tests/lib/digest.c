/* See digest.h. */
#include "digest.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t sum, count;

static void write_digest(void)
{
    FILE *file = fopen(getenv("TA_TEST_DIGEST"), "a");
    if (!file)
        return;
    fprintf(file, "%016llx of %llu results\n", (unsigned long long)sum, (unsigned long long)count);
    fclose(file);
}

void digest_add(uint64_t bits)
{
    const char *path = getenv("TA_TEST_DIGEST");
    if (!path || !*path)
        return;
    if (count++ == 0)
        atexit(write_digest);
    bits = (bits ^ bits >> 31) * 0x9e3779b97f4a7c15u;
    sum += bits ^ bits >> 29;
}
