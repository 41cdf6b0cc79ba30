/* A part of vendor.h, which alone includes it: the kernel language on the executor of tests/simt/.
 * The last argument of each function is where it was called from. */
#ifndef TA_VENDOR_SIMT_H
#define TA_VENDOR_SIMT_H

#include "base/dtype.h"

template <class... P, class... A>
static inline ta_launch_result ta_launch(const char *name, void (*kernel)(P...), dim3 grid,
                                         unsigned threads, size_t shared_bytes, hipStream_t stream,
                                         A &&...arguments)
{
    return {simt::launch(name, kernel, grid, dim3(threads), shared_bytes, false, stream,
                         std::forward<A>(arguments)...),
            name};
}

template <class... P, class... A>
static inline ta_launch_result ta_launch_resident(const char *name, void (*kernel)(P...), dim3 grid,
                                                  unsigned threads, size_t shared_bytes,
                                                  hipStream_t stream, A &&...arguments)
{
    return {simt::launch(name, kernel, grid, dim3(threads), shared_bytes, true, stream,
                         std::forward<A>(arguments)...),
            name};
}

#define TA_ONLY_WAVE(Wave) simt::check_wave(Wave, simt::call::here())

#define TA_SHARED(type, name, ...)                                                                 \
    static char name##_key;                                                                        \
    typedef type name##_type __VA_ARGS__;                                                          \
    name##_type &name = *static_cast<name##_type *>(simt::shared_variable(                         \
        simt::call::here(), &name##_key, #name, sizeof(name##_type), alignof(name##_type)))
#define TA_SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(simt_self->block->shared)

TA_DEVICE int ta_lane()
{
    return static_cast<int>(simt_self->number);
}

TA_DEVICE int ta_wave_id()
{
    return static_cast<int>(simt_self->wave->number);
}

TA_DEVICE void ta_syncthreads(simt::call where = simt::call::here())
{
    simt::barrier_wait(where);
}

TA_DEVICE void ta_syncwave(simt::call where = simt::call::here())
{
    simt::wave_sync(where);
}

template <class T> TA_DEVICE T ta_shfl_xor(T value, int mask, simt::call where = simt::call::here())
{
    return simt::shuffle_xor(value, static_cast<unsigned>(mask), where);
}

template <int Mask>
TA_DEVICE float ta_shfl_xor_by(float value, simt::call where = simt::call::here())
{
    return ta_shfl_xor(value, Mask, where);
}

template <class T> TA_DEVICE T ta_shfl(T value, int lane, simt::call where = simt::call::here())
{
    return simt::exchange(value, where)[static_cast<unsigned>(lane)];
}

TA_DEVICE bool ta_any(bool value, simt::call where = simt::call::here())
{
    auto all = simt::exchange(static_cast<uint32_t>(value), where);
    uint32_t found = 0;
    for (unsigned lane = 0; lane < simt_self->wave->count; lane++)
        found |= all[lane];
    return found != 0;
}

TA_DEVICE uint32_t ta_low_halves(uint32_t first, uint32_t second)
{
    return (first & 0xffffu) | second << 16;
}

TA_DEVICE uint32_t ta_high_halves(uint32_t first, uint32_t second)
{
    return first >> 16 | (second & 0xffff0000u);
}

TA_DEVICE bool ta_converts_narrow(bool fnuz)
{
    return simt_self->block->narrow == (fnuz ? simt::dialect::fnuz : simt::dialect::ocp);
}

TA_DEVICE void ta_convert_narrow(bool e4m3, uint32_t two, float &first, float &second,
                                 simt::call where = simt::call::here())
{
    first = simt::convert_narrow(e4m3, two & 0xffu, where);
    second = simt::convert_narrow(e4m3, two >> 8 & 0xffu, where);
}

template <int Half> TA_DEVICE uint32_t ta_mix_bytes(uint32_t first, uint32_t second)
{
    first >>= 16 * Half;
    second >>= 16 * Half;
    return (first & 0xffu) | (second & 0xffu) << 8 | (first & 0xff00u) << 8 |
           (second & 0xff00u) << 16;
}

template <int Half> TA_DEVICE uint32_t ta_spread_bytes(uint32_t word)
{
    word >>= 16 * Half;
    return (word & 0xffu) << 8 | (word & 0xff00u) << 16;
}

TA_DEVICE uint32_t ta_spread_signs(uint32_t word)
{
    uint32_t signs = word & 0x80008000u;
    return signs - (signs >> 15);
}

TA_DEVICE uint32_t ta_scale_pair(uint32_t word, uint32_t factor)
{
    float by = ta_float_from_bits(factor & 0xffff0000u);
    return ta_high_halves(ta_float_bits(ta_float_from_bits(word << 16) * by),
                          ta_float_bits(ta_float_from_bits(word & 0xffff0000u) * by));
}

TA_DEVICE float ta_quiet(float value)
{
    uint32_t bits = ta_float_bits(value);
    return ta_float_from_bits(value != value ? bits | 0x400000u : bits);
}

TA_DEVICE int32_t ta_count_bits(uint32_t word)
{
    return __builtin_popcount(word);
}

TA_DEVICE int32_t ta_uniform(int32_t value)
{
    return value;
}

TA_DEVICE int32_t ta_known_uniform(int32_t value)
{
    return ta_uniform(value);
}

template <class Params> TA_DEVICE const Params &ta_params_again(const Params &p)
{
    return p;
}

TA_DEVICE void ta_opaque(int32_t &)
{
}

TA_DEVICE void ta_opaque_pointer(const char *&)
{
}

TA_DEVICE void ta_opaque_uniform(int32_t &)
{
}

template <class... T> TA_DEVICE void ta_unset(T &...values)
{
    (memset(&values, 0xff, sizeof values), ...);
}

TA_DEVICE float ta_exp2(float x)
{
    return exp2f(x);
}

TA_DEVICE float ta_as_float(uint32_t bits)
{
    return ta_float_from_bits(bits);
}

TA_DEVICE uint32_t ta_as_bits(float value)
{
    return ta_float_bits(value);
}

TA_DEVICE ta_vec16 ta_load16(const void *address, simt::call where = simt::call::here())
{
    return simt::aligned_for<ta_vec16>(address, where);
}

TA_DEVICE int32_t ta_load_global(const int32_t *address)
{
    return *address;
}

TA_DEVICE uint32_t ta_load_word(const uint32_t *address)
{
    return *address;
}

TA_DEVICE ta_vec16 ta_load16_stream(const void *address, simt::call where = simt::call::here())
{
    return simt::aligned_for<ta_vec16>(address, where);
}

/* A sanitizer should see what is asked for. */
TA_DEVICE void ta_ask_for(const void *address)
{
    (void)*static_cast<const volatile char *>(address);
}

TA_DEVICE void ta_load16_stream_if(bool there, const void *address, ta_vec16 &v,
                                   simt::call where = simt::call::here())
{
    if (there)
        v = simt::aligned_for<ta_vec16>(address, where);
}

TA_DEVICE ta_vec8 ta_load8_stream(const void *address, simt::call where = simt::call::here())
{
    return simt::aligned_for<ta_vec8>(address, where);
}

TA_DEVICE ta_vec16 ta_load16_global(const void *address, simt::call where = simt::call::here())
{
    return simt::aligned_for<ta_vec16>(address, where);
}

TA_DEVICE void ta_store16(void *address, ta_vec16 value, simt::call where = simt::call::here())
{
    const_cast<ta_vec16 &>(simt::aligned_for<ta_vec16>(address, where)) = value;
}

template <class T>
TA_DEVICE void ta_store_peer(T *address, T value, simt::call where = simt::call::here())
{
    simt::peer_store(address, value, where);
}

TA_DEVICE void ta_fence_system()
{
    simt::system_fence();
}

TA_DEVICE void ta_flag_store(uint32_t *flag, uint32_t value, simt::call where = simt::call::here())
{
    simt::flag_store(flag, value, where);
}

TA_DEVICE uint32_t ta_flag_load(const uint32_t *flag)
{
    return simt::flag_load(flag);
}

TA_DEVICE uint32_t ta_flag_peek(const uint32_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

TA_DEVICE void ta_await_moment(simt::call where = simt::call::here())
{
    simt::wait_for_peers(where);
}

TA_DEVICE uint64_t ta_wall_clock()
{
    return simt::wall_clock_ns();
}

/* In waves of 32 as on NVIDIA: the place is taken when the copy starts, and has NaN until it was
 * waited for. In waves of 64 as on AMD: on the way in registers, in its place when it is
 * finished. */
struct ta_copy16 {
    ta_vec16 x;
    unsigned waits; /* of this thread before it began */
};

TA_DEVICE void ta_copy_start(ta_copy16 &copy, void *to, const void *from, bool there,
                             simt::call where = simt::call::here())
{
    copy.x = ta_vec16{{0, 0, 0, 0}};
    if (there)
        copy.x = simt::aligned_for<ta_vec16>(from, where);
    copy.waits = simt_self->waits;
    if (simt_self->block->wave_width == 32)
        ta_store16(to, ta_vec16{{~0u, ~0u, ~0u, ~0u}}, where);
}

TA_DEVICE void ta_copies_wait()
{
    simt_self->waits++;
}

TA_DEVICE void ta_copy_finish(const ta_copy16 &copy, void *to,
                              simt::call where = simt::call::here())
{
    if (copy.waits != simt_self->waits || simt_self->block->wave_width != 32)
        ta_store16(to, copy.x, where);
}

TA_DEVICE float ta_from_f16(uint16_t bits)
{
    return ta_f16_to_f32(bits);
}

TA_DEVICE uint16_t ta_to_f16(float value)
{
    return ta_f32_to_f16(value);
}

TA_DEVICE uint32_t ta_to_f16_pair(float low, float high)
{
    return ta_f32_to_f16(low) | static_cast<uint32_t>(ta_f32_to_f16(high)) << 16;
}

#endif
