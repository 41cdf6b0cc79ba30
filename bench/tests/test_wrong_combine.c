/* A ta_combine() that is wrong in the process that WRONG_RANK is set for: the first result is off
 * by 1. test_bench_mpi.sh has it loaded before the library, and looks at how the benchmark ends. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/treeattn.h>

static int is_wrong_here(void)
{
    static const char *const launchers[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    const char *wrong = getenv("WRONG_RANK"), *rank = NULL;
    for (size_t i = 0; !rank && i < sizeof launchers / sizeof *launchers; i++)
        rank = getenv(launchers[i]);
    return wrong && rank && strcmp(wrong, rank) == 0;
}

ta_status ta_combine(ta_plan *plan, const ta_tensor *part, const float *part_lse, ta_lse_base base,
                     const ta_tensor *out, float *lse, const ta_call *call, void *stream)
{
    ta_status (*right)(ta_plan *, const ta_tensor *, const float *, ta_lse_base, const ta_tensor *,
                       float *, const ta_call *, void *);
    *(void **)&right = dlsym(RTLD_NEXT, "ta_combine");
    ta_status status = right(plan, part, part_lse, base, out, lse, call, stream);
    if (status == TA_OK && is_wrong_here())
        *(float *)out->data += 1;
    return status;
}
