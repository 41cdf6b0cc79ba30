/* Collectives as they run on a stream: the calls of a group are posted together and end together.
 * A message moves when both its sides are posted, a collective when the last rank has come, which
 * does the work of all. */
#include <string.h>

#include "ccl.h"

namespace simt
{

static const char *kind_name(ccl_kind kind)
{
    static const char *const names[] = {"ncclSend",      "ncclRecv",      "ncclBroadcast",
                                        "ncclAllGather", "ncclAllReduce", "ncclReduceScatter"};
    return names[static_cast<int>(kind)];
}

size_t ccl_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclInt64:
        return 8;
    }
    return 0;
}

/* ---- Moving data --------------------------------------------------------------------------- */

static const char *contribution(const ccl_post &post)
{
    return static_cast<const char *>(post.call.from);
}

template <class T> static T combine(T a, T b, ncclRedOp_t op)
{
    return op == ncclSum ? static_cast<T>(a + b) : (b > a ? b : a); /* drops a NaN in b */
}

/* The order of the ranks differs from element to element, as it does between the rings of a real
 * one. */
template <class T>
static std::vector<char> reduce_as(const std::vector<ccl_post *> &posts, size_t count,
                                   ncclRedOp_t op)
{
    std::vector<char> bytes(count * sizeof(T));
    size_t ranks = posts.size();
    for (size_t i = 0; i < count; i++) {
        size_t first = i / 64 % ranks;
        T sum, next;
        memcpy(&sum, contribution(*posts[first]) + i * sizeof(T), sizeof sum);
        for (size_t r = 1; r < ranks; r++) {
            memcpy(&next, contribution(*posts[(first + r) % ranks]) + i * sizeof(T), sizeof next);
            sum = combine(sum, next, op);
        }
        memcpy(bytes.data() + i * sizeof(T), &sum, sizeof sum);
    }
    return bytes;
}

static std::vector<char> reduce(const std::vector<ccl_post *> &posts, size_t count)
{
    const ccl_call &call = posts[0]->call;
    switch (call.type) {
    case ncclInt64:
        return reduce_as<int64_t>(posts, count, call.op);
    case ncclInt32:
        return reduce_as<int32_t>(posts, count, call.op);
    case ncclFloat32:
        return reduce_as<float>(posts, count, call.op);
    case ncclUint8:
        return reduce_as<unsigned char>(posts, count, call.op);
    default:
        return reduce_as<signed char>(posts, count, call.op);
    }
}

static void copy_out(void *to, const char *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    count(counted.copied_bytes, bytes);
}

/* All inputs are read before an output is written, so calls may be in slot. */
static void run_collective(const std::vector<ccl_post *> &posts)
{
    const ccl_call &call = posts[0]->call;
    size_t ranks = posts.size(), bytes = call.count * ccl_type_bytes(call.type);
    std::vector<char> all;
    if (call.kind == ccl_kind::broadcast)
        all.assign(contribution(*posts[static_cast<size_t>(call.peer)]),
                   contribution(*posts[static_cast<size_t>(call.peer)]) + bytes);
    else if (call.kind == ccl_kind::all_gather)
        for (ccl_post *post : posts)
            all.insert(all.end(), contribution(*post), contribution(*post) + bytes);
    else
        all = reduce(posts, call.kind == ccl_kind::all_reduce ? call.count : call.count * ranks);
    for (size_t r = 0; r < ranks; r++) {
        if (call.kind == ccl_kind::reduce_scatter)
            copy_out(posts[r]->call.to, all.data() + r * bytes, bytes);
        else
            copy_out(posts[r]->call.to, all.data(), all.size());
        posts[r]->done = true;
    }
}

/* ---- Matching ------------------------------------------------------------------------------ */

static std::string describe(const ccl_post &post)
{
    const ccl_call &c = post.call;
    return std::string(kind_name(c.kind)) + " of " + std::to_string(c.count) +
           " elements of type " + std::to_string(c.type) + " on rank " +
           std::to_string(post.member->rank);
}

static void fail_both(ccl_post *a, ccl_post *b)
{
    std::string text =
        "calls that belong together differ: " + describe(*a) + " and " + describe(*b);
    fail_member(a->member, ncclInvalidUsage, text);
    fail_member(b->member, ncclInvalidUsage, text);
}

static bool same_collective(const ccl_call &a, const ccl_call &b)
{
    bool reduces = a.kind == ccl_kind::all_reduce || a.kind == ccl_kind::reduce_scatter;
    return a.kind == b.kind && a.count == b.count && a.type == b.type &&
           (!reduces || a.op == b.op) && (a.kind != ccl_kind::broadcast || a.peer == b.peer);
}

static void post_message(ccl_world *world, ccl_post *post)
{
    bool sends = post->call.kind == ccl_kind::send;
    int me = post->member->rank, other = post->call.peer;
    std::pair<int, int> route = sends ? std::make_pair(me, other) : std::make_pair(other, me);
    (sends ? world->sends : world->receives)[route].push_back(post);
    std::deque<ccl_post *> &from = world->sends[route], &to = world->receives[route];
    if (from.empty() || to.empty())
        return;
    ccl_post *send = from.front(), *receive = to.front();
    from.pop_front();
    to.pop_front();
    size_t bytes = send->call.count * ccl_type_bytes(send->call.type);
    if (bytes != receive->call.count * ccl_type_bytes(receive->call.type)) {
        fail_both(send, receive);
        return;
    }
    copy_out(receive->call.to, contribution(*send), bytes);
    send->done = receive->done = true;
}

static void post_collective(ccl_world *world, ccl_post *post)
{
    uint64_t number = post->member->collectives++;
    ccl_match &match = world->matches[number];
    match.posts.resize(static_cast<size_t>(world->ranks));
    for (ccl_post *other : match.posts)
        if (other && !same_collective(other->call, post->call)) {
            fail_both(other, post);
            return;
        }
    match.posts[static_cast<size_t>(post->member->rank)] = post;
    if (++match.arrived < world->ranks)
        return;
    run_collective(match.posts);
    world->matches.erase(number);
}

/* After an abort: nobody may find these any more. */
static void withdraw(ccl_world *world, ccl_post *post)
{
    for (auto *routes : {&world->sends, &world->receives})
        for (auto &route : *routes)
            for (size_t i = route.second.size(); i-- > 0;)
                if (route.second[i] == post)
                    route.second.erase(route.second.begin() + static_cast<std::ptrdiff_t>(i));
    for (auto &match : world->matches)
        for (ccl_post *&slot : match.second.posts)
            if (slot == post) {
                slot = nullptr;
                match.second.arrived--;
            }
}

static bool fault_strikes(const ccl_member &member)
{
    ccl_table &table = ccl();
    return member.rank == table.fail_rank && table.fail_nth > 0 && --table.fail_nth == 0;
}

hipError_t run_calls(const std::shared_ptr<ccl_member> &member, const std::vector<ccl_call> &calls,
                     run_context &)
{
    ccl_lock lock(ccl().mutex);
    ccl_world *world = member->world.get();
    std::vector<ccl_post> posts;
    for (const ccl_call &call : calls)
        posts.push_back(ccl_post{call, member.get(), false});
    if (member->aborted)
        return hipSuccess;
    if (fault_strikes(*member))
        fail_member(member.get(), ncclSystemError, "a failure that was asked for");
    if (member->error == ncclSuccess)
        for (ccl_post &post : posts) {
            if (post.call.kind == ccl_kind::send || post.call.kind == ccl_kind::receive)
                post_message(world, &post);
            else
                post_collective(world, &post);
        }
    ccl().changed.notify_all();
    ccl_wait(lock, world, [&] {
        bool all = member->error == ncclSuccess;
        for (const ccl_post &post : posts)
            all = all && post.done;
        return all || member->aborted;
    });
    for (ccl_post &post : posts)
        if (!post.done)
            withdraw(world, &post);
    return hipSuccess;
}

} // namespace simt
