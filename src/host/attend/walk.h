/* How kernels walk over the K or V vectors of a block, two ways of not waiting for memory:
 *
 * The addresses of vectors at equal distances are computed. An address that is itself loaded has to
 * wait behind the loads that wait for memory, and then the next ones start late: that costs up to
 * half of the bandwidth.
 *
 * Kernels that keep many sums in registers read several tokens at a time, a few bytes of each in
 * turn, and the CPU guesses such an order badly. They ask for the vectors that come after theirs,
 * into the second level of cache, in the order of memory and evenly between their own loads.
 *
 * One row that asks for lines itself does it in row_wide.h. docs/performance.md has what it gives.
 */
#ifndef TA_HOST_WALK_H
#define TA_HOST_WALK_H

#include "host/kernels.h"

#define TA_LINE_BYTES 64

/* Bytes of K or V that a pass over several heads, one after the other, may come back to: the second
 * level of cache keeps them, and what is fetched ahead. */
#define TA_PASS_BYTES (128 << 10)

/* How many tokens such a pass takes: a multiple of 4, all of them for one head. */
static inline int ta_pass_tokens(const ta_block *b, size_t element_bytes)
{
    int64_t most = TA_PASS_BYTES / (b->heads * b->dim * (int64_t)element_bytes) / 4 * 4;
    return b->heads == 1 || most >= b->tokens.n ? b->tokens.n : most > 4 ? (int)most : 4;
}

typedef struct ta_walk {
    ta_vectors tokens;
    /* What is fetched ahead: the lines from `line` on. Of vectors that do not follow each other
     * only up to `run_end`, then those of the next. A vector may be those of several heads, one
     * after the other. */
    ta_vectors ahead;
    int next;
    const char *line, *run_end;
    int64_t line_step; /* 0 where nothing is fetched */
    int64_t list_step; /* of vectors that do not follow each other; each of these a line, or half */
    int64_t ahead_bytes;
} ta_walk;

static inline ta_walk ta_walk_start(const ta_block *b, size_t element_bytes)
{
    int64_t head_bytes = b->dim * (int64_t)element_bytes;
    /* What is half as large is asked for half as fast. */
    int parts = b->ahead_parts * (b->ahead_halved ? 2 : 1);
    ta_walk w = {.tokens = b->tokens,
                 .ahead = b->ahead,
                 .ahead_bytes = b->heads * head_bytes >> (b->ahead_halved != 0),
                 .list_step = b->ahead_halved ? TA_LINE_BYTES / 2 : TA_LINE_BYTES};
    /* The CPU itself follows one row in lanes. Heads that are apart are left to it too. */
    if (b->heads > 1 && (b->rows == 1 || b->token_head_bytes != head_bytes))
        w.ahead.n = 0;
    w.line = w.tokens.first; /* any that is there */
    if (w.ahead.n > 0 && w.ahead.step == w.ahead_bytes) {
        w.line = w.ahead.first;
        w.line_step = parts > 1 ? (TA_LINE_BYTES - 1) / parts + 1 : TA_LINE_BYTES;
        w.next = w.ahead.n;
    }
    return w;
}

/* Is nothing about the walk listed? Kernels take the answer as a constant: then all that they need
 * is in registers, and no address is loaded. */
static inline int ta_walk_is_even(const ta_walk *w)
{
    return w->tokens.step && w->next == w->ahead.n;
}

static inline __attribute__((always_inline)) const char *ta_walk_at(const ta_walk *w, int even,
                                                                    int token)
{
    return even ? w->tokens.first + token * w->tokens.step : ta_vector_at(&w->tokens, token);
}

/* Is there anything to fetch, or is it not known before each line? */
static inline __attribute__((always_inline)) int ta_walk_fetches(const ta_walk *w, int even)
{
    return !even || w->line_step;
}

/* Ask for the next so many lines of what is ahead. An even walk does not look where that ends: it
 * costs more than to ask for a few lines too many after the last tokens, which does no harm. */
static inline __attribute__((always_inline)) void ta_walk_fetch(ta_walk *w, int even, int lines)
{
#pragma GCC unroll 16
    for (int i = 0; i < lines; i++) {
        if (even) {
            __builtin_prefetch(w->line, 0, 2);
            w->line += w->line_step;
            continue;
        }
        if (w->line >= w->run_end) {
            if (w->next == w->ahead.n)
                return;
            w->line = ta_vector_at(&w->ahead, w->next++);
            w->run_end = w->line + w->ahead_bytes;
        }
        __builtin_prefetch(w->line, 0, 2);
        w->line += w->list_step;
    }
}

#endif
