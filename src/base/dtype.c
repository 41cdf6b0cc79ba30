/* The rows of dtype.h as a table, for types that are only known at run time. arguments.c asks it
 * what a caller may give, device/device.c in what a device may be asked; explanations name types by
 * it. */
#include "dtype.h"

#define ROW(suffix, number, bytes, roles, ...) [number] = {#suffix, #number, bytes, roles},
static const ta_dtype_traits rows[TA_DTYPE_END] = {TA_DTYPE_LIST(ROW, )};

/* No gap and nothing beyond the end: every number from 1 on has its row. */
#define CHECK_NUMBER(suffix, number, bytes, roles, ...)                                            \
    _Static_assert((int)number > 0 && (int)number < (int)TA_DTYPE_END, #number " leaves a gap");
TA_DTYPE_LIST(CHECK_NUMBER, )

const ta_dtype_traits *ta_dtype_find(ta_dtype dtype)
{
    int number = (int)dtype; /* which may be any that a caller wrote there */
    return number > TA_DTYPE_NONE && number < TA_DTYPE_END ? &rows[number] : NULL;
}

const char *ta_dtype_name(ta_dtype dtype)
{
    const ta_dtype_traits *traits = ta_dtype_find(dtype);
    return traits ? traits->name : "none";
}
