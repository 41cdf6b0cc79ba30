/* See struct_size.h. */
#include "struct_size.h"

#include <string.h>

#include "status.h"

const ta_struct_size ta_struct_sizes[TA_STRUCTS] = {
#define STRUCT_SIZES(name, init, last)                                                             \
    {#name, #init, offsetof(name, last) + sizeof((const name *)0)->last, sizeof(name)},
    TA_STRUCT_LIST(STRUCT_SIZES)
#undef STRUCT_SIZES
};

/* The size that the caller gave, if it is one that a struct can have. */
static ta_status read_size(const ta_struct_size *type, const char *argument, const void *given,
                           size_t *size)
{
    if (!given)
        return ta_fail(TA_ERR_INVALID, "%s is NULL: must point to a %s", argument, type->name);
    memcpy(size, given, sizeof *size);
    if (*size < type->first_bytes || *size > TA_STRUCT_MOST_BYTES)
        return ta_fail(TA_ERR_INVALID,
                       "%s.size is %zu: must be %zu, or %zu to %d with another version's %s; "
                       "initialise it with %s",
                       argument, *size, type->bytes, type->first_bytes, TA_STRUCT_MOST_BYTES,
                       type->name, type->init);
    return TA_OK;
}

ta_status ta_struct_read(const ta_struct_size *type, const char *argument, const void *given,
                         void *copy)
{
    const unsigned char *bytes = given;
    size_t size = 0;
    TA_TRY(read_size(type, argument, given, &size));
    for (size_t at = type->bytes; at < size; ++at)
        if (bytes[at])
            return ta_fail(TA_ERR_INVALID,
                           "%s.size is %zu, a %s of a later version, and its byte %zu is %d: must "
                           "be 0, as version %d.%d.%d knows the first %zu alone",
                           argument, size, type->name, at, bytes[at], TA_VERSION_MAJOR,
                           TA_VERSION_MINOR, TA_VERSION_PATCH, type->bytes);
    size_t known = size < type->bytes ? size : type->bytes;
    memcpy(copy, given, known);
    memset((char *)copy + known, 0, type->bytes - known);
    memcpy(copy, &type->bytes, sizeof type->bytes);
    return TA_OK;
}

ta_status ta_struct_write(const ta_struct_size *type, const char *argument, const void *result,
                          void *given)
{
    size_t size = 0;
    TA_TRY(read_size(type, argument, given, &size));
    size_t known = size < type->bytes ? size : type->bytes;
    memcpy((char *)given + sizeof size, (const char *)result + sizeof size, known - sizeof size);
    memset((char *)given + known, 0, size - known);
    return TA_OK;
}
