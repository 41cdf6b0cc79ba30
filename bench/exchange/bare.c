/* The least that an exchange in shared memory does: see bare.h. Two sets of places, used in turn,
 * as in a direct exchange: who writes into a set again has heard from everybody since. */
#include "bare.h"

#include <sched.h>

#define LINE 128

static size_t place_bytes(size_t floats)
{
    return (floats * sizeof(float) + LINE - 1) / LINE * LINE;
}

size_t bare_bytes(int ranks, size_t floats)
{
    return (size_t)ranks * (LINE + 2 * place_bytes(floats));
}

static uint32_t *signal_of(const bare_rank *r, int rank)
{
    return (uint32_t *)(void *)(r->memory + rank * LINE);
}

static float *place_of(const bare_rank *r, int rank)
{
    size_t number = (size_t)r->ranks * (r->epoch & 1) + (size_t)rank;
    return (float *)(void *)(r->memory + r->ranks * LINE + number * place_bytes(r->floats));
}

static void await(const bare_rank *r, int rank)
{
    for (int i = 0;; i++) {
        uint32_t seen = __atomic_load_n(signal_of(r, rank), __ATOMIC_ACQUIRE);
        if ((int32_t)(seen - r->epoch) >= 0)
            return;
        if (i >= r->spins)
            sched_yield();
    }
}

void bare_step(bare_rank *r, const float *own, float *sums)
{
    ++r->epoch;
    float *place = place_of(r, r->rank);
    for (size_t i = 0; i < r->floats; i++)
        place[i] = own[i];
    __atomic_store_n(signal_of(r, r->rank), r->epoch, __ATOMIC_SEQ_CST);
    for (int rank = 0; rank < r->ranks; rank++)
        await(r, rank);
    for (int rank = 1; rank < r->ranks; rank++) {
        const float *before = rank == 1 ? place_of(r, 0) : sums, *theirs = place_of(r, rank);
        for (size_t i = 0; i < r->floats; i++)
            sums[i] = before[i] + theirs[i];
    }
}
