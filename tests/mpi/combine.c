/* Random cases of ta_combine() and ta_append() with one MPI process for each rank.
 *
 *     mpi_combine [--seed N] [--cases N] [--device LIST]
 *
 * LIST is that of mpi_decode: cases.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cases.h"
#include "lib/append_case.h"
#include "lib/combine_case.h"
#include "lib/options.h"
#include "rank.h"

static ta_status run_one(uint64_t seed, int ranks, bound_worst *worst)
{
    static char failure[2048];
    combine_case combine = combine_case_random(seed, ranks);
    append_case append = append_case_random(seed, ranks);
    if (!combine_case_run(&combine, worst, failure, sizeof failure) ||
        !append_case_run(&append, failure, sizeof failure))
        return ta_fail(TA_ERR_DEVICE, "%.1000s", failure);
    return TA_OK;
}

static ta_status run_all(int ranks, bound_worst *worst)
{
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 50;
    uint64_t first = options.one_seed ? options.seed : 0;
    for (int i = 0; i < cases; ++i)
        TA_TRY(run_one(first + (uint64_t)i, ranks, worst));
    return TA_OK;
}

int main(int argc, char **argv)
{
    bound_worst worst = {0};
    ta_group *world = rank_begin(&argc, &argv, 60000);
    if (!options_read(argc, argv))
        return rank_end(world, ta_fail(TA_ERR_INVALID, "wrong usage"));
    char *list = strdup(options.device);
    cases_begin(world, list);
    options.device = cases_own_device;
    ta_status status = run_all(ta_group_size(world), &worst);
    if (status == TA_OK && ta_group_rank(world) == 0) {
        printf("%d ranks, ", ta_group_size(world));
        bound_worst_print(&worst);
    }
    int code = rank_end(world, status);
    free(list);
    return code;
}
