/* Whose process this is by the variables of launchers, and that they can be taken away. */
#include <stdlib.h>
#include <unity.h>

#include "common/launch.h"

void setUp(void)
{
    clearenv();
}

void tearDown(void)
{
}

static void expect(int rank, int processes, int launched)
{
    int count = -1;
    TEST_ASSERT_EQUAL_INT(rank, launch_process(&count));
    TEST_ASSERT_EQUAL_INT(processes, count);
    TEST_ASSERT_EQUAL_INT(launched, launch_by_launcher() != 0);
}

static void test_no_launcher(void)
{
    expect(0, 1, 0);
    /* A batch script of Slurm: the tasks are those that it may start. */
    setenv("SLURM_NTASKS", "8", 1);
    setenv("SLURM_PROCID", "0", 1);
    expect(0, 1, 0);
}

static void test_launchers(void)
{
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1);
    expect(5, 8, 1);
    clearenv();
    setenv("PMI_SIZE", "4", 1);
    setenv("PMI_RANK", "3", 1);
    expect(3, 4, 1);
    clearenv();
    setenv("SLURM_STEP_NUM_TASKS", "16", 1);
    setenv("SLURM_PROCID", "2", 1);
    expect(2, 16, 0);
    setenv("PMIX_RANK", "7", 1);
    expect(7, 16, 1);
    /* Without a size there are at least those before it. */
    unsetenv("SLURM_STEP_NUM_TASKS");
    expect(7, 8, 1);
    setenv("PMIX_RANK", "many", 1);
    expect(2, 3, 1);
}

static void test_forget(void)
{
    setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    setenv("PATH", "/bin", 1);
    setenv("PMI_SIZE", "8", 1);
    setenv("PMI_FD", "5", 1);
    setenv("PMIX_RANK", "1", 1);
    setenv("OMPI_MCA_btl", "self", 1);
    setenv("PMIX_NAMESPACE", "job", 1);
    launch_forget();
    expect(0, 1, 0);
    const char *gone[] = {
        "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_SIZE", "PMI_FD", "PMIX_RANK",
        "PMIX_NAMESPACE"};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        TEST_ASSERT_NULL_MESSAGE(getenv(gone[i]), gone[i]);
    TEST_ASSERT_EQUAL_STRING("/bin", getenv("PATH"));
    TEST_ASSERT_EQUAL_STRING("self", getenv("OMPI_MCA_btl"));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_no_launcher);
    RUN_TEST(test_launchers);
    RUN_TEST(test_forget);
    return UNITY_END() != 0;
}
