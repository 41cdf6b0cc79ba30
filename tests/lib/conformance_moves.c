/* The part of the conformance suite that moves bytes: messages, broadcast, all-gather.
 * See conformance.h. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

/* Large messages are tried from fewer roots and at fewer distances, to save time. */
static int step_for(size_t bytes, int size)
{
    return bytes > 100000 && size > 2 ? size - 1 : 1;
}

/* To the rank at a distance, from the rank at that distance on the other side. */
static ta_status check_ring(conformance *c, size_t bytes)
{
    int size = c->group->size, rank = c->group->rank;
    area out, in;
    TA_TRY(area_make(c, bytes, &out));
    TA_TRY(area_make(c, bytes, &in));
    for (int distance = 1; distance < size; distance += step_for(bytes, size)) {
        int to = (rank + distance) % size, from = (rank + size - distance) % size;
        snprintf(c->what, sizeof c->what, "%zu bytes around the ring by %d", bytes, distance);
        pattern_fill(out.host, bytes, rank, distance);
        TA_TRY(area_write(c, &out));
        if ((rank + distance) % 3) { /* in two parts, next to ranks that do it at once */
            TA_TRY(
                ta_group_start(c->group, out.memory, bytes, to, in.memory, bytes, from, c->stream));
            TA_TRY(ta_group_finish(c->group, c->stream));
        } else {
            TA_TRY(ta_group_exchange(c->group, out.memory, bytes, to, in.memory, bytes, from,
                                     c->stream));
        }
        TA_TRY(area_read(c, &in));
        CONFORM(c, pattern_is(in.host, bytes, from, distance));
        TA_TRY(area_read(c, &out));
        CONFORM(c, pattern_is(out.host, bytes, rank, distance));
    }
    area_free(c, &in);
    area_free(c, &out);
    return TA_OK;
}

/* One-sided messages along a chain, several on their way, in order. */
static ta_status check_chain(conformance *c, size_t bytes, area *a)
{
    int size = c->group->size, rank = c->group->rank;
    for (int round = 0; round < (bytes > 100000 ? 2 : 6); ++round) {
        snprintf(c->what, sizeof c->what, "%zu bytes along the chain, round %d", bytes, round);
        if (rank > 0)
            TA_TRY(ta_group_exchange(c->group, NULL, 0, -1, a->memory, bytes, rank - 1, c->stream));
        TA_TRY(area_read(c, a));
        CONFORM(c, rank == 0 || pattern_is(a->host, bytes, rank - 1, round));
        pattern_fill(a->host, bytes, rank, round);
        TA_TRY(area_write(c, a));
        if (rank < size - 1)
            TA_TRY(ta_group_exchange(c->group, a->memory, bytes, rank + 1, NULL, 0, -1, c->stream));
    }
    return TA_OK;
}

static ta_status check_broadcast(conformance *c, size_t bytes, area *a)
{
    int size = c->group->size, rank = c->group->rank;
    for (int root = 0; root < size; root += step_for(bytes, size)) {
        snprintf(c->what, sizeof c->what, "broadcast of %zu bytes from %d", bytes, root);
        pattern_fill(a->host, bytes, rank == root ? root : 99, root);
        TA_TRY(area_write(c, a));
        TA_TRY(ta_group_broadcast(c->group, a->memory, bytes, root, c->stream));
        TA_TRY(area_read(c, a));
        CONFORM(c, pattern_is(a->host, bytes, root, root));
    }
    return TA_OK;
}

/* Parts of up to `bytes`, some of them empty. */
static size_t part_bytes(size_t bytes, int rank, int round)
{
    return bytes * (size_t)((rank * 7 + round * 3) % 4) / 3;
}

static ta_status check_all_gather(conformance *c, size_t bytes)
{
    int size = c->group->size, rank = c->group->rank;
    size_t *offsets = calloc((size_t)size + 1, sizeof *offsets);
    area a;
    for (int round = 0; round < (bytes > 100000 ? 1 : 4); ++round) {
        snprintf(c->what, sizeof c->what, "all-gather of up to %zu bytes, round %d", bytes, round);
        for (int r = 0; r < size; ++r)
            offsets[r + 1] = offsets[r] + part_bytes(bytes, r, round);
        TA_TRY(area_make(c, offsets[size], &a));
        pattern_fill(a.host + offsets[rank], offsets[rank + 1] - offsets[rank], rank, round);
        TA_TRY(area_write(c, &a));
        TA_TRY(ta_group_all_gather(c->group, a.memory, offsets, c->stream));
        TA_TRY(area_read(c, &a));
        for (int r = 0; r < size; ++r)
            CONFORM(c, pattern_is(a.host + offsets[r], offsets[r + 1] - offsets[r], r, round));
        area_free(c, &a);
    }
    free(offsets);
    return TA_OK;
}

/* The checks that need memory for one message. */
static ta_status check_messages(conformance *c, size_t bytes)
{
    area a;
    TA_TRY(area_make(c, bytes, &a));
    ta_status status = check_chain(c, bytes, &a);
    if (status == TA_OK)
        status = check_broadcast(c, bytes, &a);
    area_free(c, &a);
    return status;
}

ta_status conformance_moves(conformance *c, size_t bytes)
{
    TA_TRY(check_ring(c, bytes));
    TA_TRY(check_messages(c, bytes));
    return check_all_gather(c, bytes);
}
