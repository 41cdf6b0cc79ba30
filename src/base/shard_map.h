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
