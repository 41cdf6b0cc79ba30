/* Places of ranks inside nodes (src/cluster/places.c, pairs.c): their lines, packages as a
 * level of links and as what a two-level exchange takes for nodes, and who swaps with whom in a
 * probe. */
#include "cluster/cluster.h"

#include <stdlib.h>

#include <treeattn/cluster.h>

#include "cluster/pairs.h"
#include "lib/expect.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_cluster *from_file(const char *lines)
{
    char path[] = "/tmp/test_places_XXXXXX.cluster";
    int file = mkstemps(path, 8);
    TEST_ASSERT_TRUE(file >= 0);
    FILE *out = fdopen(file, "w");
    fputs(lines, out);
    fclose(out);
    ta_cluster *cluster = NULL;
    ta_status status = ta_cluster_create(path, &cluster);
    remove(path);
    return status == TA_OK ? cluster : NULL;
}

static const char eight[] = "preset = rtx4090\nnodes = 2x4\npackage_of_rank = 0 1 0 1 3 3 3 -\n"
                            "numa_of_rank = 0 2 0 2 - - 6 6\n"
                            "pci_of_rank = 0000:17:00.0 - - - - - - 0001:e1:00.1\n"
                            "package.latency_seconds = 1e-6\n"
                            "package.rank_bytes_per_second = 2e10\n"
                            "package.total_bytes_per_second = 4e10\n";

static void test_lines_there_and_back(void)
{
    char text[4096], again[4096];
    ta_cluster *c = from_file(eight);
    TEST_ASSERT_NOT_NULL_MESSAGE(c, ta_last_error());
    TEST_ASSERT_EQUAL_INT(3, c->packages);
    TEST_ASSERT_EQUAL_INT(-1, c->package_of[7]);
    TEST_ASSERT_EQUAL_INT(2, c->package_of[4]);
    TEST_ASSERT_EQUAL_INT(6, c->places[7].numa);
    EXPECT_OK(ta_cluster_text(c, text, sizeof text, NULL));
    TEST_ASSERT_NOT_NULL(strstr(text, "\npackage_of_rank = 0 1 0 1 3 3 3 -\nnuma_of_rank = "
                                      "0 2 0 2 - - 6 6\npci_of_rank = 0000:17:00.0 - - - - - - "
                                      "0001:e1:00.1\n"));
    ta_cluster *back = from_file(text);
    TEST_ASSERT_NOT_NULL_MESSAGE(back, ta_last_error());
    EXPECT_OK(ta_cluster_text(back, again, sizeof again, NULL));
    TEST_ASSERT_EQUAL_STRING(text, again);
    ta_cluster_destroy(back);
    ta_cluster_destroy(c);
}

static void refuses(const char *lines, const char *first, const char *second)
{
    char text[512];
    snprintf(text, sizeof text, "preset = local\n%s\n", lines);
    TEST_ASSERT_NULL_MESSAGE(from_file(text), lines);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(ta_last_error(), first), ta_last_error());
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(ta_last_error(), second), ta_last_error());
}

static void test_bad_lines(void)
{
    refuses("package_of_rank = 0 0\nnodes = 1x2", "package_of_rank is '0 0'", "behind nodes");
    refuses("nodes = 1x2\npackage_of_rank = 0", "package_of_rank is '0'", "each of the 2 ranks");
    refuses("nodes = 1x2\npackage_of_rank = 0 1 2", "'0 1 2'", "each of the 2 ranks");
    refuses("nodes = 1x2\npackage_of_rank = x 1", "'x 1'", "a number from 0 to 1023");
    refuses("nodes = 1x2\nnuma_of_rank = 0 1024", "'0 1024'", "a number from 0 to 1023");
    refuses("nodes = 1x2\nnuma_of_rank = 0 -1", "'0 -1'", "a number from 0 to 1023");
    refuses("nodes = 1x1\npci_of_rank = 17", "'17'", "such as 0000:17:00.0");
    refuses("nodes = 1x1\npci_of_rank = 0000:17:00.0x", "17:00.0x", "such as 0000:17:00.0");
    refuses("nodes = 1x1\npackage.latency_seconds = 1", "package.rank_bytes_per_second is missing",
            "must be");
}

static void test_packages_are_a_level_with_numbers(void)
{
    ta_cluster *c = from_file(eight);
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_PACKAGE, ta_cluster_level(c, 0, 2));
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_NODE, ta_cluster_level(c, 0, 1));
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_NODE, ta_cluster_level(c, 6, 7)); /* one is not known */
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_NETWORK, ta_cluster_level(c, 3, 4));
    TEST_ASSERT_TRUE(ta_cluster_units(c) == c->node_of); /* there are several nodes */
    c->levels[TA_LEVEL_PACKAGE].rank_bytes_per_s = 0;
    TEST_ASSERT_EQUAL_INT(TA_LEVEL_NODE, ta_cluster_level(c, 0, 2));
    ta_cluster_destroy(c);
}

static void test_units_of_a_two_level_exchange(void)
{
    ta_cluster *c = from_file("preset = local\nnodes = 1x4\npackage_of_rank = 0 0 1 1\n");
    TEST_ASSERT_TRUE(ta_cluster_units(c) == c->node_of); /* no numbers for the level */
    c->levels[TA_LEVEL_PACKAGE] = c->levels[TA_LEVEL_NODE];
    TEST_ASSERT_TRUE(ta_cluster_units(c) == c->package_of);
    c->package_of[1] = -1;
    TEST_ASSERT_TRUE(ta_cluster_units(c) == c->node_of);
    ta_cluster_destroy(c);
    TEST_ASSERT_NULL(ta_cluster_units(NULL));
}

static void expect_partners(const char *lines, ta_level_kind level, int alone, const char *wanted)
{
    char got[200] = "";
    ta_cluster *c = from_file(lines);
    TEST_ASSERT_NOT_NULL_MESSAGE(c, ta_last_error());
    for (int rank = 0; rank < c->ranks; ++rank) {
        int partner = ta_pairs_partner(c, rank, level, alone);
        if (partner >= 0) /* it is mutual */
            TEST_ASSERT_EQUAL_INT(rank, ta_pairs_partner(c, partner, level, alone));
        snprintf(got + strlen(got), sizeof got - strlen(got), rank ? " %d" : "%d", partner);
    }
    TEST_ASSERT_EQUAL_STRING_MESSAGE(wanted, got, lines);
    ta_cluster_destroy(c);
}

static void test_pairs_of_a_probe(void)
{
    const char *nodes = "preset = local\nnodes = 2x3 1x2\n";
    expect_partners(nodes, TA_LEVEL_NODE, 0, "1 0 -1 4 3 -1 7 6");
    expect_partners(nodes, TA_LEVEL_NETWORK, 0, "3 4 5 0 1 2 -1 -1");
    expect_partners(nodes, TA_LEVEL_NETWORK, 1, "3 -1 -1 0 -1 -1 -1 -1");
    expect_partners(nodes, TA_LEVEL_PACKAGE, 0, "-1 -1 -1 -1 -1 -1 -1 -1");
    const char *packages = "preset = local\nnodes = 2x4\npackage_of_rank = 0 1 0 1 5 5 6 7\n";
    expect_partners(packages, TA_LEVEL_PACKAGE, 0, "2 3 0 1 5 4 -1 -1");
    expect_partners(packages, TA_LEVEL_PACKAGE, 1, "2 3 0 1 5 4 -1 -1");
    expect_partners(packages, TA_LEVEL_NODE, 0, "1 0 3 2 6 -1 4 -1");
    expect_partners(packages, TA_LEVEL_NODE, 1, "1 0 -1 -1 6 -1 4 -1");
    expect_partners(packages, TA_LEVEL_NETWORK, 0, "4 5 6 7 0 1 2 3");
    const char *one = "preset = local\nnodes = 1x4\npackage_of_rank = 0 0 0 0\n"; /* no level */
    expect_partners(one, TA_LEVEL_NODE, 0, "1 0 3 2");
    expect_partners(one, TA_LEVEL_PACKAGE, 0, "-1 -1 -1 -1");
}

static void test_senders_at_once(void)
{
    ta_cluster *c = from_file("preset = local\nnodes = 2x3 1x2\n");
    TEST_ASSERT_EQUAL_INT(2, ta_pairs_senders(c, TA_LEVEL_NODE));
    TEST_ASSERT_EQUAL_INT(3, ta_pairs_senders(c, TA_LEVEL_NETWORK));
    ta_cluster_destroy(c);
    c = from_file("preset = local\nnodes = 1x6\npackage_of_rank = 0 0 1 1 1 1\n");
    TEST_ASSERT_EQUAL_INT(4, ta_pairs_senders(c, TA_LEVEL_NODE));
    TEST_ASSERT_EQUAL_INT(4, ta_pairs_senders(c, TA_LEVEL_PACKAGE));
    ta_cluster_destroy(c);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_lines_there_and_back);
    RUN_TEST(test_bad_lines);
    RUN_TEST(test_packages_are_a_level_with_numbers);
    RUN_TEST(test_units_of_a_two_level_exchange);
    RUN_TEST(test_pairs_of_a_probe);
    RUN_TEST(test_senders_at_once);
    return UNITY_END() != 0;
}
