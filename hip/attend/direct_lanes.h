/* Which lane of a wave has what, in the direct kernels, the one place where the two matrix
 * instructions differ; and below, where it finds its tokens. A wave takes a tile of 16 tokens at a
 * time:
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

/* ---- Where a wave finds the K and V of a tile -----------------------------------------------
 *
 * ta_plain_addresses: the 16 tokens of a tile are all there and follow each other in memory, in a
 * page of a power of two or in no page; one look-up for the wave, made a tile ahead.
 * ta_any_addresses: a look-up for each token that a lane loads.
 *
 * A token that the arguments give no place, though the sequence's length says it is here, is
 * missing: its score is NaN. The caller's lengths and tables are in device memory, where nobody
 * could check them. */

/* What both need of the cache: K and V of the KV head, and without pages of the sequence. */
struct ta_direct_cache {
    const char *k, *v;
    const int32_t *pages; /* of the sequence, or NULL */
    int32_t end;          /* no token from here on has a place */
};

/* Bytes: of an element. */
template <int Bytes>
TA_DEVICE ta_direct_cache ta_find_direct_cache(const ta_direct_params &p, const ta_direct_piece &b)
{
    const ta_tensor &k = p.kv.k, &v = p.kv.v;
    int32_t sequence = ta_uniform(b.walk.sequence), head = ta_uniform(b.kv_head);
    int64_t dense = p.kv.page_table ? 0 : sequence;
    ta_direct_cache c;
    c.k =
        static_cast<const char *>(k.data) + (dense * k.batch_stride + head * k.head_stride) * Bytes;
    c.v =
        static_cast<const char *>(v.data) + (dense * v.batch_stride + head * v.head_stride) * Bytes;
    c.pages = nullptr;
    if (p.kv.page_table)
        c.pages = p.kv.page_table + sequence * p.kv.page_table_stride;
    c.end = k.data && v.data ? min(ta_uniform(b.end), p.problem.max_tokens) : 0;
    return c;
}

/* The tokens of a tile follow each other in memory. VBytes: of V that a lane loads at once. */
template <class Lanes, int VBytes, int Bytes> struct ta_plain_addresses {
    typedef Lanes lanes;
    const ta_direct_params &p;
    const ta_direct_cache &c;
    uint32_t k_lane, v_lane;     /* byte offsets of the lane's first token in a tile */
    const char *k_tile, *v_tile; /* the tile that was found last */
    int32_t page;                /* of the tile after */
    uint32_t here, at;           /* the page of k_tile, or 0, and its first token there */
    int32_t entries;             /* of the page table that may be read */

    __device__ __forceinline__ ta_plain_addresses(const ta_direct_params &params,
                                                  const ta_direct_cache &cache)
        : p(params), c(cache), k_tile(nullptr), v_tile(nullptr), page(0), here(0), at(0), entries(0)
    {
        k_lane = static_cast<uint32_t>(lanes::k_token(0)) * k_stride() +
                 static_cast<uint32_t>(lanes::k_chunk()) * 16;
        v_lane = static_cast<uint32_t>(lanes::v_token(0)) * v_stride() +
                 static_cast<uint32_t>(lanes::v_chunk()) * VBytes;
        if (c.pages)
            entries = static_cast<int32_t>(
                min(p.kv.page_table_stride,
                    static_cast<int64_t>((c.end + (1 << p.page_shift) - 1) >> p.page_shift)));
    }

    __device__ __forceinline__ uint32_t k_stride() const
    {
        return static_cast<uint32_t>(p.kv.k.token_stride) * Bytes;
    }

    __device__ __forceinline__ uint32_t v_stride() const
    {
        return static_cast<uint32_t>(p.kv.v.token_stride) * Bytes;
    }

    /* Ask for the page of the tile at `t`, which will be found next. */
    __device__ __forceinline__ void look_up(int32_t t)
    {
        if (!c.pages)
            return;
        int32_t entry = t >> p.page_shift;
        page = entry < entries ? ta_load_global(c.pages + entry) : -1;
    }

    /* Has the tile that will be found next a place? */
    __device__ __forceinline__ bool exists() const
    {
        return !c.pages || static_cast<uint32_t>(page) < static_cast<uint32_t>(p.kv.page_count);
    }

    /* Find the tile at `t`. If it does not exist, another that does: the first page. */
    __device__ __forceinline__ void find(int32_t t)
    {
        at = static_cast<uint32_t>(t);
        here = 0;
        if (c.pages) {
            here = static_cast<uint32_t>(ta_uniform(exists() ? page : 0));
            at &= (1u << p.page_shift) - 1;
        }
        k_tile = tile(c.k, p.kv.k);
        v_tile = tile(c.v, p.kv.v);
    }

    __device__ __forceinline__ const char *tile(const char *data, const ta_tensor &t) const
    {
        uint64_t page_stride = static_cast<uint32_t>(t.batch_stride) * Bytes;
        uint64_t token_stride = static_cast<uint32_t>(t.token_stride) * Bytes;
        return data + here * page_stride + at * token_stride;
    }

    __device__ __forceinline__ const char *k_token(int i) const
    {
        return k_tile + k_lane + static_cast<uint64_t>(lanes::k_step(i)) * k_stride();
    }

    __device__ __forceinline__ const char *v_token(int i) const
    {
        return v_tile + v_lane + static_cast<uint64_t>(lanes::v_step(i)) * v_stride();
    }

    /* Ask for 256 bytes of V of each token of the tile while registers have no room for them: a
     * line by each lane of a wave of 32, near what it will load of that token. Of rows that begin
     * inside of a line the rest is left out. */
    __device__ __forceinline__ void ask_for_v() const
    {
        uint32_t chunk = static_cast<uint32_t>(lanes::v_chunk());
        uint32_t token = static_cast<uint32_t>(lanes::v_step(static_cast<int>(chunk % 4)));
        ta_ask_for(v_tile + v_lane + token * v_stride() + chunk / 4 * 128);
    }
};

/* Ask for K of the tile at `next`, which was looked up, and look up the one after it. */
template <class W, class Addresses>
TA_DEVICE void ta_find_next(W &w, Addresses &addresses, int32_t next)
{
    if (!addresses.exists())
        w.lose_all();
    addresses.find(next);
    addresses.look_up(next + w.step);
    w.load_k(addresses);
}

/* Where a token is: in which page, or 0, and at which place in it. */
struct ta_token_place {
    int64_t page, within;
    bool has; /* one at all */
};

TA_DEVICE ta_token_place ta_find_token(const ta_direct_params &p, const ta_direct_cache &c,
                                       int32_t token)
{
    ta_token_place place = {0, token, token < c.end};
    if (c.pages && place.has) {
        uint32_t entry =
            p.plain ? static_cast<uint32_t>(token) >> p.page_shift
                    : static_cast<uint32_t>(token) / static_cast<uint32_t>(p.kv.page_tokens);
        place.within = token - static_cast<int32_t>(entry) * p.kv.page_tokens;
        place.page = entry < p.kv.page_table_stride ? ta_load_global(c.pages + entry) : -1;
        place.has = place.page >= 0 && place.page < p.kv.page_count;
    }
    return place;
}

/* Where a part of a token's K or V is; of one without a place, zeros. */
template <int Bytes>
TA_DEVICE const char *ta_token_address(const ta_token_place &at, const char *data,
                                       const ta_tensor &t, int32_t offset)
{
    if (!at.has)
        return reinterpret_cast<const char *>(ta_fills) + offset;
    return data + (at.page * t.batch_stride + at.within * t.token_stride) * Bytes + offset;
}

/* Any tile: each token of a lane is looked up by itself, and zeros are read where there is none. */
template <class Lanes, int VBytes, int Bytes> struct ta_any_addresses {
    typedef Lanes lanes;
    const char *k_tokens[lanes::k_tokens], *v_tokens[4];
    uint32_t lacking; /* a bit for each of the 4 tokens whose V this lane loads, and no place has */

    __device__ __forceinline__ ta_any_addresses(const ta_direct_params &p, const ta_direct_cache &c,
                                                int32_t t)
        : lacking(0)
    {
        uint32_t lacks;
#pragma unroll
        for (int i = 0; i < lanes::k_tokens; i++)
            k_tokens[i] =
                address(p, c, t + lanes::k_token(i), c.k, p.kv.k, lanes::k_chunk() * 16, lacks);
        const ta_direct_params &v_params = ta_params_again(p);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v_tokens[i] = address(v_params, c, t + lanes::v_token(i), c.v, v_params.kv.v,
                                  lanes::v_chunk() * VBytes, lacks);
            lacking |= lacks << i;
        }
    }

    static __device__ __forceinline__ const char *address(const ta_direct_params &p,
                                                          const ta_direct_cache &c, int32_t token,
                                                          const char *data, const ta_tensor &t,
                                                          int32_t offset, uint32_t &lacks)
    {
        ta_token_place at = ta_find_token(p, c, token);
        lacks = !at.has;
        return ta_token_address<Bytes>(at, data, t, offset);
    }

    __device__ __forceinline__ const char *k_token(int i) const
    {
        return k_tokens[i];
    }

    __device__ __forceinline__ const char *v_token(int i) const
    {
        return v_tokens[i];
    }
};

#endif
