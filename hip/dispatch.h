/* From a ta_dtype, known at run time, to the type of number.h that kernels are made with. The lists
 * say which types have kernels; every branch over dtypes in hip/ is made from them, and a number
 * that is in none of them is an error that names it. C files ask the lists, .hip files switch by
 * them, and launched.h has the error.
 *
 * Several dtypes may share a type, whose conversions then are given the dtype too: so the dialects
 * of one width do not multiply the kernels. */
#ifndef TA_HIP_DISPATCH_H
#define TA_HIP_DISPATCH_H

#include "../include/treeattn/treeattn.h"

/* X(dtype, type, …). */
#define TA_MATRIX_TYPES(X, ...)                                                                    \
    X(TA_F16, ta_type_f16, __VA_ARGS__)                                                            \
    X(TA_BF16, ta_type_bf16, __VA_ARGS__)
#define TA_ALL_TYPES(X, ...)                                                                       \
    X(TA_F32, ta_type_f32, __VA_ARGS__)                                                            \
    TA_MATRIX_TYPES(X, __VA_ARGS__)

/* Also what only caches have: 8 bits in several dialects, one type (narrow.h). */
#define TA_NARROW_TYPES(X, ...)                                                                    \
    X(TA_E4M3, ta_type_narrow, __VA_ARGS__)                                                        \
    X(TA_E5M2, ta_type_narrow, __VA_ARGS__)                                                        \
    X(TA_E4M3_FNUZ, ta_type_narrow, __VA_ARGS__)                                                   \
    X(TA_E5M2_FNUZ, ta_type_narrow, __VA_ARGS__)
/* What matrix cores multiply, or what becomes such a type on its way to them. */
#define TA_STAGED_TYPES(X, ...)                                                                    \
    TA_MATRIX_TYPES(X, __VA_ARGS__)                                                                \
    TA_NARROW_TYPES(X, __VA_ARGS__)
#define TA_CACHE_TYPES(X, ...)                                                                     \
    TA_ALL_TYPES(X, __VA_ARGS__)                                                                   \
    TA_NARROW_TYPES(X, __VA_ARGS__)

#define TA_TYPE_LABEL(number, type, ...) case number:

#define TA_TYPE_NUMBER(number, type, ...) number,

/* Have kernels a version for it? */
static inline int ta_type_exists(ta_dtype dtype)
{
    switch (dtype) {
        TA_ALL_TYPES(TA_TYPE_LABEL, )
        return 1;
    default:
        return 0;
    }
}

/* Have those that read and write caches? */
static inline int ta_type_in_caches(ta_dtype dtype)
{
    switch (dtype) {
        TA_CACHE_TYPES(TA_TYPE_LABEL, )
        return 1;
    default:
        return 0;
    }
}

/* Have the kernels for matrix cores one, whose two operands are of this type? */
static inline int ta_type_in_matrices(ta_dtype dtype)
{
    switch (dtype) {
        TA_MATRIX_TYPES(TA_TYPE_LABEL, )
        return 1;
    default:
        return 0;
    }
}

#ifdef __cplusplus

static const ta_dtype ta_matrix_dtypes[] = {TA_MATRIX_TYPES(TA_TYPE_NUMBER, )};
static const ta_dtype ta_staged_dtypes[] = {TA_STAGED_TYPES(TA_TYPE_NUMBER, )};

/* TA_TYPE_SWITCH(TA_ALL_TYPES, dtype, Type, statement): the statement with Type for this dtype, for
 * launchers. Nothing for a dtype that is not in the list: `result` before it is ta_no_type(). */
#define TA_TYPE_CASE(number, type, Type, ...)                                                      \
    case number: {                                                                                 \
        typedef type Type;                                                                         \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }
#define TA_TYPE_SWITCH_OR(otherwise, TYPES, dtype, Type, ...)                                      \
    switch (dtype) {                                                                               \
        TYPES(TA_TYPE_CASE, Type, __VA_ARGS__)                                                     \
    default:                                                                                       \
        otherwise;                                                                                 \
    }
#define TA_TYPE_SWITCH(...) TA_TYPE_SWITCH_OR(break, __VA_ARGS__)

/* The same in a kernel, for a dtype that is the same for all threads. Its launcher has refused all
 * others with TA_NEED_TYPE(), so that they cost no instruction here. */
#define TA_TYPE_SWITCH_IN_KERNEL(...) TA_TYPE_SWITCH_OR(__builtin_unreachable(), __VA_ARGS__)

/* For copies, which only look at the bytes of an element: Word is an integer of that size. */
#define TA_WORD_SWITCH_IN_KERNEL(bytes, Word, ...)                                                 \
    switch (bytes) {                                                                               \
    case 4: {                                                                                      \
        typedef uint32_t Word;                                                                     \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case 2: {                                                                                      \
        typedef uint16_t Word;                                                                     \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case 1: {                                                                                      \
        typedef uint8_t Word;                                                                      \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    default:                                                                                       \
        __builtin_unreachable();                                                                   \
    }

#endif

#endif
