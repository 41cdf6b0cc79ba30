/* A cache that grows while it decodes: each step every sequence gets a token, ta_shard_next() says
 * which rank stores it and where, and the result is compared with the oracle over all tokens so
 * far. Dense and with pages that are taken from a pool when they are needed. */
#include <math.h>
#include <stdlib.h>

#include "device/device.h"
#include "lib/bound.h"
#include "lib/expect.h"
#include "lib/number.h"
#include "lib/options.h"
#include "lib/patience.h"
#include "lib/plan_config.h"
#include "lib/random.h"

enum {
    BATCH = 3,
    STEPS = 70,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 16,
    VALUES = KV_HEADS * DIM, /* numbers of K or V per token */
    PAGE = 4,
    TABLE = STEPS / PAGE + 2
};

void setUp(void)
{
}

void tearDown(void)
{
}

typedef struct growth {
    bool paged;
    int32_t block;
    double q[BATCH][HEADS * DIM];
    double k[BATCH][STEPS * VALUES], v[BATCH][STEPS * VALUES];
} growth;

static void draw(random_source *source, double *numbers, size_t count)
{
    for (size_t i = 0; i < count; ++i)
        numbers[i] = (double)(float)random_normal(source);
}

static void make_growth(growth *g, bool paged, int32_t block)
{
    random_source source = random_from(31);
    g->paged = paged;
    g->block = block;
    draw(&source, &g->q[0][0], sizeof g->q / sizeof(double));
    draw(&source, &g->k[0][0], sizeof g->k / sizeof(double));
    draw(&source, &g->v[0][0], sizeof g->v / sizeof(double));
}

/* Sequence b grows in every step, in every second, in every third. */
static int32_t length_after(int b, int step)
{
    return step / (b + 1);
}

/* What one rank has: its part of the cache, the query, the lengths, the result. On a device with
 * memory of its own all of it has a copy there, which each step finds as the step before left it,
 * but for the token that came. */
typedef struct cache {
    float k[BATCH * (STEPS + PAGE) * VALUES], v[BATCH * (STEPS + PAGE) * VALUES];
    int32_t table[BATCH][TABLE], used_pages;
    float q[BATCH * HEADS * DIM], out[BATCH * HEADS * DIM];
    int32_t lengths[BATCH];
    char *copy; /* on the device; on the host the cache itself */
} cache;

/* A part of the cache where the device has it. */
static void *place_of(const cache *c, const void *part)
{
    return c->copy + ((const char *)part - (const char *)c);
}

/* Copy a part to the device, or back when its work is done. */
static ta_status move(ta_device *device, cache *c, void *part, size_t bytes, bool back)
{
    void *there = place_of(c, part);
    if (there == part)
        return TA_OK;
    TA_TRY(device->ops->copy(device, back ? part : there, back ? there : part, bytes, NULL));
    return back ? device->ops->synchronize(device, NULL) : TA_OK;
}

static ta_status store_token(const growth *g, ta_device *device, int b, int32_t position,
                             int32_t local, cache *c)
{
    int32_t row = b * STEPS + local;
    if (g->paged) {
        if (local % PAGE == 0)
            c->table[b][local / PAGE] = c->used_pages++;
        row = c->table[b][local / PAGE] * PAGE + local % PAGE;
    }
    for (int i = 0; i < VALUES; ++i) {
        c->k[row * VALUES + i] = (float)g->k[b][position * VALUES + i];
        c->v[row * VALUES + i] = (float)g->v[b][position * VALUES + i];
    }
    TA_TRY(move(device, c, c->k + row * VALUES, VALUES * sizeof(float), false));
    TA_TRY(move(device, c, c->v + row * VALUES, VALUES * sizeof(float), false));
    return move(device, c, c->table, sizeof c->table, false);
}

static ta_status check_step(const growth *g, int ranks, int step, const float *out)
{
    oracle_problem problem = {.query_tokens = 1,
                              .query_heads = HEADS,
                              .kv_heads = KV_HEADS,
                              .k_dim = DIM,
                              .v_dim = DIM,
                              .causal = true,
                              .scale = 0.25};
    oracle_row row = {0};
    bound_row bound;
    bool right = true;
    for (int b = 0; b < BATCH; ++b)
        for (int h = 0; h < HEADS; ++h) {
            oracle_sequence sequence = {length_after(b, step), g->q[b], g->k[b], g->v[b]};
            oracle_attend(&problem, &sequence, 0, h, &row);
            bound_of_row(&problem, &row, TA_F32, bound_partials(options.algorithm, ranks), &bound);
            for (int d = 0; d < DIM; ++d)
                right = right && bound_compare(row.out[d], bound.out[d],
                                               (double)out[(b * HEADS + h) * DIM + d]) <= 1;
        }
    oracle_row_free(&row);
    RANK_EXPECT(right);
    return TA_OK;
}

static ta_plan_config make_config(const growth *g)
{
    ta_plan_config config = plan_config(TA_F32, BATCH, HEADS, DIM, STEPS);
    config.kv_heads = KV_HEADS;
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = g->block;
    config.algorithm = options.algorithm;
    return config;
}

static ta_kv make_kv(const growth *g, const cache *c)
{
    ta_kv kv = TA_KV_INIT;
    kv.k.data = place_of(c, c->k);
    kv.v.data = place_of(c, c->v);
    kv.lengths = place_of(c, c->lengths);
    if (g->paged) {
        kv.page_table = place_of(c, c->table);
        kv.page_table_stride = TABLE;
        kv.page_tokens = PAGE;
    }
    return kv;
}

/* The tokens that come with a step. */
static ta_status grow(const growth *g, ta_group *group, ta_device *device, int step, cache *c)
{
    int owner;
    int32_t local;
    ta_shard_map map = make_config(g).map;
    map.ranks = ta_group_size(group);
    for (int b = 0; b < BATCH; ++b)
        while (c->lengths[b] < length_after(b, step)) {
            TA_TRY(ta_shard_next(&map, c->lengths[b], &owner, &local));
            if (owner == ta_group_rank(group))
                TA_TRY(store_token(g, device, b, c->lengths[b], local, c));
            ++c->lengths[b];
        }
    return move(device, c, c->lengths, sizeof c->lengths, false);
}

static ta_status grow_and_decode(const growth *g, ta_group *group, ta_device *device, ta_plan *plan,
                                 cache *c)
{
    for (int i = 0; i < BATCH * HEADS * DIM; ++i)
        c->q[i] = (float)g->q[i / (HEADS * DIM)][i % (HEADS * DIM)];
    TA_TRY(move(device, c, c->q, sizeof c->q, false));
    ta_tensor query = {place_of(c, c->q), 0, 0, 0}, result = {place_of(c, c->out), 0, 0, 0};
    ta_kv kv = make_kv(g, c);
    int steps = PATIENCE_FACTOR > 1 ? 12 : STEPS; /* TSan is slow */
    for (int step = 1; step <= steps; ++step) {
        TA_TRY(grow(g, group, device, step, c));
        kv.page_count = c->used_pages;
        number_poison(TA_F32, c->out, BATCH * HEADS * DIM);
        TA_TRY(move(device, c, c->out, sizeof c->out, false));
        TA_TRY(ta_decode(plan, &query, &kv, &result, NULL, NULL, NULL));
        TA_TRY(move(device, c, c->out, sizeof c->out, true));
        TA_TRY(check_step(g, ta_group_size(group), step, c->out));
    }
    return TA_OK;
}

static ta_status grow_rank(ta_group *group, void *context)
{
    const growth *g = context;
    ta_plan_config config = make_config(g);
    ta_device *device;
    ta_plan *plan;
    cache *c = calloc(1, sizeof *c);
    number_poison(TA_F32, c->k, sizeof c->k / sizeof(float));
    number_poison(TA_F32, c->v, sizeof c->v / sizeof(float));
    memset(c->table, 0x80, sizeof c->table);
    c->copy = (char *)c;
    TA_TRY(ta_device_open(options.device, NULL, &device));
    if (device->ops->alloc_host) {
        void *memory;
        TA_TRY(device->ops->alloc(device, sizeof *c, &memory));
        c->copy = memory;
    }
    TA_TRY(ta_plan_create(group, device, &config, &plan));
    TA_TRY(grow_and_decode(g, group, device, plan, c));
    ta_plan_destroy(plan);
    if (device->ops->alloc_host)
        device->ops->free(device, c->copy);
    ta_device_close(device);
    free(c);
    return TA_OK;
}

static void grow_everywhere(bool paged)
{
    static const int rank_counts[] = {1, 2, 3, 5, 8};
    static growth g;
    for (int i = 0; i < 5; ++i)
        for (int32_t block = 1; block <= 9; block += 4) {
            bool chosen = PATIENCE_FACTOR > 1 ? rank_counts[i] == 2 && block == 5
                                              : options_chosen((uint64_t)(3 * i + block / 4));
            if (!chosen)
                continue;
            make_growth(&g, paged, block);
            EXPECT_OK(ta_group_run_threads(rank_counts[i], NULL, grow_rank, &g));
        }
}

static void test_a_dense_cache_grows(void)
{
    grow_everywhere(false);
}

static void test_a_paged_cache_grows(void)
{
    grow_everywhere(true);
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_a_dense_cache_grows);
    RUN_TEST(test_a_paged_cache_grows);
    return UNITY_END() != 0;
}
