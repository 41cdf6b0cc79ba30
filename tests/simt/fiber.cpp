/* Stacks and context switches: see fiber.h. The switch saves what the calling convention says a
 * callee keeps, and nothing else: about two nanoseconds. Elsewhere than on x86-64 ucontext does it,
 * with two system calls each time. */
#include "fiber.h"

#include <new>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* -DSIMT_UCONTEXT tries the fallback on any machine. */
#if defined(__x86_64__) && !defined(SIMT_UCONTEXT)
#define SIMT_X86_64 1
#else
#define SIMT_X86_64 0
#include <ucontext.h>
#endif

namespace simt
{

/* Untouched pages cost nothing. Unoptimised and sanitized code has large frames. */
static const size_t stack_bytes = 256 * 1024;

static size_t page_bytes()
{
    static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

fiber_stacks::fiber_stacks(unsigned count)
{
    size_t step = stack_bytes + page_bytes();
    memory_bytes = step * count;
    void *mapped = mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (mapped == MAP_FAILED)
        throw std::bad_alloc();
    memory = static_cast<char *>(mapped);
    for (unsigned i = 0; i < count; i++)
        mprotect(memory + i * step, page_bytes(), PROT_NONE);
}

fiber_stacks::~fiber_stacks()
{
    unpoison_region(memory, memory_bytes);
    munmap(memory, memory_bytes);
}

char *fiber_stacks::at(unsigned index) const
{
    return memory + index * (stack_bytes + page_bytes()) + page_bytes();
}

/* Fibers do the same at the same depth of their stacks. If all stacks began at the same place in a
 * page, they would share a few sets of the cache and push each other out. */
size_t fiber_stacks::bytes(unsigned index)
{
    return stack_bytes - index * 5 % 64 * 64;
}

void fiber_adopt_thread(fiber *fiber)
{
    pthread_attr_t attributes;
    void *stack = nullptr;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &stack, &bytes);
        pthread_attr_destroy(&attributes);
    }
    fiber->stack = static_cast<char *>(stack);
    fiber->stack_bytes = bytes;
    fiber->fake_stack = nullptr;
#if SIMT_TSAN
    fiber->tsan = __tsan_get_current_fiber();
#endif
#if !SIMT_X86_64
    if (!fiber->saved)
        fiber->saved = new ucontext_t;
#endif
}

void fiber_release_thread(fiber *fiber)
{
#if !SIMT_X86_64
    delete static_cast<ucontext_t *>(fiber->saved);
#endif
    fiber->saved = nullptr;
}

static void reset_sanitizers(fiber *fiber)
{
    unpoison_region(fiber->stack, fiber->stack_bytes);
    fiber->fake_stack = nullptr;
#if SIMT_TSAN
    if (fiber->tsan)
        __tsan_destroy_fiber(fiber->tsan);
    fiber->tsan = __tsan_create_fiber(0);
#endif
}

static void release_sanitizers(fiber *fiber)
{
#if SIMT_TSAN
    if (fiber->tsan)
        __tsan_destroy_fiber(fiber->tsan);
    fiber->tsan = nullptr;
#else
    (void)fiber;
#endif
}

#if SIMT_X86_64

extern "C" void simt_begin_context();

/* The stack of a suspended fiber, from its stack pointer up: r15 r14 r13 r12 rbx rbp, and the
 * address where it goes on. A fresh one goes on in simt_begin_context with its entry in r13. */
asm(R"(
    .text
    .globl simt_switch_context
    .hidden simt_switch_context
    .type simt_switch_context, @function
    .p2align 4
simt_switch_context:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size simt_switch_context, . - simt_switch_context

    .globl simt_begin_context
    .hidden simt_begin_context
    .type simt_begin_context, @function
    .p2align 4
simt_begin_context:
    .cfi_startproc
    .cfi_undefined rip
    movq %r12, %rdi
    callq *%r13
    ud2
    .cfi_endproc
    .size simt_begin_context, . - simt_begin_context
)");

void fiber_reset(fiber *fiber, void (*entry)(void *), void *argument)
{
    reset_sanitizers(fiber);
    uint64_t *top = reinterpret_cast<uint64_t *>(fiber->stack + fiber->stack_bytes) - 2;
    uint64_t *sp = top - 7; /* `top` is a multiple of 16, as the call in simt_begin_context needs */
    memset(sp, 0, 9 * sizeof *sp);
    sp[2] = reinterpret_cast<uint64_t>(entry);    /* r13 */
    sp[3] = reinterpret_cast<uint64_t>(argument); /* r12 */
    sp[6] = reinterpret_cast<uint64_t>(&simt_begin_context);
    fiber->saved = sp;
}

void fiber_release(fiber *fiber)
{
    release_sanitizers(fiber);
    fiber->saved = nullptr;
}

#else

extern "C" void simt_switch_context(void **save, void *load)
{
    swapcontext(static_cast<ucontext_t *>(*save), static_cast<ucontext_t *>(load));
}

/* makecontext() passes integers only. */
static void begin_context(unsigned entry_high, unsigned entry_low, unsigned argument_high,
                          unsigned argument_low)
{
    uintptr_t entry = static_cast<uintptr_t>(static_cast<uint64_t>(entry_high) << 32 | entry_low);
    uintptr_t argument =
        static_cast<uintptr_t>(static_cast<uint64_t>(argument_high) << 32 | argument_low);
    reinterpret_cast<void (*)(void *)>(entry)(reinterpret_cast<void *>(argument));
}

void fiber_reset(fiber *fiber, void (*entry)(void *), void *argument)
{
    reset_sanitizers(fiber);
    if (!fiber->saved)
        fiber->saved = new ucontext_t;
    ucontext_t *context = static_cast<ucontext_t *>(fiber->saved);
    getcontext(context);
    context->uc_stack.ss_sp = fiber->stack;
    context->uc_stack.ss_size = fiber->stack_bytes;
    context->uc_link = nullptr;
    uint64_t e = reinterpret_cast<uintptr_t>(entry);
    uint64_t a = reinterpret_cast<uintptr_t>(argument);
    makecontext(context, reinterpret_cast<void (*)()>(begin_context), 4,
                static_cast<unsigned>(e >> 32), static_cast<unsigned>(e),
                static_cast<unsigned>(a >> 32), static_cast<unsigned>(a));
}

void fiber_release(fiber *fiber)
{
    release_sanitizers(fiber);
    delete static_cast<ucontext_t *>(fiber->saved);
    fiber->saved = nullptr;
}

#endif

} // namespace simt
