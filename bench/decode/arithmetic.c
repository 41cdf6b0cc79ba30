/* See arithmetic.h. */
#include "arithmetic.h"

#include "common/fma_loop.h"
#include "common/machine.h"
#include "common/parallel.h"

/* Of the loop in one sample, on each thread: about a millisecond. */
#define ROUNDS 600000

double arithmetic_step_flops(const decode_options *o, const bench_case *row)
{
    double pairs = 0;
    for (int64_t i = 0; i < o->batch;
         i++) { /* the last of t tokens sees all N, the one before N - 1 */
        double t = (double)options_query_tokens(o, i);
        pairs += o->selected ? t * (double)o->selected : t * row->tokens - t * (t - 1) / 2;
    }
    return 2 * pairs * row->query_heads * (double)(o->head_dim + o->v_dim);
}

double arithmetic_sample_us(int threads)
{
    int64_t rounds = ROUNDS;
    double start = machine_time_us();
    return parallel_run(threads, fma_loop_on_thread, &rounds) != 0 ? -1 : machine_time_us() - start;
}

double arithmetic_sample_flops(int threads)
{
    return (double)FMA_ROUND_FLOPS * ROUNDS * threads;
}
