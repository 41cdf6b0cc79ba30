/* A plan: the work with every default filled in, what will run, and the memory for it. Built once
 * by plan.c, read-only afterwards; the algorithms read it, explain.c prints it. */
#ifndef TA_PLAN_H
#define TA_PLAN_H

#include <treeattn/treeattn.h>

#include "device.h"
#include "group.h"

/* One rank's trouble in a step. It travels behind every partial, so that no rank waits for one that
 * was given bad arguments, and all of them hear of it. */
typedef struct ta_fault {
    int32_t status; /* TA_OK: none */
    int32_t rank;   /* the lowest rank that has one */
} ta_fault;

struct ta_plan {
    ta_group *group; /* NULL: one rank */
    ta_device *device;
    ta_problem problem;
    int rank, ranks;
    ta_placement query_placement, out_placement;
    int query_root, out_root;
    ta_algorithm algorithm;

    void *memory; /* device memory that the pieces below are cut from */
    size_t memory_bytes;
    int owns_memory;
    float *records;   /* query_heads · rows partials of this rank, then a ta_fault */
    float *received;  /* likewise, from another rank; NULL on one rank */
    float *staged;    /* likewise, on the way out; NULL unless output is scattered by heads */
    void *query;      /* the query after it moved, [head][row][k_dim]; NULL if it need not */
    size_t *query_at; /* [ranks + 1] byte offsets of the ranks' heads in `query`; host memory */
    void *attend;     /* workspace of the device's attend() */
};

/* The query heads that `rank` has under a placement: [*first, *first + *count). */
void ta_plan_heads(const ta_plan *plan, ta_placement placement, int root, int rank, int *first,
                   int *count);

/* Do all ranks have the same plan, and did all succeed so far? `status` is this rank's own result.
 * Collective; returns the same verdict everywhere (agree.c). */
ta_status ta_plan_agree(ta_group *group, const ta_plan *plan, ta_status status);

#endif
