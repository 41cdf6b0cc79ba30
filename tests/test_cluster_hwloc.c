/* The module "hwloc" (src/cluster/hwloc.c) on machines that are data: hwloc's synthetic
 * topologies, and one with GPUs from tests/places. Then a probe (src/cluster/find.c) that finds
 * such places, on the host and, with the argument "simt", on GPUs. */
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <treeattn/cluster.h>

#include "cluster/cluster.h"
#include "device/modules.h"
#include "lib/expect.h"

static int has_simt;

void setUp(void)
{
}

void tearDown(void)
{
    unsetenv("HWLOC_SYNTHETIC");
    unsetenv("HWLOC_XMLFILE");
}

static const char *gpu_file(void)
{
    const char *file = getenv("TA_TEST_PLACES");
    return file ? file : "tests/places/four-gpus.xml";
}

static void expect_place(const char *topology, const char *pci, int first, int last, int package,
                         int numa)
{
    int cpus[64], count = 0;
    char message[128];
    for (int cpu = first; cpu <= last; ++cpu)
        cpus[count++] = cpu;
    ta_place_question question = {topology, pci, cpus, count};
    ta_place place = {.package = -2, .numa = -2};
    EXPECT_OK(ta_modules_find_place(&question, &place));
    snprintf(message, sizeof message, "%s, CPUs %d to %d, GPU '%s'", topology, first, last, pci);
    TEST_ASSERT_EQUAL_INT_MESSAGE(package, place.package, message);
    TEST_ASSERT_EQUAL_INT_MESSAGE(numa, place.numa, message);
}

static void test_cpus_of_synthetic_machines(void)
{
    const char *two = "package:2 numa:1 core:4 pu:1";
    expect_place(two, "", 0, 0, 0, 0);
    expect_place(two, "", 1, 3, 0, 0);
    expect_place(two, "", 4, 7, 1, 1);
    expect_place(two, "", 3, 4, -1, -1); /* in both */
    expect_place(two, "", 0, 7, -1, -1);
    expect_place(two, "", 9, 9, -1, -1); /* in none */
    expect_place(two, "", 0, -1, -1, -1);
    const char *four = "package:2 numa:2 core:2 pu:2";
    expect_place(four, "", 0, 3, 0, 0);
    expect_place(four, "", 4, 7, 0, 1);
    expect_place(four, "", 0, 7, 0, -1); /* one package, two NUMA nodes */
    expect_place(four, "", 12, 12, 1, 3);
    expect_place("numa:1 core:2 pu:1", "", 0, 1, -1, 0); /* no packages at all */
}

static void test_gpus_go_before_cpus(void)
{
    const char *file = gpu_file();
    expect_place(file, "0000:01:00.0", 0, 0, 1, 1);
    expect_place(file, "0000:02:00.0", 0, 3, 1, 1);
    expect_place(file, "0000:03:00.0", 3, 3, 0, 0);
    expect_place(file, "0000:77:00.0", 3, 3, 1, 1); /* not there: its CPUs */
    expect_place(file, "", 3, 3, 1, 1);
}

static void test_what_is_no_topology(void)
{
    ta_place place;
    ta_place_question question = {"package:zwei", "", NULL, 0};
    EXPECT_ERROR(TA_ERR_INVALID, ta_modules_find_place(&question, &place), "'package:zwei'", NULL);
    question.topology = "/nowhere/machine.xml";
    EXPECT_ERROR(TA_ERR_INVALID, ta_modules_find_place(&question, &place), "machine.xml", NULL);
}

static void test_info_says_so(void)
{
    char text[8192];
    setenv("HWLOC_SYNTHETIC", "package:3 numa:2 core:4 pu:1", 1);
    EXPECT_OK(ta_info(text, sizeof text, NULL));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, ", compiled for hwloc 2."), text);
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(text, "module hwloc sees: 3 packages, 6 NUMA nodes, 24 cores\n"), text);
}

/* ---- In a probe ---- */

typedef struct trial {
    int simt;
    char text[8192]; /* rank 0's */
} trial;

static ta_status probe_rank(ta_group *group, void *context)
{
    trial *t = context;
    ta_device *device;
    ta_cluster *cluster;
    char name[16] = "host";
    if (t->simt)
        snprintf(name, sizeof name, "simt:%d", ta_group_rank(group));
    TA_TRY(ta_device_open(name, NULL, &device));
    TA_TRY(ta_cluster_probe(group, device, &cluster));
    if (ta_group_rank(group) == 0)
        TA_TRY(ta_cluster_text(cluster, t->text, sizeof t->text, NULL));
    ta_cluster_destroy(cluster);
    ta_device_close(device);
    return TA_OK;
}

static void says(const char *text, const char *wanted)
{
    if (!strstr(text, wanted)) {
        char message[9000];
        snprintf(message, sizeof message, "no '%s' in:\n%s", wanted, text);
        TEST_FAIL_MESSAGE(message);
    }
}

/* A machine whose one package has all CPUs that this process may use, whatever they are. */
static void test_probe_on_the_host(void)
{
    trial *t = calloc(1, sizeof *t);
    setenv("HWLOC_SYNTHETIC", "package:1 numa:1 core:1024 pu:1", 1);
    EXPECT_OK(ta_group_run_threads(3, NULL, probe_rank, t));
    says(t->text, "package_of_rank = 0 0 0\nnuma_of_rank = 0 0 0\n");
    TEST_ASSERT_NULL(strstr(t->text, "pci_of_rank"));
    TEST_ASSERT_NULL(strstr(t->text, "package.latency")); /* one package is no level */
    free(t);
}

static void test_probe_on_gpus(void)
{
    if (!has_simt)
        TEST_IGNORE_MESSAGE("built without simt");
    trial *t = calloc(1, sizeof *t);
    t->simt = 1;
    setenv("HWLOC_XMLFILE", gpu_file(), 1);
    EXPECT_OK(ta_group_run_threads(4, NULL, probe_rank, t));
    says(t->text, "package_of_rank = 1 1 0 0\nnuma_of_rank = 1 1 0 0\n"
                  "pci_of_rank = 0000:01:00.0 0000:02:00.0 0000:03:00.0 0000:04:00.0\n");
    says(t->text, "package.latency_seconds = ");
    says(t->text, "package.total_bytes_per_second = ");
    free(t);
}

/* ---- Little memory ---- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* needs far more addresses than a limit leaves */
#else
#define SANITIZED 0
#endif

/* In a process of its own: hwloc with so many bytes to spare. */
static void look_with(long spare)
{
    static const char topology[] = "package:2 numa:1 core:2048 pu:2";
    static const int cpu = 1;
    ta_place_question question = {topology, "", &cpu, 1};
    ta_place place = {.package = -2, .numa = -2};
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    int known = file && fscanf(file, "%ld", &pages) == 1;
    if (file)
        fclose(file);
    struct rlimit limit = {(rlim_t)(pages * sysconf(_SC_PAGESIZE) + spare), RLIM_INFINITY};
    if (!known || setrlimit(RLIMIT_AS, &limit) != 0)
        _exit(2);
    ta_status status = ta_modules_find_place(&question, &place);
    _exit(status == TA_OK ? place.package != 0 : status != TA_ERR_NO_MEMORY);
}

/* hwloc itself ends the process where an allocation of its own fails. */
static void test_little_memory(void)
{
    if (SANITIZED)
        TEST_IGNORE_MESSAGE("not under a sanitizer");
    expect_place("package:1 numa:1 core:1 pu:1", "", 0, 0, 0, 0); /* the module is loaded */
    for (long spare = 64; spare <= 65536; spare += spare / 8) {
        int ended = 0;
        char message[80];
        pid_t child = fork();
        if (child == 0)
            look_with(spare * 1024);
        TEST_ASSERT_EQUAL_INT(child, waitpid(child, &ended, 0));
        snprintf(message, sizeof message, "with %ld KiB it ended with %#x", spare, (unsigned)ended);
        TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0, message);
    }
}

int main(int argc, char **argv)
{
    has_simt = argc > 1 && strcmp(argv[1], "simt") == 0;
    UNITY_BEGIN();
    RUN_TEST(test_little_memory); /* before others leave memory that hwloc could take again */
    RUN_TEST(test_cpus_of_synthetic_machines);
    RUN_TEST(test_gpus_go_before_cpus);
    RUN_TEST(test_what_is_no_topology);
    RUN_TEST(test_info_says_so);
    RUN_TEST(test_probe_on_the_host);
    RUN_TEST(test_probe_on_gpus);
    return UNITY_END() != 0;
}
