/* What attend() may take for granted of selected positions: each is in its sequence, none stands in
 * a list twice, and those that are here and that the row sees have a page. Of a position that
 * stands twice the rank that holds it finds out, with a bit for each token that it may hold. Called
 * at every step by decode/api.c, where the host sees the lists, else by decode/check_more.c. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "device.h"

/* A list, and which sequence's cache has some of its positions. */
typedef struct selection {
    const ta_problem *problem;
    const ta_kv *kv;
    int64_t row;
    int32_t kv_head;
    const int32_t *list;
    int32_t sequence; /* whose positions they are */
    int32_t source;   /* whose cache has [from, to) of them */
    int32_t from, to;
    ta_visible seen; /* what the row sees of that cache, but for the list */
} selection;

size_t ta_selected_marks_bytes(const ta_problem *problem)
{
    return ((size_t)problem->max_tokens / 64 + 1) * sizeof(uint64_t);
}

__attribute__((format(printf, 3, 4))) static ta_status fail(const selection *s, int32_t place,
                                                            const char *must, ...)
{
    char text[160];
    va_list arguments;
    va_start(arguments, must);
    vsnprintf(text, sizeof text, must, arguments);
    va_end(arguments);
    return ta_fail(TA_ERR_INVALID, "call.selected of row %lld, list %d, place %d is %d: must %s",
                   (long long)s->row, s->problem->selected_lists > 1 ? (int)s->kv_head : 0,
                   (int)place, (int)s->list[place], text);
}

/* Where this rank has what stands at a place of the list; -1: nowhere. */
static int32_t local_of(const selection *s, int32_t place)
{
    int32_t position = s->list[place];
    if (position < s->from || position >= s->to)
        return -1;
    return ta_shard_find(&s->problem->shard, ta_kv_bounds(s->kv, s->source), position);
}

/* Pages of tokens that the row does not see may have been given back. */
static int lacks_page(const selection *s, int32_t local)
{
    const ta_kv *kv = s->kv;
    if (!kv->page_table || local < s->seen.first || local >= s->seen.end)
        return 0;
    int32_t page = kv->page_table[s->source * kv->page_table_stride + local / kv->page_tokens];
    return page < 0 || page >= kv->page_count;
}

static ta_status mark_all(const selection *s, uint64_t *marks)
{
    for (int32_t i = 0; i < s->problem->selected_count; i++) {
        int32_t local = local_of(s, i);
        if (local < 0)
            continue;
        if (marks[local / 64] >> local % 64 & 1)
            return fail(s, i, "not stand in the list twice");
        if (lacks_page(s, local))
            return fail(s, i, "have a page in kv.page_table, from 0 to kv.page_count - 1, %d",
                        (int)s->kv->page_count - 1);
        marks[local / 64] |= UINT64_C(1) << local % 64;
    }
    for (int32_t i = 0; i < s->problem->selected_count; i++) {
        int32_t local = local_of(s, i);
        if (local >= 0)
            marks[local / 64] = 0;
    }
    return TA_OK;
}

/* Of the positions [from, to), which are in the cache of `source`. */
static ta_status check_part(selection s, int32_t source, int32_t from, int32_t to, uint64_t *marks)
{
    const ta_problem *p = s.problem;
    int32_t length = s.kv->lengths[s.sequence];
    int32_t token = (int32_t)(s.row - ta_problem_first_row(p, s.sequence));
    int32_t x = length - ta_problem_query_tokens(p, s.sequence) + token;
    s.source = source;
    s.from = from;
    s.to = to;
    s.seen =
        ta_shard_visible(&p->shard, ta_kv_bounds(s.kv, source), length, x, p->causal, p->window);
    return mark_all(&s, marks);
}

static ta_status check_list(selection s, uint64_t *marks)
{
    const ta_problem *p = s.problem;
    int32_t length = s.kv->lengths[s.sequence], shared = ta_problem_shared(p, s.sequence);
    for (int32_t i = 0; i < p->selected_count; i++)
        if (s.list[i] < -1 || s.list[i] >= length)
            return fail(&s, i, "be -1 or a position of sequence %d, which has %d tokens",
                        (int)s.sequence, (int)length);
    TA_TRY(check_part(s, s.sequence, shared, length, marks));
    if (!shared)
        return TA_OK;
    return check_part(s, p->prefix_starts[ta_problem_group(p, s.sequence)], 0, shared, marks);
}

ta_status ta_check_host_selected(const ta_problem *problem, const ta_kv *kv, uint64_t *marks)
{
    const ta_problem *p = problem;
    memset(marks, 0, ta_selected_marks_bytes(p));
    for (int64_t row = 0; p->selected && row < p->rows; row++)
        for (int32_t head = 0; head < p->selected_lists; head++)
            TA_TRY(check_list((selection){.problem = p,
                                          .kv = kv,
                                          .row = row,
                                          .kv_head = head,
                                          .list = ta_problem_list(p, row, head),
                                          .sequence = ta_problem_sequence_of(p, row)},
                              marks));
    return TA_OK;
}
