/* Every allocation of host memory in the GPU module fails once, as test_no_memory.c has it for the
 * library: on one of three ranks with a GPU each, in all that makes something there. The rank must
 * say that it had no memory, the others must hear of it and not wait in vain, and nothing may
 * crash. The module is loaded at run time, so the linker can't give us its calls: this program has
 * calloc() and malloc() of its own and looks at who called. An argument is the version of NCCL to
 * pretend. */
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/status.h"
#include "device/device.h"
#include "group/group.h"
#include "lib/expect.h"
#include "lib/no_memory.h"
#include "lib/small_step.h"
#include "simt/simt_ccl.h"

#define RANKS NO_MEMORY_RANKS
#define TIMEOUT_MS 60000 /* nobody may wait for it */
#define MOST_ALLOCATIONS 40

/* ---- Memory that is not there ---- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);

static uintptr_t module_begin, module_end;
static _Thread_local int countdown; /* the allocation that fails on this thread; 0: none */
static _Thread_local int failed;

static int is_refused(const void *caller)
{
    uintptr_t from = (uintptr_t)caller;
    if (countdown == 0 || from < module_begin || from >= module_end || --countdown > 0)
        return 0;
    failed = 1;
    return 1;
}

void *malloc(size_t bytes)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return is_refused(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}

static int find_module(struct dl_phdr_info *info, size_t size, void *context)
{
    (void)size;
    (void)context;
    if (!strstr(info->dlpi_name, "treeattn-simt.so"))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
            module_begin = info->dlpi_addr + part->p_vaddr;
            module_end = module_begin + part->p_memsz;
        }
    }
    return 1;
}

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- A call on all ranks, of which one has no memory ---- */

/* What a call may need, and what it makes. */
typedef struct scene {
    ta_group *threads, *ccl, *part;
    ta_device *device, *other;
    small_step step;
    ta_plan *plan;
} scene;

typedef struct call {
    const char *name;
    ta_status (*prepare)(scene *s); /* with memory; NULL: nothing to do */
    ta_status (*run)(scene *s);
    ta_status (*after)(scene *s); /* what those say that could end the call; NULL: nothing ends */
    int alone;                    /* ranks have nothing to do with each other */
} call;

typedef struct trial {
    const call *call;
    refusal refused;
} trial;

static ta_status poor_rank(ta_group *group, void *context)
{
    trial *t = context;
    refusal *refused = &t->refused;
    int rank = ta_group_rank(group);
    char name[32];
    scene s = {.threads = group};
    snprintf(name, sizeof name, "simt:%d", rank);
    small_step_init(&s.step, rank, RANKS);
    TA_TRY(ta_device_open(name, NULL, &s.device));
    if (t->call->prepare)
        TA_TRY(t->call->prepare(&s));
    TA_TRY(ta_group_barrier(group, NULL));
    failed = 0;
    countdown = rank == refused->rank ? refused->number : 0;
    ta_status status = t->call->run(&s);
    countdown = 0;
    if (rank == refused->rank)
        refused->failed = failed;
    snprintf(refused->said[rank], sizeof refused->said[rank], "%s", ta_last_error());
    TA_TRY(ta_group_barrier(group, NULL));
    if (status == TA_OK && refused->failed && t->call->after) {
        status = t->call->after(&s);
        snprintf(refused->said[rank], sizeof refused->said[rank], "%s", ta_last_error());
    }
    refused->status[rank] = status;
    TA_TRY(ta_group_barrier(group, NULL));
    ta_plan_destroy(s.plan);
    ta_group_destroy(s.part);
    ta_group_destroy(s.ccl);
    ta_device_close(s.other);
    ta_device_close(s.device);
    return TA_OK;
}

static void fail_each(const call *c)
{
    for (int rank = 0; rank < RANKS; rank += RANKS - 1) {
        int number = 1;
        for (; number <= MOST_ALLOCATIONS; ++number) {
            static trial t;
            t = (trial){.call = c, .refused = {.rank = rank, .number = number}};
            alarm(300); /* whoever hangs ends the program */
            EXPECT_OK(ta_group_run_threads(RANKS, NULL, poor_rank, &t));
            if (!t.refused.failed) {
                expect_memory(&t.refused);
                break;
            }
            expect_no_memory(&t.refused, c->name, c->alone);
        }
        printf("%s: %d allocations of rank %d\n", c->name, number - 1, rank);
        TEST_ASSERT_TRUE_MESSAGE(number > 1, "nothing was allocated: there is nothing to see");
        TEST_ASSERT_TRUE_MESSAGE(number <= MOST_ALLOCATIONS, "it never ends");
    }
}

/* ---- The calls ---- */

static ta_status open_device(scene *s)
{
    return ta_device_open(s->device->name, NULL, &s->other);
}

static void test_device(void)
{
    fail_each(&(call){.name = "opening a device", .run = open_device, .alone = 1});
}

static ta_status make_group(scene *s)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    ta_ccl_config ccl = TA_CCL_CONFIG_INIT;
    config.timeout_ms = TIMEOUT_MS;
    ccl.bootstrap = s->threads;
    return ta_group_create_ccl(s->device, &ccl, &config, &s->ccl);
}

static void test_group(void)
{
    fail_each(&(call){.name = "making a group", .run = make_group});
}

static ta_status split(scene *s)
{
    return ta_group_split(s->ccl, 0, 0, &s->part);
}

/* Whoever has a part hears of it from the whole. */
static ta_status meet(scene *s)
{
    return ta_group_barrier(s->ccl, NULL);
}

static void test_split(void)
{
    fail_each(
        &(call){.name = "splitting a group", .prepare = make_group, .run = split, .after = meet});
}

static ta_status make_direct(scene *s)
{
    s->step.config.exchange = TA_EXCHANGE_DIRECT;
    return ta_plan_create(s->threads, s->device, &s->step.config, &s->plan);
}

static void test_direct_plan(void)
{
    fail_each(&(call){.name = "making a plan with the direct exchange", .run = make_direct});
}

int main(int argc, char **argv)
{
    ta_device *device = NULL; /* keeps the module where it is */
    if (argc > 1)
        simt_set_ccl_version(atoi(argv[1]));
    if (ta_device_open("simt:0", NULL, &device) != TA_OK || !dl_iterate_phdr(find_module, NULL)) {
        fprintf(stderr, "no module: %s\n", ta_last_error());
        return 1;
    }
    UNITY_BEGIN();
    RUN_TEST(test_device);
    RUN_TEST(test_group);
    RUN_TEST(test_split);
    RUN_TEST(test_direct_plan);
    ta_device_close(device);
    return UNITY_END() != 0;
}
