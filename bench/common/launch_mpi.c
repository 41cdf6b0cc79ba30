/* launch.h with an MPI. The library's group does what is measured; these calls, outside of it, only
 * bring the processes and their numbers together. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "exit_code.h"
#include "launch.h"

static void describe_library(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n,")] = '\0';
    snprintf(launch.library, sizeof launch.library, "%.63s", version);
}

static void count_neighbours(void)
{
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &launch.local_ranks);
    MPI_Comm_rank(host, &launch.local_rank);
    MPI_Comm_free(&host);
}

int launch_begin(int *argc, char ***argv)
{
    MPI_Comm world = MPI_COMM_WORLD;
    int level;
    if (!launch_asked_for(argc, *argv) && !launch_by_launcher())
        return EXIT_OK;
    if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
        fputs("treeattn-bench: MPI could not be initialised\n", stderr);
        return EXIT_NO_DEVICE;
    }
    launch.mpi = 1;
    MPI_Comm_rank(world, &launch.rank);
    MPI_Comm_size(world, &launch.ranks);
    count_neighbours();
    describe_library();
    if (launch.rank > 0 && !freopen("/dev/null", "w", stdout))
        return EXIT_WRONG;
    if (ta_group_create_mpi(&world, NULL, &launch.group) == TA_OK)
        return EXIT_OK;
    fprintf(stderr, "treeattn-bench: no group of MPI processes: %s\n", ta_last_error());
    launch_abort(EXIT_NO_DEVICE);
    return EXIT_NO_DEVICE;
}

void launch_end(void)
{
    if (!launch.mpi)
        return;
    fflush(stdout);
    ta_group_destroy(launch.group);
    MPI_Finalize();
}

void launch_abort(int code)
{
    fflush(NULL);
    if (launch.mpi)
        MPI_Abort(MPI_COMM_WORLD, code);
    exit(code);
}

ta_status launch_run(int ranks, ta_rank_fn fn, void *context)
{
    return launch.mpi ? fn(launch.group, context) : ta_group_run_threads(ranks, NULL, fn, context);
}

void launch_wait(int asleep)
{
    const struct timespec nap = {0, 100000};
    MPI_Request request;
    int done = 0;
    if (!launch.mpi)
        return;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
        if (asleep)
            nanosleep(&nap, NULL);
}

void launch_max(double *values, int count)
{
    if (launch.mpi)
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void launch_sum(double *values, int count)
{
    if (launch.mpi)
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

void launch_share(void *all, size_t bytes)
{
    if (launch.mpi)
        MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

void launch_all_reduce(float *values, int count)
{
    if (launch.mpi)
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void launch_all_gather(const float *own, float *all, int count)
{
    if (launch.mpi)
        MPI_Allgather(own, count, MPI_FLOAT, all, count, MPI_FLOAT, MPI_COMM_WORLD);
}

static MPI_Win shared_window = MPI_WIN_NULL;

void *launch_take_shared(size_t bytes)
{
    MPI_Aint own = launch.rank == 0 ? (MPI_Aint)bytes + 128 : 0, all;
    MPI_Comm host;
    void *memory = NULL;
    int unit;
    if (!launch.mpi)
        return launch_take_own(bytes);
    if (launch.local_ranks != launch.ranks)
        return NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Win_allocate_shared(own, 1, MPI_INFO_NULL, host, &memory, &shared_window);
    MPI_Win_shared_query(shared_window, 0, &all, &unit, &memory);
    MPI_Comm_free(&host);
    memory = (char *)memory + (128 - (uintptr_t)memory % 128) % 128;
    if (launch.rank == 0)
        memset(memory, 0, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    return memory;
}

void launch_give_shared(void *memory)
{
    if (!launch.mpi)
        free(memory);
    else if (memory)
        MPI_Win_free(&shared_window);
}
