/* The module's one exported function and the table it returns. The core loads this
 * (src/device/module.c). */
#include "archs.h"
#ifdef TA_CCL
#include "ccl/ccl.h"
#else
#include "gpu.h"
#endif

/* From the build: TA_ARCHS, what the kernels were compiled for; TA_CCL if there was a header of
 * NCCL or RCCL. */

const ta_core *ta_gpu_core;

static ta_status module_count(int *devices)
{
    int found = 0;
    hipError_t error = hipGetDeviceCount(&found);
    const char *missing = ta_missing_driver(error);
    if (missing) {
        (void)hipGetLastError();
        return ta_gpu_core->fail(TA_ERR_NOT_FOUND, "no %s driver on this machine", missing);
    }
    if (error == hipErrorNoDevice) {
        (void)hipGetLastError();
        found = 0;
    } else if (error != hipSuccess) {
        (void)hipGetLastError();
        return ta_gpu_core->fail(TA_ERR_NOT_FOUND, "the " TA_VENDOR " runtime can't be used: %s",
                                 hipGetErrorString(error));
    }
    *devices = found;
    return TA_OK;
}

static void module_describe(ta_text *text)
{
    int runtime = 0, driver = 0, devices = 0;
    if (hipRuntimeGetVersion(&runtime) == hipSuccess)
        ta_gpu_core->text_add(text, TA_VENDOR " runtime version: %d\n", runtime);
    if (hipDriverGetVersion(&driver) == hipSuccess)
        ta_gpu_core->text_add(text, TA_VENDOR " driver version: %d\n", driver);
    if (hipGetDeviceCount(&devices) != hipSuccess)
        devices = 0;
    for (int i = 0; i < devices; i++) {
        ta_gpu gpu;
        char refused[400];
        if (ta_gpu_query(i, &gpu) != hipSuccess)
            continue;
        ta_arch_refused(gpu.arch, TA_ARCHS, refused, sizeof refused);
        ta_gpu_core->text_add(text, TA_VENDOR ":%d: %s, %s, %d units, %.1f GiB%s%s\n", i, gpu.name,
                              gpu.arch, gpu.compute_units, (double)gpu.memory_bytes / (1 << 30),
                              refused[0] ? ", not used: it " : "", refused);
    }
    (void)hipGetLastError();
#ifdef TA_CCL
    ta_ccl_describe(text);
#else
    ta_gpu_core->text_add(text, TA_VENDOR " collectives: none, this module was built without\n");
#endif
}

static const ta_module module = {
    .size = sizeof(ta_module),
    .abi = TA_MODULE_ABI,
    .name = TA_VENDOR,
    .archs = TA_ARCHS,
    .count = module_count,
    .open = ta_gpu_open,
    .describe = module_describe,
#ifdef TA_CCL
    .ccl_id = ta_ccl_new_id,
    .create_ccl = ta_ccl_create,
#endif
};

TA_API const ta_module *ta_module_entry(int abi, const ta_core *core, int *module_abi);

const ta_module *ta_module_entry(int abi, const ta_core *core, int *module_abi)
{
    return ta_module_enter(abi, core, module_abi, &ta_gpu_core, &module);
}
