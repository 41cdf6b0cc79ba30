/* Vectors of 16 floats for the products of panel_simd.h: a panel's row is one of them. Twice as
 * fast as two of 8 where the CPU multiplies 16 numbers at once in each of its pipes, as Zen 5 does;
 * as fast where it takes them in two halves. Part of panel_simd.h. */
typedef __m512 pv;
#define PV_LANES 16

INLINE pv pv_zero(void)
{
    return _mm512_setzero_ps();
}

INLINE pv pv_set(float x)
{
    return _mm512_set1_ps(x);
}

/* Loads and stores need the alignment of an element only. */
INLINE pv pv_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

INLINE void pv_store(float *to, pv x)
{
    _mm512_storeu_ps(to, x);
}

/* All 16 the same, from memory: a part of the instruction that multiplies. */
INLINE pv pv_load_all(const float *from)
{
    return _mm512_set1_ps(*from);
}

INLINE pv pv_mul(pv a, pv b)
{
    return _mm512_mul_ps(a, b);
}

INLINE pv pv_fma(pv a, pv b, pv c)
{
    return _mm512_fmadd_ps(a, b, c);
}

#ifdef SIMD_DOTS
INLINE pv pv_add_dots(pv sums, pv a, pv b)
{
    return _mm512_dpbf16_ps(sums, (__m512bh)a, (__m512bh)b);
}
#endif
