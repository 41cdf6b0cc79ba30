/* attention_forward_mma. Grid: one block for each (tile of TA_FORWARD_ROWS queries, query head), of
 * TA_FORWARD_WAVES waves, with TA_FORWARD_BYTES of shared memory.
 *
 * Attention over full sequences, forward, by the matrix cores, for aligned tensors of a 16-bit
 * type. A wave has 16 queries to itself; K and V go by in stages (stage.h) that all waves share:
 *
 *     K of tile n is there ─► scores ─► weights ─┐   V of tile n is there ─► o += weights · V
 *         └► V of tile n is asked for            └►      └► K of tile n + 1 is asked for
 *
 * with a barrier at each "is there". Scores, weights and sums stay in registers. Weights are sums
 * of 16-bit numbers (weights.h). attention.c launches this; forward.hip does all that this
 * can't. */
#include "block.h"
#include "shape.h"
#include "wave.h"

static const int edge = TA_MMA_EDGE;

/* 16 queries of a wave, what they found so far, and what they do with a tile of keys. */
template <class Type, int Dim, int Wave> struct ta_forward_wave {
    typedef ta_lanes<Wave> lanes;
    static const int slots = ta_own_slots<Wave>;
    static const int keys = TA_FORWARD_KEYS(Dim);
    static const int steps = keys / edge;

    ta_own_rows<Dim, Wave, TA_FORWARD_KEEPS_QUERIES(Dim, Wave)> q;
    const ta_visible *sees;   /* of the wave's rows, in shared memory */
    float m[slots], l[slots]; /* l of this lane's keys alone */
    ta_sums<Dim, Wave> o;

    __device__ __forceinline__ void start(const char *queries, const ta_visible *all)
    {
        int32_t first = ta_wave_id() * edge;
        q.load(queries, first);
        sees = all + first;
        o.clear();
#pragma unroll
        for (int r = 0; r < slots; r++) {
            m[r] = -INFINITY;
            l[r] = 0.0f;
        }
    }

    /* Does some row see one of the keys [at, end), and do all rows see all of them? Both ends of
     * what they see ascend. */
    __device__ __forceinline__ bool sees_some(int32_t at, int32_t end) const
    {
        return ta_uniform(sees[0].first < end && sees[edge - 1].end > at);
    }

    __device__ __forceinline__ bool sees_all(int32_t at, int32_t end) const
    {
        return ta_uniform(sees[edge - 1].first <= at && sees[0].end >= end);
    }

    /* Scores of a row, still to be multiplied by `factor`, become weights, and m and l are brought
     * up to date. Returns what o must be multiplied by. A NaN makes its weight and then l NaN,
     * never m. */
    __device__ __forceinline__ float weigh(float (&x)[steps * 4], float factor, int r)
    {
        float largest = x[0], sum = 0.0f;
#pragma unroll
        for (int i = 1; i < steps * 4; i++)
            largest = fmaxf(largest, x[i]);
        largest = fmaxf(m[r], largest * factor);
#pragma unroll
        for (int mask = lanes::first_mask; mask < lanes::end_mask; mask *= 2)
            largest = fmaxf(largest, ta_shfl_xor(largest, mask));
        /* Nothing seen yet: a difference to -inf would be NaN. */
        float base = largest == -INFINITY ? 0.0f : largest;
        float rescale = ta_exp2(m[r] - base);
        m[r] = largest;
#pragma unroll
        for (int i = 0; i < steps * 4; i++) {
            x[i] = ta_exp2(fmaf(x[i], factor, -base));
            sum += x[i];
        }
        l[r] = fmaf(l[r], rescale, sum);
        return rescale;
    }

    __device__ __forceinline__ void hide_scores(float (&x)[steps * 4], int32_t at, int r) const
    {
        ta_visible v = sees[lanes::row(r)];
#pragma unroll
        for (int i = 0; i < steps * 4; i++) {
            int32_t key = at + ta_score_column<Wave>(i);
            if (key < v.first || key >= v.end)
                x[i] = -INFINITY;
        }
    }

    /* The weights of a tile of keys from `at` on; `whole`: all rows see all of them. */
    __device__ __forceinline__ void take_keys(const ta_attention_params &p, const char *stage,
                                              int32_t at, bool whole,
                                              ta_weight_words<Type, Wave> (&weights)[steps],
                                              float (&rescale)[slots])
    {
        float scores[slots][steps * 4];
        ta_multiply_rows<Type, Dim, Wave, steps>(q, stage, p.work.k_dim, scores);
        float factor = fabsf(p.rule.factor); /* its sign is the queries' */
        if (p.rule.cap > 0.0f) {
#pragma unroll
            for (int i = 0; i < slots * steps * 4; i++) {
                float &x = scores[i / (steps * 4)][i % (steps * 4)];
                x = p.rule.cap * tanhf(x * factor);
            }
            factor = 1.0f;
        }
#pragma unroll
        for (int r = 0; r < slots; r++) {
            if (!whole)
                hide_scores(scores[r], at, r);
            rescale[r] = weigh(scores[r], factor, r);
#pragma unroll
            for (int i = 0; i < steps; i++) {
                float x[4];
#pragma unroll
                for (int j = 0; j < 4; j++)
                    x[j] = scores[r][i * 4 + j] * ta_weight_scale(Type());
                weights[i].take(x, r);
            }
        }
    }

    __device__ __forceinline__ void show_values(const char *stage, int32_t at)
    {
        ta_show_not_finite<Type, keys>(stage, o, [&](int slot, int32_t row) {
            ta_visible v = sees[lanes::row(slot)];
            return at + row >= v.first && at + row < v.end;
        });
    }

    __device__ __forceinline__ void write(const ta_attention_work &w, const ta_attention_block &b,
                                          float *records)
    {
#pragma unroll
        for (int r = 0; r < slots; r++) {
#pragma unroll
            for (int mask = lanes::first_mask; mask < lanes::end_mask; mask *= 2)
                l[r] += ta_shfl_xor(l[r], mask);
            int32_t row = ta_wave_id() * edge + lanes::row(r);
            if (row >= b.count)
                continue;
            float *record = ta_attention_record(w, b, row, records);
#pragma unroll
            for (int i = 0; i < o.products * o.elements; i++) {
                int32_t column = o.column(i / o.elements, i % o.elements);
                if (column < w.v_dim)
                    record[column] =
                        o.x[r][i / o.elements][i % o.elements] * (1.0f / ta_weight_scale(Type()));
            }
            /* All lanes of the row have the same. */
            record[w.v_dim] = l[r] != l[r] ? l[r] : m[r];
            record[w.v_dim + 1] = l[r];
        }
    }
};

/* The rows of K and V that this thread brings of the keys from `at` on. In place of keys beyond the
 * last comes the last: nobody sees it there. */
template <class Copy>
TA_DEVICE void find_keys(const ta_attention_work &w, int32_t at, int32_t (&rows)[Copy::rounds])
{
#pragma unroll
    for (int i = 0; i < Copy::rounds; i++) {
        int32_t key = min(at, w.keys - 1 - Copy::row(i)) + Copy::row(i);
        rows[i] = ta_load_global(w.key_rows + key);
    }
}

/* Where a thread's chunks of one head begin. */
template <class Copy> TA_DEVICE const char *find_head(const ta_tensor &from, int32_t head)
{
    const char *data = Copy::of_thread(from.data) + head * from.head_stride * 2;
    ta_opaque_pointer(data);
    return data;
}

/* Begin to bring these rows of a head. Their strides are below 2^31 bytes. */
template <class Copy>
TA_DEVICE void start_copy(Copy &copy, const char *head, const ta_tensor &from, int32_t dim,
                          const int32_t (&rows)[Copy::rounds], char *to)
{
    uint32_t stride = static_cast<uint32_t>(from.token_stride) * 2u;
    copy.start(head, dim, to, [&](int i, bool &exists) {
        exists = true;
        return static_cast<uint64_t>(static_cast<uint32_t>(rows[i])) * stride;
    });
}

/* The block's queries, and the last in place of those that are missing. A negative scale changes
 * their signs, so that the largest product is the largest score. Ends with all of them there. */
template <int Dim, int Threads>
TA_DEVICE void bring_queries(const ta_attention_work &w, const ta_attention_block &b, bool negative,
                             char *to)
{
    ta_stage_copy<Dim, TA_FORWARD_ROWS, Threads> copy;
    int32_t rows[copy.rounds];
#pragma unroll
    for (int i = 0; i < copy.rounds; i++)
        rows[i] = ta_load_global(w.query_rows + b.first + min(copy.row(i), b.count - 1));
    start_copy(copy, find_head<decltype(copy)>(w.q, b.head), w.q, w.k_dim, rows, to);
    copy.finish(to);
    if (negative)
        copy.change_signs(to);
    ta_syncthreads();
}

/* What the rows of a block see, and its queries; `notes` are of values that are not finite. */
template <int Dim, int Threads>
TA_DEVICE void begin_block(const ta_attention_params &p, const ta_attention_block &b,
                           ta_visible *sees, int32_t *notes, char *queries)
{
    const int32_t thread = static_cast<int32_t>(threadIdx.x);
    if (thread < TA_FORWARD_ROWS)
        sees[thread] = ta_attention_sees(p.work, b, thread);
    if (thread < 2)
        notes[thread] = 0;
    bring_queries<Dim, Threads>(p.work, b, p.rule.factor < 0.0f, queries);
}

/* A value is not finite, and some row does not see it: a weight of 0 would not keep it away. So it
 * is shown to the rows that do see it, and then is 0 in the stage. */
template <class Type, class Copy, class Forward>
TA_DEVICE void show_and_hide(Forward &wave, bool works, char *stage, int32_t at)
{
    if (works)
        wave.show_values(stage, at);
    ta_syncthreads();
    Copy::template hide_not_finite<Type>(stage);
    ta_syncthreads();
}

template <class Type, int Dim, int Wave>
__global__ void __launch_bounds__(TA_FORWARD_WAVES *Wave, Wave == 32 ? 2 : 1)
    attention_forward_mma(ta_attention_params p, float *records)
{
    TA_ONLY_WAVE(Wave);
    TA_SHARED_DYNAMIC(char, shared);
    TA_SHARED(ta_visible, sees, [TA_FORWARD_ROWS]);
    TA_SHARED(int32_t, notes, [2]);
    typedef ta_forward_wave<Type, Dim, Wave> forward;
    typedef ta_stage_copy<Dim, forward::keys, TA_FORWARD_WAVES * Wave> stage_copy;
    char *const k = shared, *const v = shared + TA_FORWARD_STAGE_BYTES(Dim);
    char *const queries = shared + TA_FORWARD_QUERIES_AT(Dim, Wave);
    const ta_attention_work &w = p.work;
    const ta_attention_block b = ta_find_attention_block(w, TA_FORWARD_ROWS);
    begin_block<Dim, TA_FORWARD_WAVES * Wave>(p, b, sees, notes, queries);
    forward wave;
    wave.start(queries, sees);

    stage_copy copy; /* of K and V in turn */
    const char *const k_head = find_head<stage_copy>(w.k, b.kv_head);
    const char *const v_head = find_head<stage_copy>(w.v, b.kv_head);
    int32_t rows[stage_copy::rounds];
    int32_t searched = 0, number = 0;
    int32_t at = ta_next_seen(sees, TA_FORWARD_ROWS, 0, searched);
    ta_syncthreads(); /* all waves have their queries, and leave their place to K and V */
    if (at < INT32_MAX) {
        find_keys<stage_copy>(w, at, rows);
        start_copy(copy, k_head, w.k, w.k_dim, rows, k);
    }
    while (at < INT32_MAX) {
        copy.finish(k);
        ta_syncthreads(); /* the keys are there, and nobody needs the values before any more */
        start_copy(copy, v_head, w.v, w.v_dim, rows, v);
        int32_t next = ta_next_seen(sees, TA_FORWARD_ROWS, at + forward::keys, searched);
        find_keys<stage_copy>(w, next, rows);
        int32_t end = at + forward::keys;
        bool works = wave.sees_some(at, end);
        ta_weight_words<Type, Wave> weights[forward::steps];
        float rescale[forward::slots];
        if (works)
            wave.take_keys(p, k, at, wave.sees_all(at, end), weights, rescale);
        else
            ta_unset(weights, rescale);
        copy.finish(v);
        if ((sees[TA_FORWARD_ROWS - 1].first > at || sees[0].end < end) &&
            copy.template not_finite<Type>(v))
            atomicOr(&notes[number], 1);
        if (threadIdx.x == 0)
            notes[1 - number] = 0;
        ta_syncthreads(); /* the values are there, and nobody needs the keys any more */
        if (next < INT32_MAX)
            start_copy(copy, k_head, w.k, w.k_dim, rows, k);
        if (ta_uniform(notes[number]))
            show_and_hide<Type, stage_copy>(wave, works, v, at);
        if (works)
            ta_add_rows<Type, true>(weights, v, w.v_dim, rescale, wave.o);
        number = 1 - number;
        at = next;
    }
    wave.write(w, b, records);
}

/* Whatever is done for all kernels of a width. */
template <class Type, int Wave, class Do> static ta_launch_result pick_dim(int32_t dim, Do act)
{
    if (dim == 64)
        return act("attention_forward_mma<64>", attention_forward_mma<Type, 64, Wave>);
    if (dim == 128)
        return act("attention_forward_mma<128>", attention_forward_mma<Type, 128, Wave>);
    return act("attention_forward_mma<256>", attention_forward_mma<Type, 256, Wave>);
}

template <int Wave, class Do> static ta_launch_result pick(ta_dtype dtype, int32_t dim, Do act)
{
    ta_launch_result result = ta_no_type("attention_forward_mma", dtype);
    TA_TYPE_SWITCH(TA_MATRIX_TYPES, dtype, Type, result = pick_dim<Type, Wave>(dim, act))
    return result;
}

template <int Wave>
static ta_launch_result launch(const ta_attention_params &p, int32_t dim, float *records,
                               hipStream_t stream)
{
    if constexpr (!ta_mma_has(Wave))
        return {hipErrorInvalidValue, "attention_forward_mma"};
    else
        return pick<Wave>(p.work.dtype, dim, [&](const char *name, auto kernel) {
            int64_t blocks = ta_ceil_div(p.work.queries, TA_FORWARD_ROWS) * p.work.query_heads;
            return ta_launch(name, kernel, dim3(static_cast<unsigned>(blocks)),
                             static_cast<unsigned>(TA_FORWARD_WAVES * Wave),
                             static_cast<size_t>(TA_FORWARD_BYTES(dim, Wave)), stream, p, records);
        });
}

ta_launched ta_launch_attention_forward_mma(const ta_attention_params *params, int wave,
                                            int32_t dim, float *records, void *stream)
{
    ta_launch_result result = {hipErrorInvalidValue, "attention_forward_mma"};
    TA_WAVE_SWITCH(wave, Wave,
                   result = launch<Wave>(*params, dim, records, static_cast<hipStream_t>(stream)));
    return ta_launched_of(result);
}

template <int Wave> static ta_launch_result prepare(int shared_bytes)
{
    int dynamic_bytes = shared_bytes - TA_BLOCK_BYTES; /* a block has that many beside them */
    ta_launch_result result = {hipSuccess, "attention_forward_mma"};
    if constexpr (ta_mma_has(Wave)) {
        auto allow = [&](const char *name, auto kernel) {
            hipError_t error =
                hipFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                    hipFuncAttributeMaxDynamicSharedMemorySize, dynamic_bytes);
            return ta_launch_result{error, name};
        };
        for (ta_dtype dtype : ta_matrix_dtypes)
            for (int32_t dim = 64; dim <= 256 && result.error == hipSuccess; dim *= 2)
                result = pick<Wave>(dtype, dim, allow);
    }
    return result;
}

ta_launched ta_prepare_attention_forward_mma(int wave, int shared_bytes)
{
    ta_launch_result result = {hipErrorInvalidValue, "attention_forward_mma"};
    TA_WAVE_SWITCH(wave, Wave, result = prepare<Wave>(shared_bytes));
    return ta_launched_of(result);
}
