/* A module of a later interface: the library must refuse it by its number. */
#include "device/module.h"

TA_API const ta_module *ta_module_entry(int abi, const ta_core *core, int *module_abi);

const ta_module *ta_module_entry(int abi, const ta_core *core, int *module_abi)
{
    (void)abi;
    (void)core;
    *module_abi = 4242;
    return NULL;
}
