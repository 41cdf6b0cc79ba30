/* Taking nccl… calls: they are checked, collected between ncclGroupStart and …End, and queued as
 * one piece of work for each communicator, or added to the graph if the stream is captured. */
#include <string.h>

#include "ccl.h"
#include "runtime.h"

namespace simt
{

struct grouped_calls {
    std::shared_ptr<ccl_member> member;
    hipStream_t stream;
    std::vector<ccl_call> calls;
};

struct call_group {
    int depth = 0;
    std::vector<grouped_calls> queued;
    std::vector<std::shared_ptr<ccl_member>> made; /* communicators */
};
static thread_local call_group group;

bool in_group()
{
    return group.depth > 0;
}

void group_adds_member(const std::shared_ptr<ccl_member> &member)
{
    group.made.push_back(member);
}

/* ---- Checks -------------------------------------------------------------------------------- */

static size_t bytes_read(const ccl_call &c, int ranks, bool is_root)
{
    size_t bytes = c.count * ccl_type_bytes(c.type);
    if (c.kind == ccl_kind::receive || (c.kind == ccl_kind::broadcast && !is_root))
        return 0;
    return c.kind == ccl_kind::reduce_scatter ? bytes * static_cast<size_t>(ranks) : bytes;
}

static size_t bytes_written(const ccl_call &c, int ranks)
{
    size_t bytes = c.count * ccl_type_bytes(c.type);
    if (c.kind == ccl_kind::send)
        return 0;
    return c.kind == ccl_kind::all_gather ? bytes * static_cast<size_t>(ranks) : bytes;
}

static ncclResult_t check_memory(const ccl_call &c, const ccl_member &member)
{
    int ranks = member.world->ranks;
    size_t in = bytes_read(c, ranks, c.peer == member.rank), out = bytes_written(c, ranks);
    if (in && !memory_fits(c.from, in, true))
        return ccl_fail(ncclInvalidArgument, "%zu bytes at %p to send are not device memory", in,
                        c.from);
    if (out && !memory_fits(c.to, out, true))
        return ccl_fail(ncclInvalidArgument, "%zu bytes at %p to receive are not device memory",
                        out, c.to);
    if (!in || !out)
        return ncclSuccess;
    const char *from = static_cast<const char *>(c.from), *to = static_cast<const char *>(c.to);
    const char *in_place = to;
    size_t part = c.count * ccl_type_bytes(c.type) * static_cast<size_t>(member.rank);
    if (c.kind == ccl_kind::all_gather)
        in_place = to + part;
    if (c.kind == ccl_kind::reduce_scatter)
        in_place = to - part;
    if (from != in_place && from < to + out && to < from + in)
        return ccl_fail(ncclInvalidArgument, "buffers at %p and %p overlap", c.from, c.to);
    return ncclSuccess;
}

static ncclResult_t check_call(const ccl_call &c, const ccl_member &member)
{
    if (!ccl_type_bytes(c.type))
        return ccl_fail(ncclInvalidArgument, "there is no data type %d", static_cast<int>(c.type));
    if (c.op != ncclSum && c.op != ncclMax)
        return ccl_fail(ncclInvalidArgument, "there is no reduction %d", static_cast<int>(c.op));
    if (c.peer < 0 || c.peer >= member.world->ranks)
        return ccl_fail(ncclInvalidArgument, "rank %d is not below %d", c.peer,
                        member.world->ranks);
    return check_memory(c, member);
}

static ncclResult_t check_stream(hipStream_t stream, const ccl_member &member)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, "a collective");
    if (!q)
        return ccl_fail(ncclInvalidArgument, "the stream is none");
    if (q->device != member.device)
        return ccl_fail(ncclInvalidUsage, "the stream is on device %d, the communicator on %d",
                        q->device, member.device);
    return ncclSuccess;
}

/* ---- Queueing ------------------------------------------------------------------------------ */

static bool is_captured(hipStream_t stream)
{
    queue_lock lock(queues().mutex);
    std::shared_ptr<queue> q = find_queue(stream, "a collective");
    return q && q->capture;
}

static ncclResult_t queue_calls(const grouped_calls &g)
{
    std::shared_ptr<ccl_member> member = g.member;
    std::vector<ccl_call> calls = g.calls;
    bool counts = !is_captured(g.stream);
    work piece;
    piece.name = "ccl";
    for (const ccl_call &c : calls) {
        const uint64_t words[] = {
            static_cast<uint64_t>(c.kind),     reinterpret_cast<uintptr_t>(c.from),
            reinterpret_cast<uintptr_t>(c.to), c.count,
            static_cast<uint64_t>(c.type),     static_cast<uint64_t>(c.op),
            static_cast<uint64_t>(c.peer)};
        const unsigned char *first = reinterpret_cast<const unsigned char *>(words);
        piece.identity.insert(piece.identity.end(), first, first + sizeof words);
        piece.addresses.push_back(c.from);
        piece.addresses.push_back(c.to);
    }
    piece.run = [member, calls, counts](run_context &context) {
        hipError_t error = run_calls(member, calls, context);
        ccl_lock lock(ccl().mutex);
        member->ran += counts;
        ccl().changed.notify_all();
        return error;
    };
    if (hipError_t error = submit(g.stream, std::move(piece)))
        return ccl_fail(ncclUnhandledCudaError, "%s", hipGetErrorString(error));
    ccl_lock lock(ccl().mutex);
    member->queued += counts;
    if (member->blocking)
        return ncclSuccess;
    member->busy_answers = 1;
    return ncclInProgress;
}

/* The worst of several results; ncclInProgress is better than an error. */
static void keep_worst(ncclResult_t *all, ncclResult_t one)
{
    if (one != ncclSuccess && (*all == ncclSuccess || *all == ncclInProgress))
        *all = one;
}

static ncclResult_t end_group()
{
    call_group ended = std::move(group);
    group = call_group();
    ncclResult_t result = ncclSuccess;
    for (const std::shared_ptr<ccl_member> &member : ended.made) {
        ccl_lock lock(ccl().mutex);
        if (!member->blocking)
            keep_worst(&result, ncclInProgress);
        else if (!ccl_wait(lock, member->world.get(),
                           [&] { return member_state(member.get()) != ncclInProgress; }))
            keep_worst(&result, ncclSystemError);
    }
    for (const grouped_calls &g : ended.queued)
        keep_worst(&result, queue_calls(g));
    return result;
}

static ncclResult_t add_call(const ccl_call &call, ncclComm_t comm, hipStream_t stream,
                             const char *name)
{
    std::shared_ptr<ccl_member> member;
    {
        ccl_lock lock(ccl().mutex);
        member = find_member(comm, name);
        if (!member)
            return ncclInvalidArgument;
        if (ncclResult_t result = check_usable(member.get(), name))
            return result;
    }
    if (ncclResult_t result = check_call(call, *member))
        return result;
    if (ncclResult_t result = check_stream(stream, *member))
        return result;
    if (!in_group())
        return queue_calls(grouped_calls{member, stream, {call}});
    for (grouped_calls &g : group.queued)
        if (g.member == member) {
            if (g.stream != stream)
                return ccl_fail(ncclInvalidUsage, "%s: two streams in one group", name);
            g.calls.push_back(call);
            return ncclSuccess;
        }
    group.queued.push_back(grouped_calls{member, stream, {call}});
    return ncclSuccess;
}

} // namespace simt

using namespace simt;

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        return ccl_fail(ncclInvalidUsage, "ncclGroupEnd: no group was started");
    return --group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, hipStream_t stream)
{
    return add_call({ccl_kind::send, from, nullptr, count, type, ncclSum, peer}, comm, stream,
                    "ncclSend");
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      hipStream_t stream)
{
    return add_call({ccl_kind::receive, nullptr, to, count, type, ncclSum, peer}, comm, stream,
                    "ncclRecv");
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, hipStream_t stream)
{
    return add_call({ccl_kind::broadcast, from, to, count, type, ncclSum, root}, comm, stream,
                    "ncclBroadcast");
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, hipStream_t stream)
{
    return add_call({ccl_kind::all_gather, from, to, count, type, ncclSum, 0}, comm, stream,
                    "ncclAllGather");
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, hipStream_t stream)
{
    return add_call({ccl_kind::all_reduce, from, to, count, type, op, 0}, comm, stream,
                    "ncclAllReduce");
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, hipStream_t stream)
{
    return add_call({ccl_kind::reduce_scatter, from, to, count, type, op, 0}, comm, stream,
                    "ncclReduceScatter");
}
