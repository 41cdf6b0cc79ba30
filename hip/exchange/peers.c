/* The slabs of direct exchanges between GPUs: making them, probing and using them, and letting go.
 * device.c has the table in its own; peers.hip the kernels that use slabs; peer_rank.h says which
 * file has the rest. */
#include "peer_rank.h"

#include <stdlib.h>

/* Memory that is shared with other processes comes in pages of this size. */
#define SLAB_UNIT ((size_t)2 << 20)

/* ---- Letting go ---- */

static void let_go_of(ta_gpu_peers *p, int32_t rank)
{
    const uint32_t done = 1;
    const ta_peers_params *q = &p->params;
    if (!p->slabs[rank] || rank == q->rank)
        return;
    (void)ta_copy_and_wait(&ta_peer_done_line(p->slabs[rank], q->ranks, q->blocks, q->rank)->epoch,
                           &done, sizeof done);
    if (p->imported[rank])
        (void)hipIpcCloseMemHandle(p->slabs[rank]);
    p->slabs[rank] = NULL;
}

static void close_here(ta_gpu_peers *p)
{
    (void)hipDeviceSynchronize(); /* also what tell() left to do */
    for (int32_t rank = 0; rank < p->params.ranks; ++rank)
        let_go_of(p, rank);
    (void)hipGetLastError();
}

static void close_slabs(ta_peers *peers)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    int before;
    if (ta_gpu_enter(p->gpu, &before) != TA_OK)
        return;
    close_here(p);
    ta_gpu_leave(p->gpu, before);
}

static void release(ta_peers *peers)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    int before;
    if (ta_gpu_enter(p->gpu, &before) == TA_OK) {
        close_here(p);
        if (p->teller)
            (void)hipStreamDestroy(p->teller);
        (void)hipFree(p->control);
        if (p->peers.shared)
            ta_peers_part_with(p);
        else
            (void)hipFree(p->slab);
        (void)hipGetLastError();
        ta_gpu_leave(p->gpu, before);
    }
    ta_peers_free_parted(p->gpu->index);
    free(p);
}

/* ---- Making ---- */

/* A quarter of what there is room for: other plans' kernels may wait too. */
static int32_t blocks_for(const ta_gpu_device *gpu, int64_t records)
{
    int64_t blocks = (int64_t)gpu->limits.units * ta_peers_blocks_per_unit() / 4;
    if (blocks > TA_PEER_BLOCKS)
        blocks = TA_PEER_BLOCKS;
    return (int32_t)(blocks < records ? blocks : records);
}

static size_t slab_bytes(const ta_peers_params *p)
{
    size_t lines = (size_t)ta_peer_lines(p->ranks, p->blocks) * TA_PEER_LINE;
    size_t partials = (2 * (size_t)p->ranks + 1) * (size_t)p->partial_floats * sizeof(float);
    return (lines + partials + SLAB_UNIT - 1) / SLAB_UNIT * SLAB_UNIT;
}

static void describe(ta_gpu_peers *p, const ta_peers_shape *shape)
{
    size_t bytes = (shape->partial_bytes + TA_PEER_LINE - 1) / TA_PEER_LINE * TA_PEER_LINE;
    int64_t floats = (int64_t)(bytes / sizeof(float));
    p->params = (ta_peers_params){
        .patience = (uint64_t)shape->timeout_ms * (uint64_t)p->gpu->properties.clock_khz,
        .partial_floats = floats > TA_PROBE_WORDS ? floats : TA_PROBE_WORDS,
        .rank = shape->rank,
        .ranks = shape->ranks,
        .blocks = blocks_for(p->gpu, shape->records),
        .parts = shape->parts,
        .world = shape->world,
        .placement = shape->placement,
        .root = shape->root,
        .shots = shape->shots};
}

static ta_status allocate(ta_gpu_peers *p)
{
    void *slab = NULL, *control = NULL;
    TA_TRY(ta_gpu_check(p->gpu, ta_alloc_for_peers(&slab, p->slab_bytes),
                        "allocating %zu bytes that other devices write to", p->slab_bytes));
    p->slab = slab;
    TA_TRY(ta_gpu_check(p->gpu, hipMalloc(&control, sizeof *p->control), "allocating %zu bytes",
                        sizeof *p->control));
    p->control = control;
    TA_TRY(ta_gpu_check(p->gpu, hipMemsetAsync(slab, 0, p->slab_bytes, NULL), "clearing a slab"));
    TA_TRY(ta_gpu_check(p->gpu, hipMemsetAsync(control, 0, sizeof *p->control, NULL),
                        "clearing its counts"));
    return ta_gpu_check(p->gpu, hipStreamSynchronize(NULL), "clearing a slab");
}

static ta_status make_here(ta_gpu_peers *p, const ta_peers_shape *shape, ta_peers_offer *to)
{
    describe(p, shape);
    if (p->params.blocks < 1)
        return ta_gpu_core->fail_quietly(TA_ERR_UNSUPPORTED,
                                         "%s does not say how many blocks it has room for",
                                         p->gpu->device.name);
    p->slab_bytes = slab_bytes(&p->params);
    TA_TRY(allocate(p));
    TA_TRY(ta_gpu_check(p->gpu, hipStreamCreateWithFlags(&p->teller, hipStreamNonBlocking),
                        "making a stream"));
    return ta_peers_write_offer(p, to);
}

static ta_status make(ta_device *device, const ta_peers_shape *shape, ta_peers **peers,
                      ta_peers_offer *to)
{
    int before;
    if (shape->ranks > TA_MAX_PEERS)
        return ta_gpu_core->fail_quietly(TA_ERR_UNSUPPORTED, "%d ranks are more than %d",
                                         (int)shape->ranks, TA_MAX_PEERS);
    ta_gpu_peers *p = calloc(1, sizeof *p);
    if (!p)
        return ta_gpu_core->fail(TA_ERR_NO_MEMORY, "no memory for a slab of %s", device->name);
    p->gpu = ta_gpu_of(device);
    p->params.ranks = shape->ranks;
    ta_peers_free_parted(p->gpu->index);
    ta_status status = ta_gpu_enter(p->gpu, &before);
    if (status == TA_OK) {
        status = make_here(p, shape, to);
        ta_gpu_leave(p->gpu, before);
    }
    if (status != TA_OK) {
        release(&p->peers);
        return status;
    }
    for (int32_t rank = 0; rank < shape->ranks; ++rank)
        p->names[rank] = shape->names[rank];
    p->params.control = p->control;
    p->peers.heard = &p->control->heard;
    *peers = &p->peers;
    return TA_OK;
}

/* ---- Using them ---- */

static ta_status open_offers(ta_peers *peers, const ta_peers_offer *offers)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    TA_ON_GPU(p->gpu, ta_peers_use_offers(p, offers));
}

static ta_status probe_here(ta_gpu_peers *p)
{
    ta_peer_control found;
    TA_TRY(ta_gpu_check_launch(p->gpu, ta_launch_peers_probe(&p->params, NULL)));
    TA_TRY(ta_gpu_check(p->gpu, ta_copy_and_wait(&found, p->control, sizeof found),
                        "a probe of memory of other devices"));
    if (found.probe_late)
        return ta_gpu_core->fail_quietly(TA_ERR_UNSUPPORTED,
                                         "a word from rank %d did not come to rank %d in time",
                                         (int)found.probe_late - 1, (int)p->names[p->params.rank]);
    if (found.wrong)
        return ta_gpu_core->fail_quietly(
            TA_ERR_UNSUPPORTED, "%u of %d words from other devices came to rank %d as others",
            (unsigned)found.wrong, TA_PROBE_WORDS * (int)p->params.ranks,
            (int)p->names[p->params.rank]);
    return TA_OK;
}

static ta_status probe(ta_peers *peers)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    TA_ON_GPU(p->gpu, probe_here(p));
}

/* A kernel stores what kernels look at; it was loaded when the slab was made, which would wait now.
 * Nothing of this is an error that somebody could do anything about: others are as patient as
 * ever. */
static void tell(ta_peers *peers, int32_t word)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    int before;
    if (p->told || hipGetDevice(&before) != hipSuccess || hipSetDevice(p->gpu->index) != hipSuccess)
        return;
    p->told = 1;
    if (ta_launch_peers_lost(&p->params, word, p->teller).error != hipSuccess)
        (void)hipGetLastError();
    (void)hipSetDevice(before);
}

static ta_peers_params params_of(const ta_gpu_peers *p, const ta_finish *what, float *lane,
                                 ta_fault *lane_fault)
{
    ta_peers_params params = p->params;
    params.finish = *what;
    params.lane = lane;
    params.lane_fault = lane_fault;
    return params;
}

static ta_status finish(ta_peers *peers, const ta_finish *what, void *stream)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    ta_peers_params params = params_of(p, what, NULL, NULL);
    TA_ON_GPU(p->gpu, ta_gpu_check_launch(p->gpu, ta_launch_peers_finish(&params, stream)));
}

static ta_status merge_part(ta_peers *peers, const ta_finish *what, float *lane,
                            ta_fault *lane_fault, void *stream)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    ta_peers_params params = params_of(p, what, lane, lane_fault);
    params.finish.report = NULL; /* the second half tells, and knows more */
    /* Who misses a rank here names it to the other nodes by messages, and these to ranks that wait
     * in the second half: before the time is over for which they wait. */
    params.patience -= params.patience / 8;
    TA_ON_GPU(p->gpu, ta_gpu_check_launch(p->gpu, ta_launch_peers_part(&params, stream)));
}

static ta_status finish_parts(ta_peers *peers, const ta_finish *what, float *lane,
                              ta_fault *lane_fault, void *stream)
{
    ta_gpu_peers *p = (ta_gpu_peers *)peers;
    ta_peers_params params = params_of(p, what, lane, lane_fault);
    TA_ON_GPU(p->gpu, ta_gpu_check_launch(p->gpu, ta_launch_peers_parts(&params, stream)));
}

const ta_peer_ops ta_gpu_peer_ops = {.make = make,
                                     .open = open_offers,
                                     .probe = probe,
                                     .tell = tell,
                                     .close = close_slabs,
                                     .finish = finish,
                                     .merge_part = merge_part,
                                     .finish_parts = finish_parts,
                                     .release = release};
