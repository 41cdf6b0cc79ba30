/* Random cases of ta_combine() and ta_append() with one MPI process for each rank.
 *
 *     mpi_combine [--seed N] [--cases N] [--device LIST]
 *
 * LIST is that of mpi_decode: cases.h. */
#include "base/status.h"
#include "cases.h"
#include "lib/append_case.h"
#include "lib/combine_case.h"
#include "lib/options.h"

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

static ta_status run_all(ta_group *world, bound_worst *worst)
{
    options.device = cases_own_device;
    for (int i = 0; i < cases_count(); ++i)
        TA_TRY(run_one(cases_first() + (uint64_t)i, ta_group_size(world), worst));
    return TA_OK;
}

int main(int argc, char **argv)
{
    return cases_main(argc, argv, run_all);
}
