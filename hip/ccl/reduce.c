/* Reductions of device memory. NCCL chooses the order in which it adds by size, topology and
 * version, and its maximum may drop a NaN; so the parts are moved to the rank that owns them and
 * added there by a kernel of ours (reduce.hip), always from rank 0 up. Every byte is sent once, as
 * NCCL's own reduce-scatter would. */
#include "ccl.h"

/* Elements of each rank's part that fit the scratch memory at once, of all ranks. */
static size_t chunk_elements(const ta_ccl_group *g, ta_element_kind element)
{
    size_t elements = TA_CCL_SCRATCH_BYTES / ta_element_bytes(element) / (size_t)g->group.size;
    return elements < 4 ? elements : elements / 4 * 4;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* What is left of a rank's part when `done` elements of it are, one chunk at most. */
static size_t left(const size_t *offsets, int rank, size_t done, size_t chunk)
{
    size_t part = offsets[rank + 1] - offsets[rank];
    return part > done ? smaller(part - done, chunk) : 0;
}

typedef struct reduction {
    const char *from;
    char *to;
    const size_t *offsets;
    ta_element_kind element;
    ta_reduction kind;
    void *stream;
} reduction;

/* Every rank's share of the chunk goes to the rank that owns it. */
static ncclResult_t move_chunk(ta_ccl_group *g, const reduction *r, size_t done, size_t chunk)
{
    const ta_ccl_library *nccl = g->nccl;
    size_t size = ta_element_bytes(r->element);
    size_t own = left(r->offsets, g->group.rank, done, chunk) * size;
    ncclResult_t result = nccl->ncclGroupStart();
    for (int rank = 0; rank < g->group.size; rank++) {
        size_t out = left(r->offsets, rank, done, chunk) * size;
        if (rank == g->group.rank)
            continue;
        if (out)
            result = ta_ccl_first(result,
                                  nccl->ncclSend(r->from + (r->offsets[rank] + done) * size, out,
                                                 ncclChar, rank, g->comm, (hipStream_t)r->stream));
        if (own)
            result = ta_ccl_first(
                result, nccl->ncclRecv((char *)g->scratch + (size_t)rank * chunk * size, own,
                                       ncclChar, rank, g->comm, (hipStream_t)r->stream));
    }
    return ta_ccl_settle(g, g->comm, ta_ccl_first(result, nccl->ncclGroupEnd()));
}

static ta_status reduce_chunk(ta_ccl_group *g, const reduction *r, size_t done, size_t chunk)
{
    size_t size = ta_element_bytes(r->element);
    size_t own = left(r->offsets, g->group.rank, done, chunk);
    ta_reduce_params params = {
        .others = g->scratch,
        .own = r->from + (r->offsets[g->group.rank] + done) * size,
        .to = r->to + done * size,
        .count = (int64_t)own,
        .stride = (int64_t)chunk,
        .rank = g->group.rank,
        .ranks = g->group.size,
        .element = (int32_t)r->element,
        .sum = r->kind == TA_REDUCE_SUM,
    };
    TA_TRY(ta_ccl_begin(g));
    ncclResult_t result = ta_ccl_follow(g, r->stream);
    if (result == ncclSuccess && g->group.size > 1)
        result = move_chunk(g, r, done, chunk);
    ta_status launched = TA_OK;
    if (result == ncclSuccess && own > 0 && !atomic_load(&g->world->broken))
        launched =
            ta_gpu_check_launch(ta_gpu_of(g->group.device), ta_launch_reduce(&params, r->stream));
    TA_TRY(ta_ccl_end(g, result, r->stream, TA_CCL_ALL));
    return launched;
}

ta_status ta_ccl_reduce_scatter(ta_group *group, const void *from, void *to, const size_t *offsets,
                                ta_element_kind element, ta_reduction kind, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    reduction r = {from, to, offsets, element, kind, stream};
    size_t chunk = chunk_elements(g, element), longest = 0;
    for (int rank = 0; rank < group->size; rank++)
        if (offsets[rank + 1] - offsets[rank] > longest)
            longest = offsets[rank + 1] - offsets[rank];
    if (chunk == 0)
        return ta_gpu_core->fail(TA_ERR_UNSUPPORTED, "a group of %d ranks is too large to reduce",
                                 group->size);
    for (size_t done = 0; done < longest; done += chunk)
        TA_TRY(reduce_chunk(g, &r, done, chunk));
    return ta_ccl_broken(g);
}

ta_status ta_ccl_all_reduce(ta_group *group, const void *from, void *to, size_t count,
                            ta_element_kind element, ta_reduction kind, void *stream)
{
    ta_ccl_group *g = ta_ccl_of(group);
    size_t size = ta_element_bytes(element), ranks = (size_t)group->size;
    for (size_t r = 0; r <= ranks; r++)
        g->offsets[r] = count / ranks * r + count % ranks * r / ranks;
    char *own = (char *)to + g->offsets[group->rank] * size;
    TA_TRY(ta_ccl_reduce_scatter(group, from, own, g->offsets, element, kind, stream));
    for (size_t r = 0; r <= ranks; r++)
        g->offsets[r] *= size;
    return group->ops->all_gather(group, to, g->offsets, stream);
}
