/* See rank.h. */
#include "rank.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

ta_group *rank_begin(int *argc, char ***argv, int timeout_ms)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    ta_group *group = NULL;
    MPI_Comm world = MPI_COMM_WORLD;
    int level = 0;
    config.timeout_ms = timeout_ms;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level);
    if (level < MPI_THREAD_MULTIPLE)
        fprintf(stderr, "this MPI has only thread level %d\n", level);
    ta_status status = ta_group_create_mpi(&world, &config, &group);
    if (status != TA_OK || level < MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "no group: %s: %s\n", ta_status_name(status), ta_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1);
    }
    return group;
}

void rank_meet(int stopped)
{
    const struct timespec moment = {0, 1000000};
    MPI_Request all;
    int here = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &all);
    while (MPI_Test(&all, &here, MPI_STATUS_IGNORE) == MPI_SUCCESS && !here) {
        if (stopped)
            kill((pid_t)stopped, SIGCONT);
        nanosleep(&moment, NULL);
    }
}

int rank_end(ta_group *group, ta_status status)
{
    if (status != TA_OK) {
        fprintf(stderr, "rank %d of %d: %s: %s\n", ta_group_rank(group), ta_group_size(group),
                ta_status_name(status), ta_last_error());
        ta_group_abort(group, ta_last_error());
    }
    ta_group_destroy(group);
    MPI_Finalize();
    return status == TA_OK ? 0 : 1;
}
