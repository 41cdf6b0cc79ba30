/* A set-uid program runs no code that its caller names (src/device/module_paths.c). This program
 * makes a set-uid copy of itself, of another user, and asks that for a module. Needs root, and a
 * file system that knows set-uid programs; otherwise it is skipped. */
#include "lib/expect.h"
#include "lib/module_child.h"
#include "lib/setuid_copy.h"

#define FOUND "module interface 4242" /* tests/module/other_interface.c was loaded */

static const char *modules;

void setUp(void)
{
}

void tearDown(void)
{
}

static void test_the_variable_is_not_read(void)
{
    char said[8192];
    setuid_copy_ask(setuid_copy, "/", modules, 1, said, sizeof said);
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
    setuid_copy_ask("program", modules, NULL, 1, said, sizeof said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said, FOUND), said);
    snprintf(name, sizeof name, "%s/program", modules);
    setuid_copy_ask(name, "/", NULL, 1, said, sizeof said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said, FOUND), said);
}

static void test_without_the_bit(void)
{
    setuid_copy_expect_without_bit(modules, FOUND);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], MODULE_CHILD) == 0)
        module_child_run();
    modules = getenv("TREEATTN_MODULE_PATH");
    if (!modules) {
        puts("skipped: it is `meson test` that says where the modules are");
        return 77;
    }
    int made = setuid_copy_make(modules);
    if (made != 0)
        return made;
    UNITY_BEGIN();
    RUN_TEST(test_the_variable_is_not_read);
    RUN_TEST(test_the_name_is_not_believed);
    RUN_TEST(test_without_the_bit);
    setuid_copy_remove();
    return UNITY_END() != 0;
}
