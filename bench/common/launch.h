/* Where the ranks of the benchmark are: threads of this process or, under mpirun and its like, MPI
 * processes with one rank each. Then every process runs the whole program in step with the others,
 * holds its own shard, and only the first one prints. launch_mpi.c is built where there is an MPI,
 * launch_none.c elsewhere. */
#ifndef BENCH_LAUNCH_H
#define BENCH_LAUNCH_H

#include <stddef.h>

#include <treeattn/treeattn.h>

typedef struct bench_launch {
    int mpi;          /* 0: ranks are threads, and the other fields mean nothing */
    int rank, ranks;  /* of this process, and of all */
    int local_rank;   /* this one's number among those on this host */
    int local_ranks;  /* on this host */
    ta_group *group;  /* of all processes */
    char library[64]; /* which MPI */
} bench_launch;

extern bench_launch launch;

/* Find out, from the environment of a launcher or from `--mpi` among the flags, which is taken out.
 * Returns 0, or an exit code after saying what is wrong. */
int launch_begin(int *argc, char ***argv);
void launch_end(void);

/* End all processes. */
void launch_abort(int code);

/* As ta_group_run_threads(); with MPI this process's rank alone. */
ta_status launch_run(int ranks, ta_rank_fn fn, void *context);

/* The following are for all processes together, and do nothing without MPI. */

/* Wait for all: actively, or asleep for as long as something else is being measured. */
void launch_wait(int asleep);

/* Each number becomes the largest, or the sum, over all processes. */
void launch_max(double *values, int count);
void launch_sum(double *values, int count);

/* all[r] becomes process r's all[r], each of `bytes`. */
void launch_share(void *all, size_t bytes);

/* What exchanges are compared with: MPI's own sum of floats, in place, and its gathering of as many
 * from each process. */
void launch_all_reduce(float *values, int count);
void launch_all_gather(const float *own, float *all, int count);

/* Memory that all ranks can address, zero at first, on lines of the CPU; NULL: there is none, for
 * all processes together or since some are on other hosts. One at a time. */
void *launch_take_shared(size_t bytes);
void launch_give_shared(void *memory);

/* The same of this process alone. */
void *launch_take_own(size_t bytes);

/* Does one of the usual launchers say that it started this process? */
int launch_by_launcher(void);

/* The number of this process and how many there are, as far as the launcher's variables tell: 0 and
 * 1 where there is none. Slurm's are read too, as it may start tasks without any MPI. */
int launch_process(int *processes);

/* Take the launcher's variables out of the environment, so that programs that this one starts do
 * not take themselves for its ranks. */
void launch_forget(void);

/* Take `--mpi` out of the flags; returns whether it was there. */
int launch_asked_for(int *argc, char **argv);

#endif
