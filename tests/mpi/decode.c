/* Random decode cases against the oracle (case.h) with one MPI process for each rank: every
 * feature, then every pair of placements.
 *
 *     mpi_decode [--seed N] [--cases N] [--device LIST]
 *
 * LIST names the ranks' devices in turn, see cases.h: "host,simt32,simt64" is a group of all three.
 * */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "cases.h"
#include "lib/case.h"
#include "lib/options.h"
#include "rank.h"

static ta_group *world;

static ta_status run_one(const decode_case *c, bound_worst *worst)
{
    static char failure[2048];
    options.device = cases_own_device;
    if (!case_run(c, worst, failure, sizeof failure))
        return ta_fail(TA_ERR_DEVICE, "%.1000s", failure);
    return TA_OK;
}

static decode_case draw(uint64_t seed)
{
    options.device = cases_drawn_device;
    return case_random_on(seed, ta_group_size(world));
}

static ta_status run_placements(bound_worst *worst)
{
    int last = ta_group_size(world) - 1;
    for (uint64_t i = 0; i < 9; ++i) {
        decode_case c = draw(5000 + i);
        c.plan.query_placement = (ta_placement)(i % 3);
        c.plan.out_placement = (ta_placement)(i / 3);
        c.plan.query_root = i % 3 == TA_PLACE_ROOT ? last : 0;
        c.plan.out_root = i / 3 == TA_PLACE_ROOT ? last / 2 : 0;
        TA_TRY(run_one(&c, worst));
    }
    return TA_OK;
}

static ta_status run_all(bound_worst *worst)
{
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 50;
    uint64_t first = options.one_seed ? options.seed : 0;
    for (int i = 0; i < cases; ++i) {
        decode_case c = draw(first + (uint64_t)i);
        TA_TRY(run_one(&c, worst));
    }
    if (options.one_seed)
        return TA_OK;
    for (int i = 0; i < cases / 100; ++i) {
        decode_case c = draw(CASE_LARGE_SEEDS + (uint64_t)i);
        TA_TRY(run_one(&c, worst));
    }
    return run_placements(worst);
}

int main(int argc, char **argv)
{
    bound_worst worst = {0};
    world = rank_begin(&argc, &argv, 60000);
    if (!options_read(argc, argv))
        return rank_end(world, ta_fail(TA_ERR_INVALID, "wrong usage"));
    char *list = strdup(options.device);
    cases_begin(world, list);
    ta_status status = run_all(&worst);
    if (status == TA_OK && ta_group_rank(world) == 0) {
        printf("%d ranks, ", ta_group_size(world));
        bound_worst_print(&worst);
    }
    int code = rank_end(world, status);
    free(list);
    return code;
}
