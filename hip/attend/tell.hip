/* tell_step. Grid: one block of tell_threads threads.
 * hash_lists. Grid: sum_count blocks of tell_threads threads.
 *
 * What attend tells the other ranks in its own launch, for a rank that attends with no head: in a
 * ring of more ranks than query heads; and for a call with lists, whose hash takes more threads. It
 * takes more blocks if there are many words: hash_lists leaves the sum of each block, tell_step
 * adds them up. The hash is a sum, so it is the same as of one block, and on the host. splits.c
 * launches both. */
#include "tell.h"

static const int tell_threads = 512;

/* Add what all threads have to a sum in shared memory. */
TA_DEVICE void add_all(uint64_t hash, unsigned long long *sum)
{
    hash = ta_sum_lanes(hash);
    if (threadIdx.x % tell_lanes == 0)
        atomicAdd(sum, static_cast<unsigned long long>(hash));
}

/* Add the hash of words, or this block's part of it. */
TA_DEVICE void add_hash(const int32_t *words, uint64_t count, uint64_t block, uint64_t blocks,
                        unsigned long long *sum)
{
    uint64_t hash = 0;
#pragma unroll 4
    for (uint64_t i = block * tell_threads + threadIdx.x; i < count; i += blocks * tell_threads)
        hash += ta_hash_at(static_cast<uint32_t>(i), static_cast<uint32_t>(words[i]));
    add_all(hash, sum);
}

TA_DEVICE void add_sums(const uint64_t *sums, int64_t count, unsigned long long *sum)
{
    uint64_t hash = 0;
    for (int64_t i = threadIdx.x; i < count; i += tell_threads)
        hash += sums[i];
    add_all(hash, sum);
}

__global__ void __launch_bounds__(tell_threads) hash_lists(ta_tell_params p)
{
    TA_SHARED(unsigned long long, sum);
    if (threadIdx.x == 0)
        sum = 0;
    ta_syncthreads();
    add_hash(p.tell.selected, p.tell.selected_words, blockIdx.x, gridDim.x, &sum);
    ta_syncthreads();
    if (threadIdx.x == 0)
        p.sums[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(tell_threads) tell_step(ta_tell_params p)
{
    TA_SHARED(unsigned long long, sums, [3]);
    TA_SHARED(uint64_t, lists);
    const ta_problem &problem = p.problem;
    if (threadIdx.x < 3)
        sums[threadIdx.x] = 0;
    ta_syncthreads();
    if (p.sum_count)
        add_sums(p.sums, p.sum_count, &sums[0]);
    else if (p.tell.selected)
        add_hash(p.tell.selected, p.tell.selected_words, 0, 1, &sums[0]);
    if (problem.prefix_starts) {
        uint64_t groups = static_cast<uint64_t>(problem.prefix_groups);
        add_hash(problem.prefix_starts, groups + 1, 0, 1, &sums[1]);
        add_hash(problem.prefix_lengths, groups, 0, 1, &sums[2]);
    }
    ta_syncthreads();
    if (threadIdx.x == 0)
        lists = sums[0] + (problem.prefix_starts ? ta_prefix_hash(sums[1], sums[2]) : 0);
    ta_tell_step(problem, p.kv, p.tell,
                 p.tell.selected || problem.prefix_starts ? &lists : nullptr);
}

ta_launched ta_launch_hash_lists(const ta_tell_params *params, void *stream)
{
    ta_launch_result result = TA_LAUNCH(hash_lists, dim3(static_cast<unsigned>(params->sum_count)),
                                        tell_threads, 0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_tell(const ta_tell_params *params, void *stream)
{
    ta_launch_result result =
        TA_LAUNCH(tell_step, dim3(1), tell_threads, 0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
