/* A transport (ta_transport) over sockets, as a program could write one: every two ranks have a
 * stream, and the channels take turns on it. Ranks are threads or processes; the streams are made
 * before. It can also be one that works by itself between calls, as libraries with requests do. */
#ifndef TESTS_SOCKET_TRANSPORT_H
#define TESTS_SOCKET_TRANSPORT_H

#include <treeattn/collectives.h>

#define SOCKET_MAX_RANKS 16

/* The streams of all ranks: fds[a][b] is rank a's end of the one to rank b. */
typedef struct socket_mesh {
    int ranks;
    int fds[SOCKET_MAX_RANKS][SOCKET_MAX_RANKS];
} socket_mesh;

typedef enum socket_mode {
    SOCKET_IN_CALLS, /* memory is used in progress() alone */
    SOCKET_CANCELS,  /* a thread moves bytes at any time, until it is told to stop */
    SOCKET_HOLDS,    /* the same, and it can't be told */
    SOCKET_MODES
} socket_mode;

typedef struct socket_transport socket_transport;

int socket_mesh_make(socket_mesh *mesh, int ranks);
/* In a process that is one rank: the others' ends. */
void socket_mesh_close_others(socket_mesh *mesh, int rank);

/* This rank's end, which it takes over; NULL if there is no memory. */
socket_transport *socket_transport_open(socket_mesh *mesh, int rank, socket_mode mode);
void socket_transport_close(socket_transport *s);
ta_transport socket_transport_calls(socket_transport *s);

/* From now on progress() returns an error. */
void socket_transport_fail(socket_transport *s);

/* Of each long transfer that it sends it moves no more than about so many bytes, until it is given
 * another number. */
void socket_transport_limit(socket_transport *s, size_t bytes);

/* As ta_group_run_threads(), over a mesh of sockets. */
ta_status socket_run_threads(int ranks, socket_mode mode, const ta_group_config *config,
                             ta_rank_fn fn, void *context);

/* The same with a process for each rank. A rank's error is written to stderr, and its status is
 * returned. */
ta_status socket_run_processes(int ranks, socket_mode mode, const ta_group_config *config,
                               ta_rank_fn fn, void *context);

#endif
