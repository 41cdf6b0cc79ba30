/* What comes before and after each test of a program that has one device of the executor. Included
 * by test_gpu_caller.c and test_gpu_device.c. */
#ifndef TESTS_SIMT_DEVICE_H
#define TESTS_SIMT_DEVICE_H

#include "expect.h"
#include "simt/simt_control.h"

static ta_device *device;

void setUp(void)
{
    simt_reset();
    EXPECT_OK(ta_device_open("simt", NULL, &device));
}

void tearDown(void)
{
    ta_device_close(device);
    simt_reset();
}

#endif
