/* Which architectures the kernels were written for, and which of them this module can run on. A
 * device of another one would compile, or load, and compute wrong numbers: it is refused. The build
 * refuses them too (meson.build), and so does mma.h. */
#ifndef TA_HIP_ARCHS_H
#define TA_HIP_ARCHS_H

#include <stddef.h>

/* "sm_90" or "gfx942:sramecc+:xnack-", as a device calls itself. */
int ta_arch_known(const char *arch);

/* Do kernels that were compiled for `archs` ("sm_80 sm_90", and PTX of the last) run on `arch`? */
int ta_arch_runs(const char *arch, const char *archs);

/* Are f16 elements converted to fp32 one by one before matrix cores multiply them, which takes
 * registers? TA_MMA_CONVERTS_F16 of mma.h, for the host. */
int ta_arch_converts_f16(const char *arch);

/* Why `arch` is refused, in words that follow the device's name; empty if it is not. */
void ta_arch_refused(const char *arch, const char *archs, char *why, size_t capacity);

#endif
