/* The thread pool of the host device: see pool.h.
 *
 * One 64-bit word, `gate`, says all that threads must agree on: the number of the current loop,
 * whether it is open, and how many workers are inside. A worker enters by adding 1 while the gate
 * is open, takes items from a shared counter until none is left, and leaves. The caller does the
 * same, then closes the gate and waits for those inside only: a worker that the system has not
 * woken yet is not waited for.
 *
 * Idle threads look at the gate for a few microseconds, because decode steps often follow each
 * other closely, and then sleep. They never look longer, so that idle pools cost nothing. */
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/status.h"

/* Longest busy wait: about what it costs to sleep and be woken. */
#define SPIN_NANOSECONDS 10000

#define GATE_OPEN (1ull << 31)
#define GATE_INSIDE (GATE_OPEN - 1)
#define GATE_LOOP_SHIFT 32

struct ta_pool {
    int threads; /* the caller's included */
    int workers; /* started so far */
    pthread_t *handles;

    /* The loop: written while the gate is closed and nobody is inside. */
    ta_pool_fn fn;
    void *context;
    int64_t items;

    _Alignas(64) _Atomic uint64_t gate;
    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) _Atomic int next_thread; /* numbers the workers as they start */
    atomic_int sleepers;                  /* workers asleep, or about to be */
    atomic_bool caller_sleeps;
    atomic_bool stop;
    pthread_mutex_t lock; /* only around sleeping and waking */
    pthread_cond_t opened, emptied;
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait a short time for (gate & mask) to differ from `value`; false if it did not. */
static bool spin_while(ta_pool *pool, uint64_t mask, uint64_t value)
{
    int64_t until = ta_clock_ns() + SPIN_NANOSECONDS;
    do {
        for (int i = 0; i < 32; i++) {
            if ((atomic_load(&pool->gate) & mask) != value || atomic_load(&pool->stop))
                return true;
            relax();
        }
    } while (ta_clock_ns() < until);
    return false;
}

static void take_items(ta_pool *pool, int thread)
{
    int64_t item;
    while ((item = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->items)
        pool->fn(pool->context, item, thread);
}

/* Enter the loop if it is open. */
static bool enter(ta_pool *pool, uint64_t *gate)
{
    *gate = atomic_load(&pool->gate);
    while (*gate & GATE_OPEN) {
        if (atomic_compare_exchange_weak(&pool->gate, gate, *gate + 1))
            return true;
    }
    return false;
}

static void leave(ta_pool *pool)
{
    uint64_t before = atomic_fetch_sub(&pool->gate, 1);
    if ((before & (GATE_OPEN | GATE_INSIDE)) == 1 && atomic_load(&pool->caller_sleeps)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->emptied);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Return when a loop later than `loop` was opened, or the pool stops. */
static void await_loop(ta_pool *pool, uint64_t loop)
{
    uint64_t mask = ~0ull << GATE_LOOP_SHIFT;
    if (spin_while(pool, mask, loop))
        return;
    pthread_mutex_lock(&pool->lock);
    /* Announced before the gate is looked at again: a caller that opens it either is seen here or
     * sees a sleeper. */
    atomic_fetch_add(&pool->sleepers, 1);
    while ((atomic_load(&pool->gate) & mask) == loop && !atomic_load(&pool->stop))
        pthread_cond_wait(&pool->opened, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *work(void *argument)
{
    ta_pool *pool = argument;
    int thread = 1 + atomic_fetch_add(&pool->next_thread, 1);
    uint64_t gate = 0;
    while (!atomic_load(&pool->stop)) {
        if (enter(pool, &gate)) {
            take_items(pool, thread);
            leave(pool);
        }
        await_loop(pool, gate & (~0ull << GATE_LOOP_SHIFT));
    }
    return NULL;
}

int64_t ta_pool_next(ta_pool *pool)
{
    return atomic_load_explicit(&pool->next, memory_order_relaxed);
}

void ta_pool_run_here(ta_pool *pool, int64_t items, ta_pool_fn fn, void *context)
{
    for (int64_t item = 0; item < items; item++) {
        atomic_store_explicit(&pool->next, item + 1, memory_order_relaxed);
        fn(context, item, 0);
    }
}

static void open_gate(ta_pool *pool)
{
    uint64_t loop = (atomic_load(&pool->gate) >> GATE_LOOP_SHIFT) + 1;
    atomic_store(&pool->gate, loop << GATE_LOOP_SHIFT | GATE_OPEN);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->opened);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void close_gate(ta_pool *pool)
{
    uint64_t before = atomic_fetch_and(&pool->gate, ~GATE_OPEN);
    if (!(before & GATE_INSIDE))
        return;
    int64_t until = ta_clock_ns() + SPIN_NANOSECONDS;
    while (ta_clock_ns() < until) {
        if (!(atomic_load(&pool->gate) & GATE_INSIDE))
            return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->gate) & GATE_INSIDE)
        pthread_cond_wait(&pool->emptied, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

void ta_pool_run(ta_pool *pool, int64_t items, ta_pool_fn fn, void *context)
{
    if (pool->workers == 0 || items <= 1) {
        ta_pool_run_here(pool, items, fn, context);
        return;
    }
    pool->fn = fn;
    pool->context = context;
    pool->items = items;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    open_gate(pool);
    take_items(pool, 0);
    close_gate(pool);
}

int ta_pool_threads(const ta_pool *pool)
{
    return pool->threads;
}

/* Start the workers with all signals blocked: signals are for the program's own threads. */
static ta_status start_workers(ta_pool *pool)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = 0;
    while (pool->workers < pool->threads - 1 && error == 0) {
        error = pthread_create(&pool->handles[pool->workers], NULL, work, pool);
        pool->workers += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return ta_fail(TA_ERR_SYSTEM, "thread %d of %d could not be started: error %d",
                       pool->workers + 2, pool->threads, error);
    return TA_OK;
}

ta_status ta_pool_create(int threads, ta_pool **pool)
{
    ta_pool *p = aligned_alloc(64, sizeof *p);
    pthread_t *handles = calloc((size_t)threads, sizeof *handles);
    if (!p || !handles) {
        free(p);
        free(handles);
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a pool of %d threads", threads);
    }
    *p = (ta_pool){.threads = threads, .handles = handles};
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->opened, NULL);
    pthread_cond_init(&p->emptied, NULL);
    ta_status status = start_workers(p);
    if (status != TA_OK) {
        ta_pool_destroy(p);
        return status;
    }
    *pool = p;
    return TA_OK;
}

void ta_pool_destroy(ta_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, true);
    pthread_cond_broadcast(&pool->opened);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->workers; i++)
        pthread_join(pool->handles[i], NULL);
    pthread_cond_destroy(&pool->emptied);
    pthread_cond_destroy(&pool->opened);
    pthread_mutex_destroy(&pool->lock);
    free(pool->handles);
    free(pool);
}
