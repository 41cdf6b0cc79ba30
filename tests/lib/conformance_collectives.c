/* The part of the conformance suite about the public collectives: every kind of element, in place
 * and out of place, short and long vectors. The inputs are small integers, so that every sum is
 * exact and known. See conformance.h. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"

/* Which collective is tried, and on what. */
typedef struct trial {
    ta_element_kind element;
    ta_reduction reduction;
    bool in_place;
    size_t count;
} trial;

/* Sums over 16 ranks are exact in all kinds, also in the 8 bits of bf16. */
static int64_t input(int rank, size_t i)
{
    return (int64_t)((i * 31 + (size_t)rank * 17 + (i >> 9)) % 13) - 6;
}

static int64_t expected(const trial *t, int size, size_t i)
{
    return conformance_reduced(t->reduction, size, i, input);
}

/* The bits of a number as an element. */
static uint64_t encode(ta_element_kind element, int64_t value)
{
    uint64_t bits = 0;
    uint16_t half = 0;
    float real = (float)value;
    switch (element) {
    case TA_ELEMENT_F32:
        memcpy(&bits, &real, sizeof real);
        break;
    case TA_ELEMENT_F16:
    case TA_ELEMENT_BF16:
        ta_store(element == TA_ELEMENT_F16 ? TA_F16 : TA_BF16, &half, 0, real);
        bits = half;
        break;
    case TA_ELEMENT_BYTE:
        bits = (uint8_t)value;
        break;
    case TA_ELEMENT_I32:
        bits = (uint32_t)value;
        break;
    case TA_ELEMENT_I64:
        bits = (uint64_t)value;
        break;
    }
    return bits;
}

static void put(const trial *t, area *a, size_t i, int64_t value)
{
    uint64_t bits = encode(t->element, value);
    memcpy(a->host + i * ta_element_bytes(t->element), &bits, ta_element_bytes(t->element));
}

static bool is(const trial *t, const area *a, size_t i, int64_t value)
{
    uint64_t bits = encode(t->element, value), found = 0;
    memcpy(&found, a->host + i * ta_element_bytes(t->element), ta_element_bytes(t->element));
    return found == bits;
}

static void describe(conformance *c, const trial *t, const char *name)
{
    snprintf(c->what, sizeof c->what, "%s, %s of %zu of kind %d, %s place", name,
             t->reduction == TA_REDUCE_MAX ? "maximum" : "sum", t->count, (int)t->element,
             t->in_place ? "in" : "out of");
}

static ta_status check_all_reduce(conformance *c, const trial *t)
{
    size_t bytes = t->count * ta_element_bytes(t->element);
    area from, other, *to = t->in_place ? &from : &other;
    describe(c, t, "ta_all_reduce");
    TA_TRY(area_make(c, bytes, &from));
    TA_TRY(area_make(c, bytes, &other));
    for (size_t i = 0; i < t->count; ++i)
        put(t, &from, i, input(c->group->rank, i));
    TA_TRY(area_write(c, &from));
    TA_TRY(ta_all_reduce(c->group, c->memory->device, from.memory, to->memory, t->count, t->element,
                         t->reduction, c->stream));
    TA_TRY(area_read(c, to));
    for (size_t i = 0; i < t->count; ++i)
        CONFORM(c, is(t, to, i, expected(t, c->group->size, i)));
    TA_TRY(area_read(c, &from));
    for (size_t i = 0; i < t->count && !t->in_place; ++i)
        CONFORM(c, is(t, &from, i, input(c->group->rank, i)));
    area_free(c, &other);
    area_free(c, &from);
    return TA_OK;
}

static ta_status check_all_gather(conformance *c, const trial *t)
{
    size_t each = ta_element_bytes(t->element), ranks = (size_t)c->group->size;
    size_t own = (size_t)c->group->rank * t->count;
    area from, to;
    describe(c, t, "ta_all_gather");
    TA_TRY(area_make(c, t->count * each, &from));
    TA_TRY(area_make(c, ranks * t->count * each, &to));
    for (size_t i = 0; i < t->count; ++i)
        put(t, t->in_place ? &to : &from, t->in_place ? own + i : i, input(c->group->rank, i));
    TA_TRY(area_write(c, &from));
    TA_TRY(area_write(c, &to));
    TA_TRY(ta_all_gather(c->group, c->memory->device,
                         t->in_place ? (char *)to.memory + own * each : from.memory, to.memory,
                         t->count, t->element, c->stream));
    TA_TRY(area_read(c, &to));
    for (size_t r = 0; r < ranks; ++r)
        for (size_t i = 0; i < t->count; ++i)
            CONFORM(c, is(t, &to, r * t->count + i, input((int)r, i)));
    area_free(c, &to);
    area_free(c, &from);
    return TA_OK;
}

static ta_status check_reduce_scatter(conformance *c, const trial *t)
{
    size_t each = ta_element_bytes(t->element), all = (size_t)c->group->size * t->count;
    size_t own = (size_t)c->group->rank * t->count;
    area from, to;
    describe(c, t, "ta_reduce_scatter");
    TA_TRY(area_make(c, all * each, &from));
    TA_TRY(area_make(c, t->count * each, &to));
    for (size_t i = 0; i < all; ++i)
        put(t, &from, i, input(c->group->rank, i));
    TA_TRY(area_write(c, &from));
    TA_TRY(ta_reduce_scatter(c->group, c->memory->device, from.memory,
                             t->in_place ? (char *)from.memory + own * each : to.memory, t->count,
                             t->element, t->reduction, c->stream));
    TA_TRY(area_read(c, &from));
    TA_TRY(area_read(c, &to));
    for (size_t i = 0; i < t->count; ++i)
        CONFORM(c, is(t, t->in_place ? &from : &to, t->in_place ? own + i : i,
                      expected(t, c->group->size, own + i)));
    for (size_t i = 0; i < all; ++i)
        if (!t->in_place || i < own || i >= own + t->count)
            CONFORM(c, is(t, &from, i, input(c->group->rank, i)));
    area_free(c, &to);
    area_free(c, &from);
    return TA_OK;
}

static ta_status check_broadcast(conformance *c, const trial *t, int root)
{
    area a;
    describe(c, t, "ta_broadcast");
    TA_TRY(area_make(c, t->count * ta_element_bytes(t->element), &a));
    for (size_t i = 0; i < t->count; ++i)
        put(t, &a, i, input(c->group->rank, i));
    TA_TRY(area_write(c, &a));
    TA_TRY(
        ta_broadcast(c->group, c->memory->device, a.memory, t->count, t->element, root, c->stream));
    TA_TRY(area_read(c, &a));
    for (size_t i = 0; i < t->count; ++i)
        CONFORM(c, is(t, &a, i, input(root, i)));
    area_free(c, &a);
    return TA_OK;
}

ta_status conformance_collectives(conformance *c, size_t bytes)
{
    for (int kind = 0; kind < 24; ++kind) {
        trial t = {(ta_element_kind)(kind / 4), (ta_reduction)(kind & 1), kind & 2, 0};
        t.count = bytes / ta_element_bytes(t.element);
        if (bytes > 100000 && kind % 10 != 4) /* to save time: of the large ones f32 and bf16 */
            continue;
        if (t.element != TA_ELEMENT_BYTE) {
            TA_TRY(check_all_reduce(c, &t));
            TA_TRY(check_reduce_scatter(c, &t));
        }
        TA_TRY(check_all_gather(c, &t));
        TA_TRY(check_broadcast(c, &t, kind % c->group->size));
    }
    return ta_barrier(c->group, c->memory->device, c->stream);
}

/* 256 and many ones: in bf16 each of them alone would be rounded away, and in f16 each quarter. */
ta_status conformance_rounds_once(conformance *c)
{
    static const size_t counts[] = {1, 40000}; /* a short and a long vector */
    for (int i = 0; i < 4; ++i) {
        trial t = {i & 1 ? TA_ELEMENT_F16 : TA_ELEMENT_BF16, TA_REDUCE_SUM, true, counts[i / 2]};
        ta_dtype dtype = i & 1 ? TA_F16 : TA_BF16;
        float small = i & 1 ? 0.0625f : 1.0f, sum = 256 + small * (float)(c->group->size - 1);
        uint16_t wanted;
        area a;
        describe(c, &t, "rounding once");
        TA_TRY(area_make(c, t.count * 2, &a));
        for (size_t k = 0; k < t.count; ++k)
            ta_store(dtype, a.host, (int64_t)k, c->group->rank ? small : 256);
        TA_TRY(area_write(c, &a));
        TA_TRY(ta_all_reduce(c->group, c->memory->device, a.memory, a.memory, t.count, t.element,
                             t.reduction, c->stream));
        TA_TRY(area_read(c, &a));
        ta_store(dtype, &wanted, 0, sum);
        for (size_t k = 0; k < t.count; ++k)
            CONFORM(c, memcmp(a.host + 2 * k, &wanted, 2) == 0);
        area_free(c, &a);
    }
    return TA_OK;
}
