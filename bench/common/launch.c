/* The parts of launch.h that need no MPI. */
#include "launch.h"

#include <stdlib.h>
#include <string.h>

bench_launch launch;

extern char **environ;

int launch_by_launcher(void)
{
    /* Open MPI's mpirun; MPICH's, Intel MPI's and srun --mpi=pmi2; srun --mpi=pmix. */
    return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") || getenv("PMIX_RANK");
}

/* The first of these variables that is a number. */
static long first_number(const char *const *names, long none)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        char *end = NULL;
        long number = text ? strtol(text, &end, 10) : 0;
        if (end && end != text && *end == '\0')
            return number;
    }
    return none;
}

int launch_process(int *processes)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS",
                                        NULL};
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK",
                                        "SLURM_PROCID", NULL};
    long size = first_number(sizes, 1),
         rank = launch_by_launcher() || size > 1 ? first_number(ranks, 0) : 0;
    *processes = (int)(size > rank + 1 ? size : rank + 1);
    return (int)rank;
}

void launch_forget(void)
{
    static const char *const families[] = {"OMPI_COMM_WORLD_", "PMI_", "PMIX_"};
    for (char **at = environ; *at;) {
        char name[200];
        size_t length = strcspn(*at, "="), ours = 0;
        for (size_t i = 0; i < sizeof families / sizeof *families; i++)
            ours |= strncmp(*at, families[i], strlen(families[i])) == 0;
        if (!ours || length >= sizeof name) {
            at++;
            continue;
        }
        memcpy(name, *at, length);
        name[length] = '\0';
        unsetenv(name); /* the rest of the list moves up to here */
    }
}

void *launch_take_own(size_t bytes)
{
    size_t whole = (bytes + 127) / 128 * 128;
    void *memory = aligned_alloc(128, whole);
    return memory ? memset(memory, 0, whole) : NULL;
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
