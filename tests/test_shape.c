/* The shapes of attend blocks: hip/attend/shape.h, for every head dimension and many row counts on
 * devices with little and with much shared memory, and hip/attend/latent.h. What the kernels take
 * for granted must hold. */
#include <stdio.h>

#include "../hip/attend/latent.h"
#include "lib/number.h"
#include "unity.h"

static const ta_gpu_limits devices[] = {
    {104, 64, 1, 65536, 65536, 0},   /* AMD CDNA */
    {108, 32, 1, 166912, 167936, 0}, /* sm_80 */
    {128, 32, 1, 101376, 102400, 0}, /* sm_89 */
    {132, 32, 1, 232448, 233472, 0}, /* sm_90 */
    {96, 32, 0, 65536, 65536, 0},    /* without matrix cores */
    {104, 64, 1, 65536, 65536, 1},   /* gfx90a */
};

static const int row_counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 48, 64, 65, 128, 500, 65536};

static const int32_t list[1]; /* of selected positions, for which shapes have room too */

static char text[200];

void setUp(void)
{
}

void tearDown(void)
{
}

static ta_problem problem(int rows, int k_dim, int v_dim, ta_dtype dtype)
{
    ta_problem p = {.batch = 1, .query_tokens = 1, .rows = 1, .query_heads = rows, .kv_heads = 1};
    p.k_dim = k_dim;
    p.v_dim = v_dim;
    p.kv_dtype = p.query_dtype = p.out_dtype = dtype;
    p.max_tokens = 1 << 20;
    return p;
}

static void name_case(const ta_problem *p, const ta_gpu_limits *d)
{
    snprintf(text, sizeof text, "%d rows, dims %d/%d, dtype %d, %d bytes of shared memory",
             p->query_heads, p->k_dim, p->v_dim, p->kv_dtype, d->shared_bytes);
}

/* What both kernels and hip/attend/tile.h rely on. */
static void check_common(const ta_problem *p, const ta_gpu_limits *d, const ta_attend_shape *s)
{
    int unit = 16 / (int)ta_dtype_bytes(p->kv_dtype);
    TEST_ASSERT_TRUE_MESSAGE(s->threads % 64 == 0 && s->threads <= TA_BLOCK_THREADS_MAX, text);
    TEST_ASSERT_TRUE_MESSAGE(s->tile >= 1 && s->tile <= s->threads, text);
    TEST_ASSERT_TRUE_MESSAGE(s->tile <= TA_UNITS * (s->threads / (p->k_dim / unit)), text);
    TEST_ASSERT_TRUE_MESSAGE(s->tile <= TA_UNITS * (s->threads / (p->v_dim / unit)), text);
    TEST_ASSERT_TRUE_MESSAGE(s->rows + 4 <= s->threads, text);
    TEST_ASSERT_TRUE_MESSAGE((s->picks_at > 0) == (p->selected != NULL), text);
    TEST_ASSERT_TRUE_MESSAGE(s->threads >= TA_PICK_WORDS, text);
    TEST_ASSERT_TRUE_MESSAGE((int64_t)s->rows * s->groups >= p->query_heads, text);
    TEST_ASSERT_TRUE_MESSAGE((int64_t)s->rows * (s->groups - 1) < p->query_heads, text);
    TEST_ASSERT_TRUE_MESSAGE(s->shared_bytes + 512 <= d->shared_bytes, text);
    TEST_ASSERT_TRUE_MESSAGE(s->shared_bytes >= TA_SHARE_SCRATCH_BYTES, text);
    TEST_ASSERT_TRUE_MESSAGE(s->k_stride >= p->k_dim * 16 / unit && s->k_stride % 16 == 0, text);
    TEST_ASSERT_TRUE_MESSAGE(s->v_stride >= p->v_dim * 16 / unit && s->v_stride % 16 == 0, text);
    TEST_ASSERT_TRUE_MESSAGE(s->k_at + s->tile * s->k_stride <= s->shared_bytes, text);
    TEST_ASSERT_TRUE_MESSAGE(s->v_at + s->tile * s->v_stride <= s->k_at, text);
    int blocks = ta_shape_blocks_per_unit(d, s);
    TEST_ASSERT_TRUE_MESSAGE(blocks >= 1 && blocks * s->threads <= TA_THREADS_PER_UNIT, text);
}

static void check_fma(const ta_problem *p, const ta_gpu_limits *d, int aligned)
{
    ta_attend_shape s = ta_fma_shape(p, aligned);
    check_common(p, d, &s);
    TEST_ASSERT_TRUE_MESSAGE(s.shared_bytes <= TA_FMA_SHARED_BYTES, text);
    TEST_ASSERT_TRUE_MESSAGE(s.tile <= TA_FMA_TILE && s.tile * s.run >= TA_RUN_TOKENS, text);
    TEST_ASSERT_TRUE_MESSAGE(s.team_rows == TA_TEAM_ROWS || (aligned && s.team_rows == 1), text);
    TEST_ASSERT_TRUE_MESSAGE(s.rows % s.team_rows == 0, text);
    TEST_ASSERT_TRUE_MESSAGE(s.rows / s.team_rows * s.team_threads == s.threads, text);
    TEST_ASSERT_TRUE_MESSAGE(s.team_threads % 64 == 0, text); /* teams are whole waves */
    TEST_ASSERT_TRUE_MESSAGE(s.team_threads >= p->v_dim / TA_TEAM_COLUMNS, text);
    TEST_ASSERT_TRUE_MESSAGE(s.team_threads >= s.team_rows * 16, text);
    TEST_ASSERT_TRUE_MESSAGE(s.lanes == 8 || s.lanes == 16 || s.lanes == 32, text);
    TEST_ASSERT_TRUE_MESSAGE(s.lanes == 8 || s.team_threads / s.lanes >= s.tile, text);
}

static void check_mma(const ta_problem *p, const ta_gpu_limits *d)
{
    ta_attend_shape s;
    int wanted = p->query_heads >= TA_MMA_ROWS_MIN && p->kv_dtype != TA_F32;
    TEST_ASSERT_EQUAL_INT_MESSAGE(wanted, ta_mma_shape(d, p, &s), text);
    if (!wanted)
        return;
    check_common(p, d, &s);
    int outputs = s.row_tiles * ((p->v_dim + TA_MMA_EDGE - 1) / TA_MMA_EDGE);
    TEST_ASSERT_TRUE_MESSAGE(s.rows == s.row_tiles * TA_MMA_EDGE, text);
    TEST_ASSERT_TRUE_MESSAGE(s.row_tiles >= 1 && s.row_tiles <= TA_MMA_ROW_TILES, text);
    TEST_ASSERT_TRUE_MESSAGE(s.tile % TA_MMA_EDGE == 0 && s.tile <= TA_MMA_TILE, text);
    TEST_ASSERT_TRUE_MESSAGE(s.tiles == TA_MMA_TILES_FEW || s.tiles == TA_MMA_TILES_MANY, text);
    TEST_ASSERT_TRUE_MESSAGE(outputs <= s.threads / 32 * s.tiles, text);
    TEST_ASSERT_TRUE_MESSAGE(s.k_parts >= 1 && s.k_parts * TA_MMA_EDGE < p->k_dim + TA_MMA_EDGE,
                             text);
}

static void check_all(int k_dim, int v_dim)
{
    for (unsigned i = 0; i < sizeof row_counts / sizeof *row_counts; i++)
        for (unsigned j = 0; j < sizeof devices / sizeof *devices; j++)
            for (int dtype = TA_F32; dtype < NUMBER_DTYPE_END; ++dtype) {
                ta_problem p = problem(row_counts[i], k_dim, v_dim, (ta_dtype)dtype);
                name_case(&p, &devices[j]);
                check_fma(&p, &devices[j], 0);
                check_fma(&p, &devices[j], 1);
                if (devices[j].matrix)
                    check_mma(&p, &devices[j]);
                p.selected = list;
                check_fma(&p, &devices[j], 0);
                check_fma(&p, &devices[j], 1);
                if (devices[j].matrix)
                    check_mma(&p, &devices[j]);
            }
}

static void test_every_dimension(void)
{
    for (int dim = 8; dim <= TA_MAX_DIM; dim += 8) {
        check_all(dim, dim);
        check_all(dim, 128);
        check_all(128, dim);
        check_all(dim, TA_MAX_DIM);
        check_all(TA_MAX_DIM, dim);
    }
}

static void test_mixed_types_go_to_fma(void)
{
    ta_attend_shape s;
    ta_problem p = problem(32, 128, 128, TA_F16);
    TEST_ASSERT_TRUE(ta_mma_shape(&devices[3], &p, &s));
    p.query_dtype = TA_F32;
    TEST_ASSERT_FALSE(ta_mma_shape(&devices[3], &p, &s));
}

/* The usual decode shapes read K and V once: all rows are in one group. */
static void test_usual_shapes_have_one_group(void)
{
    for (int rows = 1; rows <= 64; rows *= 2)
        for (unsigned j = 0; j < 4; j++) {
            ta_problem p = problem(rows, 128, 128, TA_BF16);
            ta_attend_shape s;
            name_case(&p, &devices[j]);
            if (!ta_mma_shape(&devices[j], &p, &s))
                s = ta_fma_shape(&p, 1);
            TEST_ASSERT_EQUAL_INT_MESSAGE(1, s.groups, text);
        }
}

/* Latent attention: as many rows as there are and as a block has room for, so that up to 64 rows
 * read a token once, and 128 twice; half as many on devices with less shared memory. */
static void test_rows_of_latent_blocks(void)
{
    static const struct {
        int device, rows, block;
    } expected[] = {{0, 1, 16},  {0, 33, 64},  {0, 128, 64}, {1, 16, 16},  {1, 17, 32},
                    {1, 33, 64}, {1, 65, 64},  {2, 16, 16},  {2, 33, 32},  {2, 128, 32},
                    {3, 32, 32}, {3, 128, 64}, {4, 16, 16},  {4, 128, 16}, {5, 128, 64}};
    for (unsigned i = 0; i < sizeof expected / sizeof *expected; i++) {
        const ta_gpu_limits *device = &devices[expected[i].device];
        ta_problem p = problem(expected[i].rows, TA_LATENT_K_DIM, TA_LATENT_V_DIM, TA_BF16);
        name_case(&p, device);
        int32_t rows = ta_latent_rows(device, &p);
        TEST_ASSERT_EQUAL_INT_MESSAGE(expected[i].block, rows, text);
        TEST_ASSERT_TRUE_MESSAGE(ta_latent_block_bytes(rows, device->wave) <= device->shared_bytes,
                                 text);
        TEST_ASSERT_TRUE_MESSAGE(TA_LATENT_WAVES(rows) * device->wave <= 512, text);
        p.kv_dtype = TA_F16;
        TEST_ASSERT_EQUAL_INT_MESSAGE(device->converts_f16 && rows == 64 ? 32 : rows,
                                      ta_latent_rows(device, &p), text);
        p.v_dim = 128;
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, ta_latent_rows(device, &p), text);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_every_dimension);
    RUN_TEST(test_mixed_types_go_to_fma);
    RUN_TEST(test_usual_shapes_have_one_group);
    RUN_TEST(test_rows_of_latent_blocks);
    return UNITY_END() != 0;
}
