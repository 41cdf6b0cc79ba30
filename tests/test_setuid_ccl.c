/* Nor does a set-uid program open the library of collectives that its caller names
 * (hip/ccl/library.c, which this program is built with: a set-uid one would not find the module).
 * What it says of a library that is not there tells which one it looked for. */
#include <stdarg.h>

#include "ccl/ccl.h"
#include "lib/expect.h"
#include "lib/setuid_copy.h"

#define NAMED "libnothing-of-the-caller.so.9"

static char error[1024];

__attribute__((format(printf, 2, 3))) static ta_status keep(ta_status status, const char *format,
                                                            ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, sizeof error, format, arguments);
    va_end(arguments);
    return status;
}

static const ta_core core = {.fail = keep};
const ta_core *ta_gpu_core = &core;

void setUp(void)
{
}

void tearDown(void)
{
}

/* In place of module_child_run(), whose other half starts it. */
static void run_child(void)
{
    const ta_ccl_library *library = NULL;
    printf("secure: %d\n", getauxval(AT_SECURE) != 0);
    ta_status status = ta_ccl_open(&library);
    printf("%s: %s\n", ta_status_name(status), error);
    fflush(stdout);
    _exit(0);
}

static void test_the_variable_is_not_read(void)
{
    char said[8192];
    setuid_copy_ask(setuid_copy, "/", NULL, 1, said, sizeof said);
    TEST_ASSERT_NULL_MESSAGE(strstr(said, NAMED), said);
    /* The usual one was looked for in its place; it may be there. */
    TEST_ASSERT_TRUE_MESSAGE(strstr(said, TA_CCL_FILE ": ") || strstr(said, "TA_OK"), said);
}

static void test_without_the_bit(void)
{
    setuid_copy_expect_without_bit(NULL, NAMED ": ");
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], MODULE_CHILD) == 0)
        run_child();
    setenv("TREEATTN_CCL_LIBRARY", NAMED, 1);
    int made = setuid_copy_make(NULL);
    if (made != 0)
        return made;
    UNITY_BEGIN();
    RUN_TEST(test_the_variable_is_not_read);
    RUN_TEST(test_without_the_bit);
    setuid_copy_remove();
    return UNITY_END() != 0;
}
