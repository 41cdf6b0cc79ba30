/* The module "mpi": groups whose ranks are MPI processes. This file has its entry, which the core
 * loads (device/module.c), and the life of a group; mpi.h says where the rest is. */
#include "mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#if defined(OPEN_MPI)
#define BUILT_WITH "Open MPI"
#elif defined(MPICH_VERSION) || defined(I_MPI_VERSION)
#define BUILT_WITH "MPICH"
#else
#define BUILT_WITH ""
#endif

const ta_core *ta_mpi_core;

static void mpi_abort(ta_group *group, const char *reason)
{
    ta_mpi_group *g = (ta_mpi_group *)group;
    char text[TA_BROKEN_REASON_BYTES];
    int finalized = 0;
    snprintf(text, sizeof text, "rank %d aborted the group: %s", group->rank, reason);
    ta_mpi_break(g, TA_ERR_ABORTED, text);
    MPI_Finalized(&finalized);
    if (!finalized && (g->wire->speaks || pthread_equal(atomic_load(&g->owner), pthread_self())))
        ta_mpi_tell(g);
}

static void mpi_destroy(ta_group *group)
{
    ta_mpi_group *g = (ta_mpi_group *)group;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized)
        ta_mpi_tell(g);
    ta_mpi_free_later(g->memory->requests, g->memory->request_count, g->memory, g->wire);
    ta_broken_destroy(&g->broken);
    free(g->wire_ranks);
    free(g);
}

static ta_status mpi_split(ta_group *group, int color, int key, ta_group **part);

static const ta_group_ops mpi_ops = {
    .name = "mpi",
    .exchange = ta_mpi_exchange,
    .start = ta_mpi_start,
    .finish = ta_mpi_finish,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
    .split = mpi_split,
    .share = ta_mpi_share,
    .await = ta_mpi_await,
    .wake = ta_mpi_wake,
};

/* One block: the slots, the messages to each rank, the requests. */
static ta_mpi_memory *make_memory(int size)
{
    size_t ranks = (size_t)size, requests = 2 * TA_MPI_SLOTS + 2 * ranks;
    ta_mpi_memory *memory =
        calloc(1, sizeof *memory + ranks * sizeof(ta_mpi_control) + requests * sizeof(MPI_Request));
    if (!memory)
        return NULL;
    memory->controls = (ta_mpi_control *)(memory + 1);
    memory->requests = (MPI_Request *)(memory->controls + ranks);
    memory->request_count = (int)requests;
    for (size_t i = 0; i < requests; ++i)
        memory->requests[i] = MPI_REQUEST_NULL;
    return memory;
}

/* A handle without its wire and tag. */
static ta_status make_group(int rank, int size, int timeout_ms, ta_mpi_group **made)
{
    ta_mpi_group *g = calloc(1, sizeof *g);
    int *wire_ranks = calloc((size_t)size, 2 * sizeof *wire_ranks + 2); /* and what follows them */
    ta_mpi_memory *memory = make_memory(size);
    if (!g || !wire_ranks || !memory) {
        free(memory);
        free(wire_ranks);
        free(g);
        return ta_mpi_core->fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks", size);
    }
    g->group = (ta_group){.ops = &mpi_ops, .rank = rank, .size = size, .timeout_ms = timeout_ms};
    g->wire_ranks = wire_ranks;
    g->answers = wire_ranks + size;
    g->silent = (char *)(g->answers + size);
    g->owes = g->silent + size;
    g->memory = memory;
    g->waits_for = -1;
    g->cpus = ta_mpi_core->cpus();
    atomic_init(&g->owner, pthread_self());
    ta_broken_init(&g->broken);
    *made = g;
    return TA_OK;
}

static void free_group(ta_mpi_group *g)
{
    ta_broken_destroy(&g->broken);
    free(g->memory);
    free(g->wire_ranks);
    free(g);
}

/* The first rank of a part chooses its tag and tells the others; -1 if it could not. */
static ta_status agree_on_tag(ta_mpi_group *whole, const ta_members *members, int32_t *tag)
{
    ta_group *group = &whole->group;
    if (members->rank > 0)
        return ta_mpi_core->exchange(group, NULL, 0, -1, tag, sizeof *tag, members->ranks[0], NULL);
    for (int i = 1; i < members->size; ++i)
        TA_TRY(
            ta_mpi_core->exchange(group, tag, sizeof *tag, members->ranks[i], NULL, 0, -1, NULL));
    return TA_OK;
}

static ta_status make_part(ta_mpi_group *whole, const ta_members *members, ta_mpi_group **part)
{
    ta_mpi_group *made = NULL;
    int tag = -1;
    ta_status own = make_group(members->rank, members->size, whole->group.timeout_ms, &made);
    if (own == TA_OK && members->rank == 0)
        own = ta_mpi_new_tag(whole->wire, &tag);
    int32_t agreed = own == TA_OK ? tag : -1;
    ta_status status = agree_on_tag(whole, members, &agreed);
    if (status == TA_OK && own == TA_OK && agreed < 0)
        status = ta_mpi_core->fail(TA_ERR_UNSUPPORTED, "rank %d could not make its part",
                                   members->ranks[0]);
    if (status != TA_OK || own != TA_OK) {
        if (made)
            free_group(made);
        return own != TA_OK ? own : status;
    }
    for (int i = 0; i < members->size; ++i)
        made->wire_ranks[i] = whole->wire_ranks[members->ranks[i]];
    made->tag = agreed;
    made->wire = whole->wire;
    atomic_fetch_add(&whole->wire->users, 1);
    *part = made;
    return TA_OK;
}

static ta_status mpi_split(ta_group *group, int color, int key, ta_group **part)
{
    ta_members members;
    ta_mpi_group *made = NULL;
    ta_status status = TA_OK;
    TA_TRY(ta_mpi_core->members_gather(group, color, key, &members));
    if (members.size > 0)
        status = make_part((ta_mpi_group *)group, &members, &made);
    ta_mpi_core->members_free(&members);
    if (status == TA_OK)
        *part = made ? &made->group : NULL;
    return status;
}

/* Is the process's MPI the one that this module was built with, and ready? The functions that we
 * call are those of the library that was loaded first. */
static ta_status check_mpi(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, initialized = 0, finalized = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n,")] = '\0';
    if (!strstr(version, BUILT_WITH))
        return ta_mpi_core->fail(TA_ERR_UNSUPPORTED,
                                 "this process runs %.80s, module mpi was built with " BUILT_WITH
                                 ": set TREEATTN_MODULE_PATH to the folder of a fitting one",
                                 version);
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return ta_mpi_core->fail(TA_ERR_INVALID,
                                 "MPI is %s: module mpi was built with " BUILT_WITH
                                 " (%.80s), call MPI_Init() of that one first",
                                 finalized ? "finalized already" : "not initialised", version);
    return TA_OK;
}

static ta_status create_mpi(const void *comm, const ta_group_config *config, ta_group **group)
{
    MPI_Comm given;
    ta_wire *wire = NULL;
    ta_mpi_group *made = NULL;
    int inter = 0, tag = 0;
    TA_TRY(check_mpi());
    memcpy(&given, comm, sizeof given);
    if (given == MPI_COMM_NULL)
        return ta_mpi_core->fail(TA_ERR_INVALID, "comm is MPI_COMM_NULL: must be a communicator");
    MPI_Comm_test_inter(given, &inter);
    if (inter)
        return ta_mpi_core->fail(TA_ERR_INVALID, "comm is an intercommunicator: must be of one "
                                                 "group of processes");
    TA_TRY(ta_mpi_join(given, config->timeout_ms, &wire, &tag));
    ta_status status = make_group(wire->rank, wire->size, config->timeout_ms, &made);
    if (status != TA_OK) {
        atomic_store(&wire->broken, 1); /* the others may already be sending */
        ta_mpi_leave(wire);
        return status;
    }
    for (int rank = 0; rank < wire->size; ++rank)
        made->wire_ranks[rank] = rank;
    made->wire = wire;
    made->tag = tag;
    *group = &made->group;
    return TA_OK;
}

static void describe(ta_text *text)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n,")] = '\0';
    ta_mpi_core->text_add(text, "mpi library: %s\n", version);
}

static const ta_module module = {
    .size = sizeof(ta_module),
    .abi = TA_MODULE_ABI,
    .name = "mpi",
    .archs = BUILT_WITH,
    .describe = describe,
    .create_mpi = create_mpi,
};

TA_API const ta_module *ta_module_entry(int abi, const ta_core *core, int *module_abi);

const ta_module *ta_module_entry(int abi, const ta_core *core, int *module_abi)
{
    return ta_module_enter(abi, core, module_abi, &ta_mpi_core, &module);
}
