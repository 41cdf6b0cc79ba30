/* A step allocates nothing, be it a decode, a combine or an append: the linker gives us every call
 * of the allocation functions that this program and the library in it make, and they are counted
 * while steps run. */
#include <stdatomic.h>
#include <stdlib.h>

#include "group/group.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/plan_config.h"
#include "lib/small_step.h"
#include "lib/wrapped_allocation.h"

static atomic_int calls;

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __real_realloc(memory, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __real_aligned_alloc(alignment, bytes);
}

int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    atomic_fetch_add(&calls, 1);
    return __real_posix_memalign(memory, alignment, bytes);
}

void __wrap_free(void *memory)
{
    atomic_fetch_add(&calls, 1);
    __real_free(memory);
}

void setUp(void)
{
}

void tearDown(void)
{
}

/* What a rank does again and again. */
typedef struct work {
    ta_status (*make)(small_step *step); /* changes the plan */
    ta_status (*run)(small_step *step, ta_plan *plan);
    atomic_int during; /* calls of the allocation functions while it does */
} work;

static ta_status counted_rank(ta_group *group, void *context)
{
    small_step step;
    ta_device *device;
    ta_plan *plan;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    work *w = context;
    config.threads = 2;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    TA_TRY(w->make(&step));
    TA_TRY(ta_device_open("host", &config, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(ta_group_barrier(group, NULL));
    int before = atomic_load(&calls);
    for (int i = 0; i < 20; ++i)
        TA_TRY(w->run(&step, plan));
    TA_TRY(ta_group_barrier(group, NULL));
    atomic_fetch_add(&w->during, atomic_load(&calls) - before);
    TA_TRY(ta_group_barrier(group, NULL));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void run_work(work *w)
{
    for (int ranks = 1; ranks <= 5; ++ranks) {
        int before = atomic_load(&calls);
        w->during = 0;
        EXPECT_OK(ta_group_run_threads(ranks, NULL, counted_rank, w));
        TEST_ASSERT_EQUAL_INT(0, atomic_load(&w->during));
        TEST_ASSERT_TRUE(atomic_load(&calls) > before); /* plans and devices do allocate */
    }
}

static ta_status scatter(small_step *step)
{
    step->config.query_placement = TA_PLACE_HEADS;
    step->config.out_placement = TA_PLACE_HEADS;
    return TA_OK;
}

static void test_a_step_allocates_nothing(void)
{
    work w = {.make = scatter, .run = small_step_decode};
    run_work(&w);
}

/* One call after the other with other rows, and a uniform one in between. */
static ta_status decode_ragged(small_step *step, ta_plan *plan)
{
    for (int32_t tokens = 1; tokens <= SMALL_BATCH * SMALL_QUERY_TOKENS; ++tokens) {
        step->starts[1] = tokens / 2;
        step->starts[2] = tokens;
        small_step_ragged(step, tokens);
        TA_TRY(small_step_decode(step, plan));
    }
    step->call = (ta_call)TA_CALL_INIT;
    return small_step_decode(step, plan);
}

static void test_a_ragged_step_allocates_nothing(void)
{
    work w = {.make = scatter, .run = decode_ragged};
    run_work(&w);
}

static ta_status only_combine(small_step *step)
{
    step->config = combine_config(SMALL_BATCH, SMALL_HEADS, SMALL_V_DIM);
    step->config.query_tokens = SMALL_QUERY_TOKENS;
    return TA_OK;
}

static ta_status combine(small_step *step, ta_plan *plan)
{
    float part_lse[SMALL_ROWS] = {0};
    return ta_combine(plan, &step->q, part_lse, TA_LSE_2, &step->out, step->lse, NULL, NULL);
}

static void test_a_combine_allocates_nothing(void)
{
    work w = {.make = only_combine, .run = combine};
    run_work(&w);
}

static ta_status may_append(small_step *step)
{
    step->config.append_scattered = 1;
    return TA_OK;
}

static ta_status append(small_step *step, ta_plan *plan)
{
    ta_append_input input = TA_APPEND_INPUT_INIT;
    input.k.data = input.v.data = step->query;
    for (int source = TA_APPEND_ALL; source <= TA_APPEND_LOCAL; ++source) {
        input.source = (ta_append_source)source;
        TA_TRY(ta_append(plan, &input, &step->kv, NULL, NULL));
    }
    return TA_OK;
}

static void test_an_append_allocates_nothing(void)
{
    work w = {.make = may_append, .run = append};
    run_work(&w);
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_a_step_allocates_nothing);
    RUN_TEST(test_a_ragged_step_allocates_nothing);
    RUN_TEST(test_a_combine_allocates_nothing);
    RUN_TEST(test_an_append_allocates_nothing);
    return UNITY_END() != 0;
}
