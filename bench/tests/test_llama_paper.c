/* Which figures of the paper stand beside a row: by the shape of the model and its GPUs. */
#include <string.h>
#include <unity.h>

#include "llama/paper.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static llama_flags flags_of(int argc, char **argv)
{
    char error[256];
    llama_flags flags;
    TEST_ASSERT_EQUAL_MESSAGE(0, llama_flags_parse(argc, argv, &flags, error, sizeof error), error);
    return flags;
}

#define FLAGS(...)                                                                                 \
    flags_of((int)(sizeof(char *[]){__VA_ARGS__} / sizeof(char *)), (char *[]){__VA_ARGS__})

static void near(double expected, double found)
{
    TEST_ASSERT_TRUE(found > expected - 1e-9 && found < expected + 1e-9);
}

static void test_shape_and_gpu(void)
{
    const char *h100 = "NVIDIA H100 80GB HBM3, sm_90, 132 units, 79.1 GiB";
    llama_config c;
    llama_flags f = FLAGS("--algo", "tree,ring-kv,ring-q");
    llama_config_builtin("3.1-8b", &c);
    strcpy(c.name, "llama"); /* as a folder's config.json has it */
    near(0.60, paper_seconds(&f, &c, h100, 8, 32 << 10, 0));
    near(8.19, paper_seconds(&f, &c, h100, 8, 256 << 10, 1));
    near(0, paper_seconds(&f, &c, h100, 8, 32 << 10, 2)); /* the paper has no ring-q */
    near(15.30, paper_seconds(&f, &c, "AMD Instinct MI300X, gfx942", 4, 256 << 10, 0));
    /* Another length, number, GPU or model is not the paper's. */
    near(0, paper_seconds(&f, &c, h100, 8, 48 << 10, 0));
    near(0, paper_seconds(&f, &c, h100, 4, 32 << 10, 0));
    near(0, paper_seconds(&f, &c, "NVIDIA H100 PCIe, sm_90", 8, 32 << 10, 0));
    near(0, paper_seconds(&f, &c, "NVIDIA A100-SXM4-80GB, sm_80", 8, 32 << 10, 0));
    near(0, paper_seconds(&f, &c, NULL, 8, 32 << 10, 0));
    c.kv_heads = 32;
    near(0, paper_seconds(&f, &c, h100, 8, 32 << 10, 0));
    llama_config_builtin("3.2-1b", &c);
    near(0.34, paper_seconds(&f, &c, "NVIDIA GeForce RTX 4090, sm_89", 2, 8 << 10, 0));
    near(0, paper_seconds(&f, &c, "NVIDIA GeForce RTX 4090 Laptop GPU, sm_89", 2, 8 << 10, 0));
    f = FLAGS("--new", "11");
    near(0, paper_seconds(&f, &c, "NVIDIA GeForce RTX 4090, sm_89", 2, 8 << 10, 0));
    f = FLAGS("--prefill", "none");
    near(0, paper_seconds(&f, &c, "NVIDIA GeForce RTX 4090, sm_89", 2, 8 << 10, 0));
}

static void test_places(void)
{
    rank_place p[3] = {{"a", "cuda:0", "NVIDIA H100"}, {"a", "cuda:1", "NVIDIA H100"}};
    TEST_ASSERT_EQUAL_STRING("NVIDIA H100", paper_gpu(p, 2));
    TEST_ASSERT_NULL(paper_gpu(NULL, 2));
    p[2] = p[1]; /* two ranks share a GPU */
    TEST_ASSERT_NULL(paper_gpu(p, 3));
    p[2] = (rank_place){"b", "cuda:2", "NVIDIA H100"};
    TEST_ASSERT_NULL(paper_gpu(p, 3));
    p[2] = (rank_place){"a", "cuda:2", "NVIDIA H200"};
    TEST_ASSERT_NULL(paper_gpu(p, 3));
    p[0] = (rank_place){"a", "host", ""};
    TEST_ASSERT_NULL(paper_gpu(p, 1));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_shape_and_gpu);
    RUN_TEST(test_places);
    return UNITY_END() != 0;
}
