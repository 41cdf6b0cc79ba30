/* The public shard map functions: check the arguments, then ask shard.h. */
#include "shard.h"

#include <stdio.h>
#include <string.h>

#include "shard_map.h"
#include "status.h"

ta_status ta_shard_check_map(const char *name, const ta_shard_map *map)
{
    if (!map)
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to a shard map", name);
    if (map->size != sizeof *map)
        return ta_fail(TA_ERR_INVALID, "%s.size is %zu: must be %zu, use TA_SHARD_MAP_INIT", name,
                       map->size, sizeof *map);
    if (map->reserved)
        return ta_fail(TA_ERR_INVALID, "%s.reserved is %d: must be 0", name, (int)map->reserved);
    return TA_OK;
}

/* Check the weights, and find this rank's turn. */
static ta_status take_weighted_turn(const ta_shard_map *map, ta_shard *shard)
{
    int64_t sum = 0, first = 0;
    if (!map->bounds)
        return ta_fail(TA_ERR_INVALID,
                       "map.bounds is NULL: a weighted map has the weights of its %d ranks there",
                       map->ranks);
    for (int r = 0; r < map->ranks; ++r) {
        if (map->bounds[r] < 0)
            return ta_fail(TA_ERR_INVALID, "map.bounds[%d] is %d: a weight must be 0 or more", r,
                           (int)map->bounds[r]);
        if (r == shard->rank)
            first = sum;
        sum += map->bounds[r];
        if (sum > INT32_MAX)
            return ta_fail(TA_ERR_INVALID,
                           "map.bounds[%d] is %d: the weights add up to more than %d", r,
                           (int)map->bounds[r], INT32_MAX);
    }
    if (sum == 0)
        return ta_fail(TA_ERR_INVALID, "map.bounds has no weight above 0: a rank must have one");
    ta_shard_set_turn(shard, (int32_t)first, map->bounds[shard->rank], (int32_t)sum);
    return TA_OK;
}

void ta_shard_find_turns(const int32_t *weights, int ranks, int32_t *starts)
{
    starts[0] = 0;
    for (int r = 0; r < ranks; ++r)
        starts[r + 1] = starts[r] + weights[r];
}

void ta_shard_set_rank(ta_shard *shard, const int32_t *starts, int rank)
{
    shard->rank = rank;
    if (starts)
        ta_shard_set_turn(shard, starts[rank], starts[rank + 1] - starts[rank],
                          starts[shard->ranks]);
    else
        ta_shard_set_turn(shard, rank, 1, shard->ranks);
}

ta_status ta_shard_resolve(const ta_shard_map *map, int rank, ta_shard *shard)
{
    TA_TRY(ta_shard_check_map("map", map));
    if (map->kind != TA_SHARD_CONTIGUOUS && map->kind != TA_SHARD_BLOCK_CYCLIC &&
        map->kind != TA_SHARD_WEIGHTED)
        return ta_fail(TA_ERR_INVALID,
                       "map.kind is %d: must be TA_SHARD_CONTIGUOUS, TA_SHARD_BLOCK_CYCLIC or "
                       "TA_SHARD_WEIGHTED here",
                       (int)map->kind);
    if (map->ranks < 1)
        return ta_fail(TA_ERR_INVALID, "map.ranks is %d: must be 1 or more", map->ranks);
    if (rank < 0 || rank >= map->ranks)
        return ta_fail(TA_ERR_INVALID, "rank is %d: must be from 0 to %d", rank, map->ranks - 1);
    if (map->block < 0)
        return ta_fail(TA_ERR_INVALID, "map.block is %d: must be 0 or more", (int)map->block);
    shard->cyclic = map->kind != TA_SHARD_CONTIGUOUS;
    if (map->kind == TA_SHARD_BLOCK_CYCLIC && map->bounds)
        return ta_fail(TA_ERR_INVALID,
                       "map.bounds is set with a block-cyclic map: must be NULL there");
    shard->ranks = map->ranks;
    shard->rank = rank;
    shard->block = map->block;
    if (shard->cyclic && !shard->block)
        shard->block = TA_DEFAULT_BLOCK;
    if (map->kind == TA_SHARD_WEIGHTED)
        return take_weighted_turn(map, shard);
    ta_shard_set_rank(shard, NULL, rank);
    return TA_OK;
}

ta_status ta_shard_check_bounds(const char *name, const int32_t *bounds, int ranks)
{
    if (bounds[0] != 0)
        return ta_fail(TA_ERR_INVALID, "%s[0] is %d: must be 0", name, (int)bounds[0]);
    for (int r = 0; r < ranks; ++r)
        if (bounds[r + 1] < bounds[r])
            return ta_fail(TA_ERR_INVALID, "%s[%d] is %d, below %s[%d] which is %d: must ascend",
                           name, r + 1, (int)bounds[r + 1], name, r, (int)bounds[r]);
    return TA_OK;
}

/* Twice as many blocks must be a number of 32 bits. */
#define MOST_ZIGZAG_RANKS (INT32_MAX / 2)

/* A rank's tokens as parts of two shards at most, one after the other: of a zigzag map two blocks
 * of a contiguous one with twice the ranks. */
typedef struct parts {
    ta_shard part[2];
    int count;
} parts;

/* What a map outside a plan must also fulfil: it alone says where each position is. */
static ta_status resolve_complete(const ta_shard_map *map, int rank, parts *p)
{
    memset(p, 0, sizeof *p);
    p->count = 1;
    if (map && map->size == sizeof *map && map->kind == TA_SHARD_ZIGZAG) {
        ta_shard_map contiguous = *map;
        contiguous.kind = TA_SHARD_CONTIGUOUS;
        TA_TRY(ta_shard_resolve(&contiguous, rank, &p->part[0]));
        if (map->bounds || map->block < 1)
            return ta_fail(TA_ERR_INVALID,
                           "a zigzag map needs map.block of 1 or more, which is %d, and no "
                           "map.bounds",
                           (int)map->block);
        if (map->ranks > MOST_ZIGZAG_RANKS)
            return ta_fail(TA_ERR_INVALID, "map.ranks is %d: a zigzag map has at most %d",
                           map->ranks, MOST_ZIGZAG_RANKS);
        p->count = 2;
        p->part[0].ranks *= 2;
        p->part[1] = p->part[0];
        p->part[1].rank = p->part[0].ranks - 1 - rank;
        return TA_OK;
    }
    TA_TRY(ta_shard_resolve(map, rank, &p->part[0]));
    if (map->bounds && map->kind == TA_SHARD_CONTIGUOUS)
        return ta_shard_check_bounds("map.bounds", map->bounds, map->ranks);
    if (!p->part[0].cyclic && map->ranks > 1 && p->part[0].block == 0)
        return ta_fail(TA_ERR_INVALID,
                       "map.block is 0 and map.bounds is NULL: a contiguous map of "
                       "%d ranks needs one of them",
                       map->ranks);
    return TA_OK;
}

ta_status ta_shard_check_complete(const char *name, const ta_shard_map *map)
{
    parts p;
    ta_status status = resolve_complete(map, 0, &p);
    if (status == TA_OK)
        return TA_OK;
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s", ta_last_error());
    return ta_fail_quietly(status, "%s: %s", name, sentence);
}

ta_shard_map ta_shard_divided(const ta_shard_map *map, int32_t length)
{
    ta_shard_map divided = *map;
    int64_t pieces = map->kind == TA_SHARD_ZIGZAG ? 2 * (int64_t)map->ranks : map->ranks;
    int even = map->kind == TA_SHARD_ZIGZAG || map->kind == TA_SHARD_CONTIGUOUS;
    if (!even || map->block || map->bounds || map->ranks < 1)
        return divided;
    divided.block = (int32_t)((length + pieces - 1) / pieces);
    if (divided.block == 0)
        divided.block = 1; /* an empty sequence */
    return divided;
}

static int32_t held(const parts *p, const int32_t *bounds, int32_t end)
{
    int32_t first = ta_shard_held(&p->part[0], bounds, end);
    return p->count == 1 ? first : first + ta_shard_held(&p->part[1], bounds, end);
}

static int32_t block_of(const ta_shard_map *map)
{
    return map->block ? map->block : TA_DEFAULT_BLOCK;
}

/* The rank of a weighted map, and the block of the round after the rank's last. */
static int weighted_owner(const ta_shard_map *map, int32_t position, int64_t *turn_end)
{
    int64_t sum = 0, end = 0;
    int rank = 0;
    for (int r = 0; r < map->ranks; ++r)
        sum += map->bounds[r];
    int64_t block = position / block_of(map) % sum;
    while (block >= end + map->bounds[rank])
        end += map->bounds[rank++];
    *turn_end = (position / block_of(map) - block + end + map->bounds[rank]) * block_of(map);
    return rank;
}

int32_t ta_shard_run_end(const ta_shard_map *map, int32_t position)
{
    int64_t end = INT32_MAX, block = position / (block_of(map));
    if (map->kind == TA_SHARD_WEIGHTED)
        (void)weighted_owner(map, position, &end);
    else if (map->kind == TA_SHARD_BLOCK_CYCLIC)
        end = map->ranks > 1 ? (block + 1) * block_of(map) : end;
    else if (map->bounds)
        end = map->bounds[ta_shard_owner(map, position) + 1];
    else if (map->kind == TA_SHARD_ZIGZAG)
        end = block < 2 * (int64_t)map->ranks - 1 ? (block + 1) * map->block : end;
    else if (map->block)
        end = block < map->ranks - 1 ? (block + 1) * map->block : end;
    return end < INT32_MAX ? (int32_t)end : INT32_MAX;
}

int ta_shard_owner(const ta_shard_map *map, int32_t position)
{
    int64_t turn_end;
    if (map->kind == TA_SHARD_WEIGHTED)
        return weighted_owner(map, position, &turn_end);
    if (map->kind == TA_SHARD_BLOCK_CYCLIC)
        return (int)(position / block_of(map) % map->ranks);
    if (map->bounds) {
        int rank = 0;
        while (rank < map->ranks && position >= map->bounds[rank + 1])
            ++rank;
        return rank;
    }
    if (map->block == 0)
        return 0;
    int32_t block = position / map->block;
    if (map->kind == TA_SHARD_ZIGZAG) {
        int32_t last = 2 * map->ranks - 1;
        block = block < last ? block : last;
        return (int)(block < map->ranks ? block : last - block);
    }
    return block < map->ranks ? (int)block : map->ranks - 1;
}

static ta_status locate(const ta_shard_map *map, const char *name, int32_t position, int *rank,
                        int32_t *local)
{
    parts p;
    TA_TRY(resolve_complete(map, 0, &p));
    if (position < 0)
        return ta_fail(TA_ERR_INVALID, "%s is %d: must be 0 or more", name, (int)position);
    if (!rank || !local)
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to the result",
                       rank ? "local" : "rank");
    int owner = ta_shard_owner(map, position);
    if (owner == map->ranks)
        return ta_fail(TA_ERR_INVALID, "%s is %d: no rank holds it, map.bounds[%d] is %d", name,
                       (int)position, map->ranks, (int)map->bounds[map->ranks]);
    TA_TRY(resolve_complete(map, owner, &p));
    *rank = owner;
    *local = held(&p, map->bounds, position);
    return TA_OK;
}

ta_status ta_shard_locate(const ta_shard_map *map, int32_t position, int *rank, int32_t *local)
{
    return locate(map, "position", position, rank, local);
}

ta_status ta_shard_next(const ta_shard_map *map, int32_t length, int *rank, int32_t *local)
{
    return locate(map, "length", length, rank, local);
}

/* Is `local` beyond what a rank can hold, of a sequence of any length? */
static int beyond(const ta_shard_map *map, int rank, int32_t local, int64_t position)
{
    if (map->kind == TA_SHARD_WEIGHTED)
        return map->bounds[rank] == 0;
    if (map->bounds)
        return position >= map->bounds[rank + 1];
    if (map->kind == TA_SHARD_ZIGZAG)
        return rank > 0 && local >= 2 * (int64_t)map->block;
    return map->kind == TA_SHARD_CONTIGUOUS && rank < map->ranks - 1 && local >= map->block;
}

ta_status ta_shard_position(const ta_shard_map *map, int rank, int32_t local, int32_t *position)
{
    parts p;
    TA_TRY(resolve_complete(map, rank, &p));
    if (local < 0)
        return ta_fail(TA_ERR_INVALID, "local is %d: must be 0 or more", (int)local);
    if (!position)
        return ta_fail(TA_ERR_INVALID, "position is NULL: must point to the result");
    int second = p.count == 2 && local >= map->block;
    int64_t global =
        ta_shard_global(&p.part[second], map->bounds, second ? local - map->block : local);
    if (global > INT32_MAX)
        return ta_fail(TA_ERR_INVALID, "local is %d: its position %lld exceeds %d", (int)local,
                       (long long)global, INT32_MAX);
    if (beyond(map, rank, local, global))
        return ta_fail(TA_ERR_INVALID, "local is %d: beyond the range of rank %d", (int)local,
                       rank);
    *position = (int32_t)global;
    return TA_OK;
}

ta_status ta_shard_count(const ta_shard_map *map, int rank, int32_t length, int32_t *count)
{
    parts p;
    TA_TRY(resolve_complete(map, rank, &p));
    if (length < 0)
        return ta_fail(TA_ERR_INVALID, "length is %d: must be 0 or more", (int)length);
    if (!count)
        return ta_fail(TA_ERR_INVALID, "count is NULL: must point to the result");
    *count = held(&p, map->bounds, length);
    return TA_OK;
}

ta_status ta_head_range(int heads, int ranks, int rank, int *first, int *count)
{
    if (heads < 1)
        return ta_fail(TA_ERR_INVALID, "heads is %d: must be 1 or more", heads);
    if (ranks < 1)
        return ta_fail(TA_ERR_INVALID, "ranks is %d: must be 1 or more", ranks);
    if (rank < 0 || rank >= ranks)
        return ta_fail(TA_ERR_INVALID, "rank is %d: must be from 0 to %d", rank, ranks - 1);
    if (!first || !count)
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to the result",
                       first ? "count" : "first");
    *first = ta_head_start(heads, ranks, rank);
    *count = ta_head_start(heads, ranks, rank + 1) - *first;
    return TA_OK;
}
