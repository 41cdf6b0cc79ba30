/* Threads and barriers of the benchmark; see parallel.h. Used by kv_cache.c, check_output.c,
 * bandwidth.c and decode/measure.c. */
#include "parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

typedef struct task {
    parallel_fn fn;
    void *context;
    int thread, threads;
    pthread_t handle;
} task;

static void *run_task(void *argument)
{
    task *t = argument;
    t->fn(t->thread, t->threads, t->context);
    return NULL;
}

int parallel_run(int threads, parallel_fn fn, void *context)
{
    int status = 0, made = 1;
    task *tasks = calloc((size_t)threads, sizeof *tasks);
    if (!tasks)
        return -1;
    for (int i = 0; i < threads; i++)
        tasks[i] = (task){.fn = fn, .context = context, .thread = i, .threads = threads};
    for (; made < threads; made++) {
        if (pthread_create(&tasks[made].handle, NULL, run_task, &tasks[made]) != 0) {
            status = -1;
            break;
        }
    }
    if (status == 0)
        fn(0, threads, context);
    for (int i = 1; i < made; i++)
        pthread_join(tasks[i].handle, NULL);
    free(tasks);
    return status;
}

void barrier_init(barrier *b, int count, int cpus)
{
    b->count = count;
    b->spin = count <= cpus;
    atomic_init(&b->arrived, 0);
    atomic_init(&b->round, 0);
    atomic_init(&b->broken, 0);
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Returns 1 if the caller was the last to arrive and has let the others go. */
static int arrive(barrier *b, int *round)
{
    *round = atomic_load(&b->round);
    if (atomic_fetch_add(&b->arrived, 1) + 1 < b->count)
        return 0;
    atomic_store(&b->arrived, 0);
    atomic_fetch_add(&b->round, 1);
    return 1;
}

static int must_wait(barrier *b, int round)
{
    return atomic_load(&b->round) == round && !atomic_load(&b->broken);
}

int barrier_wait(barrier *b)
{
    /* Long enough for threads that finish nearly together, short enough that a CPU which another
     * process wants is not held. */
    enum { SPINS = 20000 };
    int round;
    if (!arrive(b, &round)) {
        for (int i = 0; must_wait(b, round); i++) {
            if (b->spin && i < SPINS)
                pause_briefly();
            else
                sched_yield();
        }
    }
    return atomic_load(&b->broken) ? -1 : 0;
}

int barrier_sleep(barrier *b)
{
    const struct timespec nap = {0, 200 * 1000};
    int round;
    if (!arrive(b, &round)) {
        while (must_wait(b, round))
            nanosleep(&nap, NULL);
    }
    return atomic_load(&b->broken) ? -1 : 0;
}

void barrier_break(barrier *b)
{
    atomic_store(&b->broken, 1);
}
