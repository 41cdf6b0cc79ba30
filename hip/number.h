/* The element types in kernels: a type for each ta_dtype that says how 16 bytes of K or V become
 * floats, and loads and stores of single elements whose type is only known at run time. */
#ifndef TA_HIP_NUMBER_H
#define TA_HIP_NUMBER_H

#include "vendor.h"

#include "../include/treeattn/treeattn.h"

struct ta_type_f32 {
    typedef float element;
    static const int unit = 4; /* elements in 16 bytes */

    TA_DEVICE void unpack(ta_vec16 from, float (&to)[unit])
    {
        for (int i = 0; i < unit; i++)
            to[i] = ta_as_float(from.word[i]);
    }
    TA_DEVICE float from(element x)
    {
        return x;
    }
};

struct ta_type_f16 {
    typedef uint16_t element;
    static const int unit = 8;

    TA_DEVICE void unpack(ta_vec16 from, float (&to)[unit])
    {
        for (int i = 0; i < unit; i++)
            to[i] = ta_from_f16(static_cast<uint16_t>(from.word[i / 2] >> i % 2 * 16));
    }
    TA_DEVICE float from(element x)
    {
        return ta_from_f16(x);
    }
    TA_DEVICE element to(float x)
    {
        return ta_to_f16(x);
    }
};

struct ta_type_bf16 {
    typedef uint16_t element;
    static const int unit = 8;

    TA_DEVICE void unpack(ta_vec16 from, float (&to)[unit])
    {
        for (int i = 0; i < unit; i += 2) {
            to[i] = ta_as_float(from.word[i / 2] << 16);
            to[i + 1] = ta_as_float(from.word[i / 2] & 0xffff0000u);
        }
    }
    TA_DEVICE float from(element x)
    {
        return ta_from_bf16(x);
    }
    TA_DEVICE element to(float x)
    {
        return ta_to_bf16(x);
    }
};

/* 2 neighbouring elements, aligned to their size together. */
template <class Type> TA_DEVICE void ta_load2(const typename Type::element *from, float (&to)[2])
{
    struct alignas(2 * sizeof(typename Type::element)) two {
        typename Type::element x[2];
    };
    two both = *reinterpret_cast<const two *>(from);
    to[0] = Type::from(both.x[0]);
    to[1] = Type::from(both.x[1]);
}

TA_DEVICE float ta_load_element(ta_dtype dtype, const void *data, int64_t index)
{
    if (dtype == TA_F32)
        return static_cast<const float *>(data)[index];
    uint16_t half = static_cast<const uint16_t *>(data)[index];
    return dtype == TA_F16 ? ta_from_f16(half) : ta_from_bf16(half);
}

TA_DEVICE void ta_store_element(ta_dtype dtype, void *data, int64_t index, float value)
{
    if (dtype == TA_F32)
        static_cast<float *>(data)[index] = value;
    else
        static_cast<uint16_t *>(data)[index] =
            dtype == TA_F16 ? ta_to_f16(value) : ta_to_bf16(value);
}

#endif
