/* Was this machine quiet while something was measured? */
#ifndef BENCH_QUIET_H
#define BENCH_QUIET_H

typedef struct quiet_watch {
    double start_us, busy_s, own_s; /* busy_s < 0: the system does not tell */
} quiet_watch;

/* The part of all CPUs that other programs may use before times are called disturbed. */
#define QUIET_LIMIT 0.05

void quiet_begin(quiet_watch *watch);

/* The part of all CPUs of this host that other programs have used since then, time that a
 * hypervisor kept included; -1 if that is not known. For all processes together. */
double quiet_others(const quiet_watch *watch);

/* What a row of a table begins with: "!" if it was disturbed. */
char quiet_mark(double others);

/* The lines below a table that say so, if the row that was disturbed most was. */
void quiet_print(double others);

#endif
