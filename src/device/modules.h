/* The modules that are installed: open a device or make a group of theirs, say what there is. Used
 * by device.c and group.c; implemented in module.c. */
#ifndef TA_MODULES_H
#define TA_MODULES_H

#include <treeattn/treeattn.h>

#include "base/text.h"
#include "place.h"

/* Open a device by a name like "cuda:3". */
ta_status ta_modules_open(const char *name, const ta_device_config *config, ta_device **device);

/* Open the first GPU that can be used; *device stays as it is if there is none. One of an
 * architecture without kernels is passed over, and the log says so. Any other failure is returned:
 * a GPU that should work and does not is not to be found out by how slow the host is. */
ta_status ta_modules_open_best(const ta_device_config *config, ta_device **device);

/* As ta_group_create_mpi(), by module "mpi"; the config is checked and complete. */
ta_status ta_modules_create_mpi(const void *comm, const ta_group_config *config, ta_group **group);

/* Can this module be used? */
int ta_modules_has(const char *name);

/* As ta_ccl_id() and ta_group_create_ccl(), by the module of the device; arguments are checked. */
ta_status ta_modules_ccl_id(ta_device *device, void *id);
ta_status ta_modules_create_ccl(ta_device *device, const ta_ccl_config *ccl,
                                const ta_group_config *config, ta_group **group);

/* Where something is inside its node, by module "hwloc"; TA_ERR_NOT_FOUND without it. */
ta_status ta_modules_find_place(const ta_place_question *question, ta_place *place);

void ta_modules_describe(ta_text *text);

#endif
