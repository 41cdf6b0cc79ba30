/* Random decode cases against the oracle (case.h) with one MPI process for each rank: every
 * feature, then every pair of placements.
 *
 *     mpi_decode [--seed N] [--cases N] [--device LIST]
 *
 * LIST names the ranks' devices in turn, see cases.h: "host,simt32,simt64" is a group of all three.
 * */
#include "base/status.h"
#include "cases.h"
#include "lib/case.h"
#include "lib/options.h"

static ta_status run_one(const decode_case *c, bound_worst *worst)
{
    static char failure[2048];
    options.device = cases_own_device;
    if (!case_run(c, worst, failure, sizeof failure))
        return ta_fail(TA_ERR_DEVICE, "%.1000s", failure);
    return TA_OK;
}

static decode_case draw(ta_group *world, uint64_t seed)
{
    options.device = cases_drawn_device;
    return case_random_on(seed, ta_group_size(world));
}

static ta_status run_seeds(ta_group *world, uint64_t first, int count, bound_worst *worst)
{
    for (int i = 0; i < count; ++i) {
        decode_case c = draw(world, first + (uint64_t)i);
        TA_TRY(run_one(&c, worst));
    }
    return TA_OK;
}

static ta_status run_placements(ta_group *world, bound_worst *worst)
{
    int last = ta_group_size(world) - 1;
    for (uint64_t i = 0; i < 9; ++i) {
        decode_case c = draw(world, 5000 + i);
        c.plan.query_placement = (ta_placement)(i % 3);
        c.plan.out_placement = (ta_placement)(i / 3);
        c.plan.query_root = i % 3 == TA_PLACE_ROOT ? last : 0;
        c.plan.out_root = i / 3 == TA_PLACE_ROOT ? last / 2 : 0;
        TA_TRY(run_one(&c, worst));
    }
    return TA_OK;
}

static ta_status run_all(ta_group *world, bound_worst *worst)
{
    TA_TRY(run_seeds(world, cases_first(), cases_count(), worst));
    if (options.one_seed)
        return TA_OK;
    TA_TRY(run_seeds(world, CASE_LARGE_SEEDS, cases_count() / 100, worst));
    return run_placements(world, worst);
}

int main(int argc, char **argv)
{
    return cases_main(argc, argv, run_all);
}
