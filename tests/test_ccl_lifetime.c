/* How groups of GPUs end (hip/ccl/watch.c, scratch.c) while the device still works for them: their
 * scratch memory goes to the next group only behind the last call, whichever stream that was on;
 * threads that end groups of an old library leave nothing; the first cause of a break stays; no
 * call changes the caller's device; and what the library is asked to do in the end. An argument is
 * the version of the library to pretend. */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ccl/ccl.h"
#include "device/device.h"
#include "lib/ccl_ranks.h"
#include "lib/ccl_step.h"
#include "lib/expect.h"
#include "lib/paired_locks.h"

#define COUNT 64 /* elements of a reduction */
#define BYTES (COUNT * sizeof(float))
#define ELSEWHERE 7 /* a device that no rank has */

/* ---- A stream that stands still until it is told ------------------------------------------- */

/* streams[0] of rank 0 waits for streams[1], which waits for a message of rank 1. */
static ta_status shut_gate(ccl_rank *r, void *memory)
{
    hipEvent_t event;
    TA_TRY(r->group->ops->exchange(r->group, NULL, 0, -1, memory, 4, 1, r->streams[1]));
    RANK_EXPECT(hipEventCreateWithFlags(&event, hipEventDisableTiming) == hipSuccess);
    RANK_EXPECT(hipEventRecord(event, (hipStream_t)r->streams[1]) == hipSuccess);
    RANK_EXPECT(hipStreamWaitEvent((hipStream_t)r->streams[0], event, 0) == hipSuccess);
    RANK_EXPECT(hipEventDestroy(event) == hipSuccess);
    return TA_OK;
}

static ta_status open_gate(ccl_rank *r, void *memory)
{
    TA_TRY(r->group->ops->exchange(r->group, memory, 4, 0, NULL, 0, -1, r->streams[1]));
    return r->device->ops->synchronize(r->device, r->streams[1]);
}

/* ---- Scratch memory ------------------------------------------------------------------------ */

static ta_status make_single(ta_device *device, ta_group **group)
{
    char id[TA_CCL_ID_BYTES];
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    TA_TRY(ta_ccl_id(device, id));
    ccl.id = id;
    ccl.rank = 0;
    ccl.ranks = 1;
    return ta_group_create_ccl(device, &ccl, NULL, group);
}

static ta_status reduce_on(ta_group *group, float *memory, void *stream)
{
    return group->ops->all_reduce(group, memory, memory, COUNT, TA_ELEMENT_F32, TA_REDUCE_SUM,
                                  stream);
}

/* Where the calls of a group are queued, one letter each: G is a reduction on the stream that
 * stands still, f one on a stream of its own, b a broadcast there, without scratch memory. */
static ta_status queue_calls(ccl_rank *r, ta_group *group, const char *calls, void *memory,
                             hipStream_t *streams)
{
    for (; *calls; ++calls, ++streams) {
        RANK_EXPECT(hipStreamCreateWithFlags(streams, hipStreamNonBlocking) == hipSuccess);
        if (*calls == 'b')
            TA_TRY(group->ops->broadcast(group, (char *)memory + BYTES, BYTES, 0, *streams));
        else
            TA_TRY(reduce_on(group, memory, *calls == 'G' ? r->streams[0] : *streams));
    }
    return TA_OK;
}

/* Does a group that is made now get this memory within the time? Those that do not are destroyed
 * only then, or they would give theirs to each other. */
static ta_status is_reused(ta_device *device, const void *scratch, int milliseconds, int *reused)
{
    ta_group *made[3000];
    int count = 0;
    struct timespec moment = {0, 20000000};
    int64_t end = ta_clock_ms() + milliseconds;
    for (*reused = 0; !*reused && count < 3000 && ta_clock_ms() < end; nanosleep(&moment, NULL)) {
        TA_TRY(make_single(device, &made[count]));
        *reused = ta_ccl_of(made[count++])->scratch == scratch;
    }
    while (count > 0)
        ta_group_destroy(made[--count]);
    return TA_OK;
}

static ta_status check_scratch(ccl_rank *r, void *memory)
{
    const char *calls = r->context;
    hipStream_t streams[4];
    ta_group *single;
    int reused;
    TA_TRY(shut_gate(r, (char *)memory + 2 * BYTES));
    TA_TRY(make_single(r->device, &single));
    const void *scratch = ta_ccl_of(single)->scratch;
    TA_TRY(queue_calls(r, single, calls, memory, streams));
    ta_group_destroy(single);
    TA_TRY(is_reused(r->device, scratch, 150, &reused));
    if (reused)
        return ta_fail(TA_ERR_DEVICE, "the scratch memory was reused during calls %s", calls);
    TA_TRY(ta_group_barrier(r->threads, NULL));
    TA_TRY(r->device->ops->synchronize(r->device, r->streams[0]));
    TA_TRY(is_reused(r->device, scratch, 60000, &reused));
    RANK_EXPECT(reused);
    for (int i = 0; calls[i]; ++i)
        RANK_EXPECT(hipStreamDestroy(streams[i]) == hipSuccess);
    return TA_OK;
}

static ta_status leaving_rank(ccl_rank *r)
{
    void *memory;
    TA_TRY(r->device->ops->alloc(r->device, 3 * BYTES, &memory)); /* reduce, broadcast, gate */
    TA_TRY(ta_group_barrier(r->threads, NULL));
    if (r->rank == 0) {
        TA_TRY(check_scratch(r, memory));
    } else {
        TA_TRY(ta_group_barrier(r->threads, NULL));
        TA_TRY(open_gate(r, memory));
    }
    TA_TRY(ta_group_barrier(r->threads, NULL));
    r->device->ops->free(r->device, memory);
    return TA_OK;
}

static void test_scratch_waits_for_the_last_call(void)
{
    /* The last call, one that another follows, and one between two. */
    static const char *const queued[] = {"G", "GG", "fG", "Gb", "fGb", "fbG", "Gbb"};
    for (size_t i = 0; i < sizeof queued / sizeof *queued; ++i)
        EXPECT_OK(ccl_run(2, LONG_WAIT_MS, leaving_rank, (void *)queued[i]));
}

/* With nothing queued it is free at once. */
static void test_scratch_of_an_idle_group(void)
{
    ta_device *device;
    ta_group *single;
    int reused;
    EXPECT_OK(ta_device_open("simt:0", NULL, &device));
    EXPECT_OK(make_single(device, &single));
    const void *scratch = ta_ccl_of(single)->scratch;
    ta_group_destroy(single);
    EXPECT_OK(is_reused(device, scratch, 5000, &reused));
    TEST_ASSERT_TRUE(reused);
    ta_device_close(device);
}

/* Reductions of one group on two streams share its scratch memory: the second waits for the
 * first. */
static ta_status two_streams_rank(ccl_rank *r)
{
    float host[COUNT], *memory[2];
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < 2; ++i) {
            TA_TRY(r->device->ops->alloc(r->device, BYTES, (void **)&memory[i]));
            for (int e = 0; e < COUNT; ++e)
                host[e] = (float)(100 * i + 10 * r->rank + e);
            TA_TRY(r->device->ops->copy(r->device, memory[i], host, BYTES, NULL));
        }
        for (int i = 0; i < 2; ++i)
            TA_TRY(reduce_on(r->group, memory[i], r->streams[i]));
        for (int i = 1; i >= 0; --i) { /* the executor runs what is waited for */
            TA_TRY(r->device->ops->copy(r->device, host, memory[i], BYTES, r->streams[i]));
            TA_TRY(r->device->ops->synchronize(r->device, r->streams[i]));
            for (int e = 0; e < COUNT; ++e)
                RANK_EXPECT(host[e] == (float)(3 * (100 * i + e) + 30));
        }
        TA_TRY(ta_group_barrier(r->threads, NULL));
        for (int i = 0; i < 2; ++i)
            r->device->ops->free(r->device, memory[i]);
    }
    return TA_OK;
}

static void test_reductions_on_two_streams(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, two_streams_rank, NULL));
}

/* ---- Threads ------------------------------------------------------------------------------- */

static long mapped_pages(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%ld", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages;
}

/* An old library starts and ends its groups on threads: one that nobody waits for, and that is not
 * let go either, keeps its stack. */
static void test_threads_leave_nothing(void)
{
    ta_device *device;
    EXPECT_OK(ta_device_open("simt:0", NULL, &device));
    long before = 0;
    for (int i = 0; i < 80; ++i) {
        ta_group *single;
        EXPECT_OK(make_single(device, &single));
        ta_group_destroy(single);
        TEST_ASSERT_TRUE(ccl_all_gone());
        if (i == 19)
            before = mapped_pages();
    }
    long grown = mapped_pages() - before, stacks = 30 * ((8L << 20) / 4096);
    for (int i = 0; i < 600 && grown >= stacks; ++i) { /* until the last have ended */
        usleep(100000);
        grown = mapped_pages() - before;
    }
    TEST_ASSERT_TRUE_MESSAGE(before > 0 && grown < stacks, "stacks of ended threads are left");
    ta_device_close(device);
}

/* ---- Causes -------------------------------------------------------------------------------- */

static ta_status aborting_rank(ccl_rank *r)
{
    if (r->rank == 0)
        ta_group_abort(r->group, "the first cause");
    TA_TRY(ta_group_barrier(r->threads, NULL));
    ta_group_abort(r->group, "another cause");
    TA_TRY(ta_group_barrier(r->threads, NULL));
    RANK_EXPECT(ta_group_barrier(r->group, r->streams[0]) == TA_ERR_ABORTED);
    RANK_EXPECT(strstr(ta_last_error(), "the first cause"));
    return TA_OK;
}

static void test_the_first_cause_stays(void)
{
    EXPECT_OK(ccl_run(2, LONG_WAIT_MS, aborting_rank, NULL));
}

/* ---- Waiting ------------------------------------------------------------------------------- */

#define WAITED_MS 300

/* A message that never comes: whoever waits for its stream gives up in time, and nothing is left on
 * it. The group's lock keeps the watcher, which would find out too, from looking. */
static ta_status waiting_rank(ccl_rank *r)
{
    ta_ccl_group *g = ta_ccl_of(r->group);
    void *memory;
    TA_TRY(r->device->ops->alloc(r->device, BYTES, &memory));
    TA_TRY(ta_group_barrier(r->threads, NULL));
    if (r->rank == 0) {
        int now = -1;
        TA_TRY(r->group->ops->exchange(r->group, NULL, 0, -1, memory, 4, 1, r->streams[0]));
        pthread_mutex_lock(&g->calls);
        r->group->timeout_ms = WAITED_MS;
        int64_t begin = ta_clock_ms();
        RANK_EXPECT(hipSetDevice(ELSEWHERE) == hipSuccess);
        ta_status status = r->group->ops->wait(r->group, r->streams[0]);
        int64_t waited = ta_clock_ms() - begin;
        pthread_mutex_unlock(&g->calls);
        RANK_EXPECT(hipGetDevice(&now) == hipSuccess && now == ELSEWHERE);
        RANK_EXPECT(hipGetLastError() == hipSuccess);
        RANK_EXPECT(hipSetDevice(0) == hipSuccess);
        TA_TRY(rank_expect_error(TA_ERR_TIMEOUT, status, "rank 0 of 2 waited 300 ms for the others",
                                 "group"));
        RANK_EXPECT(waited >= WAITED_MS && waited < LONG_WAIT_MS);
        RANK_EXPECT(hipStreamQuery((hipStream_t)r->streams[0]) == hipSuccess);
    }
    TA_TRY(ta_group_barrier(r->threads, NULL));
    RANK_EXPECT(ta_group_barrier(r->group, r->streams[1]) == TA_ERR_TIMEOUT);
    RANK_EXPECT(strstr(ta_last_error(), "rank 0 of 2 waited 300 ms"));
    TA_TRY(ta_group_barrier(r->threads, NULL));
    r->device->ops->free(r->device, memory);
    return TA_OK;
}

static void test_a_wait_that_is_given_up(void)
{
    EXPECT_OK(ccl_run(2, LONG_WAIT_MS, waiting_rank, NULL));
}

/* ---- The caller's device ------------------------------------------------------------------- */

/* The calling thread is on another device than the group's, and stays there; no error is left for
 * its next call to find. */
#define STAYS(call)                                                                                \
    do {                                                                                           \
        int now_ = -1;                                                                             \
        RANK_EXPECT(hipSetDevice(ELSEWHERE) == hipSuccess);                                        \
        RANK_EXPECT((call) == TA_OK);                                                              \
        RANK_EXPECT(hipGetDevice(&now_) == hipSuccess && now_ == ELSEWHERE);                       \
        RANK_EXPECT(hipGetLastError() == hipSuccess);                                              \
    } while (0)

static ta_status destroy(ta_group *group)
{
    ta_group_destroy(group);
    return TA_OK;
}

static ta_status staying_rank(ccl_rank *r)
{
    float *memory;
    ta_group *part = NULL, *other = NULL;
    const ta_group_ops *ops = r->group->ops;
    void *stream = r->streams[0];
    int next = (r->rank + 1) % 3, last = (r->rank + 2) % 3;
    static const size_t even[] = {0, 16, 32, 48}, uneven[] = {0, 4, 32, 48};
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    ccl.bootstrap = r->threads;
    TA_TRY(r->device->ops->alloc(r->device, BYTES, (void **)&memory));
    float *half = memory + COUNT / 2;
    STAYS(ops->barrier(r->group, stream));
    STAYS(ops->broadcast(r->group, memory, BYTES, 1, stream));
    STAYS(ops->exchange(r->group, memory, 16, next, half, 16, last, stream));
    STAYS(ops->start(r->group, memory, 16, next, half, 16, last, stream));
    STAYS(ops->finish(r->group, stream));
    STAYS(ops->all_gather(r->group, memory, even, stream));
    STAYS(ops->all_gather(r->group, memory, uneven, stream));
    STAYS(reduce_on(r->group, memory, stream));
    STAYS(ops->reduce_scatter(r->group, memory, half, even, TA_ELEMENT_F32, TA_REDUCE_MAX, stream));
    STAYS(ops->wait(r->group, stream));
    STAYS(ta_group_split(r->group, 0, 0, &part));
    STAYS(ops->barrier(part, stream));
    STAYS(ops->wait(part, stream));
    STAYS(ta_group_create_ccl(r->device, &ccl, NULL, &other));
    STAYS(destroy(part));
    STAYS(destroy(other));
    TA_TRY(ta_group_barrier(r->threads, NULL));
    r->device->ops->free(r->device, memory);
    return TA_OK;
}

static void test_the_callers_device_stays(void)
{
    EXPECT_OK(ccl_run(3, LONG_WAIT_MS, staying_rank, NULL));
}

/* ---- What the library is asked to do ------------------------------------------------------- */

#define ENDED_BY_ABORT 42

static ta_ccl_library changed; /* the library's table, with functions of this program */
static ncclResult_t (*library_abort)(ncclComm_t comm);
static atomic_int aborts, ends_process;

static ncclResult_t count_abort(ncclComm_t comm)
{
    if (atomic_load(&ends_process))
        _exit(ENDED_BY_ABORT);
    atomic_fetch_add(&aborts, 1);
    return library_abort(comm);
}

static ncclResult_t fail_rank(const ncclComm_t comm, int *rank)
{
    (void)comm;
    (void)rank;
    return ncclInternalError;
}

/* Nobody uses the old table while the group's lock is held. */
static void use_table(ccl_rank *r, const ta_ccl_library *table)
{
    ta_ccl_group *g = ta_ccl_of(r->group);
    pthread_mutex_lock(&g->calls);
    g->nccl = table;
    pthread_mutex_unlock(&g->calls);
}

static void change_table(ccl_rank *r)
{
    changed = *ta_ccl_of(r->group)->nccl;
    library_abort = changed.ncclCommAbort;
    changed.ncclCommAbort = count_abort;
    changed.ncclCommUserRank = fail_rank;
}

/* Rank 0 leaves long before rank 1: it waits to be finalized, and nothing is aborted. */
static ta_status early_rank(ccl_rank *r)
{
    if (!ta_ccl_of(r->group)->nccl->ncclCommFinalize)
        return TA_OK; /* an old library waits in its call */
    if (r->rank == 0) {
        change_table(r);
        use_table(r, &changed);
        ta_group_destroy(r->group);
        r->group = NULL;
    }
    TA_TRY(ta_group_barrier(r->threads, NULL));
    usleep(r->rank == 1 ? 200000 : 0);
    return TA_OK;
}

static void test_nothing_is_aborted_in_order(void)
{
    atomic_store(&aborts, 0);
    EXPECT_OK(ccl_run(2, LONG_WAIT_MS, early_rank, NULL));
    TEST_ASSERT_TRUE(ccl_all_gone());
    TEST_ASSERT_EQUAL_INT(0, atomic_load(&aborts));
}

/* A library that refuses to finalize: then aborting is what is left. */
static ncclResult_t fail_finalize(ncclComm_t comm)
{
    (void)comm;
    return ncclInternalError;
}

static ta_status unwanted_rank(ccl_rank *r)
{
    if (!ta_ccl_of(r->group)->nccl->ncclCommFinalize)
        return TA_OK;
    change_table(r);
    changed.ncclCommFinalize = fail_finalize;
    use_table(r, &changed);
    return TA_OK;
}

static void test_what_is_not_finalized_is_aborted(void)
{
    atomic_store(&aborts, 0);
    EXPECT_OK(ccl_run(1, LONG_WAIT_MS, unwanted_rank, NULL));
    TEST_ASSERT_TRUE(ccl_all_gone());
    TEST_ASSERT_EQUAL_INT(changed.ncclCommFinalize ? 1 : 0, atomic_load(&aborts));
}

/* A part of which the library does not say which rank this is: an error in the library's words, and
 * the part's communicator is aborted. */
static ta_status nameless_rank(ccl_rank *r)
{
    const ta_ccl_library *table = ta_ccl_of(r->group)->nccl;
    ta_group *part = NULL;
    if (!table->ncclCommSplit)
        return TA_OK; /* an old library does not split */
    if (r->rank == 0)
        change_table(r);
    TA_TRY(ta_group_barrier(r->threads, NULL));
    use_table(r, &changed);
    ta_status status = ta_group_split(r->group, 0, 0, &part);
    use_table(r, table);
    TA_TRY(rank_expect_error(TA_ERR_DEVICE, status, "a part of a ", "group: "));
    RANK_EXPECT(strstr(ta_last_error(), table->ncclGetErrorString(ncclInternalError)));
    RANK_EXPECT(part == NULL);
    return TA_OK;
}

static void test_a_part_without_a_rank(void)
{
    EXPECT_OK(ccl_run(2, LONG_WAIT_MS, nameless_rank, NULL));
    TEST_ASSERT_TRUE(ccl_all_gone());
}

/* A process that ends while rank 0 has left its group and rank 1 never will: what rank 0 had is
 * aborted before that. */
static ta_status unended_rank(ccl_rank *r)
{
    if (r->rank == 0) {
        change_table(r);
        use_table(r, &changed);
    } else {
        r->group = NULL; /* and nobody destroys it */
    }
    return TA_OK;
}

static pid_t start_unended(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(200);
        atomic_store(&ends_process, 1);
        exit(ccl_run(2, LONG_WAIT_MS, unended_rank, NULL) != TA_OK);
    }
    return child;
}

static pid_t unended; /* that process; 0: an old library can't be asked */

static void test_the_end_of_the_process(void)
{
    int state = 0;
    if (unended == 0)
        TEST_IGNORE_MESSAGE("a library that cannot finalize");
    TEST_ASSERT_TRUE(unended > 0 && waitpid(unended, &state, 0) == unended);
    TEST_ASSERT_TRUE(WIFEXITED(state));
    TEST_ASSERT_EQUAL_INT(ENDED_BY_ABORT, WEXITSTATUS(state));
}

/* ---- The end of a process with an old library ---------------------------------------------- */

/* Groups that are being ended are waited for when the process ends, for at most a second; those
 * that are over are not. Returns how many milliseconds that took in a process of its own. */
static int64_t time_of_end(int64_t *began)
{
    int state = 0;
    pid_t child = fork();
    if (child == 0) {
        ta_device *device;
        ta_group *single;
        alarm(200);
        if (ta_device_open("simt:0", NULL, &device) != TA_OK ||
            make_single(device, &single) != TA_OK)
            _exit(1);
        ta_group_destroy(single);
        if (!ccl_all_gone())
            _exit(1);
        ta_device_close(device);
        *began = ta_clock_ms();
        exit(0);
    }
    if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state) || WEXITSTATUS(state))
        return INT64_MAX;
    return ta_clock_ms() - *began;
}

/* On a busy machine any may take long; all of them only if they wait for nothing. */
static pid_t start_ends(void)
{
    pid_t child = fork();
    if (child == 0) {
        int64_t *began =
            mmap(NULL, sizeof *began, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        for (int i = 0; i < 20 && began != MAP_FAILED; ++i)
            if (time_of_end(began) < 1000)
                _exit(0);
        _exit(1);
    }
    return child;
}

static pid_t ends; /* that process; 0: the library finalizes */

static void test_the_end_of_an_old_library(void)
{
    int state = 0;
    if (ends == 0)
        TEST_IGNORE_MESSAGE("a library that finalizes");
    TEST_ASSERT_TRUE(ends > 0 && waitpid(ends, &state, 0) == ends);
    TEST_ASSERT_TRUE(WIFEXITED(state));
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, WEXITSTATUS(state), "groups that are over are waited for");
}

/* Of all that these tests went through; how a process ends is behind it. */
static void test_locks_come_in_pairs(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, paired_locks_wrong(), "unlocked what was not locked");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        simt_set_ccl_version(atoi(argv[1]));
    if (argc > 1) /* before there are threads */
        ends = start_ends();
    else
        unended = start_unended();
    UNITY_BEGIN();
    RUN_TEST(test_scratch_waits_for_the_last_call);
    RUN_TEST(test_scratch_of_an_idle_group);
    RUN_TEST(test_reductions_on_two_streams);
    RUN_TEST(test_threads_leave_nothing);
    RUN_TEST(test_the_first_cause_stays);
    RUN_TEST(test_a_wait_that_is_given_up);
    RUN_TEST(test_the_callers_device_stays);
    RUN_TEST(test_nothing_is_aborted_in_order);
    RUN_TEST(test_what_is_not_finalized_is_aborted);
    RUN_TEST(test_a_part_without_a_rank);
    RUN_TEST(test_the_end_of_the_process);
    RUN_TEST(test_the_end_of_an_old_library);
    RUN_TEST(test_locks_come_in_pairs);
    return UNITY_END() != 0;
}
