/* Memory that MPI processes of one host share: POSIX shared memory, under a name that nobody can
 * guess, which is taken away again as soon as all have mapped it. From then on it goes with the
 * last process that has it, however that ends. MPI's own windows would do, but are freed by all
 * ranks together, and to destroy a plan waits for nobody. See mpi.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/status.h"
#include "group/shared.h"
#include "mpi.h"

/* Looks at a word, before a rank begins to hear what others say, if it has a CPU to itself. */
#define WORD_SPINS 4096
/* Times that it gives up the CPU instead if it has not. */
#define WORD_YIELDS 64

/* What the first rank tells the others: the name "" if it could not make it. */
typedef struct offer {
    char name[48];
    uint64_t bytes, number; /* which is at the beginning of the memory until all have seen it */
} offer;

static void release(ta_shared *shared)
{
    munmap(shared->memory, shared->bytes);
    free(shared);
}

static ta_status fail_call(const char *function, size_t bytes)
{
    return ta_mpi_core->fail(TA_ERR_UNSUPPORTED, "%s of %zu bytes of shared memory failed: %s",
                             function, bytes, strerror(errno));
}

/* Map what is open as `file`, and close it. */
static ta_status map(int file, size_t bytes, ta_shared **shared)
{
    ta_shared *made = calloc(1, sizeof *made);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ta_status status = TA_OK;
    if (memory == MAP_FAILED)
        status = fail_call("mmap()", bytes);
    else if (!made)
        status = ta_mpi_core->fail(TA_ERR_NO_MEMORY, "no memory for a handle");
    close(file);
    if (status != TA_OK) {
        if (memory != MAP_FAILED)
            munmap(memory, bytes);
        free(made);
        return status;
    }
    *made = (ta_shared){memory, bytes, release};
    *shared = made;
    return TA_OK;
}

/* All pages are there before anybody writes to one: a full /dev/shm is an error here and no signal
 * later. */
static ta_status create(offer *o, ta_shared **shared)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fail_call("getrandom()", sizeof random);
    snprintf(o->name, sizeof o->name, "/treeattn-%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    int file = shm_open(o->name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0) {
        o->name[0] = '\0';
        return fail_call("shm_open()", o->bytes);
    }
    errno = posix_fallocate(file, 0, (off_t)o->bytes);
    ta_status status = errno ? fail_call("posix_fallocate()", o->bytes) : TA_OK;
    if (status == TA_OK)
        status = map(file, o->bytes, shared);
    else
        close(file);
    if (status != TA_OK) {
        shm_unlink(o->name);
        o->name[0] = '\0';
        return status;
    }
    o->number = random[0] ^ random[1];
    memcpy((*shared)->memory, &o->number, sizeof o->number);
    return TA_OK;
}

/* The first rank: make it, offer it, hear who has it. */
static ta_status offer_all(ta_group *group, const int *ranks, int count, size_t bytes,
                           ta_shared **shared)
{
    offer o = {.bytes = bytes};
    ta_shared *made = NULL;
    ta_status status = create(&o, &made), told = TA_OK;
    int missing = -1;
    for (int i = 1; i < count && told == TA_OK; ++i)
        told = ta_mpi_core->exchange(group, &o, sizeof o, ranks[i], NULL, 0, -1, NULL);
    for (int i = 1; i < count && told == TA_OK && status == TA_OK; ++i) {
        int32_t has_it = 0;
        told = ta_mpi_core->exchange(group, NULL, 0, -1, &has_it, sizeof has_it, ranks[i], NULL);
        if (told == TA_OK && !has_it && missing < 0)
            missing = ranks[i];
    }
    if (o.name[0])
        shm_unlink(o.name);
    if (status == TA_OK && told == TA_OK && missing >= 0)
        status = ta_mpi_core->fail(TA_ERR_UNSUPPORTED,
                                   "rank %d cannot map the shared memory of rank %d: it may be on "
                                   "another host, or in another container",
                                   missing, group->rank);
    if (made && status == TA_OK && told == TA_OK) {
        memset(made->memory, 0, sizeof o.number);
        *shared = made;
        return TA_OK;
    }
    if (made)
        release(made);
    return status == TA_OK ? told : status;
}

static ta_status open_offer(const offer *o, int first, ta_shared **shared)
{
    if (!o->name[0])
        return ta_mpi_core->fail(TA_ERR_UNSUPPORTED, "rank %d could not make shared memory", first);
    int file = shm_open(o->name, O_RDWR, 0);
    if (file < 0)
        return ta_mpi_core->fail(TA_ERR_UNSUPPORTED,
                                 "the shared memory of rank %d is not here: %s; it may be on "
                                 "another host, or in another container",
                                 first, strerror(errno));
    TA_TRY(map(file, o->bytes, shared));
    if (memcmp((*shared)->memory, &o->number, sizeof o->number) == 0)
        return TA_OK;
    release(*shared);
    return ta_mpi_core->fail(TA_ERR_UNSUPPORTED, "the shared memory of rank %d is another one here",
                             first);
}

static ta_status take(ta_group *group, int first, size_t bytes, ta_shared **shared)
{
    offer o = {.bytes = 0};
    ta_shared *found = NULL;
    TA_TRY(ta_mpi_core->exchange(group, NULL, 0, -1, &o, sizeof o, first, NULL));
    o.name[sizeof o.name - 1] = '\0';
    ta_status status = open_offer(&o, first, &found);
    if (status == TA_OK && o.bytes != bytes) {
        release(found);
        status = ta_mpi_core->fail(TA_ERR_MISMATCH,
                                   "rank %d shares %" PRIu64
                                   " bytes where rank %d expected %zu: the ranks are not in the "
                                   "same call",
                                   first, o.bytes, group->rank, bytes);
    }
    if (!o.name[0]) /* it knows */
        return status;
    int32_t has_it = status == TA_OK;
    ta_status told = ta_mpi_core->exchange(group, &has_it, sizeof has_it, first, NULL, 0, -1, NULL);
    if (told != TA_OK && status == TA_OK)
        release(found);
    else if (status == TA_OK)
        *shared = found;
    return status == TA_OK ? told : status;
}

ta_status ta_mpi_share(ta_group *group, const int *ranks, int count, size_t bytes,
                       ta_shared **shared)
{
    return group->rank == ranks[0] ? offer_all(group, ranks, count, bytes, shared)
                                   : take(group, ranks[0], bytes, shared);
}

/* Nothing of MPI at first: what is awaited does not come by MPI. Then as for a message, so that a
 * group that broke, an abort and a rank that is missing are found out in the same way. */
ta_status ta_mpi_await(ta_group *group, int peer, int ranks, const uint32_t *word, uint32_t epoch)
{
    ta_mpi_group *g = (ta_mpi_group *)group;
    int spins = ranks <= g->cpus;
    if (ta_broken_status(&g->broken) != TA_OK)
        return ta_mpi_check(g);
    for (int i = 0; i < (spins ? WORD_SPINS : WORD_YIELDS); ++i) {
        if (ta_word_reached(word, epoch))
            return TA_OK;
        if (!spins)
            sched_yield();
    }
    ta_mpi_wait wait = ta_mpi_wait_begin(group->timeout_ms);
    ta_status status = TA_OK;
    atomic_store(&g->owner, pthread_self());
    while (status == TA_OK && !ta_word_reached(word, epoch))
        status = ta_mpi_wait_round(g, &wait, peer);
    g->waits_for = -1;
    return status;
}

/* Nobody sleeps but for moments. */
void ta_mpi_wake(ta_group *group, int peer)
{
    (void)group, (void)peer;
}
