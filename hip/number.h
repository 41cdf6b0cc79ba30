/* The element types in kernels: a type for each ta_dtype that says how 16 bytes of K or V become
 * floats, and loads and stores of single elements whose type is only known at run time. */
#ifndef TA_HIP_NUMBER_H
#define TA_HIP_NUMBER_H

#include "vendor.h"

#include "dispatch.h"

/* In shared memory elements are of the type `staged`: of 8 bits bf16, else the same. */
struct ta_type_f32 {
    typedef float element;
    typedef ta_type_f32 staged;
    static const int unit = 4; /* elements in 16 bytes of shared memory */

    TA_DEVICE void unpack(ta_vec16 from, float (&to)[unit])
    {
        for (int i = 0; i < unit; i++)
            to[i] = ta_as_float(from.word[i]);
    }
    TA_DEVICE float from(element x)
    {
        return x;
    }
    TA_DEVICE element to(float x)
    {
        return x;
    }
};

struct ta_type_f16 {
    typedef uint16_t element;
    typedef ta_type_f16 staged;
    static const int unit = 8;
    static const int weight_parts = 2; /* see weights.h */

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
    typedef ta_type_bf16 staged;
    static const int unit = 8;
    static const int weight_parts = 3;

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

/* Of a cache alone, see narrow.h. */
struct ta_type_narrow {
    typedef uint8_t element;
    typedef ta_type_bf16 staged;
    static const int unit = 8;
};

TA_DEVICE bool ta_type_is_narrow(ta_dtype dtype)
{
    return dtype >= TA_E4M3;
}

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

TA_DEVICE float ta_load_element(ta_dtype dtype, const void *data, int64_t index){
    TA_TYPE_SWITCH_IN_KERNEL(TA_ALL_TYPES, dtype, Type,
                             return Type::from(static_cast<const Type::element *>(data)[index]))}

TA_DEVICE void ta_store_element(ta_dtype dtype, void *data, int64_t index, float value)
{
    TA_TYPE_SWITCH_IN_KERNEL(TA_ALL_TYPES, dtype, Type,
                             static_cast<Type::element *>(data)[index] = Type::to(value))
}

#endif
