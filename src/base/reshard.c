/* ta_reshard_list(): what must move when tokens go from one shard map to another. A pure function
 * of the two maps and a length; group/reshard.c moves what it lists. */
#include <treeattn/collectives.h>

#include "shard_map.h"
#include "status.h"

static ta_status find_owner(const char *name, const ta_shard_map *map, int32_t position,
                            int32_t length, int32_t *rank)
{
    *rank = ta_shard_owner(map, position);
    if (*rank == map->ranks)
        return ta_fail(TA_ERR_INVALID,
                       "length is %d: %s.bounds end at %d, no rank holds position %d", (int)length,
                       name, (int)map->bounds[map->ranks], (int)position);
    return TA_OK;
}

/* The range of positions from `position` on that one rank has and one rank will have. */
static ta_status next_move(const ta_shard_map *from, const ta_shard_map *to, int32_t length,
                           int32_t position, ta_move *move)
{
    int rank;
    int32_t end = ta_shard_run_end(from, position), to_end = ta_shard_run_end(to, position);
    *move = (ta_move){.position = position};
    TA_TRY(ta_shard_locate(from, position, &rank, &move->from_local));
    move->from_rank = rank;
    TA_TRY(ta_shard_locate(to, position, &rank, &move->to_local));
    move->to_rank = rank;
    end = to_end < end ? to_end : end;
    move->tokens = (end < length ? end : length) - position;
    return TA_OK;
}

static int goes_on(const ta_move *last, const ta_move *move)
{
    return last->from_rank == move->from_rank && last->to_rank == move->to_rank;
}

ta_status ta_reshard_list(const ta_shard_map *from, const ta_shard_map *to, int32_t length,
                          ta_move *moves, size_t capacity, size_t *count)
{
    ta_move last = {.from_rank = -1}, next;
    size_t found = 0;
    if (!from || !to)
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to a shard map",
                       from ? "to" : "from");
    if (length < 0)
        return ta_fail(TA_ERR_INVALID, "length is %d: must be 0 or more", (int)length);
    if (!count || (!moves && capacity))
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to the result",
                       count ? "moves" : "count");
    ta_shard_map had = ta_shard_divided(from, length), will = ta_shard_divided(to, length);
    TA_TRY(ta_shard_check_complete("from", &had));
    TA_TRY(ta_shard_check_complete("to", &will));
    if (length > 0) { /* before anything is written: bounds may end before the sequence does */
        TA_TRY(find_owner("from", &had, length - 1, length, &next.from_rank));
        TA_TRY(find_owner("to", &will, length - 1, length, &next.to_rank));
    }
    for (int32_t position = 0; position < length; position += next.tokens) {
        TA_TRY(next_move(&had, &will, length, position, &next));
        if (goes_on(&last, &next)) {
            last.tokens += next.tokens;
        } else {
            last = next;
            found += 1;
        }
        if (found <= capacity)
            moves[found - 1] = last;
    }
    *count = found;
    return TA_OK;
}
