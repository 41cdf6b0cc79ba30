/* See team.h. A call raises `round`; threads see it, take portions until there are none, and count
 * themselves done. */
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/machine.h"

#define SPIN_US 30.0 /* about what waking a thread takes */
#define SPINS 1000   /* likewise, in the pauses of a CPU */

struct team {
    int threads, made;
    pthread_t *handles;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_uint round;
    atomic_int done, stop;
    /* The work of the round. */
    team_fn fn;
    void *context;
    int64_t count, portion;
    _Atomic int64_t next;
};

static void work(team *t)
{
    for (;;) {
        int64_t first = atomic_fetch_add(&t->next, t->portion);
        if (first >= t->count)
            return;
        int64_t left = t->count - first;
        t->fn(t->context, first, first + (left < t->portion ? left : t->portion));
    }
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Returns the number of the round that follows `seen`. */
static unsigned wait_for_round(team *t, unsigned seen)
{
    double until = machine_time_us() + SPIN_US;
    while (atomic_load(&t->round) == seen && machine_time_us() < until)
        relax();
    if (atomic_load(&t->round) == seen) {
        pthread_mutex_lock(&t->lock);
        while (atomic_load(&t->round) == seen)
            pthread_cond_wait(&t->changed, &t->lock);
        pthread_mutex_unlock(&t->lock);
    }
    return seen + 1;
}

static void *run_thread(void *argument)
{
    team *t = argument;
    unsigned round = 0;
    for (;;) {
        round = wait_for_round(t, round);
        if (atomic_load(&t->stop))
            return NULL;
        work(t);
        atomic_fetch_add(&t->done, 1);
    }
}

static void start_round(team *t)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->round, 1);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

team *team_create(int threads)
{
    team *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->threads = threads;
    t->made = 1;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->handles = calloc((size_t)threads, sizeof *t->handles);
    for (; t->handles && t->made < threads; t->made++)
        if (pthread_create(&t->handles[t->made], NULL, run_thread, t) != 0)
            break;
    if (t->handles && t->made == threads)
        return t;
    team_destroy(t);
    return NULL;
}

void team_destroy(team *t)
{
    if (!t)
        return;
    atomic_store(&t->stop, 1);
    start_round(t);
    for (int i = 1; i < t->made; i++)
        pthread_join(t->handles[i], NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t->handles);
    free(t);
}

int team_threads(const team *t)
{
    return t->threads;
}

void team_run(team *t, int64_t count, int64_t portion, team_fn fn, void *context)
{
    portion = portion < 1 ? 1 : portion;
    if (t->threads == 1 || count <= portion) {
        if (count > 0)
            fn(context, 0, count);
        return;
    }
    t->fn = fn;
    t->context = context;
    t->count = count;
    t->portion = portion;
    atomic_store(&t->next, 0);
    atomic_store(&t->done, 0);
    start_round(t);
    work(t);
    for (int i = 0; atomic_load(&t->done) < t->threads - 1; i++) {
        if (i < SPINS)
            relax();
        else
            sched_yield(); /* a thread has no CPU: it may get this one */
    }
}
