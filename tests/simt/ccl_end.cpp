/* Communicators: how they are split, and how they end. ccl_comm.cpp makes them. */
#include <algorithm>

#include "ccl.h"

namespace simt
{

/* All ranks have said their color: make the communicators. */
static void finish_split(const std::shared_ptr<ccl_world> &world,
                         const std::map<int, ccl_split> &asked)
{
    std::map<int, std::vector<std::pair<int, int>>> parts; /* color to (key, rank) */
    for (const auto &one : asked)
        if (one.second.color >= 0)
            parts[one.second.color].push_back({one.second.key, one.first});
    for (auto &part : parts) {
        std::sort(part.second.begin(), part.second.end());
        std::shared_ptr<ccl_world> made = make_world(static_cast<int>(part.second.size()));
        for (size_t i = 0; i < part.second.size(); i++) {
            int rank = part.second[i].second;
            const ccl_split &s = asked.at(rank);
            int device = world->members[static_cast<size_t>(rank)]->device;
            *s.part = make_handle(join(made, static_cast<int>(i), device, s.blocking));
        }
    }
    for (const std::shared_ptr<ccl_member> &member : world->members)
        member->splitting = false;
    ccl().changed.notify_all();
}

/* A member that leaves, one way or the other. What it queued and nobody ran yet is given up. */
static void leave(ncclComm_t comm)
{
    ccl_table &table = ccl();
    std::shared_ptr<ccl_member> member = comm->member;
    std::shared_ptr<ccl_world> world = member->world;
    member->aborted = true;
    for (auto &split : world->splits)
        split.second.erase(member->rank);
    table.live.erase(comm);
    delete comm;
    if (++world->left == world->joined) { /* worlds and members hold each other */
        world->members.clear();
        for (auto one = table.worlds.begin(); one != table.worlds.end();)
            one = one->second == world ? table.worlds.erase(one) : std::next(one);
    }
    table.changed.notify_all();
}

} // namespace simt

using namespace simt;

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *part,
                           ncclConfig_t *config)
{
    ccl_lock lock(ccl().mutex);
    if (version_lacks(NCCL_VERSION(2, 18, 0), "ncclCommSplit"))
        return ncclInvalidUsage;
    std::shared_ptr<ccl_member> member = find_member(comm, "ncclCommSplit");
    if (!member || !part || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
        return ccl_fail(ncclInvalidArgument, "ncclCommSplit: color %d, or no communicator", color);
    if (ncclResult_t result = check_usable(member.get(), "ncclCommSplit"))
        return result;
    *part = nullptr;
    bool inherits = !config || config->blocking == INT_MIN;
    std::shared_ptr<ccl_world> world = member->world;
    uint64_t number = member->splits++;
    std::map<int, ccl_split> &asked = world->splits[number];
    asked[member->rank] =
        ccl_split{color, key, inherits ? member->blocking : config->blocking != 0, part};
    member->splitting = true;
    if (static_cast<int>(asked.size()) == world->ranks) {
        finish_split(world, asked);
        world->splits.erase(number);
    }
    if (!member->blocking)
        return ncclInProgress;
    return ccl_wait(lock, world.get(), [&] { return !member->splitting; }) ? ncclSuccess
                                                                           : ncclSystemError;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    ccl_lock lock(ccl().mutex);
    if (version_lacks(NCCL_VERSION(2, 14, 0), "ncclCommFinalize"))
        return ncclInvalidUsage;
    std::shared_ptr<ccl_member> member = find_member(comm, "ncclCommFinalize");
    if (!member)
        return ncclInvalidArgument;
    if (ncclResult_t result = check_usable(member.get(), "ncclCommFinalize"))
        return result;
    member->finalizing = true;
    ccl().changed.notify_all();
    if (!member->blocking)
        return ncclInProgress;
    ccl_wait(lock, member->world.get(),
             [&] { return member_state(member.get()) != ncclInProgress; });
    return member_state(member.get());
}

/* Waits for the other ranks where it must: only ncclCommAbort() never does. */
ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ccl_lock lock(ccl().mutex);
    std::shared_ptr<ccl_member> member = find_member(comm, "ncclCommDestroy");
    if (!member)
        return ncclInvalidArgument;
    if (!member->blocking && (!member->finalizing || member_state(member.get()) == ncclInProgress))
        return ccl_fail(ncclInvalidUsage, "ncclCommDestroy: finalize the communicator first");
    member->finalizing = true;
    ccl().changed.notify_all();
    ccl_wait(lock, member->world.get(),
             [&] { return member_state(member.get()) != ncclInProgress; });
    leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    ccl_lock lock(ccl().mutex);
    std::shared_ptr<ccl_member> member = find_member(comm, "ncclCommAbort");
    if (!member)
        return ncclInvalidArgument;
    leave(comm);
    return ncclSuccess;
}

void simt_set_ccl_version(int version)
{
    ccl_lock lock(ccl().mutex);
    ccl().version = version;
}

void simt_fail_ccl(int rank, int nth)
{
    ccl_lock lock(ccl().mutex);
    ccl().fail_rank = rank;
    ccl().fail_nth = nth;
}

int simt_ccl_communicators(void)
{
    ccl_lock lock(ccl().mutex);
    return static_cast<int>(ccl().live.size());
}
