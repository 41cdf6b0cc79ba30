/* Clusters as data (src/cluster/cluster.c, cluster/text.c, presets.c): presets, the short
 * description, files there and back, and every kind of bad input. */
#include "cluster/cluster.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <treeattn/cluster.h>

#include "device/device.h"
#include "lib/expect.h"

static char path[64];

void setUp(void)
{
    snprintf(path, sizeof path, "/tmp/test_cluster_XXXXXX");
    int file = mkstemp(path);
    TEST_ASSERT_TRUE(file >= 0);
    close(file);
}

void tearDown(void)
{
    unlink(path);
}

static ta_cluster *make(const char *description)
{
    ta_cluster *cluster = NULL;
    EXPECT_OK(ta_cluster_create(description, &cluster));
    return cluster;
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(file);
    fputs(text, file);
    fclose(file);
}

static char *text_of(const ta_cluster *cluster)
{
    size_t bytes = 0;
    EXPECT_OK(ta_cluster_text(cluster, NULL, 0, &bytes));
    char *text = malloc(bytes);
    EXPECT_OK(ta_cluster_text(cluster, text, bytes, NULL));
    TEST_ASSERT_EQUAL_size_t(bytes, strlen(text) + 1);
    return text;
}

static void test_a_preset_with_its_size(void)
{
    ta_cluster *c = make("h100:16x8");
    TEST_ASSERT_EQUAL_INT(128, c->ranks);
    TEST_ASSERT_EQUAL_INT(16, c->nodes);
    TEST_ASSERT_EQUAL_STRING("h100:16x8", c->name);
    TEST_ASSERT_TRUE(c->memory_bytes_per_s == 3.35e12);
    TEST_ASSERT_TRUE(c->nics_per_node == 8);
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_NODE, ta_cluster_level(c, 8, 15));
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_NETWORK, ta_cluster_level(c, 7, 8));
    ta_cluster_destroy(c);
}

static void test_racks_of_nodes(void)
{
    ta_cluster *c = make("mi300x:3x4x8");
    TEST_ASSERT_EQUAL_INT(96, c->ranks);
    TEST_ASSERT_EQUAL_INT(12, c->nodes);
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_NETWORK, ta_cluster_level(c, 0, 31));
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_RACK, ta_cluster_level(c, 31, 32));
    TEST_ASSERT_EQUAL_INT(2, ta_cluster_rack(c, 11));
    ta_cluster_destroy(c);
}

static void test_values_after_the_size(void)
{
    ta_cluster *c =
        make("rtx4090:1x2 network.latency_seconds=0.5 nodes_per_rack=1 nics_per_node=3");
    TEST_ASSERT_TRUE(c->levels[TA_LEVEL_NETWORK].latency_s == 0.5);
    TEST_ASSERT_TRUE(c->nics_per_node == 3);
    TEST_ASSERT_TRUE(c->nodes_per_rack == 1);
    ta_cluster_destroy(c);
    c = make("local:1x4");
    TEST_ASSERT_TRUE(c->memory_bytes > 1e6);
    ta_cluster_destroy(c);
}

static void test_unequal_nodes(void)
{
    write_file("preset = h100\nname = uneven\nnodes = 2x8 1x4 3x1\n");
    ta_cluster *c = make(path);
    TEST_ASSERT_EQUAL_INT(23, c->ranks);
    TEST_ASSERT_EQUAL_INT(6, c->nodes);
    TEST_ASSERT_EQUAL_INT(2, c->node_of[19]);
    TEST_ASSERT_EQUAL_INT(5, c->node_of[22]);
    char *text = text_of(c);
    TEST_ASSERT_NOT_NULL(strstr(text, "nodes = 2x8 1x4 3x1\n"));
    free(text);
    ta_cluster_destroy(c);
}

/* What is written reads back to the same text, for every preset and kind of node list. */
static void test_files_there_and_back(void)
{
    static const char *const descriptions[] = {
        "h100:16x8",
        "mi300x:2x3x8",
        "rtx4090:1x2",
        "local:1x3 device.memory_bytes_per_second=12345678901.25",
        "h100:512x8",
        "h100:1x1 node_of_rank=0",
        "h100:1x2 network.latency_seconds=0.30000000000000004",
    };
    for (size_t i = 0; i < sizeof descriptions / sizeof *descriptions; ++i) {
        ta_cluster *first = make(descriptions[i]);
        char *text = text_of(first);
        write_file(text);
        ta_cluster *second = make(path);
        char *again = text_of(second);
        TEST_ASSERT_EQUAL_STRING(text, again);
        TEST_ASSERT_EQUAL_INT(first->ranks, second->ranks);
        TEST_ASSERT_TRUE(first->levels[TA_LEVEL_NETWORK].latency_s ==
                         second->levels[TA_LEVEL_NETWORK].latency_s);
        free(text);
        free(again);
        ta_cluster_destroy(first);
        ta_cluster_destroy(second);
    }
    write_file("preset = local\n# ranks numbered across the nodes\nnode_of_rank = 0 1 2 0 1\n");
    ta_cluster *c = make(path);
    char *text = text_of(c);
    TEST_ASSERT_NOT_NULL(strstr(text, "node_of_rank = 0 1 2 0 1\n"));
    TEST_ASSERT_EQUAL_INT(3, c->nodes);
    free(text);
    ta_cluster_destroy(c);
}

static void refuses(const char *description, const char *first, const char *second)
{
    ta_cluster *untouched = (ta_cluster *)path, *cluster = untouched;
    EXPECT_ERROR(TA_ERR_INVALID, ta_cluster_create(description, &cluster), first, second);
    TEST_ASSERT_TRUE(cluster == untouched);
}

static void test_bad_descriptions(void)
{
    refuses(NULL, "description is NULL", "h100:16x8");
    refuses("", "description is empty", NULL);
    refuses("h100", "'h100'", "PRESET:NODESxRANKS");
    refuses("b900:1x8", "preset is 'b900'",
            "h100, h200, b200, a100, mi300x, mi325x, mi355x, l40s, rtx4090 or local");
    refuses("h100:8", "nodes is '8'", "COUNTxRANKS");
    refuses("h100:0x8", "nodes is '0x8'", "COUNTxRANKS");
    refuses("h100:2x-1", "nodes is '2x-1'", "COUNTxRANKS");
    refuses("h100:2x8x", "nodes is '2x8x'", "COUNTxRANKS");
    refuses("h100:2x8y", "nodes is '2x8y'", "COUNTxRANKS");
    refuses("h100:0x2x8", "nodes is", "COUNTxRANKS");
    refuses("h100:4096x4096", "nodes is '4096x4096'", "1048576 ranks");
    refuses("h100:2x8 fast", "'fast' has no '='", "KEY=VALUE");
    refuses("h100:2x8 speed=1", "unknown key 'speed'", "'1'");
    refuses("h100:2x8 node_of_rank=0 nodes=", "nodes is ''", "COUNTxRANKS");
    refuses("h100:2x8 node.rank_bytes_per_second=9e17", "node.total_bytes_per_second is 3.6e+12",
            "at least node.rank_bytes_per_second");
    ta_cluster *cluster;
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_cluster_create("/nowhere/x.cluster", &cluster),
                 "/nowhere/x.cluster", "No such file");
    EXPECT_ERROR(TA_ERR_NOT_FOUND, ta_cluster_create("x.cluster", &cluster), "x.cluster", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_cluster_create("h100:1x1", NULL), "cluster is NULL", NULL);
}

/* Every number refuses what is no number, and what is out of its range, with its name and line. */
static void test_bad_numbers(void)
{
    for (int i = 0; i < TA_CLUSTER_KEYS; ++i) {
        const ta_cluster_key *key = &ta_cluster_keys[i];
        const char *bad[] = {"",    "fast", "1 s",  "-1",
                             "nan", "inf",  "1e30", key->whole ? "1.5" : "-0.5"};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; ++k) {
            char text[200], line[100], value[100];
            snprintf(text, sizeof text, "preset = h100\n\n%s = %s\nnodes = 1x8\n", key->name,
                     bad[k]);
            write_file(text);
            snprintf(line, sizeof line, "%s:3: %s is '%s'", path, key->name, bad[k]);
            snprintf(value, sizeof value, "must be %s", key->right);
            refuses(path, line, value);
        }
    }
}

/* A message shows a value of up to 100 characters, and of a longer one so many. */
static void test_long_values(void)
{
    for (int length = 100; length <= 102; ++length) {
        char value[120], description[160], shown[160];
        memset(value, 'x', sizeof value);
        snprintf(description, sizeof description, "h100:2x8 nodes=%.*s", length, value);
        snprintf(shown, sizeof shown, "nodes is '%.100s%s': must be", value,
                 length > 100 ? "…" : "");
        refuses(description, shown, "COUNTxRANKS");
    }
}

/* What an error calls right is what is accepted: "a number of bytes from 1 to 1e18". */
static void test_ranges_are_as_they_are_said(void)
{
    for (int i = 0; i < TA_CLUSTER_KEYS; ++i) {
        const ta_cluster_key *key = &ta_cluster_keys[i];
        const char *low = strstr(key->right, " from "), *high = strstr(key->right, " to ");
        TEST_ASSERT_TRUE_MESSAGE(low && high, key->right);
        TEST_ASSERT_EQUAL_DOUBLE_MESSAGE(strtod(low + 6, NULL), key->low, key->name);
        TEST_ASSERT_EQUAL_DOUBLE_MESSAGE(strtod(high + 4, NULL), key->high, key->name);
    }
}

static void test_missing_keys(void)
{
    ta_cluster *cluster = make("h100:2x8");
    char *text = text_of(cluster);
    ta_cluster_destroy(cluster);
    for (int i = 0; i < TA_CLUSTER_KEYS; ++i) {
        if (ta_cluster_keys[i].optional)
            continue;
        char *without = strdup(text), line[100], wanted[100];
        snprintf(line, sizeof line, "\n%s = ", ta_cluster_keys[i].name);
        strstr(without, line)[1] = '#';
        write_file(without);
        snprintf(wanted, sizeof wanted, "%s: %s is missing", path, ta_cluster_keys[i].name);
        if (!ta_cluster_keys[i].optional) {
            refuses(path, wanted, ta_cluster_keys[i].right);
        } else { /* and then it is not known */
            cluster = make(path);
            char *again = text_of(cluster);
            TEST_ASSERT_NULL(strstr(again, ta_cluster_keys[i].name));
            free(again);
            ta_cluster_destroy(cluster);
        }
        free(without);
    }
    free(text);
    write_file("preset = h100\n");
    refuses(path, "nodes is missing", path);
}

static void test_bad_lines(void)
{
    static const struct {
        const char *text, *wanted, *right;
    } bad[] = {
        {"preset = h100\nnodes\n", ":2: 'nodes' has no '='", "key = value"},
        {"nodes = 1x8\npreset = h100\n", ":2: preset is 'h100'", "before all other keys"},
        {"preset = h100\npreset = h100\n", ":2: preset is 'h100'", "before all other keys"},
        {"preset = tpu\n", ":1: preset is 'tpu'", "must be h100"},
        {"preset = h100\nname =\n", ":2: name is ''", "1 to 63 characters"},
        {"preset = h100\ndevice = 0123456789012345678901234567890123456789012345678901234567890123"
         "\n",
         ":2: device is", "1 to 63 characters"},
        {"preset = h100\nnode_of_rank = 0 2\n", ":2: node_of_rank is '0 2'", "none left out"},
        {"preset = h100\nnode_of_rank = 0 x\n", ":2: node_of_rank is '0 x'", "none left out"},
        {"preset = h100\nnode_of_rank = -1\n", ":2: node_of_rank is '-1'", "none left out"},
        {"preset = h100\nnodes = 1x8 2\n", ":2: nodes is '1x8 2'", "COUNTxRANKS"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
        write_file(bad[i].text);
        refuses(path, bad[i].wanted, bad[i].right);
    }
}

/* What a path names may be anything: no call waits, reads without end or dies of it. */
static void test_what_is_no_file(void)
{
    char name[80];
    alarm(120); /* the old way of failing was to wait for a writer */
    refuses("/tmp/", "'/tmp/'", "a directory");
    refuses("/dev/zero", "'/dev/zero'", "a device");
    snprintf(name, sizeof name, "%s.fifo", path);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(name, 0600));
    refuses(name, name, "a pipe");
    unlink(name);
    alarm(0);
}

static void test_files_that_are_too_large(void)
{
    TEST_ASSERT_EQUAL_INT(0, truncate(path, (64 << 20) + 1));
    refuses(path, "67108865 bytes", "at most 67108864");
    TEST_ASSERT_EQUAL_INT(0, truncate(path, 100));
    refuses(path, path, "byte of value 0");
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Every line that grows with the ranks, each rank on a node of its own. */
static void write_many_ranks(int ranks)
{
    FILE *file = fopen(path, "w");
    TEST_ASSERT_NOT_NULL(file);
    fputs("preset = h100\nnode_of_rank =", file);
    for (int rank = 0; rank < ranks; ++rank)
        fprintf(file, " %d", ranks - 1 - rank);
    fputs("\npackage_of_rank =", file);
    for (int rank = 0; rank < ranks; ++rank)
        fprintf(file, " %d", rank % 1024);
    fputs("\npci_of_rank =", file);
    for (int rank = 0; rank < ranks; ++rank)
        fputs(" 0000:17:00.0", file);
    fclose(file);
}

/* The least time of three to read such a cluster and to write it again. */
static double seconds_of(int ranks)
{
    double least = 1e9;
    write_many_ranks(ranks);
    for (int i = 0; i < 3; ++i) {
        double begin = cpu_seconds();
        ta_cluster *c = make(path);
        char *text = text_of(c);
        double seconds = cpu_seconds() - begin;
        TEST_ASSERT_EQUAL_INT(ranks, c->ranks);
        TEST_ASSERT_EQUAL_INT(ranks, c->nodes);
        TEST_ASSERT_EQUAL_INT(ranks, c->packages);
        least = seconds < least ? seconds : least;
        free(text);
        ta_cluster_destroy(c);
    }
    return least;
}

/* Ten times the ranks are ten times the work, and a little for the sorting; were anything
 * quadratic, it would be a hundred times. */
static void test_many_ranks(void)
{
    char text[100];
    double few = 1e9, many = 1e9;
    /* What a CPU does in a second changes with what else the machine does: the least of some. */
    for (int i = 0; i < 10 && many >= 35 * few; ++i) {
        double fewer = seconds_of(20000), more = seconds_of(200000);
        few = fewer < few ? fewer : few;
        many = more < many ? more : many;
    }
    snprintf(text, sizeof text, "20000 ranks %.4f s, 200000 ranks %.4f s", few, many);
    TEST_ASSERT_TRUE_MESSAGE(many < 35 * few, text);
}

static void test_text_arguments(void)
{
    ta_cluster *c = make("h100:1x8");
    char small[8];
    size_t bytes;
    EXPECT_OK(ta_cluster_text(c, small, sizeof small, &bytes));
    TEST_ASSERT_EQUAL_STRING("name = ", small);
    TEST_ASSERT_TRUE(bytes > sizeof small);
    EXPECT_ERROR(TA_ERR_INVALID, ta_cluster_text(NULL, NULL, 0, &bytes), "cluster is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_cluster_text(c, NULL, 5, &bytes), "text is NULL", "5");
    ta_cluster_destroy(c);
    ta_cluster_destroy(NULL);
}

/* Threads share a host, so there is one node; the numbers depend on the machine, but all ranks have
 * the same, and they make a file that loads. */
static char *probed_texts[5];

static ta_status probe_rank(ta_group *group, void *context)
{
    ta_device *device;
    ta_cluster *cluster;
    size_t bytes;
    (void)context;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_cluster_probe(group, device, &cluster));
    RANK_EXPECT(cluster->ranks == ta_group_size(group) && cluster->nodes == 1);
    RANK_EXPECT(cluster->memory_bytes_per_s > 1e6 && cluster->memory_bytes > 1e6);
    RANK_EXPECT(cluster->levels[TA_LEVEL_NODE].latency_s > 0);
    TA_TRY(ta_cluster_text(cluster, NULL, 0, &bytes));
    char *text = malloc(bytes);
    TA_TRY(ta_cluster_text(cluster, text, bytes, NULL));
    probed_texts[ta_group_rank(group)] = text;
    ta_cluster_destroy(cluster);
    ta_device_close(device);
    return TA_OK;
}

static void test_probe_of_threads(void)
{
    for (int ranks = 1; ranks <= 5; ranks += 2) {
        EXPECT_OK(ta_group_run_threads(ranks, NULL, probe_rank, NULL));
        write_file(probed_texts[0]);
        TEST_ASSERT_NOT_NULL(strstr(probed_texts[0], "device.flops_per_second = "));
        TEST_ASSERT_NOT_NULL(strstr(probed_texts[0], "device.half_flops_per_second = "));
        ta_cluster_destroy(make(path));
        for (int rank = 0; rank < ranks; ++rank)
            TEST_ASSERT_EQUAL_STRING(probed_texts[0], probed_texts[rank]);
        for (int rank = 0; rank < ranks; ++rank)
            free(probed_texts[rank]);
    }
    ta_cluster *cluster;
    EXPECT_ERROR(TA_ERR_INVALID, ta_cluster_probe(NULL, NULL, &cluster), "group is NULL", NULL);
}

static ta_status probe_without_device(ta_group *group, void *context)
{
    ta_cluster *cluster;
    (void)context;
    return ta_cluster_probe(group, NULL, &cluster);
}

static void test_probe_without_a_device(void)
{
    EXPECT_ERROR(TA_ERR_INVALID, ta_group_run_threads(2, NULL, probe_without_device, NULL),
                 "device is NULL", NULL);
}

/* A device that is lost at one of its copies and waits: rank 1 says so, and rank 0, which waits for
 * its numbers, hears of it at once. */
static const ta_device_ops *ops_of_host;
static _Thread_local int left; /* until it is lost */

static ta_status lose(void)
{
    return --left == 0 ? ta_fail(TA_ERR_DEVICE, "lost in a test") : TA_OK;
}

static ta_status lose_copy(ta_device *device, void *to, const void *from, size_t bytes,
                           void *stream)
{
    TA_TRY(lose());
    return ops_of_host->copy(device, to, from, bytes, stream);
}

static ta_status lose_wait(ta_device *device, void *stream)
{
    (void)device, (void)stream;
    return lose();
}

static ta_status probe_losing(ta_group *group, void *context)
{
    ta_device *device;
    ta_cluster *cluster = NULL;
    TA_TRY(ta_device_open("host", NULL, &device));
    ta_device_ops losing = *device->ops;
    const ta_device_ops *right = device->ops;
    losing.copy = lose_copy;
    losing.synchronize = lose_wait;
    left = *(int *)context;
    if (ta_group_rank(group) == 1)
        device->ops = &losing;
    ta_status status = ta_cluster_probe(group, device, &cluster);
    device->ops = right;
    ta_device_close(device);
    RANK_EXPECT(!cluster);
    return ta_group_rank(group) == 1
               ? rank_expect_error(TA_ERR_DEVICE, status, "lost in a test", "")
               : rank_expect_error(TA_ERR_ABORTED, status, "rank 1 aborted", "lost in a test");
}

static void test_probe_of_a_lost_device(void)
{
    ta_device *device;
    EXPECT_OK(ta_device_open("host", NULL, &device));
    ops_of_host = device->ops;
    ta_device_close(device);
    for (int at = 1; at <= 5; ++at) /* two copies at first; then one, and two waits, by turns */
        EXPECT_OK(ta_group_run_threads(2, NULL, probe_losing, &at));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_a_preset_with_its_size);
    RUN_TEST(test_racks_of_nodes);
    RUN_TEST(test_values_after_the_size);
    RUN_TEST(test_unequal_nodes);
    RUN_TEST(test_files_there_and_back);
    RUN_TEST(test_bad_descriptions);
    RUN_TEST(test_bad_numbers);
    RUN_TEST(test_long_values);
    RUN_TEST(test_ranges_are_as_they_are_said);
    RUN_TEST(test_missing_keys);
    RUN_TEST(test_bad_lines);
    RUN_TEST(test_what_is_no_file);
    RUN_TEST(test_files_that_are_too_large);
    RUN_TEST(test_many_ranks);
    RUN_TEST(test_text_arguments);
    RUN_TEST(test_probe_of_threads);
    RUN_TEST(test_probe_without_a_device);
    RUN_TEST(test_probe_of_a_lost_device);
    return UNITY_END() != 0;
}
