/* score() and weigh() of kernels.h for one query row over K and V of 8 bits, with AVX512_VBMI: what
 * is read from memory is widened in registers, where it is used. One row has little to compute, and
 * a widened copy of each tile would cost more than that; several rows share one (widen.h).
 * reads_narrow() asks the CPU. Part of attend_wide.h.
 *
 * 64 bytes become two vectors of 32 bf16, of which the first has elements 0 to 7, 16 to 23, 32 to
 * 39 and 48 to 55: what unpacking takes of each quarter. As floats, each of these is its even and
 * its odd elements. arrange() and pack() put query rows into that order, and sums over V are put
 * back in the end. Where the last elements of a row are fewer than 64, the missing ones are 0, and
 * query rows leave them out. */

#define NARROW 64

/* How far ahead lines are asked for, in bytes: there is too little to compute between two of them
 * for the CPU to be in time by itself. What is asked for beyond the last token does no harm. */
#define NARROW_AHEAD 4096
#define VBMI __attribute__((target("avx512vbmi")))
#define VBMI_INLINE static inline __attribute__((always_inline, target("avx512vbmi")))

/* Lanes of the mask that are set for the first n. */
INLINE uint64_t first_lanes(int32_t n)
{
    return n >= 64 ? ~0ull : n <= 0 ? 0 : (1ull << n) - 1;
}

/* Of n elements, at most 64, those in the first vector. */
INLINE int32_t narrow_first(int32_t n)
{
    return n >= NARROW ? NARROW / 2 : (n + 15) / 16 * 8;
}

typedef struct narrow_table {
    __m512i low[2], high[2], sign;
} narrow_table;

VBMI_INLINE narrow_table narrow_table_of(ta_dtype dtype)
{
    const __m512i *low = (const __m512i *)(const void *)lookup_bytes[dtype][0];
    const __m512i *high = (const __m512i *)(const void *)lookup_bytes[dtype][1];
    return (narrow_table){
        .low = {low[0], low[1]}, .high = {high[0], high[1]}, .sign = _mm512_set1_epi8((char)0x80)};
}

/* Two vectors of 32 bf16. */
typedef struct narrow_words {
    __m512i words[2];
} narrow_words;

VBMI_INLINE narrow_words narrow_widen(ta_dtype dtype, const narrow_table *table, __m512i x)
{
    const int is_fnuz = dtype == TA_E4M3_FNUZ || dtype == TA_E5M2_FNUZ;
    __m512i lower = _mm512_permutex2var_epi8(table->low[0], x, table->low[1]);
    __m512i upper = _mm512_permutex2var_epi8(table->high[0], x, table->high[1]);
    upper = _mm512_ternarylogic_epi64(upper, x, table->sign, 0xf8); /* upper | (x & sign) */
    if (is_fnuz) {                                                  /* 0x80 is no number */
        __mmask64 nan = _mm512_cmpeq_epi8_mask(x, table->sign);
        upper = _mm512_mask_mov_epi8(upper, nan, _mm512_set1_epi8(0x7f));
        lower = _mm512_mask_mov_epi8(lower, nan, _mm512_set1_epi8((char)0xc0));
    }
    return (narrow_words){{_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)}};
}

/* The even or the odd elements of 32. */
VBMI_INLINE wf narrow_floats(__m512i words, int odd)
{
    return _mm512_castsi512_ps(odd ? _mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000u))
                                   : _mm512_slli_epi32(words, 16));
}

/* The 64 elements from `from` on, or the first `left` of them and zeros. Instructions that look up
 * overwrite what they are given: to load it again for each of them, as compilers would, takes
 * longer than to copy registers. */
VBMI_INLINE __m512i narrow_load(const char *from, int32_t left)
{
    __m512i x = left >= NARROW ? _mm512_loadu_si512(from)
                               : _mm512_maskz_loadu_epi8(first_lanes(left), from);
    __asm__("" : "+v"(x));
    return x;
}

/* ---- Scores -------------------------------------------------------------------------------- */

/* Add the products of n elements, at most 64, of each of so many keys with a query row, packed if
 * `dots`, else arranged. */
VBMI_INLINE void narrow_products(ta_dtype dtype, int dots, int tokens, int32_t n,
                                 const narrow_table *table, const float *q, const char *const *keys,
                                 int32_t at, wf (*sums)[2])
{
    const int32_t counts[2] = {narrow_first(n), n - narrow_first(n)};
    narrow_words k[4];
    UNROLL
    for (int t = 0; t < tokens; t++) {
        __builtin_prefetch(keys[t] + at + NARROW_AHEAD, 0, 2);
        k[t] = narrow_widen(dtype, table, narrow_load(keys[t] + at, n));
    }
    UNROLL
    for (int part = 0; part < 2; part++) {
        int32_t index = at + part * counts[0];
#ifdef SIMD_DOTS
        if (dots) {
            __m512i query = _mm512_maskz_loadu_epi16((__mmask32)first_lanes(counts[part]),
                                                     (const uint16_t *)(const void *)q + index);
            UNROLL
            for (int t = 0; t < tokens; t++)
                sums[t][part] =
                    _mm512_dpbf16_ps(sums[t][part], (__m512bh)query, (__m512bh)k[t].words[part]);
            continue;
        }
#endif
        UNROLL
        for (int odd = 0; odd < 2; odd++) {
            int32_t half = counts[part] / 2;
            wf query = _mm512_maskz_loadu_ps((__mmask16)first_lanes(half), q + index + odd * half);
            UNROLL
            for (int t = 0; t < tokens; t++)
                sums[t][odd] =
                    _mm512_fmadd_ps(query, narrow_floats(k[t].words[part], odd), sums[t][odd]);
        }
    }
    (void)dots;
}

/* 4 keys, or one, of the head that is `offset` bytes after the first one. Writes 4 scores. */
VBMI_INLINE void narrow_score_tokens(ta_dtype dtype, int dots, int even, int tokens,
                                     const narrow_table *table, const float *q, ta_walk *walk,
                                     int first, int64_t offset, int32_t k_dim, float *scores)
{
    const char *keys[4];
    wf sums[4][2];
    vf lanes[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    UNROLL
    for (int t = 0; t < tokens; t++) {
        keys[t] = ta_walk_at(walk, even, first + t) + offset;
        sums[t][0] = sums[t][1] = _mm512_setzero_ps();
    }
    int32_t i = 0;
    for (; i + NARROW <= k_dim; i += NARROW) {
        if (ta_walk_fetches(walk, even))
            ta_walk_fetch(walk, even, tokens);
        narrow_products(dtype, dots, tokens, NARROW, table, q, keys, i, sums);
    }
    if (i < k_dim) {
        if (ta_walk_fetches(walk, even))
            ta_walk_fetch(walk, even, tokens);
        narrow_products(dtype, dots, tokens, k_dim - i, table, q, keys, i, sums);
    }
    UNROLL
    for (int t = 0; t < tokens; t++) {
        wf all = _mm512_add_ps(sums[t][0], sums[t][1]);
        lanes[t] = vf_add(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    }
    vf_store_sum4(scores, lanes);
}

VBMI_INLINE void narrow_score_block(ta_dtype dtype, int dots, int even, const ta_block *b,
                                    const float *q, ta_walk walk)
{
    const narrow_table table = narrow_table_of(dtype);
    for (int t = 0, n; t < b->tokens.n; t += n) {
        n = t + 4 <= b->tokens.n ? 4 : 1;
        for (int h = 0; h < b->heads; h++) {
            const float *query = q + h * b->head_stride;
            int64_t offset = h * b->token_head_bytes;
            float *scores = b->scores + h * TA_BLOCK_SCORES + t;
            if (n == 4)
                narrow_score_tokens(dtype, dots, even, 4, &table, query, &walk, t, offset, b->dim,
                                    scores);
            else
                narrow_score_tokens(dtype, dots, even, 1, &table, query, &walk, t, offset, b->dim,
                                    scores);
        }
    }
}

VBMI_INLINE void narrow_score(ta_dtype dtype, int dots, const ta_block *b, const float *q)
{
    ta_walk walk = ta_walk_start(b, 1);
    if (ta_walk_is_even(&walk))
        narrow_score_block(dtype, dots, 1, b, q, walk);
    else
        narrow_score_block(dtype, dots, 0, b, q, walk);
}

/* Each 64 numbers, or what is left of them: those of the first vector, then those of the second. */
INLINE void narrow_order(float *q, int32_t n)
{
    float all[NARROW];
    for (int32_t i = 0, next[2] = {0, narrow_first(n)}; i < n; i++)
        all[next[i / 8 % 2]++] = q[i];
    memcpy(q, all, (size_t)n * sizeof *q);
}

/* And of each of these the even ones, then the odd ones. */
INLINE void narrow_arrange(float *q, int32_t k_dim)
{
    for (int32_t i = 0; i < k_dim; i += NARROW) {
        int32_t n = k_dim - i < NARROW ? k_dim - i : NARROW, first = narrow_first(n);
        float pair[NARROW];
        narrow_order(q + i, n);
        for (int32_t j = 0; j < n; j++) {
            int32_t start = j < first ? 0 : first, count = j < first ? first : n - first;
            pair[start + (j - start) % 2 * (count / 2) + (j - start) / 2] = q[i + j];
        }
        memcpy(q + i, pair, (size_t)n * sizeof *q);
    }
}

/* ---- Values -------------------------------------------------------------------------------- */

/* One pass over values: those of tokens [first, first + n) of a block, of one head. */
typedef struct narrow_pass {
    int first, n;
    int64_t offset; /* of the head, in bytes */
    const float *weights;
    float *sums; /* of the tokens before, unless this is the first pass; arranged */
    float *o;
    float rescale;
    int is_first, is_last;
} narrow_pass;

/* o = o · rescale + sums, for `left` dimensions of 64; sums are the even and the odd ones of both
 * vectors. */
VBMI_INLINE void narrow_finish(float *o, float rescale, wf *sums, int32_t left)
{
    interleave_wide(&sums[0], &sums[1]);
    interleave_wide(&sums[2], &sums[3]);
    UNROLL
    for (int i = 0; i < 4; i++) {
        wf all = i % 2 ? _mm512_shuffle_f32x4(sums[i / 2], sums[i / 2 + 2], 0xee)
                       : _mm512_shuffle_f32x4(sums[i / 2], sums[i / 2 + 2], 0x44);
        __mmask16 lanes = (__mmask16)first_lanes(left - i * WIDE);
        wf before = _mm512_maskz_loadu_ps(lanes, o + i * WIDE);
        _mm512_mask_storeu_ps(o + i * WIDE, lanes,
                              _mm512_fmadd_ps(before, _mm512_set1_ps(rescale), all));
    }
}

/* The `left` dimensions from `at` on, at most 64 · lines of them. Sums stay in registers. */
VBMI_INLINE void narrow_weigh_dims(ta_dtype dtype, int even, int lines, int whole,
                                   const narrow_table *table, const narrow_pass *p, ta_walk *walk,
                                   int32_t at, int32_t left)
{
    wf sums[8];
    UNROLL
    for (int i = 0; i < 4 * lines; i++)
        sums[i] = p->is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(p->sums + at + i * WIDE);
    for (int t = 0; t < p->n; t++) {
        const char *from = ta_walk_at(walk, even, p->first + t) + p->offset + at;
        wf weight = _mm512_set1_ps(p->weights[t]);
        if (ta_walk_fetches(walk, even))
            ta_walk_fetch(walk, even, lines);
        UNROLL
        for (int line = 0; line < lines; line++) {
            __builtin_prefetch(from + line * NARROW + NARROW_AHEAD, 0, 2);
            narrow_words v = narrow_widen(dtype, table,
                                          narrow_load(from + line * NARROW, whole ? NARROW : left));
            UNROLL
            for (int i = 0; i < 4; i++)
                sums[4 * line + i] = _mm512_fmadd_ps(weight, narrow_floats(v.words[i / 2], i % 2),
                                                     sums[4 * line + i]);
        }
    }
    UNROLL
    for (int line = 0; line < lines; line++) {
        if (p->is_last) {
            narrow_finish(p->o + at + line * NARROW, p->rescale, sums + 4 * line,
                          left - line * NARROW);
            continue;
        }
        UNROLL
        for (int i = 0; i < 4; i++)
            _mm512_storeu_ps(p->sums + at + line * NARROW + i * WIDE, sums[4 * line + i]);
    }
}

VBMI_INLINE void narrow_weigh_pass(ta_dtype dtype, int even, const narrow_table *table,
                                   const narrow_pass *p, ta_walk *walk, int32_t v_dim)
{
    int32_t at = 0;
    for (; at + 2 * NARROW <= v_dim; at += 2 * NARROW)
        narrow_weigh_dims(dtype, even, 2, 1, table, p, walk, at, 2 * NARROW);
    if (at + NARROW <= v_dim) {
        narrow_weigh_dims(dtype, even, 1, 1, table, p, walk, at, NARROW);
        at += NARROW;
    }
    if (at < v_dim)
        narrow_weigh_dims(dtype, even, 1, 0, table, p, walk, at, v_dim - at);
}

/* One head takes all tokens in one pass; several take a few tokens in turn, so that memory is read
 * in its own order. Their sums have whole lines of memory. */
VBMI_INLINE void narrow_weigh_block(ta_dtype dtype, int even, const ta_block *b, ta_walk walk,
                                    float *o, const float *rescale)
{
    const narrow_table table = narrow_table_of(dtype);
    int64_t sums_stride = (b->dim + NARROW - 1) / NARROW * NARROW;
    int most = b->heads > 1 && b->heads * sums_stride <= TA_BLOCK_VALUES ? 4 : b->tokens.n;
    for (int t = 0; t < b->tokens.n; t += most) {
        int n = b->tokens.n - t < most ? b->tokens.n - t : most;
        for (int h = 0; h < b->heads; h++) {
            narrow_pass pass = {.first = t,
                                .n = n,
                                .offset = h * b->token_head_bytes,
                                .weights = b->scores + h * TA_BLOCK_SCORES + t,
                                .sums = b->sums + h * sums_stride,
                                .o = o + h * b->head_stride,
                                .rescale = rescale[h * TA_ROWS_MOST],
                                .is_first = t == 0,
                                .is_last = t + n == b->tokens.n};
            narrow_weigh_pass(dtype, even, &table, &pass, &walk, b->dim);
        }
    }
}

VBMI_INLINE void narrow_weigh(ta_dtype dtype, const ta_block *b, float *o, const float *rescale)
{
    ta_walk walk = ta_walk_start(b, 1);
    if (ta_walk_is_even(&walk))
        narrow_weigh_block(dtype, 1, b, walk, o, rescale);
    else
        narrow_weigh_block(dtype, 0, b, walk, o, rescale);
}

/* ---- The slots ----------------------------------------------------------------------------- */

static int reads_narrow(void)
{
    return __builtin_cpu_supports("avx512vbmi") != 0;
}

#define FOR_NARROW_ROW(suffix, dtype, ...)                                                         \
    static void arrange_##suffix(float *q, int32_t k_dim)                                          \
    {                                                                                              \
        narrow_arrange(q, k_dim);                                                                  \
    }                                                                                              \
    VBMI static void score_##suffix(const ta_block *block, const float *q)                         \
    {                                                                                              \
        narrow_score(dtype, 0, block, q);                                                          \
    }                                                                                              \
    VBMI static void weigh_##suffix(const ta_block *block, float *o, const float *rescale)         \
    {                                                                                              \
        narrow_weigh(dtype, block, o, rescale);                                                    \
    }
TA_DTYPE_NARROW_LIST(FOR_NARROW_ROW, )
