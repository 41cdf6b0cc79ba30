/* How many CPUs this process may use: those that it may run on, but no more than its control groups
 * give it time for. host.c starts as many threads. Implemented in cpus.c. */
#ifndef TA_HOST_CPUS_H
#define TA_HOST_CPUS_H

int ta_cpus(void);

/* The CPUs that the control groups give time for, rounded up; 0: there is no limit. `root` goes
 * before each path that is read: "" but in tests. */
int ta_cpus_of_quota(const char *root);

#endif
