/* CPUs by affinity and by control group: see cpus.h. A container with half a machine often may run
 * on all of its CPUs, for a part of the time: threads beyond that part are stopped by the kernel in
 * the middle of a step, and all the others wait for them.
 *
 * /proc/self/cgroup names the group of each hierarchy, /proc/self/mountinfo where that is mounted
 * and from which group on; a limit of any group from there down to the process's own counts.
 * Version 2 has "QUOTA PERIOD" in cpu.max, version 1 cpu.cfs_quota_us and cpu.cfs_period_us. Both
 * may be there at once. */
#include "cpus.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where a hierarchy is: its mount point, and the group that is mounted there. */
typedef struct mount {
    int version;
    char point[PATH_MAX], group[PATH_MAX];
} mount;

/* Is `word` one of the words that are separated by commas? */
static int has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && strchr(", \n", at[length]))
            return 1;
    }
    return 0;
}

/* A line of mountinfo: "36 35 0:30 GROUP POINT OPTIONS … - TYPE SOURCE OPTIONS". */
static int read_mount(const char *line, mount *m)
{
    char type[32], options[512];
    const char *dash = strstr(line, " - ");
    if (!dash || sscanf(line, "%*s %*s %*s %4095s %4095s", m->group, m->point) != 2 ||
        sscanf(dash, " - %31s %*s %511s", type, options) != 2)
        return 0;
    if (strcmp(type, "cgroup2") == 0)
        m->version = 2;
    else if (strcmp(type, "cgroup") == 0 && has_word(options, "cpu"))
        m->version = 1;
    else
        return 0;
    return 1;
}

/* A line of /proc/self/cgroup: "0::PATH" of version 2, "4:cpu,cpuacct:PATH" of version 1. The path
 * without the line's end, or NULL. */
static char *read_group(char *line, int version)
{
    char *words = strchr(line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
    if (!path)
        return NULL;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    int fits = version == 2 ? words[1] == '\0' : has_word(words + 1, "cpu");
    return fits ? path : NULL;
}

static FILE *open_in(const char *root, const char *directory, const char *name)
{
    char path[2 * PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, directory, name);
    return length < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* The first number of a file, and the second if there is one; 0 if there is none, as in "max". */
static int read_numbers(const char *root, const char *directory, const char *name, long long *first,
                        long long *second)
{
    FILE *file = open_in(root, directory, name);
    int got = file ? fscanf(file, "%lld %lld", first, second) : 0;
    if (file)
        fclose(file);
    return got > 0;
}

/* The CPUs that one group has time for, or INT_MAX. */
static int limit_of(const char *root, const char *directory, int version)
{
    long long quota = -1, period = 100000, none;
    int has = version == 2 ? read_numbers(root, directory, "cpu.max", &quota, &period)
                           : read_numbers(root, directory, "cpu.cfs_quota_us", &quota, &none);
    if (version == 1)
        (void)read_numbers(root, directory, "cpu.cfs_period_us", &period, &none);
    if (!has || quota <= 0 || period <= 0 || quota / period >= TA_CPUS_MOST)
        return INT_MAX;
    return (int)(quota / period + (quota % period > 0));
}

/* The least of a group and those above it, up to the mount point. */
static int limit_of_mount(const char *root, const mount *m, const char *group)
{
    char directory[2 * PATH_MAX];
    size_t mounted = strcmp(m->group, "/") == 0 ? 0 : strlen(m->group);
    size_t point = strlen(m->point);
    /* In a container the group's path may be one of the host's: then what is mounted is its own. */
    int below = strncmp(group, m->group, mounted) == 0 && strchr("/", group[mounted]);
    snprintf(directory, sizeof directory, "%s%s", m->point, below ? group + mounted : "");
    int least = INT_MAX;
    for (;;) {
        int limit = limit_of(root, directory, m->version);
        least = limit < least ? limit : least;
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < point)
            return least;
        *slash = '\0';
    }
}

/* The process's group in a hierarchy of this version; "" if it is not told. */
static void find_group(const char *root, int version, char *group, size_t capacity)
{
    char line[PATH_MAX + 128];
    FILE *file = open_in(root, "/proc/self", "cgroup");
    *group = '\0';
    while (file && !*group && fgets(line, sizeof line, file)) {
        const char *path = read_group(line, version);
        if (path)
            snprintf(group, capacity, "%s", path);
    }
    if (file)
        fclose(file);
}

int ta_cpus_of_quota(const char *root)
{
    char line[3 * PATH_MAX], group[PATH_MAX];
    mount m;
    int least = INT_MAX;
    FILE *file = open_in(root, "/proc/self", "mountinfo");
    while (file && fgets(line, sizeof line, file)) {
        if (!read_mount(line, &m))
            continue;
        find_group(root, m.version, group, sizeof group);
        int limit = limit_of_mount(root, &m, group);
        least = limit < least ? limit : least;
    }
    if (file)
        fclose(file);
    return least < INT_MAX ? least : 0;
}

int ta_cpus_under(const char *root)
{
    cpu_set_t set;
    long allowed = sysconf(_SC_NPROCESSORS_ONLN); /* may be more than cpu_set_t has room for */
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        allowed = CPU_COUNT(&set);
    int quota = ta_cpus_of_quota(root);
    if (quota > 0 && quota < allowed)
        allowed = quota;
    if (allowed < 1)
        return 1;
    return allowed < TA_CPUS_MOST ? (int)allowed : TA_CPUS_MOST;
}

int ta_cpus(void)
{
    return ta_cpus_under("");
}
