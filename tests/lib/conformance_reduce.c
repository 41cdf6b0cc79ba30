/* The part of the conformance suite that adds up: all-reduce and reduce-scatter, of both kinds of
 * elements, in place and out of place. The inputs are small integers, so that every sum is exact
 * and known. See conformance.h. */
#include "conformance.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Which reduction is tried, and how. */
typedef struct trial {
    ta_element_kind element;
    ta_reduction reduction;
    bool in_place;
} trial;

static int64_t input(int rank, size_t i)
{
    return (int64_t)((i * 31 + (size_t)rank * 17) % 1021) - 510;
}

static int64_t expected(const trial *t, int size, size_t i)
{
    return conformance_reduced(t->reduction, size, i, input);
}

static void put(const trial *t, area *a, size_t i, int64_t value)
{
    float narrow = (float)value;
    if (t->element == TA_ELEMENT_F32)
        memcpy(a->host + i * sizeof narrow, &narrow, sizeof narrow);
    else
        memcpy(a->host + i * sizeof value, &value, sizeof value);
}

static bool is(const trial *t, const area *a, size_t i, int64_t value)
{
    float narrow;
    int64_t wide;
    if (t->element == TA_ELEMENT_F32) {
        memcpy(&narrow, a->host + i * sizeof narrow, sizeof narrow);
        return narrow == (float)value;
    }
    memcpy(&wide, a->host + i * sizeof wide, sizeof wide);
    return wide == value;
}

static void describe(conformance *c, const trial *t, const char *name, size_t count)
{
    snprintf(c->what, sizeof c->what, "%s, %s of %zu %s, %s place", name,
             t->reduction == TA_REDUCE_MAX ? "max" : "sum", count,
             t->element == TA_ELEMENT_F32 ? "f32" : "i64", t->in_place ? "in" : "out of");
}

/* A filled input, and where the result goes. */
static ta_status make_areas(conformance *c, const trial *t, size_t count, size_t result_count,
                            area *from, area *to)
{
    size_t each = ta_element_bytes(t->element);
    TA_TRY(area_make(c, count * each, from));
    for (size_t i = 0; i < count; ++i)
        put(t, from, i, input(c->group->rank, i));
    TA_TRY(area_write(c, from));
    if (!t->in_place)
        TA_TRY(area_make(c, result_count * each, to));
    return TA_OK;
}

static ta_status check_all_reduce(conformance *c, const trial *t, size_t bytes)
{
    size_t count = bytes / ta_element_bytes(t->element);
    area from, other, *to = t->in_place ? &from : &other;
    describe(c, t, "all-reduce", count);
    TA_TRY(make_areas(c, t, count, count, &from, &other));
    TA_TRY(ta_group_all_reduce(c->group, from.memory, to->memory, count, t->element, t->reduction,
                               c->stream));
    TA_TRY(area_read(c, to));
    for (size_t i = 0; i < count; ++i)
        CONFORM(c, is(t, to, i, expected(t, c->group->size, i)));
    if (!t->in_place) {
        TA_TRY(area_read(c, &from));
        for (size_t i = 0; i < count; ++i)
            CONFORM(c, is(t, &from, i, input(c->group->rank, i)));
        area_free(c, &other);
    }
    area_free(c, &from);
    return TA_OK;
}

/* Parts of different sizes, every fourth of them empty. */
static ta_status check_reduce_scatter(conformance *c, const trial *t, size_t bytes)
{
    int size = c->group->size, rank = c->group->rank;
    size_t each = ta_element_bytes(t->element), most = bytes / each;
    size_t *offsets = calloc((size_t)size + 1, sizeof *offsets);
    for (int r = 0; r < size; ++r)
        offsets[r + 1] = offsets[r] + most * (size_t)((r * 7 + 3) % 4) / 3;
    size_t count = offsets[size], begin = offsets[rank], own = offsets[rank + 1] - begin;
    area from, other;
    describe(c, t, "reduce-scatter", count);
    TA_TRY(make_areas(c, t, count, own, &from, &other));
    void *to = t->in_place ? (char *)from.memory + begin * each : other.memory;
    TA_TRY(ta_group_reduce_scatter(c->group, from.memory, to, offsets, t->element, t->reduction,
                                   c->stream));
    TA_TRY(area_read(c, &from));
    for (size_t i = 0; i < count; ++i)
        if (!t->in_place || i < begin || i >= begin + own)
            CONFORM(c, is(t, &from, i, input(rank, i)));
    if (!t->in_place)
        TA_TRY(area_read(c, &other));
    for (size_t i = 0; i < own; ++i)
        CONFORM(c, is(t, t->in_place ? &from : &other, t->in_place ? begin + i : i,
                      expected(t, size, begin + i)));
    if (!t->in_place)
        area_free(c, &other);
    area_free(c, &from);
    free(offsets);
    return TA_OK;
}

ta_status conformance_reductions(conformance *c, size_t bytes)
{
    for (int kind = 0; kind < 8; ++kind) {
        if (bytes > 100000 && (kind & 1) == (kind >> 1 & 1))
            continue; /* to save time: of the large ones only sums of f32 and maxima of i64 */
        trial t = {kind & 1 ? TA_ELEMENT_I64 : TA_ELEMENT_F32,
                   kind & 2 ? TA_REDUCE_SUM : TA_REDUCE_MAX, kind & 4};
        TA_TRY(check_all_reduce(c, &t, bytes));
        TA_TRY(check_reduce_scatter(c, &t, bytes));
    }
    return TA_OK;
}

/* A NaN on one rank reaches all; infinities and the largest integers are themselves; a sum whose
 * value depends on the order has the same bits in every run. */
ta_status conformance_reduction_values(conformance *c)
{
    enum { COUNT = 64 };
    int rank = c->group->rank, size = c->group->size;
    float values[COUNT], first[COUNT];
    area a;
    TA_TRY(area_make(c, sizeof values, &a));
    for (int reduction = TA_REDUCE_SUM; reduction <= TA_REDUCE_MAX; ++reduction)
        for (int round = 0; round < 3; ++round) {
            snprintf(c->what, sizeof c->what, "special values, %s, round %d",
                     reduction == TA_REDUCE_MAX ? "max" : "sum", round);
            for (int i = 0; i < COUNT; ++i)
                values[i] = sinf((float)(i * 13 + rank * 7)) * powf(10, (float)((i + rank) % 9));
            values[0] = rank == size - 1 ? NAN : 1;
            values[1] = rank == 0 ? NAN : 1;
            values[2] = rank == size / 2 ? INFINITY : -1;
            values[3] = -INFINITY;
            memcpy(a.host, values, sizeof values);
            TA_TRY(area_write(c, &a));
            TA_TRY(ta_group_all_reduce(c->group, a.memory, a.memory, COUNT, TA_ELEMENT_F32,
                                       (ta_reduction)reduction, c->stream));
            TA_TRY(area_read(c, &a));
            memcpy(values, a.host, sizeof values);
            CONFORM(c, isnan(values[0]) && isnan(values[1]));
            CONFORM(c, values[2] == INFINITY && values[3] == -INFINITY);
            if (round == 0)
                memcpy(first, values, sizeof values);
            CONFORM(c, memcmp(first + 2, values + 2, sizeof values - 2 * sizeof *values) == 0);
        }
    area_free(c, &a);
    return TA_OK;
}
