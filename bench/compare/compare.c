/* `treeattn-bench compare` and `report`: hand JSON files to Python scripts, which are installed
 * beside the program's data. Python reads JSON without a library of ours, and the plots need it
 * anyway. */
#include "compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/exit_code.h"

/* Where a script is: of a program in its build directory the one in the source tree, whatever is
 * installed beside; of an installed one, also if all of it was moved, below the same prefix. */
static int find_script(const char *name, char *path, size_t capacity)
{
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = length > 0 ? memrchr(self, '/', (size_t)length) : NULL;
    if (slash)
        *slash = '\0';
    if (slash && strcmp(self, BENCH_BUILD) == 0)
        snprintf(path, capacity, BENCH_SOURCE "/compare/%s", name);
    else if (slash)
        snprintf(path, capacity, "%s/../" BENCH_DATA_NAME "/%s", self, name);
    if (slash && access(path, R_OK) == 0)
        return 0;
    snprintf(path, capacity, BENCH_DATA "/%s", name);
    return access(path, R_OK);
}

/* Become python3 with one of the scripts. */
static int run_script(const char *name, int argc, char **argv)
{
    char path[4096 + 256], python[] = "python3";
    char **arguments = calloc((size_t)argc + 3, sizeof *arguments);
    if (!arguments)
        return EXIT_WRONG;
    if (find_script(name, path, sizeof path) != 0) {
        fprintf(stderr, "treeattn-bench: %s is missing: install the program again\n", path);
        free(arguments);
        return EXIT_WRONG;
    }
    arguments[0] = python;
    arguments[1] = path;
    for (int i = 0; i < argc; i++)
        arguments[i + 2] = argv[i];
    fflush(stdout);
    execvp(python, arguments);
    fputs("treeattn-bench: this command needs python3, which could not be started\n", stderr);
    free(arguments);
    return EXIT_WRONG;
}

int compare_command(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr,
                "usage: treeattn-bench compare A.json B.json\n"
                "treeattn-bench: compare needs two files that --json wrote, but got %d\n",
                argc);
        return EXIT_USAGE;
    }
    return run_script("compare.py", argc, argv);
}

int report_command(int argc, char **argv)
{
    return run_script("report.py", argc, argv);
}
