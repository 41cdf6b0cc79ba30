/* What every test program under mpirun does: start MPI, make a group of all its processes, and turn
 * what came of it into an exit code. Nothing of Unity: each process is one rank. */
#ifndef TESTS_MPI_RANK_H
#define TESTS_MPI_RANK_H

#include <stdbool.h>

#include "group/group.h"

/* Start MPI so that every thread may use it, and make the group. Ends the process on failure. */
ta_group *rank_begin(int *argc, char ***argv, int timeout_ms);

/* Wait for all processes, for as long as it takes, and leave the CPU to those who do something. If
 * `stopped` is a process, and not 0, it is made to go on meanwhile. */
void rank_meet(int stopped);

/* Print the error if there is one, destroy the group, stop MPI. Returns what main() should. */
int rank_end(ta_group *group, ta_status status);

#endif
