/* The arithmetic of the host device: a table of small functions, one table for each SIMD level.
 * kernels_scalar.c is the truth and readable; attend_simd.h is the same over vector operations,
 * which kernels_avx2.c supplies. kernels.c chooses. attend.c calls them and owns everything that is
 * not arithmetic: which tokens, which rows, where they are. */
#ifndef TA_HOST_KERNELS_H
#define TA_HOST_KERNELS_H

#include <stdint.h>

#include <treeattn/treeattn.h>

/* Tokens that one call of a kernel takes: a bit set of them fits one word. */
#define TA_TOKEN_BLOCK 64

/* Query rows that share each load of K and V: as many as leave enough registers for the sums. */
#define TA_ROW_BLOCK 4

/* Room for the scores of a block of tokens and rows; functions may write up to the next multiple of
 * 8. */
#define TA_BLOCK_SCORES (TA_TOKEN_BLOCK * TA_ROW_BLOCK + 8)

/* Indexed by ta_dtype. */
#define TA_DTYPES 4

typedef struct ta_host_kernels {
    const char *name;

    /* to[i] = from[i] · factor. */
    void (*load[TA_DTYPES])(const void *from, int32_t n, float factor, float *to);

    /* to[i] = from[i] · factor, rounded to the element type. */
    void (*store[TA_DTYPES])(const float *from, int32_t n, float factor, void *to);

    /* Put the k_dim numbers of a query row, in place, into the order in which this level's score()
     * takes them for K of this type. */
    void (*arrange[TA_DTYPES])(float *q, int32_t k_dim);

    /* scores[t·rows + r] = q_r · k[t] for `rows` (1 or TA_ROW_BLOCK) arranged query rows `q_stride`
     * floats apart and n ≤ TA_TOKEN_BLOCK tokens; k[t] points to the token's vector. */
    void (*score[TA_DTYPES])(const float *q, int64_t q_stride, int rows, const void *const *k,
                             int n, int32_t k_dim, float *scores);

    /* s = cap · tanh(s) for n scores. */
    void (*softcap)(float *scores, int n, float cap);

    /* Turn scores, in base 2 and as score() leaves them, into weights exp2(s - m), where m is the
     * row's new maximum. m[r] and l[r] are brought up to date, rescale[r] is what the row's o must
     * be multiplied by. A NaN among a row's scores makes its m, l and weights NaN. Returns whether
     * there is a score of -inf; only then hidden[r] is the set of such tokens of row r, bit t for
     * token t, whose values must not be used. */
    int (*softmax)(float *scores, int n, int rows, float *m, float *l, float *rescale,
                   uint64_t *hidden);

    /* o_r = o_r · rescale[r] + Σ weights[t·rows + r] · v[t], with rows and tokens as in score().
     * The sum over the tokens is made first, which keeps rounding errors small over long
     * sequences. */
    void (*weigh[TA_DTYPES])(float *o, int64_t o_stride, int rows, const float *rescale,
                             const float *weights, const void *const *v, int n, int32_t v_dim);

    /* into = merge(into, from) as in partial.h, for one record; exactly commutative. */
    void (*merge)(float *into, const float *from, int32_t v_dim);
} ta_host_kernels;

/* The level called `name`, or the best one for NULL; NULL if this CPU or build has no such
 * level. */
const ta_host_kernels *ta_host_kernels_find(const char *name);

extern const ta_host_kernels ta_kernels_scalar;
#if defined(__x86_64__)
extern const ta_host_kernels ta_kernels_avx2; /* needs AVX2, FMA and F16C */
#endif

#endif
