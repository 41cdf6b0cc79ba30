/* launch.h without an MPI: ranks are threads. */
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>

#include "exit_code.h"

int launch_begin(int *argc, char ***argv)
{
    if (!launch_asked_for(argc, *argv) && !launch_by_launcher())
        return EXIT_OK;
    fputs(
        "treeattn-bench: this one was built without MPI: its ranks are threads, start it once. To\n"
        "have MPI: sudo apt-get install libopenmpi-dev openmpi-bin, then in the build directory\n"
        "meson configure -Dmpi=enabled && meson compile\n",
        stderr);
    return EXIT_NO_DEVICE;
}

void launch_end(void)
{
}

void launch_abort(int code)
{
    exit(code);
}

ta_status launch_run(int ranks, ta_rank_fn fn, void *context)
{
    return ta_group_run_threads(ranks, NULL, fn, context);
}

void launch_wait(int asleep)
{
    (void)asleep;
}

void launch_max(double *values, int count)
{
    (void)values;
    (void)count;
}

void launch_sum(double *values, int count)
{
    (void)values;
    (void)count;
}

void launch_share(void *all, size_t bytes)
{
    (void)all;
    (void)bytes;
}

void *launch_take_shared(size_t bytes)
{
    return launch_take_own(bytes);
}

void launch_give_shared(void *memory)
{
    free(memory);
}

void launch_all_reduce(float *values, int count)
{
    (void)values;
    (void)count;
}

void launch_all_gather(const float *own, float *all, int count)
{
    (void)own;
    (void)all;
    (void)count;
}
