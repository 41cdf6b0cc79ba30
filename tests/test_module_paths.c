/* Where modules are looked for (src/device/module_paths.c), and where not: relative directories
 * and those that every user may write to. Each case is this program again, in an environment of its
 * own; "found" is a module of tests/module/ that is refused by its number. test_setuid.c has the
 * programs that read no variable. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/expect.h"
#include "lib/module_child.h"

#define FOUND "module interface 4242"
#define IN_ROOT "looked in /"

static char scratch[] = "/tmp/test_module_places_XXXXXX";
static char program[4096], said[8192];
static const char *modules;

void setUp(void)
{
}

void tearDown(void)
{
}

static void ask(const char *directory, const char *path)
{
    TEST_ASSERT_EQUAL_INT(0,
                          module_child_start(program, program, directory, path, said, sizeof said));
}

static void expect_said(const char *text)
{
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, text), said);
}

static void expect_not_said(const char *text)
{
    TEST_ASSERT_NULL_MESSAGE(strstr(said, text), said);
}

static void test_directories_in_turn(void)
{
    char path[9000];
    ask("/", modules);
    expect_said(FOUND);
    snprintf(path, sizeof path, "%s::%s", scratch, modules);
    ask("/", path);
    expect_said(FOUND);
    ask("/", scratch);
    expect_not_said(FOUND);
    expect_said(scratch);
    expect_said("neither in TREEATTN_MODULE_PATH nor beside the library; looked in ");
}

static void test_relative_directories(void)
{
    ask(modules, ".");
    expect_not_said(FOUND);
    expect_said("log: module cuda is not looked for in .: it is not an absolute path");
    expect_said("looked in . (not looked into: it is not an absolute path)");
}

/* Behind all others; this program has one of its own (meson.build). */
static void test_the_run_path(void)
{
    ask("/", scratch);
    expect_said(", /nowhere/treeattn\n");
    expect_not_said("beside,");
}

static void test_directories_that_all_may_write_to(void)
{
    char link[sizeof scratch + 32];
    snprintf(link, sizeof link, "%s/treeattn-cuda.so", scratch);
    char target[8192];
    snprintf(target, sizeof target, "%s/treeattn-cuda.so", modules);
    TEST_ASSERT_EQUAL_INT(0, symlink(target, link));
    ask("/", scratch);
    expect_said(FOUND); /* as long as it is this user's alone */
    chmod(scratch, 01777);
    ask("/", scratch);
    chmod(scratch, 0700);
    unlink(link);
    expect_not_said(FOUND);
    expect_said("every user may write there");
    expect_said(scratch);
}

/* The directory of a program is not what it says it was called by. */
static void test_another_name_for_the_program(void)
{
    TEST_ASSERT_EQUAL_INT(
        0, module_child_start(program, "something", modules, NULL, said, sizeof said));
    expect_not_said(FOUND);
    expect_said("TA_ERR_NOT_FOUND");
}

/* A program whose file is in the root directory: that of one in memory has the name "/memfd:…". */
static void test_a_program_in_the_root_directory(void)
{
    char path[64], bytes[1 << 16];
    int from = open(program, O_RDONLY), memory = memfd_create("program", 0);
    TEST_ASSERT_TRUE(from >= 0 && memory >= 0);
    for (ssize_t got; (got = read(from, bytes, sizeof bytes)) > 0;)
        TEST_ASSERT_TRUE(write(memory, bytes, (size_t)got) == got);
    close(from);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    TEST_ASSERT_EQUAL_INT(0, module_child_start(path, program, "/", NULL, said, sizeof said));
    close(memory);
    expect_said("TA_ERR_NOT_FOUND");
    const char *first = strstr(said, IN_ROOT);
    TEST_ASSERT_NOT_NULL_MESSAGE(first, said);
    TEST_ASSERT_NOT_NULL_MESSAGE(strchr(", \n", first[strlen(IN_ROOT)]), said);
}

static int make_program_path(void)
{
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    return length > 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], MODULE_CHILD) == 0)
        module_child_run();
    modules = getenv("TREEATTN_MODULE_PATH");
    if (!modules)
        return 77; /* it is `meson test` that says where the files are */
    if (!mkdtemp(scratch) || !make_program_path())
        return 1;
    UNITY_BEGIN();
    RUN_TEST(test_directories_in_turn);
    RUN_TEST(test_relative_directories);
    RUN_TEST(test_the_run_path);
    RUN_TEST(test_directories_that_all_may_write_to);
    RUN_TEST(test_another_name_for_the_program);
    RUN_TEST(test_a_program_in_the_root_directory);
    rmdir(scratch);
    return UNITY_END() != 0;
}
