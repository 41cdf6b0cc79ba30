/* Which lane of a wave has what, in the direct kernels: the one place where the two matrix
 * instructions differ. A wave takes a tile of 16 tokens at a time:
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

/* Words of V that a lane has of one token, and how they are loaded. */
template <int Wave, int Dim> struct ta_v_words {
    static const int chunks = Wave == 32 ? 8 : 16;           /* that all lanes load at once */
    static const int bytes = Dim * 2 / chunks < 16 ? 8 : 16; /* of a chunk */
    static const int loads = Dim * 2 / (chunks * bytes);
    static const int words = loads * bytes / 4;
};

/* The column of V that element i of product t is in. */
template <int Wave, int Dim> TA_DEVICE int32_t ta_value_column(int t, int i)
{
    const int chunk = ta_v_words<Wave, Dim>::bytes / 2; /* columns */
    return (ta_lanes<Wave>::sum_chunk(i) + t / chunk * ta_v_words<Wave, Dim>::chunks) * chunk +
           t % chunk;
}

/* The scores of 8 or of 16 tokens (number `i` of the lane's k_tokens) with the rows: `q` are 4
 * words of the query, of rows g and g + 8 in turn in waves of 32, `k` 2 words of the key. */
template <class Type, int Wave>
TA_DEVICE void ta_multiply_key(float (&c)[4], const uint32_t (&q)[4], const uint32_t (&k)[2])
{
    if constexpr (Wave == 32) {
        ta_operand<32> rows = {{q[0], q[1], q[2], q[3]}};
        ta_mma_columns8<Type>(c, rows, k);
    } else {
        ta_operand<64> keys = {{k[0], k[1]}}, rows = {{q[0], q[2]}};
        ta_product<64> sum = {{c[0], c[1], c[2], c[3]}};
        ta_mma<Type>(sum, keys, rows);
        for (int i = 0; i < 4; i++)
            c[i] = sum.x[i];
    }
}

/* The same of values: `w` are words of weights, of rows g and g + 8 in turn in waves of 32. */
template <class Type, int Wave>
TA_DEVICE void ta_multiply_values(float (&c)[4], const uint32_t (&w)[4], const uint32_t (&v)[2])
{
    if constexpr (Wave == 32) {
        ta_operand<32> rows = {{w[0], w[1], w[2], w[3]}};
        ta_mma_columns8<Type>(c, rows, v);
    } else {
        ta_operand<64> values = {{v[0], v[1]}}, rows = {{w[0], w[2]}};
        ta_product<64> sum = {{c[0], c[1], c[2], c[3]}};
        ta_mma<Type>(sum, values, rows);
        for (int i = 0; i < 4; i++)
            c[i] = sum.x[i];
    }
}

#endif
