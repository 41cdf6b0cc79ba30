/* Fibers: stacks that one OS thread switches between by hand. Each simulated GPU thread runs on
 * one. block.cpp switches between them; fiber.cpp has the switch itself.
 *
 * A fiber runs `entry(argument)`, which must never return. Resetting a fiber forgets whatever it
 * was doing, so that a block that failed half-way leaves nothing behind. */
#ifndef SIMT_FIBER_H
#define SIMT_FIBER_H

#include <stddef.h>

#include "simt_sanitizer.h"

namespace simt
{

struct fiber {
    void *saved;        /* x86-64: its stack pointer; else its ucontext_t */
    char *stack;        /* lowest address */
    size_t stack_bytes; /* 0 while the stack is the thread's own and not known yet */
    void *fake_stack;   /* ASan's */
    void *tsan;         /* TSan's */
};

/* Stacks with an unreadable page below each. */
struct fiber_stacks {
    explicit fiber_stacks(unsigned count);
    ~fiber_stacks();
    fiber_stacks(const fiber_stacks &) = delete;
    fiber_stacks &operator=(const fiber_stacks &) = delete;

    char *at(unsigned index) const; /* the lowest address of a stack */
    static size_t bytes(unsigned index);

  private:
    char *memory;
    size_t memory_bytes;
};

/* Make `fiber` ready to run entry(argument) on its stack, which the caller has set. */
void fiber_reset(fiber *fiber, void (*entry)(void *), void *argument);
void fiber_release(fiber *fiber);

/* Fill in the fiber that stands for the calling OS thread. */
void fiber_adopt_thread(fiber *fiber);
void fiber_release_thread(fiber *fiber);

/* Called first thing on a fresh fiber. */
inline void fiber_started()
{
#if SIMT_ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

extern "C" void simt_switch_context(void **save, void *load);

/* Continue `to` until somebody switches back to `from`. */
inline void fiber_switch(fiber *from, fiber *to)
{
#if SIMT_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
#if SIMT_TSAN
    __tsan_switch_to_fiber(to->tsan, __tsan_switch_to_fiber_no_sync);
#endif
    simt_switch_context(&from->saved, to->saved);
#if SIMT_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

} // namespace simt

#endif
