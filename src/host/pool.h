/* A pool of threads that share loops. Made once when the host device opens; running a loop
 * allocates nothing. host.c and host/attend/attend.c use it; pool.c says how threads wait.
 *
 * A pool belongs to one caller at a time, like the device that owns it. */
#ifndef TA_HOST_POOL_H
#define TA_HOST_POOL_H

#include <treeattn/treeattn.h>

#include "device/cpus.h"

typedef struct ta_pool ta_pool;

/* One iteration of a loop. `thread` counts from 0 and is different for iterations that run at
 * the same time. */
typedef void (*ta_pool_fn)(void *context, int64_t item, int thread);

/* The most threads of a pool. */
#define TA_POOL_MAX_THREADS TA_CPUS_MOST

/* `threads` includes the caller's: a pool of 1 starts none. */
ta_status ta_pool_create(int threads, ta_pool **pool);
void ta_pool_destroy(ta_pool *pool);

int ta_pool_threads(const ta_pool *pool);

/* Call fn(context, item, thread) once for each item from 0 to items - 1, in any order, on any of
 * the threads; returns when all are done. */
void ta_pool_run(ta_pool *pool, int64_t items, ta_pool_fn fn, void *context);

/* The same on the calling thread alone, in order: for loops too short to wake anybody. */
void ta_pool_run_here(ta_pool *pool, int64_t items, ta_pool_fn fn, void *context);

/* The item that a thread would take now, of the running loop; may be past the last one. */
int64_t ta_pool_next(ta_pool *pool);

#endif
