/* See socket_transport.h. On a stream go chunks: a channel, a number of bytes, and these. What
 * arrives is kept for its channel until it is asked for. */
#include "socket_transport.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "transfers.h"

#define CHUNK_BYTES 16384
#define LONG_BYTES (1 << 20) /* a transfer of so many is a long one */

typedef struct chunk_head {
    uint32_t channel, bytes;
} chunk_head;

/* What came on one channel and was not asked for yet. */
typedef struct inbox {
    struct inbox *next;
    uint32_t channel;
    char *data;
    size_t first, end, capacity;
} inbox;

typedef struct stream {
    int fd;
    int lost; /* errno */
    char out[sizeof(chunk_head) + CHUNK_BYTES];
    size_t out_first, out_end;
    char in[sizeof(chunk_head) + CHUNK_BYTES];
    size_t in_end;
    size_t limit; /* of what is sent of a long transfer; 0: none */
    inbox *boxes;
} stream;

/* Something that the thread moves by itself. */
typedef struct job {
    ta_transfer transfer;
    struct job *next;
} job;

struct socket_transport {
    int rank, ranks;
    socket_mode mode;
    int fails;
    pthread_mutex_t mutex;
    pthread_t thread;
    int stop;
    job *jobs;
    stream streams[SOCKET_MAX_RANKS];
};

/* ---- Streams --------------------------------------------------------------------------------- */

static inbox *find_box(stream *s, uint32_t channel)
{
    inbox *box = s->boxes;
    while (box && box->channel != channel)
        box = box->next;
    if (box)
        return box;
    box = calloc(1, sizeof *box);
    box->channel = channel;
    box->next = s->boxes;
    s->boxes = box;
    return box;
}

static void put_into(inbox *box, const char *data, size_t bytes)
{
    if (box->first == box->end)
        box->first = box->end = 0;
    if (box->end + bytes > box->capacity) {
        box->capacity = 2 * (box->end + bytes);
        box->data = realloc(box->data, box->capacity);
    }
    memcpy(box->data + box->end, data, bytes);
    box->end += bytes;
}

/* Whole chunks go to their boxes. */
static void sort_in(stream *s)
{
    size_t at = 0;
    chunk_head head;
    while (s->in_end - at >= sizeof head) {
        memcpy(&head, s->in + at, sizeof head);
        if (s->in_end - at < sizeof head + head.bytes)
            break;
        put_into(find_box(s, head.channel), s->in + at + sizeof head, head.bytes);
        at += sizeof head + head.bytes;
    }
    memmove(s->in, s->in + at, s->in_end - at);
    s->in_end -= at;
}

static void read_stream(stream *s)
{
    for (;;) {
        ssize_t got = recv(s->fd, s->in + s->in_end, sizeof s->in - s->in_end, MSG_DONTWAIT);
        if (got > 0) {
            s->in_end += (size_t)got;
            sort_in(s);
            continue;
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR))
            s->lost = got == 0 ? ECONNRESET : errno;
        return;
    }
}

static void write_stream(stream *s)
{
    while (s->out_first < s->out_end) {
        ssize_t put = send(s->fd, s->out + s->out_first, s->out_end - s->out_first,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put <= 0) {
            if (put < 0 && errno != EAGAIN && errno != EINTR)
                s->lost = errno;
            return;
        }
        s->out_first += (size_t)put;
    }
    s->out_first = s->out_end = 0;
}

static int send_some(stream *s, ta_transfer *t)
{
    size_t before = t->moved;
    size_t end = s->limit && t->bytes >= LONG_BYTES ? s->limit : t->bytes;
    while (t->moved < end && !s->lost && s->out_end == 0) {
        size_t left = t->bytes - t->moved;
        chunk_head head = {(uint32_t)t->channel,
                           (uint32_t)(left < CHUNK_BYTES ? left : CHUNK_BYTES)};
        memcpy(s->out, &head, sizeof head);
        memcpy(s->out + sizeof head, (char *)t->data + t->moved, head.bytes);
        s->out_end = sizeof head + head.bytes;
        t->moved += head.bytes;
        write_stream(s);
    }
    if (s->lost && t->moved < t->bytes)
        t->failed = s->lost;
    return t->moved != before || t->failed;
}

static int receive_some(stream *s, ta_transfer *t)
{
    inbox *box = find_box(s, (uint32_t)t->channel);
    size_t there = box->end - box->first, left = t->bytes - t->moved;
    size_t bytes = there < left ? there : left;
    if (bytes)
        memcpy((char *)t->data + t->moved, box->data + box->first, bytes);
    box->first += bytes;
    t->moved += bytes;
    if (s->lost && t->moved < t->bytes)
        t->failed = s->lost;
    return bytes > 0 || t->failed;
}

/* ---- In calls -------------------------------------------------------------------------------- */

static int move_all(socket_transport *s, ta_transfer *const *transfers, int count)
{
    int moved = 0;
    for (int rank = 0; rank < s->ranks; ++rank)
        if (rank != s->rank && !s->streams[rank].lost) {
            read_stream(&s->streams[rank]);
            write_stream(&s->streams[rank]);
        }
    for (int i = 0; i < count; ++i) {
        ta_transfer *t = transfers[i];
        if (t->failed || t->moved == t->bytes || transfer_is_blocked(transfers, i))
            continue;
        moved |= (t->sends ? send_some : receive_some)(&s->streams[t->peer], t);
    }
    return moved;
}

/* At most a millisecond: another thread may have read what this one waits for. What to wait for is
 * looked up under the mutex, the waiting is not: others go on meanwhile. */
static void wait_a_little(socket_transport *s, int ms)
{
    struct pollfd fds[SOCKET_MAX_RANKS];
    int count = 0;
    pthread_mutex_lock(&s->mutex);
    for (int rank = 0; rank < s->ranks; ++rank)
        if (rank != s->rank && !s->streams[rank].lost)
            fds[count++] = (struct pollfd){
                s->streams[rank].fd, (short)(POLLIN | (s->streams[rank].out_end ? POLLOUT : 0)), 0};
    pthread_mutex_unlock(&s->mutex);
    poll(fds, (nfds_t)count, ms > 0 ? 1 : 0);
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static ta_status progress_in_call(void *context, ta_transfer *const *transfers, int count,
                                  int timeout_ms)
{
    socket_transport *s = context;
    int64_t end = now_ms() + timeout_ms;
    if (!transfers_are_right(transfers, count))
        return TA_ERR_INVALID;
    for (;;) {
        pthread_mutex_lock(&s->mutex);
        int fails = s->fails, moved = fails || move_all(s, transfers, count);
        pthread_mutex_unlock(&s->mutex);
        if (fails)
            return TA_ERR_DEVICE;
        if (moved || now_ms() >= end)
            return TA_OK;
        wait_a_little(s, timeout_ms);
    }
}

/* ---- By a thread ----------------------------------------------------------------------------- */

static void *move_by_itself(void *argument)
{
    socket_transport *s = argument;
    for (int stop = 0; !stop;) {
        ta_transfer *list[256];
        int count = 0;
        pthread_mutex_lock(&s->mutex);
        for (job *j = s->jobs; j && count < 256; j = j->next)
            list[count++] = &j->transfer;
        int moved = move_all(s, list, count);
        stop = s->stop;
        pthread_mutex_unlock(&s->mutex);
        if (!moved)
            wait_a_little(s, 1);
    }
    return NULL;
}

static void drop_job(socket_transport *s, job *dropped)
{
    job **link = &s->jobs;
    while (*link != dropped)
        link = &(*link)->next;
    *link = dropped->next;
    free(dropped);
}

static int hand_over(socket_transport *s, ta_transfer *t)
{
    job *j = t->request;
    if (!j) {
        job **link = &s->jobs;
        while (*link)
            link = &(*link)->next;
        *link = j = calloc(1, sizeof *j);
        j->transfer = *t;
        t->request = j;
    }
    int moved = t->moved != j->transfer.moved || j->transfer.failed;
    t->moved = j->transfer.moved;
    t->failed = j->transfer.failed;
    if (t->moved == t->bytes || t->failed) {
        drop_job(s, j);
        t->request = NULL;
    }
    return moved;
}

static ta_status progress_by_thread(void *context, ta_transfer *const *transfers, int count,
                                    int timeout_ms)
{
    socket_transport *s = context;
    const struct timespec moment = {0, 100000};
    int64_t end = now_ms() + timeout_ms;
    if (!transfers_are_right(transfers, count))
        return TA_ERR_INVALID;
    for (;;) {
        int moved = 0;
        pthread_mutex_lock(&s->mutex);
        for (int i = 0; i < count; ++i)
            moved |= hand_over(s, transfers[i]);
        int fails = s->fails;
        pthread_mutex_unlock(&s->mutex);
        if (fails)
            return TA_ERR_DEVICE;
        if (moved || now_ms() >= end)
            return TA_OK;
        nanosleep(&moment, NULL);
    }
}

static void cancel(void *context, ta_transfer *transfer)
{
    socket_transport *s = context;
    pthread_mutex_lock(&s->mutex);
    if (transfer->request)
        drop_job(s, transfer->request);
    transfer->request = NULL;
    pthread_mutex_unlock(&s->mutex);
}

/* ---- Life ------------------------------------------------------------------------------------ */

int socket_mesh_make(socket_mesh *mesh, int ranks)
{
    mesh->ranks = ranks;
    for (int a = 0; a < ranks; ++a)
        for (int b = 0; b < a; ++b) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
                return 0;
            mesh->fds[a][b] = ends[0];
            mesh->fds[b][a] = ends[1];
        }
    return 1;
}

void socket_mesh_close_others(socket_mesh *mesh, int rank)
{
    for (int a = 0; a < mesh->ranks; ++a)
        for (int b = 0; b < mesh->ranks; ++b)
            if (a != b && a != rank)
                close(mesh->fds[a][b]);
}

socket_transport *socket_transport_open(socket_mesh *mesh, int rank, socket_mode mode)
{
    socket_transport *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->rank = rank;
    s->ranks = mesh->ranks;
    s->mode = mode;
    pthread_mutex_init(&s->mutex, NULL);
    for (int peer = 0; peer < s->ranks; ++peer)
        s->streams[peer].fd = peer == rank ? -1 : mesh->fds[rank][peer];
    if (mode != SOCKET_IN_CALLS && pthread_create(&s->thread, NULL, move_by_itself, s) != 0) {
        free(s);
        return NULL;
    }
    return s;
}

void socket_transport_close(socket_transport *s)
{
    pthread_mutex_lock(&s->mutex);
    s->stop = 1;
    pthread_mutex_unlock(&s->mutex);
    if (s->mode != SOCKET_IN_CALLS)
        pthread_join(s->thread, NULL);
    while (s->jobs)
        drop_job(s, s->jobs);
    for (int peer = 0; peer < s->ranks; ++peer) {
        if (peer != s->rank)
            close(s->streams[peer].fd);
        for (inbox *box = s->streams[peer].boxes, *next; box; box = next) {
            next = box->next;
            free(box->data);
            free(box);
        }
    }
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

ta_transport socket_transport_calls(socket_transport *s)
{
    ta_transport t = TA_TRANSPORT_INIT;
    t.context = s;
    t.rank = s->rank;
    t.ranks = s->ranks;
    t.holds_memory = s->mode == SOCKET_HOLDS;
    t.progress = s->mode == SOCKET_IN_CALLS ? progress_in_call : progress_by_thread;
    t.cancel = s->mode == SOCKET_CANCELS ? cancel : NULL;
    return t;
}

void socket_transport_limit(socket_transport *s, size_t bytes)
{
    pthread_mutex_lock(&s->mutex);
    for (int peer = 0; peer < s->ranks; ++peer)
        s->streams[peer].limit = bytes;
    pthread_mutex_unlock(&s->mutex);
}

void socket_transport_fail(socket_transport *s)
{
    pthread_mutex_lock(&s->mutex);
    s->fails = 1;
    pthread_mutex_unlock(&s->mutex);
}
