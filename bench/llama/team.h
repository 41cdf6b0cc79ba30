/* Threads of one rank that compute together, many times for each token: between calls they spin for
 * a moment, then sleep. products.c and host_ops.c divide their work over them. */
#ifndef BENCH_LLAMA_TEAM_H
#define BENCH_LLAMA_TEAM_H

#include <stdint.h>

typedef struct team team;

/* Work of one thread: the items [first, last). */
typedef void (*team_fn)(void *context, int64_t first, int64_t last);

/* `threads` with the caller's, ≥ 1. NULL if they cannot be made. */
team *team_create(int threads);
void team_destroy(team *t);
int team_threads(const team *t);

/* Do items [0, count) in portions of `portion`, each by whichever thread is free. Returns when all
 * is done. */
void team_run(team *t, int64_t count, int64_t portion, team_fn fn, void *context);

#endif
