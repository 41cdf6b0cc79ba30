/* Decode steps on groups of GPUs (hip/ccl/) over the executor's NCCL: every way in which a step
 * or a group can fail, each in a bounded time. Ranks are threads with a device each.
 * test_ccl_capture.c has steps that work. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "ccl/ccl.h"
#include "device/device.h"
#include "lib/ccl_ranks.h"
#include "lib/ccl_step.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/paired_locks.h"
#include "lib/small_step.h"
#include "simt/simt_ccl.h"
#include "simt/simt_control.h"

#define TIMEOUT_MS 1000 /* where a rank is lost, once all are there */
/* Who is told that a group broke does not wait until LONG_WAIT_MS is over. How soon it gets a CPU
 * is up to the machine. */
#define BOUND_MS (LONG_WAIT_MS / 2)

/* ---- A bad argument on one rank ------------------------------------------------------------ */

static ta_status faulty_rank(ccl_rank *r)
{
    prepared p;
    int bad = r->rank == 1;
    TA_TRY(prepare(r->group, r->device, &p));
    p.step.kv.size = bad ? 1 : p.step.kv.size;
    ta_status status = small_step_queue(&p.step, p.plan, r->streams[0]);
    RANK_EXPECT(status == (bad ? TA_ERR_INVALID : TA_OK));
    TA_TRY(small_step_fetch(&p.step, r->streams[0]));
    RANK_EXPECT(small_step_untouched(&p.step));
    p.step.kv.size = sizeof p.step.kv;
    status = small_step_queue(&p.step, p.plan, r->streams[0]);
    RANK_EXPECT(status == (bad ? TA_OK : TA_ERR_INVALID));
    RANK_EXPECT(bad || strstr(ta_last_error(), "rank 1 failed in an earlier step"));
    TA_TRY(small_step_fetch(&p.step, r->streams[0]));
    RANK_EXPECT(bad ? small_step_right(&p.step) : small_step_untouched(&p.step));
    TA_TRY(small_step_queue(&p.step, p.plan, r->streams[0]));
    TA_TRY(small_step_fetch(&p.step, r->streams[0]));
    RANK_EXPECT(small_step_right(&p.step));
    release(&p);
    return TA_OK;
}

static void test_bad_argument(void)
{
    static const int ranks[] = {2, 3, 5};
    for (int i = 0; i < 3; ++i)
        run_all(ranks[i], LONG_WAIT_MS, faulty_rank, NULL);
}

/* ---- Broken groups ------------------------------------------------------------------------- */

/* All but rank 1 make a new group and decode. */
static ta_status survive(ccl_rank *r)
{
    ta_group *left = NULL, *group = NULL;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    prepared p;
    TA_TRY(ta_group_split(r->threads, r->rank == 1 ? -1 : 0, 0, &left));
    if (!left)
        return TA_OK;
    ccl.bootstrap = left;
    TA_TRY(ta_group_create_ccl(r->device, &ccl, NULL, &group));
    TA_TRY(prepare(group, r->device, &p));
    TA_TRY(small_step_queue(&p.step, p.plan, r->streams[1]));
    TA_TRY(small_step_fetch(&p.step, r->streams[1]));
    RANK_EXPECT(small_step_right(&p.step));
    release(&p);
    ta_group_destroy(group);
    ta_group_destroy(left);
    return TA_OK;
}

typedef enum trouble { INJECTED, LOST, ABORTED } trouble;

static void *abort_soon(void *group)
{
    struct timespec moment = {0, 50000000};
    nanosleep(&moment, NULL);
    ta_group_abort(group, "somebody pulled the plug");
    return NULL;
}

/* Only a lost rank is found by the timeout, which is short from here on: elsewhere, and before all
 * have come, a slow machine must not reach it first. Another thread reads it under this lock. */
static void lose_patience(ta_group *group)
{
    pthread_mutex_lock(&ta_ccl_of(group)->calls);
    group->timeout_ms = TIMEOUT_MS;
    pthread_mutex_unlock(&ta_ccl_of(group)->calls);
}

/* Queue a step that can't end, wait for its end, and look what the next call says. */
static ta_status troubled_rank(ccl_rank *r)
{
    trouble what = *(const trouble *)r->context;
    pthread_t thread;
    prepared p;
    TA_TRY(prepare(r->group, r->device, &p));
    if (what == LOST)
        lose_patience(r->group);
    TA_TRY(ta_group_barrier(r->threads, NULL));
    if (r->rank == 0 && what == INJECTED)
        simt_fail_ccl(1, 1);
    if (r->rank == 0 && what == ABORTED)
        RANK_EXPECT(pthread_create(&thread, NULL, abort_soon, r->group) == 0);
    TA_TRY(ta_group_barrier(r->threads, NULL));
    int64_t begin = ta_clock_ms();
    if (r->rank != 1 || what == INJECTED)
        (void)small_step_queue(&p.step, p.plan, r->streams[0]);
    RANK_EXPECT(hipStreamSynchronize((hipStream_t)r->streams[0]) == hipSuccess);
    TA_TRY(ta_group_barrier(r->threads, NULL));
    RANK_EXPECT(ta_clock_ms() - begin < BOUND_MS);
    ta_status status = small_step_queue(&p.step, p.plan, r->streams[0]);
    RANK_EXPECT(status == (what == INJECTED ? TA_ERR_DEVICE
                           : what == LOST   ? TA_ERR_TIMEOUT
                                            : TA_ERR_ABORTED));
    /* A collective, which rings have too, can't tell who of the others is missing. */
    int any = what == LOST && options.algorithm != TA_ALGORITHM_AUTO;
    RANK_EXPECT(strstr(ta_last_error(), what == ABORTED ? "pulled the plug"
                                        : any           ? "waits since"
                                                        : "rank 1"));
    RANK_EXPECT(what != INJECTED || strstr(ta_last_error(), "a failure that was asked for"));
    if (r->rank == 0 && what == ABORTED)
        pthread_join(thread, NULL);
    begin = ta_clock_ms();
    release(&p);
    ta_group_destroy(r->group);
    r->group = NULL;
    RANK_EXPECT(ta_clock_ms() - begin < BOUND_MS);
    return survive(r);
}

static void run_trouble(trouble what)
{
    run_all(3, LONG_WAIT_MS, troubled_rank, &what);
}

static void test_asynchronous_error(void)
{
    run_trouble(INJECTED);
}

static void test_lost_rank(void)
{
    run_trouble(LOST);
}

static void test_abort_from_another_thread(void)
{
    run_trouble(ABORTED);
}

/* ---- Making groups ------------------------------------------------------------------------- */

typedef struct joining {
    char id[TA_CCL_ID_BYTES];
    int ranks;
    const char *said; /* at the end of the error */
} joining;

static ta_status joining_rank(ta_group *threads, void *context)
{
    joining *j = context;
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    ta_device *device;
    ta_group *group = NULL;
    char name[32];
    ccl.rank = ta_group_rank(threads);
    ccl.ranks = j->ranks;
    ccl.id = j->id;
    config.timeout_ms = TIMEOUT_MS;
    snprintf(name, sizeof name, "simt:%d", ccl.rank);
    TA_TRY(ta_device_open(name, NULL, &device));
    TA_TRY(ta_group_barrier(threads, NULL)); /* those who come, come together */
    ta_status status = ta_group_create_ccl(device, &ccl, &config, &group);
    RANK_EXPECT(status == TA_ERR_TIMEOUT && !group);
    const char *said = strstr(ta_last_error(), j->said);
    RANK_EXPECT(said && strlen(said) == strlen(j->said));
    ta_device_close(device);
    return TA_OK;
}

/* Two of three come, or of so many that not all of the others are named. */
static void test_a_rank_that_never_joins(void)
{
    joining cases[] = {
        {.ranks = 3, .said = "2 of 3 came from this process; not rank 2"},
        {.ranks = 12, .said = "2 of 12 came from this process; not rank 2, 3, 4, 5, 6, 7, 8, 9"}};
    for (int i = 0; i < 2; ++i) {
        ta_device *device;
        EXPECT_OK(ta_device_open("simt:0", NULL, &device));
        EXPECT_OK(ta_ccl_id(device, cases[i].id));
        ta_device_close(device);
        EXPECT_OK(ta_group_run_threads(2, NULL, joining_rank, &cases[i]));
    }
}

static ta_status elsewhere_rank(ccl_rank *r)
{
    small_step step;
    ta_device *other;
    ta_plan *plan;
    char name[32];
    snprintf(name, sizeof name, "simt:%d", r->rank + 3);
    TA_TRY(ta_device_open(name, NULL, &other));
    small_step_init(&step, r->rank, r->ranks);
    RANK_EXPECT(ta_plan_create(r->group, other, &step.config, &plan) == TA_ERR_INVALID);
    RANK_EXPECT(strstr(ta_last_error(), name) && strstr(ta_last_error(), r->device->name));
    ta_device_close(other);
    return TA_OK;
}

static void test_plan_on_another_device(void)
{
    EXPECT_OK(ccl_run(2, LONG_WAIT_MS, elsewhere_rank, NULL));
}

static ta_status adopting_rank(ta_group *threads, void *context)
{
    ncclUniqueId *id = context;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    ta_device *device;
    ta_group *group, *part;
    ncclComm_t comm; /* blocking, as programs usually have them */
    prepared p;
    const struct timespec moment = {0, 100 * 1000 * 1000};
    int rank = ta_group_rank(threads);
    RANK_EXPECT(hipSetDevice(rank) == hipSuccess);
    RANK_EXPECT(ncclCommInitRank(&comm, 2, *id, rank) == ncclSuccess);
    TA_TRY(ta_device_open(rank ? "simt:1" : "simt:0", NULL, &device));
    ccl.communicator = comm;
    TA_TRY(ta_group_create_ccl(device, &ccl, NULL, &group));
    RANK_EXPECT(ta_group_rank(group) == rank && ta_group_size(group) == 2);
    TA_TRY(prepare(group, device, &p));
    TA_TRY(small_step_decode(&p.step, p.plan));
    RANK_EXPECT(small_step_right(&p.step));
    release(&p);
    TA_TRY(ta_group_split(group, 0, -rank, &part));
    RANK_EXPECT(ta_group_rank(part) == 1 - rank);
    if (rank == 1)
        nanosleep(&moment, NULL); /* the other's part is on its way out */
    ta_group_destroy(part);
    ta_group_destroy(group);
    ta_device_close(device);
    RANK_EXPECT(ncclCommDestroy(comm) == ncclSuccess);
    return TA_OK;
}

static void test_adopted(void)
{
    ncclUniqueId id;
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclGetUniqueId(&id));
    EXPECT_OK(ta_group_run_threads(2, NULL, adopting_rank, &id));
}

static void test_bad_arguments(void)
{
    ta_device *host, *device;
    ta_group *group;
    char id[TA_CCL_ID_BYTES], info[8192];
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    EXPECT_OK(ta_device_open("host", NULL, &host));
    EXPECT_OK(ta_device_open("simt:0", NULL, &device));
    TEST_ASSERT_EQUAL_INT(TA_ERR_UNSUPPORTED, ta_ccl_id(host, id));
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, ta_ccl_id(device, NULL));
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, ta_group_create_ccl(device, &ccl, NULL, &group));
    ccl.id = id;
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, ta_group_create_ccl(device, &ccl, NULL, &group));
    EXPECT_OK(ta_info(info, sizeof info, NULL));
    TEST_ASSERT_NOT_NULL(strstr(info, "simt collectives: the executor's NCCL 2.28.9"));
    TEST_ASSERT_NOT_NULL(strstr(info, "split yes"));
    ta_device_close(device);
    ta_device_close(host);
}

/* Groups, parts of groups and plans keep the device that is closed before them. */
static ta_status early_rank(ccl_rank *r)
{
    ta_device *device = NULL;
    ta_group *group = NULL, *part = NULL;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    prepared p;
    char name[32];
    snprintf(name, sizeof name, "%s", ta_device_name(r->device));
    TA_TRY(ta_device_open(name, NULL, &device));
    ccl.bootstrap = r->threads;
    TA_TRY(ta_group_create_ccl(device, &ccl, NULL, &group));
    TA_TRY(ta_group_split(group, 0, 0, &part));
    TA_TRY(prepare(part, device, &p));
    ta_device_close(device);
    TA_TRY(small_step_queue(&p.step, p.plan, r->streams[1]));
    TA_TRY(small_step_fetch(&p.step, r->streams[1]));
    RANK_EXPECT(small_step_right(&p.step));
    release(&p);
    ta_group_destroy(r->rank ? group : part);
    ta_group_destroy(r->rank ? part : group);
    return TA_OK;
}

static void test_groups_keep_their_device(void)
{
    run_all(2, LONG_WAIT_MS, early_rank, NULL);
}

/* A library of collectives that is not opened; the error and ta_info() say why. */
static void expect_no_library(const char *name, const char *error, const char *said)
{
    ta_device *device;
    char id[TA_CCL_ID_BYTES], info[8192];
    setenv("TREEATTN_CCL_LIBRARY", name, 1);
    EXPECT_OK(ta_device_open("simt:0", NULL, &device));
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_ccl_id(device, id), name, error);
    ta_ccl_config by_id = TA_CCL_CONFIG_INIT, adopted = TA_CCL_CONFIG_INIT;
    ta_group *group = NULL;
    by_id.id = id;
    by_id.ranks = 1;
    adopted.communicator = id;
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_group_create_ccl(device, &by_id, NULL, &group), name, error);
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_group_create_ccl(device, &adopted, NULL, &group), name,
                 error);
    TEST_ASSERT_NULL(group);
    EXPECT_OK(ta_info(info, sizeof info, NULL));
    TEST_ASSERT_NOT_NULL(strstr(info, said));
    ta_device_close(device);
}

/* The program is started once more for this one, with an argument. */
static void test_missing_library(void)
{
    expect_no_library("libnothing.so.9", "libnothing.so.9",
                      "simt collectives: none, libnothing.so.9");
}

/* So for this one: whoever can write to the working directory would choose what is loaded. */
static void test_library_of_a_relative_path(void)
{
    expect_no_library("./libnothing.so.9", "not an absolute path",
                      "simt collectives: none, ./libnothing.so.9 is not opened");
}

/* A file of the same contents, in a new directory: the loader takes it for another library. */
static void copy_library(char *directory, char *path, size_t capacity)
{
    char block[65536];
    size_t got;
    Dl_info from;
    TEST_ASSERT_TRUE(dladdr((const void *)(uintptr_t)ncclGetVersion, &from));
    TEST_ASSERT_NOT_NULL(mkdtemp(directory));
    snprintf(path, capacity, "%s/libsimt.so", directory);
    FILE *in = fopen(from.dli_fname, "rb"), *out = fopen(path, "wb");
    TEST_ASSERT_TRUE(in && out);
    while ((got = fread(block, 1, sizeof block, in)) > 0)
        TEST_ASSERT_EQUAL_size_t(got, fwrite(block, 1, got, out));
    TEST_ASSERT_EQUAL_INT(0, fclose(in) | fclose(out));
}

/* And for this one. The communicator is of the library that this program is linked to; a second
 * copy of that must not be handed it, whether it is open or not. */
static void test_adopting_for_another_copy(void)
{
    char directory[] = "/tmp/treeattn-copy-XXXXXX", path[64], id[TA_CCL_ID_BYTES];
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    ncclUniqueId unique;
    ncclComm_t comm;
    ta_device *device;
    ta_group *group = NULL;
    copy_library(directory, path, sizeof path);
    setenv("TREEATTN_CCL_LIBRARY", path, 1);
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclGetUniqueId(&unique));
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommInitRank(&comm, 1, unique, 0));
    EXPECT_OK(ta_device_open("simt:0", NULL, &device));
    ccl.communicator = comm;
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_group_create_ccl(device, &ccl, NULL, &group), path,
                 "is not loaded");
    void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    TEST_ASSERT_NULL_MESSAGE(handle, "the second copy was opened");
    EXPECT_OK(ta_ccl_id(device, id));
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_group_create_ccl(device, &ccl, NULL, &group), path,
                 "another copy");
    TEST_ASSERT_NULL(group);
    ta_device_close(device);
    TEST_ASSERT_EQUAL_INT(ncclSuccess, ncclCommDestroy(comm));
    TEST_ASSERT_EQUAL_INT(0, remove(path) | remove(directory));
}

/* Of all that these tests went through. */
static void test_locks_come_in_pairs(void)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, paired_locks_wrong(), "unlocked what was not locked");
}

int main(int argc, char **argv)
{
    UNITY_BEGIN();
    if (argc > 1 && !strcmp(argv[1], "copy")) {
        RUN_TEST(test_adopting_for_another_copy);
        return UNITY_END() != 0;
    }
    if (argc > 1 && !strcmp(argv[1], "relative")) {
        RUN_TEST(test_library_of_a_relative_path);
        return UNITY_END() != 0;
    }
    if (argc > 1 && !strcmp(argv[1], "missing")) {
        RUN_TEST(test_missing_library);
        return UNITY_END() != 0;
    }
    RUN_TEST(test_bad_argument);
    RUN_TEST(test_asynchronous_error);
    RUN_TEST(test_lost_rank);
    RUN_TEST(test_abort_from_another_thread);
    RUN_TEST(test_a_rank_that_never_joins);
    RUN_TEST(test_plan_on_another_device);
    RUN_TEST(test_adopted);
    RUN_TEST(test_groups_keep_their_device);
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_locks_come_in_pairs);
    return UNITY_END() != 0;
}
