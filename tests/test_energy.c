/* The energy of the paper: with F(ζ) = log Σ exp(s_j + ζ·v_j) over the keys that a row sees, the
 * lse that decode returns is F(0) and its output is the gradient of F at ζ = 0. F is computed here
 * in double, from its definition, and its gradient by finite differences. */
#include <math.h>

#include "lib/bound.h"
#include "lib/expect.h"
#include "lib/options.h"
#include "lib/small_step.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* One row: its keys' scores and values, and what decode may be wrong by. */
typedef struct row {
    int keys;
    double score[SMALL_TOKENS];
    const double *value[SMALL_TOKENS];
    double sink; /* -inf: none */
} row;

static const float sinks[SMALL_HEADS] = {0.5f, -1.0f, 2.0f, 0.0f};

static row make_row(const small_whole *w, bool with_sinks, int b, int token, int head)
{
    row r = {0};
    int x = w->lengths[b] - SMALL_QUERY_TOKENS + token, kv_head = head / 2;
    const double *q = w->q[b] + (token * SMALL_HEADS + head) * SMALL_K_DIM;
    for (int y = 0; y <= x; ++y) {
        const double *k = w->k[b] + (y * SMALL_KV_HEADS + kv_head) * SMALL_K_DIM;
        double dot = 0;
        for (int i = 0; i < SMALL_K_DIM; ++i)
            dot += q[i] * k[i];
        r.score[r.keys] = dot / 4; /* 1 / sqrt(16) */
        r.value[r.keys++] = w->v[b] + (y * SMALL_KV_HEADS + kv_head) * SMALL_V_DIM;
    }
    r.sink = with_sinks ? (double)sinks[head] : -INFINITY;
    return r;
}

/* F at the ζ that is `step` in dimension `d` and 0 elsewhere. */
static double energy(const row *r, int d, double step)
{
    double top = r->sink, sum = 0;
    for (int j = 0; j < r->keys; ++j)
        top = fmax(top, r->score[j] + step * r->value[j][d]);
    for (int j = 0; j < r->keys; ++j)
        sum += exp(r->score[j] + step * r->value[j][d] - top);
    return top + log(sum + exp(r->sink - top));
}

/* Five points: the error is of the order of step to the fourth, 1e-12. */
static double gradient(const row *r, int d)
{
    const double h = 1e-3;
    return (8 * (energy(r, d, h) - energy(r, d, -h)) -
            (energy(r, d, 2 * h) - energy(r, d, -2 * h))) /
           (12 * h);
}

static ta_status energy_rank(ta_group *group, void *context)
{
    bool with_sinks = *(bool *)context;
    small_step step;
    small_whole w;
    ta_device *device;
    ta_plan *plan;
    small_step_whole(&w);
    small_step_init(&step, ta_group_rank(group), ta_group_size(group));
    step.config.sinks = with_sinks ? sinks : NULL;
    TA_TRY(ta_device_open(options.device, NULL, &device));
    TA_TRY(small_step_to_device(&step, device));
    TA_TRY(ta_plan_create(group, device, &step.config, &plan));
    TA_TRY(small_step_decode(&step, plan));
    oracle_problem problem = small_step_problem();
    problem.sinks = step.config.sinks;
    oracle_row exact = {0};
    bound_row bound;
    int index = 0;
    for (int b = 0; b < SMALL_BATCH; ++b)
        for (int t = 0; t < SMALL_QUERY_TOKENS; ++t)
            for (int h = 0; h < SMALL_HEADS; ++h, ++index) {
                row r = make_row(&w, with_sinks, b, t, h);
                oracle_sequence sequence = {w.lengths[b], w.q[b], w.k[b], w.v[b]};
                oracle_attend(&problem, &sequence, t, h, &exact);
                bound_of_row(&problem, &exact, TA_F32,
                             bound_partials(options.algorithm, ta_group_size(group)), &bound);
                RANK_EXPECT(bound_compare(energy(&r, 0, 0), bound.lse, (double)step.lse[index]) <=
                            1);
                for (int d = 0; d < SMALL_V_DIM; ++d) {
                    double got = (double)step.results[index * SMALL_V_DIM + d];
                    RANK_EXPECT(bound_compare(gradient(&r, d), bound.out[d] + 1e-11, got) <= 1);
                }
            }
    oracle_row_free(&exact);
    ta_plan_destroy(plan);
    small_step_release(&step);
    ta_device_close(device);
    return TA_OK;
}

static void test_lse_and_output_are_the_energy_and_its_gradient(void)
{
    static const int rank_counts[] = {1, 2, 3, 5, 8};
    for (int with = 0; with < 2; ++with)
        for (int i = 0; i < 5; ++i) {
            bool with_sinks = with;
            EXPECT_OK(ta_group_run_threads(rank_counts[i], NULL, energy_rank, &with_sinks));
        }
}

/* A constant added to all scores changes F by the constant and the gradient not at all. */
static void test_the_gradient_does_not_see_a_constant(void)
{
    small_whole w;
    small_step_whole(&w);
    row r = make_row(&w, false, 0, 1, 2), moved = r;
    for (int j = 0; j < r.keys; ++j)
        moved.score[j] += 3.5;
    TEST_ASSERT_TRUE(fabs(energy(&moved, 0, 0) - energy(&r, 0, 0) - 3.5) < 1e-12);
    for (int d = 0; d < SMALL_V_DIM; ++d)
        TEST_ASSERT_TRUE(fabs(gradient(&moved, d) - gradient(&r, d)) < 1e-10);
}

int main(int argc, char **argv)
{
    if (!options_read(argc, argv))
        return 2;
    UNITY_BEGIN();
    RUN_TEST(test_lse_and_output_are_the_energy_and_its_gradient);
    RUN_TEST(test_the_gradient_does_not_see_a_constant);
    return UNITY_END() != 0;
}
