/* ta_reshard(): K and V from one shard map to another. Every rank lists the same moves
 * (base/reshard.c), so both sides of a message know what is in it: some tokens of the moves from
 * one rank to another, in their order. Each rank sends first to itself, then to the next one, then
 * to the one after. The caches are in reshard_cache.c. */
#include "reshard.h"

#include <stdlib.h>

#include "agree.h"
#include "base/arguments.h"
#include "base/shard_map.h"
#include "base/status.h"
#include "label.h"

/* Of a message; one token at least. */
#define MESSAGE_BYTES ((size_t)1 << 20)

/* The most that a field may be, as in plans. */
#define MOST_HEADS (1 << 16)

/* A move of one sequence that this rank has a part in. */
typedef struct sequence_move {
    ta_move move;
    int32_t sequence;
} sequence_move;

typedef struct move_list {
    sequence_move *moves;
    size_t count, capacity;
} move_list;

/* The tokens from one rank to another, one message after the other. */
typedef struct token_stream {
    const move_list *list;
    int32_t from_rank, to_rank;
    size_t at;    /* of the list */
    int32_t done; /* tokens of that move */
    int64_t left; /* tokens in all */
} token_stream;

/* ---- What is asked for ----------------------------------------------------------------------- */

static ta_status check_lengths(const ta_reshard_config *c)
{
    if (!c->lengths)
        return ta_fail(TA_ERR_INVALID, "config.lengths is NULL: must point to %d lengths",
                       (int)c->batch);
    for (int32_t b = 0; b < c->batch; ++b)
        if (c->lengths[b] < 0)
            return ta_fail(TA_ERR_INVALID, "config.lengths[%d] is %d: must be 0 or more", (int)b,
                           (int)c->lengths[b]);
    return TA_OK;
}

static ta_status resolve_map(const char *name, ta_shard_map *map, int ranks)
{
    TA_TRY(ta_shard_check_map(name, map));
    if (map->ranks == 0)
        map->ranks = ranks;
    if (map->ranks < 0 || map->ranks > ranks)
        return ta_fail(TA_ERR_INVALID, "%s.ranks is %d: must be from 0 to the group's size, %d",
                       name, map->ranks, ranks);
    ta_shard_map divided = ta_shard_divided(map, 1);
    return ta_shard_check_complete(name, &divided);
}

static ta_status resolve(const ta_reshard_config *config, ta_resharding *r)
{
    ta_reshard_config *c = &r->config;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_reshard_config), "config", config, c));
    TA_TRY(ta_check_int("reserved", c->reserved, 0, 0));
    if (!c->v_dim)
        c->v_dim = c->k_dim;
    TA_TRY(ta_check_int("batch", c->batch, 1, 1 << 20));
    TA_TRY(ta_check_int("kv_heads", c->kv_heads, 1, MOST_HEADS));
    TA_TRY(ta_check_dim("k_dim", c->k_dim, TA_MAX_DIM));
    TA_TRY(ta_check_dim("v_dim", c->v_dim, TA_MAX_DIM));
    TA_TRY(ta_check_dtype("kv_dtype", c->kv_dtype, TA_AS_KV));
    TA_TRY(ta_check_int("from_tokens", c->from_tokens, 0, INT32_MAX));
    TA_TRY(ta_check_int("to_tokens", c->to_tokens, 0, INT32_MAX));
    TA_TRY(resolve_map("config.from", &c->from, ta_group_size(r->group)));
    TA_TRY(resolve_map("config.to", &c->to, ta_group_size(r->group)));
    TA_TRY(check_lengths(c));
    r->each = ta_dtype_bytes(c->kv_dtype);
    r->k_row = (size_t)c->kv_heads * (size_t)c->k_dim * r->each;
    r->v_row = (size_t)c->kv_heads * (size_t)c->v_dim * r->each;
    return TA_OK;
}

/* ---- The moves ------------------------------------------------------------------------------- */

static ta_status add_moves(const ta_resharding *r, int32_t sequence, const ta_move *moves,
                           size_t count, move_list *list)
{
    int rank = ta_group_rank(r->group);
    if (list->count + count > list->capacity) {
        size_t capacity = 2 * (list->count + count);
        sequence_move *more = realloc(list->moves, capacity * sizeof *more);
        if (!more)
            return ta_fail(TA_ERR_NO_MEMORY, "no memory for %zu moves", capacity);
        list->moves = more;
        list->capacity = capacity;
    }
    for (size_t i = 0; i < count; ++i)
        if (moves[i].from_rank == rank || moves[i].to_rank == rank)
            list->moves[list->count++] = (sequence_move){moves[i], sequence};
    return TA_OK;
}

static ta_status list_moves(const ta_resharding *r, move_list *list)
{
    const ta_reshard_config *c = &r->config;
    ta_status status = TA_OK;
    for (int32_t b = 0; status == TA_OK && b < c->batch; ++b) {
        size_t count;
        TA_TRY(ta_reshard_list(&c->from, &c->to, c->lengths[b], NULL, 0, &count));
        ta_move *moves = malloc(count * sizeof *moves + 1);
        if (!moves)
            return ta_fail(TA_ERR_NO_MEMORY, "no memory for %zu moves", count);
        status = ta_reshard_list(&c->from, &c->to, c->lengths[b], moves, count, &count);
        if (status == TA_OK)
            status = add_moves(r, b, moves, count, list);
        free(moves);
    }
    return status;
}

static token_stream make_stream(const move_list *list, int from_rank, int to_rank)
{
    token_stream s = {.list = list, .from_rank = from_rank, .to_rank = to_rank};
    for (size_t i = 0; i < list->count; ++i)
        if (list->moves[i].move.from_rank == from_rank && list->moves[i].move.to_rank == to_rank)
            s.left += list->moves[i].move.tokens;
    return s;
}

/* The next tokens of a stream, at most `most`, that are neighbours on both sides. */
static sequence_move take_next(token_stream *s, int32_t most)
{
    const sequence_move *m = &s->list->moves[s->at];
    while (s->done == m->move.tokens || m->move.from_rank != s->from_rank ||
           m->move.to_rank != s->to_rank) {
        m = &s->list->moves[++s->at];
        s->done = 0;
    }
    sequence_move part = *m;
    part.move.from_local += s->done;
    part.move.to_local += s->done;
    part.move.tokens -= s->done;
    if (part.move.tokens > most)
        part.move.tokens = most;
    s->done += part.move.tokens;
    s->left -= part.move.tokens;
    return part;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* One side of the messages: the cache, and the memory that they go through. */
typedef struct side {
    ta_reshard_cache cache;
    char *memory;
    int store;
} side;

/* Copy the next `tokens` of the stream out of the cache, or into it. */
static ta_status copy_message(const ta_resharding *r, token_stream *stream, const side *s,
                              int32_t tokens)
{
    char *k = s->memory, *v = s->memory + (size_t)tokens * r->k_row;
    for (int32_t done = 0; done < tokens;) {
        sequence_move m = take_next(stream, tokens - done);
        ta_token_range range = {m.sequence, s->store ? m.move.to_local : m.move.from_local,
                                m.move.tokens};
        TA_TRY(ta_reshard_copy(r, &s->cache, range, k + (size_t)done * r->k_row,
                               v + (size_t)done * r->v_row, s->store));
        done += m.move.tokens;
    }
    return TA_OK;
}

static ta_status wait(const ta_resharding *r)
{
    int on_stream = r->group && r->group->device;
    return r->device && !on_stream ? r->device->ops->synchronize(r->device, r->stream) : TA_OK;
}

/* Everything to the rank `distance` further on, and from the one as far back. */
static ta_status move_at(const ta_resharding *r, const move_list *list, side *from, side *to,
                         int distance)
{
    int size = ta_group_size(r->group), rank = ta_group_rank(r->group);
    int next = (rank + distance) % size, previous = (rank + size - distance) % size;
    size_t token = r->k_row + r->v_row;
    int32_t most = token < MESSAGE_BYTES ? (int32_t)(MESSAGE_BYTES / token) : 1;
    token_stream out = make_stream(list, rank, next), in = make_stream(list, previous, rank);
    side taken = *to;
    if (distance == 0)
        taken.memory = from->memory; /* from this rank to itself */
    while (out.left > 0 || in.left > 0) {
        int32_t sent = (int32_t)(out.left < most ? out.left : most);
        int32_t received = (int32_t)(in.left < most ? in.left : most);
        TA_TRY(wait(r)); /* for what the last message left */
        TA_TRY(copy_message(r, &out, from, sent));
        TA_TRY(wait(r));
        if (distance > 0)
            TA_TRY(ta_group_exchange(r->group, from->memory, (size_t)sent * token, sent ? next : -1,
                                     to->memory, (size_t)received * token, received ? previous : -1,
                                     r->stream));
        TA_TRY(copy_message(r, &in, &taken, received));
    }
    return TA_OK;
}

/* Memory that messages go through: the group's device's, pinned, or the host's. */
static ta_status get_memory(const ta_resharding *r, size_t bytes, void **memory)
{
    if (r->group && r->group->device)
        return ta_device_alloc(r->device, bytes, memory);
    if (r->device)
        return r->device->ops->alloc_host(r->device, bytes, memory);
    *memory = malloc(bytes);
    return *memory ? TA_OK : ta_fail(TA_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
}

static void free_memory(const ta_resharding *r, void *memory)
{
    if (!memory)
        return;
    if (r->group && r->group->device)
        ta_device_free(r->device, memory);
    else if (r->device)
        r->device->ops->free_host(r->device, memory);
    else
        free(memory);
}

/* ---- The call -------------------------------------------------------------------------------- */

/* What this rank holds of each sequence under a map; nothing if it is not one of its ranks. */
static ta_status open_side(const ta_resharding *r, const ta_kv *kv, const ta_shard_map *map,
                           int32_t tokens, ta_reshard_cache *cache)
{
    int rank = ta_group_rank(r->group);
    ta_kv known = TA_KV_INIT;
    ta_status status = TA_OK;
    if (rank >= map->ranks)
        return TA_OK;
    TA_TRY(ta_struct_read(TA_STRUCT(ta_kv), cache->name, kv, &known));
    int32_t *held = malloc((size_t)r->config.batch * sizeof *held);
    if (!held)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for %d sequences", (int)r->config.batch);
    for (int32_t b = 0; status == TA_OK && b < r->config.batch; ++b) {
        ta_shard_map divided = ta_shard_divided(map, r->config.lengths[b]);
        status = ta_shard_count(&divided, rank, r->config.lengths[b], &held[b]);
    }
    if (status == TA_OK)
        status = ta_reshard_open(r, &known, tokens, held, cache);
    free(held);
    return status;
}

static ta_status check_device(ta_group *group, ta_device *device, void *stream, ta_resharding *r)
{
    if (group && group->device && device && device != group->device)
        return ta_fail(TA_ERR_INVALID, "device is %s: must be NULL or the group's, %s",
                       device->name, group->device->name);
    if (group && group->device)
        device = group->device;
    if (stream && (!device || !device->ops->has_streams))
        return ta_fail(TA_ERR_INVALID, "stream is %p: must be NULL for host memory", stream);
    if (device && ta_device_captures(device, stream))
        return ta_fail(TA_ERR_UNSUPPORTED, "stream is captured: resharding waits for the device");
    r->device = device && device->ops->alloc_host ? device : NULL;
    return TA_OK;
}

/* Everything that can fail on one rank alone. */
static ta_status prepare(ta_resharding *r, const ta_kv *from_kv, const ta_kv *to_kv,
                         move_list *list, side *from, side *to)
{
    const ta_reshard_config *c = &r->config;
    size_t token = r->k_row + r->v_row, bytes = token < MESSAGE_BYTES ? MESSAGE_BYTES : token;
    void *memory;
    TA_TRY(list_moves(r, list));
    TA_TRY(open_side(r, from_kv, &c->from, c->from_tokens, &from->cache));
    TA_TRY(open_side(r, to_kv, &c->to, c->to_tokens, &to->cache));
    TA_TRY(get_memory(r, 2 * bytes, &memory));
    from->memory = memory;
    to->memory = from->memory + bytes;
    return TA_OK;
}

static const int32_t *bounds_of(const ta_shard_map *map)
{
    return map->bounds;
}

static int bounds_count(const ta_shard_map *map)
{
    return map->kind == TA_SHARD_WEIGHTED ? map->ranks : map->ranks + 1;
}

static ta_status agree(const ta_resharding *r, ta_status status)
{
    const ta_reshard_config *c = &r->config;
    ta_agreement agreement = {.what = "reshardings",
                              .failed = "could not reshard",
                              .others = TA_ERR_MISMATCH,
                              .stream = r->stream};
    const ta_field fields[] = {
        TA_FIELD_OF_INTEGER("config.from.kind", c->from.kind),
        TA_FIELD_OF_INTEGER("config.from.ranks", c->from.ranks),
        TA_FIELD_OF_INTEGER("config.from.block", c->from.block),
        TA_FIELD_OF_INTEGERS("config.from.bounds", bounds_of(&c->from), bounds_count(&c->from)),
        TA_FIELD_OF_INTEGER("config.to.kind", c->to.kind),
        TA_FIELD_OF_INTEGER("config.to.ranks", c->to.ranks),
        TA_FIELD_OF_INTEGER("config.to.block", c->to.block),
        TA_FIELD_OF_INTEGERS("config.to.bounds", bounds_of(&c->to), bounds_count(&c->to)),
        TA_FIELD_OF_INTEGER("config.batch", c->batch),
        TA_FIELD_OF_INTEGER("config.kv_heads", c->kv_heads),
        TA_FIELD_OF_INTEGER("config.k_dim", c->k_dim),
        TA_FIELD_OF_INTEGER("config.v_dim", c->v_dim),
        TA_FIELD_OF_INTEGER("config.kv_dtype", c->kv_dtype),
        TA_FIELD_OF_INTEGERS("config.lengths", c->lengths, c->batch),
    };
    if (status == TA_OK)
        TA_AGREE_ON(&agreement, fields);
    return ta_agree(r->group, &agreement, status);
}

static ta_status move_all(const ta_resharding *r, const move_list *list, side *from, side *to)
{
    ta_status status = TA_OK;
    ta_group *group = r->group;
    if (group)
        group->label = ta_label(TA_LABEL_RESHARD, TA_ELEMENT_BYTE, TA_REDUCE_SUM, 0, 0);
    for (int distance = 0; status == TA_OK && distance < ta_group_size(group); ++distance)
        status = move_at(r, list, from, to, distance);
    if (status == TA_OK && group && group->device)
        status = group->ops->wait(group, r->stream);
    else if (status == TA_OK && r->device)
        status = r->device->ops->synchronize(r->device, r->stream);
    if (group)
        group->label = 0;
    if (status != TA_OK && group) /* the others may wait for this rank */
        ta_group_abort(group, ta_last_error());
    return status;
}

ta_status ta_reshard(ta_group *group, ta_device *device, const ta_reshard_config *config,
                     const ta_kv *from, const ta_kv *to, void *stream)
{
    ta_resharding r = {.group = group, .stream = stream};
    side out = {.cache = {.name = "from"}}, in = {.cache = {.name = "to"}, .store = 1};
    move_list list = {0};
    ta_status status = check_device(group, device, stream, &r);
    if (status == TA_OK)
        status = resolve(config, &r);
    if (status == TA_OK)
        status = prepare(&r, from, to, &list, &out, &in);
    status = agree(&r, status);
    if (status == TA_OK)
        status = move_all(&r, &list, &out, &in);
    free_memory(&r, out.memory);
    ta_reshard_close(&out.cache);
    ta_reshard_close(&in.cache);
    free(list.moves);
    return status;
}
