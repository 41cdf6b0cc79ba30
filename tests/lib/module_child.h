/* A process that asks for a module and says what it was told: test_module_paths.c and
 * test_setuid.c start themselves again with the argument "child", in another environment. */
#ifndef TESTS_MODULE_CHILD_H
#define TESTS_MODULE_CHILD_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>

#include <treeattn/treeattn.h>

#define MODULE_CHILD "child"

static inline void module_child_log(void *context, ta_log_level level, const char *text)
{
    (void)context;
    (void)level;
    printf("log: %s\n", text);
}

/* What the process does: it prints whether it is a set-uid one, what was logged and the error. It
 * ends without the leak sanitizer's last look, which a set-uid process is not allowed. */
static inline void module_child_run(void)
{
    ta_device *device = NULL;
    ta_log_set(module_child_log, NULL, TA_LOG_INFO);
    printf("secure: %d\n", getauxval(AT_SECURE) != 0);
    ta_status status = ta_device_open("cuda:0", NULL, &device);
    printf("%s: %s\n", ta_status_name(status), ta_last_error());
    fflush(stdout);
    _exit(0);
}

/* Start `program` as "NAME child" in `directory`, with `modules` in TREEATTN_MODULE_PATH (NULL:
 * unset), and give back what it prints. Returns its exit status, or -1. */
static inline int module_child_start(const char *program, const char *name, const char *directory,
                                     const char *modules, char *text, size_t capacity)
{
    int ends[2], state = 0;
    size_t length = 0;
    ssize_t got;
    fflush(stdout);
    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        modules ? setenv("TREEATTN_MODULE_PATH", modules, 1) : unsetenv("TREEATTN_MODULE_PATH");
        if (chdir(directory) == 0)
            execl(program, name, MODULE_CHILD, (char *)NULL);
        _exit(126);
    }
    close(ends[1]);
    while (length < capacity - 1 && (got = read(ends[0], text + length, capacity - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(ends[0]);
    if (child < 0 || waitpid(child, &state, 0) != child || !WIFEXITED(state))
        return -1;
    return WEXITSTATUS(state);
}

#endif
