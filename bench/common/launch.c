/* The parts of launch.h that need no MPI. */
#include "launch.h"

#include <stdlib.h>
#include <string.h>

bench_launch launch;

int launch_by_launcher(void)
{
    /* Open MPI's mpirun; MPICH's, Intel MPI's and srun --mpi=pmi2; srun --mpi=pmix. */
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
}

int launch_asked_for(int *argc, char **argv)
{
    int kept = 0, asked = 0;
    for (int i = 0; i < *argc; i++) {
        if (strcmp(argv[i], "--mpi") == 0)
            asked = 1;
        else
            argv[kept++] = argv[i];
    }
    *argc = kept;
    return asked;
}
