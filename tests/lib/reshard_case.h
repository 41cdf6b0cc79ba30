/* A case of ta_reshard(): a decode case under two shard maps. The caches of the second are emptied
 * and filled from those of the first; the very bytes that the second began with must come back, and
 * decode before and after is within the oracle's bound. */
#ifndef TESTS_RESHARD_CASE_H
#define TESTS_RESHARD_CASE_H

#include <treeattn/collectives.h>

#include "case.h"

/* The same inputs under two maps. `fewer` of the first ranks have tokens under the second; 0: as
 * the case says. */
typedef struct reshard_case {
    decode_case c[2];
    case_data data[2];
    int fewer;
} reshard_case;

/* Free with reshard_case_free(). */
reshard_case reshard_case_make(uint64_t seed, int ranks);
void reshard_case_free(reshard_case *j);

/* The work of one rank; `context` is the case. */
ta_status reshard_case_rank(ta_group *threads, void *context);

#endif
