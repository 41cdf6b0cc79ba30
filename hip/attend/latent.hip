/* attend_latent. Grid: as attend_direct (direct_kernel.h): equal shares of all items, or a block
 * for each item or tile; TA_LATENT_WAVES waves, TA_LATENT_BYTES of shared memory.
 *
 * Latent attention of 16, 32 or 64 query rows over a 16-bit cache whose tokens are rows of 576
 * elements, all of which are the key and the first 512 the value. A row is brought once, for both,
 * and for all query rows of the block:
 *
 *     tile n is there ─► a part of the dot products ─► all parts ─► weights ─► o += weights · V
 *         └► tile n + 1 is asked for
 *
 * with a barrier at "is there" and one at "all parts". Waves of 64 have one stage, and a barrier
 * more. latent.h has the shape of a block, latent_wave.h what a wave does. attend.c launches
 * this. */
#include "latent_wave.h"
#include "softmax.h"
#include "tell.h"

/* A thread's part of the copies: chunks of one token of each tile. */
template <int Threads> struct ta_latent_copy {
    static const int row_threads = Threads / TA_LATENT_TILE; /* 8 to 32 */
    static const int chunks = TA_LATENT_K_DIM / 8;
    static const int whole = chunks / row_threads, rest = chunks % row_threads;
    ta_copy16 parts[whole + (rest ? 1 : 0)];
    const char *k;        /* of the KV head, and without pages of the sequence */
    const int32_t *pages; /* of the sequence, or NULL */
    int32_t end;          /* of the piece: nobody sees a token from here on */
    int32_t held_end;     /* no token from here on has a place */
    int32_t page, within; /* of this thread's token of the tile that was looked up last */

    static __device__ __forceinline__ int32_t token()
    {
        return static_cast<int32_t>(threadIdx.x) / row_threads;
    }

    static __device__ __forceinline__ int32_t first_chunk()
    {
        return static_cast<int32_t>(threadIdx.x) % row_threads;
    }

    static __device__ __forceinline__ int32_t at()
    {
        return ta_stage<TA_LATENT_K_DIM>::at(token(), first_chunk());
    }

    static __device__ __forceinline__ bool has(int i)
    {
        return i < whole || first_chunk() < rest;
    }

    __device__ __forceinline__ void begin(const ta_direct_params &p, const ta_direct_piece &b)
    {
        ta_direct_cache c = ta_find_direct_cache<2>(p, b);
        k = c.k;
        pages = c.pages;
        held_end = c.end;
        end = ta_uniform(b.end);
    }

    /* Ask for the page of this thread's token of the tile at `t`. -1: it has no place; -2: nobody
     * sees it. */
    __device__ __forceinline__ void look_up(const ta_direct_params &p, int32_t t)
    {
        uint32_t at = static_cast<uint32_t>(t + token());
        page = t + token() < held_end ? 0 : t + token() < end ? -1 : -2;
        within = static_cast<int32_t>(at);
        if (!pages || page < 0)
            return;
        uint32_t entry =
            p.plain ? at >> p.page_shift : at / static_cast<uint32_t>(p.kv.page_tokens);
        within = static_cast<int32_t>(at - entry * static_cast<uint32_t>(p.kv.page_tokens));
        page = entry < p.kv.page_table_stride ? ta_load_global(pages + entry) : -1;
        page = page < p.kv.page_count ? max(page, -1) : -1;
    }

    /* Begin to bring the tile that was looked up. A token without a place is read as NaN. */
    __device__ __forceinline__ void start(const ta_direct_params &p, char *to)
    {
        const char *from = k + (page * p.kv.k.batch_stride + within * p.kv.k.token_stride) * 2;
        if (page < 0)
            from = reinterpret_cast<const char *>(ta_fills + 1);
        from += first_chunk() * 16;
#pragma unroll
        for (int i = 0; i < whole + (rest ? 1 : 0); i++)
            if (has(i))
                ta_copy_start(parts[i], to + at() + i * row_threads * 16,
                              from + i * row_threads * 16, page != -2);
    }

    /* After this and a barrier all threads may read the tile. */
    __device__ __forceinline__ void finish(char *to) const
    {
        ta_copies_wait();
#pragma unroll
        for (int i = 0; i < whole + (rest ? 1 : 0); i++)
            if (has(i))
                ta_copy_finish(parts[i], to + at() + i * row_threads * 16);
    }
};

/* A tile that is there, at `t`: its scores when all parts of them are, and its values. */
template <class Type, int Wave, int Rows>
TA_DEVICE void add_tile(ta_latent_wave<Type, Wave, Rows> &w, const ta_direct_params &p,
                        const ta_direct_piece &b, const char *tokens, int32_t t, char *parts)
{
    const int slots = ta_latent_wave<Type, Wave, Rows>::slots;
    float rescale[slots];
    uint32_t weights[Type::weight_parts][4];
    const uint32_t none[2] = {0, 0};
    bool edge = ta_uniform(p.rule.cap > 0.0f || p.rule.alibi || t < b.all_see.first ||
                           t + TA_LATENT_TILE > min(b.all_see.end, b.end));
    /* Devices that convert f16 have no registers for a choice in blocks of 64 rows. */
    const bool exact = (TA_MMA_CONVERTS_F16 && Rows == 64) || ta_keeps_weights(p.problem);
#pragma unroll
    for (int r = 0; r < slots; r++) {
        float dots[4];
        w.take_dots(parts, r, dots);
        w.score(p, b, t, edge, r, dots);
        rescale[r] = w.weigh(dots, r);
        w.take_weights(dots, r, weights, exact);
    }
    if (edge && w.finds_not_finite(tokens))
        w.add_edge_values(b, tokens, t, weights, exact, rescale);
    else if (exact)
        w.template add_values<false>(tokens, weights, true, rescale, none, 0, t);
    else
        w.template add_values<false>(tokens, weights, false, rescale, none, 0, t);
}

template <class Type, int Wave, int Rows>
TA_DEVICE void take_tiles(ta_latent_wave<Type, Wave, Rows> &w, const ta_direct_params &p,
                          const ta_direct_piece &b, char *shared)
{
    typedef ta_latent_wave<Type, Wave, Rows> wave;
    const int stages = TA_LATENT_STAGES(Wave);
    char *parts = shared + TA_LATENT_PARTS_AT(Rows, Wave);
    ta_latent_copy<TA_LATENT_WAVES(Rows) * Wave> copy;
    ta_unset(copy.parts, copy.page, copy.within); /* until there is a tile */
    copy.begin(p, b);
    int32_t t = ta_uniform(b.first), stage = 0;
    const int32_t end = ta_uniform(b.end);
    const bool has_rows = ta_uniform(wave::first_row() < b.row_count);
    if (t < end) {
        copy.look_up(p, t);
        copy.start(p, shared);
        copy.look_up(p, t + TA_LATENT_TILE);
    }
#pragma unroll 1
    for (; t < end; t += TA_LATENT_TILE) {
        char *tokens = shared + stage;
        copy.finish(tokens);
        ta_syncthreads(); /* the tile is there, and nobody needs the one before nor its parts */
        if (stages == 2)
            stage = TA_LATENT_STAGE_BYTES - stage;
        if (t + TA_LATENT_TILE < end) {
            copy.start(p, shared + stage);
            copy.look_up(p, t + 2 * TA_LATENT_TILE);
        }
        if (has_rows) {
            float dots[wave::slots][4];
            w.multiply_keys(tokens, shared + TA_LATENT_QUERY_AT(Wave), dots);
            w.give_dots(dots, parts);
        }
        ta_syncthreads();
        if (has_rows)
            add_tile(w, ta_params_again(p), b, tokens, t, parts);
        if (stages == 1)
            ta_syncthreads(); /* the next tile goes where this one is */
    }
}

template <class Type, int Wave, int Rows>
__global__ void __launch_bounds__(TA_LATENT_WAVES(Rows) * Wave, TA_LATENT_BLOCKS(Rows))
    attend_latent(ta_direct_params params)
{
    TA_ONLY_WAVE(Wave);
    /* Never launched: there are not enough registers (latent.h). */
    if (TA_MMA_CONVERTS_F16 && Rows == 64 && std::is_same<Type, ta_type_f16>::value)
        return;
    TA_SHARED_DYNAMIC(char, shared);
    TA_SHARED(ta_direct_piece, b);
    static_assert(sizeof(ta_direct_piece) <= TA_LATENT_PIECE_BYTES, "or a block may not fit");
    ta_tell_step(params.problem, params.kv, params.tell);
    if (params.share.blocks)
        ta_find_shares(ta_params_again(params), b, b.scratch);
#pragma unroll 1
    for (bool again = false; ta_next_piece(ta_params_again(params), again, b); again = true) {
        ta_latent_wave<Type, Wave, Rows> w;
        const ta_direct_params &p = ta_params_again(params);
        w.start(p, b, shared + TA_LATENT_QUERY_AT(Wave));
        take_tiles(w, p, b, shared);
        w.write(b);
    }
}

/* Whatever is done for all kernels of a width. */
template <class Type, int Wave, class Do> static ta_launch_result pick_rows(int32_t rows, Do act)
{
    if (rows == 16)
        return act("attend_latent<16>", attend_latent<Type, Wave, 16>);
    if (rows == 32)
        return act("attend_latent<32>", attend_latent<Type, Wave, 32>);
    return act("attend_latent<64>", attend_latent<Type, Wave, TA_LATENT_ROWS_MAX>);
}

template <int Wave, class Do> static ta_launch_result pick(ta_dtype dtype, int32_t rows, Do act)
{
    ta_launch_result result = ta_no_type("attend_latent", dtype);
    TA_TYPE_SWITCH(TA_MATRIX_TYPES, dtype, Type, result = pick_rows<Type, Wave>(rows, act))
    return result;
}

template <int Wave> static ta_launch_result launch(const ta_direct_params &p, hipStream_t stream)
{
    if constexpr (!ta_mma_has(Wave))
        return {hipErrorInvalidValue, "attend_latent"};
    else
        return pick<Wave>(p.problem.kv_dtype, p.share.rows, [&](const char *name, auto kernel) {
            return ta_launch(name, kernel, dim3(static_cast<unsigned>(p.share.grid)),
                             static_cast<unsigned>(TA_LATENT_WAVES(p.share.rows) * Wave),
                             static_cast<size_t>(TA_LATENT_BYTES(p.share.rows, Wave)), stream, p);
        });
}

ta_launched ta_launch_latent(const ta_direct_params *params, int wave, void *stream)
{
    ta_launch_result result = {hipErrorInvalidValue, "attend_latent"};
    TA_WAVE_SWITCH(wave, Wave, result = launch<Wave>(*params, static_cast<hipStream_t>(stream)));
    return ta_launched_of(result);
}

template <int Wave> static ta_launch_result prepare(int shared_bytes)
{
    ta_launch_result result = {hipSuccess, "attend_latent"};
    if constexpr (ta_mma_has(Wave)) {
        for (ta_dtype dtype : ta_matrix_dtypes)
            for (int32_t rows = 16; rows <= TA_LATENT_ROWS_MAX && result.error == hipSuccess;
                 rows *= 2) {
                if (ta_latent_block_bytes(rows, Wave) > shared_bytes)
                    break;
                result = pick<Wave>(dtype, rows, [&](const char *name, auto kernel) {
                    hipError_t error = hipFuncSetAttribute(
                        reinterpret_cast<const void *>(kernel),
                        hipFuncAttributeMaxDynamicSharedMemorySize, TA_LATENT_BYTES(rows, Wave));
                    return ta_launch_result{error, name};
                });
            }
    }
    return result;
}

ta_launched ta_prepare_latent(int wave, int shared_bytes)
{
    ta_launch_result result = {hipErrorInvalidValue, "attend_latent"};
    TA_WAVE_SWITCH(wave, Wave, result = prepare<Wave>(shared_bytes));
    return ta_launched_of(result);
}
