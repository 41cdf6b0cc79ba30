/* A part of vendor.h, which alone includes it: the kernel language on NVIDIA. */
#ifndef TA_VENDOR_CUDA_H
#define TA_VENDOR_CUDA_H

#define TA_ONLY_WAVE(Wave) static_assert(Wave == 32, "a wave is 32 threads on NVIDIA")
#define TA_ALL_LANES 0xffffffffu

TA_DEVICE int ta_lane()
{
    return static_cast<int>(threadIdx.x % 32);
}

TA_DEVICE int ta_wave_id()
{
    return static_cast<int>(threadIdx.x / 32);
}

TA_DEVICE void ta_syncwave()
{
    __syncwarp();
}

template <class T> TA_DEVICE T ta_shfl_xor(T value, int mask)
{
    return __shfl_xor_sync(TA_ALL_LANES, value, mask);
}

template <int Mask> TA_DEVICE float ta_shfl_xor_by(float value)
{
    return ta_shfl_xor(value, Mask);
}

template <class T> TA_DEVICE T ta_shfl(T value, int lane)
{
    return __shfl_sync(TA_ALL_LANES, value, lane);
}

TA_DEVICE bool ta_any(bool value)
{
    return __any_sync(TA_ALL_LANES, value) != 0;
}

TA_DEVICE uint32_t ta_low_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x5410);
}

TA_DEVICE uint32_t ta_high_halves(uint32_t first, uint32_t second)
{
    return __byte_perm(first, second, 0x7632);
}

TA_DEVICE int32_t ta_uniform(int32_t value)
{
    return value;
}

/* Else each shuffle is there twice: also one for lanes that come to it one after the other. */
TA_DEVICE int32_t ta_known_uniform(int32_t value)
{
    return __reduce_max_sync(TA_ALL_LANES, value);
}

template <class Params> TA_DEVICE const Params &ta_params_again(const Params &p)
{
    return p;
}

TA_DEVICE void ta_opaque(int32_t &value)
{
    asm volatile("" : "+r"(value));
}

TA_DEVICE void ta_opaque_pointer(const char *&value)
{
    asm volatile("" : "+l"(value));
}

TA_DEVICE void ta_opaque_uniform(int32_t &value)
{
    asm volatile("" : "+r"(value));
}

/* Within 2 units in the last place; exp2(-inf) is 0 and NaN stays NaN. */
TA_DEVICE float ta_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

TA_DEVICE int32_t ta_load_global(const int32_t *address)
{
    return *address;
}

/* For what is read once and written by no thread of this kernel: leaves the first-level cache
 * alone. */
TA_DEVICE ta_vec16 ta_load16_stream(const void *address)
{
    ta_vec16 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
        : "l"(__cvta_generic_to_global(address)));
    return v;
}

TA_DEVICE void ta_ask_for(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
}

TA_DEVICE void ta_load16_stream_if(bool there, const void *address, ta_vec16 &v)
{
    asm("{\n\t.reg .pred there;\n\t"
        "setp.ne.u32 there, %5, 0;\n\t"
        "@there ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "+r"(v.word[0]), "+r"(v.word[1]), "+r"(v.word[2]), "+r"(v.word[3])
        : "l"(__cvta_generic_to_global(address)), "r"(static_cast<uint32_t>(there)));
}

TA_DEVICE ta_vec8 ta_load8_stream(const void *address)
{
    ta_vec8 v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
        : "=r"(v.word[0]), "=r"(v.word[1])
        : "l"(__cvta_generic_to_global(address)));
    return v;
}

/* For what other blocks read too. */
TA_DEVICE ta_vec16 ta_load16_global(const void *address)
{
    ta_vec16 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
        : "l"(__cvta_generic_to_global(address)));
    return v;
}

/* Of a word that no thread of this kernel writes, by itself: not joined with its neighbours. */
TA_DEVICE uint32_t ta_load_word(const uint32_t *address)
{
    uint32_t word;
    asm volatile("ld.global.nc.u32 %0, [%1];"
                 : "=r"(word)
                 : "l"(__cvta_generic_to_global(address)));
    return word;
}

TA_DEVICE void ta_flag_store(uint32_t *flag, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(flag)), "r"(value)
                 : "memory");
}

TA_DEVICE uint32_t ta_flag_load(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(flag))
                 : "memory");
    return value;
}

TA_DEVICE uint32_t ta_flag_peek(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
                 : "=r"(value)
                 : "l"(__cvta_generic_to_global(flag)));
    return value;
}

TA_DEVICE void ta_await_moment()
{
    __nanosleep(20);
}

/* Nanoseconds; some devices count them in steps of a microsecond and more. */
TA_DEVICE uint64_t ta_wall_clock()
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* The hardware copies past the registers, from the second-level cache on. */
struct ta_copy16 {
};

TA_DEVICE void ta_copy_start(ta_copy16 &, void *to, const void *from, bool there)
{
    int32_t bytes = there ? 16 : 0; /* the rest of the 16 becomes 0 */
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes));
}

TA_DEVICE void ta_copies_wait()
{
    asm volatile("cp.async.wait_all;" : : : "memory");
}

TA_DEVICE void ta_copy_finish(const ta_copy16 &, void *)
{
}

TA_DEVICE float ta_from_f16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

TA_DEVICE uint32_t ta_permute_bytes(uint32_t first, uint32_t second, uint32_t selector)
{
    uint32_t word;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(first), "r"(second), "r"(selector));
    return word;
}

template <int Half> TA_DEVICE uint32_t ta_mix_bytes(uint32_t first, uint32_t second)
{
    return ta_permute_bytes(first, second, Half ? 0x7362 : 0x5140);
}

template <int Half> TA_DEVICE uint32_t ta_spread_bytes(uint32_t word)
{
    return ta_permute_bytes(word, 0, Half ? 0x3424 : 0x1404);
}

TA_DEVICE uint32_t ta_spread_signs(uint32_t word)
{
    return ta_permute_bytes(word, 0, 0xbb99); /* the sign of byte 3, and of byte 1 */
}

/* Adding −0 changes nothing. */
TA_DEVICE uint32_t ta_scale_pair(uint32_t word, uint32_t factor)
{
    uint32_t product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(word), "r"(factor), "r"(0x80008000u));
    return product;
}

TA_DEVICE bool ta_converts_narrow(bool fnuz)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return !fnuz;
#else
    (void)fnuz;
    return false;
#endif
}

TA_DEVICE void ta_convert_narrow(bool e4m3, uint32_t two, float &first, float &second)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t codes = static_cast<uint16_t>(two);
    uint32_t halves;
    if (e4m3)
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
    else
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(codes));
    first = ta_from_f16(static_cast<uint16_t>(halves));
    second = ta_from_f16(static_cast<uint16_t>(halves >> 16));
#else
    (void)e4m3, (void)two;
    first = second = 0.0f;
#endif
}

/* Instructions give NaN with all bits of the fraction, also in f16. */
TA_DEVICE float ta_quiet(float value)
{
    return value;
}

TA_DEVICE uint16_t ta_to_f16(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

TA_DEVICE uint32_t ta_to_f16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

TA_DEVICE uint32_t ta_to_bf16_pair(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#endif
