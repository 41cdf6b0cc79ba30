/* Splitting a group: by the library if it can, otherwise the ranks tell each other their colors
 * and the first of each part makes a new id. */
#include "ccl.h"

#include <stdlib.h>

#include "base/hash.h"

/* ---- By the library ------------------------------------------------------------------------ */

/* The world of a part, by a name that its ranks in this process find for themselves. */
static void name_part(const ta_ccl_group *g, unsigned split, int color, char *id)
{
    uint64_t hash = ta_hash_bytes(g->world->id, TA_CCL_ID_BYTES);
    memset(id, 0, TA_CCL_ID_BYTES);
    snprintf(id, TA_CCL_ID_BYTES, "part of %016llx, split %u, color %d", (unsigned long long)hash,
             split, color);
}

/* The part's communicator is written by the library, which may take until the parent is told that
 * it is complete. */
static ncclResult_t split_communicator(ta_ccl_group *g, int color, int key)
{
    /* Never blocking, as a part of an adopted communicator would be: its end would wait for the
     * other ranks', on the thread that ends them all. */
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    g->part = NULL;
    ncclResult_t result = g->nccl->ncclCommSplit(g->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color,
                                                 key, &g->part, &config);
    result = ta_ccl_settle(g, g->comm, result);
    if (result == ncclSuccess && g->part && !atomic_load(&g->world->broken))
        result = ta_ccl_settle(g, g->part, ncclInProgress);
    return result;
}

static ta_status make_part(ta_ccl_group *g, unsigned split, int color, ncclComm_t comm,
                           ta_ccl_group **part)
{
    char id[TA_CCL_ID_BYTES];
    int rank, size;
    ncclResult_t result = g->nccl->ncclCommUserRank(comm, &rank);
    result = ta_ccl_first(result, g->nccl->ncclCommCount(comm, &size));
    if (result != ncclSuccess)
        return ta_gpu_core->fail(TA_ERR_DEVICE, "a part of a " TA_CCL_NAME " group: %s",
                                 ta_ccl_words(g->nccl, comm, result));
    name_part(g, split, color, id);
    TA_TRY(ta_ccl_make(g->group.device, id, rank, size, g->group.timeout_ms, part));
    ta_ccl_give(*part, comm, 0);
    return TA_OK;
}

/* No rank has a part that another one has not: it would wait there in vain. */
static ta_status keep_part(ta_ccl_group *g, ta_ccl_group *made, ta_status status, ta_group **part)
{
    status = ta_ccl_hear_all(&g->group, status);
    if (status == TA_OK) {
        *part = made ? &made->group : NULL;
    } else if (made) {
        (void)ta_ccl_break(made, status, "%s", ta_gpu_core->last_error());
        ta_ccl_destroy(&made->group);
    }
    return status;
}

static ta_status split_natively(ta_ccl_group *g, int color, int key, ta_group **part)
{
    unsigned split = g->splits++;
    ta_ccl_group *made = NULL;
    TA_TRY(ta_ccl_begin(g));
    ncclResult_t result = split_communicator(g, color, key);
    TA_TRY(ta_ccl_end(g, result, NULL, TA_CCL_UNMARKED));
    ta_status status = g->part ? make_part(g, split, color, g->part, &made) : TA_OK;
    if (g->part && !made)
        (void)g->nccl->ncclCommAbort(g->part);
    return keep_part(g, made, status, part);
}

/* ---- By a new id --------------------------------------------------------------------------- */

/* All ranks hear the ids that the first ranks of the parts made. */
static ta_status hand_round(ta_ccl_group *g, const ta_members *members, char *id)
{
    ta_status status;
    size_t ranks = (size_t)g->group.size;
    char(*ids)[TA_CCL_ID_BYTES] = calloc(ranks, sizeof *ids);
    size_t *offsets = calloc(ranks + 1, sizeof *offsets);
    if (!ids || !offsets) {
        status =
            ta_ccl_break(g, TA_ERR_NO_MEMORY, "rank %d: no memory to split a group", g->group.rank);
        goto free_ids;
    }
    for (size_t r = 0; r < ranks; r++)
        offsets[r + 1] = (r + 1) * sizeof *ids;
    if (members->size > 0 && members->rank == 0) {
        status = ta_ccl_new_id(g->group.device, ids[g->group.rank]);
        if (status != TA_OK) {
            (void)ta_ccl_break(g, status, "rank %d: %s", g->group.rank, ta_gpu_core->last_error());
            goto free_ids;
        }
    }
    TA_TRY_GOTO(ta_gpu_core->all_gather_host(&g->group, ids, offsets), free_ids);
    if (members->size > 0)
        memcpy(id, ids[members->ranks[0]], sizeof *ids);

free_ids:
    free(offsets);
    free(ids);
    return status;
}

static ta_status split_by_id(ta_ccl_group *g, int color, int key, ta_group **part)
{
    ta_members members;
    char id[TA_CCL_ID_BYTES];
    ta_ccl_group *made = NULL;
    TA_TRY(ta_gpu_core->members_gather(&g->group, color, key, &members));
    ta_status status = hand_round(g, &members, id);
    if (status == TA_OK && members.size > 0)
        status = ta_ccl_make(g->group.device, id, members.rank, members.size, g->group.timeout_ms,
                             &made);
    ta_gpu_core->members_free(&members);
    /* Whoever has no memory says so before the others wait for it in the library. */
    status = ta_ccl_hear_all(&g->group, status);
    if (made && status == TA_OK)
        status = ta_ccl_join(made);
    return keep_part(g, made, status, part);
}

ta_status ta_ccl_split(ta_group *group, int color, int key, ta_group **part)
{
    ta_ccl_group *g = ta_ccl_of(group);
    return g->nccl->ncclCommSplit ? split_natively(g, color, key, part)
                                  : split_by_id(g, color, key, part);
}
