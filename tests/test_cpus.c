/* How many CPUs a process may use (src/device/cpus.c): control groups of both versions, nested and
 * in containers, from files in a scratch directory that stand for /proc and /sys. */
#include "device/cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/expect.h"

#define V2 "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1 "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
#define OTHERS                                                                                     \
    "20 1 8:1 / / rw - ext4 /dev/root rw\n"                                                        \
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"

static char root[64];

static void remove_root(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", root);
    TEST_ASSERT_EQUAL_INT(0, system(command));
}

/* A file with the directories above it. */
static void write_file(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        TEST_ASSERT_TRUE(mkdir(full, 0700) == 0 || errno == EEXIST);
    }
    FILE *file = fopen(full, "w");
    TEST_ASSERT_NOT_NULL(file);
    fputs(text, file);
    fclose(file);
}

/* So many CPUs, with one file more or another text in it. */
static void expect_cpus(int cpus, const char *path, const char *text)
{
    write_file(path, text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(cpus, ta_cpus_of_quota(root), path);
}

void setUp(void)
{
    snprintf(root, sizeof root, "/tmp/test_cpus_XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(root));
}

void tearDown(void)
{
    remove_root();
}

static void test_nothing_is_no_limit(void)
{
    TEST_ASSERT_EQUAL_INT(0, ta_cpus_of_quota(root));
    expect_cpus(0, "/proc/self/cgroup", "0::/\n");
    expect_cpus(0, "/proc/self/mountinfo", OTHERS V2);
    expect_cpus(0, "/sys/fs/cgroup/cpu.max", "max 100000\n");
}

static void expect_v2(const char *text, int cpus)
{
    write_file("/proc/self/cgroup", "0::/\n");
    write_file("/proc/self/mountinfo", OTHERS V2);
    write_file("/sys/fs/cgroup/cpu.max", text);
    TEST_ASSERT_EQUAL_INT_MESSAGE(cpus, ta_cpus_of_quota(root), text);
}

static void test_parts_of_cpus_are_rounded_up(void)
{
    expect_v2("100000 100000\n", 1);
    expect_v2("100001 100000\n", 2);
    expect_v2("1000 100000\n", 1);
    expect_v2("1 100000\n", 1);
    expect_v2("350000 100000\n", 4);
    expect_v2("200000 50000\n", 4);
    expect_v2("300000", 3); /* the period is then the usual one */
}

static void test_files_that_make_no_sense(void)
{
    expect_v2("", 0);
    expect_v2("fast", 0);
    expect_v2("-1 100000", 0);
    expect_v2("100000 0", 0);
    expect_v2("100000 -5", 0);
    expect_v2("9223372036854775807 1", 0);
}

/* More than any process uses is no limit. */
static void test_the_most_cpus(void)
{
    expect_v2("102300000 100000", 1023);
    expect_v2("102300001 100000", 1024);
    expect_v2("102400000 100000", 0);
}

/* Any group on the way can be the narrowest. */
static void test_nested_groups(void)
{
    write_file("/proc/self/cgroup", "0::/a.slice/b.scope/c\n");
    write_file("/proc/self/mountinfo", OTHERS V2);
    expect_cpus(0, "/sys/fs/cgroup/a.slice/b.scope/c/cpu.max", "max 100000\n");
    expect_cpus(4, "/sys/fs/cgroup/a.slice/cpu.max", "400000 100000\n");
    expect_cpus(4, "/sys/fs/cgroup/a.slice/b.scope/c/cpu.max", "600000 100000\n");
    expect_cpus(2, "/sys/fs/cgroup/a.slice/b.scope/cpu.max", "200000 100000\n");
    expect_cpus(2, "/sys/fs/cgroup/a.slice/b/cpu.max", "100000 100000\n");    /* somebody else's */
    expect_cpus(2, "/sys/fs/cgroup/a.slice/b.scope/c/cpu.max", "0 100000\n"); /* no limit */
}

/* A container has its group at the mount point; the path is the host's, or one below that. */
static void test_groups_of_containers(void)
{
    write_file("/proc/self/mountinfo",
               "30 20 0:26 /docker/1f /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    write_file("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    expect_cpus(2, "/proc/self/cgroup", "0::/docker/1f\n");
    expect_cpus(2, "/proc/self/cgroup", "0::/docker/1f/inner\n");
    expect_cpus(1, "/sys/fs/cgroup/inner/cpu.max", "100000 100000\n");
    expect_cpus(2, "/proc/self/cgroup", "0::/docker/1f2\n");
    expect_cpus(2, "/proc/self/cgroup", "0::/../other\n");
}

static void test_version_1(void)
{
    write_file("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job/7\n1:name=systemd:/y\n0::/\n");
    write_file("/proc/self/mountinfo", OTHERS V1);
    write_file("/sys/fs/cgroup/cpu,cpuacct/job/7/cpu.cfs_quota_us", "-1\n");
    expect_cpus(0, "/sys/fs/cgroup/cpu,cpuacct/job/7/cpu.cfs_period_us", "100000\n");
    expect_cpus(3, "/sys/fs/cgroup/cpu,cpuacct/job/7/cpu.cfs_quota_us", "250000\n");
    expect_cpus(5, "/sys/fs/cgroup/cpu,cpuacct/job/7/cpu.cfs_period_us", "50000\n");
    expect_cpus(4, "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300001\n"); /* without one */
    expect_cpus(1, "/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "100000\n");
}

static void test_both_versions(void)
{
    write_file("/proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/b\n");
    write_file("/proc/self/mountinfo",
               V1 OTHERS "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    expect_cpus(3, "/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
    expect_cpus(2, "/sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
}

/* Here and now: no more than affinity, no more than the quota. */
static void test_this_process(void)
{
    cpu_set_t set;
    TEST_ASSERT_TRUE(ta_cpus() >= 1);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        TEST_ASSERT_TRUE(ta_cpus() <= CPU_COUNT(&set));
    int quota = ta_cpus_of_quota("");
    TEST_ASSERT_TRUE(quota == 0 || ta_cpus() <= quota);
}

/* Whichever is less: what it may run on, or what it has time for. */
static void test_affinity_and_quota(void)
{
    cpu_set_t all, one;
    int cpu = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        TEST_IGNORE_MESSAGE("more CPUs than fit");
    int count = CPU_COUNT(&all);
    TEST_ASSERT_EQUAL_INT(count, ta_cpus_under(root));
    while (!CPU_ISSET(cpu, &all))
        ++cpu;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    TEST_ASSERT_EQUAL_INT(0, sched_setaffinity(0, sizeof one, &one));
    int alone = ta_cpus_under(root);
    expect_v2("300000 100000\n", 3);
    int with_time_for_three = ta_cpus_under(root);
    TEST_ASSERT_EQUAL_INT(0, sched_setaffinity(0, sizeof all, &all));
    TEST_ASSERT_EQUAL_INT(1, alone);
    TEST_ASSERT_EQUAL_INT(1, with_time_for_three);
    TEST_ASSERT_EQUAL_INT(count < 3 ? count : 3, ta_cpus_under(root));
    expect_v2("1000 100000\n", 1);
    TEST_ASSERT_EQUAL_INT(1, ta_cpus_under(root));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_nothing_is_no_limit);
    RUN_TEST(test_parts_of_cpus_are_rounded_up);
    RUN_TEST(test_files_that_make_no_sense);
    RUN_TEST(test_the_most_cpus);
    RUN_TEST(test_nested_groups);
    RUN_TEST(test_groups_of_containers);
    RUN_TEST(test_version_1);
    RUN_TEST(test_both_versions);
    RUN_TEST(test_this_process);
    RUN_TEST(test_affinity_and_quota);
    return UNITY_END() != 0;
}
