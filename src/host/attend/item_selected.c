/* Selected positions: what is different for an item whose rows see only the tokens of a list. The
 * list is turned into marks, one bit for each local position of the item. So its order makes no
 * difference, memory is read in ascending order, and no sorting is needed. Then the marked tokens
 * go by in tiles as others do. item.c calls this. */
#include <string.h>

#include "item.h"

size_t ta_item_marks_bytes(const ta_problem *problem)
{
    return ((size_t)problem->max_tokens / 512 + 1) * 64;
}

static void mark_list(const ta_item_state *s, ta_visible range, const int32_t *list, int32_t count)
{
    const ta_shard *shard = &s->job->problem->shard;
    int32_t low = (int32_t)ta_shard_global(shard, s->source.bounds, range.first);
    int32_t high = (int32_t)ta_shard_global(shard, s->source.bounds, range.end - 1);
    for (int32_t i = 0; i < count; i++) {
        if (list[i] < low || list[i] > high)
            continue;
        int32_t local = ta_shard_find(shard, s->source.bounds, list[i]);
        int32_t at = local - s->marks_first;
        if (local >= 0)
            s->marks[at / 64] |= UINT64_C(1) << at % 64;
    }
}

void ta_item_mark(ta_item_state *s, int32_t first, int32_t end)
{
    const ta_problem *p = s->job->problem;
    int32_t token = s->item.row / (p->query_heads / p->kv_heads);
    s->marks_first = first;
    if (first >= end)
        return;
    memset(s->marks, 0, ((size_t)(end - first) + 63) / 64 * sizeof *s->marks);
    mark_list(s, (ta_visible){first, end},
              ta_problem_list(p, s->division->first_row + token, s->item.kv_head),
              p->selected_count);
    for (int32_t row = 0; row < s->item.rows; row++) /* of tiles that have only what it sees */
        s->rows[row].visible = (ta_visible){0, INT32_MAX};
}

/* The first marked one, or unmarked one, from `at` on; `end` if there is none before. */
static int32_t next_mark(const ta_item_state *s, int32_t at, int32_t end, int marked)
{
    while (at < end) {
        uint64_t word = s->marks[at / 64];
        word = (marked ? word : ~word) >> at % 64;
        if (word) {
            at += __builtin_ctzll(word);
            return at < end ? at : end;
        }
        at += 64 - at % 64;
    }
    return end;
}

void ta_item_attend_marked(const ta_item_state *s, int32_t first, int32_t end)
{
    ta_tile *tile = &s->buffers->tile;
    int32_t most =
        ta_tile_tokens(s->job->problem, s->item.heads, s->item.rows > TA_ROW_BLOCK, s->widens);
    int32_t at = first - s->marks_first;
    end -= s->marks_first;
    ta_tile_begin(&s->source, tile);
    while ((at = next_mark(s, at, end, 1)) < end) {
        int32_t left = most - tile->count, run_end = next_mark(s, at, end, 0);
        run_end = run_end - at < left ? run_end : at + left;
        ta_tile_list(&s->source, s->marks_first + at, run_end - at, tile);
        at = run_end;
        if (tile->count < most)
            continue;
        ta_item_attend_tile(s);
        ta_tile_begin(&s->source, tile);
    }
    if (tile->count > 0)
        ta_item_attend_tile(s);
}
