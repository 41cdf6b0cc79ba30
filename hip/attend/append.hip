/* append. Grid: one block for each row, which is a new token of a sequence, append_threads threads;
 * the sums of the waves and the token in shared memory.
 *
 * Stores the new tokens that this rank holds in the cache, page by page or not, in the cache's
 * type. device/new_token.h says which token goes where. device.c launches it. */
#include "arrived.h"

#include "device/new_token.h"

static const int append_threads = 128;
static const int append_lanes = 32; /* that add up by themselves; divides every wave */
static const int append_sums = append_threads / append_lanes;

/* New tokens of the sequences before this one that the rank holds: all threads add up. */
TA_DEVICE int64_t count_before(const ta_append_params &p, int32_t sequence, int64_t *sums)
{
    int64_t sum = 0;
    for (int32_t b = static_cast<int32_t>(threadIdx.x); b < sequence; b += append_threads)
        sum += ta_new_tokens_held(&p.problem, &p.kv, b);
    for (int mask = append_lanes / 2; mask > 0; mask /= 2)
        sum += static_cast<int64_t>(ta_shfl_xor(static_cast<unsigned long long>(sum), mask));
    if (threadIdx.x % append_lanes == 0)
        sums[threadIdx.x / append_lanes] = sum;
    ta_syncthreads();
    sum = 0;
    for (int i = 0; i < append_sums; i++)
        sum += sums[i];
    return sum;
}

/* Does the piece of any rank tell of a fault? Then one thread tells the host, as finish() does. */
TA_DEVICE bool report_fault(const ta_append_params &p)
{
    if (!p.tokens.gathered || !p.tokens.report)
        return false;
    const char *pieces = static_cast<const char *>(p.tokens.gathered);
    ta_fault fault = *reinterpret_cast<const ta_fault *>(pieces);
#pragma unroll 1
    for (int32_t rank = 1; rank < p.problem.shard.ranks; rank++) {
        ta_fault next = *reinterpret_cast<const ta_fault *>(
            pieces + ta_gathered_piece(&p.problem, p.problem.rows, p.element_bytes, rank));
        fault = ta_fault_merge(fault, next);
    }
    if (fault.status == TA_OK)
        return false;
    ta_write_report(p.tokens.report, fault);
    return true;
}

/* One token of K or of V, all heads. Elements of the cache's type stay as they are. */
TA_DEVICE void store_token(const ta_append_params &p, const ta_new_token &t, int64_t before,
                           int values)
{
    const ta_tensor &from = values ? p.tokens.v : p.tokens.k;
    const ta_tensor &to = values ? p.kv.v : p.kv.k;
    int32_t dim = values ? p.problem.v_dim : p.problem.k_dim;
    int64_t row = blockIdx.x;
    int64_t begin = t.block * to.batch_stride + t.within * to.token_stride;
    int64_t source = 0;
    if (!p.tokens.gathered)
        source = ta_new_token_from(&p.problem, &p.tokens, &from, &t, row, before);
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.problem.kv_heads * dim;
         i += append_threads) {
        int32_t head = i / dim, e = i % dim;
        const void *data = from.data;
        int64_t at = source + head * from.head_stride + e;
        if (p.tokens.gathered) {
            data = static_cast<const char *>(p.tokens.gathered) +
                   ta_gathered_head(&p.problem, p.problem.rows, p.element_bytes, head, values);
            at = row * dim + e;
        }
        int64_t stored = begin + head * to.head_stride + e;
        if (p.tokens.dtype == p.problem.kv_dtype)
            TA_WORD_SWITCH_IN_KERNEL(p.element_bytes, Word,
                                     static_cast<Word *>(to.data)[stored] =
                                         static_cast<const Word *>(data)[at])
        else
            ta_store_element(p.problem.kv_dtype, to.data, stored,
                             ta_load_element(p.tokens.dtype, data, at));
    }
}

__global__ void __launch_bounds__(append_threads) append(ta_append_params p)
{
    TA_SHARED(int64_t, sums, [append_sums]);
    if (report_fault(p))
        return;
    ta_new_token t = ta_find_new_token(&p.problem, &p.kv, blockIdx.x);
    int64_t before = 0;
    if (p.tokens.local) /* all threads, found or not, as it has a barrier */
        before = count_before(p, t.sequence, sums);
    if (!t.found || !p.kv.k.data || !p.kv.v.data)
        return;
    store_token(p, t, before, 0);
    store_token(p, t, before, 1);
}

ta_launched ta_launch_append(const ta_append_params *params, void *stream)
{
    TA_NEED_TYPE("append", params->tokens.dtype);
    TA_NEED_TYPE("append", params->problem.kv_dtype);
    ta_launch_result result =
        TA_LAUNCH(append, dim3(static_cast<unsigned>(params->problem.rows)), append_threads, 0,
                  static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
