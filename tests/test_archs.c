/* hip/archs.c: which architectures are refused, and in which words. test_gpu_device.c has a device
 * that is. */
#include <string.h>
#include <unity.h>

#include "../hip/archs.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void test_known(void)
{
    static const char *const known[] = {"sm_80",   "sm_86",   "sm_89",   "sm_90",
                                        "sm_100",  "sm_120",  "sm_121",  "gfx90a",
                                        "gfx940",  "gfx941",  "gfx942",  "gfx942:sramecc+:xnack-",
                                        "gfx950",  "simt",    "gfx1100", "gfx1103",
                                        "gfx1151", "gfx1200", "gfx1201", "gfx90a:sramecc+:xnack-"};
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
        TEST_ASSERT_TRUE_MESSAGE(ta_arch_known(known[i]), known[i]);
}

static void test_unknown(void)
{
    static const char *const unknown[] = {"gfx906",
                                          "gfx906:sramecc+:xnack-",
                                          "gfx908",
                                          "gfx908:sramecc+:xnack-",
                                          "gfx900",
                                          "gfx803",
                                          "gfx90c",
                                          "gfx1030",
                                          "gfx1010:xnack-",
                                          "gfx9",
                                          "gfx942x",
                                          "gfx110",
                                          "gfx1300",
                                          "sm_75",
                                          "sm_79",
                                          "sm_70",
                                          "sm_",
                                          "sm_x",
                                          "sm_90a",
                                          "sm80",
                                          "",
                                          ":",
                                          "sim",
                                          "simt2",
                                          "gfx90a gfx942"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; ++i)
        TEST_ASSERT_FALSE_MESSAGE(ta_arch_known(unknown[i]), unknown[i]);
}

/* Machine code runs on its own generation from its number on, PTX of the last on what is newer. */
static void test_runs(void)
{
    static const struct {
        const char *arch, *archs;
        int runs;
    } cases[] = {
        {"sm_80", "sm_80 sm_89 sm_90", 1},
        {"sm_86", "sm_80 sm_89 sm_90", 1},
        {"sm_89", "sm_80 sm_90", 1},
        {"sm_90", "sm_80 sm_89 sm_90", 1},
        {"sm_100", "sm_80 sm_89 sm_90", 1},
        {"sm_120", "sm_80 sm_89 sm_90", 1},
        {"sm_86", "sm_89 sm_90", 0},
        {"sm_80", "sm_86", 0},
        {"sm_80", "sm_90", 0},
        {"sm_90", "sm_80 sm_120", 0},
        {"sm_121", "sm_80 sm_120", 1},
        {"sm_90", "sm_90 sm_80", 1},
        {"sm_90", "", 0},
        {"sm_90", "gfx942", 0},
        {"gfx942", "gfx90a gfx942", 1},
        {"gfx942:sramecc+:xnack-", "gfx90a gfx942", 1},
        {"gfx90a:sramecc+:xnack-", "gfx90a gfx942", 1},
        {"gfx1100", "gfx90a gfx942", 0},
        {"gfx94", "gfx90a gfx942", 0},
        {"gfx942", "gfx90a  gfx9421", 0},
        {"gfx942", "", 0},
        {"simt", "simt", 1},
        {"simt", "sm_80", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        TEST_ASSERT_EQUAL_INT_MESSAGE(cases[i].runs, ta_arch_runs(cases[i].arch, cases[i].archs),
                                      cases[i].arch);
}

static void test_f16_that_is_converted(void)
{
    TEST_ASSERT_TRUE(ta_arch_converts_f16("gfx90a"));
    TEST_ASSERT_TRUE(ta_arch_converts_f16("gfx90a:sramecc+:xnack-"));
    TEST_ASSERT_FALSE(ta_arch_converts_f16("gfx942:sramecc+:xnack-"));
    TEST_ASSERT_FALSE(ta_arch_converts_f16("sm_90"));
    TEST_ASSERT_FALSE(ta_arch_converts_f16("simt"));
}

static void expect_refused(const char *arch, const char *archs, const char *expected)
{
    char why[400] = "not written";
    ta_arch_refused(arch, archs, why, sizeof why);
    TEST_ASSERT_EQUAL_STRING(expected, why);
}

static void test_words(void)
{
    expect_refused("gfx942:sramecc+:xnack-", "gfx90a gfx942", "");
    expect_refused("sm_90", "sm_80", "");
    expect_refused("gfx908:sramecc+:xnack-", "gfx90a gfx942",
                   "is of architecture gfx908: the kernels are written for sm_80 and later of "
                   "NVIDIA, gfx90a, gfx940, gfx941, gfx942, gfx950, gfx110x, gfx115x and gfx120x "
                   "of AMD");
    expect_refused("gfx1100", "gfx90a gfx942",
                   "is of architecture gfx1100: this module was compiled for gfx90a gfx942; build "
                   "it with -Damd_archs=gfx1100 too");
    expect_refused("sm_80", "sm_90",
                   "is of architecture sm_80: this module was compiled for sm_90; build it with "
                   "-Dnvidia_archs=sm_80 too");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_known);
    RUN_TEST(test_unknown);
    RUN_TEST(test_runs);
    RUN_TEST(test_f16_that_is_converted);
    RUN_TEST(test_words);
    return UNITY_END() != 0;
}
