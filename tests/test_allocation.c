/* A step allocates nothing: the linker gives us every call of the allocation functions that this
 * program and the library in it make, and they are counted while steps run. */
#include <stdatomic.h>
#include <stdlib.h>

#include "group/group.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/small_step.h"

static atomic_int calls;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **memory, size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes);
void __wrap_free(void *memory);

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

static ta_status counted_rank(ta_group *group, void *context)
{
    small_step step;
    ta_device *device;
    ta_plan *plan;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    atomic_int *during = context;
    config.threads = 2;
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.query_placement = TA_PLACE_HEADS;
    step.config.out_placement = TA_PLACE_HEADS;
    TA_TRY(ta_device_open("host", &config, &device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(ta_group_barrier(group, NULL));
    int before = atomic_load(&calls);
    for (int i = 0; i < 20; ++i)
        TA_TRY(small_step_decode(&step, plan));
    TA_TRY(ta_group_barrier(group, NULL));
    atomic_fetch_add(during, atomic_load(&calls) - before);
    TA_TRY(ta_group_barrier(group, NULL));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_a_step_allocates_nothing(void)
{
    for (int ranks = 1; ranks <= 5; ++ranks) {
        int before = atomic_load(&calls);
        atomic_int during = 0;
        EXPECT_OK(ta_group_run_threads(ranks, NULL, counted_rank, &during));
        TEST_ASSERT_EQUAL_INT(0, atomic_load(&during));
        TEST_ASSERT_TRUE(atomic_load(&calls) > before); /* plans and devices do allocate */
    }
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_a_step_allocates_nothing);
    return UNITY_END() != 0;
}
