/* widen() of kernels.h over vectors of 16 words, one for each byte: part of attend_simd.h.
 *
 * A code without its sign is a bf16 with other widths: shifted left, its fraction is in its place,
 * and a constant added to the exponent makes up for the other bias. That leaves the subnormal
 * numbers, which are looked up, and the codes of NaN and infinity. Words begin as the byte twice,
 * so that shifting them to the right moves the code and keeps the sign. */

/* The subnormal numbers of a type, 8 or 4 of them: the lower bytes of their bf16, then the upper
 * ones. An exponent of 127 + 1 - bias - fraction_bits and more. */
static const _Alignas(16) uint8_t subnormal_bytes[TA_DTYPE_END][16] = {
    [TA_E4M3] = {0x00, 0x00, 0x80, 0xc0, 0x00, 0x20, 0x40, 0x60, 0x00, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c,
                 0x3c, 0x3c},
    [TA_E5M2] = {0x00, 0x80, 0x00, 0x40, 0, 0, 0, 0, 0x00, 0x37, 0x38, 0x38},
    [TA_E4M3_FNUZ] = {0x00, 0x80, 0x00, 0x40, 0x80, 0xa0, 0xc0, 0xe0, 0x00, 0x3a, 0x3b, 0x3b, 0x3b,
                      0x3b, 0x3b, 0x3b},
    [TA_E5M2_FNUZ] = {0x00, 0x00, 0x80, 0xc0, 0, 0, 0, 0, 0x00, 0x37, 0x37, 0x37},
};

/* 16 codes, each twice in its word. */
INLINE vw widen16(ta_dtype dtype, vw twice)
{
    const int is_e4m3 = dtype == TA_E4M3 || dtype == TA_E4M3_FNUZ;
    const int is_fnuz = dtype == TA_E4M3_FNUZ || dtype == TA_E5M2_FNUZ;
    const int bias = (is_e4m3 ? 7 : 15) + is_fnuz;
    vw sign = vw_and(twice, vw_set(0x8000));
    vw normal = vw_and(is_e4m3 ? vw_shift_right_4(twice) : vw_shift_right_3(twice),
                       vw_set(is_e4m3 ? 0x07f0 : 0x0fe0));
    normal = vw_add(normal, vw_set((uint16_t)((127 - bias) << 7)));
    vw index = vw_or(vw_and(twice, vw_set(is_e4m3 ? 0x0707 : 0x0303)), vw_set(0x0800));
    vw small = vw_equal(vw_and(twice, vw_set(is_e4m3 ? 0x7800 : 0x7c00)), vw_set(0));
    vw number = vw_if(small, vw_lookup(subnormal_bytes[dtype], index), normal);
    vw special; /* what is set where there is no number: of e5m2 the fraction tells which it is */
    if (is_fnuz)
        special = vw_and(vw_equal(twice, vw_set(0x8080)), vw_set(0x7fc0));
    else if (is_e4m3)
        special = vw_and(vw_equal(vw_and(twice, vw_set(0x7f00)), vw_set(0x7f00)), vw_set(0x7fc0));
    else
        special = vw_and(vw_equal(vw_and(twice, vw_set(0x7c00)), vw_set(0x7c00)), vw_set(0x7f80));
    return vw_or(vw_or(number, sign), special);
}

INLINE void widen_any(ta_dtype dtype, const void *from, int32_t n, uint16_t *to)
{
    const uint8_t *bytes = from;
    int32_t i = 0;
    for (; i + PAIR <= n; i += PAIR)
        vw_store(to + i, widen16(dtype, vw_load_twice(bytes + i)));
    if (i < n)
        vw_store_half(to + i, widen16(dtype, vw_load_half_twice(bytes + i)));
}
