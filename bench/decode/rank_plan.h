/* A rank's device and plan for a row, and a trial run of making them. */
#ifndef BENCH_RANK_PLAN_H
#define BENCH_RANK_PLAN_H

#include "options.h"

typedef struct rank_plan {
    ta_device *device;
    ta_group *group;     /* of the plan */
    int own_group;       /* it was made for it */
    void *links;         /* that it goes through, or NULL */
    ta_cluster *cluster; /* NULL: nothing is predicted */
    ta_plan *plan;
} rank_plan;

/* What a row asks of ta_plan_create(). */
ta_plan_config rank_plan_config(const decode_options *options, const bench_case *row);

/* Collective over the row's ranks. After a failure there is nothing to close. */
ta_status rank_plan_open(const decode_options *options, const bench_case *row, ta_group *group,
                         rank_plan *opened);
void rank_plan_close(rank_plan *opened);

/* What ta_explain() says, in memory that the caller frees. */
ta_status rank_plan_explain(const rank_plan *opened, char **text);

/* Make the plan of a row on all its ranks and take it apart again, to find out early whether
 * that works and to describe it: `text` as above. */
ta_status rank_plan_try(const decode_options *options, const bench_case *row, char **text);

#endif
