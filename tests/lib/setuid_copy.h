/* A set-uid copy of the program that runs, of another user's: test_setuid.c and test_setuid_ccl.c
 * ask it what it would load. Needs root, and a file system that knows set-uid programs. */
#ifndef TESTS_SETUID_COPY_H
#define TESTS_SETUID_COPY_H

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "expect.h"
#include "module_child.h"

#define NOBODY 65534

static char setuid_scratch[] = "/var/tmp/test_setuid_XXXXXX", setuid_copy[64];

static inline void setuid_copy_remove(void)
{
    unlink(setuid_copy);
    rmdir(setuid_scratch);
}

static inline int setuid_copy_write(void)
{
    char buffer[1 << 16];
    ssize_t got = -1;
    int from = open("/proc/self/exe", O_RDONLY);
    int to = open(setuid_copy, O_WRONLY | O_CREAT | O_EXCL, 0700);
    while (from >= 0 && to >= 0 && (got = read(from, buffer, sizeof buffer)) > 0)
        if (write(to, buffer, (size_t)got) != got)
            break;
    int done = to >= 0 && got == 0 && fchown(to, NOBODY, NOBODY) == 0 && fchmod(to, 04755) == 0;
    close(from);
    close(to);
    return done;
}

/* Make it, and see that it runs and is what it should be. Returns 0, or the exit code of a test
 * that cannot go on, having said why. End with setuid_copy_remove(). */
static inline int setuid_copy_make(const char *modules)
{
    char said[8192];
    if (geteuid() != 0) {
        puts("skipped: only root can make a program of another user's");
        return 77;
    }
    if (!mkdtemp(setuid_scratch) || chmod(setuid_scratch, 0755) != 0)
        return 1;
    snprintf(setuid_copy, sizeof setuid_copy, "%s/program", setuid_scratch);
    if (!setuid_copy_write()) {
        setuid_copy_remove();
        return 1;
    }
    int status = module_child_start(setuid_copy, setuid_copy, "/", modules, said, sizeof said);
    if (status == 0 && strstr(said, "secure: 1"))
        return 0;
    setuid_copy_remove();
    if (status == 0)
        puts("skipped: the file system of /var/tmp does not know set-uid programs");
    else
        printf("the copy %s does not run: %s\n", setuid_copy, said);
    return status == 0 ? 77 : 1;
}

/* Start it under a name, in a directory and with modules there, as module_child_start() does; what
 * it says begins with whether it is a set-uid program. */
static inline void setuid_copy_ask(const char *name, const char *directory, const char *modules,
                                   int secure, char *said, size_t capacity)
{
    TEST_ASSERT_EQUAL_INT(
        0, module_child_start(setuid_copy, name, directory, modules, said, capacity));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, secure ? "secure: 1" : "secure: 0"), said);
}

/* Without the bit it does what every program does, and says `found`: so the test can find it. */
static inline void setuid_copy_expect_without_bit(const char *modules, const char *found)
{
    char said[8192];
    TEST_ASSERT_EQUAL_INT(0, chmod(setuid_copy, 0755));
    setuid_copy_ask(setuid_copy, "/", modules, 0, said, sizeof said);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, found), said);
}

#endif
