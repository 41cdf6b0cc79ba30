/* A part of mma.h, which alone includes it: matrix products on the executor of tests/simt/, with
 * the layouts of both vendors. A product exchanges the operands of all lanes. */
#ifndef TA_HIP_MMA_SIMT_H
#define TA_HIP_MMA_SIMT_H

/* As ldmatrix: lane 8·m + i gives the address of row i of 8 × 8 matrix m, and lane 4·g + q gets
 * elements 2·q, 2·q + 1 of row g of each; transposed: of column g. */
TA_DEVICE ta_operand<32> ta_load_matrices(const char *row, simt::call where = simt::call::here())
{
    auto rows = simt::exchange(row, where);
    unsigned lane = static_cast<unsigned>(ta_lane());
    ta_operand<32> m;
    for (unsigned i = 0; i < 4; i++)
        m.word[i] = simt::aligned_for<ta_vec16>(rows[i * 8 + lane / 4], where).word[lane % 4];
    return m;
}

TA_DEVICE ta_operand<32> ta_load_matrices_transposed(const char *row,
                                                     simt::call where = simt::call::here())
{
    auto rows = simt::exchange(row, where);
    unsigned lane = static_cast<unsigned>(ta_lane());
    ta_operand<32> m;
    for (unsigned i = 0; i < 4; i++) {
        uint32_t pair[2];
        for (unsigned j = 0; j < 2; j++) {
            const char *of = rows[i * 8 + lane % 4 * 2 + j];
            pair[j] = simt::aligned_for<ta_vec16>(of, where).word[lane / 8] >> lane / 4 % 2 * 16;
        }
        m.word[i] = ta_low_halves(pair[0], pair[1]);
    }
    return m;
}

/* Which lane has element (outer, k) of an operand, and at which place: outer is A's row or B's
 * column. */
struct ta_element_at {
    unsigned lane;
    int word, half;
};

template <int Wave> TA_DEVICE ta_element_at ta_find_element(bool of_b, int outer, int k)
{
    ta_element_at at;
    at.half = k % 2;
    if (Wave == 32) {
        at.lane = static_cast<unsigned>(outer % 8 * 4 + k % 8 / 2);
        at.word = of_b ? outer / 8 * 2 + k / 8 : k / 8 * 2 + outer / 8;
    } else {
        at.lane = static_cast<unsigned>(k / 4 * 16 + outer);
        at.word = k % 4 / 2;
    }
    return at;
}

/* Element (outer, k) is at outer · outer_stride + k · k_stride. */
template <int Wave>
TA_DEVICE ta_operand<Wave> ta_load_operand(bool of_b, const char *tile, int32_t outer_stride,
                                           int32_t k_stride)
{
    ta_operand<Wave> m = {};
    for (int i = 0; i < 256; i++) {
        ta_element_at at = ta_find_element<Wave>(of_b, i / 16, i % 16);
        if (at.lane != static_cast<unsigned>(ta_lane()))
            continue;
        const char *from = tile + i / 16 * outer_stride + i % 16 * k_stride;
        m.word[at.word] |= static_cast<uint32_t>(*reinterpret_cast<const uint16_t *>(from))
                           << at.half * 16;
    }
    return m;
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_a(const char *tile, int32_t stride)
{
    return ta_load_operand<Wave>(false, tile, stride, 2);
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_b_rows(const char *tile, int32_t stride)
{
    return ta_load_operand<Wave>(true, tile, stride, 2);
}

template <int Wave> TA_DEVICE ta_operand<Wave> ta_load_b(const char *tile, int32_t stride)
{
    return ta_load_operand<Wave>(true, tile, 2, stride);
}

template <class Type, int Wave> TA_DEVICE double ta_element(const ta_operand<Wave> &m, int place)
{
    return Type::from(static_cast<uint16_t>(m.word[place / 2] >> place % 2 * 16));
}

/* Rounded towards zero, which is the worst that matrix cores do. */
TA_DEVICE float ta_truncate(double x)
{
    float nearest = static_cast<float>(x);
    return fabs(static_cast<double>(nearest)) > fabs(x) ? nextafterf(nearest, 0.0f) : nearest;
}

template <int Wave> struct ta_operands {
    ta_operand<Wave> a, b;
};

template <class Type, int Wave>
TA_DEVICE void ta_mma(ta_product<Wave> &c, const ta_operand<Wave> &a, const ta_operand<Wave> &b,
                      simt::call where = simt::call::here())
{
    auto all = simt::exchange(ta_operands<Wave>{a, b}, where);
    for (int i = 0; i < 256 / Wave; i++) {
        for (int half = 0; half < 16; half += 8) {
            double sum = c.x[i];
            for (int k = half; k < half + 8; k++) {
                ta_element_at at_a = ta_find_element<Wave>(false, ta_product_row<Wave>(i), k);
                ta_element_at at_b = ta_find_element<Wave>(true, ta_product_column<Wave>(i), k);
                sum += ta_element<Type>(all[at_a.lane].a, at_a.word * 2 + at_a.half) *
                       ta_element<Type>(all[at_b.lane].b, at_b.word * 2 + at_b.half);
            }
            c.x[i] = ta_truncate(sum);
        }
    }
}

struct ta_operands8 {
    ta_operand<32> a;
    uint32_t b[2];
};

/* Lane 4·g + q has elements (g, 2·q), (g, 2·q + 1), (g + 8, …) of the product. */
template <class Type>
TA_DEVICE void ta_mma_columns8(float (&c)[4], const ta_operand<32> &a, const uint32_t (&b)[2],
                               simt::call where = simt::call::here())
{
    auto all = simt::exchange(ta_operands8{a, {b[0], b[1]}}, where);
    int lane = ta_lane();
    double of_a[2][16], of_b[2][16];
    for (int k = 0; k < 16; k++)
        for (int i = 0; i < 2; i++) {
            ta_element_at at_a = ta_find_element<32>(false, lane / 4 + i * 8, k);
            ta_element_at at_b = ta_find_element<32>(true, lane % 4 * 2 + i, k);
            of_a[i][k] = ta_element<Type>(all[at_a.lane].a, at_a.word * 2 + at_a.half);
            of_b[i][k] =
                Type::from(static_cast<uint16_t>(all[at_b.lane].b[at_b.word] >> at_b.half * 16));
        }
    for (int i = 0; i < 4; i++)
        for (int half = 0; half < 16; half += 8) {
            double sum = c[i];
            for (int k = half; k < half + 8; k++)
                sum += of_a[i / 2][k] * of_b[i % 2][k];
            c[i] = ta_truncate(sum);
        }
}

#endif
