/* Inside the collectives: communicators, and the calls that wait for their counterparts on
 * other ranks. ccl_comm.cpp makes communicators, ccl_end.cpp splits and ends them, ccl_call.cpp
 * takes calls and queues them on streams, ccl_run.cpp is what runs there.
 *
 * One lock guards all of it (`ccl().mutex`). It may be held while stream.h's lock is taken, never
 * the other way round. */
#ifndef SIMT_CCL_INTERNAL_H
#define SIMT_CCL_INTERNAL_H

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "simt_ccl.h"
#include "stream.h"

namespace simt
{

enum class ccl_kind { send, receive, broadcast, all_gather, all_reduce, reduce_scatter };

/* One nccl… call. */
struct ccl_call {
    ccl_kind kind;
    const void *from;
    void *to;
    size_t count; /* of elements, as the caller gave it */
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or the root */
};

struct ccl_member;

/* A call that runs. */
struct ccl_post {
    ccl_call call;
    ccl_member *member;
    bool done;
};

/* The part of a collective that has arrived. */
struct ccl_match {
    std::vector<ccl_post *> posts; /* by rank */
    int arrived;
};

struct ccl_split {
    int color, key;
    bool blocking;
    ncclComm_t *part;
};

/* What the ranks of a communicator share. */
struct ccl_world {
    int ranks;
    int joined = 0, left = 0;
    std::vector<std::shared_ptr<ccl_member>> members; /* by rank, empty before it joins */
    std::map<std::pair<int, int>, std::deque<ccl_post *>> sends, receives; /* by (from, to) */
    std::map<uint64_t, ccl_match> matches;                                 /* by number */
    std::map<uint64_t, std::map<int, ccl_split>> splits;                   /* by number, rank */
};

struct ccl_member {
    std::shared_ptr<ccl_world> world;
    int rank, device;
    bool blocking;
    bool aborted = false, finalizing = false; /* aborted: or destroyed */
    bool splitting = false;
    int busy_answers = 0; /* how often ncclInProgress is still to be said */
    ncclResult_t error = ncclSuccess;
    std::string text; /* about the error */
    uint64_t collectives = 0, splits = 0;
    uint64_t queued = 0, ran = 0; /* pieces of work outside captures */
};

struct ccl_table {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::shared_ptr<ccl_world>> worlds; /* by id, until all have joined */
    std::set<ncclComm_t> live;
    int version = NCCL_VERSION_CODE;
    int fail_rank = -1, fail_nth = 0;
};
ccl_table &ccl();

typedef std::unique_lock<std::mutex> ccl_lock;

/* Make this the thread's last error. */
__attribute__((format(printf, 2, 3))) ncclResult_t ccl_fail(ncclResult_t result, const char *format,
                                                            ...);

/* With the lock. */

/* The member behind a handle; an empty pointer, and an error, if it is none. */
std::shared_ptr<ccl_member> find_member(ncclComm_t comm, const char *call);
/* ncclSuccess if the communicator can be used now. */
ncclResult_t check_usable(ccl_member *member, const char *call);
/* What ncclCommGetAsyncError() says. */
ncclResult_t member_state(ccl_member *member);
/* The first asynchronous error of a member stays. */
void fail_member(ccl_member *member, ncclResult_t error, const std::string &text);
/* Is the pretended library older than what has this call? */
bool version_lacks(int needed, const char *call);
std::shared_ptr<ccl_world> make_world(int ranks);
std::shared_ptr<ccl_member> join(const std::shared_ptr<ccl_world> &world, int rank, int device,
                                 bool blocking);
ncclComm_t make_handle(const std::shared_ptr<ccl_member> &member);
/* Wait, without the lock, for `condition`; what is queued on the devices of the world runs
 * meanwhile. Returns false if the process ends before. */
bool ccl_wait(ccl_lock &lock, ccl_world *world, const std::function<bool()> &condition);

/* Inside ncclGroupStart and …End: communicators that were made and must be complete at the end. */
bool in_group();
void group_adds_member(const std::shared_ptr<ccl_member> &member);

/* The calls of one communicator in one group, on a stream. */
hipError_t run_calls(const std::shared_ptr<ccl_member> &member, const std::vector<ccl_call> &calls,
                     run_context &context);
size_t ccl_type_bytes(ncclDataType_t type);

} // namespace simt

struct ncclComm {
    std::shared_ptr<simt::ccl_member> member;
};

#endif
