/* Cases (lib/case.h) whose ranks are the processes of this MPI job, each with its own device. */
#ifndef TESTS_MPI_CASES_H
#define TESTS_MPI_CASES_H

#include "group/group.h"
#include "lib/bound.h"

/* This rank's device; and a device of the job by which parameters are drawn, so that a case draws
 * the same ones on every rank. */
extern const char *cases_own_device, *cases_drawn_device;

/* Cases run on the processes of this group, one a rank. */
void cases_run_on(ta_group *world);

/* What main() does in a program of random cases: `run_all` on every rank, with cases that run on
 * `world`, then rank 0 prints the worst ratios to the bounds. `--device` names the ranks' devices
 * in turn: "host", or "simt32" and "simt64" for the two widths of a wave; with `--group each` each
 * has the one of its own number. Returns what main() should. */
int cases_main(int argc, char **argv, ta_status (*run_all)(ta_group *world, bound_worst *worst));

/* The seeds that the options ask for: this one and so many after it. */
uint64_t cases_first(void);
int cases_count(void);

#endif
