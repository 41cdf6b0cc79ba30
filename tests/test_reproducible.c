/* Reproducible mode: the same bits on 1, 2, 3, 5 and 8 ranks, with contiguous and block-cyclic
 * maps, equal, unequal and empty shards, all exchanges, placements and thread counts. Every case is
 * also checked against the oracle with the mode's own bound. `--seed N` runs that random case
 * alone. tests/test_tally.c has the algebra. */
#include <math.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "exchange/kinds.h"
#include "lib/case.h"
#include "lib/expect.h"
#include "lib/expect_case.h"
#include "lib/options.h"
#include "lib/seed_main.h"
#include "lib/small_step.h"

static bound_worst worst;
static const int rank_counts[] = {1, 2, 3, 5, 8};

void setUp(void)
{
}

void tearDown(void)
{
}

static bool possible(const decode_case *c)
{
    return case_exchange_possible(c->plan.exchange, c->ranks, c->plan.out_placement);
}

/* Direct exchanges are tried on one node and, but for those of GPUs, on several. */
static bool uses_nodes(ta_exchange kind, int ranks)
{
    return kind == TA_EXCHANGE_TWO_LEVEL || kind == TA_EXCHANGE_MULTI_LEVEL ||
           (kind == TA_EXCHANGE_DIRECT && options_host() && ranks >= 5);
}

/* Nodes of two ranks each, and racks of two nodes, so that levels have something to do. */
static ta_cluster *make_cluster(void)
{
    ta_cluster *cluster;
    EXPECT_OK(ta_cluster_create("local:2x2x2", &cluster));
    return cluster;
}

/* The maps of these tests, all with the same tiles. */
static void set_map(decode_case *c, int number)
{
    int32_t tile = c->plan.reproducible_tile, longest = 1;
    for (int b = 0; b < c->plan.batch; ++b)
        longest = c->lengths[b] > longest ? c->lengths[b] : longest;
    c->bounds = CASE_BOUNDS_NONE;
    c->plan.map = (ta_shard_map)TA_SHARD_MAP_INIT;
    if (number < 2) { /* blocks of one tile, and of three: then ranks are unequal or empty */
        c->plan.map.kind = TA_SHARD_BLOCK_CYCLIC;
        c->plan.map.block = number ? 3 * tile : tile;
    } else if (number == 2) { /* equal ranges */
        c->plan.map.block = (longest / c->ranks / tile + 1) * tile;
    } else { /* any ranges, empty ones among them */
        c->bounds = number == 3 ? CASE_BOUNDS_SHARED : CASE_BOUNDS_EACH;
    }
}
#define MAPS 5

static void set_placement(decode_case *c, ta_placement placement)
{
    c->plan.out_placement = placement;
    c->plan.out_root = placement == TA_PLACE_ROOT ? c->ranks - 1 : 0;
}

/* A device that is slow here runs one case in so many. */
static bool chosen(int number)
{
    return options_chosen((uint64_t)number) && (options_host() || number % 17 == 0);
}

/* The whole product, for work with several features at once. */
static void test_the_whole_product(void)
{
    int number = 0;
    ta_cluster *cluster = make_cluster();
    case_steps = 1; /* enough: every case is compared with the first */
    for (int work = 0; work < 2; ++work) {
        decode_case c = case_plain();
        c.seed = (uint64_t)(70 + work);
        c.plan.reproducible_tile = work ? 16 : 32;
        c.plan.batch = 2;
        c.plan.query_heads = 3;
        c.plan.kv_dtype = work ? TA_BF16 : TA_F32;
        c.plan.query_tokens = work ? 3 : 1;
        c.plan.window = work ? 90 : 0;
        c.lengths[0] = 175;
        c.lengths[1] = 40;
        c.alibi = c.sinks = work;
        c.query_deviation = 4;
        case_kept first = keep_case(&c, &worst);
        for (int i = 0; i < 5; ++i)
            for (int map = 0; map < MAPS; ++map)
                for (int kind = TA_EXCHANGE_DOUBLING; kind < TA_EXCHANGE_KINDS; ++kind)
                    for (int placement = TA_PLACE_ALL; placement <= TA_PLACE_HEADS; ++placement) {
                        c.ranks = rank_counts[i];
                        c.threads = options_host() && (kind + map) % 3 == 0 ? 1 + map : 1;
                        c.plan.exchange = (ta_exchange)kind;
                        c.plan.cluster = uses_nodes((ta_exchange)kind, c.ranks) ? cluster : NULL;
                        set_map(&c, map);
                        set_placement(&c, (ta_placement)placement);
                        if (possible(&c) && chosen(number++))
                            expect_bits(&first, &c, &worst, "on one rank");
                    }
        case_kept_free(&first);
    }
    case_steps = 2;
    ta_cluster_destroy(cluster);
}

/* A random case on one rank, then as it falls on some others. */
static void run_seed(uint64_t seed)
{
    static const int32_t tiles[] = {16, 16, 24, 32, 64, 100, 256};
    random_source source = random_from(seed ^ 0x7e9u), *r = &source;
    decode_case c = case_random_on(seed, 1);
    if (!options_host()) /* GPUs have other kernels for what is not aligned */
        memset(&c.k, 0, sizeof c.k), memset(&c.v, 0, sizeof c.v);
    int32_t tile = RANDOM_PICK(r, tiles);
    case_reproducible(&c, tile);
    for (int b = 0; b < c.plan.batch && seed < CASE_LARGE_SEEDS; ++b)
        c.lengths[b] *= 4;
    if (c.plan.window)
        c.plan.window *= random_int(r, 1, 4);
    if (c.plan.kv_dtype != TA_F16 && !c.v_in_k && random_one_in(r, 4)) {
        c.value_binades = random_int(r, 1, 90);
        c.plan.out_dtype = TA_F32; /* of the range that the values have */
    }
    c.far_keys = c.plan.scale >= 0 && c.plan.kv_dtype != TA_F16 &&
                 c.plan.kv_dtype < NUMBER_DTYPE_END && c.plan.query_dtype != TA_F16 &&
                 !c.plan.window && !c.special && !c.v_in_k && random_one_in(r, 8);
    ta_cluster *cluster = make_cluster();
    case_kept first = keep_case(&c, &worst);
    for (int again = 0; again < 3; ++again) {
        c.ranks = RANDOM_PICK(r, rank_counts);
        c.threads = options_host() ? random_int(r, 1, 3) : 1;
        set_map(&c, random_int(r, 0, MAPS - 1));
        set_placement(&c, (ta_placement)random_int(r, 0, 2));
        c.plan.query_placement = (ta_placement)random_int(r, 0, 2);
        c.plan.query_root =
            c.plan.query_placement == TA_PLACE_ROOT ? random_int(r, 0, c.ranks - 1) : 0;
        c.plan.exchange = (ta_exchange)random_int(r, 0, TA_EXCHANGE_KINDS - 1);
        c.plan.cluster = uses_nodes(c.plan.exchange, c.ranks) ? cluster : NULL;
        if (!possible(&c))
            c.plan.exchange = TA_EXCHANGE_AUTO;
        expect_bits(&first, &c, &worst, "on one rank");
    }
    case_kept_free(&first);
    ta_cluster_destroy(cluster);
}

static void test_random_cases(void)
{
    int count = options_host() ? 120 : 16;
    run_seeds(run_seed, 0, options.cases && options.cases < count ? options.cases : count);
}

static void test_large_random_cases(void)
{
    if (!options_host())
        TEST_IGNORE_MESSAGE("for the host");
    run_seeds(run_seed, CASE_LARGE_SEEDS, 4);
}

/* Nor do they depend on pages, for each order of the axes of K and V. */
static void test_layouts(void)
{
    for (int work = 0; work < 4; ++work) {
        decode_case c = case_plain();
        c.seed = 80 + (uint64_t)work;
        c.plan.reproducible_tile = 64;
        c.plan.query_heads = 12;
        c.plan.kv_heads = work % 2 ? 6 : 2;
        c.plan.k_dim = c.plan.v_dim = 64;
        c.plan.kv_dtype = work % 2 ? TA_F16 : TA_F32;
        c.plan.query_tokens = work < 2 ? 1 : 5;
        c.plan.window = work == 3 ? 150 : 0;
        c.plan.map.block = 64;
        c.lengths[0] = 700;
        for (int order = 0; order < 6; ++order) {
            if (!chosen(order * 17))
                continue;
            c.ranks = 1;
            c.paged = false;
            c.k.order = c.v.order = order;
            c.k.strides_given = c.v.strides_given = true;
            case_kept first = keep_case(&c, &worst);
            c.ranks = 2 + order % 3;
            expect_bits(&first, &c, &worst, "on one rank");
            c.paged = true;
            c.page_tokens = 16;
            expect_bits(&first, &c, &worst, "on one rank");
            case_kept_free(&first);
        }
    }
}

/* A case whose bits do change with the ranks when it is not reproducible: these tests can fail. */
static void test_other_bits_without_it(void)
{
    decode_case c = case_plain();
    c.lengths[0] = 300;
    c.plan.map.block = 64;
    case_kept one = keep_case(&c, &worst);
    c.ranks = 3;
    case_kept three = keep_case(&c, &worst);
    TEST_ASSERT_FALSE(same_bits(&one, &three, true));
    case_kept_free(&one);
    case_kept_free(&three);
}

static void test_the_bound_is_tight(void)
{
    if (!options_host() || options.every > 1)
        TEST_IGNORE_MESSAGE("too few cases to tell");
    TEST_ASSERT_TRUE(worst.out[TA_F32] >= 0.125 && worst.out[TA_F32] <= 1);
    TEST_ASSERT_TRUE(worst.lse >= 0.125 && worst.lse <= 1);
}

/* ---- Bad input ---- */

static void expect_error(ta_status expected, const char *part, const ta_plan_config *config,
                         ta_group *group, ta_device *device)
{
    size_t bytes;
    TEST_ASSERT_EQUAL_INT(expected, ta_plan_workspace(group, device, config, &bytes));
    if (!strstr(ta_last_error(), part))
        TEST_FAIL_MESSAGE(ta_last_error());
}

static void test_bad_configs(void)
{
    ta_group *groups[2];
    ta_device *device;
    small_step step;
    size_t bytes;
    EXPECT_OK(ta_group_create_threads(2, NULL, groups));
    EXPECT_OK(ta_device_open("host", NULL, &device));
    small_step_init(&step, 0, 2);
    ta_plan_config config = step.config;
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = 64;
    static const int32_t bad[] = {-1, 1, 15, (1 << 20) + 1};
    for (int i = 0; i < 4; ++i) {
        config.reproducible_tile = bad[i];
        expect_error(TA_ERR_INVALID, "config.reproducible_tile", &config, groups[0], device);
    }
    config.reproducible_tile = 48;
    expect_error(TA_ERR_INVALID, "config.map.block, 64", &config, groups[0], device);
    config.map.kind = TA_SHARD_CONTIGUOUS;
    expect_error(TA_ERR_INVALID, "config.map.block, 64", &config, groups[0], device);
    config.map.block = 0; /* bounds come later */
    EXPECT_OK(ta_plan_workspace(groups[0], device, &config, &bytes));
    config.map.kind = TA_SHARD_BLOCK_CYCLIC; /* the default block, 64 */
    expect_error(TA_ERR_INVALID, "config.map.block, 64", &config, groups[0], device);
    config.reproducible_tile = 32;
    EXPECT_OK(ta_plan_workspace(groups[0], device, &config, &bytes));
    config.algorithm = TA_ALGORITHM_RING_KV;
    expect_error(TA_ERR_UNSUPPORTED, "config.reproducible_tile", &config, groups[0], device);
    config.algorithm = TA_ALGORITHM_RING_Q;
    expect_error(TA_ERR_UNSUPPORTED, "config.reproducible_tile", &config, groups[0], device);
    ta_device_close(device);
    ta_group_destroy(groups[0]);
    ta_group_destroy(groups[1]);
}

/* Ranks 0 and 1 with other tiles: an error on both that names the field. Then the same on both, and
 * the plan explains what it does. */
static ta_status plan_with_tiles(ta_group *group, void *context)
{
    small_step step;
    ta_device *device;
    ta_plan *plan;
    char text[4096];
    (void)context;
    small_step_init(&step, ta_group_rank(group), 2);
    step.config.map.block = 64;
    step.config.max_tokens = 64;
    step.config.reproducible_tile = ta_group_rank(group) ? 64 : 32;
    TA_TRY(ta_device_open("host", NULL, &device));
    RANK_EXPECT(ta_plan_create(group, device, &step.config, &plan) == TA_ERR_MISMATCH);
    RANK_EXPECT(strstr(ta_last_error(), "config.reproducible_tile is 64 on rank 1 and 32"));
    step.config.reproducible_tile = 16;
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(ta_explain(plan, text, sizeof text, NULL));
    RANK_EXPECT(strstr(text, "reproducible: tiles of 16 tokens"));
    ta_plan_destroy(plan);
    ta_device_close(device);
    return TA_OK;
}

static void test_ranks_agree_on_tiles(void)
{
    EXPECT_OK(ta_group_run_threads(2, NULL, plan_with_tiles, NULL));
}

/* Bounds inside of a tile are an error of the step, also where there is room for them past the end
 * of the sequence. */
static ta_status decode_with_bounds(ta_group *group, void *context)
{
    float q[8] = {1}, k[64 * 8] = {0}, v[64 * 8], out[8];
    int32_t length = 60, middle = *(int32_t *)context, bounds[3] = {0, middle, 64};
    ta_device *device;
    ta_plan *plan;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    ta_kv kv = TA_KV_INIT;
    for (int i = 0; i < 64 * 8; ++i)
        v[i] = 1;
    config.batch = config.query_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.max_tokens = 64;
    config.reproducible_tile = 16;
    kv.lengths = &length;
    kv.bounds = bounds;
    kv.k.data = k;
    kv.v.data = v;
    TA_TRY(ta_device_open("host", NULL, &device));
    TA_TRY(ta_plan_create(group, device, &config, &plan));
    ta_status status =
        ta_decode(plan, &(ta_tensor){.data = q}, &kv, &(ta_tensor){.data = out}, NULL, NULL, NULL);
    bool right = middle % 16 == 0 || middle >= length
                     ? status == TA_OK && out[7] == 1
                     : status == TA_ERR_INVALID &&
                           strstr(ta_last_error(), "config.reproducible_tile, 16") != NULL;
    ta_plan_destroy(plan);
    ta_device_close(device);
    RANK_EXPECT(right);
    return TA_OK;
}

static void test_bounds_inside_tiles(void)
{
    int32_t middles[] = {0, 16, 48, 20, 47, 60, 61, 64};
    for (int i = 0; i < 8; ++i)
        EXPECT_OK(ta_group_run_threads(2, NULL, decode_with_bounds, &middles[i]));
}

static void run_all(void)
{
    RUN_TEST(test_the_whole_product);
    RUN_TEST(test_random_cases);
    RUN_TEST(test_large_random_cases);
    RUN_TEST(test_layouts);
    RUN_TEST(test_other_bits_without_it);
    RUN_TEST(test_the_bound_is_tight);
    if (options_host()) {
        RUN_TEST(test_bad_configs);
        RUN_TEST(test_ranks_agree_on_tiles);
        RUN_TEST(test_bounds_inside_tiles);
    }
}

int main(int argc, char **argv)
{
    int code = seed_main(argc, argv, run_seed, run_all);
    bound_worst_print(&worst);
    return code;
}
