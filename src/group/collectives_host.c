/* The public collectives over the messages of a group of host memory: see collectives.h. Short
 * vectors go in as few rounds as there are, long ones so that every rank sends each byte about
 * twice, whatever the number of ranks. What is to be sent depends on count and ranks alone, never
 * on where the memory is: a rank on the host and one that stages a GPU's send the same messages. */
#include <string.h>

#include "base/status.h"
#include "collectives.h"

/* Up to this size a vector goes in log2(ranks) rounds of all of it. */
#define SHORT_BYTES ((size_t)65536)

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- Memory of the device, by way of the stage ----------------------------------------------- */

/* Begin to copy in stream order; on the host it is done. `to` may be `from`. */
static ta_status copy(const ta_collective *c, void *to, const void *from, size_t bytes)
{
    if (to == from || bytes == 0)
        return TA_OK;
    if (c->device)
        return c->device->ops->copy(c->device, to, from, bytes, c->stream);
    memmove(to, from, bytes);
    return TA_OK;
}

/* Until the stage has what was copied, and may be written to again. */
static ta_status wait(const ta_collective *c)
{
    return c->device ? c->device->ops->synchronize(c->device, c->stream) : TA_OK;
}

/* Where a piece of a result is made: in its place, or in the stage. */
static char *work_memory(const ta_collective *c, void *result)
{
    return c->device ? c->stage : result;
}

/* A message with both sides in memory of the caller's; one of up to half the stage. */
static ta_status swap(ta_collective *c, const char *send, int to, char *receive, int from,
                      size_t bytes)
{
    char *out = c->device ? c->stage : (char *)send;
    char *in = c->device ? c->stage + TA_STAGE_BYTES / 2 : receive;
    TA_TRY(copy(c, out, send, bytes));
    TA_TRY(wait(c));
    TA_TRY(ta_group_exchange(c->group, out, bytes, to, in, bytes, from, NULL));
    return copy(c, receive, in, bytes);
}

/* The parts of `count` things, one for each rank, as even as can be. */
static void divide(ta_collective *c, size_t count, size_t each)
{
    size_t ranks = (size_t)c->group->size;
    for (size_t r = 0; r <= ranks; ++r)
        c->offsets[r] = (count / ranks * r + count % ranks * r / ranks) * each;
}

/* ---- The collectives ------------------------------------------------------------------------- */

/* Every rank adds up its part and hands it round. */
static ta_status reduce_long(ta_collective *c, char *data, size_t count)
{
    divide(c, count, 1);
    char *own = data + c->offsets[c->group->rank] * c->each;
    TA_TRY(
        ta_group_reduce_scatter(c->group, data, own, c->offsets, c->element, c->reduction, NULL));
    divide(c, count, c->each);
    return ta_group_all_gather(c->group, data, c->offsets, NULL);
}

ta_status ta_collective_all_reduce(ta_collective *c, const void *from, void *to, size_t count)
{
    size_t most = TA_STAGE_BYTES / c->each;
    for (size_t done = 0; done < count; done += most) {
        size_t next = smaller(count - done, most), bytes = next * c->each;
        char *result = (char *)to + done * c->each, *work = work_memory(c, result);
        TA_TRY(wait(c)); /* for what the piece before left in the stage */
        TA_TRY(copy(c, work, (const char *)from + done * c->each, bytes));
        TA_TRY(wait(c));
        if (bytes <= SHORT_BYTES)
            TA_TRY(ta_group_all_reduce(c->group, work, work, next, c->element, c->reduction, NULL));
        else
            TA_TRY(reduce_long(c, work, next));
        TA_TRY(copy(c, result, work, bytes));
    }
    return wait(c);
}

/* Around a ring: every rank passes on what it got last. */
static ta_status gather_long(ta_collective *c, char *to, size_t block)
{
    int size = c->group->size, rank = c->group->rank, next = (rank + 1) % size;
    int previous = (rank + size - 1) % size;
    for (int hop = 0; hop < size - 1; ++hop) {
        char *out = to + (size_t)((rank + size - hop) % size) * block;
        char *in = to + (size_t)((rank + 2 * size - hop - 1) % size) * block;
        for (size_t done = 0; done < block; done += TA_STAGE_BYTES / 2)
            TA_TRY(swap(c, out + done, next, in + done, previous,
                        smaller(block - done, TA_STAGE_BYTES / 2)));
    }
    return wait(c);
}

ta_status ta_collective_all_gather(ta_collective *c, const void *from, void *to, size_t count)
{
    size_t ranks = (size_t)c->group->size, block = count * c->each;
    if (block > TA_STAGE_BYTES / ranks) {
        TA_TRY(copy(c, (char *)to + (size_t)c->group->rank * block, from, block));
        return gather_long(c, to, block);
    }
    char *work = work_memory(c, to);
    TA_TRY(copy(c, work + (size_t)c->group->rank * block, from, block));
    TA_TRY(wait(c));
    divide(c, ranks * block, 1);
    TA_TRY(ta_group_all_gather(c->group, work, c->offsets, NULL));
    TA_TRY(copy(c, to, work, ranks * block));
    return wait(c);
}

/* One piece of each rank's part, from the stage or from where it is. */
static ta_status reduce_pieces(ta_collective *c, const char *from, char *to, size_t count,
                               size_t next)
{
    size_t ranks = (size_t)c->group->size, bytes = next * c->each;
    if (!c->device)
        return ta_reduce_even_part(c->group, from, to, count, next, c->element, c->reduction);
    TA_TRY(wait(c));
    for (size_t r = 0; r < ranks; ++r)
        TA_TRY(copy(c, c->stage + r * bytes, from + r * count * c->each, bytes));
    TA_TRY(wait(c));
    char *own = c->stage + (size_t)c->group->rank * bytes;
    TA_TRY(ta_reduce_even_part(c->group, c->stage, own, next, next, c->element, c->reduction));
    return copy(c, to, own, bytes);
}

ta_status ta_collective_reduce_scatter(ta_collective *c, const void *from, void *to, size_t count)
{
    size_t most = smaller(ta_reduce_piece_elements(c->element),
                          TA_STAGE_BYTES / c->each / (size_t)c->group->size);
    if (most == 0)
        return ta_fail(TA_ERR_UNSUPPORTED, "a group of %d ranks is too large to reduce and scatter",
                       c->group->size);
    for (size_t done = 0; done < count; done += most)
        TA_TRY(reduce_pieces(c, (const char *)from + done * c->each, (char *)to + done * c->each,
                             count, smaller(count - done, most)));
    return wait(c);
}

/* The root gives every rank a part, and they hand them round: it sends everything twice, not
 * log2(ranks) times. */
static ta_status broadcast_long(ta_collective *c, char *data, size_t bytes, int root)
{
    ta_group *group = c->group;
    divide(c, bytes, 1);
    for (int rank = 0; rank < group->size; ++rank) {
        size_t part = c->offsets[rank + 1] - c->offsets[rank];
        if (rank != root && (group->rank == root || group->rank == rank))
            TA_TRY(ta_group_exchange(group, data + c->offsets[rank], part,
                                     group->rank == root ? rank : -1, data + c->offsets[rank], part,
                                     group->rank == root ? -1 : root, NULL));
    }
    return ta_group_all_gather(group, data, c->offsets, NULL);
}

ta_status ta_collective_broadcast(ta_collective *c, void *data, size_t count, int root)
{
    size_t all = count * c->each;
    for (size_t done = 0; done < all; done += TA_STAGE_BYTES) {
        size_t bytes = smaller(all - done, TA_STAGE_BYTES);
        char *result = (char *)data + done, *work = work_memory(c, result);
        TA_TRY(wait(c));
        if (c->group->rank == root)
            TA_TRY(copy(c, work, result, bytes));
        TA_TRY(wait(c));
        if (bytes <= SHORT_BYTES || c->group->size < 4)
            TA_TRY(ta_group_broadcast(c->group, work, bytes, root, NULL));
        else
            TA_TRY(broadcast_long(c, work, bytes, root));
        if (c->group->rank != root)
            TA_TRY(copy(c, result, work, bytes));
    }
    return wait(c);
}
