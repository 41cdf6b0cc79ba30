/* What lies between a load of K or V and its product, in the direct kernels. Elements of 16 bits
 * are operands as they come. Those of 8 bits are widened to bf16 here, and nowhere else, one word
 * of 4 codes at a time, just before the product that takes them; and their tokens have scales.
 *
 * What direct_lanes.h says of lanes, tokens and chunks is the same for both, with chunks of 16
 * bytes, which are 16 elements of 8 bits:
 *
 *     waves of 32, g = lane / 4, c = lane % 4     waves of 64, g = lane / 16, c = lane % 16
 *     K      tokens g, g + 8; chunks 4·j + c      token c; chunks 4·j + g
 *     Q      rows g, g + 8; elements of these     row c; elements of these chunks
 *            chunks, 32 bytes each
 *     V      tokens 2c, 2c + 1, 2c + 8, 2c + 9;   tokens 4g … 4g + 3;
 *            chunk g (of 64 columns: 8 bytes)     8 bytes c (of 64 columns: 4)
 *
 *     a word of K         codes 0 1 2 3     ─►  (0, 1) (2, 3): one operand
 *     words of V of two   a0 a1 a2 a3       ─►  a0 b0 a1 b1    ─►  (a0, b0): column 0
 *     neighbouring tokens b0 b1 b2 b3                              (a1, b1): column 1
 *
 * 64 bytes of a token's K, and 128 of its V (64 if that is all), are read at once. */
#ifndef TA_HIP_DIRECT_ELEMENTS_H
#define TA_HIP_DIRECT_ELEMENTS_H

#include "direct_lanes.h"
#include "narrow.h"

/* ---- Operands ------------------------------------------------------------------------------- */

template <class Type> struct ta_direct_elements {
    static const int bytes = 2;

    __device__ __forceinline__ void start(ta_dtype)
    {
    }

    /* Operand j of a token, from the chunks of K that a lane has of it. */
    template <bool Native, int Loads>
    __device__ __forceinline__ void take_key(const ta_vec16 (&k)[Loads], int j,
                                             uint32_t (&key)[2]) const
    {
        key[0] = k[j / 2].word[j % 2 * 2];
        key[1] = k[j / 2].word[j % 2 * 2 + 1];
    }

    /* The columns of product t, from the words of V that a lane has of its 4 tokens. */
    template <bool Native, int Words>
    __device__ __forceinline__ void take_values(const uint32_t (&v)[4][Words], int t,
                                                uint32_t (&values)[2]) const
    {
        ta_take_values(v, t, values);
    }

    /* Not 0 if an element of the word is no finite number. */
    __device__ __forceinline__ uint32_t not_finite(uint32_t word) const
    {
        return ta_not_finite(Type(), word);
    }
};

template <> struct ta_direct_elements<ta_type_narrow> {
    static const int bytes = 1;
    ta_pair_rule rule;

    __device__ __forceinline__ void start(ta_dtype dtype)
    {
        rule = ta_pair_rule_of(dtype);
    }

    template <bool Native, int Loads>
    __device__ __forceinline__ void take_key(const ta_vec16 (&k)[Loads], int j,
                                             uint32_t (&key)[2]) const
    {
        uint32_t codes = k[j / 4].word[j % 4];
        key[0] = ta_widen_pair<Native, 0>(rule, codes);
        key[1] = ta_widen_pair<Native, 1>(rule, codes);
    }

    template <bool Native, int Words>
    __device__ __forceinline__ void take_values(const uint32_t (&v)[4][Words], int t,
                                                uint32_t (&values)[2]) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t a = v[2 * i][t / 4], b = v[2 * i + 1][t / 4];
            uint32_t codes = t % 4 < 2 ? ta_mix_bytes<0>(a, b) : ta_mix_bytes<1>(a, b);
            values[i] = t % 2 ? ta_widen_pair<Native, 1>(rule, codes)
                              : ta_widen_pair<Native, 0>(rule, codes);
        }
    }

    __device__ __forceinline__ uint32_t not_finite(uint32_t word) const
    {
        return ta_find_special(rule, word);
    }
};

/* ---- Scales --------------------------------------------------------------------------------- */

/* Of the 4 tokens whose scores a lane has. Elements of 16 bits have none. */
template <class Type, int Wave> struct ta_lane_scales {
    __device__ __forceinline__ void start(const ta_direct_params &, const ta_direct_piece &)
    {
    }

    template <class Addresses>
    __device__ __forceinline__ void load(const ta_direct_params &, const Addresses &)
    {
    }

    __device__ __forceinline__ void look_up(const ta_direct_params &, const ta_direct_cache &,
                                            int32_t)
    {
    }

    __device__ __forceinline__ void scale_dots(float (&)[4]) const
    {
    }

    template <bool Edge> __device__ __forceinline__ void scale_weights(float (&)[4]) const
    {
    }
};

/* Those that all tokens share are loaded once for a piece, others with each tile. */
template <int Wave> struct ta_lane_scales<ta_type_narrow, Wave> {
    float k[4], v[4];
    int32_t sequence, head; /* 0 with pages; not in scalar registers, of which AMD has too few */

    __device__ __forceinline__ void start(const ta_direct_params &p, const ta_direct_piece &b)
    {
        sequence = p.kv.page_table ? 0 : b.walk.sequence;
        head = b.kv_head;
        float all_k = 1.0f, all_v = 1.0f;
        if (p.kv.k_scale.data && !(p.token_scales & TA_TOKEN_SCALES_K))
            all_k = *find(p.kv.k_scale, 0, 0);
        if (p.kv.v_scale.data && !(p.token_scales & TA_TOKEN_SCALES_V))
            all_v = *find(p.kv.v_scale, 0, 0);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            k[i] = all_k;
            v[i] = all_v;
        }
    }

    /* The scale of a token in a page, or in page 0 if there are none. */
    __device__ __forceinline__ const float *find(const ta_scales &s, int64_t page,
                                                 int64_t within) const
    {
        return s.data + (page + sequence) * s.batch_stride + within * s.token_stride +
               head * s.head_stride;
    }

    /* Of the tile that was found last. */
    template <class Addresses>
    __device__ __forceinline__ void load(const ta_direct_params &p, const Addresses &addresses)
    {
        if (p.token_scales & TA_TOKEN_SCALES_K)
            load_one(p.kv.k_scale, addresses.here, addresses.at, k);
        if (p.token_scales & TA_TOKEN_SCALES_V)
            load_one(p.kv.v_scale, addresses.here, addresses.at, v);
    }

    __device__ __forceinline__ void load_one(const ta_scales &s, uint32_t here, uint32_t at,
                                             float (&x)[4]) const
    {
        const float *from = find(s, here, static_cast<int32_t>(at) + ta_lanes<Wave>::v_token(0));
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = from[ta_lanes<Wave>::v_step(i) * s.token_stride];
    }

    /* Of any tile, at `t`; 1 for a token without a place. Arguments again for each, or they would
     * be kept in scalar registers and spilled. */
    __device__ __forceinline__ void look_up(const ta_direct_params &p, const ta_direct_cache &c,
                                            int32_t t)
    {
        if (p.token_scales & TA_TOKEN_SCALES_K)
            look_up_one(ta_params_again(p), ta_params_again(p).kv.k_scale, c, t, k);
        if (ta_params_again(p).token_scales & TA_TOKEN_SCALES_V)
            look_up_one(ta_params_again(p), ta_params_again(p).kv.v_scale, c, t, v);
    }

    __device__ __forceinline__ void look_up_one(const ta_direct_params &p, const ta_scales &s,
                                                const ta_direct_cache &c, int32_t t,
                                                float (&x)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            ta_token_place at = ta_find_token(p, c, t + ta_lanes<Wave>::v_token(i));
            x[i] = at.has ? *find(s, at.page, at.within) : 1.0f;
        }
    }

    __device__ __forceinline__ void scale_dots(float (&dots)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            dots[i] *= k[i];
    }

    /* Edge: where a token may be one that its row does not see, its scale is anything. */
    template <bool Edge> __device__ __forceinline__ void scale_weights(float (&weights)[4]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            weights[i] = Edge && weights[i] == 0.0f ? 0.0f : weights[i] * v[i];
    }
};

#endif
