/* The arithmetic of the host device: a table of small functions, one table for each SIMD level.
 * kernels_scalar.c is the truth and readable; attend_simd.h is the same over vector operations,
 * which kernels_avx2.c and kernels_neon.c supply. kernels.c chooses. item_tokens.c calls them and
 * owns everything that is not arithmetic: which tokens, which rows, where they are. */
#ifndef TA_HOST_KERNELS_H
#define TA_HOST_KERNELS_H

#include <stdint.h>

#include <treeattn/treeattn.h>

#include "base/dtype.h"
#include "base/partial.h"
#include "panel.h"

/* Tokens that one call of a kernel takes: a block, or two of them where longer calls pay. */
#define TA_TOKEN_BLOCK 64
#define TA_TOKENS_MOST (2 * TA_TOKEN_BLOCK)

/* A set of them, bit t % 64 of word t / 64 for token t. */
typedef struct ta_token_set {
    uint64_t words[TA_TOKENS_MOST / 64];
} ta_token_set;

/* Query rows that share each load of K and V: as many as leave enough registers for the sums.
 * Levels with 32 registers also take twice as many, with half of the tokens at a time: see
 * rows_most. */
#define TA_ROW_BLOCK 4
#define TA_ROWS_MOST 8

/* The most of a number of a packed query row, and of the factor of its scores: what is taken for 0
 * makes no difference then, see docs/numerics.md. And its bits in bf16. */
#define TA_PACK_MOST 0x1p40f
#define TA_PACK_MOST_BF16 ((127 + 40) << 7)

/* Room for the scores of a block of tokens and rows, TA_TOKEN_BLOCK tokens with TA_ROWS_MOST;
 * functions may write up to the next multiple of 8. */
#define TA_BLOCK_SCORES (TA_TOKENS_MOST * TA_ROW_BLOCK + 8)

/* The most KV heads of a block, and the most floats of o: heads · rows · v_dim. */
#define TA_HEADS_MAX 64
#define TA_BLOCK_VALUES 16384

/* Where n vectors of K or V are: at equal distances, or one by one. */
typedef struct ta_vectors {
    int n;
    const char *first; /* with a step */
    int64_t step;      /* bytes from each to the next; 0: see `each` */
    const void *const *each;
    int more; /* with a step: how many follow them at the same distance, and are read next */
} ta_vectors;

static inline __attribute__((always_inline)) const char *ta_vector_at(const ta_vectors *v, int i)
{
    return v->step ? v->first + i * v->step : (const char *)v->each[i];
}

/* A block of work for score() and weigh(): `rows` query rows, 1, TA_ROW_BLOCK or rows_most, of each
 * of `heads` KV heads, against the same n ≤ TA_TOKENS_MOST tokens. Several heads at a time are for
 * caches in which the heads of a token are neighbours: memory is then read in its own order.
 * Strides count floats, except in K and V. */
typedef struct ta_block {
    int rows, heads;
    int64_t row_stride, head_stride; /* of q in score(), of o in weigh() */
    ta_vectors tokens;               /* K or V of the first head */
    ta_vectors ahead;                /* what is wanted soon after these, see walk.h; may be none */
    int ahead_halved;                /* its elements have half as many bytes as those here */
    int ahead_parts;                 /* fetch them so many times slower than these are read */
    int row_ahead; /* one row asks for what it reads so many tokens later: see row_wide.h; or 0 */
    const void *const *row_each; /* then, if pages are apart: where these are, and what follows */
    int row_known;               /* so many are known */
    int64_t token_head_bytes;    /* from the vector of one head to the next */
    int32_t dim;                 /* of those vectors */
    float *scores;               /* [token][row], heads TA_BLOCK_SCORES apart; weights in weigh() */
    float *sums;                 /* room for heads · rows · dim floats, for weigh() only */
    float factor;                /* of scores, for score_packed() only */
    int scattered; /* are neighbours in `tokens` mostly apart in memory? For weigh() only */
    int shared;    /* do other blocks of rows use the same tokens? Likewise */
} ta_block;

/* Records that are merged one after the other: `first`, and then `count` others that are `stride`
 * floats apart. What each merge multiplies by follows from their m alone. */
#define TA_CHAIN_MOST 16
typedef struct ta_merge_chain {
    const float *first, *others;
    int64_t stride;
    int count;
    ta_merge_scales scales[TA_CHAIN_MOST];
} ta_merge_chain;

/* Slots of an array are by ta_dtype. An empty one means that the level does not have that type:
 * ta_host_kernels_have() is asked before any of them is called. Types of 8 bits have load(),
 * store() and widen(): K and V are widened to bf16, and what follows is done with that. Levels that
 * have reads_narrow() have all slots for them, for blocks of one row, if that says so. */
typedef struct ta_host_kernels {
    const char *name;
    int rows_most; /* of a block: TA_ROW_BLOCK or TA_ROWS_MOST */

    /* to[i] = from[i] · factor. */
    void (*load[TA_DTYPE_END])(const void *from, int32_t n, float factor, float *to);

    /* to[i] = from[i] · factor, rounded to the element type. */
    void (*store[TA_DTYPE_END])(const float *from, int32_t n, float factor, void *to);

    /* Of a type of 8 bits, else NULL: n elements, a multiple of 8, as bf16, which has all of their
     * numbers. A NaN stays one. */
    void (*widen[TA_DTYPE_END])(const void *from, int32_t n, uint16_t *to);

    /* Can this CPU do without it where there is one query row? NULL: no. */
    int (*reads_narrow)(void);

    /* Put the k_dim numbers of a query row, in place, into the order in which this level's score()
     * takes them for K of this type. */
    void (*arrange[TA_DTYPE_END])(float *q, int32_t k_dim);

    /* The products of arranged query rows and keys. */
    void (*score[TA_DTYPE_END])(const ta_block *block, const float *q);

    /* For types that the level multiplies with themselves, else NULL: pack() takes a row of k_dim
     * numbers that are all of this type, in place, and score_packed() is score() with K of this
     * type for such rows, times `factor`. Numbers below 2^-126 may be taken for 0. */
    void (*pack[TA_DTYPE_END])(float *q, int32_t k_dim);
    void (*score_packed[TA_DTYPE_END])(const ta_block *block, const float *q);

    /* s = cap · tanh(s) for n scores. */
    void (*softcap)(float *scores, int n, float cap);

    /* Turn the scores of one head, in base 2 and as score() leaves them, into weights exp2(s - m),
     * where m is the row's new maximum. m[r] and l[r] are brought up to date, rescale[r] is what
     * the row's o must be multiplied by. A NaN among a row's scores makes its m, l and weights NaN.
     * Returns whether there is a score of -inf; only then hidden[r] is the set of such tokens of
     * row r, whose values must not be used. */
    int (*softmax)(float *scores, int n, int rows, float *m, float *l, float *rescale,
                   ta_token_set *hidden);

    /* o = o · rescale + Σ weight · value for each row, with rescale [head][TA_ROWS_MOST]. The sum
     * over the tokens is made first, which keeps rounding errors small over long sequences. */
    void (*weigh[TA_DTYPE_END])(const ta_block *block, float *o, const float *rescale);

    /* into = merge(into, from) as in partial.h, for one record; exactly commutative. */
    void (*merge)(float *into, const float *from, int32_t v_dim);

    /* The o that merge() would leave after all records of a chain, times `factor`: in one pass, and
     * with the records as they were. */
    void (*merge_chain)(const ta_merge_chain *chain, int32_t v_dim, float factor, float *to);

    /* For attention over full sequences. */
    const ta_panel_kernels *panels;
} ta_host_kernels;

/* The level called `name`, or the best one for NULL; NULL if this CPU or build has no such
 * level. */
const ta_host_kernels *ta_host_kernels_find(const char *name);

/* How far ahead one query row of that level should ask for lines, in bytes; 0: the CPU follows it
 * by itself. Asks the CPU, which may take a while. */
int64_t ta_host_row_ahead_bytes(const ta_host_kernels *kernels);

/* Has the level what it takes to read or write elements of this type as what `role` says? */
int ta_host_kernels_have(const ta_host_kernels *kernels, ta_dtype dtype, ta_dtype_role role);

extern const ta_host_kernels ta_kernels_scalar;
#if defined(__x86_64__)
extern const ta_host_kernels ta_kernels_avx2;       /* needs AVX2, FMA and F16C */
extern const ta_host_kernels ta_kernels_avx512;     /* also AVX-512 F, BW, DQ and VL */
#ifdef TA_HAVE_AVX512BF16                           /* the compiler knows it */
extern const ta_host_kernels ta_kernels_avx512bf16; /* also AVX512_BF16 */
#endif
#elif defined(__aarch64__)
extern const ta_host_kernels ta_kernels_neon;
#endif

#endif
