/* Shard maps: no map and no number may overflow, and where a map is right its functions agree with
 * each other. */
#include <treeattn/collectives.h>

#include "bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds)
{
    if (!holds)
        abort();
}

/* A number of 32 bits: any, or a small one. */
static int32_t take_any(bytes *b)
{
    int32_t value = 0;
    if (take_chance(b, 2))
        return take_int(b, 0, 40);
    for (int i = 0; i < 4; ++i)
        value = (int32_t)((uint32_t)value << 8 | take(b));
    return value;
}

static void check_position(const ta_shard_map *map, int32_t position)
{
    int rank = -1;
    int32_t local = -1, back = -1, count = -1;
    if (ta_shard_locate(map, position, &rank, &local) != TA_OK)
        return;
    require(rank >= 0 && rank < map->ranks && local >= 0 && local <= position);
    require(ta_shard_position(map, rank, local, &back) == TA_OK && back == position);
    require(ta_shard_count(map, rank, position, &count) == TA_OK && count == local);
    require(ta_shard_next(map, position, &rank, &local) == TA_OK && local == count);
}

static void check_rank(const ta_shard_map *map, int rank, int32_t local, int32_t length)
{
    int owner = -1;
    int32_t position = -1, back = -1, count = -1;
    if (ta_shard_position(map, rank, local, &position) == TA_OK) {
        require(position >= local);
        require(ta_shard_locate(map, position, &owner, &back) == TA_OK);
        require(owner == rank && back == local);
    }
    if (ta_shard_count(map, rank, length, &count) == TA_OK)
        require(count >= 0 && count <= length);
}

/* The counts of all ranks are the length. */
static void check_sum(const ta_shard_map *map, int32_t length)
{
    int64_t sum = 0;
    for (int rank = 0; rank < map->ranks && map->ranks <= 64; ++rank) {
        int32_t count = 0;
        if (ta_shard_count(map, rank, length, &count) != TA_OK)
            return;
        sum += count;
    }
    if (length >= 0 && map->ranks >= 1 && map->ranks <= 64)
        require(sum == length || (map->bounds && map->kind == TA_SHARD_CONTIGUOUS &&
                                  sum == map->bounds[map->ranks]));
}

/* The moves from one map to another are the sequence, token for token. */
static void check_moves(const ta_shard_map *from, const ta_shard_map *to, int32_t length)
{
    ta_move moves[8];
    size_t count = 0;
    int32_t position = 0;
    if (length > 3000 || ta_reshard_list(from, to, length, moves, 8, &count) != TA_OK)
        return;
    require(length >= 0 && count <= (size_t)length && (count > 0) == (length > 0));
    for (size_t i = 0; i < count && i < 8; ++i) {
        require(moves[i].position == position && moves[i].tokens > 0);
        require(moves[i].from_rank >= 0 && moves[i].from_rank < from->ranks);
        require(moves[i].to_rank >= 0 && moves[i].to_rank < to->ranks);
        position += moves[i].tokens;
    }
    require(count > 8 ? position < length : position == length);
}

/* Its bounds, if it has any, are of exactly as many numbers as it reads. */
static ta_shard_map take_map(bytes *b)
{
    ta_shard_map map = TA_SHARD_MAP_INIT;
    map.kind = (ta_shard_kind)take_int(b, 0, 3);
    map.ranks = take_any(b);
    map.block = take_any(b);
    int weighted = map.kind == TA_SHARD_WEIGHTED, few = map.ranks > 0 && map.ranks < 100;
    if (few && (weighted ? !take_chance(b, 9) : take_chance(b, 4))) {
        int count = weighted ? map.ranks : map.ranks + 1;
        int32_t *bounds = malloc((size_t)count * sizeof *bounds);
        for (int i = 0; i < count; ++i) {
            if (weighted)
                bounds[i] = take_chance(b, 20) ? take_any(b) : take_int(b, 0, 9);
            else
                bounds[i] = i ? bounds[i - 1] / 2 + take_any(b) / 2 : take_int(b, 0, 0);
        }
        map.bounds = bounds;
    }
    if (take_chance(b, 40))
        map.size = (size_t)take_any(b);
    return map;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bytes b = {data, size};
    ta_shard_map map = take_map(&b);
    int first = -1, count = -1, heads = take_any(&b), ranks = take_any(&b), rank = take_any(&b);
    if (ta_head_range(heads, ranks, rank, &first, &count) == TA_OK)
        require(first >= 0 && count >= 0 && count <= heads - first);
    for (int i = 0; i < 4; ++i)
        check_position(&map, take_any(&b));
    for (int i = 0; i < 4; ++i) {
        rank = take_any(&b);
        int32_t local = take_any(&b);
        check_rank(&map, rank, local, take_any(&b));
    }
    check_sum(&map, take_any(&b));
    ta_shard_map other = take_map(&b);
    check_moves(&map, &other, take_any(&b));
    free((void *)map.bounds);
    free((void *)other.bounds);
    return 0;
}
