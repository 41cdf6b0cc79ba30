/* A program that runs with the library of a build finds the modules of that build, with no variable
 * set: the run path of the library that is not installed says where they are
 * (src/device/module_paths.c). The first argument is a module's name, the second its file.
 * tests/install/install.sh checks that installing removes the path. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/treeattn.h>

int main(int argc, char **argv)
{
    static char info[1 << 16], wanted[8192];
    if (argc != 3)
        return 2;
    unsetenv("TREEATTN_MODULE_PATH");
    snprintf(wanted, sizeof wanted, "module %s: %s, ", argv[1], argv[2]);
    if (ta_info(info, sizeof info, NULL) == TA_OK && strstr(info, wanted))
        return 0;
    printf("expected \"%s\" in:\n%s", wanted, info);
    return 1;
}
