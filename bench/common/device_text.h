/* How headers and files name devices. */
#ifndef BENCH_DEVICE_TEXT_H
#define BENCH_DEVICE_TEXT_H

#include <stddef.h>

/* The name of the device that this name opens: for "auto" what that is on this machine. */
void device_found(const char *asked, char *name, size_t capacity);

/* As it was asked for, in words; for "auto" what that is on this machine. */
void device_text(const char *asked, char *text, size_t capacity);

/* What a GPU is, as ta_info() has it: "NVIDIA H100 80GB HBM3, sm_90, …". "" of other devices. */
void device_product(const char *name, char *text, size_t capacity);

#endif
