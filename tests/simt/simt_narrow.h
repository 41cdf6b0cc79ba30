/* Instructions that turn numbers of 8 bits into floats, as some devices have them: narrow.cpp. The
 * setting TA_SIMT_NARROW says which. hip/vendor_simt.h gives them their names. */
#ifndef SIMT_NARROW_H
#define SIMT_NARROW_H

#include "simt_lane.h"

namespace simt
{

/* A code of e4m3 or else e5m2, in the dialect of the running block's device whatever the caller
 * means by it. An error on a device that has no such instruction. */
float convert_narrow(bool e4m3, uint32_t code, call where);

} // namespace simt

#endif
