/* Events, side streams and scratch memory of groups. Freeing device memory waits for the whole
 * device, which may be waiting for another rank; so the scratch of a group that ends is kept for
 * the next group on its device. */
#include "ccl.h"

#include <stdlib.h>

/* Written into the memory's own description, as the memory is the device's. */
typedef struct spare {
    struct spare *next;
    int index;
    void *scratch;
} spare;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static spare *spares;

static void *take_spare(int index)
{
    void *scratch = NULL;
    pthread_mutex_lock(&mutex);
    for (spare **link = &spares; *link && !scratch; link = &(*link)->next)
        if ((*link)->index == index) {
            spare *taken = *link;
            scratch = taken->scratch;
            *link = taken->next;
            free(taken);
            break;
        }
    pthread_mutex_unlock(&mutex);
    return scratch;
}

static void keep_spare(int index, void *scratch)
{
    spare *kept = malloc(sizeof *kept);
    if (!kept)
        return;
    pthread_mutex_lock(&mutex);
    *kept = (spare){spares, index, scratch};
    spares = kept;
    pthread_mutex_unlock(&mutex);
}

ta_status ta_ccl_take(ta_ccl_group *g)
{
    const ta_gpu_device *gpu = ta_gpu_of(g->group.device);
    for (int i = 0; i < 2; i++)
        TA_TRY(ta_gpu_check(gpu, hipEventCreateWithFlags(&g->marks[i].event, hipEventDisableTiming),
                            "making an event"));
    TA_TRY(ta_gpu_check(gpu, hipEventCreateWithFlags(&g->fork, hipEventDisableTiming),
                        "making an event"));
    TA_TRY(ta_gpu_check(gpu, hipEventCreateWithFlags(&g->join, hipEventDisableTiming),
                        "making an event"));
    TA_TRY(ta_gpu_check(gpu, hipStreamCreateWithFlags(&g->side, hipStreamNonBlocking),
                        "making a stream"));
    g->scratch = take_spare(g->index);
    if (g->scratch)
        return TA_OK;
    return ta_gpu_check(gpu, hipMalloc(&g->scratch, TA_CCL_SCRATCH_BYTES), "allocating %zu bytes",
                        TA_CCL_SCRATCH_BYTES);
}

void ta_ccl_free(ta_ccl_group *g, int done)
{
    for (int i = 0; i < 2; i++)
        if (g->marks[i].event)
            (void)hipEventDestroy(g->marks[i].event);
    if (g->fork)
        (void)hipEventDestroy(g->fork);
    if (g->join)
        (void)hipEventDestroy(g->join);
    if (g->side) /* work that is still on it goes on; the stream goes after it */
        (void)hipStreamDestroy(g->side);
    if (g->scratch && done)
        keep_spare(g->index, g->scratch);
    pthread_mutex_destroy(&g->calls);
    free(g->offsets);
    free(g);
}
