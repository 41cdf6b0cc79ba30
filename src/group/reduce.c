/* Reductions over the messages of a group, for engines that have none of their own (see group.c).
 * They go through a small buffer piece by piece, so that they allocate nothing, and combine in an
 * order that depends on the ranks alone: the same bits in every run. */
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"
#include "group.h"

typedef union piece {
    float f32[TA_REDUCE_PIECE_BYTES / 4];
    int64_t i64[TA_REDUCE_PIECE_BYTES / 8];
} piece;

/* Sums of 16-bit elements are made of floats, so a piece has no more of them than of floats. */
size_t ta_reduce_piece_elements(ta_element_kind element)
{
    size_t each = ta_element_bytes(element);
    return TA_REDUCE_PIECE_BYTES / (each < sizeof(float) ? sizeof(float) : each);
}

static int is_widened(ta_element_kind element, ta_reduction reduction)
{
    return reduction == TA_REDUCE_SUM && (element == TA_ELEMENT_F16 || element == TA_ELEMENT_BF16);
}

static ta_dtype dtype_of(ta_element_kind element)
{
    return element == TA_ELEMENT_F16 ? TA_F16 : TA_BF16;
}

static void widen(float *to, const void *from, size_t count, ta_element_kind element)
{
    for (size_t i = 0; i < count; ++i)
        to[i] = ta_load(dtype_of(element), from, (int64_t)i);
}

static void narrow(void *to, const float *from, size_t count, ta_element_kind element)
{
    for (size_t i = 0; i < count; ++i)
        ta_store(dtype_of(element), to, (int64_t)i, from[i]);
}

static float max_f32(float a, float b)
{
    return a != a || a > b ? a : b; /* not fmaxf(), which would hide a NaN */
}

static void combine_floats(float *to, const float *a, const float *b, size_t count,
                           ta_reduction reduction)
{
    if (reduction == TA_REDUCE_SUM)
        for (size_t i = 0; i < count; ++i)
            to[i] = a[i] + b[i];
    else
        for (size_t i = 0; i < count; ++i)
            to[i] = max_f32(a[i], b[i]);
}

/* Sums wrap around. */
#define COMBINE_INTEGERS(bits)                                                                     \
    static void combine_i##bits(int##bits##_t *to, const int##bits##_t *a, const int##bits##_t *b, \
                                size_t count, ta_reduction reduction)                              \
    {                                                                                              \
        for (size_t i = 0; i < count; ++i)                                                         \
            if (reduction == TA_REDUCE_SUM)                                                        \
                to[i] = (int##bits##_t)((uint##bits##_t)a[i] + (uint##bits##_t)b[i]);              \
            else                                                                                   \
                to[i] = a[i] > b[i] ? a[i] : b[i];                                                 \
    }
COMBINE_INTEGERS(32)
COMBINE_INTEGERS(64)

/* to = reduction(a, b). `to` may be either of them. */
static void combine(void *to, const void *a, const void *b, size_t count, ta_element_kind element,
                    ta_reduction reduction)
{
    switch (element) {
    case TA_ELEMENT_F32:
        combine_floats(to, a, b, count, reduction);
        break;
    case TA_ELEMENT_F16:
    case TA_ELEMENT_BF16: /* maxima: sums are widened before */
        for (size_t i = 0; i < count; ++i)
            ta_store(dtype_of(element), to, (int64_t)i,
                     max_f32(ta_load(dtype_of(element), a, (int64_t)i),
                             ta_load(dtype_of(element), b, (int64_t)i)));
        break;
    case TA_ELEMENT_I32:
        combine_i32(to, a, b, count, reduction);
        break;
    case TA_ELEMENT_I64:
        combine_i64(to, a, b, count, reduction);
        break;
    case TA_ELEMENT_BYTE: /* never added up */
        break;
    }
}

/* The ranks in recursive doubling: a power of two of them, after each of the first `extras` even
 * ranks has folded into its neighbour. */
typedef struct doubling {
    int positions, extras;
} doubling;

static int rank_at(doubling d, int position)
{
    return position < d.extras ? 2 * position + 1 : position + d.extras;
}

/* Both sides of a pair combine the lower side's values with the upper's, so that they agree to the
 * last bit, also about NaN and the sign of zero. */
static ta_status swap_and_combine(ta_group *group, void *data, size_t count, int partner,
                                  ta_element_kind element, ta_reduction reduction)
{
    piece theirs;
    size_t bytes = count * ta_element_bytes(element);
    TA_TRY(ta_group_exchange(group, data, bytes, partner, &theirs, bytes, partner, NULL));
    if (group->rank < partner)
        combine(data, data, &theirs, count, element, reduction);
    else
        combine(data, &theirs, data, count, element, reduction);
    return TA_OK;
}

static ta_status reduce_piece(ta_group *group, void *data, size_t count, ta_element_kind element,
                              ta_reduction reduction)
{
    doubling d = {1, 0};
    int rank = group->rank;
    size_t bytes = count * ta_element_bytes(element);
    while (d.positions * 2 <= group->size)
        d.positions *= 2;
    d.extras = group->size - d.positions;
    int paired = rank < 2 * d.extras, position = paired ? rank / 2 : rank - d.extras;
    if (paired && rank % 2 == 0) {
        TA_TRY(ta_group_exchange(group, data, bytes, rank + 1, NULL, 0, -1, NULL));
        return ta_group_exchange(group, NULL, 0, -1, data, bytes, rank + 1, NULL);
    }
    if (paired) {
        piece theirs;
        TA_TRY(ta_group_exchange(group, NULL, 0, -1, &theirs, bytes, rank - 1, NULL));
        combine(data, &theirs, data, count, element, reduction);
    }
    for (int distance = 1; distance < d.positions; distance *= 2)
        TA_TRY(swap_and_combine(group, data, count, rank_at(d, position ^ distance), element,
                                reduction));
    return paired ? ta_group_exchange(group, data, bytes, rank - 1, NULL, 0, -1, NULL) : TA_OK;
}

/* A piece of 16-bit elements travels as floats, and is rounded at the end. */
static ta_status reduce_wide_piece(ta_group *group, void *data, size_t count,
                                   ta_element_kind element, ta_reduction reduction)
{
    piece wide;
    widen(wide.f32, data, count, element);
    TA_TRY(reduce_piece(group, wide.f32, count, TA_ELEMENT_F32, reduction));
    narrow(data, wide.f32, count, element);
    return TA_OK;
}

ta_status ta_reduce_all(ta_group *group, void *data, size_t count, ta_element_kind element,
                        ta_reduction reduction)
{
    size_t each = ta_element_bytes(element), most = ta_reduce_piece_elements(element);
    for (size_t done = 0; done < count; done += most) {
        size_t next = count - done < most ? count - done : most;
        TA_TRY((is_widened(element, reduction) ? reduce_wide_piece : reduce_piece)(
            group, (char *)data + done * each, next, element, reduction));
    }
    return TA_OK;
}

/* ---- Parts, each to the rank that owns it ---------------------------------------------------- */

/* What every rank gives: rank r's part is elements [begin, begin + count). */
typedef struct parts {
    const size_t *offsets; /* [ranks + 1], or NULL: all have `count` elements, `stride` apart */
    size_t stride, count;
    ta_element_kind element;
    ta_reduction reduction;
} parts;

static size_t part_begin(const parts *p, int rank)
{
    return p->offsets ? p->offsets[rank] : (size_t)rank * p->stride;
}

/* What is left of a rank's part at `done`, as one message. */
static size_t piece_of(const parts *p, int rank, size_t done)
{
    size_t part = p->offsets ? p->offsets[rank + 1] - p->offsets[rank] : p->count;
    size_t left = part > done ? part - done : 0, most = ta_reduce_piece_elements(p->element);
    return left < most ? left : most;
}

/* One piece of every part: everybody sends each other rank that rank's, first to the next one, then
 * the one after. This rank's own is added up in that order too, starting with what it has. */
static ta_status reduce_pieces(ta_group *group, const char *from, void *all, const parts *p,
                               size_t done)
{
    size_t each = ta_element_bytes(p->element);
    int size = group->size, rank = group->rank, wide = is_widened(p->element, p->reduction);
    size_t own = piece_of(p, rank, done);
    const char *own_from = from + (part_begin(p, rank) + done) * each;
    char *to = own ? (char *)all + done * each : NULL;
    piece sums;
    if (wide)
        widen(sums.f32, own_from, own, p->element);
    else if (own)
        memmove(to, own_from, own * each);
    for (int distance = 1; distance < size; ++distance) {
        int next = (rank + distance) % size, previous = (rank + size - distance) % size;
        size_t out = piece_of(p, next, done);
        piece received, more;
        if (!out && !own)
            continue;
        TA_TRY(ta_group_exchange(group, from + (part_begin(p, next) + done) * each, out * each,
                                 out ? next : -1, &received, own * each, own ? previous : -1,
                                 NULL));
        if (wide) {
            widen(more.f32, &received, own, p->element);
            combine_floats(sums.f32, sums.f32, more.f32, own, p->reduction);
        } else {
            combine(to, to, &received, own, p->element, p->reduction);
        }
    }
    if (wide)
        narrow(to, sums.f32, own, p->element);
    return TA_OK;
}

static ta_status reduce_parts(ta_group *group, const void *from, void *to, const parts *p)
{
    size_t most = ta_reduce_piece_elements(p->element), longest = p->count;
    for (int rank = 0; p->offsets && rank < group->size; ++rank)
        if (p->offsets[rank + 1] - p->offsets[rank] > longest)
            longest = p->offsets[rank + 1] - p->offsets[rank];
    for (size_t done = 0; done < longest; done += most)
        TA_TRY(reduce_pieces(group, from, to, p, done));
    return TA_OK;
}

ta_status ta_reduce_part(ta_group *group, const void *from, void *to, const size_t *offsets,
                         ta_element_kind element, ta_reduction reduction)
{
    parts p = {.offsets = offsets, .element = element, .reduction = reduction};
    return reduce_parts(group, from, to, &p);
}

ta_status ta_reduce_even_part(ta_group *group, const void *from, void *to, size_t stride,
                              size_t count, ta_element_kind element, ta_reduction reduction)
{
    parts p = {NULL, stride, count, element, reduction};
    return reduce_parts(group, from, to, &p);
}
