/* Resharding: the list of moves (src/base/reshard.c) against each position by itself, and the
 * collective (src/group/reshard.c, reshard_cache.c), which must leave the very bytes that a case of
 * the other map begins with, so that decode before and after it is within the oracle's bound.
 *
 *     test_reshard [--seed N] [--cases N] [--device NAME] [--group threads|ccl] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/expect.h"
#include "lib/options.h"
#include "lib/reshard_case.h"
#include "lib/socket_transport.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- The list -------------------------------------------------------------------------------- */

/* Any map that is complete for so many tokens. */
static ta_shard_map random_map(random_source *r, int32_t length, int32_t *bounds)
{
    ta_shard_map map = TA_SHARD_MAP_INIT;
    map.kind = (ta_shard_kind)random_int(r, TA_SHARD_CONTIGUOUS, TA_SHARD_WEIGHTED);
    map.ranks = random_int(r, 1, 6);
    map.block = random_one_in(r, 3) ? 0 : random_int(r, 1, 9);
    if (map.kind == TA_SHARD_WEIGHTED) {
        for (int rank = 0; rank < map.ranks; ++rank)
            bounds[rank] = random_int(r, 0, 3);
        bounds[random_int(r, 0, map.ranks - 1)] = 2;
        map.bounds = bounds;
    } else if (map.kind == TA_SHARD_CONTIGUOUS && random_one_in(r, 2)) {
        bounds[0] = 0;
        for (int rank = 0; rank < map.ranks; ++rank)
            bounds[rank + 1] = bounds[rank] + random_int(r, 0, length);
        bounds[map.ranks] = bounds[map.ranks] < length ? length : bounds[map.ranks];
        map.bounds = bounds;
    }
    return map;
}

/* A map that divides evenly, as one with a block. */
static ta_shard_map with_block(ta_shard_map map, int32_t length)
{
    int pieces = map.kind == TA_SHARD_ZIGZAG ? 2 * map.ranks : map.ranks;
    if (!map.block && !map.bounds && map.kind != TA_SHARD_BLOCK_CYCLIC)
        map.block = length ? (length + pieces - 1) / pieces : 1;
    return map;
}

static void check_token(const ta_shard_map *map, int32_t position, int32_t rank, int32_t local)
{
    int owner;
    int32_t at;
    EXPECT_OK(ta_shard_locate(map, position, &owner, &at));
    TEST_ASSERT_EQUAL_INT32(owner, rank);
    TEST_ASSERT_EQUAL_INT32(at, local);
}

static void test_every_token_moves_once(void)
{
    static ta_move moves[400];
    for (unsigned seed = 0; seed < 3000; ++seed) {
        random_source source = random_from(seed), *r = &source;
        int32_t bounds[2][8], length = random_one_in(r, 8) ? 0 : random_int(r, 1, 200);
        ta_shard_map from = random_map(r, length, bounds[0]), to = random_map(r, length, bounds[1]);
        ta_shard_map had = with_block(from, length), will = with_block(to, length);
        size_t count, again;
        int32_t position = 0;
        EXPECT_OK(ta_reshard_list(&from, &to, length, moves, 400, &count));
        TEST_ASSERT_TRUE(count <= 400);
        for (size_t i = 0; i < count; ++i) {
            const ta_move *m = &moves[i];
            TEST_ASSERT_EQUAL_INT32(position, m->position);
            TEST_ASSERT_TRUE(m->tokens > 0);
            for (int32_t k = 0; k < m->tokens; ++k, ++position) {
                check_token(&had, position, m->from_rank, m->from_local + k);
                check_token(&will, position, m->to_rank, m->to_local + k);
            }
            TEST_ASSERT_TRUE_MESSAGE(i == 0 || m->from_rank != m[-1].from_rank ||
                                         m->to_rank != m[-1].to_rank,
                                     "a move could have been longer");
        }
        TEST_ASSERT_EQUAL_INT32(length, position);
        ta_move cut[3] = {0};
        EXPECT_OK(ta_reshard_list(&from, &to, length, NULL, 0, &again));
        TEST_ASSERT_TRUE(again == count);
        EXPECT_OK(ta_reshard_list(&from, &to, length, cut, 2, &again));
        TEST_ASSERT_TRUE(again == count);
        TEST_ASSERT_TRUE(!memcmp(moves, cut, (count < 2 ? count : 2) * sizeof *cut));
        TEST_ASSERT_EQUAL_INT32(0, cut[2].tokens);
    }
}

static void test_lists_of_bad_maps(void)
{
    ta_shard_map right = TA_SHARD_MAP_INIT, wrong = TA_SHARD_MAP_INIT;
    int32_t bounds[] = {0, 3, 5};
    size_t count = 77;
    ta_move move = {0};
    right.ranks = 2;
    right.block = 2;
    wrong.kind = TA_SHARD_BLOCK_CYCLIC;
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(NULL, &right, 1, &move, 1, &count), "from is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(&right, NULL, 1, &move, 1, &count), "to is NULL",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(&right, &wrong, 1, &move, 1, &count),
                 "to:", "map.ranks is 0");
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(&wrong, &right, 1, &move, 1, &count),
                 "from:", "map.ranks is 0");
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(&right, &right, -1, &move, 1, &count),
                 "length is -1", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(&right, &right, 1, NULL, 1, &count),
                 "moves is NULL", NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(&right, &right, 1, &move, 1, NULL),
                 "count is NULL", NULL);
    wrong = right;
    wrong.bounds = bounds;
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard_list(&right, &wrong, 6, &move, 1, &count),
                 "length is 6", "to.bounds end at 5");
    TEST_ASSERT_TRUE(count == 77 && move.tokens == 0);
}

/* ---- The collective -------------------------------------------------------------------------- */

static void run_jobs(uint64_t first, int cases, case_launch_fn launch)
{
    static char text[2048], message[4096];
    for (int i = 0; i < cases; ++i) {
        uint64_t seed = first + (uint64_t)i;
        if (!options_ranks(1 + (int)(seed % 6)))
            continue;
        reshard_case j = reshard_case_make(seed, 1 + (int)(seed % 6));
        ta_status status = launch(j.c[0].ranks, NULL, reshard_case_rank, &j);
        case_describe(&j.c[1], text, sizeof text);
        snprintf(message, sizeof message, "seed %llu: %s\n%s", (unsigned long long)seed,
                 ta_last_error(), text);
        reshard_case_free(&j);
        TEST_ASSERT_TRUE_MESSAGE(status == TA_OK, message);
    }
}

static ta_status launch_sockets(int ranks, const ta_group_config *config, ta_rank_fn fn,
                                void *context)
{
    return socket_run_threads(ranks, SOCKET_IN_CALLS, config, fn, context);
}

static void test_bytes_and_decode(void)
{
    int cases = options.cases ? options.cases : options.one_seed ? 1 : 120;
    run_jobs(options.one_seed ? options.seed : 0, cases, ta_group_run_threads);
    if (options_host() && !options.one_seed) /* moves of several messages */
        run_jobs(CASE_LARGE_SEEDS, 8, ta_group_run_threads);
}

static void test_over_a_transport(void)
{
    run_jobs(options.one_seed ? options.seed : 300, options.one_seed ? 1 : 20, launch_sockets);
}

/* ---- Bad input ------------------------------------------------------------------------------- */

/* Dense f32 caches of 2 sequences, 12 tokens, 2 heads of 8. */
typedef struct small {
    float memory[4][2 * 12 * 2 * 8];
    int32_t lengths[2];
    ta_reshard_config config;
    ta_kv from, to;
} small;

static void make_small(small *s)
{
    memset(s, 0, sizeof *s);
    s->lengths[0] = 10;
    s->lengths[1] = 3;
    s->config = (ta_reshard_config)TA_RESHARD_CONFIG_INIT;
    s->config.to.kind = TA_SHARD_BLOCK_CYCLIC;
    s->config.to.block = 2;
    s->config.batch = 2;
    s->config.kv_heads = 2;
    s->config.k_dim = 8;
    s->config.kv_dtype = TA_F32;
    s->config.from_tokens = s->config.to_tokens = 12;
    s->config.lengths = s->lengths;
    s->from = s->to = (ta_kv)TA_KV_INIT;
    s->from.k.data = s->memory[0];
    s->from.v.data = s->memory[1];
    s->to.k.data = s->memory[2];
    s->to.v.data = s->memory[3];
}

#define REFUSED(change, first, second)                                                             \
    do {                                                                                           \
        make_small(&s);                                                                            \
        change;                                                                                    \
        EXPECT_ERROR(TA_ERR_INVALID, ta_reshard(NULL, NULL, &s.config, &s.from, &s.to, NULL),      \
                     first, second);                                                               \
    } while (0)

static void test_bad_input(void)
{
    static small s;
    int32_t falling[] = {0, -1}, pages[] = {0, 5, 0, 0};
    make_small(&s);
    EXPECT_OK(ta_reshard(NULL, NULL, &s.config, &s.from, &s.to, NULL));
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard(NULL, NULL, NULL, &s.from, &s.to, NULL), "config",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard(NULL, NULL, &s.config, NULL, &s.to, NULL), "from",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard(NULL, NULL, &s.config, &s.from, NULL, NULL), "to",
                 NULL);
    EXPECT_ERROR(TA_ERR_INVALID, ta_reshard(NULL, NULL, &s.config, &s.from, &s.to, &s), "stream",
                 NULL);
    REFUSED(s.config.reserved = 1, "reserved", NULL);
    REFUSED(s.config.batch = 0, "batch is 0", NULL);
    REFUSED(s.config.kv_heads = 0, "kv_heads is 0", NULL);
    REFUSED(s.config.k_dim = 7, "k_dim is 7", NULL);
    REFUSED(s.config.v_dim = 9, "v_dim is 9", NULL);
    REFUSED(s.config.kv_dtype = TA_DTYPE_NONE, "kv_dtype", NULL);
    REFUSED(s.config.from_tokens = 9, "config.from_tokens is 9", "10 tokens of sequence 0");
    REFUSED(s.config.to_tokens = -1, "to_tokens is -1", NULL);
    REFUSED(s.config.lengths = NULL, "config.lengths is NULL", NULL);
    REFUSED(s.lengths[1] = -4, "config.lengths[1] is -4", NULL);
    REFUSED(s.config.from.ranks = 2, "config.from.ranks is 2", NULL);
    REFUSED(s.config.to.kind = (ta_shard_kind)4, "config.to", "map.kind is 4");
    REFUSED(s.config.from.bounds = falling, "config.from", "map.bounds[1]");
    REFUSED(s.config.to.size = 3, "config.to.size is 3", NULL);
    REFUSED(s.from.bounds = falling, "from.bounds is set", NULL);
    REFUSED(s.to.k.data = NULL, "to.k.data is NULL", NULL);
    REFUSED(s.from.v.token_stride = -1, "from.v.token_stride is -1", NULL);
    REFUSED(s.to.v.head_stride = 4, "to.v.head_stride is 4", "overlap");
    REFUSED(s.to.k_bytes = 100, "to.k_bytes is 100", NULL);
    REFUSED(s.to.page_table = pages, "to.page_tokens", NULL);
    REFUSED((s.to.page_table = pages, s.to.page_tokens = 8, s.to.page_count = 3,
             s.to.page_table_stride = 2),
            "to.page_table[0][1] is 5", "from 0 to 2");
    REFUSED((s.to.page_table = pages, s.to.page_tokens = 4, s.to.page_count = 6,
             s.to.page_table_stride = 2),
            "to.page_table_stride is 2", "3 pages");
    REFUSED((s.to.page_table = pages, s.to.page_tokens = 4, s.to.page_count = 6,
             s.to.page_table_stride = INT64_C(1) << 61),
            "to.page_table_stride is 2305843009213693952", "address space");
    for (size_t i = 0; i < sizeof s.memory[2] / sizeof(float); ++i)
        TEST_ASSERT_TRUE(s.memory[2][i] == 0);
}

/* One rank's mistake is an error on all, and the group stays usable. */
static ta_status differ(ta_group *group, void *context)
{
    small *s = malloc(sizeof *s);
    int rank = ta_group_rank(group);
    (void)context;
    make_small(s);
    s->lengths[0] = rank == 1 ? 9 : 10;
    ta_status status = ta_reshard(group, NULL, &s->config, &s->from, &s->to, NULL);
    RANK_EXPECT(status == TA_ERR_MISMATCH && strstr(ta_last_error(), "config.lengths[0] is 9"));
    s->lengths[0] = 10;
    s->to.k.data = rank == 2 ? NULL : s->memory[2];
    status = ta_reshard(group, NULL, &s->config, &s->from, &s->to, NULL);
    RANK_EXPECT(status == (rank == 2 ? TA_ERR_INVALID : TA_ERR_MISMATCH));
    RANK_EXPECT(strstr(ta_last_error(), "to.k.data is NULL"));
    s->to.k.data = s->memory[2];
    status = ta_reshard(group, NULL, &s->config, &s->from, &s->to, NULL);
    free(s);
    return status;
}

static void test_ranks_that_differ(void)
{
    EXPECT_OK(ta_group_run_threads(3, NULL, differ, NULL));
    EXPECT_OK(socket_run_threads(3, SOCKET_IN_CALLS, NULL, differ, NULL));
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_bytes_and_decode);
    if (options_host()) {
        RUN_TEST(test_over_a_transport);
        RUN_TEST(test_every_token_moves_once);
        RUN_TEST(test_lists_of_bad_maps);
        RUN_TEST(test_bad_input);
        RUN_TEST(test_ranks_that_differ);
    }
    return UNITY_END() != 0;
}
