/* See child.h. The child gets a process group of its own, so that what it started ends with it. */
#include "child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/machine.h"

/* Keep the last bytes of what comes, and a NUL. */
typedef struct kept_text {
    char *text;
    size_t used;
} kept_text;

static void keep(kept_text *kept, const char *bytes, size_t count)
{
    size_t most = CHILD_OUTPUT - 1;
    if (kept->used + count > most) {
        size_t drop = kept->used + count - most;
        drop = drop < kept->used ? drop : kept->used;
        memmove(kept->text, kept->text + drop, kept->used - drop);
        kept->used -= drop;
    }
    memcpy(kept->text + kept->used, bytes, count);
    kept->used += count;
    kept->text[kept->used] = '\0';
}

/* Read until the child closes its output. Returns 0 if its time is over first. */
static int listen_to(int fd, double deadline_us, kept_text *kept)
{
    char bytes[4096];
    for (;;) {
        double left_ms = (deadline_us - machine_time_us()) / 1e3;
        struct pollfd input = {fd, POLLIN, 0};
        if (left_ms <= 0)
            return 0;
        int ready = poll(&input, 1, left_ms < 1000 ? (int)left_ms + 1 : 1000);
        if (ready < 0 && errno != EINTR)
            return 1;
        if (ready <= 0)
            continue;
        ssize_t count = read(fd, bytes, sizeof bytes);
        if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN))
            return 1;
        if (count > 0)
            keep(kept, bytes, (size_t)count);
    }
}

static pid_t start(char *const argv[], const int pipe_fds[2])
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        dup2(pipe_fds[1], STDOUT_FILENO);
        dup2(pipe_fds[1], STDERR_FILENO);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        execv(argv[0], argv);
        fprintf(stderr, "%s could not be started: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    return pid;
}

int child_run(char *const argv[], double most_seconds, child_result *result, char *error,
              size_t capacity)
{
    int pipe_fds[2], status = 0;
    kept_text kept = {calloc(1, CHILD_OUTPUT), 0};
    double begin_us = machine_time_us();
    if (!kept.text || pipe(pipe_fds) != 0) {
        snprintf(error, capacity, "no memory or no pipe for %s", argv[0]);
        goto free_text;
    }
    pid_t pid = start(argv, pipe_fds);
    close(pipe_fds[1]);
    if (pid < 0) {
        snprintf(error, capacity, "%s could not be started: %s", argv[0], strerror(errno));
        close(pipe_fds[0]);
        goto free_text;
    }
    int in_time = listen_to(pipe_fds[0], begin_us + most_seconds * 1e6, &kept);
    if (!in_time)
        kill(-pid, SIGKILL);
    close(pipe_fds[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    result->end = !in_time ? CHILD_TOO_LONG : WIFSIGNALED(status) ? CHILD_KILLED : CHILD_EXITED;
    result->code = !in_time ? 0 : WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    result->seconds = (machine_time_us() - begin_us) / 1e6;
    result->output = kept.text;
    return 0;

free_text:
    free(kept.text);
    return -1;
}
