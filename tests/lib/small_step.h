/* One small decode step with everything a test may want to spoil: two sequences, two query tokens,
 * four query heads over two KV heads, dense f32, block-cyclic over any number of ranks. For tests
 * that look at arguments and errors; decode cases (case.h) look at results. */
#ifndef TESTS_SMALL_STEP_H
#define TESTS_SMALL_STEP_H

#include <stdbool.h>

#include <treeattn/treeattn.h>

#include "oracle.h"

enum {
    SMALL_BATCH = 2,
    SMALL_QUERY_TOKENS = 2,
    SMALL_HEADS = 4,
    SMALL_KV_HEADS = 2,
    SMALL_K_DIM = 16,
    SMALL_V_DIM = 8,
    SMALL_TOKENS = 7,  /* of the longer sequence */
    SMALL_BOUNDS = 18, /* for 17 ranks */
    SMALL_ROWS = SMALL_BATCH * SMALL_QUERY_TOKENS * SMALL_HEADS
};

/* The inputs of the whole step, over all ranks. */
typedef struct small_whole {
    int32_t lengths[SMALL_BATCH];
    double q[SMALL_BATCH][SMALL_QUERY_TOKENS * SMALL_HEADS * SMALL_K_DIM];
    double k[SMALL_BATCH][SMALL_TOKENS * SMALL_KV_HEADS * SMALL_K_DIM];
    double v[SMALL_BATCH][SMALL_TOKENS * SMALL_KV_HEADS * SMALL_V_DIM];
} small_whole;

void small_step_whole(small_whole *whole);

/* It as the oracle has it, without sinks. */
oracle_problem small_step_problem(void);

typedef struct small_step {
    int rank, ranks;
    ta_plan_config config;
    float query[SMALL_ROWS * SMALL_K_DIM];
    float keys[SMALL_BATCH * SMALL_TOKENS * SMALL_KV_HEADS * SMALL_K_DIM];
    float values[SMALL_BATCH * SMALL_TOKENS * SMALL_KV_HEADS * SMALL_V_DIM];
    float results[SMALL_ROWS * SMALL_V_DIM], lse[SMALL_ROWS];
    int32_t lengths[SMALL_BATCH];
    int32_t bounds[SMALL_BOUNDS];    /* used if kv.bounds is set before small_step_to_device() */
    int32_t starts[SMALL_BATCH + 1]; /* 0, 2, 4: used by small_step_ragged() */
    float sinks[SMALL_HEADS], slopes[SMALL_HEADS];
    ta_tensor q, out;
    ta_kv kv;
    ta_call call;      /* given if it says anything */
    ta_device *device; /* NULL: the arrays above are used where they are */
    void *memory;      /* their copies on the device */
} small_step;

/* The step as one rank sees it: query and output on all ranks. */
void small_step_init(small_step *step, int rank, int ranks);

/* The same, with a host device and a plan of this rank of a group: destroy both. */
ta_status small_step_open(small_step *step, ta_group *group, ta_device **device, ta_plan **plan);

/* The same three together, for one rank of a group. Closing returns TA_OK. */
typedef struct small_rank {
    small_step step;
    ta_device *device;
    ta_plan *plan;
} small_rank;

ta_status small_rank_open(small_rank *r, ta_group *group);
ta_status small_rank_close(small_rank *r);

/* Let the call be ragged, with so many tokens in all, as `starts` says. */
void small_step_ragged(small_step *step, int32_t tokens);

/* Give the arrays copies in the device's memory, for q, out and kv to point to. On the host they
 * stay where they are. End with small_step_release(). */
ta_status small_step_to_device(small_step *step, ta_device *device);
void small_step_release(small_step *step);

/* Poison the results, then decode. */
ta_status small_step_decode(small_step *step, ta_plan *plan);

/* The parts of it: bring the arrays to the device with poisoned results; the step alone, which on a
 * GPU has only been queued when it returns; and the results back, when the stream is done. */
ta_status small_step_fill(small_step *step);
ta_status small_step_queue(small_step *step, ta_plan *plan, void *stream);
ta_status small_step_fetch(small_step *step, void *stream);

/* Do the results still have the poison of small_step_decode() everywhere? */
bool small_step_untouched(const small_step *step);

/* Are all results within the bound of the oracle's? */
bool small_step_right(const small_step *step);

/* Make a plan, decode once, and look at the results; on every rank of the group. */
ta_status small_step_try(small_step *step, ta_group *group, ta_device *device);

#endif
