/* A part of vendor.h, which alone includes it: the kernel language on AMD. */
#ifndef TA_VENDOR_ROCM_H
#define TA_VENDOR_ROCM_H

/* Decided by the architecture that is compiled for; the host's pass never uses it. */
#if defined(__GFX8__) || defined(__GFX9__)
#define TA_DEVICE_WAVE 64
#else
#define TA_DEVICE_WAVE 32
#endif

/* A module for several architectures has the kernels of both widths for each: those that can't run
 * there are left empty. */
#ifdef TA_DEVICE_PASS
#define TA_ONLY_WAVE(Wave)                                                                         \
    if (Wave != TA_DEVICE_WAVE)                                                                    \
    return
#else
#define TA_ONLY_WAVE(Wave) static_assert(Wave == 32 || Wave == 64, "no such wave")
#endif

TA_DEVICE int ta_lane()
{
    return static_cast<int>(threadIdx.x % TA_DEVICE_WAVE);
}

/* In a scalar register, so that branches on it are scalar too. */
TA_DEVICE int ta_wave_id()
{
    return __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x / TA_DEVICE_WAVE));
}

TA_DEVICE void ta_syncwave()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

template <class T> TA_DEVICE T ta_shfl_xor(T value, int mask)
{
    return __shfl_xor(value, mask, TA_DEVICE_WAVE);
}

/* Of 32 neighbours without an address, which would take a register. */
template <int Mask> TA_DEVICE float ta_shfl_xor_by(float value)
{
    if constexpr (Mask < 32)
        return __builtin_bit_cast(
            float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, value), Mask << 10 | 31));
    else
        return ta_shfl_xor(value, Mask);
}

/* Of lanes that differ by constants one address is enough. */
template <class T> TA_DEVICE T ta_shfl(T value, int lane)
{
    return __builtin_bit_cast(
        T, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, value)));
}

TA_DEVICE bool ta_any(bool value)
{
    return __any(value) != 0;
}

TA_DEVICE uint32_t ta_low_halves(uint32_t first, uint32_t second)
{
    return __builtin_amdgcn_perm(second, first, 0x05040100u);
}

TA_DEVICE uint32_t ta_high_halves(uint32_t first, uint32_t second)
{
    return __builtin_amdgcn_perm(second, first, 0x07060302u);
}

template <int Half> TA_DEVICE uint32_t ta_mix_bytes(uint32_t first, uint32_t second)
{
    return __builtin_amdgcn_perm(second, first, Half ? 0x07030602u : 0x05010400u);
}

template <int Half> TA_DEVICE uint32_t ta_spread_bytes(uint32_t word)
{
    return __builtin_amdgcn_perm(word, word, Half ? 0x030c020cu : 0x010c000cu);
}

TA_DEVICE uint32_t ta_spread_signs(uint32_t word)
{
    uint32_t signs = word & 0x80008000u;
    return signs - (signs >> 15);
}

TA_DEVICE uint32_t ta_scale_pair(uint32_t word, uint32_t factor)
{
    float by = ta_as_float(factor & 0xffff0000u);
    return ta_high_halves(ta_as_bits(ta_as_float(word << 16) * by),
                          ta_as_bits(ta_as_float(word & 0xffff0000u) * by));
}

/* The same instructions read FNUZ on MI300 and OCP's dialects on what came after it. */
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
#define TA_NARROW_FNUZ 1
#elif defined(__gfx950__) || defined(__gfx1200__) || defined(__gfx1201__)
#define TA_NARROW_FNUZ 0
#endif

TA_DEVICE bool ta_converts_narrow(bool fnuz)
{
#ifdef TA_NARROW_FNUZ
    return fnuz == (TA_NARROW_FNUZ == 1);
#else
    (void)fnuz;
    return false;
#endif
}

TA_DEVICE void ta_convert_narrow(bool e4m3, uint32_t two, float &first, float &second)
{
#ifdef TA_NARROW_FNUZ
    auto both = e4m3 ? __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(two), false)
                     : __builtin_amdgcn_cvt_pk_f32_bf8(static_cast<int>(two), false);
    first = both[0];
    second = both[1];
#else
    (void)e4m3, (void)two;
    first = second = 0.0f;
#endif
}

TA_DEVICE float ta_quiet(float value)
{
    return __builtin_canonicalizef(value);
}

TA_DEVICE int32_t ta_uniform(int32_t value)
{
    return __builtin_amdgcn_readfirstlane(value);
}

TA_DEVICE int32_t ta_known_uniform(int32_t value)
{
    return ta_uniform(value);
}

TA_DEVICE void ta_opaque(int32_t &value)
{
    asm volatile("" : "+v"(value));
}

/* It may be in scalar registers, which is better. */
TA_DEVICE void ta_opaque_pointer(const char *&)
{
}

TA_DEVICE void ta_opaque_uniform(int32_t &value)
{
    asm volatile("" : "+s"(value));
}

/* From the memory that a kernel's arguments are in. */
template <class Params> TA_DEVICE const Params &ta_params_again(const Params &)
{
    typedef __attribute__((address_space(4))) const Params *constant_params;
    constant_params p = (constant_params)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(p));
    return *(const Params *)p;
}

/* Within 1 unit in the last place, subnormal results become 0. */
TA_DEVICE float ta_exp2(float x)
{
    return __builtin_amdgcn_exp2f(x);
}

typedef uint32_t ta_words4 __attribute__((ext_vector_type(4)));

/* Otherwise a load by a pointer that was itself loaded waits for shared memory too. */
TA_DEVICE int32_t ta_load_global(const int32_t *address)
{
    return *(__attribute__((address_space(1))) const int32_t *)address;
}

/* For what is read once: leaves the caches to others. */
TA_DEVICE ta_vec16 ta_load16_stream(const void *address)
{
    typedef __attribute__((address_space(1))) const ta_words4 *global_words;
    return __builtin_bit_cast(ta_vec16, __builtin_nontemporal_load((global_words)address));
}

/* Nothing asks for what no register waits for. */
TA_DEVICE void ta_ask_for(const void *address)
{
    (void)address;
}

/* Not left alone: a value that may be an old one or a new one is copied in each turn of a loop. */
static __device__ const ta_vec16 ta_zeros = {{0, 0, 0, 0}};

TA_DEVICE void ta_load16_stream_if(bool there, const void *address, ta_vec16 &v)
{
    v = ta_load16_stream(there ? address : &ta_zeros);
}

TA_DEVICE ta_vec8 ta_load8_stream(const void *address)
{
    typedef uint32_t words2 __attribute__((ext_vector_type(2)));
    typedef __attribute__((address_space(1))) const words2 *global_words;
    return __builtin_bit_cast(ta_vec8, __builtin_nontemporal_load((global_words)address));
}

/* For what other blocks read too. */
TA_DEVICE ta_vec16 ta_load16_global(const void *address)
{
    typedef __attribute__((address_space(1))) const ta_words4 *global_words;
    return __builtin_bit_cast(ta_vec16, *(global_words)address);
}

/* In registers on the way. */
struct ta_copy16 {
    ta_vec16 x;
};

TA_DEVICE void ta_copy_start(ta_copy16 &copy, void *, const void *from, bool there)
{
    copy.x = ta_vec16{{0, 0, 0, 0}};
    if (there)
        copy.x = ta_load16_global(from);
}

TA_DEVICE void ta_copies_wait()
{
}

TA_DEVICE void ta_copy_finish(const ta_copy16 &copy, void *to)
{
    ta_store16(to, copy.x);
}

TA_DEVICE uint32_t ta_load_word(const uint32_t *address)
{
    return *(__attribute__((address_space(1))) const uint32_t *)address;
}

TA_DEVICE void ta_flag_store(uint32_t *flag, uint32_t value)
{
    __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}

TA_DEVICE uint32_t ta_flag_load(const uint32_t *flag)
{
    return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

TA_DEVICE uint32_t ta_flag_peek(const uint32_t *flag)
{
    return __hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}

TA_DEVICE void ta_await_moment()
{
    __builtin_amdgcn_s_sleep(1);
}

TA_DEVICE uint64_t ta_wall_clock()
{
    return wall_clock64();
}

TA_DEVICE float ta_from_f16(uint16_t bits)
{
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

TA_DEVICE uint16_t ta_to_f16(float value)
{
    return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}

TA_DEVICE uint32_t ta_to_f16_pair(float low, float high)
{
    return ta_low_halves(ta_to_f16(low), ta_to_f16(high));
}

#endif
