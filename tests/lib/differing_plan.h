/* Plans that differ in one field on one rank, for every field of the config: all ranks get an error
 * that names the field and the rank, no plan is left, and the group still works. For any group of
 * three ranks or more: test_agree.c has threads, mpi/faults.c processes. */
#ifndef TESTS_DIFFERING_PLAN_H
#define TESTS_DIFFERING_PLAN_H

#include <treeattn/treeattn.h>

/* How many there are. */
int differing_plans(void);

/* A ta_rank_fn; `context` points to the int that says which. */
ta_status differing_plan_rank(ta_group *group, void *context);

#endif
