/* weigh() of kernels.h over vectors of 8 floats: part of attend_simd.h. */

/* Passes over 4 tokens load and store sums more often, long ones read memory less in its own order,
 * which is worth it where arithmetic is the limit: in 16-bit types, with many rows, or if more
 * blocks of rows use the tokens. */
INLINE int short_passes(ta_dtype dtype, int rows, int shared)
{
    return rows == 1 || (rows == TA_ROW_BLOCK && ta_dtype_bytes(dtype) == 4 && !shared);
}

/* One pass over values: those of tokens [first, first + n) of a block, of the head that is `offset`
 * bytes after the first one. The sums of the block's `rows` rows are v_dim apart, and o is
 * row_stride apart. */
typedef struct weigh_pass {
    int first, n;
    int64_t offset;
    const float *weights;
    float *sums; /* of the tokens before, unless this is the first pass; see is_last */
    float *o;
    const float *rescale;
    int64_t row_stride;
    int32_t v_dim;
    int is_first, is_last;
    int following; /* tokens that follow these at the same distance, and come next */
    int scattered;
    int shared;
} weigh_pass;

/* o = o · rescale + sums, for the vectors of one row from dimension `at` on. */
INLINE void finish_row(ta_dtype dtype, int vectors, const weigh_pass *p, int row, int32_t at,
                       vf *sums)
{
    float *o = p->o + row * p->row_stride + at;
    vf rescale = vf_set(p->rescale[row]);
    UNROLL
    for (int i = 0; i < vectors / 2; i++) {
        if (EVEN_ODD(dtype))
            vf_interleave(&sums[2 * i], &sums[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < vectors; i++)
        vf_store(o + i * LANES, vf_fma(vf_load(o + i * LANES), rescale, sums[i]));
}

/* While `bytes` from byte `at` on of a token are weighed, what is weighed next at its place is
 * asked for, from the second level of cache into the first: the token's next bytes, or the first
 * ones of the token that is as far into the next pass. How far away that is; 0: not known. */
INLINE int64_t near_bytes(const weigh_pass *p, int64_t step, int bytes, int at, int all)
{
    if (p->scattered) /* it may not have come into the second level yet */
        return 0;
    if (at + bytes < all)
        return bytes;
    return p->following >= p->n ? p->n * step - at : 0;
}

/* The dimensions [at, at + 8·vectors) of a pass. */
INLINE void weigh_dims(ta_dtype dtype, int rows, int even, int is_short, int vectors,
                       const weigh_pass *p, ta_walk *walk, int32_t at)
{
    /* Of vectors smaller than a line, one that begins a line asks for the next. */
    const int bytes = vectors * LANES * (int)ta_dtype_bytes(dtype);
    const int at_bytes = at * (int)ta_dtype_bytes(dtype);
    int lines = bytes >= TA_LINE_BYTES ? bytes / TA_LINE_BYTES : at_bytes % TA_LINE_BYTES == 0;
    const int64_t offset = p->offset + at_bytes;
    const float *weights = p->weights;
    vf part[WEIGH_SUMS];
    UNROLL
    for (int i = 0; i < rows * vectors; i++)
        part[i] = p->is_first
                      ? vf_zero()
                      : vf_load(p->sums + i / vectors * p->v_dim + at + i % vectors * LANES);
    const int64_t near = near_bytes(p, even ? walk->tokens.step : 0, bytes, at_bytes,
                                    p->v_dim * (int)ta_dtype_bytes(dtype));
    for (int t = 0; t < p->n; t++) {
        const char *from = ta_walk_at(walk, even, p->first + t) + offset;
        vf value[8];
        if (rows > 1 || ta_walk_fetches(walk, even))
            ta_walk_fetch(walk, even, lines);
        if (!is_short)
            __builtin_prefetch(from + near, 0, 3);
        UNROLL
        for (int i = 0; i < vectors; i++)
            value[i] =
                vectors == 1 ? load8(dtype, from, 0) : load_half(dtype, from, i / 2 * PAIR, i % 2);
        UNROLL
        for (int r = 0; r < rows; r++) {
            vf weight = vf_load_all(weights + r);
            UNROLL
            for (int i = 0; i < vectors; i++)
                part[r * vectors + i] = vf_fma(weight, value[i], part[r * vectors + i]);
        }
        weights += rows;
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        if (p->is_last) {
            finish_row(dtype, vectors, p, r, at, part + r * vectors);
            continue;
        }
        UNROLL
        for (int i = 0; i < vectors; i++)
            vf_store(p->sums + r * p->v_dim + at + i * LANES, part[r * vectors + i]);
    }
}

/* Nearly all values of several rows are weighed here. Functions of their own: in larger ones,
 * compilers run out of registers. */
#define WEIGH_MANY(suffix, dtype, bytes, roles, rows, even, name)                                  \
    static __attribute__((noinline)) void name##suffix(const weigh_pass *p, ta_walk *walk,         \
                                                       int32_t at)                                 \
    {                                                                                              \
        weigh_dims(dtype, rows, even, 0, WEIGH_SUMS / (rows), p, walk, at);                        \
    }
TA_DTYPE_WIDE_LIST(WEIGH_MANY, TA_ROW_BLOCK, 0, weigh_many_)
TA_DTYPE_WIDE_LIST(WEIGH_MANY, TA_ROW_BLOCK, 1, weigh_many_even_)
#if SIMD_REGISTERS == 32
TA_DTYPE_WIDE_LIST(WEIGH_MANY, TA_ROWS_MOST, 0, weigh_most_)
TA_DTYPE_WIDE_LIST(WEIGH_MANY, TA_ROWS_MOST, 1, weigh_most_even_)
#endif

INLINE void weigh_many(ta_dtype dtype, int rows, int even, const weigh_pass *p, ta_walk *walk,
                       int32_t at)
{
    switch (dtype) {
    default:
        break;
#if SIMD_REGISTERS == 32
#define WEIGH_MOST(suffix)                                                                         \
    if (rows == TA_ROWS_MOST) {                                                                    \
        even ? weigh_most_even_##suffix(p, walk, at) : weigh_most_##suffix(p, walk, at);           \
        break;                                                                                     \
    }
#else
#define WEIGH_MOST(suffix) (void)rows;
#endif
#define WEIGH_CASE(suffix, number, ...)                                                            \
    case number:                                                                                   \
        WEIGH_MOST(suffix)                                                                         \
        even ? weigh_many_even_##suffix(p, walk, at) : weigh_many_##suffix(p, walk, at);           \
        break;
        TA_DTYPE_WIDE_LIST(WEIGH_CASE, )
    }
}

INLINE void weigh_tokens(ta_dtype dtype, int rows, int even, const weigh_pass *p, ta_walk *walk)
{
    const int most = rows == 1 ? 8 : WEIGH_SUMS / rows;
    int32_t at = 0;
    for (; at + most * LANES <= p->v_dim; at += most * LANES) {
        if (short_passes(dtype, rows, p->shared))
            weigh_dims(dtype, rows, even, 1, most, p, walk, at);
        else
            weigh_many(dtype, rows, even, p, walk, at);
    }
    for (; most > 2 && at + PAIR <= p->v_dim; at += PAIR)
        weigh_dims(dtype, rows, even, 1, 2, p, walk, at);
    if (at < p->v_dim)
        weigh_dims(dtype, rows, even, 1, 1, p, walk, at);
}

/* Values are taken in passes: within a pass dimension by dimension, with sums in registers. */
INLINE void weigh_block(ta_dtype dtype, int rows, int even, ta_block b, ta_walk walk, float *o,
                        const float *rescale)
{
    int most = short_passes(dtype, rows, b.shared) ? 4 : ta_pass_tokens(&b, ta_dtype_bytes(dtype));
    for (int t = 0; t < b.tokens.n; t += most) {
        int n = b.tokens.n - t < most ? b.tokens.n - t : most;
        for (int h = 0; h < b.heads; h++) {
            weigh_pass pass = {.first = t,
                               .n = n,
                               .offset = h * b.token_head_bytes,
                               .weights = b.scores + h * TA_BLOCK_SCORES + t * rows,
                               .sums = b.sums + h * rows * b.dim,
                               .o = o + h * b.head_stride,
                               .rescale = rescale + h * TA_ROWS_MOST,
                               .row_stride = b.row_stride,
                               .v_dim = b.dim,
                               .is_first = t == 0,
                               .is_last = t + n == b.tokens.n,
                               .following = b.heads > 1 ? 0 : b.tokens.n - t - n + b.tokens.more,
                               .scattered = b.scattered,
                               .shared = b.shared};
            weigh_tokens(dtype, rows, even, &pass, &walk);
        }
    }
}

INLINE void weigh_rows(ta_dtype dtype, int rows, const ta_block *b, float *o, const float *rescale)
{
    ta_walk walk = ta_walk_start(b, ta_dtype_bytes(dtype));
    if (ta_walk_is_even(&walk))
        weigh_block(dtype, rows, 1, *b, walk, o, rescale);
    else
        weigh_block(dtype, rows, 0, *b, walk, o, rescale);
}

INLINE void weigh_any(ta_dtype dtype, const ta_block *b, float *o, const float *rescale)
{
    if (SIMD_ROWS > TA_ROW_BLOCK && b->rows == SIMD_ROWS)
        weigh_rows(dtype, SIMD_ROWS, b, o, rescale);
    else if (b->rows == TA_ROW_BLOCK)
        weigh_rows(dtype, TA_ROW_BLOCK, b, o, rescale);
    else
        weigh_rows(dtype, 1, b, o, rescale);
}
