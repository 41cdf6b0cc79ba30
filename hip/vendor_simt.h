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
    return {simt::launch(name, kernel, grid, dim3(threads), shared_bytes, stream,
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

TA_DEVICE int32_t ta_uniform(int32_t value)
{
    return value;
}

template <class Params> TA_DEVICE const Params &ta_params_again(const Params &p)
{
    return p;
}

TA_DEVICE void ta_opaque(int32_t &)
{
}

TA_DEVICE void ta_opaque_uniform(int32_t &)
{
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
