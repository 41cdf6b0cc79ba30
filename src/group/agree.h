/* One agreement between the ranks of a group, for everything that all of them must give alike: the
 * fields of a plan's config, the arguments of a call. Everybody gives named fields and its own
 * status; all get the same verdict. A rank that failed before takes part too, so that nobody waits
 * for it. Used by decode/agree.c and attention/agree.c; implemented in agree.c. */
#ifndef TA_AGREE_H
#define TA_AGREE_H

#include "group.h"

/* How a value travels, and how an error speaks of it. */
typedef enum ta_field_kind {
    TA_FIELD_INTEGER,
    TA_FIELD_REAL,
    TA_FIELD_INTEGERS, /* arrays of host memory; NULL is a value like others */
    TA_FIELD_REALS
} ta_field_kind;

typedef struct ta_field {
    const char *name; /* as the user knows it: "config.window" */
    ta_field_kind kind;
    int64_t integer; /* or the number of elements of an array */
    float real;
    const void *elements; /* [integer] of int32_t or float */
} ta_field;

#define TA_FIELD_OF_INTEGER(name, value)                                                           \
    {                                                                                              \
        (name), TA_FIELD_INTEGER, (int64_t)(value), 0, NULL                                        \
    }
#define TA_FIELD_OF_REAL(name, value)                                                              \
    {                                                                                              \
        (name), TA_FIELD_REAL, 0, (value), NULL                                                    \
    }
#define TA_FIELD_OF_INTEGERS(name, array, count)                                                   \
    {                                                                                              \
        (name), TA_FIELD_INTEGERS, (count), 0, (array)                                             \
    }
#define TA_FIELD_OF_REALS(name, array, count)                                                      \
    {                                                                                              \
        (name), TA_FIELD_REALS, (count), 0, (array)                                                \
    }

/* Most fields of an agreement. */
#define TA_AGREE_FIELDS 40

/* Numbers that an agreement compares when all is well, in one all-reduce. */
#define TA_AGREE_NUMBERS 5

typedef struct ta_agreement {
    const char *what;   /* is compared: "plans" */
    const char *failed; /* what is said of a rank that failed: "could not make its plan" */
    const ta_field *fields;
    int field_count;
    /* What the other ranks return if one failed. TA_OK: the same as that one. */
    ta_status others;
    int64_t any; /* in: a number of this rank; out: the largest of all ranks' */
    /* Out: the same on all ranks of this agreement, and another one than any of their earlier
     * ones. */
    int64_t id;
    /* For groups that move device memory: TA_AGREE_NUMBERS integers of it, or NULL; and the stream
     * to wait for. */
    void *memory, *stream;
} ta_agreement;

/* The fields of an agreement: an array of them. */
#define TA_AGREE_ON(agreement, array)                                                              \
    do {                                                                                           \
        _Static_assert(sizeof(array) / sizeof *(array) <= TA_AGREE_FIELDS, "room for all fields"); \
        (agreement)->fields = (array);                                                             \
        (agreement)->field_count = sizeof(array) / sizeof *(array);                                \
    } while (0)

/* Collective. `status` is this rank's own; its fields count only if it is TA_OK. TA_OK if all ranks
 * have it and the same values. Otherwise a rank that failed returns its own status, and all others
 * an error that names the first rank that failed and why, or the first field that differs, the
 * rank, and both values. A group of one rank, or NULL, has nothing to compare. Allocates only to
 * find out what an error is. */
ta_status ta_agree(ta_group *group, ta_agreement *agreement, ta_status status);

#endif
