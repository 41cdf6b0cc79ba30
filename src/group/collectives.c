/* The public collectives: their arguments, and which way they go. A group that moves the memory of
 * its device has them itself; over the messages of any other they are in collectives_host.c. */
#include "collectives.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "label.h"

/* ---- Arguments ------------------------------------------------------------------------------- */

static ta_status check_memory(ta_group *group, ta_device *device, void *stream)
{
    if (group && group->device && device && device != group->device)
        return ta_fail(TA_ERR_INVALID, "device is %s: must be NULL or the group's, %s",
                       device->name, group->device->name);
    if (group && group->device)
        return TA_OK;
    if (stream && (!device || !device->ops->has_streams))
        return ta_fail(TA_ERR_INVALID, "stream is %p: must be NULL for host memory", stream);
    if (device && ta_device_captures(device, stream) && ta_group_size(group) > 1)
        return ta_fail(TA_ERR_UNSUPPORTED,
                       "stream is captured: a group of host memory moves the memory of %s by way "
                       "of the host, which can't be recorded",
                       device->name);
    return TA_OK;
}

static ta_status check_element(ta_element_kind element, int reduces, ta_reduction reduction)
{
    int number = (int)element;
    if (number < TA_ELEMENT_BYTE || number > TA_ELEMENT_I64)
        return ta_fail(TA_ERR_INVALID,
                       "element is %d: must be from TA_ELEMENT_BYTE, %d, to "
                       "TA_ELEMENT_I64, %d",
                       number, TA_ELEMENT_BYTE, TA_ELEMENT_I64);
    if (reduces && element == TA_ELEMENT_BYTE)
        return ta_fail(TA_ERR_INVALID, "element is TA_ELEMENT_BYTE: bytes can't be added up");
    if (reduces && reduction != TA_REDUCE_SUM && reduction != TA_REDUCE_MAX)
        return ta_fail(TA_ERR_INVALID,
                       "reduction is %d: must be TA_REDUCE_SUM, %d, or TA_REDUCE_MAX, %d",
                       (int)reduction, TA_REDUCE_SUM, TA_REDUCE_MAX);
    return TA_OK;
}

static ta_status check_pointer(const char *name, const void *pointer, size_t count,
                               ta_element_kind element)
{
    if (!pointer && count)
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to %zu elements", name, count);
    if ((uintptr_t)pointer % ta_element_bytes(element))
        return ta_fail(TA_ERR_INVALID, "%s is %p: must be aligned to its %zu-byte elements", name,
                       pointer, ta_element_bytes(element));
    return TA_OK;
}

/* `wide` has a part for each rank, `count` elements each, and `narrow` one. */
static ta_status check_parts(ta_group *group, const char *wide_name, const void *wide,
                             const char *narrow_name, const void *narrow, size_t count,
                             ta_element_kind element)
{
    size_t ranks = (size_t)ta_group_size(group), bytes;
    if (__builtin_mul_overflow(count, ranks * ta_element_bytes(element), &bytes) ||
        bytes > PTRDIFF_MAX)
        return ta_fail(TA_ERR_INVALID,
                       "count is %zu: %zu times as many elements would exceed the "
                       "address space",
                       count, ranks);
    TA_TRY(check_pointer(wide_name, wide, count, element));
    TA_TRY(check_pointer(narrow_name, narrow, count, element));
    uintptr_t begin = (uintptr_t)wide, own = bytes / ranks, part = (uintptr_t)narrow;
    if (part != begin + own * (uintptr_t)ta_group_rank(group) && part < begin + bytes &&
        begin < part + own)
        return ta_fail(TA_ERR_INVALID, "%s overlaps %s and is not this rank's part of it",
                       narrow_name, wide_name);
    return TA_OK;
}

static ta_status check_pair(const void *from, const void *to, size_t count, ta_element_kind element)
{
    uintptr_t a = (uintptr_t)from, b = (uintptr_t)to, bytes;
    if (__builtin_mul_overflow(count, ta_element_bytes(element), &bytes) || bytes > PTRDIFF_MAX)
        return ta_fail(TA_ERR_INVALID, "count is %zu: would exceed the address space", count);
    TA_TRY(check_pointer("from", from, count, element));
    TA_TRY(check_pointer("to", to, count, element));
    if (a != b && a < b + bytes && b < a + bytes)
        return ta_fail(TA_ERR_INVALID, "to overlaps from: must be the same memory or another");
    return TA_OK;
}

/* ---- Ways ------------------------------------------------------------------------------------ */

/* On one rank a collective is a copy. */
static ta_status copy_alone(ta_group *group, ta_device *device, void *to, const void *from,
                            size_t bytes, void *stream)
{
    if (group && group->device)
        device = group->device;
    if (to == from || bytes == 0)
        return TA_OK;
    if (device)
        return device->ops->copy(device, to, from, bytes, stream);
    memmove(to, from, bytes);
    return TA_OK;
}

/* The others are in the call, or will be: they wait for this rank. */
static ta_status give_up(ta_group *group, ta_status status)
{
    if (status != TA_OK)
        ta_group_abort(group, ta_last_error());
    return status;
}

/* [ranks + 1] */
static ta_status get_offsets(ta_group *group, size_t **offsets)
{
    *offsets = malloc(((size_t)group->size + 1) * sizeof **offsets);
    if (*offsets)
        return TA_OK;
    return give_up(group,
                   ta_fail(TA_ERR_NO_MEMORY, "no memory for a call of %d ranks", group->size));
}

/* Get ready for a collective over messages. `c` has the element and the reduction. */
static ta_status begin(ta_collective *c, ta_group *group, ta_device *device, ta_label_call call,
                       int root, size_t count, void *stream)
{
    void *stage = NULL;
    c->group = group;
    c->device = device && device->ops->alloc_host ? device : NULL;
    c->stream = stream;
    c->each = ta_element_bytes(c->element);
    if (c->device)
        TA_TRY(give_up(group, ta_device_stage(device, &stage)));
    c->stage = stage;
    TA_TRY(get_offsets(group, &c->offsets));
    group->label = ta_label(call, c->element, c->reduction, root, count);
    return TA_OK;
}

static ta_status end(ta_collective *c, ta_status status)
{
    c->group->label = 0;
    free(c->offsets);
    return give_up(c->group, status);
}

/* How a collective with an input and an output goes, its arguments checked. */
typedef struct way {
    ta_label_call call;
    /* A group's own, which moves the memory of its device. */
    ta_status (*native)(ta_group *group, const void *from, void *to, size_t count,
                        ta_element_kind element, ta_reduction reduction, void *stream);
    ta_status (*over_messages)(ta_collective *c, const void *from, void *to, size_t count);
} way;

/* `c` has the element and the reduction. */
static ta_status go(const way *w, ta_collective *c, ta_group *group, ta_device *device,
                    const void *from, void *to, size_t count, void *stream)
{
    if (ta_group_size(group) == 1)
        return copy_alone(group, device, to, from, count * ta_element_bytes(c->element), stream);
    if (group->device)
        return w->native(group, from, to, count, c->element, c->reduction, stream);
    TA_TRY(begin(c, group, device, w->call, 0, count, stream));
    return end(c, w->over_messages(c, from, to, count));
}

/* ---- The calls ------------------------------------------------------------------------------- */

ta_status ta_all_reduce(ta_group *group, ta_device *device, const void *from, void *to,
                        size_t count, ta_element_kind element, ta_reduction reduction, void *stream)
{
    static const way all_reduce = {TA_LABEL_ALL_REDUCE, ta_group_all_reduce,
                                   ta_collective_all_reduce};
    ta_collective c = {.element = element, .reduction = reduction};
    TA_TRY(check_memory(group, device, stream));
    TA_TRY(check_element(element, 1, reduction));
    TA_TRY(check_pair(from, to, count, element));
    return go(&all_reduce, &c, group, device, from, to, count, stream);
}

static ta_status gather_natively(ta_group *group, const void *from, void *to, size_t count,
                                 ta_element_kind element, ta_reduction reduction, void *stream)
{
    size_t block = count * ta_element_bytes(element);
    char *own = (char *)to + (size_t)group->rank * block;
    size_t *offsets;
    ta_status status = TA_OK;
    (void)reduction;
    TA_TRY(get_offsets(group, &offsets));
    for (int r = 0; r <= group->size; ++r)
        offsets[r] = (size_t)r * block;
    if (own != from && block)
        status = group->device->ops->copy(group->device, own, from, block, stream);
    if (status == TA_OK)
        status = ta_group_all_gather(group, to, offsets, stream);
    free(offsets);
    return status;
}

ta_status ta_all_gather(ta_group *group, ta_device *device, const void *from, void *to,
                        size_t count, ta_element_kind element, void *stream)
{
    static const way all_gather = {TA_LABEL_ALL_GATHER, gather_natively, ta_collective_all_gather};
    ta_collective c = {.element = element};
    TA_TRY(check_memory(group, device, stream));
    TA_TRY(check_element(element, 0, TA_REDUCE_SUM));
    TA_TRY(check_parts(group, "to", to, "from", from, count, element));
    return go(&all_gather, &c, group, device, from, to, count, stream);
}

static ta_status scatter_natively(ta_group *group, const void *from, void *to, size_t count,
                                  ta_element_kind element, ta_reduction reduction, void *stream)
{
    size_t *offsets;
    TA_TRY(get_offsets(group, &offsets));
    for (int r = 0; r <= group->size; ++r)
        offsets[r] = (size_t)r * count;
    ta_status status =
        ta_group_reduce_scatter(group, from, to, offsets, element, reduction, stream);
    free(offsets);
    return status;
}

ta_status ta_reduce_scatter(ta_group *group, ta_device *device, const void *from, void *to,
                            size_t count, ta_element_kind element, ta_reduction reduction,
                            void *stream)
{
    static const way reduce_scatter = {TA_LABEL_REDUCE_SCATTER, scatter_natively,
                                       ta_collective_reduce_scatter};
    ta_collective c = {.element = element, .reduction = reduction};
    TA_TRY(check_memory(group, device, stream));
    TA_TRY(check_element(element, 1, reduction));
    TA_TRY(check_parts(group, "from", from, "to", to, count, element));
    return go(&reduce_scatter, &c, group, device, from, to, count, stream);
}

ta_status ta_broadcast(ta_group *group, ta_device *device, void *data, size_t count,
                       ta_element_kind element, int root, void *stream)
{
    ta_collective c = {.element = element};
    TA_TRY(check_memory(group, device, stream));
    TA_TRY(check_element(element, 0, TA_REDUCE_SUM));
    TA_TRY(check_pair(data, data, count, element));
    if (root < 0 || root >= ta_group_size(group))
        return ta_fail(TA_ERR_INVALID, "root is %d: must be from 0 to %d", root,
                       ta_group_size(group) - 1);
    if (ta_group_size(group) == 1)
        return TA_OK;
    if (group->device)
        return ta_group_broadcast(group, data, count * ta_element_bytes(element), root, stream);
    TA_TRY(begin(&c, group, device, TA_LABEL_BROADCAST, root, count, stream));
    return end(&c, ta_collective_broadcast(&c, data, count, root));
}

ta_status ta_barrier(ta_group *group, ta_device *device, void *stream)
{
    ta_collective c = {.element = TA_ELEMENT_BYTE};
    TA_TRY(check_memory(group, device, stream));
    if (group && group->device)
        return ta_group_barrier(group, stream);
    if (device && device->ops->synchronize)
        TA_TRY(device->ops->synchronize(device, stream));
    if (ta_group_size(group) == 1)
        return TA_OK;
    TA_TRY(begin(&c, group, NULL, TA_LABEL_BARRIER, 0, 0, NULL));
    return end(&c, ta_group_barrier(group, NULL));
}
