/* A team of threads that reads memory on request and says how long it took; see bandwidth.h
 * for what is measured and read_loops.c for the loops. */
#include "bandwidth.h"

#include <pthread.h>
#include <stdlib.h>

#include "machine.h"
#include "parallel.h"
#include "read_loops.h"

/* Threads take portions of the pieces one after the other, so that a thread which the system holds
 * up does not hold up the others. A portion is at most this large, and small enough that each
 * thread has several. */
#define MAX_PORTION ((size_t)1 << 20)
#define PORTIONS_PER_THREAD 16

/* Long pieces are divided, and little memory into small ones. */
#define MIN_PIECE ((size_t)4 << 10)

typedef struct reader {
    reader_team *team;
    pthread_t handle;
    double start_us, end_us; /* of the present sweep */
    volatile uint64_t sum;   /* keeps the reads alive */
} reader;

struct reader_team {
    int threads, made;
    const read_loop *loop;
    reader *readers;
    read_piece *pieces; /* READ_MORE more than `count` */
    size_t count, portion;
    atomic_size_t next; /* the next piece that nobody has taken */
    barrier together;   /* readers start a sweep together, and wait for the slowest */

    /* The request: how many sweeps, and where their times go. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned requests; /* made so far */
    int finished;      /* readers that are done with the last one */
    int stop, sweeps;
    double *times_us;
};

static void record(reader_team *team, int sweep)
{
    double start = team->readers[0].start_us, end = team->readers[0].end_us;
    for (int i = 1; i < team->threads; i++) {
        reader *r = &team->readers[i];
        start = r->start_us < start ? r->start_us : start;
        end = r->end_us > end ? r->end_us : end;
    }
    if (sweep >= 0) /* sweep -1 is the untimed one */
        team->times_us[sweep] = end - start;
    atomic_store(&team->next, 0);
}

static void read_portions(reader *r)
{
    reader_team *team = r->team;
    for (;;) {
        size_t at = atomic_fetch_add(&team->next, team->portion);
        if (at >= team->count)
            return;
        size_t left = team->count - at;
        r->sum += team->loop->read(team->pieces + at, left < team->portion ? left : team->portion);
    }
}

static void sweep_all(reader *r)
{
    reader_team *team = r->team;
    for (int sweep = -1; sweep < team->sweeps; sweep++) {
        barrier_wait(&team->together);
        r->start_us = machine_time_us();
        read_portions(r);
        r->end_us = machine_time_us();
        barrier_wait(&team->together);
        if (r == team->readers)
            record(team, sweep); /* before it arrives for the next sweep, so before others start */
    }
}

/* List the pieces in parts of at most `most` bytes; returns how many there are. NULL: count them
 * only. */
static size_t divide(const read_piece *pieces, size_t count, size_t most, read_piece *list)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t at = 0; at < pieces[i].bytes; at += most, n++) {
            size_t left = pieces[i].bytes - at;
            if (list)
                list[n] = (read_piece){pieces[i].start + at, left < most ? left : most};
        }
    }
    return n;
}

/* Returns -1 without memory. */
static int list_pieces(reader_team *team, const read_piece *pieces, size_t count)
{
    size_t bytes = 0, threads = (size_t)team->threads;
    for (size_t i = 0; i < count; i++)
        bytes += pieces[i].bytes;
    size_t portion = bytes / (threads * PORTIONS_PER_THREAD);
    portion = portion < MAX_PORTION ? portion : MAX_PORTION;
    size_t most = READ_BATCH_BYTES;
    while (most > portion && most > MIN_PIECE)
        most /= 2;
    team->count = divide(pieces, count, most, NULL);
    team->pieces = calloc(team->count + READ_MORE, sizeof *team->pieces);
    if (!team->pieces)
        return -1;
    team->portion = 1;
    if (team->count == 0) /* a rank may have no tokens */
        return 0;
    divide(pieces, count, most, team->pieces);
    for (size_t i = 0; i < READ_MORE; i++)
        team->pieces[team->count + i] = team->pieces[i % team->count];
    if (portion > bytes / team->count)
        team->portion = portion / (bytes / team->count);
    return 0;
}

static void *reader_main(void *argument)
{
    reader *r = argument;
    reader_team *team = r->team;
    unsigned served = 0;
    for (;;) {
        pthread_mutex_lock(&team->lock);
        while (team->requests == served && !team->stop)
            pthread_cond_wait(&team->changed, &team->lock);
        served = team->requests;
        int stop = team->stop;
        pthread_mutex_unlock(&team->lock);
        if (stop)
            return NULL;
        sweep_all(r);
        pthread_mutex_lock(&team->lock);
        team->finished++;
        pthread_cond_broadcast(&team->changed);
        pthread_mutex_unlock(&team->lock);
    }
}

reader_team *readers_create(int threads, int cpus, const read_piece *pieces, size_t count)
{
    int loops;
    reader_team *team = calloc(1, sizeof *team);
    if (!team)
        return NULL;
    team->threads = threads;
    team->readers = calloc((size_t)threads, sizeof *team->readers);
    team->loop = &read_loops(&loops)[0];
    barrier_init(&team->together, threads, cpus);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->changed, NULL);
    atomic_init(&team->next, 0);
    if (!team->readers || list_pieces(team, pieces, count) != 0)
        goto destroy_team;
    for (; team->made < threads; team->made++) {
        reader *r = &team->readers[team->made];
        r->team = team;
        if (pthread_create(&r->handle, NULL, reader_main, r) != 0)
            goto destroy_team;
    }
    return team;

destroy_team:
    readers_destroy(team);
    return NULL;
}

void readers_destroy(reader_team *team)
{
    if (!team)
        return;
    pthread_mutex_lock(&team->lock);
    team->stop = 1;
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
    for (int i = 0; i < team->made; i++)
        pthread_join(team->readers[i].handle, NULL);
    pthread_cond_destroy(&team->changed);
    pthread_mutex_destroy(&team->lock);
    free(team->pieces);
    free(team->readers);
    free(team);
}

void readers_sweep(reader_team *team, int sweeps, double *times_us)
{
    pthread_mutex_lock(&team->lock);
    team->sweeps = sweeps;
    team->times_us = times_us;
    team->finished = 0;
    team->requests++;
    pthread_cond_broadcast(&team->changed);
    while (team->finished < team->threads)
        pthread_cond_wait(&team->changed, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

void readers_choose(reader_team *team, int sweeps)
{
    int count;
    const read_loop *loops = read_loops(&count), *best = loops;
    double best_us = 0;
    double *times = calloc((size_t)sweeps, sizeof *times);
    if (!times)
        return; /* the first loop is a fair choice too */
    for (int i = 0; i < count; i++) {
        team->loop = &loops[i];
        readers_sweep(team, sweeps, times);
        for (int s = 0; s < sweeps; s++) {
            if (best_us == 0 || times[s] < best_us) {
                best_us = times[s];
                best = &loops[i];
            }
        }
    }
    team->loop = best;
    free(times);
}

const char *readers_loop_name(const reader_team *team)
{
    return team->loop->name;
}
