/* attention_backward_mma. Grid: one block for each (tile of its own rows, KV head), of
 * shape.threads threads, with shape.shared_bytes of shared memory.
 *
 * Backward over full sequences by the matrix cores, for aligned tensors of f16 and bf16. backward.h
 * says what a block owns and meets. A wave has 16 of the block's own rows, and makes one gradient
 * of them. The others go by in stages (stage.h), the next of which is on its way while one is used:
 *     scores    own rows × others: q·k, and dout·v unless it makes dV
 *     weights   p or ds, which stay in registers
 *     sums      own rows × columns: dV += p · dout, dK += ds · q; or dQ += ds · k
 *
 * Weights are fp32, and are split into sums of 16-bit numbers that lose nothing (weights.h). A row
 * of them is first multiplied by a power of two, so that the largest is close to the upper end of
 * f16: p of a key that nobody cares for and ds of a small dout may all be below its exponents.
 *
 * backward.hip launches this, and has the kernels for all other cases. */
#include "backward_tile.h"
#include "wave.h"

static const int edge = TA_MMA_EDGE;

/* Multiply a row's weights, of which this lane has some, by a power of two that brings the largest
 * to 2^14 or more and below 2^15; returns what undoes that. A NaN stays one. */
template <int Wave, int Count> TA_DEVICE float scale_weights(float (&weights)[Count])
{
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < Count; i++)
        most = fmaxf(most, fabsf(weights[i]));
#pragma unroll
    for (int mask = ta_lanes<Wave>::first_mask; mask < ta_lanes<Wave>::end_mask; mask *= 2)
        most = fmaxf(most, ta_shfl_xor(most, mask));
    /* In biased exponents, where 127 is 1. Neither the factor nor its inverse may be subnormal. */
    uint32_t up = min(127u + 14u + 127u - (ta_as_bits(most) >> 23), 253u);
    float factor = ta_as_float(up << 23);
#pragma unroll
    for (int i = 0; i < Count; i++)
        weights[i] *= factor;
    return ta_as_float((254u - up) << 23);
}

/* 16 rows of a wave, and the sums of one of their gradients. */
template <class Type, int Dim, int Wave, bool Keys> struct ta_backward_wave {
    typedef ta_lanes<Wave> lanes;
    static const int slots = ta_own_slots<Wave>;
    static const int others = TA_BACKWARD_MMA_OTHERS(Dim);
    static const int steps = others / edge;

    ta_own_rows<Dim, Wave, false> own_k, own_v;
    ta_sums<Dim, Wave> sums;
    int32_t first; /* of its rows in the block */
    bool of_v;     /* makes dV; else dK or dQ */

    __device__ __forceinline__ void start(const char *own)
    {
        const int32_t groups = TA_BACKWARD_MMA_OWN(Dim) / edge;
        first = ta_wave_id() % groups * edge;
        of_v = Keys && ta_wave_id() < groups;
        own_k.load(own, first);
        own_v.load(own + TA_BACKWARD_MMA_OWN_BYTES(Dim) / 2, first);
        sums.clear();
    }

    /* p, or ds without the scale, of all pairs of a row with the others; 0 if one is not seen. */
    template <bool OfV>
    __device__ __forceinline__ void
    weigh(const ta_score_rule &rule, const ta_backward_mma_tables &tables, int which,
          const float (&dots)[steps * 4], const float (&products)[steps * 4], int slot, bool seen,
          int32_t own, int32_t at, float (&weights)[steps * 4]) const
    {
        int32_t row = first + lanes::row(slot);
        const ta_line own_line = tables.own[row];
#pragma unroll
        for (int i = 0; i < steps * 4; i++) {
            int32_t o = ta_score_column<Wave>(i);
            const ta_line &other_line = tables.others[which].lines[o];
            ta_pair pair = ta_make_pair(rule, dots[i], products[i], Keys ? other_line : own_line);
            weights[i] = OfV ? pair.p : pair.ds;
            if (!seen && !ta_pair_seen<Keys>(own + row, own_line, at + o, other_line))
                weights[i] = 0.0f;
        }
    }

    /* The weights of a row's pairs with all others, by the shortest way. */
    template <bool OfV>
    __device__ __forceinline__ void
    weigh_row(const ta_score_rule &rule, const ta_backward_mma_tables &tables, int which,
              const float (&dots)[steps * 4], const float (&products)[steps * 4], int slot,
              int32_t own, int32_t at, float (&weights)[steps * 4]) const
    {
        const ta_score_rule plain = {rule.factor, 0.0f, 0};
        if (rule.cap > 0.0f)
            weigh<OfV>(rule, tables, which, dots, products, slot, false, own, at, weights);
        else if (ta_uniform(tables.others[which].partly))
            weigh<OfV>(plain, tables, which, dots, products, slot, false, own, at, weights);
        else
            weigh<OfV>(plain, tables, which, dots, products, slot, true, own, at, weights);
    }

    /* The weights of a tile of others, from `at` on, whose rows are in `k` and `v`. `undo` is what
     * their sums are still to be multiplied by. */
    __device__ __forceinline__ void
    take_scores(const ta_backward_args &a, const ta_backward_mma_tables &tables, int which,
                const char *k, const char *v, int32_t own, int32_t at,
                ta_weight_words<Type, Wave> (&words)[steps], float (&undo)[slots]) const
    {
        const ta_score_rule &rule = a.p.common.rule;
        float dots[slots][steps * 4], products[slots][steps * 4] = {};
        float weights[slots][steps * 4];
        ta_multiply_rows<Type, Dim, Wave, steps>(own_k, k, a.p.common.work.k_dim, dots);
        if (Keys && of_v) {
#pragma unroll
            for (int slot = 0; slot < slots; slot++)
                weigh_row<true>(rule, tables, which, dots[slot], products[slot], slot, own, at,
                                weights[slot]);
        } else {
            ta_multiply_rows<Type, Dim, Wave, steps>(own_v, v, a.p.common.work.v_dim, products);
#pragma unroll
            for (int slot = 0; slot < slots; slot++)
                weigh_row<false>(rule, tables, which, dots[slot], products[slot], slot, own, at,
                                 weights[slot]);
        }
#pragma unroll
        for (int slot = 0; slot < slots; slot++) {
            undo[slot] = scale_weights<Wave>(weights[slot]);
#pragma unroll
            for (int i = 0; i < steps; i++) {
                float x[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    x[j] = weights[slot][i * 4 + j];
                words[i].take(x, slot);
            }
        }
    }

    __device__ __forceinline__ void show_rows(const ta_backward_mma_tables &tables, int which,
                                              const char *rows, int32_t own, int32_t at)
    {
        ta_show_not_finite<Type, others>(rows, sums, [&](int slot, int32_t o) {
            int32_t row = first + lanes::row(slot);
            return ta_pair_seen<Keys>(own + row, tables.own[row], at + o,
                                      tables.others[which].lines[o]);
        });
    }

    __device__ __forceinline__ void store(const ta_backward_args &a, const ta_line *lines) const
    {
        int32_t dim = of_v ? a.p.common.work.v_dim : a.p.common.work.k_dim;
#pragma unroll
        for (int slot = 0; slot < slots; slot++) {
            const ta_line &line = lines[first + lanes::row(slot)];
#pragma unroll
            for (int i = 0; i < sums.products * sums.elements; i++) {
                int32_t column = sums.column(i / sums.elements, i % sums.elements);
                if (line.row >= 0 && column < dim)
                    ta_store_gradient<Keys>(a, a.p.gradient, line, column, of_v,
                                            sums.x[slot][i / sums.elements][i % sums.elements]);
            }
        }
    }
};

template <class Type, int Dim, int Wave, bool Keys>
__global__ void __launch_bounds__(TA_BACKWARD_MMA_WAVES(Dim, Keys) * Wave, 1)
    attention_backward_mma(ta_backward_args a)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED_DYNAMIC(char, shared);
    const int others = TA_BACKWARD_MMA_OTHERS(Dim), stages = TA_BACKWARD_MMA_STAGES(Wave);
    const int threads = TA_BACKWARD_MMA_WAVES(Dim, Keys) * Wave;
    ta_backward_mma_tables &tables = *reinterpret_cast<ta_backward_mma_tables *>(shared);
    char *const own_rows = shared + a.s.own_k_at, *const other_rows = shared + a.s.other_k_at;
    const bool makes_lines = ta_wave_id() == 0;
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    const ta_block_ranges m = ta_find_block_ranges<Keys>(a);
    if (thread < a.s.own)
        tables.own[thread] = Keys ? ta_key_line(a.p, m.kv_head, m.own + thread)
                                  : ta_query_line(a.p, m.kv_head, m.own + thread);
    ta_syncthreads();
    ta_tile_copy<Dim, TA_BACKWARD_MMA_OWN(Dim), threads, !Keys> own_copy;
    own_copy.start(a, tables.own, own_rows);

    /* The lines of the first two tiles, and the rows of the third. */
    ta_line_ahead<Keys> ahead = {-1, -1};
    if (makes_lines) {
        for (int i = 0; i < 2; i++) {
            ahead.find_row(a.p.common.work, m, m.first + i * others);
            ta_store_line<Keys, others>(a, tables, i, ahead.finish(ahead.find_line(a.p, m)), m,
                                        m.first + i * others);
        }
        ahead.find_row(a.p.common.work, m, m.first + 2 * others);
    }
    own_copy.finish(own_rows);
    ta_syncthreads();
    ta_tile_copy<Dim, others, threads, Keys> copy;
    if (m.first < m.end)
        copy.start(a, tables.others[0].lines, other_rows);
    ta_backward_wave<Type, Dim, Wave, Keys> wave;
    wave.start(own_rows);

    int which = 0, stage = 0;
    const int32_t end = ta_uniform(m.end);
    for (int32_t at = ta_uniform(m.first); at < end; at += others) {
        int next = which == 2 ? 0 : which + 1, then = 3 - which - next;
        int next_stage = stages == 2 ? 1 - stage : 0;
        char *rows = other_rows + stage * TA_BACKWARD_MMA_STAGE_BYTES(Dim);
        copy.finish(rows);
        if (tables.others[which].partly && (copy.k.template not_finite<Type>(rows) ||
                                            copy.v.template not_finite<Type>(rows + copy.half)))
            atomicOr(&tables.others[which].not_finite, 1);
        ta_syncthreads(); /* the tile is there, and nobody needs the one before */
        if (at + others < end)
            copy.start(a, tables.others[next].lines,
                       other_rows + next_stage * TA_BACKWARD_MMA_STAGE_BYTES(Dim));
        ta_line line = ta_no_line();
        if (makes_lines) {
            line = ahead.find_line(a.p, m);
            ahead.find_row(a.p.common.work, m, at + 3 * others);
        }
        ta_weight_words<Type, Wave> words[wave.steps];
        float undo[wave.slots];
        wave.take_scores(a, tables, which, rows, rows + copy.half, m.own, at, words, undo);
        char *added = wave.of_v ? rows + copy.half : rows;
        if (ta_uniform(tables.others[which].not_finite)) {
            /* A weight of 0 would not keep away what is not finite and not seen. */
            wave.show_rows(tables, which, added, m.own, at);
            ta_syncthreads();
            copy.k.template hide_not_finite<Type>(rows);
            copy.v.template hide_not_finite<Type>(rows + copy.half);
            ta_syncthreads();
        }
        const ta_attention_work &w = a.p.common.work;
        ta_add_rows<Type, false>(words, added, wave.of_v ? w.v_dim : w.k_dim, undo, wave.sums);
        if (makes_lines)
            ta_store_line<Keys, others>(a, tables, then, ahead.finish(line), m, at + 2 * others);
        if (stages == 1)
            ta_syncthreads(); /* all are done with the tile */
        which = next;
        stage = next_stage;
    }
    wave.store(ta_params_again(a), tables.own);
}

/* Whatever is done for all kernels of a width. */
template <class Type, int Wave, bool Keys, class Do>
static ta_launch_result pick_dim(int32_t dim, Do act)
{
    if (dim == 64)
        return act("attention_backward_mma<64>", attention_backward_mma<Type, 64, Wave, Keys>);
    if (dim == 128)
        return act("attention_backward_mma<128>", attention_backward_mma<Type, 128, Wave, Keys>);
    return act("attention_backward_mma<256>", attention_backward_mma<Type, 256, Wave, Keys>);
}

template <int Wave, class Do>
static ta_launch_result pick(ta_dtype dtype, int32_t dim, bool keys, Do act)
{
    ta_launch_result result = ta_no_type("attention_backward_mma", dtype);
    TA_TYPE_SWITCH(TA_MATRIX_TYPES, dtype, Type,
                   result = keys ? pick_dim<Type, Wave, true>(dim, act)
                                 : pick_dim<Type, Wave, false>(dim, act))
    return result;
}

template <int Wave>
static ta_launch_result launch(const ta_backward_args &a, bool keys, hipStream_t stream)
{
    if constexpr (!ta_mma_has(Wave))
        return {hipErrorInvalidValue, "attention_backward_mma"};
    else
        return pick<Wave>(a.p.common.work.dtype, ta_backward_mma_dim(a.p.common.work), keys,
                          [&](const char *name, void (*kernel)(ta_backward_args)) {
                              return ta_launch(name, kernel,
                                               dim3(static_cast<unsigned>(a.s.blocks)),
                                               static_cast<unsigned>(a.s.threads),
                                               static_cast<size_t>(a.s.shared_bytes), stream, a);
                          });
}

template <int Wave> static ta_launch_result prepare(int shared_bytes)
{
    ta_launch_result result = {hipSuccess, "attention_backward_mma"};
    if constexpr (ta_mma_has(Wave)) {
        auto allow = [&](const char *name, void (*kernel)(ta_backward_args)) {
            hipError_t error =
                hipFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                    hipFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
            return ta_launch_result{error, name};
        };
        for (ta_dtype dtype : ta_matrix_dtypes)
            for (int32_t dim = 64; dim <= 256; dim *= 2)
                for (bool keys : {false, true})
                    if (result.error == hipSuccess)
                        result = pick<Wave>(dtype, dim, keys, allow);
    }
    return result;
}

ta_launched ta_launch_attention_backward_mma(const ta_gpu_limits *limits,
                                             const ta_attention_backward_params *params, bool keys,
                                             hipStream_t stream)
{
    ta_backward_args a = {*params, ta_backward_mma_shape(limits, params->common.work, keys)};
    ta_launch_result result = {hipErrorInvalidValue, "attention_backward_mma"};
    if (a.s.blocks > 0)
        TA_WAVE_SWITCH(limits->wave, Wave, result = launch<Wave>(a, keys, stream));
    return ta_launched_of(result);
}

ta_launched ta_prepare_attention_backward_mma(int wave, int shared_bytes)
{
    ta_launch_result result = {hipErrorInvalidValue, "attention_backward_mma"};
    TA_WAVE_SWITCH(wave, Wave, result = prepare<Wave>(shared_bytes));
    return ta_launched_of(result);
}
