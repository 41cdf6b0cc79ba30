/* What the core lends to modules: see device/module.h. It is here because most of it is calls of
 * groups, which the loader, a room below, does not know. */
#include "base/status.h"
#include "device/cpus.h"
#include "device/module.h"
#include "group.h"

const ta_core ta_core_calls = {
    .size = sizeof ta_core_calls,
    .fail = ta_fail,
    .text_add = ta_text_add,
    .fail_quietly = ta_fail_quietly,
    .found_by_other = ta_found_by_other,
    .log_info = ta_log_info,
    .last_error = ta_last_error,
    .exchange = ta_group_exchange,
    .barrier = ta_group_barrier,
    .broadcast = ta_group_broadcast,
    .broadcast_host = ta_group_broadcast_host,
    .all_gather_host = ta_group_all_gather_host,
    .members_gather = ta_members_gather,
    .members_free = ta_members_free,
    .cpus = ta_cpus,
};
