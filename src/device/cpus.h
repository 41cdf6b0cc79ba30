/* How many CPUs this process may use: those that it may run on, but no more than its control groups
 * give it time for. A host device starts as many threads if its config does not say, and ranks of a
 * group that are more than that do not spin. Implemented in cpus.c. */
#ifndef TA_CPUS_H
#define TA_CPUS_H

/* From 1 to: */
#define TA_CPUS_MOST 1024
int ta_cpus(void);

/* The same, and the CPUs that the control groups alone give time for, rounded up; 0: there is no
 * limit. `root` goes before each path that is read: "" but in tests. */
int ta_cpus_under(const char *root);
int ta_cpus_of_quota(const char *root);

#endif
