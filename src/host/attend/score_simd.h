/* score() of kernels.h over vectors of 8 floats: part of attend_simd.h. */

/* Beside the element types: K in bf16 for packed query rows, of levels that define SIMD_DOTS. */
#define PACKED ((ta_dtype)TA_DTYPE_END)

INLINE int key_bytes(ta_dtype dtype)
{
    return (int)ta_dtype_bytes(dtype == PACKED ? TA_BF16 : dtype);
}

/* Add 8 products for each of `rows` query rows and `tokens` keys. */
INLINE void score_step(int rows, int tokens, const float *q, int64_t q_stride, const vf *key,
                       vf *sums)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        vf query = vf_load(q + r * q_stride);
        UNROLL
        for (int t = 0; t < tokens; t++)
            sums[t * rows + r] = vf_fma(query, key[t], sums[t * rows + r]);
    }
}

/* The same for `count` products at once, 16 or 8, from dimension i on. */
INLINE void score_dots(int rows, int tokens, int count, const float *q, int64_t q_stride,
                       const char *const *from, int32_t i, vf *sums)
{
#ifdef SIMD_DOTS
    vd key[4];
    UNROLL
    for (int t = 0; t < tokens; t++)
        key[t] = vd_load(from[t], i, count);
    UNROLL
    for (int r = 0; r < rows; r++) {
        vd query = vd_load(q + r * q_stride, i, count);
        UNROLL
        for (int t = 0; t < tokens; t++)
            sums[t * rows + r] = vf_add_dots(sums[t * rows + r], query, key[t]);
    }
#else
    (void)rows, (void)tokens, (void)count, (void)q, (void)q_stride, (void)from, (void)i, (void)sums;
#endif
}

/* The products of the dimensions from i on: 16, or the last 8. */
INLINE void score_dims(ta_dtype dtype, int rows, int tokens, int count, const float *q,
                       int64_t q_stride, const char *const *from, int32_t i, vf *sums)
{
    vf key[4];
    if (dtype == PACKED) {
        score_dots(rows, tokens, count, q, q_stride, from, i, sums);
        return;
    }
    UNROLL
    for (int half = 0; half < count / LANES; half++) {
        UNROLL
        for (int t = 0; t < tokens; t++)
            key[t] = count == LANES ? load8(dtype, from[t], i)
                     : EVEN_ODD(dtype) && half && SIMD_REGISTERS == 16
                         ? vf_load_bf16_odd_tight((const uint16_t *)(const void *)from[t] + i)
                         : load_half(dtype, from[t], i, half);
        score_step(rows, tokens, q + i + half * LANES, q_stride, key, sums);
    }
}

/* `rows` query rows against `tokens` keys from `first` on, which start `offset` bytes after those
 * of the first head. Writes scores by fours; those beyond the sums mean nothing. */
INLINE void score_tokens(ta_dtype dtype, int rows, int even, int tokens, const float *q,
                         int64_t q_stride, ta_walk *walk, int first, int64_t offset, int32_t k_dim,
                         float *scores)
{
    const int lines = (tokens * PAIR * key_bytes(dtype) + TA_LINE_BYTES - 1) / TA_LINE_BYTES;
    const int eights = rows * tokens / 8 * 8;
    const char *from[4];
    vf sums[SCORE_SUMS];
    UNROLL
    for (int t = 0; t < tokens; t++)
        from[t] = ta_walk_at(walk, even, first + t) + offset;
    UNROLL
    for (int i = 0; i < SCORE_SUMS; i++)
        sums[i] = vf_zero();
    int32_t i = 0;
    for (; i + PAIR <= k_dim; i += PAIR) {
        ta_walk_fetch(walk, even, lines);
        score_dims(dtype, rows, tokens, PAIR, q, q_stride, from, i, sums);
    }
    if (i < k_dim)
        score_dims(dtype, rows, tokens, LANES, q, q_stride, from, i, sums);
    UNROLL
    for (int s = 0; s < eights; s += 8)
        vf_store_sum8(scores + s, sums + s);
    UNROLL
    for (int s = eights; s < rows * tokens; s += 4)
        vf_store_sum4(scores + s, sums + s);
}

/* One query row against up to 4 keys, one after the other: memory is read in its own order, which
 * is what counts here. */
INLINE void score_in_order(ta_dtype dtype, int even, const float *q, ta_walk *walk, int first,
                           int tokens, int32_t k_dim, float *scores)
{
    const int key_lines = k_dim * key_bytes(dtype) / TA_LINE_BYTES;
    vf sums[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int t = 0; t < tokens; t++) {
        const char *key = ta_walk_at(walk, even, first + t);
        vf half[2] = {vf_zero(), vf_zero()};
        if (ta_walk_fetches(walk, even)) /* else the CPU follows by itself */
            ta_walk_fetch(walk, even, key_lines);
        int32_t i = 0;
        for (; i + PAIR <= k_dim; i += PAIR) {
            if (dtype == PACKED) {
                score_dots(1, 1, PAIR, q, 0, &key, i, half);
            } else {
                half[0] = vf_fma(vf_load(q + i), load_half(dtype, key, i, 0), half[0]);
                half[1] = vf_fma(vf_load(q + i + LANES), load_half(dtype, key, i, 1), half[1]);
            }
        }
        if (i < k_dim)
            score_dims(dtype, 1, 1, LANES, q, 0, &key, i, half);
        sums[t] = vf_add(half[0], half[1]);
    }
    vf_store_sum4(scores, sums);
}

/* The tokens [t, end) of one head, `most` at a time. */
INLINE void score_head(ta_dtype dtype, int rows, int even, int most, const ta_block *b,
                       const float *q, ta_walk *walk, int t, int end, int64_t offset, float *scores)
{
    for (; t + most <= end && (most == 4 || end - t != 4); t += most)
        score_tokens(dtype, rows, even, most, q, b->row_stride, walk, t, offset, b->dim,
                     scores + t * rows);
    for (; t + 2 <= end; t += 2)
        score_tokens(dtype, rows, even, 2, q, b->row_stride, walk, t, offset, b->dim,
                     scores + t * rows);
    if (t < end)
        score_tokens(dtype, rows, even, 1, q, b->row_stride, walk, t, offset, b->dim,
                     scores + t * rows);
}

INLINE void score_block(ta_dtype dtype, int rows, int even, ta_block b, ta_walk walk,
                        const float *q)
{
    const int most = rows == 1 ? 4 : rows == TA_ROW_BLOCK ? SCORE_TOKENS : SCORE_TOKENS_MANY;
    int n = b.tokens.n, group = rows == 1 ? 4 : ta_pass_tokens(&b, (size_t)key_bytes(dtype));
    for (int t = 0; rows == 1 && b.heads == 1 && t < n; t += 4)
        score_in_order(dtype, even, q, &walk, t, n - t < 4 ? n - t : 4, b.dim, b.scores + t);
    for (int t = 0; (rows > 1 || b.heads > 1) && t < n; t += group) {
        int end = t + group < n ? t + group : n;
        for (int h = 0; h < b.heads; h++)
            score_head(dtype, rows, even, most, &b, q + h * b.head_stride, &walk, t, end,
                       h * b.token_head_bytes, b.scores + h * TA_BLOCK_SCORES);
    }
}

INLINE void score_rows(ta_dtype dtype, int rows, const ta_block *b, const float *q)
{
    ta_walk walk = ta_walk_start(b, (size_t)key_bytes(dtype));
    if (ta_walk_is_even(&walk))
        score_block(dtype, rows, 1, *b, walk, q);
    else
        score_block(dtype, rows, 0, *b, walk, q);
}

INLINE void score_any(ta_dtype dtype, const ta_block *b, const float *q)
{
    if (SIMD_ROWS > TA_ROW_BLOCK && b->rows == SIMD_ROWS)
        score_rows(dtype, SIMD_ROWS, b, q);
    else if (b->rows == TA_ROW_BLOCK)
        score_rows(dtype, TA_ROW_BLOCK, b, q);
    else
        score_rows(dtype, 1, b, q);
}
