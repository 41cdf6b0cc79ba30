/* The last error of each thread, and the error that a device is stuck with: see runtime.h. */
#include <mutex>
#include <stdarg.h>
#include <stdio.h>

#include "runtime.h"

namespace simt
{

struct error_state {
    hipError_t error = hipSuccess; /* until hipGetLastError() is asked */
    hipError_t of = hipSuccess;    /* what the text is about */
    std::string text;
};

static thread_local error_state last;
static std::mutex device_mutex;
static error_state device_errors[max_devices];

hipError_t fail(hipError_t error, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    last = error_state{error, error, text};
    return error;
}

void fail_device(int device, hipError_t error, const std::string &text)
{
    std::string with_settings = text + " [" + simt_settings() + "]";
    std::lock_guard<std::mutex> lock(device_mutex);
    if (device_errors[device].error == hipSuccess)
        device_errors[device] = error_state{error, error, with_settings};
}

static error_state device_error(int device)
{
    std::lock_guard<std::mutex> lock(device_mutex);
    return device_errors[device];
}

bool device_failed(int device)
{
    return device_error(device).error != hipSuccess;
}

hipError_t device_status(int device)
{
    error_state state = device_error(device);
    if (state.error != hipSuccess)
        last = state;
    return state.error;
}

void clear_device(int device)
{
    std::lock_guard<std::mutex> lock(device_mutex);
    device_errors[device] = error_state();
    last = error_state();
}

void clear_errors()
{
    for (int i = 0; i < max_devices; i++)
        clear_device(i);
}

} // namespace simt

using namespace simt;

hipError_t hipPeekAtLastError(void)
{
    hipError_t stuck = device_status(current_device());
    return stuck != hipSuccess ? stuck : last.error;
}

/* The text stays, so that hipGetErrorString() can still tell it. */
hipError_t hipGetLastError(void)
{
    hipError_t error = hipPeekAtLastError();
    if (!device_failed(current_device()))
        last.error = hipSuccess;
    return error;
}

const char *hipGetErrorName(hipError_t error)
{
    switch (error) {
        SIMT_ERROR_LIST(SIMT_RETURN_NAME)
    }
    return "hipErrorUnknown";
}

static const char *general_text(hipError_t error)
{
    switch (error) {
        SIMT_ERROR_LIST(SIMT_RETURN_TEXT)
    }
    return "unknown error";
}

const char *hipGetErrorString(hipError_t error)
{
    static thread_local std::string text;
    error_state stuck = device_error(current_device());
    if (error == hipSuccess)
        return general_text(error);
    if (stuck.error == error)
        text = stuck.text;
    else if (last.of == error)
        text = last.text;
    else
        return general_text(error);
    return text.c_str();
}
