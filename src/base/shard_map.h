/* From the user's shard map to the resolved one of shard.h, and the division of heads over ranks.
 * Used by plans; implemented in shard.c. */
#ifndef TA_SHARD_MAP_H
#define TA_SHARD_MAP_H

#include <treeattn/treeattn.h>

#include "shard.h"

/* Block of a block-cyclic map that names none: a multiple of the usual page sizes. */
#define TA_DEFAULT_BLOCK 64

/* Is it a map at all, of the one size that there is? A map stands inside other structs, so it never
 * grows. `name` is what the error message calls it. */
ta_status ta_shard_check_map(const char *name, const ta_shard_map *map);

/* Check a map and fill in its defaults for one rank. Zigzag maps are refused: a rank of one has two
 * ranges, and decode steps speak of one. */
ta_status ta_shard_resolve(const ta_shard_map *map, int rank, ta_shard *shard);

/* Where the turns of ranks with these weights start, in blocks of a round: rank r has those from
 * starts[r] to starts[r + 1], and the round has starts[ranks]. */
void ta_shard_find_turns(const int32_t *weights, int ranks, int32_t *starts);

/* Speak of another rank of the same map. `starts` of a weighted map, NULL of any other. */
void ta_shard_set_rank(ta_shard *shard, const int32_t *starts, int rank);

/* The end of the range of positions around `position` that its rank holds in a row; INT32_MAX if it
 * does not end before. Of a map that was checked, and a position that it has. */
int32_t ta_shard_run_end(const ta_shard_map *map, int32_t position);

/* The map with a block for a sequence of this length, if it is contiguous or zigzag and has neither
 * block nor bounds: then it divides every sequence evenly. */
ta_shard_map ta_shard_divided(const ta_shard_map *map, int32_t length);

/* Check all that there is to check of a map that alone says where each position is. */
ta_status ta_shard_check_complete(const char *name, const ta_shard_map *map);

/* `name` is what the error message calls the bounds. */
ta_status ta_shard_check_bounds(const char *name, const int32_t *bounds, int ranks);

/* Which rank holds a position, of a map that was checked; `ranks` if its bounds end before it. */
int ta_shard_owner(const ta_shard_map *map, int32_t position);

/* The first head of rank `rank`; with rank = ranks, the number of heads. */
static inline int ta_head_start(int heads, int ranks, int rank)
{
    return (int)((int64_t)heads * rank / ranks);
}

#endif
