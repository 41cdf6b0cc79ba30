/* See rotation.h. */
#include "rotation.h"

#include "base/neighbors.h"
#include "base/status.h"

int ta_rotation_owner(const ta_line *line, int hop)
{
    return (line->member + 2 * line->ranks - hop) % line->ranks;
}

static size_t tokens_of(const ta_rotation *r, int hop)
{
    int owner = ta_rotation_owner(r->line, hop);
    return (size_t)(r->line->starts[owner + 1] - r->line->starts[owner]);
}

static int next_member(const ta_line *line)
{
    return ta_next_rank(line->member, line->ranks);
}

static int previous_member(const ta_line *line)
{
    return ta_previous_rank(line->member, line->ranks);
}

static int sends_block(const ta_rotation *r, int hop)
{
    return hop < r->line->ranks - 1;
}

int ta_rotation_adds(int hop)
{
    return hop >= 2;
}

char *ta_rotation_block(const ta_rotation *rotation, int hop)
{
    return rotation->buffers[hop % 2];
}

/* S(hop) lies behind B(hop + 1), with which it is sent on; in the end there is none. */
float *ta_rotation_sums(const ta_rotation *rotation, int hop)
{
    const ta_rotation *r = rotation;
    size_t before = hop + 1 < r->line->ranks ? tokens_of(r, hop + 1) * r->block : 0;
    return (float *)(void *)(r->buffers[(hop + 1) % 2] + before);
}

/* The message of a hop, as its sender, or its receiver one hop later, sees it. */
static size_t message_bytes(const ta_rotation *r, int hop, int received)
{
    return (sends_block(r, hop) ? tokens_of(r, hop + received) * r->block : 0) +
           (ta_rotation_adds(hop) ? tokens_of(r, hop + received - 1) * r->sums : 0);
}

ta_status ta_rotation_start(const ta_rotation *rotation, int hop, void *stream)
{
    const ta_rotation *r = rotation;
    if (!sends_block(r, hop) && !ta_rotation_adds(hop))
        return TA_OK;
    const void *from = sends_block(r, hop) ? (void *)ta_rotation_block(r, hop)
                                           : (void *)ta_rotation_sums(r, hop - 1);
    return ta_group_start(r->line->group, from, message_bytes(r, hop, 0), next_member(r->line),
                          r->buffers[(hop + 1) % 2], message_bytes(r, hop, 1),
                          previous_member(r->line), stream);
}

ta_status ta_rotation_finish(const ta_rotation *rotation, int hop, void *stream)
{
    const ta_rotation *r = rotation;
    return sends_block(r, hop) || ta_rotation_adds(hop) ? ta_group_finish(r->line->group, stream)
                                                        : TA_OK;
}

ta_status ta_rotation_home(const ta_rotation *rotation, float *received, void *stream)
{
    const ta_rotation *r = rotation;
    int last = r->line->ranks - 1;
    return ta_group_exchange(r->line->group, ta_rotation_sums(r, last),
                             tokens_of(r, last) * r->sums, next_member(r->line), received,
                             tokens_of(r, 0) * r->sums, previous_member(r->line), stream);
}
