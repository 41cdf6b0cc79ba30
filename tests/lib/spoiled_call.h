/* Calls on a decode plan with a mistake in them: made alone, on one rank of several, and by ranks
 * that are not in the same step. What is called is the test's: it has a struct with everything that
 * a mistake may spoil, which begins with the plan's config; on the host. */
#ifndef TESTS_SPOILED_CALL_H
#define TESTS_SPOILED_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include <treeattn/treeattn.h>

typedef struct spoiled_call {
    size_t bytes;                                 /* of the test's struct */
    void (*init)(void *call);                     /* a right one */
    ta_status (*make)(void *call, ta_plan *plan); /* ta_combine(), say, as the struct says */
    bool (*is_untouched)(const void *call);       /* nothing was written */
    bool (*is_right)(const void *call, int rank); /* the result of a right one */
} spoiled_call;

typedef struct mistake {
    const char *named, *value; /* what the error says, and NULL: nothing more */
    void (*spoil)(void *call);
    void (*before)(void *call); /* by ranks that differ, on all of them; NULL: nothing */
} mistake;

/* A function that spoils a call, `s` to the change. */
#define SPOIL(name, change)                                                                        \
    static void spoil_##name(void *call)                                                           \
    {                                                                                              \
        small *s = call;                                                                           \
        change;                                                                                    \
    }

/* Each mistake on one rank alone: it is refused and nothing is written; then a right call. */
void spoiled_alone(const spoiled_call *kind, const mistake *mistakes, size_t count);

/* Each on rank 1 of 3: all hear of it, nothing is written, and the next call is right. */
void spoiled_on_one_rank(const spoiled_call *kind, const mistake *mistakes, size_t count);

/* Each on rank 2 of 3, which then is in another step: all hear of it, nothing is written. */
void spoiled_differently(const spoiled_call *kind, const mistake *mistakes, size_t count);

/* Each on rank 1 of 3, whose messages would then have other sizes: all hear of it, nothing is
 * written, the next call is right, and so is one of that size on all ranks. */
void spoiled_in_size(const spoiled_call *kind, const mistake *mistakes, size_t count);

#endif
