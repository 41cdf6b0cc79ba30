/* Emulated links, a transport of the library's (treeattn/collectives.h). A message is a note in the
 * mailbox of its receiver with the moment at which its last byte is there; nobody gets it earlier.
 * Small ones are copied when they are sent, large ones when they arrive, from the sender's memory,
 * so that the emulation costs at most the one copy that a ring of threads makes too.
 * decode/rank_plan.c makes the groups. */
#include "links.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "machine.h"

/* Above this a message stays in the sender's memory until it has arrived. */
#define COPIED_BYTES ((size_t)64 << 10)
/* The system wakes sleepers about this late; the rest of a wait is spent looking at the clock. */
#define WAKE_US 60.0

typedef struct message {
    struct message *next;
    int from;
    int32_t channel;
    size_t bytes;
    double arrives_us;
    const void *data;      /* the copy behind this struct, or the sender's memory … */
    atomic_int *taken;     /* … which then learns that it is free */
    const ta_transfer *of; /* the transfer it belongs to, for cancel */
} message;

typedef struct node {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned changes;       /* that this rank should look at */
    message *first, **last; /* in the order in which they were sent */
    double in_free_us;      /* when the link into the node has nothing to do any more */
    double out_free_us;     /* likewise out of it */
} node;

typedef struct links {
    link_speed speed;
    int ranks;
    atomic_int users;
    node nodes[];
} links;

/* What one rank's transport is given. */
typedef struct rank_links {
    links *shared;
    int rank;
} rank_links;

/* What a transfer that sends has begun. */
typedef struct sending {
    double leaves_us; /* when its last byte has left */
    atomic_int taken; /* 1: nobody needs the memory any more */
} sending;

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* With its lock held: a sleeping rank looks again. */
static void tell(node *n)
{
    n->changes++;
    pthread_cond_broadcast(&n->changed);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static ta_status begin_send(const rank_links *own, ta_transfer *t)
{
    links *l = own->shared;
    node *mine = &l->nodes[own->rank], *theirs = &l->nodes[t->peer];
    size_t copied = t->bytes <= COPIED_BYTES ? t->bytes : 0;
    message *m = malloc(sizeof *m + copied);
    sending *s = malloc(sizeof *s);
    if (!m || !s) {
        free(m);
        free(s);
        return TA_ERR_NO_MEMORY;
    }
    double length = (double)t->bytes / l->speed.bytes_per_us;
    pthread_mutex_lock(&mine->lock);
    double start = later(machine_time_us(), mine->out_free_us);
    mine->out_free_us = s->leaves_us = start + length;
    pthread_mutex_unlock(&mine->lock);
    atomic_init(&s->taken, copied > 0);
    *m = (message){NULL,
                   own->rank,
                   t->channel,
                   t->bytes,
                   0,
                   copied ? (void *)(m + 1) : t->data,
                   copied ? NULL : &s->taken,
                   t};
    memcpy(m + 1, t->data, copied);
    t->request = s;
    pthread_mutex_lock(&theirs->lock);
    theirs->in_free_us = m->arrives_us =
        later(start + l->speed.delay_us, theirs->in_free_us) + length;
    *theirs->last = m;
    theirs->last = &m->next;
    tell(theirs);
    pthread_mutex_unlock(&theirs->lock);
    return TA_OK;
}

/* Returns when it may be complete, in the clock's time: past if it now is. */
static double look_at_send(ta_transfer *t)
{
    sending *s = t->request;
    double now = machine_time_us();
    if (!atomic_load(&s->taken))
        return now + 1e9; /* the receiver says so */
    if (now < s->leaves_us)
        return s->leaves_us;
    free(s);
    t->request = NULL;
    t->moved = t->bytes;
    return 0;
}

/* ---- Receiving ------------------------------------------------------------------------------- */

static double look_at_receive(const rank_links *own, ta_transfer *t)
{
    links *l = own->shared;
    node *mine = &l->nodes[own->rank];
    double due = machine_time_us() + 1e9;
    int told = -1;
    pthread_mutex_lock(&mine->lock);
    for (message **at = &mine->first; *at; at = &(*at)->next) {
        message *m = *at;
        if (m->from != t->peer || m->channel != t->channel)
            continue;
        due = m->arrives_us;
        if (machine_time_us() < due)
            break;
        memcpy(t->data, m->data, m->bytes < t->bytes ? m->bytes : t->bytes);
        t->moved = t->bytes;
        if (m->taken) {
            atomic_store(m->taken, 1);
            told = m->from;
        }
        *at = m->next;
        if (!*at)
            mine->last = at;
        free(m);
        due = 0;
        break;
    }
    pthread_mutex_unlock(&mine->lock);
    if (told >= 0) {
        node *theirs = &l->nodes[told];
        pthread_mutex_lock(&theirs->lock);
        tell(theirs);
        pthread_mutex_unlock(&theirs->lock);
    }
    return due;
}

/* ---- The transport --------------------------------------------------------------------------- */

/* Asleep until something has changed for this rank since `changes` were seen, or shortly before
 * `due`; the rest of the time goes by looking at the clock. */
static void wait_until(node *mine, unsigned changes, double due_us)
{
    double seconds = (due_us - machine_time_us() - WAKE_US) * 1e-6;
    struct timespec until;
    if (seconds <= 0) {
        sched_yield();
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    seconds = seconds > 3600 ? 3600 : seconds;
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&mine->lock);
    if (mine->changes == changes)
        pthread_cond_timedwait(&mine->changed, &mine->lock, &until);
    pthread_mutex_unlock(&mine->lock);
}

static unsigned changes_of(node *n)
{
    pthread_mutex_lock(&n->lock);
    unsigned changes = n->changes;
    pthread_mutex_unlock(&n->lock);
    return changes;
}

/* One look at all transfers. Returns when the next one may be complete; 0 if one has moved. */
static double look(const rank_links *own, ta_transfer *const *transfers, int count,
                   ta_status *status)
{
    double next = machine_time_us() + 1e9;
    int moved = 0;
    for (int i = 0; i < count && *status == TA_OK; i++) {
        ta_transfer *t = transfers[i];
        if (t->moved == t->bytes)
            continue;
        if (t->sends && !t->request)
            *status = begin_send(own, t);
        if (*status != TA_OK)
            break;
        double due = t->sends ? look_at_send(t) : look_at_receive(own, t);
        moved |= t->moved == t->bytes;
        next = due < next ? due : next;
    }
    return moved ? 0 : next;
}

static ta_status progress(void *context, ta_transfer *const *transfers, int count, int timeout_ms)
{
    const rank_links *own = context;
    node *mine = &own->shared->nodes[own->rank];
    double end = machine_time_us() + timeout_ms * 1e3;
    ta_status status = TA_OK;
    for (;;) {
        unsigned changes = changes_of(mine);
        double next = look(own, transfers, count, &status);
        if (status != TA_OK || next == 0 || machine_time_us() >= end)
            return status;
        wait_until(mine, changes, next < end ? next : end);
    }
}

static void cancel(void *context, ta_transfer *t)
{
    const rank_links *own = context;
    if (!t->sends || !t->request)
        return;
    node *theirs = &own->shared->nodes[t->peer];
    pthread_mutex_lock(&theirs->lock);
    for (message **at = &theirs->first; *at; at = &(*at)->next) {
        message *m = *at;
        if (m->of != t || !m->taken)
            continue;
        *at = m->next;
        if (!*at)
            theirs->last = at;
        free(m);
        break;
    }
    pthread_mutex_unlock(&theirs->lock);
    free(t->request);
    t->request = NULL;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static links *make_links(int ranks, const link_speed *speed)
{
    pthread_condattr_t clock;
    links *l = calloc(1, sizeof *l + (size_t)ranks * sizeof l->nodes[0]);
    if (!l)
        return NULL;
    l->speed = *speed;
    l->ranks = ranks;
    atomic_init(&l->users, ranks);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    for (int i = 0; i < ranks; i++) {
        node *n = &l->nodes[i];
        pthread_mutex_init(&n->lock, NULL);
        pthread_cond_init(&n->changed, &clock);
        n->last = &n->first;
    }
    pthread_condattr_destroy(&clock);
    return l;
}

void links_destroy(void *context)
{
    rank_links *own = context;
    if (!own)
        return;
    links *l = own->shared;
    free(own);
    if (atomic_fetch_sub(&l->users, 1) > 1)
        return;
    for (int i = 0; i < l->ranks; i++) {
        node *n = &l->nodes[i];
        for (message *m = n->first, *next; m; m = next) {
            next = m->next;
            free(m);
        }
        pthread_cond_destroy(&n->changed);
        pthread_mutex_destroy(&n->lock);
    }
    free(l);
}

ta_status links_create(ta_group *threads, const link_speed *speed, ta_group **group, void **context)
{
    int rank = ta_group_rank(threads), ranks = ta_group_size(threads);
    links *shared = rank == 0 ? make_links(ranks, speed) : NULL;
    rank_links *own = malloc(sizeof *own);
    ta_status status =
        ta_broadcast(threads, NULL, &shared, sizeof shared, TA_ELEMENT_BYTE, 0, NULL);
    if (status != TA_OK || !shared || !own) {
        free(own); /* what the others still use stays */
        return status != TA_OK ? status : TA_ERR_NO_MEMORY;
    }
    *own = (rank_links){shared, rank};
    prctl(PR_SET_TIMERSLACK, 1000); /* 1 µs: sleeps of this thread end in time */
    ta_transport transport = TA_TRANSPORT_INIT;
    transport.context = own;
    transport.rank = rank;
    transport.ranks = ranks;
    transport.node = rank + 1;
    transport.progress = progress;
    transport.cancel = cancel;
    status = ta_group_create_custom(&transport, NULL, group);
    if (status == TA_OK)
        *context = own;
    else
        links_destroy(own);
    return status;
}

/* ---- The flag -------------------------------------------------------------------------------- */

typedef struct unit {
    const char *name;
    double factor;
} unit;

/* A number above 0 with one of these units, of which the first is what no unit means. */
static int read_number(const char *text, size_t length, const unit *units, double *value)
{
    char copy[40], *end;
    if (length == 0 || length >= sizeof copy)
        return -1;
    memcpy(copy, text, length);
    copy[length] = '\0';
    *value = strtod(copy, &end);
    if (end == copy || !(*value >= 0) || *value > 1e12)
        return -1;
    if (*end == '\0')
        end = (char *)units[0].name;
    for (; units->name; units++)
        if (strcmp(end, units->name) == 0) {
            *value *= units->factor;
            return 0;
        }
    return -1;
}

int links_parse(const char *text, link_speed *speed, char *error, size_t capacity)
{
    static const unit times[] = {{"us", 1}, {"ms", 1e3}, {"s", 1e6}, {NULL, 0}};
    static const unit rates[] = {{"GB/s", 1e3},   {"MB/s", 1},       {"KB/s", 1e-3},
                                 {"Gbit/s", 125}, {"Mbit/s", 0.125}, {NULL, 0}};
    size_t length = strcspn(text, ",");
    if (text[length] == ',' && read_number(text, length, times, &speed->delay_us) == 0 &&
        read_number(text + length + 1, strlen(text + length + 1), rates, &speed->bytes_per_us) ==
            0 &&
        speed->bytes_per_us > 0)
        return 0;
    snprintf(
        error, capacity,
        "--link is '%s', but must be a delay (us, ms, s) and a rate (GB/s, MB/s, KB/s, Gbit/s, "
        "Mbit/s), such as 50us,1.25GB/s",
        text);
    return -1;
}

void links_text(const link_speed *speed, char *text, size_t capacity)
{
    snprintf(text, capacity, "emulated links of %g us and %g GB/s, a node for each rank",
             speed->delay_us, speed->bytes_per_us * 1e-3);
}

void links_print(const link_speed *speed, const char *sharing)
{
    char text[128];
    links_text(speed, text, sizeof text);
    printf("# links     %s:\n#           messages cost what they would cost there; %s shares this "
           "machine's CPUs\n",
           text, sharing);
}

void links_json(json_writer *json, const link_speed *speed)
{
    char text[128];
    links_text(speed, text, sizeof text);
    json_open(json, "link", '{');
    json_string(json, "what", text);
    json_double(json, "delay_us", speed->delay_us);
    json_double(json, "gbps", speed->bytes_per_us * 1e-3);
    json_close(json, '}');
}
