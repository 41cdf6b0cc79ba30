/* What a device has beyond the library's interface, for programs that are built from the library's
 * own source tree, such as treeattn-bench. No promise covers it: another version of the library may
 * have none of it. */
#ifndef TREEATTN_EXTENSION_H
#define TREEATTN_EXTENSION_H

#include "treeattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A table of functions of the device. A header of the source tree has the name, the version, and
 * what *table then is: "model" is src/device/model.h, "ccl" src/device/ccl_own.h.
 * TA_ERR_UNSUPPORTED if the device has none of this name and version. The table lives as long as
 * the device. */
TA_API ta_status ta_device_extension(ta_device *device, const char *name, int version,
                                     const void **table);

#ifdef __cplusplus
}
#endif

#endif
