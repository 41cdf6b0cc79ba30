/* A part of vendor.h, which alone includes it: the kernel language that NVIDIA and AMD share. */
#ifndef TA_VENDOR_GPU_H
#define TA_VENDOR_GPU_H

template <class Values, size_t... I>
static inline hipError_t ta_launch_values(const void *kernel, dim3 grid, unsigned threads,
                                          size_t shared_bytes, hipStream_t stream, Values &values,
                                          std::index_sequence<I...>)
{
    void *pointers[] = {static_cast<void *>(&std::get<I>(values))..., nullptr};
    return hipLaunchKernel(kernel, grid, dim3(threads), pointers, shared_bytes, stream);
}

template <class... P, class... A>
static inline ta_launch_result ta_launch(const char *name, void (*kernel)(P...), dim3 grid,
                                         unsigned threads, size_t shared_bytes, hipStream_t stream,
                                         A &&...arguments)
{
    static_assert(sizeof...(P) == sizeof...(A), "a kernel takes all its arguments");
    std::tuple<typename std::decay<P>::type...> values(std::forward<A>(arguments)...);
    return {ta_launch_values(reinterpret_cast<const void *>(kernel), grid, threads, shared_bytes,
                             stream, values, std::index_sequence_for<P...>()),
            name};
}

/* Whoever launches has asked what there is room for. */
#define ta_launch_resident ta_launch

#define TA_SHARED(type, name, ...) __shared__ __align__(16) type name __VA_ARGS__
#define TA_SHARED_DYNAMIC(type, name)                                                              \
    extern __shared__ __align__(16) unsigned char ta_dynamic_shared[];                             \
    type *name = reinterpret_cast<type *>(ta_dynamic_shared)

TA_DEVICE void ta_syncthreads()
{
    __syncthreads();
}

template <class... T> TA_DEVICE void ta_unset(T &...)
{
}

TA_DEVICE float ta_as_float(uint32_t bits)
{
    return __uint_as_float(bits);
}

TA_DEVICE uint32_t ta_as_bits(float value)
{
    return __float_as_uint(value);
}

TA_DEVICE int32_t ta_count_bits(uint32_t word)
{
    return __popc(word);
}

TA_DEVICE ta_vec16 ta_load16(const void *address)
{
    return *static_cast<const ta_vec16 *>(address);
}

TA_DEVICE void ta_store16(void *address, ta_vec16 value)
{
    *static_cast<ta_vec16 *>(address) = value;
}

template <class T> TA_DEVICE void ta_store_peer(T *address, T value)
{
    *address = value;
}

TA_DEVICE void ta_fence_system()
{
    __threadfence_system();
}

#endif
