/* Groups of GPUs: ta_ccl_id() and ta_group_create_ccl() check their arguments and call the module
 * of the device; hip/ccl/create.c is the other side. */
#include "base/arguments.h"
#include "base/status.h"
#include "device/modules.h"
#include "group.h"

ta_status ta_ccl_id(ta_device *device, void *id)
{
    if (!device)
        return ta_fail(TA_ERR_INVALID, "device is NULL: open a GPU with ta_device_open()");
    if (!id)
        return ta_fail(TA_ERR_INVALID, "id is NULL: must point to %d bytes", TA_CCL_ID_BYTES);
    return ta_modules_ccl_id(device, id);
}

static ta_status check_ccl(const ta_ccl_config *ccl)
{
    if (!!ccl->id + !!ccl->communicator + !!ccl->bootstrap != 1)
        return ta_fail(TA_ERR_INVALID, "ccl sets %d of id, communicator and bootstrap: must be one",
                       !!ccl->id + !!ccl->communicator + !!ccl->bootstrap);
    if (!ccl->id)
        return TA_OK;
    if (ccl->ranks < 1)
        return ta_fail(TA_ERR_INVALID, "ccl.ranks is %d: must be 1 or more", ccl->ranks);
    if (ccl->rank < 0 || ccl->rank >= ccl->ranks)
        return ta_fail(TA_ERR_INVALID, "ccl.rank is %d: must be from 0 to %d", ccl->rank,
                       ccl->ranks - 1);
    return TA_OK;
}

ta_status ta_group_create_ccl(ta_device *device, const ta_ccl_config *ccl,
                              const ta_group_config *config, ta_group **group)
{
    ta_group_config complete = TA_GROUP_CONFIG_INIT;
    ta_ccl_config known;
    if (!device)
        return ta_fail(TA_ERR_INVALID, "device is NULL: open a GPU with ta_device_open()");
    if (!group)
        return ta_fail(TA_ERR_INVALID, "group is NULL: must point to the result");
    TA_TRY(ta_struct_read(TA_STRUCT(ta_ccl_config), "ccl", ccl, &known));
    TA_TRY(check_ccl(&known));
    TA_TRY(ta_group_check_config(config, &complete.timeout_ms));
    TA_TRY(ta_modules_create_ccl(device, &known, &complete, group));
    ta_group_hold_device(*group);
    return TA_OK;
}
