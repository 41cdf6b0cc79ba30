/* Cases on the processes of an MPI job: see cases.h. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "lib/case.h"
#include "lib/options.h"
#include "rank.h"

const char *cases_own_device = "host", *cases_drawn_device = "host";

static ta_group *group_of_all;

static ta_status launch(int ranks, const ta_group_config *config, ta_rank_fn fn, void *context)
{
    (void)config;
    if (ranks != ta_group_size(group_of_all))
        return ta_fail(TA_ERR_INVALID, "a case for %d ranks", ranks);
    return fn(group_of_all, context);
}

void cases_run_on(ta_group *world)
{
    group_of_all = world;
    case_launch = launch;
}

/* Take this rank's entry of the list. */
static void choose_device(char *list, int rank)
{
    char *names[16];
    int count = 0;
    for (char *name = strtok(list, ","); name && count < 16; name = strtok(NULL, ","))
        names[count++] = name;
    for (int i = 0; i < count; ++i)
        if (!strncmp(names[i], "simt", 4))
            cases_drawn_device = "simt";
    case_same_bits = count == 1;
    cases_own_device = names[rank % count];
    if (!strncmp(cases_own_device, "simt", 4)) {
        if (cases_own_device[4])
            setenv("TA_SIMT_WAVE", cases_own_device + 4, 1);
        cases_own_device = "simt";
    }
}

uint64_t cases_first(void)
{
    return options.one_seed ? options.seed : 0;
}

int cases_count(void)
{
    return options.cases ? options.cases : options.one_seed ? 1 : 50;
}

int cases_main(int argc, char **argv, ta_status (*run_all)(ta_group *world, bound_worst *worst))
{
    bound_worst worst = {0};
    ta_group *world = rank_begin(&argc, &argv, 60000);
    if (!options_read(argc, argv))
        return rank_end(world, ta_fail(TA_ERR_INVALID, "wrong usage"));
    char *list = strdup(options.device);
    cases_run_on(world);
    choose_device(list, ta_group_rank(world));
    /* On all ranks, or none: GPUs that are not the same one may use each other's memory. */
    options.others = strcmp(cases_drawn_device, "host") != 0;
    options.messages = options.others && !options.each;
    ta_status status = run_all(world, &worst);
    if (status == TA_OK && ta_group_rank(world) == 0) {
        printf("%d ranks, ", ta_group_size(world));
        bound_worst_print(&worst);
    }
    int code = rank_end(world, status);
    free(list);
    return code;
}
