/* Ranks over a mesh of sockets, as threads and as processes: see socket_transport.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "socket_transport.h"

typedef struct member {
    socket_mesh *mesh;
    int rank;
    socket_mode mode;
    const ta_group_config *config;
    ta_rank_fn fn;
    void *context;
    ta_status status;
    char error[600];
} member;

static ta_status run_member(member *m)
{
    ta_group *group;
    socket_transport *s = socket_transport_open(m->mesh, m->rank, m->mode);
    if (!s)
        return ta_fail(TA_ERR_NO_MEMORY, "no transport");
    ta_transport calls = socket_transport_calls(s);
    ta_status status = ta_group_create_custom(&calls, m->config, &group);
    if (status == TA_OK) {
        status = m->fn(group, m->context);
        snprintf(m->error, sizeof m->error, "%s", status == TA_OK ? "" : ta_last_error());
        if (status != TA_OK)
            ta_group_abort(group, m->error);
        ta_group_destroy(group);
    } else {
        snprintf(m->error, sizeof m->error, "%s", ta_last_error());
    }
    socket_transport_close(s);
    return status;
}

static void *run_thread(void *argument)
{
    member *m = argument;
    m->status = run_member(m);
    return NULL;
}

ta_status socket_run_threads(int ranks, socket_mode mode, const ta_group_config *config,
                             ta_rank_fn fn, void *context)
{
    socket_mesh mesh;
    member members[SOCKET_MAX_RANKS];
    pthread_t threads[SOCKET_MAX_RANKS];
    int failed = -1;
    if (!socket_mesh_make(&mesh, ranks))
        return ta_fail(TA_ERR_SYSTEM, "no sockets for %d ranks", ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        members[rank] = (member){&mesh, rank, mode, config, fn, context, TA_OK, ""};
        pthread_create(&threads[rank], NULL, run_thread, &members[rank]);
    }
    for (int rank = 0; rank < ranks; ++rank)
        pthread_join(threads[rank], NULL);
    for (int rank = ranks - 1; rank >= 0; --rank)
        if (members[rank].status != TA_OK &&
            (failed < 0 || members[rank].status != TA_ERR_ABORTED ||
             members[failed].status == TA_ERR_ABORTED))
            failed = rank;
    if (failed < 0)
        return TA_OK;
    return ta_fail(members[failed].status, "rank %d: %s", failed, members[failed].error);
}

ta_status socket_run_processes(int ranks, socket_mode mode, const ta_group_config *config,
                               ta_rank_fn fn, void *context)
{
    socket_mesh mesh;
    pid_t children[SOCKET_MAX_RANKS];
    ta_status status = TA_OK;
    if (!socket_mesh_make(&mesh, ranks))
        return ta_fail(TA_ERR_SYSTEM, "no sockets for %d ranks", ranks);
    fflush(NULL);
    for (int rank = 0; rank < ranks; ++rank) {
        children[rank] = fork();
        if (children[rank])
            continue;
        member m = {&mesh, rank, mode, config, fn, context, TA_OK, ""};
        socket_mesh_close_others(&mesh, rank);
        ta_status own = run_member(&m);
        if (own != TA_OK)
            fprintf(stderr, "rank %d: %s: %s\n", rank, ta_status_name(own), m.error);
        _exit(-own);
    }
    socket_mesh_close_others(&mesh, -1);
    for (int rank = 0; rank < ranks; ++rank) {
        int code = 0;
        waitpid(children[rank], &code, 0);
        if (status == TA_OK && code)
            status = ta_fail(WIFEXITED(code) ? (ta_status)-WEXITSTATUS(code) : TA_ERR_SYSTEM,
                             "rank %d ended with %d", rank, code);
    }
    return status;
}
