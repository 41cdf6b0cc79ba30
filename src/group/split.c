/* Splitting a group: ta_group_split(), and what the engines for host memory need for it, which is
 * to know the color and key of every rank. Threads split in threads_split.c, others in their
 * modules. */
#include <stdlib.h>

#include "base/status.h"
#include "group.h"

/* What a rank tells the others. */
typedef struct wish {
    int32_t color, key;
} wish;

ta_status ta_group_split(ta_group *group, int color, int key, ta_group **part)
{
    if (!group)
        return ta_fail(TA_ERR_INVALID, "group is NULL: must be the group to split");
    if (!part)
        return ta_fail(TA_ERR_INVALID, "part is NULL: must point to the result");
    TA_TRY(group->ops->split(group, color, key, part));
    if (*part)
        ta_group_hold_device(*part);
    return TA_OK;
}

/* Does rank a come before rank b in their part? */
static int before(const wish *wishes, int a, int b)
{
    return wishes[a].key != wishes[b].key ? wishes[a].key < wishes[b].key : a < b;
}

/* Insertion: parts are small, and the ranks are nearly in order already. */
static void sort_members(const wish *wishes, int ranks, int own, ta_members *members)
{
    members->size = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        if (wishes[rank].color != wishes[own].color)
            continue;
        int at = members->size++;
        for (; at > 0 && before(wishes, rank, members->ranks[at - 1]); --at)
            members->ranks[at] = members->ranks[at - 1];
        members->ranks[at] = rank;
    }
    for (int i = 0; i < members->size; ++i)
        if (members->ranks[i] == own)
            members->rank = i;
}

ta_status ta_members_gather(ta_group *group, int color, int key, ta_members *members)
{
    ta_status status = TA_OK;
    size_t ranks = (size_t)group->size;
    ta_members found = {.ranks = calloc(ranks, sizeof(int))};
    wish *wishes = calloc(ranks, sizeof *wishes);
    size_t *offsets = calloc(ranks + 1, sizeof *offsets);
    if (!found.ranks || !wishes || !offsets) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory to split a group of %d ranks", group->size);
        ta_group_abort(group, ta_last_error()); /* so that the others do not wait */
        goto free_gathered;
    }
    for (size_t rank = 0; rank < ranks; ++rank)
        offsets[rank + 1] = (rank + 1) * sizeof *wishes;
    wishes[group->rank] = (wish){color < 0 ? -1 : color, key};
    TA_TRY_GOTO(ta_group_all_gather_host(group, wishes, offsets), free_gathered);
    if (color >= 0)
        sort_members(wishes, group->size, group->rank, &found);

free_gathered:
    free(offsets);
    free(wishes);
    if (status == TA_OK)
        *members = found;
    else
        ta_members_free(&found);
    return status;
}

void ta_members_free(ta_members *members)
{
    free(members->ranks);
    members->ranks = NULL;
}
