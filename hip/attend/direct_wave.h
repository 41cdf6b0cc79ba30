/* A wave of a direct kernel: its query rows, its sums, the tile of K and V that is in its
 * registers, and what it does with a tile that all rows see. K of the next tile is loaded as soon
 * as the scores of this one are made, V when its values have been added: so memory always has a
 * tile's worth to bring. */
#ifndef TA_HIP_DIRECT_WAVE_H
#define TA_HIP_DIRECT_WAVE_H

#include "direct_elements.h"

template <class Type, int Dim, int Wave, int Rows>
struct ta_direct_wave : ta_wave_rows<typename Type::staged, Wave, ta_row_slots<Wave, Rows>::count> {
    typedef ta_lanes<Wave> lanes;
    typedef typename Type::staged multiplied; /* what the matrix cores get */
    typedef ta_wave_rows<multiplied, Wave, ta_row_slots<Wave, Rows>::count> own_rows;
    using own_rows::l;
    using own_rows::m;
    using own_rows::take_weights;
    using own_rows::weigh;
    /* The columns of V that a wave sums. Two waves share a tile of 256 dimensions: both make its
     * scores, and each has half of the columns. */
    static const int columns = Dim == 256 ? 128 : Dim;
    static const int sharers = Dim / columns;
    static const int teams = TA_DIRECT_WAVES / sharers; /* of waves that share tiles */
    static const int tile_tokens = ta_direct_tile;
    static const int step = tile_tokens * teams; /* from a team's tile to its next */
    static const int threads = Wave * TA_DIRECT_WAVES;
    /* Of 8 bits one kernel takes everything: it has both loops, and the longer way with soft-cap
     * and ALiBi. */
    static const bool takes_all = std::is_same<Type, ta_type_narrow>::value;
    static const bool rounds = true; /* its weights, if the plan lets it */
    static const int bytes = ta_direct_elements<Type>::bytes;
    typedef ta_v_words<Wave, columns, bytes> v_words;
    typedef ta_plain_addresses<lanes, v_words::bytes, bytes> plain_addresses;
    typedef ta_any_addresses<lanes, v_words::bytes, bytes> any_addresses;
    static const int chunk = 16 / bytes;          /* elements of K that are loaded at once */
    static const int k_loads = Dim / (4 * chunk); /* of a token, each lane one chunk */
    static const int k_products = Dim / 16;       /* each lane 4 elements */
    static const int parts = multiplied::weight_parts;
    static const int slots = ta_row_slots<Wave, Rows>::count;
    static const int products = columns / lanes::columns;

    uint32_t q[k_products][4]; /* as ta_multiply_rows() takes them */
    ta_vec16 k[lanes::k_tokens][k_loads];
    uint32_t v[4][v_words::words];
    float o[slots][products][lanes::elements];
    ta_direct_elements<Type> operands;
    ta_lane_scales<Type, Wave> scales;

    static __device__ __forceinline__ int32_t team()
    {
        return ta_wave_id() / sharers;
    }

    /* Of what the lanes share, for the loop over tiles. */
    static __device__ __forceinline__ int32_t uniform(int32_t i)
    {
        return ta_uniform(i);
    }

    static __device__ __forceinline__ int32_t first_column()
    {
        return ta_wave_id() % sharers * columns;
    }

    static __device__ __forceinline__ constexpr int32_t v_dim(const ta_direct_params &)
    {
        return Dim;
    }

    /* Of V, of those that this wave sums: where element i of product t is. */
    static __device__ __forceinline__ int32_t column(int t, int i)
    {
        return ta_value_column<Wave, columns, bytes>(t, i);
    }

    __device__ __forceinline__ void start(const ta_direct_params &p, const ta_direct_piece &b)
    {
        operands.start(p.problem.kv_dtype);
        scales.start(p, b);
        load_query(p, b);
        own_rows::start_rows();
#pragma unroll
        for (int r = 0; r < slots; r++)
#pragma unroll
            for (int i = 0; i < products * lanes::elements; i++)
                o[r][i / lanes::elements][i % lanes::elements] = 0.0f;
    }

    /* Zeros for rows that the group does not have, also for those beside the rows of a wave of 32
     * with up to 8: zeros that the compiler knew would be put into their places in each tile again.
     * Word by word, so that each can be loaded to its place in an operand. */
    __device__ __forceinline__ void load_query(const ta_direct_params &p, const ta_direct_piece &b)
    {
#pragma unroll
        for (int r = 0; r < (Wave == 32 ? 2 : 1); r++)
            load_query_row(p, b, r);
    }

    __device__ __forceinline__ void load_query_row(const ta_direct_params &p,
                                                   const ta_direct_piece &b, int r)
    {
        int32_t row = b.first_row + lanes::row(r), token = row / b.heads;
        int32_t head = b.kv_head * b.heads + row % b.heads;
        int64_t at =
            ta_problem_token_at(&p.problem, &p.q, b.walk.sequence, token) + head * p.q.head_stride;
        const char *from = static_cast<const char *>(p.q.data) + at * 2;
        if (lanes::row(r) >= b.row_count)
            from = reinterpret_cast<const char *>(ta_fills);
        from += lanes::k_chunk() * chunk * 2;
        if (ta_any(!ta_is_multiple(from, 4)))
            load_query_words<false>(from, r);
        else
            load_query_words<true>(from, r);
    }

    template <bool Whole> __device__ __forceinline__ void load_query_words(const char *from, int r)
    {
#pragma unroll
        for (int i = 0; i < 2 * k_products; i++) {
            const char *word = from + i / (chunk / 2) * chunk * 8 + i % (chunk / 2) * 4;
            q[i / 2][i % 2 * 2 + r] = Whole ? ta_load_word(reinterpret_cast<const uint32_t *>(word))
                                            : ta_load_halves(word);
        }
    }

    template <class Addresses> __device__ __forceinline__ void load_k(const Addresses &addresses)
    {
#pragma unroll
        for (int i = 0; i < lanes::k_tokens; i++) {
            const char *from = addresses.k_token(i);
#pragma unroll
            for (int j = 0; j < k_loads; j++)
                k[i][j] = ta_load16_stream(from + j * 64);
        }
    }

    template <class Addresses> __device__ __forceinline__ void load_v(const Addresses &addresses)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const char *from = addresses.v_token(i);
#pragma unroll
            for (int j = 0; j < v_words::loads; j++) {
                if constexpr (v_words::bytes == 4) {
                    v[i][0] = ta_load_word(reinterpret_cast<const uint32_t *>(from));
                } else if constexpr (v_words::bytes == 8) {
                    ta_vec8 x = ta_load8_stream(from);
                    v[i][0] = x.word[0];
                    v[i][1] = x.word[1];
                } else {
                    ta_vec16 x = ta_load16_stream(from + j * v_words::chunks * 16);
#pragma unroll
                    for (int w = 0; w < 4; w++)
                        v[i][j * 4 + w] = x.word[w];
                }
            }
        }
    }

    /* The dot products of the tile's tokens, those whose V this lane loads, with its rows. A sum
     * for each 64 elements: matrix cores round towards zero, so their sums must not be long. */
    template <bool Native>
    __device__ __forceinline__ void multiply_keys(float (&dots)[slots][4]) const
    {
        const int sums = Dim / 64;
#pragma unroll
        for (int i = 0; i < lanes::k_tokens; i++) {
            float c[sums][4] = {};
#pragma unroll
            for (int j = 0; j < k_products; j++) {
                uint32_t key[2];
                operands.template take_key<Native>(k[i], j, key);
                ta_multiply_rows<multiplied, Wave>(c[j % sums], q[j], key);
            }
#pragma unroll
            for (int e = 0; e < slots * lanes::elements; e++) {
#pragma unroll
                for (int n = sums / 2; n > 0; n /= 2)
#pragma unroll
                    for (int half = 0; half < n; half++)
                        c[half][e] += c[half + n][e];
                dots[e / lanes::elements][i * lanes::elements + e % lanes::elements] = c[0][e];
            }
        }
    }

    /* o = o · rescale + weights · values. `hide` has zeros where tokens must not be seen, a half
     * of a word each; only the rows in `rows` are changed, a bit for each slot. `tile` is not
     * negative. */
    template <bool Hide, bool Native>
    __device__ __forceinline__ void
    add_values(const uint32_t (&w)[parts][4], bool exact, const float (&rescale)[slots],
               const uint32_t (&hide)[2], uint32_t rows, int32_t tile)
    {
#pragma unroll
        for (int t = 0; t < products; t++) {
            uint32_t values[2];
            operands.template take_values<Native>(v, t, values);
            if (Hide) {
                values[0] &= hide[0];
                values[1] &= hide[1];
            }
            own_rows::template add_product<Hide>(w, exact, values, rescale, rows, t, o);
            /* Never so. Without a branch more products would be made before any is added to o than
             * there are registers for. */
            const int at_once = slots == 1 ? 8 : 4;
            if (Wave == 32 && (t + 1) % at_once == 0 && t + 1 < products && tile < 0)
                return;
        }
    }

    /* Is V of a tile loaded while the one before is computed, as K is? Else it is when the scores
     * of its own are made, into registers that K had; where a device can, it is asked for with K
     * all the same, so that memory brings it as near as the second-level cache. */
    static const bool v_ahead = Dim * bytes < 512;
    static const bool v_asked = !v_ahead && Wave == 32;

    __device__ __forceinline__ void find_next(plain_addresses &addresses, int32_t next)
    {
        ta_find_next(*this, addresses, next);
        if constexpr (v_asked)
            addresses.ask_for_v();
    }

    /* A tile that all rows see whole, and if there are More the loads of the one at `next`. */
    template <bool More, bool Native, bool Exact>
    __device__ __forceinline__ void take_seen_tile(const ta_direct_params &p,
                                                   plain_addresses &addresses, int32_t next)
    {
        float dots[slots][4], rescale[slots];
        uint32_t w[parts][4];
        const uint32_t none[2] = {0, 0};
        multiply_keys<Native>(dots);
        if (!v_ahead)
            load_v(addresses);
        else if (More)
            find_next(addresses, next);
#pragma unroll
        for (int r = 0; r < slots; r++) {
            scales.scale_dots(dots[r]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                dots[r][i] *= p.rule.factor;
            rescale[r] = weigh(dots[r], r);
            scales.template scale_weights<false>(dots[r]);
            take_weights(dots[r], r, w, Exact);
        }
        add_values<false, Native>(w, Exact, rescale, none, 0, next);
        if (More && v_ahead)
            load_v(addresses);
        else if (More)
            find_next(addresses, next);
        if (More)
            scales.load(p, addresses);
    }

    /* Tokens that every row sees have no place. */
    __device__ __forceinline__ void lose_all()
    {
#pragma unroll
        for (int r = 0; r < slots; r++)
            l[r] = NAN;
    }
};

#endif
