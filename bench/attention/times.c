/* From the samples of a work to the numbers of its rows; see times.h. */
#include "times.h"

#include <math.h>

#include "common/fma_loop.h"
#include "common/launch.h"
#include "prediction.h"

/* A score takes a multiply-add for each dimension, and so does each of the other products: two in
 * forward, five in backward. */
void attention_count_work(const attention_row *row, attention_times *times)
{
    double n = row->tokens, pairs = row->mask == TA_MASK_CAUSAL ? n * (n + 1) / 2 : n * n;
    double product = 2 * pairs * row->query_heads * row->head_dim;
    times->pass_flops[PASS_FORWARD] = 2 * product;
    times->pass_flops[PASS_BACKWARD] = 5 * product;
    times->peak_flops = (double)FMA_ROUND_FLOPS * ATTENTION_PEAK_ROUNDS * row->threads * row->ranks;
}

/* Bring the processes' numbers together. */
static void reduce_processes(const attention_row *row, attention_times *times)
{
    for (int pass = 0; pass < PASSES; pass++)
        launch_max(times->pass_us[pass], row->iterations);
    launch_max(times->bytes, PASSES);
    launch_max(times->messages, PASSES);
    launch_max(&times->peak_bytes, 1);
    launch_sum(times->attend_us, PASSES);
    launch_sum(times->exchange_us, PASSES);
}

/* The first process checked for all of them. */
static void share_verdicts(attention_verdict verdicts[PASSES])
{
    double wrong[PASSES];
    for (int pass = 0; pass < PASSES; pass++)
        wrong[pass] = (double)verdicts[pass].wrong;
    launch_max(wrong, PASSES);
    for (int pass = 0; pass < PASSES; pass++)
        verdicts[pass].wrong = (int64_t)wrong[pass];
}

ta_status attention_times_finish(const attention_row *rows, int count, attention_times *times,
                                 attention_verdict (*verdicts)[PASSES])
{
    ta_status status = TA_OK;
    if (launch.mpi) /* all rows have the same */
        launch_max(times->peak_us, rows->iterations);
    for (int row = 0; status == TA_OK && row < count; row++) {
        if (launch.mpi)
            reduce_processes(&rows[row], &times[row]);
        if (launch.mpi && verdicts)
            share_verdicts(verdicts[row]);
        if (rows->cluster)
            status = attention_model_times(&rows[row], &times[row]);
    }
    return status;
}

int attention_summarize(const attention_row *row, const attention_times *times,
                        const attention_times *first, int pass, pass_result *result)
{
    bench_stats peak;
    const double *us = times->pass_us[pass];
    if (stats_ratio(us, first->pass_us[pass], row->iterations, &result->ratio) != 0 ||
        stats_of(us, row->iterations, &result->us) != 0 ||
        stats_of(times->peak_us, row->iterations, &peak) != 0)
        return -1;
    result->gflops = times->pass_flops[pass] / result->us.median * 1e-3;
    result->peak = row->gpu ? NAN : times->peak_flops / peak.median * 1e-3;
    result->fraction = result->gflops / result->peak;
    return 0;
}
