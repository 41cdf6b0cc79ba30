/* What other programs use of the CPUs; see quiet.h. decode/decode.c asks for every work. */
#include "quiet.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "launch.h"
#include "machine.h"

/* Seconds that the CPUs of this host were busy, or were kept from it, since it was started. */
static double busy_seconds(void)
{
    /* user, nice, system, idle, iowait, irq, softirq, steal */
    unsigned long long t[8] = {0};
    FILE *file = fopen("/proc/stat", "r");
    if (!file)
        return -1;
    int read = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2],
                      &t[3], &t[4], &t[5], &t[6], &t[7]);
    fclose(file);
    double ticks = (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]);
    return read == 8 ? ticks / (double)sysconf(_SC_CLK_TCK) : -1;
}

static double own_seconds(void)
{
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) != 0)
        return 0;
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

void quiet_begin(quiet_watch *watch)
{
    *watch = (quiet_watch){machine_time_us(), busy_seconds(), own_seconds()};
}

double quiet_others(const quiet_watch *watch)
{
    double busy = busy_seconds(), own = own_seconds() - watch->own_s;
    double seconds = (machine_time_us() - watch->start_us) * 1e-6;
    if (launch.mpi) { /* the processes of this host, if all hosts are alike */
        launch_sum(&own, 1);
        own *= (double)launch.local_ranks / launch.ranks;
    }
    if (busy < 0 || watch->busy_s < 0 || seconds <= 0)
        return -1;
    double others = busy - watch->busy_s - own;
    /* The counters move in ticks of each CPU. */
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (others < 0.03 * (double)cpus)
        return 0;
    return others / (seconds * (double)cpus);
}

char quiet_mark(double others)
{
    return others > QUIET_LIMIT ? '!' : ' ';
}

void quiet_print(double others)
{
    if (others <= QUIET_LIMIT)
        return;
    printf("# ! this machine was not quiet: other programs used up to %.0f %% of its CPUs in rows\n"
           "#   marked so; their times mean little, their ratios something\n",
           100 * others);
}
