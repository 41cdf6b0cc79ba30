/* The machine, as Linux describes it; what cannot be found has a plain default. See machine.h. */
#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <treeattn/treeattn.h>

/* The value of the first line "key : value" of a file under /proc. Returns 0 if there is one. */
static int read_line(const char *path, const char *key, char *value, size_t capacity)
{
    char line[512];
    FILE *file = fopen(path, "r");
    if (!file)
        return -1;
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        char *start = colon + 1 + strspn(colon + 1, " \t");
        start[strcspn(start, "\n")] = '\0';
        snprintf(value, capacity, "%s", start);
        found = 1;
    }
    fclose(file);
    return found ? 0 : -1;
}

/* CPUs as the library counts them: as many threads as its host device starts by itself. */
static int usable_cpus(void)
{
    static const char key[] = "host threads: ";
    char text[8192];
    int cpus = 0;
    if (ta_info(text, sizeof text, NULL) != TA_OK)
        return 1;
    const char *line = strstr(text, key);
    return line && sscanf(line + sizeof key - 1, "%d", &cpus) == 1 && cpus > 0 ? cpus : 1;
}

void machine_read(bench_machine *machine)
{
    char text[128];
    long long kilobytes;
    struct utsname name;

    if (read_line("/proc/cpuinfo", "model name", machine->cpu, sizeof machine->cpu) != 0)
        snprintf(machine->cpu, sizeof machine->cpu, "unknown");
    snprintf(machine->system, sizeof machine->system, "unknown");
    if (uname(&name) == 0)
        snprintf(machine->system, sizeof machine->system, "%s %s %s", name.sysname, name.release,
                 name.machine);
    machine->cpus = usable_cpus();
    machine->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    machine->available_bytes = machine->memory_bytes;
    if (read_line("/proc/meminfo", "MemAvailable", text, sizeof text) == 0 &&
        sscanf(text, "%lld", &kilobytes) == 1)
        machine->available_bytes = kilobytes * 1024;
}

double machine_time_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}
