/* The public collectives (src/group/collectives.c, collectives_host.c): bad arguments, ranks that
 * are not in the same call, one rank, and ranks whose memory is on different devices. What they
 * compute is in the conformance suite (lib/conformance_collectives.c), which runs on every kind of
 * group; here it runs on GPUs that are staged.
 *
 *     test_collectives [--device NAME] [--every N] */
#include <stdlib.h>

#include "lib/conformance.h"
#include "lib/expect.h"
#include "lib/options.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- One rank -------------------------------------------------------------------------------- */

static void test_bad_arguments(void)
{
    int32_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, to[8] = {0};
    ta_element_kind i32 = TA_ELEMENT_I32;
    ta_reduction sum = TA_REDUCE_SUM;
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, NULL, to, 1, i32, sum, NULL),
                 "from is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, from, NULL, 1, i32, sum, NULL),
                 "to is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID,
                 ta_all_reduce(NULL, NULL, from, to, 1, (ta_element_kind)6, sum, NULL),
                 "element is 6", "TA_ELEMENT_I64");
    EXPECT_ERROR(TA_ERR_INVALID,
                 ta_all_reduce(NULL, NULL, from, to, 1, (ta_element_kind)-1, sum, NULL),
                 "element is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, from, to, 1, TA_ELEMENT_BYTE, sum, NULL),
                 "TA_ELEMENT_BYTE", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, from, to, 1, i32, (ta_reduction)2, NULL),
                 "reduction is 2", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, from, to, SIZE_MAX / 2, i32, sum, NULL),
                 "count is", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, from, (char *)to + 1, 1, i32, sum, NULL),
                 "to is", "aligned");
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, from, from + 1, 4, i32, sum, NULL),
                 "overlaps", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_reduce(NULL, NULL, from, to, 1, i32, sum, to), "stream is",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_gather(NULL, NULL, from, NULL, 1, i32, NULL), "to is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_gather(NULL, NULL, NULL, to, 1, i32, NULL), "from is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_gather(NULL, NULL, to + 1, to, 4, i32, NULL),
                 "from overlaps to", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_all_gather(NULL, NULL, from, to, 1, (ta_element_kind)9, NULL),
                 "element is 9", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reduce_scatter(NULL, NULL, NULL, to, 1, i32, sum, NULL),
                 "from is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reduce_scatter(NULL, NULL, from, NULL, 1, i32, sum, NULL),
                 "to is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reduce_scatter(NULL, NULL, from, from + 1, 4, i32, sum, NULL),
                 "to overlaps from", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reduce_scatter(NULL, NULL, from, to, SIZE_MAX, i32, sum, NULL),
                 "count is", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_broadcast(NULL, NULL, NULL, 1, i32, 0, NULL), "NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_broadcast(NULL, NULL, to, 1, i32, 1, NULL), "root is 1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_broadcast(NULL, NULL, to, 1, i32, -1, NULL), "root is -1",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_barrier(NULL, NULL, to), "stream is", NULL);
    for (int i = 0; i < 8; ++i)
        TEST_ASSERT_EQUAL_INT32(0, to[i]);
}

static void test_one_rank_copies(void)
{
    int32_t from[4] = {1, 2, 3, 4}, to[4] = {0};
    EXPECT_OK(ta_all_reduce(NULL, NULL, from, to, 4, TA_ELEMENT_I32, TA_REDUCE_SUM, NULL));
    TEST_ASSERT_EQUAL_INT32_ARRAY(from, to, 4);
    memset(to, 0, sizeof to);
    EXPECT_OK(ta_all_gather(NULL, NULL, from, to, 4, TA_ELEMENT_I32, NULL));
    TEST_ASSERT_EQUAL_INT32_ARRAY(from, to, 4);
    memset(to, 0, sizeof to);
    EXPECT_OK(ta_reduce_scatter(NULL, NULL, from, to, 4, TA_ELEMENT_I32, TA_REDUCE_MAX, NULL));
    TEST_ASSERT_EQUAL_INT32_ARRAY(from, to, 4);
    EXPECT_OK(ta_broadcast(NULL, NULL, to, 4, TA_ELEMENT_I32, 0, NULL));
    EXPECT_OK(ta_barrier(NULL, NULL, NULL));
    EXPECT_OK(ta_all_reduce(NULL, NULL, NULL, NULL, 0, TA_ELEMENT_I32, TA_REDUCE_SUM, NULL));
}

/* ---- Ranks that are not in the same call ----------------------------------------------------- */

/* One of several calls that move messages of the same sizes. */
static ta_status one_of(int which, ta_group *group)
{
    static const char *const words[] = {"ta_all_reduce (sum of 2 f32)",
                                        "ta_all_reduce (sum of 2 i32)",
                                        "ta_all_reduce (maximum of 2 f32)",
                                        "ta_all_reduce (sum of 1 i64)",
                                        "ta_all_reduce (sum of 4 f16)",
                                        "ta_all_gather (8 bytes each)",
                                        "ta_barrier",
                                        "ta_broadcast (8 bytes from rank 0)",
                                        "ta_broadcast (8 bytes from rank 1)"};
    static const struct {
        size_t count;
        ta_element_kind element;
        ta_reduction reduction;
    } reductions[] = {{2, TA_ELEMENT_F32, TA_REDUCE_SUM},
                      {2, TA_ELEMENT_I32, TA_REDUCE_SUM},
                      {2, TA_ELEMENT_F32, TA_REDUCE_MAX},
                      {1, TA_ELEMENT_I64, TA_REDUCE_SUM},
                      {4, TA_ELEMENT_F16, TA_REDUCE_SUM}};
    _Alignas(8) char from[8] = {0}, to[64];
    ta_status status;
    switch (which) {
    case 5:
        status = ta_all_gather(group, NULL, from, to, 8, TA_ELEMENT_BYTE, NULL);
        break;
    case 6:
        status = ta_barrier(group, NULL, NULL);
        break;
    case 7:
    case 8:
        status = ta_broadcast(group, NULL, from, 8, TA_ELEMENT_BYTE, which - 7, NULL);
        break;
    default:
        status = ta_all_reduce(group, NULL, from, to, reductions[which].count,
                               reductions[which].element, reductions[which].reduction, NULL);
    }
    if (status == TA_ERR_MISMATCH && !strstr(ta_last_error(), words[which]))
        return ta_fail(TA_ERR_DEVICE, "not in \"%s\": %s", ta_last_error(), words[which]);
    return status;
}

typedef struct pair {
    int a, b;
    ta_status status[2];
} pair;

static ta_status differ_rank(ta_group *group, void *context)
{
    pair *p = context;
    int rank = ta_group_rank(group);
    p->status[rank] = one_of(rank ? p->b : p->a, group);
    return p->status[rank] == TA_ERR_DEVICE ? TA_ERR_DEVICE : TA_OK;
}

static void test_calls_that_differ(void)
{
    for (int a = 0; a < 9; ++a)
        for (int b = 0; b < 9; ++b) {
            pair p = {a, b, {TA_OK, TA_OK}};
            if (a + b == 7 + 8 && a > 6 && b > 6)
                continue; /* both send, or both wait: only the timeout can tell */
            EXPECT_OK(ta_group_run_threads(2, NULL, differ_rank, &p));
            TEST_ASSERT_TRUE_MESSAGE(a != b || (p.status[0] == TA_OK && p.status[1] == TA_OK),
                                     "the same call failed");
            /* One that only sends may be done before the other finds out. */
            TEST_ASSERT_TRUE_MESSAGE(a == b || p.status[0] == TA_ERR_MISMATCH ||
                                         p.status[1] == TA_ERR_MISMATCH,
                                     "calls that differ were not noticed");
        }
}

/* ---- Devices --------------------------------------------------------------------------------- */

static ta_status device_alloc(void *context, size_t bytes, void **memory)
{
    return ta_device_alloc(context, bytes, memory);
}

static void device_free(void *context, void *memory)
{
    ta_device_free(context, memory);
}

static ta_status device_copy(void *context, void *to, const void *from, size_t bytes, void *stream)
{
    TA_TRY(ta_device_copy(context, to, from, bytes, stream));
    return ta_device_synchronize(context, stream);
}

/* Odd ranks are on the host, whatever the others are on: all send the same messages. */
static ta_status device_rank(ta_group *group, void *context)
{
    static const size_t sizes[] = {0, 8, 1000, 70000, 3 << 20};
    ta_device *device;
    (void)context;
    TA_TRY(ta_device_open(ta_group_rank(group) % 2 ? "host" : options.device, NULL, &device));
    conformance_memory memory = {.context = device,
                                 .alloc = device_alloc,
                                 .free = device_free,
                                 .write = device_copy,
                                 .read = device_copy,
                                 .device = device};
    conformance c = {&memory, group, NULL, ""};
    ta_status status = conformance_rounds_once(&c);
    /* Where `--every` asks for less, without the longest messages. */
    for (int i = 0; i < (options.every > 1 ? 4 : 5) && status == TA_OK; ++i)
        status = conformance_collectives(&c, sizes[i]);
    ta_device_close(device);
    return status;
}

static void test_devices(void)
{
    static const int ranks[] = {1, 2, 3, 5};
    for (int i = 0; i < 4; ++i)
        EXPECT_OK(ta_group_run_threads(ranks[i], NULL, device_rank, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_bad_arguments);
    RUN_TEST(test_one_rank_copies);
    RUN_TEST(test_calls_that_differ);
    RUN_TEST(test_devices);
    return UNITY_END() != 0;
}
