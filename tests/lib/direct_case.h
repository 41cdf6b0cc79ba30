/* What the tests of kernels that attend in equal shares have in common
 * (hip/attend/direct_kernel.h, hip/attend/latent.hip, hip/attend/block_piece.h): random decode
 * cases that such a kernel is for, and steps with pages that are none; on the executor, unless
 * TA_TEST_DEVICE names another device. */
#ifndef TESTS_DIRECT_CASE_H
#define TESTS_DIRECT_CASE_H

#include "case.h"

/* K and V of 16 bits with a query of their type; of 8 bits with scales and a query of bf16; or of
 * any wider type, with a query of any of these. */
typedef enum direct_types { DIRECT_16_BITS, DIRECT_8_BITS, DIRECT_ANY } direct_types;

/* What a kernel takes, drawn from one source. Types come first, then dimensions, then rows. */
typedef struct direct_kernel {
    uint64_t salt; /* of the seed, so that kernels have different cases */
    int cases;     /* unless the arguments say how many */
    direct_types types;
    void (*choose_dims)(random_source *r, decode_case *c);
    void (*choose_rows)(random_source *r, decode_case *c); /* heads, query tokens, lengths */
} direct_kernel;

/* Up to `batch` sequences of up to `most` tokens, some of them short. */
void direct_choose_lengths(random_source *r, decode_case *c, int most, int batch);

/* What attend_direct takes: its head dimensions; and heads, query tokens and lengths, of which some
 * make several groups of rows. */
void direct_choose_dims(random_source *r, decode_case *c);
void direct_choose_rows(random_source *r, decode_case *c);

/* One sequence, of bf16 if its length is odd, else of f16, with so much memory that it is cut for a
 * whole device. */
decode_case direct_plain(int dim, int heads, int tokens, int32_t length);

/* Run a case of one sequence, whose length is near an edge of the division of work; then with a
 * window that ends near the middle of it. */
void direct_around_edge(decode_case c, int edge, int off);

/* Run a case with eight sequences of these lengths, in one block of memory and in pages. */
void direct_unequal_lengths(decode_case c, const int32_t lengths[8]);

/* Run a variant of a case with a value that is not finite, in tiles of which queries see parts. */
void direct_not_finite(decode_case c, int variant);

/* Run a case with its query aligned to 16 bytes, to words and to elements: with the same bits. */
void direct_any_query(decode_case c);

/* Run a case in reproducible mode on one, two and three ranks, with K and V in one block of memory
 * and in pages: with the same bits. */
void direct_same_bits(decode_case c);

/* Steps over pages of which one is none, in tiles that are seen whole, the first and later ones,
 * and in one at the end: the result of that sequence is NaN, that of another is not touched. V is
 * the beginning of K. */
void direct_pages_that_are_none(ta_dtype dtype, int k_dim, int v_dim);

/* Everything that case_random() draws, but for what the kernel of direct_main() does not take. */
void test_random_cases(void);

/* What each of these programs has, beside tests of its own. */
#define RUN_DIRECT_TESTS()                                                                         \
    do {                                                                                           \
        RUN_TEST(test_random_cases);                                                               \
        RUN_TEST(test_lengths_around_tiles_and_shares);                                            \
        RUN_TEST(test_unequal_lengths);                                                            \
        RUN_TEST(test_values_that_are_not_finite);                                                 \
    } while (0)

/* seed_main() on the executor. It prints direct_worst, which all cases go into. */
extern bound_worst direct_worst;
int direct_main(int argc, char **argv, const direct_kernel *kernel, void (*all)(void));

#endif
