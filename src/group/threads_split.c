/* Splitting a group of threads: the first rank of each part makes a group for it and hands every
 * other rank its handle, which is a message of one pointer. Called through the table of
 * threads.c. */
#include "threads.h"

#include <stdlib.h>

#include "base/status.h"

/* On the first rank of a part: make it, hand out the handles, keep one. All or none get one. */
static ta_status make_part(ta_group *group, const ta_members *members, ta_group **part)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = group->timeout_ms;
    ta_group **handles = calloc((size_t)members->size, sizeof *handles);
    ta_status made = handles ? ta_group_create_threads(members->size, &config, handles)
                             : ta_fail(TA_ERR_NO_MEMORY, "no memory for %d ranks", members->size);
    ta_status sent = TA_OK;
    for (int i = 1; i < members->size && sent == TA_OK; ++i) {
        ta_group *handle = made == TA_OK ? handles[i] : NULL;
        sent =
            ta_group_exchange(group, &handle, sizeof handle, members->ranks[i], NULL, 0, -1, NULL);
        if (sent == TA_OK && made == TA_OK)
            handles[i] = NULL; /* it belongs to its rank now */
    }
    if (made == TA_OK && sent == TA_OK)
        *part = handles[0];
    for (int i = 0; made == TA_OK && sent != TA_OK && i < members->size; ++i)
        ta_group_destroy(handles[i]);
    free(handles);
    return made == TA_OK ? sent : made;
}

static ta_status take_part(ta_group *group, int first, ta_group **part)
{
    ta_group *handle = NULL;
    TA_TRY(ta_group_exchange(group, NULL, 0, -1, &handle, sizeof handle, first, NULL));
    if (!handle)
        return ta_fail(TA_ERR_NO_MEMORY, "rank %d had no memory for the part of the group", first);
    *part = handle;
    return TA_OK;
}

ta_status ta_threads_split(ta_group *group, int color, int key, ta_group **part)
{
    ta_members members;
    ta_status status = TA_OK;
    TA_TRY(ta_members_gather(group, color, key, &members));
    if (members.size == 0)
        *part = NULL;
    else if (members.rank == 0)
        status = make_part(group, &members, part);
    else
        status = take_part(group, members.ranks[0], part);
    ta_members_free(&members);
    return status;
}
