/* Running one block of a launch: block.cpp, called by grid.cpp. A block_runner belongs to one OS
 * thread while it runs and is used again for the next block; grid.cpp keeps a pool of them. */
#ifndef SIMT_BLOCK_H
#define SIMT_BLOCK_H

#include <functional>
#include <memory>
#include <string.h>
#include <string>
#include <vector>

#include "random_source.h"
#include "shared_memory.h"
#include "simt_control.h"
#include "simt_lane.h"

namespace simt
{

/* A kernel with its arguments bound, and everything about the device that it can notice. */
struct kernel_launch {
    std::string name;
    dim3 grid, block;
    size_t dynamic_bytes; /* of shared memory */
    size_t shared_limit;  /* dynamic and static together */
    unsigned wave;
    dialect narrow;
    simt_order order;
    uint64_t seed; /* of this launch */
    bool resident; /* its blocks may wait for others, of this grid or on another device */
    std::function<void()> body;
};

struct block_runner : block {
    block_runner();
    ~block_runner();

    /* Run block `number` of the launch to its end. False: it failed, `error` says why. */
    bool run(const kernel_launch &launch, uint64_t number);

    /* Called from the running lane, in block.cpp only. */
    lane *end_round(struct wave *wave);

    const kernel_launch *work = nullptr;
    std::string error;
    bool failed = false;
    fiber scheduler = {};
    shared_memory variables;
    /* Addresses that stand for orderings, for TSan. Barriers use two of them in turn. */
    char start_order = 0, barrier_order[2] = {0, 0}, end_order = 0;
    unsigned barrier_phase = 0;

  private:
    void set_up(uint64_t number);
    void add_lanes(unsigned count);
    bool run_waves();
    void run_wave(struct wave *wave);
    struct wave *choose_wave();
    void release_barrier();
    void begin_round(struct wave *wave);
    void report(const lane *at, const std::string &problem);
    const lane *find_left() const;

    random_source random = {0};
    unsigned threads = 0, wave_count = 0;
    std::vector<std::unique_ptr<fiber_stacks>> stacks;
    std::vector<std::unique_ptr<lane[]>> lane_memory; /* by wave of 64, since waves point into it */
    std::vector<struct wave> waves;
};

inline bool same_call(const lane *a, const lane *b)
{
    return a->where.line == b->where.line && a->stopped == b->stopped && a->address == b->address &&
           (a->where.file == b->where.file || strcmp(a->where.file, b->where.file) == 0);
}

/* lane.cpp */
void lane_main(void *lane);           /* what a lane's fiber runs */
std::string position(const lane *at); /* block, thread, lane and wave, in words */
std::string source(call where);       /* file:line */

} // namespace simt

#endif
