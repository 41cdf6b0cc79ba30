/* Numbers of 8 bits as the instructions of a device read them: see simt_narrow.h. From what the
 * formats are, in double, and without anything of src/base/narrow.h, which tests compare it with.
 *
 * A NaN has the lowest bit of its fraction alone: no vendor promises more, and code that cuts the
 * lower half off must not make an infinity of it. */
#include "simt_narrow.h"

#include <math.h>
#include <string.h>

namespace simt
{

static float least_nan()
{
    const uint32_t bits = 0x7f800001u;
    float nan;
    memcpy(&nan, &bits, sizeof nan);
    return nan;
}

/* OCP: e4m3 has NaN in the code of all ones, e5m2 its highest exponent as binary32 has it. */
static bool ocp_special(bool e4m3, uint32_t magnitude)
{
    return e4m3 ? magnitude == 0x7f : magnitude >= 0x7c;
}

float convert_narrow(bool e4m3, uint32_t code, call where)
{
    dialect of = simt_self->block->narrow;
    if (of == dialect::none)
        lane_fail(where, "converts 8 bits, for which the device has no instruction");
    int fraction_bits = e4m3 ? 3 : 2, bias = (e4m3 ? 7 : 15) + (of == dialect::fnuz);
    uint32_t magnitude = code & 0x7f, fraction = magnitude & ((1u << fraction_bits) - 1);
    bool negative = code & 0x80;
    if (of == dialect::fnuz ? code == 0x80 : ocp_special(e4m3, magnitude)) {
        bool infinite = of == dialect::ocp && magnitude == 0x7c;
        return infinite ? (negative ? -INFINITY : INFINITY) : least_nan();
    }
    int exponent = static_cast<int>(magnitude >> fraction_bits);
    double steps = exponent ? (1 << fraction_bits) + fraction : fraction;
    double number = ldexp(steps, (exponent ? exponent : 1) - bias - fraction_bits);
    return static_cast<float>(negative ? -number : number);
}

} // namespace simt
