/* A rotation along a line of the grid: blocks of all its ranks come by, each followed by sums for
 * it. A rank's block goes from rank to rank; its sums begin at the next rank, follow one hop
 * behind, and come home in the end. In hop `h` a rank has block B(h), and its message to the next
 * one is
 *
 *     B(h), unless the next rank is its own           hops 0 … ranks - 2
 *     the sums of the block before, S(h - 1)          hops 2 … ranks - 1, and alone in hop `ranks`
 *
 * While it travels the rank computes with B(h); S(h) arrives in hop h >= 2, where the result is
 * added to it, and begins in hop 1. So a line of P ranks moves P - 1 blocks and P - 1 sums. Used by
 * overlap.c and overlap_backward.c. */
#ifndef TA_ATTENTION_ROTATION_H
#define TA_ATTENTION_ROTATION_H

#include "plan.h"

typedef struct ta_rotation {
    const ta_line *line;
    char *const *buffers; /* [2]: room for the largest block and its sums */
    size_t block, sums;   /* bytes of one token */
} ta_rotation;

/* Of this line, and of any: the member whose block is at `member` after so many hops. */
int ta_rotation_owner(const ta_line *line, int hop);

/* Where B(hop) is; put B(0) there. */
char *ta_rotation_block(const ta_rotation *rotation, int hop);

/* Where S(hop) is made, in hop 1, or added to, in later ones when they have ended. */
float *ta_rotation_sums(const ta_rotation *rotation, int hop);

/* Does S(hop) arrive during this hop? */
int ta_rotation_adds(int hop);

/* A hop of 0 … ranks - 1: nothing is sent where there is nothing to send. */
ta_status ta_rotation_start(const ta_rotation *rotation, int hop, void *stream);
ta_status ta_rotation_finish(const ta_rotation *rotation, int hop, void *stream);

/* The last hop: the others' sums for this rank's own block arrive at `received`. */
ta_status ta_rotation_home(const ta_rotation *rotation, float *received, void *stream);

#endif
