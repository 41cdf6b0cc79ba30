/* Slabs whose ranks are done with them: each is freed when every rank that could write to it has
 * said, in the slab, that it will not any more. That is looked for whenever slabs are made or
 * released, so that nobody waits for anybody. Slabs of ranks whose others died stay until the
 * process ends. Called by peers.c. */
#include "peer_rank.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct parted_slab {
    struct parted_slab *next;
    int index; /* of its device */
    char *slab;
    int32_t rank, ranks, blocks;
} parted_slab;

#define COUNTED_DEVICES 64

static pthread_mutex_t parted_lock = PTHREAD_MUTEX_INITIALIZER;
static parted_slab *parted;
static unsigned looks;              /* how often somebody came to look for slabs to free */
static int opened[COUNTED_DEVICES]; /* how often each device is open */

/* Have all others said that they are done? */
static int is_free(const parted_slab *p)
{
    for (int32_t rank = 0; rank < p->ranks; ++rank) {
        uint32_t done = 0;
        if (rank != p->rank &&
            (ta_copy_and_wait(&done, &ta_peer_done_line(p->slab, p->ranks, p->blocks, rank)->epoch,
                              sizeof done) != hipSuccess ||
             !done))
            return 0;
    }
    return 1;
}

/* With the lock. Freeing waits for work of the slab's device, which may be waiting for the calling
 * rank: so a rank frees slabs of its own device, and of those that nobody has open. */
static int may_free(const parted_slab *p, int index)
{
    return p->index == index || (p->index < COUNTED_DEVICES && opened[p->index] == 0);
}

static void count_look(void)
{
    pthread_mutex_lock(&parted_lock);
    ++looks;
    pthread_mutex_unlock(&parted_lock);
}

/* Those that this rank may free, and how often anybody had looked by then. */
static parted_slab *take_parted(int index, unsigned *looked)
{
    parted_slab *taken = NULL;
    pthread_mutex_lock(&parted_lock);
    *looked = looks;
    for (parted_slab **link = &parted; *link;) {
        parted_slab *p = *link;
        if (!may_free(p, index)) {
            link = &p->next;
            continue;
        }
        *link = p->next;
        p->next = taken;
        taken = p;
    }
    pthread_mutex_unlock(&parted_lock);
    return taken;
}

/* How often anybody has looked: those who did since the slab was taken did not see it. */
static unsigned keep_parted(parted_slab *kept)
{
    pthread_mutex_lock(&parted_lock);
    kept->next = parted;
    parted = kept;
    unsigned count = looks;
    pthread_mutex_unlock(&parted_lock);
    return count;
}

/* Free what can be freed; without the lock, since it waits for devices. Was a slab kept that
 * somebody missed meanwhile, who may be the last that had to be done with it? */
static int free_some_parted(int index)
{
    unsigned looked;
    int missed = 0, before = 0;
    parted_slab *next, *p = take_parted(index, &looked);
    if (!p)
        return 0;
    (void)hipGetDevice(&before);
    for (; p; p = next) {
        next = p->next;
        if (hipSetDevice(p->index) == hipSuccess && is_free(p)) {
            (void)hipFree(p->slab);
            free(p);
        } else if (keep_parted(p) != looked) {
            missed = 1;
        }
    }
    (void)hipSetDevice(before);
    (void)hipGetLastError();
    return missed;
}

void ta_peers_free_parted(int index)
{
    count_look();
    while (free_some_parted(index))
        ;
}

static void count_opened(int index, int change)
{
    pthread_mutex_lock(&parted_lock);
    if (index < COUNTED_DEVICES)
        opened[index] += change;
    pthread_mutex_unlock(&parted_lock);
}

void ta_gpu_open_peers(const ta_gpu_device *gpu)
{
    count_opened(gpu->index, 1);
}

void ta_gpu_close_peers(const ta_gpu_device *gpu)
{
    count_opened(gpu->index, -1);
    ta_peers_free_parted(gpu->index);
}

/* Without memory to remember it by, the slab stays. */
void ta_peers_part_with(const ta_gpu_peers *p)
{
    parted_slab *kept = calloc(1, sizeof *kept);
    if (!kept)
        return;
    kept->index = p->gpu->index;
    kept->slab = p->slab;
    kept->rank = p->params.rank;
    kept->ranks = p->params.ranks;
    kept->blocks = p->params.blocks;
    (void)keep_parted(kept);
}
