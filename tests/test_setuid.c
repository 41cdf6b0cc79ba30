/* A set-uid program runs no code that its caller names (src/device/module_places.c). This program
 * makes a set-uid copy of itself, of another user, and asks that for a module. Needs root, and a
 * file system that knows set-uid programs; otherwise it is skipped. */
#include <fcntl.h>
#include <sys/stat.h>

#include "lib/expect.h"
#include "lib/module_child.h"

#define FOUND "module interface 4242" /* tests/module/other_interface.c was loaded */
#define NOBODY 65534

static char scratch[] = "/var/tmp/test_setuid_XXXXXX", copy[64];
static const char *modules;

void setUp(void)
{
}

void tearDown(void)
{
}

static int copy_program(void)
{
    char buffer[1 << 16];
    ssize_t got = -1;
    int from = open("/proc/self/exe", O_RDONLY), to = open(copy, O_WRONLY | O_CREAT | O_EXCL, 0700);
    while (from >= 0 && to >= 0 && (got = read(from, buffer, sizeof buffer)) > 0)
        if (write(to, buffer, (size_t)got) != got)
            break;
    int done = to >= 0 && got == 0 && fchown(to, NOBODY, NOBODY) == 0 && fchmod(to, 04755) == 0;
    close(from);
    close(to);
    return done;
}

static void ask(const char *name, const char *directory, const char *path, char *said,
                size_t capacity)
{
    TEST_ASSERT_EQUAL_INT(0, module_child_start(copy, name, directory, path, said, capacity));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "secure: 1"), said);
}

static void test_the_variable_is_not_read(void)
{
    char said[8192];
    ask(copy, "/", modules, said, sizeof said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said, FOUND), said);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "TA_ERR_NOT_FOUND"), said);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "log: module cuda is not looked for in "), said);
    TEST_ASSERT_NOT_NULL_MESSAGE(
        strstr(said, "a set-uid program does not read TREEATTN_MODULE_PATH"), said);
}

/* Its caller also chooses the name that it is called by, and the working directory. */
static void test_the_name_is_not_believed(void)
{
    char said[8192], name[4200];
    ask("program", modules, NULL, said, sizeof said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said, FOUND), said);
    snprintf(name, sizeof name, "%s/program", modules);
    ask(name, "/", NULL, said, sizeof said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said, FOUND), said);
}

/* The same copy without the bit does what every program does: so the test can find the module. */
static void test_without_the_bit(void)
{
    char said[8192];
    TEST_ASSERT_EQUAL_INT(0, chmod(copy, 0755));
    TEST_ASSERT_EQUAL_INT(0, module_child_start(copy, copy, "/", modules, said, sizeof said));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "secure: 0"), said);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, FOUND), said);
}

static int skip(const char *why)
{
    printf("skipped: %s\n", why);
    unlink(copy);
    rmdir(scratch);
    return 77;
}

int main(int argc, char **argv)
{
    char said[8192];
    if (argc > 1 && strcmp(argv[1], MODULE_CHILD) == 0)
        module_child_run();
    modules = getenv("TREEATTN_MODULE_PATH");
    if (geteuid() != 0)
        return skip("only root can make a program of another user's");
    if (!modules)
        return skip("it is `meson test` that says where the modules are");
    if (!mkdtemp(scratch) || chmod(scratch, 0755) != 0)
        return 1;
    snprintf(copy, sizeof copy, "%s/program", scratch);
    if (!copy_program())
        return 1;
    if (module_child_start(copy, copy, "/", modules, said, sizeof said) != 0) {
        printf("the copy %s does not run: %s\n", copy, said);
        return 1;
    }
    if (!strstr(said, "secure: 1"))
        return skip("the file system of /var/tmp does not know set-uid programs");
    UNITY_BEGIN();
    RUN_TEST(test_the_variable_is_not_read);
    RUN_TEST(test_the_name_is_not_believed);
    RUN_TEST(test_without_the_bit);
    unlink(copy);
    rmdir(scratch);
    return UNITY_END() != 0;
}
