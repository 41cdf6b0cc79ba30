/* HIP's kernel language for the host compiler: qualifiers, indices, barriers, exchanges between the
 * lanes of a wave, shared variables, atomics. hip/vendor.h gives the exchanges their names. */
#ifndef SIMT_LANGUAGE_H
#define SIMT_LANGUAGE_H

#include <math.h>
#include <string.h>
#include <type_traits>

#include "simt_lane.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ SIMT_INLINE
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

#define threadIdx (simt_self->thread)
#define blockIdx (simt_self->block->index)
#define blockDim (simt_self->block->size)
#define gridDim (simt_self->block->grid)

namespace simt
{

/* ---- Exchanges ----------------------------------------------------------------------------- */

/* Slots are copied word by word. Under TSan relaxed atomics keep the copies from looking like races
 * and, unlike locks, from ordering anything: a shuffle is not a barrier. */
template <class T> SIMT_INLINE void write_slot(uint64_t *slot, const T &value)
{
    static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= slot_bytes,
                  "lanes exchange plain values of at most 64 bytes");
#if SIMT_TSAN
    uint64_t words[(sizeof(T) + 7) / 8] = {};
    memcpy(words, &value, sizeof(T));
    for (size_t i = 0; i < sizeof words / 8; i++)
        __atomic_store_n(&slot[i], words[i], __ATOMIC_RELAXED);
#else
    memcpy(slot, &value, sizeof(T));
#endif
}

template <class T> SIMT_INLINE T read_slot(const uint64_t *slot)
{
    T value;
#if SIMT_TSAN
    uint64_t words[(sizeof(T) + 7) / 8];
    for (size_t i = 0; i < sizeof words / 8; i++)
        words[i] = __atomic_load_n(&slot[i], __ATOMIC_RELAXED);
    memcpy(&value, words, sizeof(T));
#else
    memcpy(&value, slot, sizeof(T));
#endif
    return value;
}

[[noreturn]] void fail_inactive(call where, unsigned lane);

/* What every lane of the wave handed over at one call. */
template <class T> struct exchanged {
    struct wave *wave;
    unsigned phase;
    call where;

    SIMT_INLINE T operator[](unsigned lane) const
    {
        if (lane >= max_wave || !(wave->participants[phase] >> lane & 1))
            fail_inactive(where, lane);
        return read_slot<T>(wave->lanes[lane].slot[phase]);
    }
};

/* Hand a value to all lanes of the wave and see theirs. The result is good until this lane's next
 * collective. Larger collectives, such as matrix products, are built on this. */
template <class T> SIMT_INLINE exchanged<T> exchange(const T &value, call where)
{
    lane *me = simt_self;
    unsigned phase = me->wave->phase;
    write_slot(me->slot[phase], value);
    wave_wait(where);
    return exchanged<T>{me->wave, phase, where};
}

template <class T> SIMT_INLINE T shuffle_xor(const T &value, unsigned mask, call where)
{
    return exchange(value, where)[simt_self->number ^ mask];
}

/* A kernel that was compiled for one width runs on devices of that width only. */
SIMT_INLINE void check_wave(unsigned width, call where)
{
    if (simt_self->block->wave_width != width)
        lane_fail(where, "is compiled for waves of %u, the device has waves of %u", width,
                  simt_self->block->wave_width);
}

/* ---- Memory -------------------------------------------------------------------------------- */

template <class T> SIMT_INLINE const T &aligned_for(const void *address, call where)
{
    if (reinterpret_cast<uintptr_t>(address) % alignof(T) != 0)
        lane_fail(where, "address %p is not a multiple of %zu", address, alignof(T));
    return *static_cast<const T *>(address);
}

/* A fence orders what this thread did before with what others do after a fence of their own. The
 * atomics themselves order nothing, as on a GPU; TSan then sees a fence that is missing. */
extern char fence_order;

SIMT_INLINE void fence()
{
#if SIMT_TSAN
    order_acquire(&fence_order);
    order_release(&fence_order);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* *address = change(*address) in one step; returns what was there. */
template <class T, class Change> SIMT_INLINE T atomic_change(T *address, Change change)
{
    T before, after;
    __atomic_load(address, &before, __ATOMIC_RELAXED);
    do {
        after = change(before);
    } while (!__atomic_compare_exchange(address, &before, &after, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    return before;
}

/* So that the second argument takes the type of the first. */
template <class T> using same = typename std::common_type<T>::type;

} // namespace simt

SIMT_INLINE void __syncthreads(simt::call where = simt::call::here())
{
    simt::barrier_wait(where);
}

SIMT_INLINE void __threadfence()
{
    simt::fence();
}

SIMT_INLINE void __threadfence_system()
{
    simt::fence();
}

template <class T> SIMT_INLINE T atomicAdd(T *address, simt::same<T> value)
{
    return simt::atomic_change(address, [&](T old) { return static_cast<T>(old + value); });
}

template <class T> SIMT_INLINE T atomicMax(T *address, simt::same<T> value)
{
    return simt::atomic_change(address, [&](T old) { return old > value ? old : value; });
}

template <class T> SIMT_INLINE T atomicOr(T *address, simt::same<T> value)
{
    return simt::atomic_change(address, [&](T old) { return static_cast<T>(old | value); });
}

/* HIP has these without std::. */
template <class T> SIMT_INLINE T min(T a, simt::same<T> b)
{
    return b < a ? b : a;
}

template <class T> SIMT_INLINE T max(T a, simt::same<T> b)
{
    return a < b ? b : a;
}

#endif
