/* Cases (lib/case.h) whose ranks are the processes of this MPI job, each with its own device. */
#ifndef TESTS_MPI_CASES_H
#define TESTS_MPI_CASES_H

#include "group/group.h"

/* This rank's device; and a device of the job by which parameters are drawn, so that a case draws
 * the same ones on every rank. */
extern const char *cases_own_device, *cases_drawn_device;

/* Run cases on `world` from now on. `list` names the ranks' devices in turn, and is cut up: "host",
 * or "simt32" and "simt64" for the two widths of a wave. */
void cases_begin(ta_group *world, char *list);

#endif
