/* Reductions over the messages of a group, for engines that have none of their own (see group.c).
 * They go through a small buffer piece by piece, so that they allocate nothing, and combine in an
 * order that depends on the ranks alone: the same bits in every run. */
#include <string.h>

#include "base/status.h"
#include "group.h"

typedef union piece {
    float f32[TA_REDUCE_PIECE_BYTES / 4];
    int64_t i64[TA_REDUCE_PIECE_BYTES / 8];
} piece;

static float max_f32(float a, float b)
{
    return a != a || a > b ? a : b; /* not fmaxf(), which would hide a NaN */
}

/* to = reduction(a, b). `to` may be either of them. */
static void combine(void *to, const void *a, const void *b, size_t count, ta_element_kind element,
                    ta_reduction reduction)
{
    float *to_f = to;
    int64_t *to_i = to;
    const float *a_f = a, *b_f = b;
    const int64_t *a_i = a, *b_i = b;
    if (element == TA_ELEMENT_F32 && reduction == TA_REDUCE_SUM)
        for (size_t i = 0; i < count; ++i)
            to_f[i] = a_f[i] + b_f[i];
    else if (element == TA_ELEMENT_F32)
        for (size_t i = 0; i < count; ++i)
            to_f[i] = max_f32(a_f[i], b_f[i]);
    else if (reduction == TA_REDUCE_SUM)
        for (size_t i = 0; i < count; ++i)
            to_i[i] = (int64_t)((uint64_t)a_i[i] + (uint64_t)b_i[i]);
    else
        for (size_t i = 0; i < count; ++i)
            to_i[i] = a_i[i] > b_i[i] ? a_i[i] : b_i[i];
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

ta_status ta_reduce_all(ta_group *group, void *data, size_t count, ta_element_kind element,
                        ta_reduction reduction)
{
    size_t each = ta_element_bytes(element), most = TA_REDUCE_PIECE_BYTES / each;
    for (size_t done = 0; done < count; done += most)
        TA_TRY(reduce_piece(group, (char *)data + done * each,
                            count - done < most ? count - done : most, element, reduction));
    return TA_OK;
}

/* What is left of a part at `done`, as one message. */
static size_t next_piece(size_t part, size_t done, size_t most)
{
    size_t left = part > done ? part - done : 0;
    return left < most ? left : most;
}

/* Everybody sends each other rank that rank's part: first to the next one, then the one after. */
ta_status ta_reduce_part(ta_group *group, const void *from, void *to, const size_t *offsets,
                         ta_element_kind element, ta_reduction reduction)
{
    size_t each = ta_element_bytes(element), most = TA_REDUCE_PIECE_BYTES / each;
    int size = group->size, rank = group->rank;
    size_t own = offsets[rank + 1] - offsets[rank];
    if (own)
        memmove(to, (const char *)from + offsets[rank] * each, own * each);
    for (int distance = 1; distance < size; ++distance) {
        int next = (rank + distance) % size, previous = (rank + size - distance) % size;
        size_t theirs = offsets[next + 1] - offsets[next];
        for (size_t done = 0; done < own || done < theirs; done += most) {
            piece received;
            size_t out = next_piece(theirs, done, most), in = next_piece(own, done, most);
            TA_TRY(ta_group_exchange(group, (const char *)from + (offsets[next] + done) * each,
                                     out * each, out ? next : -1, &received, in * each,
                                     in ? previous : -1, NULL));
            combine((char *)to + done * each, (char *)to + done * each, &received, in, element,
                    reduction);
        }
    }
    return TA_OK;
}
