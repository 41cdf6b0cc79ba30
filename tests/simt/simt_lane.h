/* What one simulated thread is, as the code compiled into kernels sees it: its place in the block,
 * the slots through which the lanes of a wave exchange values, and the ways it can stop.
 * simt_language.h builds HIP's names on this; block.cpp runs it.
 *
 * The rule for every collective of a wave (shuffle, wave barrier) is the strictest of all
 * vendors': each lane of the wave that has not left the kernel must come to the same call. */
#ifndef SIMT_LANE_H
#define SIMT_LANE_H

#include <stddef.h>
#include <stdint.h>

#include "fiber.h"

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define SIMT_INLINE inline __attribute__((always_inline))

/* Is the address to which a collective returns as good as a name for its call? It is unless the
 * compiler may copy or unite calls: clang is told not to, gcc can't be. With it, a helper that two
 * branches call is two calls; without it, only file and line tell calls apart. */
#if defined(__clang__)
#define SIMT_CALL_EXACT 1
#define SIMT_COLLECTIVE __attribute__((convergent, nomerge, noinline))
#else
#ifdef __OPTIMIZE__
#define SIMT_CALL_EXACT 0
#else
#define SIMT_CALL_EXACT 1
#endif
#define SIMT_COLLECTIVE __attribute__((noinline))
#endif

namespace simt
{

/* Where in the source a lane is. As a default argument, call::here() is where the caller is. */
struct call {
    const char *file;
    unsigned line;
    unsigned exact;

    static constexpr call here(const char *file = __builtin_FILE(),
                               unsigned line = __builtin_LINE())
    {
        return call{file, line, SIMT_CALL_EXACT};
    }
};

/* Why a lane stopped. */
enum class stop { none, wave, barrier, left };

const unsigned max_wave = 64;
const unsigned max_block = 1024;
const unsigned threads_per_unit = 2 * max_block;
const unsigned slot_bytes = 64; /* what a lane can hand to its wave at once */

struct wave;
struct block;

struct alignas(64) lane {
    /* Two, used in turn: a lane may write its next value before another has read the last one. */
    uint64_t slot[2][slot_bytes / sizeof(uint64_t)];
    struct wave *wave;
    struct block *block;
    dim3 thread;
    unsigned number; /* in its wave */
    unsigned index;  /* in its block */
    unsigned waits;  /* for asynchronous copies, so far */
    stop stopped;
    call where;
    const void *address; /* of the call, if it is exact */
    call unfenced; /* its last store to a peer with no system fence behind it; no file: none */
    fiber context;
};

struct wave {
    lane *lanes;
    unsigned count; /* lanes it started with */
    unsigned number;
    unsigned live; /* lanes that have not left */
    unsigned cursor;
    unsigned waiting; /* lanes that stopped in this round without leaving */
    unsigned phase;   /* the slots of this round */
    bool at_barrier, left_in_round;
    uint64_t members;         /* the live lanes */
    uint64_t participants[2]; /* of the last round with that phase */
    lane *first;              /* the first to stop in this round */
    lane *stray;              /* one that stopped elsewhere than the first */
    unsigned char order[max_wave];
    char sync_order[2]; /* addresses that stand for orderings, by phase */
};

/* The dialect of 8 bits that a device has instructions for, in the order of simt_control.h. */
enum class dialect { none, ocp, fnuz };

struct block {
    dim3 index, size, grid;
    unsigned wave_width;
    dialect narrow;
    void *shared;  /* dynamic shared memory */
    bool resident; /* all blocks of its grid run at once */
};

/* Stop the calling lane until its wave, or its block, has come to the same call. */
SIMT_COLLECTIVE void wave_wait(call where); /* orders no memory accesses, as a shuffle */
SIMT_COLLECTIVE void wave_sync(call where); /* orders those of the wave */
SIMT_COLLECTIVE void barrier_wait(call where);

/* End the kernel with an error that names this place. */
[[noreturn]] __attribute__((format(printf, 2, 3))) void lane_fail(call where, const char *format,
                                                                  ...);

/* The shared variable that `key` stands for in this block; made by the first lane that asks. */
void *shared_variable(call where, const void *key, const char *name, size_t bytes,
                      size_t alignment);

} // namespace simt

/* The lane that is running on this OS thread. */
extern __thread simt::lane *simt_self __attribute__((tls_model("initial-exec")));

#endif
