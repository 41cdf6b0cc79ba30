/* The scheduler of one block: waves and barriers. grid.cpp calls block_runner::run(); lane.cpp has
 * what the lanes do themselves.
 *
 * A wave runs in rounds. In each, every live lane runs in turn until it stops: at a collective of
 * the wave, at a barrier, or by leaving the kernel. When all have stopped at the same collective,
 * the next round starts; when they have stopped at a barrier, the wave waits until the other waves
 * are there too. Anything else is an error of the kernel. */
#include "block.h"

#include <string.h>

namespace simt
{

/* ---- Between rounds, on whichever fiber stopped last --------------------------------------- */

/* `order` is read from its end, so that the cursor counts down to 0. */
void block_runner::begin_round(wave *w)
{
    if (w->left_in_round) {
        unsigned kept = 0;
        for (unsigned i = 0; i < w->count; i++) {
            unsigned number = work->order == SIMT_FORWARD ? w->count - 1 - i : i;
            if (w->members >> number & 1)
                w->order[kept++] = static_cast<unsigned char>(number);
        }
        w->left_in_round = false;
    }
    if (work->order == SIMT_RANDOM)
        for (unsigned i = w->live; i > 1; i--) {
            unsigned j = random.below(i);
            unsigned char kept = w->order[i - 1];
            w->order[i - 1] = w->order[j];
            w->order[j] = kept;
        }
    w->cursor = w->live;
    w->waiting = 0;
    w->first = w->stray = nullptr;
    w->phase ^= 1;
}

/* All lanes have stopped. Which one goes on? NULL leaves it to the scheduler. */
lane *block_runner::end_round(wave *w)
{
    if (w->waiting == 0 || w->stray || w->first->stopped == stop::barrier)
        return nullptr;
    w->participants[w->phase] = w->members;
    begin_round(w);
    if (work->order == SIMT_RANDOM && random.below(8) == 0)
        return nullptr; /* let another wave overtake */
    return &w->lanes[w->order[w->cursor - 1]];
}

/* ---- On the OS thread's stack -------------------------------------------------------------- */

block_runner::block_runner() : waves(max_block / 32)
{
}

block_runner::~block_runner()
{
    for (auto &chunk : lane_memory)
        for (unsigned i = 0; i < max_wave; i++)
            fiber_release(&chunk[i].context);
    fiber_release_thread(&scheduler);
}

/* Stacks and lanes come in chunks of the widest wave, and stay. */
void block_runner::add_lanes(unsigned count)
{
    while (lane_memory.size() * max_wave < count) {
        stacks.emplace_back(new fiber_stacks(max_wave));
        lane_memory.emplace_back(new lane[max_wave]());
        for (unsigned i = 0; i < max_wave; i++) {
            lane *l = &lane_memory.back()[i];
            l->context.stack = stacks.back()->at(i);
            l->context.stack_bytes = fiber_stacks::bytes(i);
            fiber_reset(&l->context, lane_main, l);
        }
    }
}

void block_runner::set_up(uint64_t number)
{
    size = work->block;
    grid = work->grid;
    index.x = static_cast<unsigned>(number % grid.x);
    index.y = static_cast<unsigned>(number / grid.x % grid.y);
    index.z = static_cast<unsigned>(number / grid.x / grid.y);
    wave_width = work->wave;
    narrow = work->narrow;
    resident = work->resident;
    threads = size.x * size.y * size.z;
    wave_count = (threads + wave_width - 1) / wave_width;
    random.state = work->seed ^ (number + 1) * 0xd6e8feb86659fd93u;
    shared = variables.start_block(work->dynamic_bytes, work->shared_limit);
    failed = false;
    add_lanes(threads);
    for (unsigned i = 0; i < wave_count; i++) {
        wave *w = &waves[i];
        unsigned first = i * wave_width;
        memset(static_cast<void *>(w), 0, sizeof *w);
        w->number = i;
        w->lanes = &lane_memory[first / max_wave][first % max_wave];
        w->count = w->live = threads - first < wave_width ? threads - first : wave_width;
        w->members = ~0ull >> (64 - w->count);
        w->left_in_round = true; /* so that an order is made */
        begin_round(w);
        for (unsigned j = 0; j < w->count; j++) {
            lane *l = &w->lanes[j];
            l->wave = w;
            l->block = this;
            l->number = j;
            l->index = first + j;
            l->thread =
                dim3(l->index % size.x, l->index / size.x % size.y, l->index / size.x / size.y);
            l->stopped = stop::none;
            l->unfenced = call{};
        }
    }
}

bool block_runner::run(const kernel_launch &launch, uint64_t number)
{
    work = &launch;
    set_up(number);
    fiber_adopt_thread(&scheduler);
    order_release(&start_order);
    bool ok = run_waves();
    order_acquire(&end_order);
    if (ok)
        return true;
    for (unsigned i = 0; i < threads; i++) {
        lane *l = &lane_memory[i / max_wave][i % max_wave];
        fiber_reset(&l->context, lane_main, l);
    }
    return false;
}

bool block_runner::run_waves()
{
    for (;;) {
        wave *w = choose_wave();
        if (w) {
            run_wave(w);
        } else {
            bool waiting = false;
            for (unsigned i = 0; i < wave_count; i++)
                waiting |= waves[i].at_barrier;
            if (!waiting)
                return true;
            release_barrier();
        }
        if (failed)
            return false;
    }
}

wave *block_runner::choose_wave()
{
    wave *ready[max_block / 32];
    unsigned count = 0;
    for (unsigned i = 0; i < wave_count; i++)
        if (waves[i].live > 0 && !waves[i].at_barrier)
            ready[count++] = &waves[i];
    if (count == 0)
        return nullptr;
    switch (work->order) {
    case SIMT_FORWARD:
        return ready[0];
    case SIMT_REVERSE:
        return ready[count - 1];
    default:
        return ready[random.below(count)];
    }
}

void block_runner::report(const lane *at, const std::string &problem)
{
    failed = true;
    error = source(at->where) + ": " + problem + ", in " + position(at);
}

static const char *collective_name(const lane *at)
{
    return at->stopped == stop::barrier ? "barrier" : "wave collective";
}

/* Run a wave until its lanes all wait at a barrier, have all left, or let another wave go first. */
void block_runner::run_wave(wave *w)
{
    simt_self = &w->lanes[w->order[w->cursor - 1]];
    fiber_switch(&scheduler, &simt_self->context);
    if (failed || w->waiting == 0)
        return;
    if (w->stray)
        report(w->stray, std::string("waits at this ") + collective_name(w->stray) +
                             " while lane " + std::to_string(w->first->number) +
                             " of the wave waits at the " + collective_name(w->first) + " at " +
                             source(w->first->where));
    else
        w->at_barrier = true;
}

const lane *block_runner::find_left() const
{
    for (unsigned i = 0; i < wave_count; i++)
        for (unsigned j = 0; j < waves[i].count; j++)
            if (waves[i].lanes[j].stopped == stop::left)
                return &waves[i].lanes[j];
    return nullptr;
}

/* Every live wave waits at a barrier: let them go on if it is one barrier and nobody is missing. */
void block_runner::release_barrier()
{
    const lane *first = nullptr;
    const lane *left = find_left();
    for (unsigned i = 0; i < wave_count && !failed; i++) {
        if (!waves[i].at_barrier)
            continue;
        if (!first)
            first = waves[i].first;
        if (left)
            report(waves[i].first, "waits at this barrier, but thread " +
                                       std::to_string(left->thread.x) + "," +
                                       std::to_string(left->thread.y) + "," +
                                       std::to_string(left->thread.z) + " has left the kernel");
        else if (!same_call(first, waves[i].first))
            report(waves[i].first,
                   "waits at this barrier while thread " + std::to_string(first->index) +
                       " of the block waits at the barrier at " + source(first->where));
    }
    barrier_phase ^= 1;
    for (unsigned i = 0; i < wave_count && !failed; i++)
        if (waves[i].at_barrier) {
            waves[i].at_barrier = false;
            begin_round(&waves[i]);
        }
}

} // namespace simt
