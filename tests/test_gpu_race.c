/* Does a build with TSan see the races of the kernels in the module? A kernel of the module is
 * given memory that overlaps, so that its threads read what others write with no barrier between.
 * The program runs itself again for it, and that child must end with TSan's report; with memory
 * that does not overlap, and in builds without TSan, it lives. simt/test_simt_sanitizers.cpp has
 * the mistakes that a kernel itself can make. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "device/device.h"
#include "lib/patience.h"
#include "lib/simt_device.h"

#define V_DIM 8

static const char *program;

/* Take in a record that begins `shift` floats after ours. */
static void merge_record(int shift)
{
    int64_t floats = ta_record_floats(V_DIM);
    float *memory = NULL, values[2 * (V_DIM + 2)];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        values[i] = 1;
    EXPECT_OK(ta_device_alloc(device, sizeof values, (void **)&memory));
    EXPECT_OK(ta_device_copy(device, memory, values, sizeof values, NULL));
    ta_merge merge = {.records = memory,
                      .v_dim = V_DIM,
                      .received = memory + shift,
                      .stride = floats,
                      .messages = 1,
                      .kept_end = 1};
    EXPECT_OK(device->ops->merge(device, &merge, NULL));
    EXPECT_OK(ta_device_synchronize(device, NULL));
    ta_device_free(device, memory);
}

static void test_merge_apart(void)
{
    merge_record((int)ta_record_floats(V_DIM));
}

static void test_merge_overlapping(void)
{
    merge_record(1);
}

/* How the child ended, and what it said. */
static int run_child(const char *name, char *text, size_t capacity)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s' %s 2>&1", program, name);
    FILE *pipe = popen(command, "r");
    TEST_ASSERT_NOT_NULL(pipe);
    size_t length = fread(text, 1, capacity - 1, pipe);
    text[length] = '\0';
    while (fgetc(pipe) != EOF)
        continue;
    return pclose(pipe);
}

static void test_only_tsan_sees_a_race(void)
{
    char text[16384];
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, run_child("apart", text, sizeof text), text);
    int status = run_child("overlapping", text, sizeof text);
    if (PATIENCE_FACTOR == 1) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, status, text);
        return;
    }
    TEST_ASSERT_TRUE_MESSAGE(!WIFEXITED(status) || WEXITSTATUS(status) != 0, text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "data race"), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "merge_records"), text);
}

int main(int argc, char **argv)
{
    program = argv[0];
    UNITY_BEGIN();
    if (argc > 1 && strcmp(argv[1], "apart") == 0)
        RUN_TEST(test_merge_apart);
    else if (argc > 1 && strcmp(argv[1], "overlapping") == 0)
        RUN_TEST(test_merge_overlapping);
    else
        RUN_TEST(test_only_tsan_sees_a_race);
    return UNITY_END() != 0;
}
