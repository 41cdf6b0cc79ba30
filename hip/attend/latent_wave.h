/* A wave of attend_latent: 16 query rows, which it shares with others (latent.h), and what it does
 * with a stage of 16 tokens in shared memory. Which lane has what is as in the direct kernels
 * (direct_lanes.h). A stage is laid out as attention/stage.h says.
 *
 * The 576 elements of a row are 18 pairs of chunks of 32 bytes; sharer s of S makes the dot
 * products of pairs s, s + S, s + 2 S, … The same lane of all sharers has the same tokens and rows
 * of the dot products, so a lane puts its own into shared memory and takes those of its equals. */
#ifndef TA_HIP_LATENT_WAVE_H
#define TA_HIP_LATENT_WAVE_H

#include "attention/stage.h"
#include "direct_edge.h"
#include "latent.h"

template <class Type, int Wave, int Rows>
struct ta_latent_wave : ta_wave_rows<Type, Wave, ta_row_slots<Wave, 16>::count> {
    typedef ta_lanes<Wave> lanes;
    typedef ta_wave_rows<Type, Wave, ta_row_slots<Wave, 16>::count> own_rows;
    typedef ta_stage<TA_LATENT_K_DIM> stage;
    static const int slots = ta_row_slots<Wave, 16>::count;
    static const int sharers = TA_LATENT_SHARERS(Rows);
    static const int columns = TA_LATENT_V_DIM / sharers;
    static const int products = columns / lanes::columns;
    static const int pairs = TA_LATENT_K_DIM / 32;
    static const int own_pairs = (pairs + sharers - 1) / sharers;
    static const int pair_step = sharers / 2 * 128; /* bytes from one of its pairs to the next */
    /* Matrix cores round towards zero, so their sums must not be long: of 96 elements at most. */
    static const int sum_pairs = 3;

    ta_vec16 q[Wave == 64 ? own_pairs : 1];
    float o[slots][products][lanes::elements];

    static __device__ __forceinline__ int32_t sharer()
    {
        return ta_wave_id() % sharers;
    }

    /* Of the block's rows. */
    static __device__ __forceinline__ int32_t first_row()
    {
        return ta_wave_id() / sharers * 16;
    }

    static __device__ __forceinline__ int32_t row(int slot)
    {
        return first_row() + lanes::row(slot);
    }

    /* Where the lane's chunk of its first pair is in a stage: chunk `low` of a row, or with
     * `second` that of the second 16 elements of a pair. */
    static __device__ __forceinline__ int32_t first_at(int32_t of_row, int32_t low, int second)
    {
        int32_t k = sharer() * 2 + second;
        return (stage::at_first(of_row, low) ^ (k % 4 * 32)) + k / 4 * 128;
    }

    /* Zeros for rows that the group does not have. */
    static __device__ __forceinline__ const char *
    find_query(const ta_direct_params &p, const ta_direct_piece &b, int32_t of_row)
    {
        int32_t at = b.first_row + of_row, token = at / b.heads;
        int32_t head = b.kv_head * b.heads + at % b.heads;
        if (of_row >= b.row_count)
            return reinterpret_cast<const char *>(ta_fills);
        return static_cast<const char *>(p.q.data) +
               (ta_problem_token_at(&p.problem, &p.q, b.walk.sequence, token) +
                head * p.q.head_stride) *
                   2;
    }

    static __device__ __forceinline__ ta_vec16 load_query(const char *from)
    {
        if (ta_is_multiple(from, 16))
            return ta_load16_global(from);
        ta_vec16 x;
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.word[i] = ta_load_halves(from + i * 4);
        return x;
    }

    /* The block's queries go to shared memory in waves of 32: a barrier comes before they are
     * used. */
    __device__ __forceinline__ void start(const ta_direct_params &p, const ta_direct_piece &b,
                                          char *queries)
    {
        this->start_rows();
#pragma unroll
        for (int r = 0; r < slots; r++)
#pragma unroll
            for (int t = 0; t < products; t++)
#pragma unroll
                for (int i = 0; i < lanes::elements; i++)
                    o[r][t][i] = 0.0f;
        if constexpr (Wave == 32) {
            const int row_threads = TA_LATENT_WAVES(Rows) * Wave / Rows;
            int32_t thread = static_cast<int32_t>(threadIdx.x), of_row = thread / row_threads;
            const char *from = find_query(p, b, of_row);
#pragma unroll 2
            for (int32_t chunk = thread % row_threads; chunk < TA_LATENT_K_DIM / 8;
                 chunk += row_threads)
                ta_store16(queries + stage::at(of_row, chunk), load_query(from + chunk * 16));
        } else {
            const char *from = find_query(p, b, row(0)) + lanes::k_chunk() * 16 + sharer() * 64;
#pragma unroll
            for (int i = 0; i < own_pairs; i++)
                if (has_pair(i))
                    q[i] = load_query(from + i * sharers * 64);
        }
    }

    static __device__ __forceinline__ bool has_pair(int i)
    {
        return pairs % sharers == 0 || i + 1 < own_pairs || sharer() < pairs % sharers;
    }

    /* This wave's part of the dot products of its rows with the tokens of a stage. */
    __device__ __forceinline__ void multiply_keys(const char *tokens, const char *queries,
                                                  float (&dots)[slots][4]) const
    {
        const int32_t lane = ta_lane();
        int32_t of_row = lane % 16, of_token = lane % 16, low = lane / 16;
        if constexpr (Wave == 32)
            of_token = lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int e = 0; e < slots * 4; e++)
            dots[e / 4][e % 4] = 0.0f; /* for the compiler: the first sum takes its place */
        const char *keys[2], *rows[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            keys[i] = tokens + first_at(of_token, Wave == 32 ? lane / 8 % 2 : low, i);
            rows[i] = queries + first_row() * stage::row_bytes + first_at(of_row, low, i);
        }
#pragma unroll
        for (int first = 0; first < own_pairs; first += sum_pairs) {
            ta_product<Wave> sum;
            ta_product_clear(sum);
#pragma unroll
            for (int i = first; i < first + sum_pairs && i < own_pairs; i++)
                if (has_pair(i))
                    multiply_pair(i, keys, rows, sum);
#pragma unroll
            for (int e = 0; e < slots * 4; e++) {
                float x = sum.x[Wave == 32 ? e % 4 / 2 * 4 + e / 4 * 2 + e % 2 : e];
                dots[e / 4][e % 4] = first ? dots[e / 4][e % 4] + x : x;
            }
        }
    }

    __device__ __forceinline__ void multiply_pair(int i, const char *const (&keys)[2],
                                                  const char *const (&rows)[2],
                                                  ta_product<Wave> &sum) const
    {
        if constexpr (Wave == 32) {
#pragma unroll
            for (int half = 0; half < 2; half++)
                ta_mma<Type>(sum, ta_load_matrices(rows[half] + i * pair_step),
                             ta_load_matrices(keys[half] + i * pair_step));
        } else {
            ta_vec16 k = ta_load16(keys[0] + i * pair_step);
            ta_mma<Type>(sum, ta_operand<Wave>{{k.word[0], k.word[1]}},
                         ta_operand<Wave>{{q[i].word[0], q[i].word[1]}});
            ta_mma<Type>(sum, ta_operand<Wave>{{k.word[2], k.word[3]}},
                         ta_operand<Wave>{{q[i].word[2], q[i].word[3]}});
        }
    }

    /* Where a wave's part of the dot products of a row slot is. */
    static __device__ __forceinline__ char *part_at(char *parts, int32_t wave, int slot)
    {
        return parts + ((wave * slots + slot) * Wave + ta_lane()) * 16;
    }

    __device__ __forceinline__ void give_dots(const float (&dots)[slots][4], char *parts) const
    {
#pragma unroll
        for (int r = 0; r < slots; r++) {
            ta_vec16 x;
#pragma unroll
            for (int i = 0; i < 4; i++)
                x.word[i] = ta_as_bits(dots[r][i]);
            ta_store16(part_at(parts, ta_wave_id(), r), x);
        }
    }

    /* All sharers add up the parts in the same order, so they have the same weights. */
    __device__ __forceinline__ void take_dots(char *parts, int slot, float (&dots)[4]) const
    {
#pragma unroll
        for (int part = 0; part < sharers; part++) {
            ta_vec16 x = ta_load16(part_at(parts, ta_wave_id() / sharers * sharers + part, slot));
#pragma unroll
            for (int i = 0; i < 4; i++)
                dots[i] = part ? dots[i] + ta_as_float(x.word[i]) : ta_as_float(x.word[i]);
        }
    }

    /* Go through the values of the wave's columns as operands: act(product, its 2 words). `tile` is
     * not negative. */
    template <class Do>
    static __device__ __forceinline__ void for_each_value(const char *tokens, int32_t tile, Do act)
    {
        const char *own = tokens + sharer() * columns * 2;
        if constexpr (Wave == 32) {
            int32_t at = stage::at_first(ta_lane() % 16, ta_lane() / 16);
#pragma unroll
            for (int n = 0; n < columns / 16; n++) {
                /* Never so. Without branches more products would be made before any is added to o
                 * than there are registers for; no condition follows from the one before. */
                if (sharers == 2 && n > 0 && n % 4 == 0 && tile < n - columns / 16)
                    return;
                ta_operand<32> v = ta_load_matrices_transposed(own + stage::at_pair(at, n));
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    uint32_t values[2] = {v.word[half * 2], v.word[half * 2 + 1]};
                    act(2 * n + half, values);
                }
            }
        } else {
#pragma unroll
            for (int j = 0; j < columns / 128; j++) {
                uint32_t v[4][4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    ta_vec16 x =
                        ta_load16(own + j * 256 + stage::at(lanes::v_token(i), lanes::v_chunk()));
#pragma unroll
                    for (int w = 0; w < 4; w++)
                        v[i][w] = x.word[w];
                }
#pragma unroll
                for (int n = 0; n < 8; n++) {
                    uint32_t values[2];
                    ta_take_values(v, n, values);
                    act(j * 8 + n, values);
                }
            }
        }
    }

    /* o = o · rescale + weights · values. `hide` has zeros where tokens must not be seen, a half of
     * a word each; only the rows in `rows` are changed, a bit for each slot. */
    template <bool Hide>
    __device__ __forceinline__ void
    add_values(const char *tokens, const uint32_t (&w)[Type::weight_parts][4], bool exact,
               const float (&rescale)[slots], const uint32_t (&hide)[2], uint32_t rows,
               int32_t tile)
    {
        for_each_value(tokens, tile, [&](int t, uint32_t(&values)[2]) {
            if (Hide) {
                values[0] &= hide[0];
                values[1] &= hide[1];
            }
            own_rows::template add_product<Hide>(w, exact, values, rescale, rows, t, o);
        });
    }

    static __device__ __forceinline__ bool finds_not_finite(const char *tokens)
    {
        uint32_t found = 0;
        for_each_value(tokens, 0, [&](int, uint32_t(&values)[2]) {
            found |= ta_not_finite(Type(), values[0]) | ta_not_finite(Type(), values[1]);
        });
        return ta_any(found != 0);
    }

    /* Of a tile that not every row sees whole: if a value is not finite, a weight of 0 does not
     * keep it out. Then the rows of one query token come at a time, and see zeros where they must
     * not look. */
    __device__ __forceinline__ void add_edge_values(const ta_direct_piece &b, const char *tokens,
                                                    int32_t t,
                                                    const uint32_t (&w)[Type::weight_parts][4],
                                                    bool exact, const float (&rescale)[slots])
    {
        int32_t last_row = min(b.row_count, first_row() + 16) - 1;
        int32_t token = ta_uniform(b.rows[first_row()].token);
        const int32_t last = ta_uniform(b.rows[last_row].token);
#pragma unroll 1
        for (; token <= last; token++) {
            const ta_visible &sees = b.rows[max(token * b.heads - b.first_row, first_row())].sees;
            uint32_t rows = 0, hide[2];
#pragma unroll
            for (int r = 0; r < slots; r++)
                rows |= static_cast<uint32_t>(b.rows[row(r)].token == token) << r;
            ta_hide_values<Wave>(t, 0, sees.first, sees.end, hide);
            add_values<true>(tokens, w, exact, rescale, hide, rows, t);
        }
    }

    /* Dot products of a row with the tokens of the tile at `t` become scores; those of a tile that
     * is no edge need only the factor. */
    __device__ __forceinline__ void score(const ta_direct_params &p, const ta_direct_piece &b,
                                          int32_t t, bool edge, int r, float (&x)[4]) const
    {
        if (!edge) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] *= p.rule.factor;
            return;
        }
        const ta_direct_row &own = b.rows[row(r)];
        int32_t first = own.sees.first, end = own.sees.end;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t token = t + lanes::v_token(i);
            float made = ta_direct_score(p, b, own, x[i], token);
            x[i] = token >= first && token < end ? made : -INFINITY;
        }
    }

    /* Each lane has all of the row's m and l; one lane of one sharer writes them. */
    __device__ __forceinline__ void write(const ta_direct_piece &b) const
    {
        float *records[slots];
#pragma unroll
        for (int r = 0; r < slots; r++) {
            float sum = this->whole_l(r);
            records[r] = nullptr;
            if (row(r) >= b.row_count)
                continue;
            records[r] = ta_piece_record(b, row(r));
            if (sharer() == 0 && lanes::k_chunk() == 0) {
                records[r][TA_LATENT_V_DIM] = sum != sum ? sum : this->m[r];
                records[r][TA_LATENT_V_DIM + 1] = sum;
            }
        }
#pragma unroll
        for (int t = 0; t < products; t++)
#pragma unroll
            for (int e = 0; e < slots * lanes::elements; e++) {
                int r = e / lanes::elements, i = e % lanes::elements;
                if (records[r])
                    records[r][sharer() * columns + column(t, i)] =
                        o[r][t][i] * (1.0f / ta_weight_scale(Type()));
            }
    }

    static __device__ __forceinline__ int32_t column(int product, int element)
    {
        if constexpr (Wave == 32)
            return product * 8 + ta_lane() % 4 * 2 + element;
        else
            return ta_value_column<Wave, columns>(product, element);
    }
};

#endif
