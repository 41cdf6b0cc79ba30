/* Communicators: how they are made and asked. Ranks that join with the same id share a world; a
 * handle is one rank's part in it. ccl_end.cpp splits and ends them. */
#include "ccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <chrono>

namespace simt
{

ccl_table &ccl()
{
    static ccl_table table;
    return table;
}

static thread_local std::string last_text;

ncclResult_t ccl_fail(ncclResult_t result, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    last_text = text;
    return result;
}

std::shared_ptr<ccl_member> find_member(ncclComm_t comm, const char *call)
{
    if (ccl().live.count(comm))
        return comm->member;
    ccl_fail(ncclInvalidArgument, "%s: %p is not a communicator", call, static_cast<void *>(comm));
    return nullptr;
}

void fail_member(ccl_member *member, ncclResult_t error, const std::string &text)
{
    if (member->error != ncclSuccess)
        return;
    member->error = error;
    member->text = text;
}

/* Everybody is leaving, and what this rank queued has run. */
static bool finalized(const ccl_member &m)
{
    for (const std::shared_ptr<ccl_member> &other : m.world->members)
        if (other && !other->finalizing && !other->aborted)
            return false;
    return m.ran == m.queued;
}

ncclResult_t member_state(ccl_member *member)
{
    if (member->error != ncclSuccess)
        return member->error;
    if (member->world->joined < member->world->ranks || member->splitting)
        return ncclInProgress;
    return member->finalizing && !finalized(*member) ? ncclInProgress : ncclSuccess;
}

ncclResult_t check_usable(ccl_member *member, const char *call)
{
    if (member->busy_answers > 0)
        return ccl_fail(ncclInvalidUsage, "%s: the call before may still be in progress", call);
    if (member->finalizing)
        return ccl_fail(ncclInvalidUsage, "%s: the communicator is finalized", call);
    ncclResult_t state = member_state(member);
    if (state == ncclInProgress)
        return ccl_fail(ncclInvalidUsage, "%s: the communicator is not complete yet", call);
    return state == ncclSuccess ? ncclSuccess : ccl_fail(state, "%s", member->text.c_str());
}

bool ccl_wait(ccl_lock &lock, ccl_world *world, const std::function<bool()> &condition)
{
    while (!condition()) {
        if (process_ends())
            return false;
        for (const std::shared_ptr<ccl_member> &member : world->members)
            if (member)
                want_device(member->device);
        ccl().changed.wait_for(lock, std::chrono::milliseconds(5));
    }
    return true;
}

bool version_lacks(int needed, const char *call)
{
    if (ccl().version >= needed)
        return false;
    ccl_fail(ncclInvalidUsage, "%s is not in version %d", call, ccl().version);
    return true;
}

/* ---- Joining ------------------------------------------------------------------------------- */

ncclComm_t make_handle(const std::shared_ptr<ccl_member> &member)
{
    ncclComm_t comm = new ncclComm{member};
    ccl().live.insert(comm);
    return comm;
}

std::shared_ptr<ccl_member> join(const std::shared_ptr<ccl_world> &world, int rank, int device,
                                 bool blocking)
{
    std::shared_ptr<ccl_member> member = std::make_shared<ccl_member>();
    member->world = world;
    member->rank = rank;
    member->device = device;
    member->blocking = blocking;
    world->members[static_cast<size_t>(rank)] = member;
    world->joined++;
    ccl().changed.notify_all();
    return member;
}

std::shared_ptr<ccl_world> make_world(int ranks)
{
    std::shared_ptr<ccl_world> world = std::make_shared<ccl_world>();
    world->ranks = ranks;
    world->members.resize(static_cast<size_t>(ranks));
    return world;
}

static ncclResult_t check_place(const ccl_world &world, int ranks, int rank, int device)
{
    if (world.ranks != ranks)
        return ccl_fail(ncclInvalidUsage, "rank %d joins a communicator of %d ranks as one of %d",
                        rank, world.ranks, ranks);
    for (const std::shared_ptr<ccl_member> &other : world.members) {
        if (other && other->rank == rank)
            return ccl_fail(ncclInvalidUsage, "rank %d joined already", rank);
        if (other && other->device == device)
            return ccl_fail(ncclInvalidUsage, "ranks %d and %d are both on device %d", other->rank,
                            rank, device);
    }
    return ncclSuccess;
}

static ncclResult_t join_by_id(ncclComm_t *comm, int ranks, const ncclUniqueId &id, int rank,
                               bool blocking)
{
    if (!comm || ranks < 1 || rank < 0 || rank >= ranks)
        return ccl_fail(ncclInvalidArgument, "there is no rank %d of %d", rank, ranks);
    *comm = nullptr;
    int device = current_device();
    std::string key(id.internal, sizeof id.internal);
    ccl_lock lock(ccl().mutex);
    std::shared_ptr<ccl_world> &entry = ccl().worlds[key];
    if (!entry)
        entry = make_world(ranks);
    std::shared_ptr<ccl_world> world = entry;
    if (ncclResult_t result = check_place(*world, ranks, rank, device))
        return result;
    std::shared_ptr<ccl_member> member = join(world, rank, device, blocking);
    *comm = make_handle(member);
    if (world->joined == ranks)
        ccl().worlds.erase(key);
    if (in_group()) {
        group_adds_member(member);
        return ncclSuccess;
    }
    if (!blocking)
        return ncclInProgress;
    return ccl_wait(lock, world.get(), [&] { return world->joined == ranks; }) ? ncclSuccess
                                                                               : ncclSystemError;
}

} // namespace simt

using namespace simt;

ncclResult_t ncclGetVersion(int *version)
{
    ccl_lock lock(ccl().mutex);
    *version = ccl().version;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static std::atomic<unsigned> number;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "simt communicator %u", ++number);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
        SIMT_CCL_RESULT_LIST(SIMT_RETURN_TEXT)
    }
    return "unknown error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    static thread_local std::string text;
    ccl_lock lock(ccl().mutex);
    text = comm && ccl().live.count(comm) && comm->member->error != ncclSuccess ? comm->member->text
                                                                                : last_text;
    return text.c_str();
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    return join_by_id(comm, ranks, id, rank, true);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (version_lacks(NCCL_VERSION(2, 14, 0), "ncclCommInitRankConfig"))
        return ncclInvalidUsage;
    if (config && (config->size != sizeof *config || config->magic != 0xcafebeefu))
        return ccl_fail(ncclInvalidArgument, "the config was not initialised");
    return join_by_id(comm, ranks, id, rank, !config || config->blocking != 0);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    ccl_lock lock(ccl().mutex);
    std::shared_ptr<ccl_member> member = find_member(comm, "ncclCommGetAsyncError");
    if (!member)
        return ncclInvalidArgument;
    if (member->finalizing)
        want_device(member->device);
    *state = member_state(member.get());
    if (*state == ncclSuccess && member->busy_answers > 0) {
        member->busy_answers--;
        *state = ncclInProgress;
    }
    return ncclSuccess;
}

/* One number of a communicator. */
template <class Number>
static ncclResult_t ask(ncclComm_t comm, const char *call, int *to, Number number)
{
    ccl_lock lock(ccl().mutex);
    std::shared_ptr<ccl_member> member = find_member(comm, call);
    if (!member)
        return ncclInvalidArgument;
    *to = number(*member);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *ranks)
{
    return ask(comm, "ncclCommCount", ranks, [](ccl_member &m) { return m.world->ranks; });
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return ask(comm, "ncclCommUserRank", rank, [](ccl_member &m) { return m.rank; });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return ask(comm, "ncclCommCuDevice", device, [](ccl_member &m) { return m.device; });
}
