/* What happens on the fiber of a simulated thread: stopping at a collective, failing, leaving. A
 * lane that stops switches straight to the next lane of its wave's round; block.cpp says what a
 * round is. Only one lane of a block runs at any time, so nothing here needs a lock. */
#include "block.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__thread simt::lane *simt_self = nullptr;

namespace simt
{

static inline block_runner *runner_of(lane *me)
{
    return static_cast<block_runner *>(me->block);
}

/* Go on with another lane, or with the scheduler. */
static inline void switch_from(lane *me, lane *to)
{
    simt_self = to;
    fiber_switch(&me->context, to ? &to->context : &runner_of(me)->scheduler);
}

static inline void next_lane(lane *me)
{
    wave *w = me->wave;
    lane *to = --w->cursor > 0 ? &w->lanes[w->order[w->cursor - 1]] : runner_of(me)->end_round(w);
    if (to != me)
        switch_from(me, to);
}

static inline void stop_lane(lane *me, stop why, call where, const void *address)
{
    wave *w = me->wave;
    me->stopped = why;
    me->where = where;
    me->address = where.exact ? address : nullptr;
    if (w->waiting++ == 0)
        w->first = me;
    else if (!w->stray && !same_call(w->first, me))
        w->stray = me;
    next_lane(me);
}

void wave_wait(call where)
{
    stop_lane(simt_self, stop::wave, where, __builtin_return_address(0));
}

/* A barrier orders what came before it with what comes after, for everybody. Each has an ordering
 * of its own, two used in turn: lanes run one after the other, so the first may be at the next
 * barrier before the second goes on from this one, and what it did in between must not look
 * ordered. */
void wave_sync(call where)
{
    lane *me = simt_self;
    char *order = &me->wave->sync_order[me->wave->phase];
    order_release(order);
    stop_lane(me, stop::wave, where, __builtin_return_address(0));
    order_acquire(order);
}

void barrier_wait(call where)
{
    lane *me = simt_self;
    block_runner *runner = runner_of(me);
    char *order = &runner->barrier_order[runner->barrier_phase];
    order_release(order);
    stop_lane(me, stop::barrier, where, __builtin_return_address(0));
    order_acquire(order);
}

std::string position(const lane *at)
{
    char text[256];
    const block *b = at->block;
    snprintf(text, sizeof text, "block %u,%u,%u thread %u,%u,%u (lane %u of wave %u)", b->index.x,
             b->index.y, b->index.z, at->thread.x, at->thread.y, at->thread.z, at->number,
             at->wave->number);
    return text;
}

std::string source(call where)
{
    return std::string(where.file) + ":" + std::to_string(where.line);
}

void lane_fail(call where, const char *format, ...)
{
    lane *me = simt_self;
    block_runner *runner = runner_of(me);
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    runner->failed = true;
    runner->error = source(where) + ": " + text + ", in " + position(me);
    order_release(&runner->end_order);
    switch_from(me, nullptr);
    __builtin_unreachable(); /* the fiber is reset before it could run again */
}

/* If the test asks for it, those who saw the block's flags so far go first. */
static void hold_flags()
{
    static const char *const asked = getenv("TA_SIMT_HOLD_FLAGS");
    struct timespec moment = {0, asked ? 1000L * atoi(asked) : 0};
    if (asked)
        nanosleep(&moment, nullptr);
}

/* A barrier makes other threads' stores visible to this one on this device, and no further. */
void check_fenced(call where)
{
    const lane *me = simt_self;
    unsigned lanes = me->block->size.x * me->block->size.y * me->block->size.z;
    for (unsigned first = 0; first < lanes; first += me->block->wave_width) {
        const wave *w = me->wave - me->wave->number + first / me->block->wave_width;
        for (unsigned i = 0; i < w->count; i++)
            if (w->lanes[i].unfenced.file)
                lane_fail(where,
                          "stores a flag, but behind the store of thread %u to a peer at %s there "
                          "is no system fence",
                          w->lanes[i].index, source(w->lanes[i].unfenced).c_str());
    }
    hold_flags();
}

void *shared_variable(call where, const void *key, const char *name, size_t bytes, size_t alignment)
{
    block_runner *runner = runner_of(simt_self);
    void *memory = runner->variables.find(key, bytes, alignment);
    if (!memory)
        lane_fail(where,
                  "shared variable %s makes the block use %zu bytes of shared memory, %zu "
                  "are allowed (or there are more than 64 variables)",
                  name, runner->variables.used(), runner->work->shared_limit);
    return memory;
}

/* Two functions that are not inlined: a fiber may be used on another OS thread for its next block,
 * and the loop that outlives a block must not remember where simt_self was. */
static __attribute__((noinline)) void run_kernel(lane *me)
{
    block_runner *runner = runner_of(me);
    order_acquire(&runner->start_order);
    runner->work->body();
    order_release(&runner->end_order);
}

static __attribute__((noinline)) void leave_kernel(lane *me)
{
    me->stopped = stop::left;
    me->wave->members &= ~(1ull << me->number);
    me->wave->live--;
    me->wave->left_in_round = true;
    next_lane(me);
}

void lane_main(void *argument)
{
    lane *me = static_cast<lane *>(argument);
    fiber_started();
    for (;;) {
        run_kernel(me);
        leave_kernel(me);
    }
}

} // namespace simt
