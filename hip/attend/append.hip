/* append. Grid: one block for append_rows rows, each of which is a new token of a sequence,
 * append_threads threads; the tokens, and what is copied where, in shared memory.
 *
 * Stores the new tokens that this rank holds in the cache, page by page or not, in the cache's
 * type. device/new_token.h says which token goes where. device.c launches it. */
#include "narrow.h"
#include "tell.h"

#include "device/new_token.h"

static const int append_threads = 128;
/* So few on a unit leave enough registers that none is spilled to fit more. */
static const int append_blocks = 4;
static const int append_rows = 4;
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
    ta_syncthreads(); /* the last sums have been read */
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
    if (!p.tokens.report)
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
    if (blockIdx.x == 0 && threadIdx.x == 0)
        ta_write_report(p.tokens.report, fault);
    return true;
}

/* A token of K or of V to be copied. */
struct ta_token_copy {
    const char *from; /* the token's head 0; of gathered ones, all of them */
    char *to;         /* NULL: not by this rank */
    int64_t row, from_head,
        to_head; /* elements from head to head, `from_head` of no gathered ones */
    int32_t dim, values;
    float *scale; /* of head 0, if the cache has 8 bits and any */
    int64_t scale_head;
};

TA_DEVICE ta_token_copy find_copy(const ta_append_params &p, const ta_new_token &t, int64_t row,
                                  int64_t before, int values)
{
    const ta_tensor &from = values ? p.tokens.v : p.tokens.k;
    const ta_tensor &to = values ? p.kv.v : p.kv.k;
    ta_token_copy c;
    c.row = row;
    c.values = values;
    c.dim = values ? p.problem.v_dim : p.problem.k_dim;
    c.from_head = from.head_stride;
    c.to_head = to.head_stride;
    const ta_append_params &again = ta_params_again(p);
    const ta_scales &scales = values ? again.kv.v_scale : again.kv.k_scale;
    c.scale = t.found && p.tokens.dtype != p.problem.kv_dtype ? ta_new_token_scale(&scales, &t, 0)
                                                              : nullptr;
    c.scale_head = scales.head_stride;
    c.to = nullptr;
    c.from = static_cast<const char *>(p.tokens.gathered);
    if (t.found && to.data && (c.from || from.data))
        c.to = static_cast<char *>(to.data) +
               (t.block * to.batch_stride + t.within * to.token_stride) * p.stored_bytes;
    if (!c.from)
        c.from = static_cast<const char *>(from.data) +
                 ta_new_token_from(&p.problem, &p.tokens, &from, &t, row, before) * p.element_bytes;
    return c;
}

/* Where new tokens come from; a kernel for each, as one for all takes more scalar registers than
 * AMD's devices have. */
enum append_source { APPEND_GIVEN, APPEND_LOCAL, APPEND_GATHERED };

/* An element of it as a number. */
template <append_source Source>
TA_DEVICE float load_number(const ta_append_params &p, const ta_token_copy &c, int32_t head,
                            int32_t e)
{
    if (Source == APPEND_GATHERED)
        return ta_load_any(
            p.tokens.dtype,
            c.from + ta_gathered_head(&p.problem, p.problem.rows, p.element_bytes, head, c.values),
            c.row * c.dim + e);
    return ta_load_any(p.tokens.dtype, c.from, head * c.from_head + e);
}

/* Make the scales of all heads of it: append_lanes threads look for the largest number of one. */
template <append_source Source>
TA_DEVICE void make_scales(const ta_append_params &p, const ta_token_copy &c)
{
    ta_narrow_format format = ta_narrow_format_of(p.problem.kv_dtype);
    float most = ta_as_float(ta_narrow_decode(format, format.largest));
    int32_t lane = static_cast<int32_t>(threadIdx.x) % append_lanes;
    for (int32_t head = static_cast<int32_t>(threadIdx.x) / append_lanes; head < p.problem.kv_heads;
         head += append_sums) {
        float largest = 0.0f;
        for (int32_t e = lane; e < c.dim; e += append_lanes)
            largest = fmaxf(largest, fabsf(load_number<Source>(p, c, head, e)));
        for (int mask = append_lanes / 2; mask > 0; mask /= 2)
            largest = fmaxf(largest, ta_shfl_xor(largest, mask));
        if (lane == 0)
            c.scale[head * c.scale_head] = ta_scale_for(largest, most);
    }
}

/* All heads of it. Elements of the cache's type stay as they are. */
template <append_source Source>
TA_DEVICE void store_token(const ta_append_params &p, const ta_token_copy &c)
{
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < p.problem.kv_heads * c.dim;
         i += append_threads) {
        int32_t head = i / c.dim, e = i % c.dim;
        const void *data = c.from;
        int64_t at = head * c.from_head + e;
        if (Source == APPEND_GATHERED) {
            data = c.from +
                   ta_gathered_head(&p.problem, p.problem.rows, p.element_bytes, head, c.values);
            at = c.row * c.dim + e;
        }
        int64_t stored = head * c.to_head + e;
        if (p.tokens.dtype == p.problem.kv_dtype)
            TA_WORD_SWITCH_IN_KERNEL(p.element_bytes, Word,
                                     reinterpret_cast<Word *>(c.to)[stored] =
                                         static_cast<const Word *>(data)[at])
        else {
            float number = load_number<Source>(p, c, head, e);
            if (c.scale)
                number /= c.scale[head * c.scale_head];
            ta_store_any(p.problem.kv_dtype, c.to, stored, number);
        }
    }
}

template <append_source Source>
__global__ void __launch_bounds__(append_threads, append_blocks) append(ta_append_params p)
{
    TA_SHARED(ta_new_token, tokens, [append_rows]);
    TA_SHARED(int64_t, before, [append_rows]);
    TA_SHARED(int64_t, sums, [append_sums]);
    TA_SHARED(ta_token_copy, copies, [2 * append_rows]);
    if (Source == APPEND_GATHERED && report_fault(p))
        return;
    int32_t thread = static_cast<int32_t>(threadIdx.x);
    int64_t first = static_cast<int64_t>(blockIdx.x) * append_rows;
    int32_t rows = static_cast<int32_t>(min(p.problem.rows - first, int64_t{append_rows}));
    if (thread < rows) {
        tokens[thread] = ta_find_new_token(&p.problem, &p.kv, first + thread);
        before[thread] = 0;
    }
    ta_syncthreads();
    for (int32_t row = 0; Source == APPEND_LOCAL && p.problem.starts && row < rows; row++) {
        int64_t count = count_before(p, tokens[row].sequence, sums);
        if (thread == row)
            before[row] = count;
    }
    ta_syncthreads();
    if (thread < 2 * rows)
        copies[thread] =
            find_copy(p, tokens[thread / 2], first + thread / 2, before[thread / 2], thread % 2);
    ta_syncthreads();
    if (p.tokens.make_scales) {
#pragma unroll 1
        for (int32_t i = 0; i < 2 * rows; i++)
            if (copies[i].to && copies[i].scale)
                make_scales<Source>(ta_params_again(p), copies[i]);
        ta_syncthreads();
    }
#pragma unroll 1
    for (int32_t i = 0; i < 2 * rows; i++)
        if (copies[i].to)
            store_token<Source>(ta_params_again(p), copies[i]);
}

ta_launched ta_launch_append(const ta_append_params *params, void *stream)
{
    TA_NEED_CACHE_TYPE("append", params->tokens.dtype);
    TA_NEED_CACHE_TYPE("append", params->problem.kv_dtype);
    int64_t blocks = ta_ceil_div(params->problem.rows, append_rows);
    dim3 grid(static_cast<unsigned>(blocks));
    hipStream_t on = static_cast<hipStream_t>(stream);
    ta_launch_result result;
    if (params->tokens.gathered)
        result = TA_LAUNCH((append<APPEND_GATHERED>), grid, append_threads, 0, on, *params);
    else if (params->tokens.local)
        result = TA_LAUNCH((append<APPEND_LOCAL>), grid, append_threads, 0, on, *params);
    else
        result = TA_LAUNCH((append<APPEND_GIVEN>), grid, append_threads, 0, on, *params);
    return ta_launched_of(result);
}
