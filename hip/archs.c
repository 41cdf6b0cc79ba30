/* See archs.h. Names alone decide: it is known before any device is asked to do anything. */
#include "archs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NVIDIA: the matrix instruction takes 16 × 16 elements from here on, and bf16. */
#define NVIDIA_LEAST 80

/* AMD: CDNA with the matrix instructions of mma.h, by name, and families of RDNA. CDNA 1 (gfx908)
 * has others, Vega (gfx900, gfx906) none. */
#define AMD_KNOWN "gfx90a gfx940 gfx941 gfx942 gfx950"
static const char *const amd_families[] = {"gfx110", "gfx115", "gfx120"};
#define WRITTEN_FOR                                                                                \
    "sm_80 and later of NVIDIA, gfx90a, gfx940, gfx941, gfx942, gfx950, gfx110x, gfx115x and "     \
    "gfx120x of AMD"

/* The name without its features, behind a colon. */
static size_t name_length(const char *arch)
{
    return strcspn(arch, ":");
}

/* Is it a word of the list? */
static int listed(const char *arch, const char *list)
{
    size_t length = name_length(arch);
    for (const char *word = list; *word; word += strspn(word, " ")) {
        size_t letters = strcspn(word, " ");
        if (letters == length && memcmp(word, arch, length) == 0)
            return 1;
        word += letters;
    }
    return 0;
}

/* 90 for "sm_90"; 0 if it is no such name. */
static int nvidia_number(const char *arch)
{
    char *end;
    if (strncmp(arch, "sm_", 3) != 0)
        return 0;
    long number = strtol(arch + 3, &end, 10);
    return end != arch + 3 && (*end == '\0' || *end == ' ') ? (int)number : 0;
}

int ta_arch_known(const char *arch)
{
    if (listed(arch, "simt") || listed(arch, AMD_KNOWN))
        return 1;
    for (size_t i = 0; i < sizeof amd_families / sizeof *amd_families; i++)
        if (name_length(arch) == 7 && strncmp(arch, amd_families[i], 6) == 0)
            return 1;
    return nvidia_number(arch) >= NVIDIA_LEAST;
}

int ta_arch_converts_f16(const char *arch)
{
    return listed(arch, "gfx90a");
}

/* Machine code of sm_80 runs on sm_86, not on sm_90; the last one's PTX on all that are newer. */
int ta_arch_runs(const char *arch, const char *archs)
{
    int number = nvidia_number(arch), compiled = 0;
    if (!number)
        return listed(arch, archs);
    for (const char *word = archs; *word; word += strspn(word, " ")) {
        compiled = nvidia_number(word);
        if (compiled && compiled / 10 == number / 10 && compiled <= number)
            return 1;
        word += strcspn(word, " ");
    }
    return compiled && number >= compiled;
}

void ta_arch_refused(const char *arch, const char *archs, char *why, size_t capacity)
{
    int length = (int)name_length(arch);
    why[0] = '\0';
    if (!ta_arch_known(arch))
        snprintf(why, capacity, "is of architecture %.*s: the kernels are written for " WRITTEN_FOR,
                 length, arch);
    else if (!ta_arch_runs(arch, archs))
        snprintf(why, capacity,
                 "is of architecture %.*s: this module was compiled for %s; build it with "
                 "-D%s_archs=%.*s too",
                 length, arch, archs, arch[0] == 's' ? "nvidia" : "amd", length, arch);
}
