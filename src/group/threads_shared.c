/* Memory that the threads of a group share: it is memory of their process. The first rank makes it
 * and hands every other a handle, which is a message of one pointer. Called through the table of
 * threads.c. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "shared.h"
#include "threads.h"

/* One for all ranks. */
typedef struct thread_shared {
    ta_shared shared;
    atomic_int users;
} thread_shared;

static void release(ta_shared *shared)
{
    thread_shared *s = (thread_shared *)shared;
    if (atomic_fetch_sub(&s->users, 1) != 1)
        return;
    free(s->shared.memory);
    free(s);
}

static ta_status make(int users, size_t bytes, ta_shared **shared)
{
    size_t whole = (bytes + TA_SHARED_LINE - 1) / TA_SHARED_LINE * TA_SHARED_LINE;
    thread_shared *s = calloc(1, sizeof *s);
    void *memory = whole >= bytes ? aligned_alloc(TA_SHARED_LINE, whole) : NULL;
    if (!s || !memory) {
        free(memory);
        free(s);
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for %zu bytes that %d ranks share", bytes,
                       users);
    }
    memset(memory, 0, whole);
    s->shared = (ta_shared){memory, bytes, release};
    atomic_init(&s->users, users);
    *shared = &s->shared;
    return TA_OK;
}

/* On the first rank. Who did not get a handle uses none. */
static ta_status make_and_send(ta_group *group, const int *ranks, int count, size_t bytes,
                               ta_shared **shared)
{
    ta_shared *handle = NULL;
    ta_status made = make(count, bytes, &handle), sent = TA_OK;
    int given = 1;
    for (; given < count && sent == TA_OK; given += sent == TA_OK)
        sent = ta_group_exchange(group, &handle, sizeof handle, ranks[given], NULL, 0, -1, NULL);
    if (made == TA_OK && sent == TA_OK) {
        *shared = handle;
        return TA_OK;
    }
    for (int i = given; made == TA_OK && i <= count; ++i) /* this rank's, and what was not given */
        release(handle);
    return made == TA_OK ? sent : made;
}

ta_status ta_threads_share(ta_group *group, const int *ranks, int count, size_t bytes,
                           ta_shared **shared)
{
    ta_shared *handle = NULL;
    if (group->rank == ranks[0])
        return make_and_send(group, ranks, count, bytes, shared);
    TA_TRY(ta_group_exchange(group, NULL, 0, -1, &handle, sizeof handle, ranks[0], NULL));
    if (!handle)
        return ta_fail(TA_ERR_NO_MEMORY, "rank %d had no memory for %zu bytes that ranks share",
                       ranks[0], bytes);
    *shared = handle;
    return TA_OK;
}
