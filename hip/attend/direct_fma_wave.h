/* A wave of attend_direct_fma: its query rows, its sums, the tile of K and V that is in its
 * registers, and what it does with a tile. Its neighbour direct_wave.h has the same for matrix
 * cores; direct_kernel.h takes the tiles of a piece with either.
 *
 * As many lanes as a row has pieces of 16 bytes share a token, but not more than the wave has; the
 * wave takes as many tokens at a time as it has such groups. A lane has the same piece of K and of
 * V, of 8 tokens at most, and so the same columns of each query row and of its sum. Lanes beyond
 * the last piece of a row load nothing and have zeros.
 *
 *     dot products   a lane has a part of those of all its tokens and all rows. Its group adds them
 *                    up by halves: each time a lane gives half of what it has and takes the other
 *                    half of another lane's, until every lane has one or two whole ones
 *     weights        made by the lane that has the score
 *     sums           every lane asks the lanes of its group for all weights of its tokens */
#ifndef TA_HIP_DIRECT_FMA_WAVE_H
#define TA_HIP_DIRECT_FMA_WAVE_H

#include "direct_kernel.h"

TA_DEVICE float ta_take_element(ta_type_f32, const ta_vec16 &from, int i)
{
    return ta_as_float(from.word[i]);
}

TA_DEVICE float ta_take_element(ta_type_f16, const ta_vec16 &from, int i)
{
    return ta_from_f16(static_cast<uint16_t>(from.word[i / 2] >> i % 2 * 16));
}

TA_DEVICE float ta_take_element(ta_type_bf16, const ta_vec16 &from, int i)
{
    return ta_as_float(i % 2 ? from.word[i / 2] & 0xffff0000u : from.word[i / 2] << 16);
}

/* Where a lane of `Groups` groups finds its tokens and its piece of them; as ta_lanes has it. */
template <int Group, int Groups> struct ta_fma_lanes {
    TA_DEVICE int32_t k_token(int i)
    {
        return ta_lane() / Group + k_step(i);
    }
    static __device__ __forceinline__ constexpr int k_step(int i)
    {
        return i * Groups;
    }
    TA_DEVICE int32_t k_chunk()
    {
        return ta_lane() % Group;
    }
    TA_DEVICE int32_t v_token(int i)
    {
        return k_token(i);
    }
    static __device__ __forceinline__ constexpr int v_step(int i)
    {
        return k_step(i);
    }
    TA_DEVICE int32_t v_chunk()
    {
        return k_chunk();
    }
};

/* Each lane has a part of Values sums. Give the lane at distance Mask half of them, and take from
 * it the other half; the same at half the distance, and so on. Left: of them after this step. */
template <int Mask, int Left, int Values> TA_DEVICE void ta_halve_sums(float (&x)[Values])
{
    if constexpr (Mask > 0) {
        bool upper = (ta_lane() & Mask) != 0;
#pragma unroll
        for (int i = 0; i < Left; i++) {
            float low = x[i], high = x[i + Left];
            float give = upper ? low : high, keep = upper ? high : low;
            x[i] = keep + ta_shfl_xor_by<Mask>(give);
        }
        ta_halve_sums<Mask / 2, Left / 2>(x);
    }
}

/* The largest and the sum of what lanes have whose numbers differ in the bits from From to To. */
template <int From, int To> TA_DEVICE float ta_lanes_largest(float x)
{
    if constexpr (From < To)
        return ta_lanes_largest<From * 2, To>(fmaxf(x, ta_shfl_xor_by<From>(x)));
    else
        return x;
}

template <int From, int To> TA_DEVICE float ta_lanes_total(float x)
{
    if constexpr (From < To)
        return ta_lanes_total<From * 2, To>(x + ta_shfl_xor_by<From>(x));
    else
        return x;
}

/* Dim: the most columns of K and V that it has room for. */
template <class Type, int Dim, int Wave, int Rows> struct ta_fma_wave {
    static const int bytes = sizeof(typename Type::element);
    static const int unit = Type::unit;                     /* elements of a piece */
    static const int pieces = Dim / unit;                   /* of a row */
    static const int group = pieces < Wave ? pieces : Wave; /* lanes that share a token */
    static const int groups = Wave / group;                 /* tokens at a time */
    static const int loads = pieces / group;                /* pieces of a token in a lane */
    /* Of a tile in a lane: as many as there are registers for. */
    static const int tokens = (Wave == 32 ? 8 : unit == 4 || Rows == 1 ? 4 : 2) / loads;
    static const int values = tokens * Rows;                   /* dot products of a group */
    static const int spread = values < group ? values : group; /* lanes that share them out */
    static const int held = values / spread;                   /* by each of them */
    static const int row_lanes = tokens / held;                /* that have those of a row */
    static const int floats = loads * unit;                    /* of a row in a lane */

    static const int tile_tokens = tokens * groups;
    static const int teams = TA_DIRECT_WAVES;
    static const int step = tile_tokens * teams; /* from a wave's tile to its next */
    static const int threads = Wave * TA_DIRECT_WAVES;
    static const bool takes_all = true, v_ahead = true, v_asked = false, rounds = false;
    typedef ta_fma_lanes<group, groups> lanes;
    typedef ta_plain_addresses<lanes, 16, bytes> plain_addresses;

    float q[Rows][floats], o[Rows][floats];
    ta_vec16 k[tokens][loads], v[tokens][loads];
    float m, l;             /* of row(), l of this lane's scores alone */
    int32_t k_left, v_left; /* how many pieces of a row this lane's first one is before its end */
    ta_lane_scales<Type, Wave> scales;

    static __device__ __forceinline__ int32_t team()
    {
        return ta_wave_id();
    }

    /* The loop over tiles has many shuffles. */
    static __device__ __forceinline__ int32_t uniform(int32_t i)
    {
        return ta_known_uniform(i);
    }

    static __device__ __forceinline__ constexpr int32_t first_column()
    {
        return 0;
    }

    static __device__ __forceinline__ int32_t v_dim(const ta_direct_params &p)
    {
        return p.problem.v_dim;
    }

    /* Where float i of a row is. */
    static __device__ __forceinline__ int32_t column(int i)
    {
        return (lanes::k_chunk() + i / unit * group) * unit + i % unit;
    }

    /* The row whose scores this lane has, … */
    static __device__ __forceinline__ int32_t row()
    {
        return ta_lane() % spread / row_lanes;
    }

    /* … and which of its group's tokens score i is of. */
    static __device__ __forceinline__ int32_t own_token(int i)
    {
        return ta_lane() % row_lanes * held + i;
    }

    __device__ __forceinline__ void start(const ta_direct_params &p, const ta_direct_piece &b)
    {
        k_left = p.problem.k_dim / unit - lanes::k_chunk();
        v_left = p.problem.v_dim / unit - lanes::v_chunk();
        m = -INFINITY;
        l = 0.0f;
#pragma unroll
        for (int i = 0; i < Rows * floats; i++)
            o[i / floats][i % floats] = 0.0f;
#pragma unroll
        for (int i = 0; i < tokens * loads * 4; i++)
            k[i / loads / 4][i / 4 % loads].word[i % 4] =
                v[i / loads / 4][i / 4 % loads].word[i % 4] = 0;
        TA_TYPE_SWITCH_IN_KERNEL(TA_ALL_TYPES, p.problem.query_dtype, Query,
                                 load_query<Query>(p, b))
    }

    /* Zeros for rows that the group does not have. Element by element: a query may be of another
     * type than K, and aligned to its elements alone. */
    template <class Query>
    __device__ __forceinline__ void load_query(const ta_direct_params &p, const ta_direct_piece &b)
    {
#pragma unroll
        for (int r = 0; r < Rows; r++) {
            int32_t of_item = b.first_row + r, token = of_item / b.heads;
            int32_t head = b.kv_head * b.heads + of_item % b.heads;
            const typename Query::element *from =
                static_cast<const typename Query::element *>(p.q.data) + head * p.q.head_stride +
                ta_problem_token_at(&p.problem, &p.q, b.walk.sequence, token);
#pragma unroll
            for (int i = 0; i < floats; i++) {
                q[r][i] = 0.0f;
                if (r < b.row_count && i / unit * group < k_left)
                    q[r][i] = Query::from(from[column(i)]);
            }
        }
    }

    /* A token's pieces of this lane, those of them that its row has; zeros stay for others. */
    static __device__ __forceinline__ void load_pieces(const char *from, int32_t left,
                                                       ta_vec16 (&to)[loads])
    {
#pragma unroll
        for (int j = 0; j < loads; j++)
            ta_load16_stream_if(j * group < left, from + j * group * 16, to[j]);
    }

    template <class Addresses> __device__ __forceinline__ void load_k(const Addresses &addresses)
    {
#pragma unroll
        for (int i = 0; i < tokens; i++)
            load_pieces(addresses.k_token(i), k_left, k[i]);
    }

    template <class Addresses> __device__ __forceinline__ void load_v(const Addresses &addresses)
    {
#pragma unroll
        for (int i = 0; i < tokens; i++)
            load_pieces(addresses.v_token(i), v_left, v[i]);
    }

    /* K and V of any tile, whose token number lane % tile_tokens this lane has looked up. Returns a
     * bit for each token of the lane that has no place. */
    __device__ __forceinline__ uint32_t load_any(const ta_direct_params &p,
                                                 const ta_direct_cache &c, ta_token_place own)
    {
        int32_t page = own.has ? static_cast<int32_t>(own.page) : -1;
        int32_t within = static_cast<int32_t>(own.within), offset = lanes::k_chunk() * 16;
        uint32_t lacking = 0;
#pragma unroll
        for (int i = 0; i < tokens; i++) {
            ta_token_place at = {ta_shfl(page, lanes::k_token(i)), 0, false};
            at.within = ta_shfl(within, lanes::k_token(i));
            at.has = at.page >= 0;
            lacking |= static_cast<uint32_t>(!at.has) << i;
            load_pieces(ta_token_address<bytes>(at, c.k, p.kv.k, offset), k_left, k[i]);
            load_pieces(ta_token_address<bytes>(at, c.v, p.kv.v, offset), v_left, v[i]);
        }
        return lacking;
    }

    /* The dot products that this lane makes weights of. */
    __device__ __forceinline__ void multiply_keys(float (&dots)[held]) const
    {
        float x[values]; /* [row][token] */
#pragma unroll
        for (int i = 0; i < tokens; i++)
#pragma unroll
            for (int e = 0; e < floats; e++) {
                float key = ta_take_element(Type(), k[i][e / unit], e % unit);
#pragma unroll
                for (int r = 0; r < Rows; r++)
                    x[r * tokens + i] = fmaf(q[r][e], key, e ? x[r * tokens + i] : 0.0f);
            }
        ta_halve_sums<spread / 2, values / 2>(x);
#pragma unroll
        for (int i = 0; i < held; i++)
            dots[i] = ta_lanes_total<spread, group>(x[i]);
    }

    /* The largest and the sum of what the lanes of a row have. */
    static __device__ __forceinline__ float row_max(float x)
    {
        return ta_lanes_largest<group, Wave>(ta_lanes_largest<1, row_lanes>(x));
    }

    static __device__ __forceinline__ float row_sum(float x)
    {
        return ta_lanes_total<group, Wave>(ta_lanes_total<1, row_lanes>(x));
    }

    /* Scores become weights, and m and l are brought up to date, as in direct_lanes.h. Returns what
     * o of the row must be multiplied by. */
    __device__ __forceinline__ float weigh(float (&x)[held])
    {
        float largest = m, sum = 0.0f;
#pragma unroll
        for (int i = 0; i < held; i++)
            largest = fmaxf(largest, x[i]);
        largest = row_max(largest);
        float base = largest == -INFINITY ? 0.0f : largest;
        float rescale = ta_exp2(m - base);
        m = largest;
#pragma unroll
        for (int i = 0; i < held; i++) {
            x[i] = ta_exp2(x[i] - base);
            sum += x[i];
        }
        l = fmaf(l, rescale, sum);
        return rescale;
    }

    /* o = o · rescale + weights · values. With Hide a weight below 0 is of a token that its row
     * must not see, whatever its value is. */
    template <bool Hide>
    __device__ __forceinline__ void add_values(const float (&x)[held], float rescale)
    {
        int32_t first = ta_lane() / group * group;
        float weights[values], scale[Rows];
#pragma unroll
        for (int i = 0; i < values; i++)
            weights[i] = ta_shfl(x[i % held], first + i / held);
#pragma unroll
        for (int r = 0; r < Rows; r++)
            scale[r] = ta_shfl(rescale, first + r * row_lanes);
#pragma unroll
        for (int e = 0; e < floats; e++) {
            float c[Rows];
#pragma unroll
            for (int r = 0; r < Rows; r++)
                c[r] = 0.0f;
#pragma unroll
            for (int i = 0; i < tokens; i++) {
                float value = ta_take_element(Type(), v[i][e / unit], e % unit);
#pragma unroll
                for (int r = 0; r < Rows; r++)
                    if (!Hide || !(weights[r * tokens + i] < 0.0f))
                        c[r] = fmaf(weights[r * tokens + i], value, c[r]);
            }
#pragma unroll
            for (int r = 0; r < Rows; r++)
                o[r][e] = fmaf(o[r][e], scale[r], c[r]);
        }
    }

    __device__ __forceinline__ void find_next(plain_addresses &addresses, int32_t next)
    {
        ta_find_next(*this, addresses, next);
    }

    /* A tile that all rows see whole, and if there are More the loads of the one at `next`. */
    template <bool More, bool Native, bool Exact>
    __device__ __forceinline__ void take_seen_tile(const ta_direct_params &p,
                                                   plain_addresses &addresses, int32_t next)
    {
        float x[held];
        multiply_keys(x);
        if (More)
            find_next(addresses, next);
#pragma unroll
        for (int i = 0; i < held; i++)
            x[i] *= p.rule.factor;
        float rescale = weigh(x);
        add_values<false>(x, rescale);
        if (More)
            load_v(addresses);
    }

    /* Tokens that every row sees have no place. */
    __device__ __forceinline__ void lose_all()
    {
        l = NAN;
    }
};

#endif
