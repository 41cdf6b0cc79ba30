/* Which lane of a wave has what, in the direct kernels, the one place where the two matrix
 * instructions differ; and below, what it knows of its rows. A wave takes a tile of 16 tokens at a
 * time, which direct_piece.h finds:
 *
 *     waves of 32     scores (rows × tokens)  =  Q (rows × k) · K^T (k × tokens)
 *                     sums (rows × columns)  =  weights (rows × tokens) · V (tokens × columns)
 *     waves of 64     scores^T = K · Q^T,  sums^T = V^T · weights^T
 *
 * K is an operand just as 16-byte loads bring it: both operands number the k elements alike, and a
 * sum does not ask in which order. V is loaded in the same way, 8 columns of a token at a time, and
 * the halves of words of two tokens are put together. Weights are made where they are needed as an
 * operand, so no lane gives any to another.
 *
 *     waves of 32, g = lane / 4, c = lane % 4     waves of 64, g = lane / 16, c = lane % 16
 *     K      tokens g, g + 8; chunks 4·j + c      token c; chunks 4·j + g
 *     Q      rows g, g + 8; chunks 4·j + c        row c; chunks 4·j + g
 *     V      tokens 2c, 2c + 1, 2c + 8, 2c + 9;   tokens 4g … 4g + 3;
 *            chunks g, g + 8, …                   chunks c, c + 16, …
 *     score  these tokens × rows g, g + 8         these tokens × row c
 *     sum    rows g, g + 8 × column e of          row c × column e of
 *            chunks 2c, 2c + 1, + 8, …            chunks 4g … 4g + 3, + 16, …
 *
 * A chunk is 16 bytes, 8 columns. 64 columns are 8 chunks only, so there a lane of a wave of 64
 * takes chunks of 8 bytes of V. Of a wave of 32 with up to 8 rows, rows g + 8 are zeros that nobody
 * looks at. */
#ifndef TA_HIP_DIRECT_LANES_H
#define TA_HIP_DIRECT_LANES_H

#include "direct_piece.h"
#include "mma.h"
#include "weights.h"

/* Tokens of a tile. */
static const int ta_direct_tile = 16;

template <int Wave> struct ta_lanes;

template <> struct ta_lanes<32> {
    static const int k_tokens = 2;   /* whose K a lane loads */
    static const int first_mask = 1; /* lanes whose numbers differ in these bits only … */
    static const int end_mask = 4;   /* … share their rows */
    static const int columns = 8;    /* of V that one product has */
    static const int elements = 2;   /* of a product and a row that a lane has */

    TA_DEVICE int32_t k_token(int i)
    {
        return ta_lane() / 4 + i * 8;
    }
    TA_DEVICE int32_t k_chunk()
    {
        return ta_lane() % 4;
    }
    /* From the first token to number i. */
    static __device__ __forceinline__ constexpr int k_step(int i)
    {
        return i * 8;
    }
    static __device__ __forceinline__ constexpr int v_step(int i)
    {
        return i % 2 + i / 2 * 8;
    }
    TA_DEVICE int32_t v_token(int i)
    {
        return ta_lane() % 4 * 2 + v_step(i);
    }
    TA_DEVICE int32_t v_chunk()
    {
        return ta_lane() / 4;
    }
    TA_DEVICE int32_t row(int slot)
    {
        return ta_lane() / 4 + slot * 8;
    }
    TA_DEVICE int32_t sum_chunk(int i)
    {
        return ta_lane() % 4 * 2 + i;
    }
};

template <> struct ta_lanes<64> {
    static const int k_tokens = 1;
    static const int first_mask = 16;
    static const int end_mask = 64;
    static const int columns = 16;
    static const int elements = 4;

    TA_DEVICE int32_t k_token(int)
    {
        return ta_lane() % 16;
    }
    TA_DEVICE int32_t k_chunk()
    {
        return ta_lane() / 16;
    }
    static __device__ __forceinline__ constexpr int k_step(int i)
    {
        return i;
    }
    static __device__ __forceinline__ constexpr int v_step(int i)
    {
        return i;
    }
    TA_DEVICE int32_t v_token(int i)
    {
        return ta_lane() / 16 * 4 + i;
    }
    TA_DEVICE int32_t v_chunk()
    {
        return ta_lane() % 16;
    }
    TA_DEVICE int32_t row(int)
    {
        return ta_lane() % 16;
    }
    TA_DEVICE int32_t sum_chunk(int i)
    {
        return ta_lane() / 16 * 4 + i;
    }
};

/* How many rows a lane has scores and sums of. */
template <int Wave, int Rows> struct ta_row_slots {
    static const int count = Wave == 32 ? Rows / 8 : 1;
};

/* Words of V that a lane has of one token, and how they are loaded. Bytes: of an element. */
template <int Wave, int Dim, int Bytes = 2> struct ta_v_words {
    static const int chunks = Wave == 32 ? 8 : 16;        /* that all lanes load at once */
    static const int of_lane = Dim * Bytes / chunks;      /* bytes */
    static const int bytes = of_lane < 16 ? of_lane : 16; /* of a chunk: 4, 8 or 16 */
    static const int loads = of_lane / bytes;
    static const int words = of_lane / 4;
};

/* The column of V that element i of product t is in. */
template <int Wave, int Dim, int Bytes = 2> TA_DEVICE int32_t ta_value_column(int t, int i)
{
    typedef ta_v_words<Wave, Dim, Bytes> words;
    const int chunk = words::bytes / Bytes; /* columns */
    return (ta_lanes<Wave>::sum_chunk(i) + t / chunk * words::chunks) * chunk + t % chunk;
}

/* c += rows · columns. Of scores the columns are 8 or 16 tokens, of which `columns` are 2 words (of
 * one of the lane's k_tokens), and `rows` 4 words of the query; of values, columns of V, and
 * `rows` are weights. The words of rows are of rows g and g + 8 in turn in waves of 32. */
template <class Type, int Wave>
TA_DEVICE void ta_multiply_rows(float (&c)[4], const uint32_t (&rows)[4],
                                const uint32_t (&columns)[2])
{
    if constexpr (Wave == 32) {
        ta_operand<32> first = {{rows[0], rows[1], rows[2], rows[3]}};
        ta_mma_columns8<Type>(c, first, columns);
    } else {
        ta_operand<64> first = {{columns[0], columns[1]}}, second = {{rows[0], rows[2]}};
        ta_product<64> sum = {{c[0], c[1], c[2], c[3]}};
        ta_mma<Type>(sum, first, second);
        for (int i = 0; i < 4; i++)
            c[i] = sum.x[i];
    }
}

/* The columns of product t, from the words `v` of V that a lane has of its 4 tokens. */
template <int Words>
TA_DEVICE void ta_take_values(const uint32_t (&v)[4][Words], int t, uint32_t (&values)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t a = v[2 * i][t / 2], b = v[2 * i + 1][t / 2];
        values[i] = t % 2 ? ta_high_halves(a, b) : ta_low_halves(a, b);
    }
}

/* ---- What a wave knows of its query rows -----------------------------------------------------
 *
 * Of the direct kernels (direct_wave.h) and of attend_latent (latent_wave.h): the largest score and
 * the sum of the weights, how the scores of a tile become weights and operands, and how o takes
 * these. A lane has 4 of 16 tokens of each of its rows. */

/* Queries may be aligned to their elements alone. If another kernel took those, ranks whose queries
 * are aligned differently would have other bits. */
TA_DEVICE uint32_t ta_load_halves(const char *from)
{
    const uint16_t *halves = reinterpret_cast<const uint16_t *>(from);
    return halves[0] | static_cast<uint32_t>(halves[1]) << 16;
}

TA_DEVICE bool ta_is_multiple(const char *address, uint32_t bytes)
{
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

template <class Type, int Wave, int Slots> struct ta_wave_rows {
    typedef ta_lanes<Wave> lanes;

    float m[Slots], l[Slots]; /* l of this lane's tokens alone */

    __device__ __forceinline__ void start_rows()
    {
#pragma unroll
        for (int r = 0; r < Slots; r++) {
            m[r] = -INFINITY;
            l[r] = 0.0f;
        }
    }

    /* Scores of a row become weights, and m and l are brought up to date. Returns what o must be
     * multiplied by. A NaN makes its weight and then l NaN, never m. */
    __device__ __forceinline__ float weigh(float (&x)[4], int r)
    {
        float largest = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
        largest = fmaxf(m[r], largest);
#pragma unroll
        for (int mask = lanes::first_mask; mask < lanes::end_mask; mask *= 2)
            largest = fmaxf(largest, ta_shfl_xor(largest, mask));
        /* Nothing seen yet: a difference to -inf would be NaN. */
        float base = largest == -INFINITY ? 0.0f : largest;
        float rescale = ta_exp2(m[r] - base);
        m[r] = largest;
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = ta_exp2(x[i] - base);
        l[r] = fmaf(l[r], rescale, (x[0] + x[1]) + (x[2] + x[3]));
        return rescale;
    }

    /* In a wave of 32 with one slot nobody looks at rows g + 8. Words of no meaning, because the
     * compiler would put ones that it knows into their places for each product again. */
    static __device__ __forceinline__ void fill_other_rows(const float (&x)[4], uint32_t (&w)[4])
    {
        if (Wave == 32 && Slots == 1) {
            w[1] = ta_low_halves(ta_as_bits(x[0]), ta_as_bits(x[1]));
            w[3] = ta_low_halves(ta_as_bits(x[2]), ta_as_bits(x[3]));
        }
    }

    /* The weights of a row as words of an operand: if they must be exact in parts, of which the
     * first is the largest, else rounded, and without the other parts. */
    __device__ __forceinline__ void
    take_weights(float (&x)[4], int r, uint32_t (&w)[Type::weight_parts][4], bool exact) const
    {
        if (ta_weight_scale(Type()) != 1.0f)
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] *= ta_weight_scale(Type());
        if (!exact) {
            w[0][r] = ta_round_weights(Type(), x[0], x[1]);
            w[0][r + 2] = ta_round_weights(Type(), x[2], x[3]);
            fill_other_rows(x, w[0]);
            return;
        }
#pragma unroll
        for (int part = 0; part < Type::weight_parts; part++) {
            w[part][r] = ta_take_part(Type(), x[0], x[1]);
            w[part][r + 2] = ta_take_part(Type(), x[2], x[3]);
            fill_other_rows(x, w[part]);
        }
    }

    /* o = o · rescale + weights · values, in the columns of product t; with Some only of the rows
     * in `rows`, a bit for each slot. */
    template <bool Some, int Products>
    static __device__ __forceinline__ void
    add_product(const uint32_t (&w)[Type::weight_parts][4], bool exact, const uint32_t (&values)[2],
                const float (&rescale)[Slots], uint32_t rows, int t,
                float (&o)[Slots][Products][lanes::elements])
    {
        float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int part = Type::weight_parts - 1; part >= 0; part--)
            if (part == 0 || exact)
                ta_multiply_rows<Type, Wave>(c, w[part], values);
#pragma unroll
        for (int e = 0; e < Slots * lanes::elements; e++) {
            int r = e / lanes::elements;
            float &sum = o[r][t][e % lanes::elements];
            if (!Some || rows >> r & 1)
                sum = fmaf(sum, rescale[r], c[e]);
        }
    }

    /* The sum of the weights of a row, of all lanes that share it. */
    __device__ __forceinline__ float whole_l(int r) const
    {
        float sum = l[r];
#pragma unroll
        for (int mask = lanes::first_mask; mask < lanes::end_mask; mask *= 2)
            sum += ta_shfl_xor(sum, mask);
        return sum;
    }
};

#endif
