/* The mistakes that test_mistakes.c makes, in the order of the table in docs/mistakes.md: three
 * ranks, and rank 1 makes each of them, unless its way says otherwise. */
#ifndef TESTS_MISTAKES_H
#define TESTS_MISTAKES_H

#include "small_step.h"

typedef enum mistake_way {
    ONE_RANK,    /* `spoil` on rank 1 */
    ALL_RANKS,   /* on all of them */
    CHECKED,     /* on rank 1, in checked mode */
    ALL_CHECKED, /* on all of them, likewise */
    PLAN_ORDER,  /* two plans in the other order */
    APPEND,      /* on rank 1, in ta_append() of tokens that are scattered by heads */
    ALL_APPEND,  /* on all of them, likewise */
    COMBINE,     /* on rank 1, in ta_combine() */
    ALL_COMBINE, /* on all of them, in checked mode */
} mistake_way;

static inline int mistake_is_checked(mistake_way kind)
{
    return kind == CHECKED || kind == ALL_CHECKED || kind == ALL_COMBINE;
}

static inline int mistake_appends(mistake_way kind)
{
    return kind == APPEND || kind == ALL_APPEND;
}

static inline int mistake_combines(mistake_way kind)
{
    return kind == COMBINE || kind == ALL_COMBINE;
}

typedef struct mistake {
    const char *text;
    mistake_way way;
    void (*spoil)(small_step *step);
} mistake;

/* Ends with one without a text. */
extern const mistake mistake_list[];

/* What appends and combines are given; a spoil() may change them. */
extern __thread ta_append_input mistake_tokens;
extern __thread ta_lse_base mistake_base;

/* Set both, and the page table that mistakes share, to what is right. */
void mistake_reset(const small_step *step);

#endif
