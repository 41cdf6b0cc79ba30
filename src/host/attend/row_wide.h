/* score() and weigh() of kernels.h for one query row that asks for lines itself, on CPUs that do
 * not follow it far enough (ta_host_row_ahead_bytes()): while a vector is read, the lines of the
 * one that is read `row_ahead` tokens later are asked for, past the second level of cache, which
 * nobody else needs them in. Memory is read strictly in its own order: a token with all its heads,
 * then the next token. Part of attend_wide.h. */

/* Where the vector is that is asked for while that of `token` is read. One beyond the last token
 * does no harm; of a list it is one that is known. */
INLINE const char *row_next(const ta_block *b, int token)
{
    int next = token + b->row_ahead;
    return b->row_each ? (const char *)b->row_each[next < b->row_known ? next : b->row_known - 1]
                       : b->tokens.first + next * b->tokens.step;
}

INLINE void ask_for_lines(const char *line, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += TA_LINE_BYTES)
        __builtin_prefetch(line + i, 0, 0);
}

/* The products of one row and one key in 8 sums. One head adds them as score_in_order() does,
 * several as score_tokens(): bits are theirs. */
INLINE vf score_key(ta_dtype dtype, int in_halves, const float *q, const char *key, int32_t k_dim)
{
    vf half[2] = {vf_zero(), vf_zero()};
    int32_t i = 0;
    for (; i + PAIR <= k_dim; i += PAIR) {
        if (dtype == PACKED || !in_halves) {
            score_dims(dtype, 1, 1, PAIR, q, 0, &key, i, half);
        } else {
            half[0] = vf_fma(vf_load(q + i), load_half(dtype, key, i, 0), half[0]);
            half[1] = vf_fma(vf_load(q + i + LANES), load_half(dtype, key, i, 1), half[1]);
        }
    }
    if (i < k_dim)
        score_dims(dtype, 1, 1, LANES, q, 0, &key, i, half);
    return in_halves ? vf_add(half[0], half[1]) : half[0];
}

/* Four tokens of the one head. */
INLINE void score_row_alone(ta_dtype dtype, int even, const ta_block *b, const float *q)
{
    const int64_t bytes = b->dim * (int64_t)key_bytes(dtype);
    const ta_walk walk = {.tokens = b->tokens};
    for (int t = 0; t < b->tokens.n; t += 4) {
        int n = b->tokens.n - t < 4 ? b->tokens.n - t : 4;
        vf sums[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
        for (int i = 0; i < n; i++) {
            ask_for_lines(row_next(b, t + i), bytes);
            sums[i] = score_key(dtype, 1, q, ta_walk_at(&walk, even, t + i), b->dim);
        }
        vf_store_sum4(b->scores + t, sums);
    }
}

/* Four heads of a token after the other. */
INLINE void score_row_heads(ta_dtype dtype, int even, const ta_block *b, const float *q)
{
    const int64_t bytes = b->dim * (int64_t)key_bytes(dtype);
    const ta_walk walk = {.tokens = b->tokens};
    for (int t = 0; t < b->tokens.n; t++) {
        const char *key = ta_walk_at(&walk, even, t), *next = row_next(b, t);
        for (int h = 0; h < b->heads; h += 4) {
            int n = b->heads - h < 4 ? b->heads - h : 4;
            float scores[4];
            vf sums[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
            for (int i = 0; i < n; i++) {
                int64_t offset = (h + i) * b->token_head_bytes;
                ask_for_lines(next + offset, bytes);
                sums[i] = score_key(dtype, 0, q + (h + i) * b->head_stride, key + offset, b->dim);
            }
            vf_store_sum4(scores, sums);
            for (int i = 0; i < n; i++)
                b->scores[(h + i) * TA_BLOCK_SCORES + t] = scores[i];
        }
    }
}

INLINE void score_row(ta_dtype dtype, int even, const ta_block *b, const float *q)
{
    if (b->heads == 1)
        score_row_alone(dtype, even, b, q);
    else
        score_row_heads(dtype, even, b, q);
}

INLINE void score_any_wide(ta_dtype dtype, const ta_block *b, const float *q)
{
    if (!b->row_ahead)
        score_any(dtype, b, q);
    else if (b->tokens.step)
        score_row(dtype, 1, b, q);
    else
        score_row(dtype, 0, b, q);
}
