/* pack_kv. Grid: one block for each (sequence, pack_tokens tokens of the slice), pack_threads
 * threads.
 * pack_query. Grid: as many blocks as needed to copy every element once, pack_threads threads.
 *
 * Dense copies for other ranks. pack_kv() copies what the queries see of a slice of the cache, from
 * pages and strides, to the block that a ring sends: K as [batch][KV head][slot][k_dim], then V
 * likewise. Tokens that no query sees are left out, as attend leaves them out. pack_query() copies
 * the caller's query for the ranks that do not have it. splits.c and device.c launch them. */
#include "rows.h"

static const int pack_threads = 256;
static const int pack_tokens = 16;

/* One of the tokens of a block. */
struct ta_packed_token {
    int32_t slot;  /* -1: nobody sees it */
    int32_t found; /* 0: the arguments give it no place, and it is packed as NaN */
    int64_t block, within;
};

TA_DEVICE ta_packed_token find_token(const ta_pack_kv_params &p, int32_t sequence, int32_t slot)
{
    const ta_problem &problem = p.problem;
    const int32_t *bounds = ta_sequence_bounds(p.kv.bounds, p.kv.bounds_stride, sequence);
    ta_visible seen = ta_tokens_see(problem, bounds, p.kv.lengths[sequence], sequence);
    ta_packed_token t;
    int32_t token = slot + problem.shard.slice_first;
    t.slot = slot >= seen.first && slot < min(seen.end, p.slots) ? slot : -1;
    t.found = token < problem.max_tokens && p.kv.k.data && p.kv.v.data;
    t.block = sequence;
    t.within = token;
    if (t.slot >= 0 && p.kv.page_table) {
        int32_t entry = token / p.kv.page_tokens;
        int32_t page = -1;
        if (entry < p.kv.page_table_stride)
            page = p.kv.page_table[sequence * p.kv.page_table_stride + entry];
        t.found = t.found && page >= 0 && page < p.kv.page_count;
        t.block = page;
        t.within = token % p.kv.page_tokens;
    }
    return t;
}

/* Word i of the block's tokens of K or V; a row of `words` words is one token of one head. */
template <class Word>
TA_DEVICE void copy_word(const ta_pack_kv_params &p, const ta_tensor &from, int32_t sequence,
                         const ta_packed_token *tokens, int32_t words, int32_t i, Word *to)
{
    const int64_t per_element = sizeof(Word) / p.element_bytes;
    int32_t word = i % words, head = i / words % p.problem.kv_heads;
    const ta_packed_token &t = tokens[i / words / p.problem.kv_heads];
    if (t.slot < 0)
        return;
    int64_t row = (static_cast<int64_t>(sequence) * p.problem.kv_heads + head) * p.slots + t.slot;
    int64_t element = t.block * from.batch_stride + t.within * from.token_stride +
                      head * from.head_stride + word * per_element;
    Word value;
    if (t.found)
        value = *reinterpret_cast<const Word *>(static_cast<const char *>(from.data) +
                                                element * p.element_bytes);
    else
        memset(&value, 0xff, sizeof value); /* a NaN in every type */
    to[row * words + word] = value;
}

template <class Word>
TA_DEVICE void copy_tokens(const ta_pack_kv_params &p, int32_t sequence,
                           const ta_packed_token *tokens)
{
    int32_t k_words = p.problem.k_dim * p.element_bytes / static_cast<int32_t>(sizeof(Word));
    int32_t v_words = p.problem.v_dim * p.element_bytes / static_cast<int32_t>(sizeof(Word));
    int64_t rows = static_cast<int64_t>(p.problem.batch) * p.problem.kv_heads * p.slots;
    Word *k = static_cast<Word *>(p.packed), *v = k + rows * k_words;
    int32_t each = pack_tokens * p.problem.kv_heads, thread = static_cast<int32_t>(threadIdx.x);
    for (int32_t i = thread; i < each * k_words; i += pack_threads)
        copy_word(p, p.kv.k, sequence, tokens, k_words, i, k);
    for (int32_t i = thread; i < each * v_words; i += pack_threads)
        copy_word(p, p.kv.v, sequence, tokens, v_words, i, v);
}

/* Of 8 bits, the scales behind both. Those of a token that has no place are no numbers, and so then
 * is what is made of it, whatever its bytes. */
TA_DEVICE void copy_scales(const ta_pack_kv_params &p, int32_t sequence,
                           const ta_packed_token *tokens)
{
    int64_t rows = static_cast<int64_t>(p.problem.batch) * p.problem.kv_heads * p.slots;
    float *to = reinterpret_cast<float *>(static_cast<char *>(p.packed) +
                                          rows * (p.problem.k_dim + p.problem.v_dim));
    int32_t each = pack_tokens * p.problem.kv_heads;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < 2 * each; i += pack_threads) {
        int32_t values = i / each, head = i % each % p.problem.kv_heads;
        const ta_packed_token &t = tokens[i % each / p.problem.kv_heads];
        const ta_scales &from = values ? p.kv.v_scale : p.kv.k_scale;
        float scale = 1.0f;
        if (t.slot < 0)
            continue;
        if (!t.found)
            scale = NAN;
        else if (from.data)
            scale = from.data[t.block * from.batch_stride + t.within * from.token_stride +
                              head * from.head_stride];
        int64_t row = static_cast<int64_t>(sequence) * p.problem.kv_heads + head;
        to[values * rows + row * p.slots + t.slot] = scale;
    }
}

__global__ void __launch_bounds__(pack_threads) pack_kv(ta_pack_kv_params p)
{
    TA_SHARED(ta_packed_token, tokens, [pack_tokens]);
    int32_t blocks_each = static_cast<int32_t>(ta_ceil_div(p.slots, pack_tokens));
    int32_t block = static_cast<int32_t>(blockIdx.x), thread = static_cast<int32_t>(threadIdx.x);
    int32_t sequence = block / blocks_each, first = block % blocks_each * pack_tokens;
    if (thread < pack_tokens)
        tokens[thread] = find_token(p, sequence, first + thread);
    ta_syncthreads();
    if (p.aligned)
        copy_tokens<ta_vec16>(p, sequence, tokens);
    else
        TA_WORD_SWITCH_IN_KERNEL(p.element_bytes, Word, copy_tokens<Word>(p, sequence, tokens))
    if (p.element_bytes == 1)
        copy_scales(p, sequence, tokens);
}

__global__ void __launch_bounds__(pack_threads) pack_query(ta_pack_params p)
{
    int64_t elements = static_cast<int64_t>(p.heads) * p.rows * p.k_dim;
    int64_t step = static_cast<int64_t>(gridDim.x) * pack_threads;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * pack_threads + threadIdx.x; i < elements;
         i += step) {
        int64_t e = i % p.k_dim, row = i / p.k_dim % p.rows, head = i / p.k_dim / p.rows;
        int64_t at = row / p.query_tokens * p.q.batch_stride +
                     row % p.query_tokens * p.q.token_stride + head * p.q.head_stride + e;
        TA_WORD_SWITCH_IN_KERNEL(p.element_bytes, Word,
                                 static_cast<Word *>(p.packed)[i] =
                                     static_cast<const Word *>(p.q.data)[at])
    }
}

ta_launched ta_launch_pack_kv(const ta_pack_kv_params *params, void *stream)
{
    TA_NEED_CACHE_TYPE("pack_kv", params->problem.kv_dtype);
    int64_t blocks = params->problem.batch * ta_ceil_div(params->slots, pack_tokens);
    ta_launch_result result = TA_LAUNCH(pack_kv, dim3(static_cast<unsigned>(blocks)), pack_threads,
                                        0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}

ta_launched ta_launch_pack(const ta_pack_params *params, void *stream)
{
    TA_NEED_CACHE_TYPE("pack_query", params->dtype); /* new tokens go this way too */
    int64_t elements = static_cast<int64_t>(params->heads) * params->rows * params->k_dim;
    int64_t blocks = ta_ceil_div(elements, pack_threads);
    if (blocks > INT32_MAX)
        blocks = INT32_MAX;
    ta_launch_result result = TA_LAUNCH(pack_query, dim3(static_cast<unsigned>(blocks)),
                                        pack_threads, 0, static_cast<hipStream_t>(stream), *params);
    return ta_launched_of(result);
}
